"""The transformers engines: greedy equals a plain loop, draws depend neither on the batch nor on what is
kept.
"""

import math

import pytest
import torch
from support.contexts import full_context
from support.played import FORGETFUL
from transformers import Qwen3Config, Qwen3ForCausalLM

from smopd.chat import Renderer
from smopd.data import load_examples
from smopd.rollout import Driver, Sampling, Session, Stop
from smopd.rollout.hf import HFEngine, StockEngine
from smopd.rollout.kv import Kept
from smopd.seeds import derive

SAMPLED = Sampling(temperature=1.0, max_tokens=24, top_p=0.95, top_k=20)


@pytest.fixture(params=[HFEngine, StockEngine])
def engine(request, pocket):
    return request.param(pocket.model, pocket.renderer.end_ids, batch=8)


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
    one, other, again = (
        engine.generate(prompts[:6], [derive(s, i) for i in range(6)], hot) for s in (1, 2, 1)
    )
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
    assert {r.ids[0] for r in wide.generate([prompts[0]] * 200, seeds, Sampling(1.0, 1, top_p=0.01))} == {
        best
    }


def test_the_models_own_sampling_defaults_do_not_interfere(engine, prompts, pocket):
    before = engine.generate(prompts[:4], [0] * 4, Sampling(0.0, 24))
    pocket.model.generation_config.update(temperature=0.1, top_k=1, do_sample=True, num_beams=2)
    assert engine.generate(prompts[:4], [0] * 4, Sampling(0.0, 24)) == before


def play(pocket, engine, sampling, renderer=None, history="template"):
    examples = load_examples("pocket:eval:12")
    driver = Driver(engine, renderer or pocket.renderer, sampling, sampling.max_tokens, history)
    return driver.play(examples, "sharded", (3,))


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.turns == other.turns
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logps == pytest.approx(twin.logps, abs=1e-4)


@pytest.mark.parametrize(
    "sampling", [Sampling(0.0, 30), SAMPLED, Sampling(1.5, 20)], ids=["greedy", "nucleus", "hot"]
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("template", "history"), [(None, "template"), (FORGETFUL, "template"), (FORGETFUL, "verbatim")]
)
def test_kept_turns_give_the_tokens_of_turns_from_scratch(pocket, sampling, attention, template, history):
    pocket.model.set_attn_implementation(attention)
    if template:
        pocket.renderer.tokenizer.chat_template = template
    renderer = Renderer(pocket.renderer.tokenizer, end_ids=pocket.renderer.end_ids)
    cached, stock = (kind(pocket.model, renderer.end_ids, batch=5) for kind in (HFEngine, StockEngine))
    same(play(pocket, cached, sampling, renderer, history), play(pocket, stock, sampling, renderer, history))
    assert cached.usage.prompt == stock.usage.prompt
    assert cached.usage.prefilled < 0.8 * stock.usage.prefilled
    assert cached.usage.reused > 0.3 * cached.usage.prompt
    assert not cached.kept  # the last turn leaves nothing behind


def test_little_room_changes_the_work_and_not_the_tokens(pocket):
    plenty = HFEngine(pocket.model, pocket.renderer.end_ids, batch=12)
    expected = play(pocket, plenty, SAMPLED)
    token = plenty._token_bytes()
    small = HFEngine(pocket.model, pocket.renderer.end_ids, batch=12)
    small.limit = 600 * token  # two rows of a batch, and about two conversations between turns
    same(play(pocket, small, SAMPLED), expected)
    assert 0 < small.usage.reused < plenty.usage.reused
    nothing = HFEngine(pocket.model, pocket.renderer.end_ids, batch=12, cache_mb=0)
    same(play(pocket, nothing, SAMPLED), expected)
    assert nothing.usage.reused == 0


def test_what_is_kept_stays_within_the_bound(pocket, prompts, monkeypatch):
    engine = HFEngine(pocket.model, pocket.renderer.end_ids, batch=4)
    engine.limit = 2 * 200 * engine._token_bytes()
    sizes, widths = [], []
    real = engine._sample
    monkeypatch.setattr(engine, "_sample", lambda rows, s: (widths.append(len(rows)), real(rows, s)))
    for k, prompt in enumerate(prompts):
        engine.generate([prompt], [k], SAMPLED, [Session(str(k))])
        sizes.append(sum(kept.size for kept in engine.kept.values()))
    assert 0 < max(sizes) <= engine.limit // 2
    assert str(len(prompts) - 1) in engine.kept  # the newest stays, the oldest goes
    assert "0" not in engine.kept
    engine.generate(prompts, list(range(len(prompts))), SAMPLED)
    assert max(widths) < 4


def test_new_weights_forget_what_the_old_ones_computed(pocket):
    engine = HFEngine(pocket.model, pocket.renderer.end_ids)
    prompt = full_context(pocket.renderer, load_examples("pocket:eval:1")[0])
    session = Session("one")
    (first,) = engine.generate([prompt], [0], Sampling(0.0, 8), [session])
    follow = [*prompt, *first.ids, *prompt]
    with torch.no_grad():
        for p in pocket.model.parameters():
            p.mul_(1.3)
    engine.refresh(1, lambda folder: None)
    (ours,) = engine.generate([follow], [0], Sampling(0.0, 8), [session])
    (fresh,) = HFEngine(pocket.model, pocket.renderer.end_ids).generate([follow], [0], Sampling(0.0, 8))
    assert ours == fresh
    assert ours.logps == pytest.approx(fresh.logps, abs=1e-4)


def test_rows_that_ended_leave_the_batch(pocket, prompts, monkeypatch):
    engine = HFEngine(pocket.model, pocket.renderer.end_ids)
    widths = []
    real = engine._forward
    monkeypatch.setattr(
        engine, "_forward", lambda ids, rows, cache: (widths.append(len(ids)), real(ids, rows, cache))[1]
    )
    engine.generate(prompts, list(range(len(prompts))), Sampling(1.0, 64))
    assert widths[0] == len(prompts)
    assert widths[-1] < len(prompts)
    assert widths == sorted(widths, reverse=True)


def test_logps_are_the_models_own_whatever_the_sampling(engine, prompts, pocket):
    for reply, prompt in zip(
        engine.generate(prompts[:3], [1, 2, 3], Sampling(0.7, 12, 0.9, 5)), prompts, strict=False
    ):
        with torch.no_grad():
            logits = pocket.model(input_ids=torch.tensor([[*prompt, *reply.ids]])).logits[
                0, len(prompt) - 1 : -1
            ]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
        assert reply.logps == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_model_with_a_short_window_is_sampled_from_scratch(caplog):
    torch.manual_seed(0)
    windowed = Qwen3Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, vocab_size=31,
        use_sliding_window=True, sliding_window=10, max_window_layers=0,
    )  # fmt: skip
    engine = HFEngine(Qwen3ForCausalLM(windowed), [30])
    for _ in range(2):
        engine.generate([[1, 2, 3, 4, 5, 6, 7, 8, 9]], [0], Sampling(0.0, 4), [Session("x")])
    assert caplog.text.count("computed from scratch") == 1
    assert not engine.kept


def test_the_shared_prefix_leaves_at_least_one_token_to_compute():
    kept = Kept([1, 2, 3], [])
    assert kept.shared_with([1, 2, 3]) == 2
    assert kept.shared_with([1, 2, 3, 4]) == 3
    assert kept.shared_with([1, 9]) == 1
    assert kept.shared_with([9]) == 0
