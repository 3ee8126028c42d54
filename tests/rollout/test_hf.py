"""The transformers engine: greedy equals a plain loop, sampling is exact and does not depend on the batch."""

import math

import pytest
import torch

from smopd.chat import full_context
from smopd.data import load_examples
from smopd.rollout import HFEngine, Sampling, Stop
from smopd.rollout.hf import InverseTransform
from smopd.seeds import derive

SAMPLED = Sampling(temperature=1.0, max_tokens=24, top_p=0.95, top_k=20)


@pytest.fixture
def engine(pocket):
    return HFEngine(pocket.model, pocket.renderer.end_ids, batch=8)


@pytest.fixture
def prompts(pocket):
    return [full_context(pocket.renderer, e) for e in load_examples("pocket:eval:12")]


def by_hand(model, prompt: list[int], ends: tuple[int, ...], limit: int) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < limit:
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        if ids[-1] in ends:
            break
    return ids[len(prompt) :]


def test_greedy_equals_a_plain_loop_without_cache_or_padding(engine, prompts, pocket):
    replies = engine.generate(prompts[:4], [0] * 4, Sampling(0.0, 24))
    for prompt, reply in zip(prompts[:4], replies, strict=True):
        assert list(reply.ids) == by_hand(pocket.model, prompt, pocket.renderer.end_ids, 24)


def test_a_draw_does_not_depend_on_the_rest_of_the_batch(engine, prompts):
    seeds = [derive("test", i) for i in range(12)]
    together = engine.generate(prompts, seeds, SAMPLED)
    backwards = engine.generate(prompts[::-1], seeds[::-1], SAMPLED)[::-1]
    alone = [engine.generate([p], [s], SAMPLED)[0] for p, s in zip(prompts, seeds, strict=True)]
    assert together == backwards == alone


def test_another_seed_is_another_draw(engine, prompts):
    hot = Sampling(temperature=2.0, max_tokens=16)
    one, other, again = (engine.generate(prompts[:6], [derive(s, i) for i in range(6)], hot) for s in (1, 2, 1))
    assert one == again
    assert one != other


def test_stop_reasons_and_the_end_token(engine, prompts, pocket):
    ended = engine.generate(prompts[:3], [0] * 3, Sampling(0.0, 64))
    cut = engine.generate(prompts[:3], [0] * 3, Sampling(0.0, 3))
    for reply in ended:
        assert reply.stop == Stop.END
        assert reply.ids[-1] in pocket.renderer.end_ids
        assert not set(reply.ids[:-1]) & set(pocket.renderer.end_ids)
    for reply, whole in zip(cut, ended, strict=True):
        assert reply.stop == Stop.LENGTH
        assert reply.ids == whole.ids[:3]


def test_inverse_transform_draws_the_distribution_and_never_a_forbidden_token():
    scores = torch.tensor([[0.0, float("-inf"), 1.0, 2.0, float("-inf")]])
    grid = torch.linspace(0, 1, 4001, dtype=torch.float64)[:-1]  # an even grid of numbers stands for many draws
    chosen = [int(InverseTransform(u.view(1, 1), 3)(torch.zeros(1, 3, dtype=torch.long), scores.clone()).argmax()) for u in grid]
    total = 1 + math.e + math.e**2
    for token, share in ((0, 1 / total), (2, math.e / total), (3, math.e**2 / total)):
        assert chosen.count(token) / len(chosen) == pytest.approx(share, abs=1e-3)
    assert set(chosen) == {0, 2, 3}


def test_sampled_frequencies_follow_the_model(engine, prompts, pocket):
    """First tokens of 400 draws against the model's own distribution at temperature 1."""
    seeds = [derive("frequency", i) for i in range(400)]
    wide = HFEngine(pocket.model, pocket.renderer.end_ids, batch=400)
    drawn = [r.ids[0] for r in wide.generate([prompts[0]] * 400, seeds, Sampling(1.0, 1))]
    with torch.no_grad():
        probability = pocket.model(input_ids=torch.tensor([prompts[0]])).logits[0, -1].softmax(-1)
    for token in probability.topk(3).indices.tolist():
        p = probability[token].item()
        assert drawn.count(token) / 400 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 400) + 1e-3)


def test_top_k_and_top_p_confine_the_draw(pocket, prompts):
    wide = HFEngine(pocket.model, pocket.renderer.end_ids, batch=200)
    seeds = [derive("confined", i) for i in range(200)]
    with torch.no_grad():
        logits = pocket.model(input_ids=torch.tensor([prompts[0]])).logits[0, -1]
    two = set(logits.topk(2).indices.tolist())
    assert {r.ids[0] for r in wide.generate([prompts[0]] * 200, seeds, Sampling(5.0, 1, top_k=2))} == two
    best = int(logits.argmax())
    assert {r.ids[0] for r in wide.generate([prompts[0]] * 200, seeds, Sampling(1.0, 1, top_p=0.01))} == {best}


def test_the_models_own_sampling_defaults_do_not_interfere(engine, prompts, pocket):
    before = engine.generate(prompts[:4], [0] * 4, Sampling(0.0, 24))
    pocket.model.generation_config.update(temperature=0.1, top_k=1, do_sample=True, num_beams=2)
    assert engine.generate(prompts[:4], [0] * 4, Sampling(0.0, 24)) == before
