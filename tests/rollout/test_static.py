"""Sampling with static shapes gives the tokens of the growing cache, eagerly and replayed from a graph."""

import pytest
import torch
from support.contexts import full_context
from support.played import FORGETFUL
from support.recorded_graph import RecordedGraphs, Refused

from smopd.chat import Renderer
from smopd.config import load_config
from smopd.data import load_examples
from smopd.models.adapters import attach, merged
from smopd.rollout import Driver, Sampling, Session, batches, static
from smopd.rollout.hf import HFEngine
from smopd.rollout.kv import Arena

NUCLEUS = Sampling(temperature=1.0, max_tokens=40, top_p=0.95, top_k=20)
SAMPLINGS = pytest.mark.parametrize(
    "sampling", [Sampling(0.0, 30), NUCLEUS, Sampling(1.5, 21)], ids=["greedy", "nucleus", "hot"]
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Few columns, so that short replies fill them."""
    monkeypatch.setattr(batches, "WIDTH", 32)


@pytest.fixture
def prompts(pocket):
    return [full_context(pocket.renderer, e) for e in load_examples("pocket:eval:11")]


def engines(pocket, graphs=None, **settings):
    """The growing cache, and static shapes."""
    ends = pocket.renderer.end_ids
    return HFEngine(pocket.model, ends, **settings), HFEngine(
        pocket.model, ends, static=True, graphs=graphs, **settings
    )


def same(ours, theirs):
    assert [r.ids for r in ours] == [r.ids for r in theirs]
    assert [r.stop for r in ours] == [r.stop for r in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=5e-5)


def play(pocket, engine, sampling, renderer=None, history="template"):
    driver = Driver(engine, renderer or pocket.renderer, sampling, sampling.max_tokens, history)
    played = driver.play(load_examples("pocket:eval:7"), "sharded", (3,))
    return [turn for conversation in played for turn in conversation.turns]


@SAMPLINGS
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_static_shapes_give_the_same_replies(pocket, prompts, sampling, attention):
    pocket.model.set_attn_implementation(attention)
    growing, fixed = engines(pocket, batch=11)
    seeds = list(range(11))
    same(fixed.generate(prompts, seeds, sampling), growing.generate(prompts, seeds, sampling))
    assert fixed.usage == growing.usage


@pytest.mark.parametrize("history", ["template", "verbatim"])
@pytest.mark.parametrize("graphs", [None, RecordedGraphs], ids=["eager", "replayed"])
def test_whole_conversations_are_the_same(pocket, history, graphs):
    """Turns reuse what was kept, in a batch of which rows leave, in columns that run out."""
    pocket.renderer.tokenizer.chat_template = FORGETFUL
    renderer = Renderer(pocket.renderer.tokenizer, end_ids=pocket.renderer.end_ids)
    growing, fixed = engines(pocket, graphs, batch=5)
    ours = play(pocket, fixed, NUCLEUS, renderer, history)
    theirs = play(pocket, growing, NUCLEUS, renderer, history)
    assert ours == theirs
    for one, other in zip(ours, theirs, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=5e-5)
    assert fixed.usage == growing.usage
    assert fixed.usage.reused
    assert not fixed.kept


@SAMPLINGS
def test_a_step_replayed_without_its_python_gives_the_same_replies(pocket, prompts, sampling):
    recordings = []
    growing, fixed = engines(pocket, lambda: recordings.append(RecordedGraphs()) or recordings[-1], batch=11)
    for seeds in (range(11), range(20, 31)):
        same(fixed.generate(prompts, seeds, sampling), growing.generate(prompts, seeds, sampling))
    (graphs,) = recordings
    # The second batch finds the graphs of the first.
    assert len(set(graphs.captured)) == len(graphs.captured)
    assert graphs.replayed > len(graphs.captured)
    rows, columns = zip(*graphs.captured, strict=True)
    assert set(rows) <= {1, 2, 4, 8, 16}
    assert len(set(rows)) > 1 or sampling.temperature > 1  # rows that ended have left
    assert len(set(columns)) > 1  # the cache has grown
    assert {count % 32 for count in columns} == {0}


def test_a_reply_does_not_depend_on_its_batch(pocket, prompts):
    _, fixed = engines(pocket, batch=11)
    seeds = list(range(11))
    together = fixed.generate(prompts, seeds, NUCLEUS)
    alone = [fixed.generate([p], [s], NUCLEUS)[0] for p, s in zip(prompts, seeds, strict=True)]
    same(together, alone)
    same(fixed.generate(prompts[::-1], seeds[::-1], NUCLEUS)[::-1], alone)


@pytest.mark.parametrize("limit", [1, 2, static.LOOK, static.LOOK + 1, static.LOOK + 2])
def test_limits_around_a_look(pocket, prompts, limit):
    growing, fixed = engines(pocket)
    sampling = Sampling(1.0, limit)
    same(fixed.generate(prompts, range(11), sampling), growing.generate(prompts, range(11), sampling))


def test_prompts_at_the_borders_of_a_cache(pocket, prompts):
    growing, fixed = engines(pocket)
    ids = [token for prompt in prompts for token in prompt]
    for length in (31, 32, 33, 64):
        same(
            fixed.generate([ids[:length]], [1], Sampling(2.0, 40)),
            growing.generate([ids[:length]], [1], Sampling(2.0, 40)),
        )


def test_little_room_splits_a_padded_batch(pocket, prompts, monkeypatch):
    growing, fixed = engines(pocket, batch=11)
    cells, sampling = batches.static_shape(1, max(map(len, prompts)) + 8)[1] * 4, Sampling(1.0, 8)
    fixed.limit = 2 * cells * fixed._token_bytes()
    widths, real = [], fixed._sample
    monkeypatch.setattr(fixed, "_sample", lambda rows, s: (widths.append(len(rows)), real(rows, s)))
    same(fixed.generate(prompts, range(11), sampling), growing.generate(prompts, range(11), sampling))
    assert max(widths) >= 4
    assert fixed.steps.arena.cells <= cells


def test_moved_weights_are_not_read_where_they_were(pocket, prompts):
    """A merged adapter puts other tensors in the place of the weights, which a graph would not notice."""
    config = load_config("pocket", ["lora.r=4"])
    model = attach(pocket.model, config.lora, config.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    ends, seeds, sampling = pocket.renderer.end_ids, range(11), Sampling(0.0, 20)
    growing = HFEngine(model, ends)
    fixed = HFEngine(model, ends, static=True, graphs=RecordedGraphs)
    beside = fixed.generate(prompts, seeds, sampling)
    same(beside, growing.generate(prompts, seeds, sampling))
    with merged(model):
        same(fixed.generate(prompts, seeds, sampling), growing.generate(prompts, seeds, sampling))
    with torch.no_grad():  # an optimizer step changes the numbers in place
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.neg_()
    changed = fixed.generate(prompts, seeds, sampling)
    same(changed, growing.generate(prompts, seeds, sampling))
    assert [r.ids for r in changed] != [r.ids for r in beside]


def test_sleep_and_new_weights_give_the_memory_back(pocket, prompts):
    _, fixed = engines(pocket, RecordedGraphs)
    for end in (fixed.sleep, lambda: fixed.refresh(1, lambda folder: None)):
        before = fixed.generate(prompts[:2], [0, 1], NUCLEUS, [Session("a"), Session("b")])
        assert fixed.steps.arena.cells
        end()
        assert fixed.steps.arena.cells == len(fixed.steps.arena.layers) == 0
        assert not fixed.kept
        assert fixed.generate(prompts[:2], [0, 1], NUCLEUS) == before
        end()


def test_without_graphs_the_same_replies_are_sampled_and_that_is_said_once(pocket, prompts, caplog):
    """The real `CudaGraphs`, where there is no CUDA."""
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    growing = HFEngine(pocket.model, pocket.renderer.end_ids)
    fixed = HFEngine(pocket.model, pocket.renderer.end_ids, static=True)
    for _ in range(2):
        same(fixed.generate(prompts, range(11), NUCLEUS), growing.generate(prompts, range(11), NUCLEUS))
    assert caplog.text.count("no CUDA graph of the decode step") == 1


def test_a_step_that_asks_the_host_is_refused(pocket, prompts, monkeypatch, caplog):
    """The recorded graph would tell if the step depended on a number that the host reads."""
    real = static.pick
    monkeypatch.setattr(static, "pick", lambda logits, *rest: (float(logits.sum()), real(logits, *rest))[1])
    growing, fixed = engines(pocket, RecordedGraphs)
    same(fixed.generate(prompts, range(11), NUCLEUS), growing.generate(prompts, range(11), NUCLEUS))
    assert "not permitted when stream is capturing" in caplog.text
    assert issubclass(Refused, RuntimeError)


def test_the_growing_cache_is_the_default_on_a_cpu(pocket):
    assert not HFEngine(pocket.model, [0]).static


def test_shapes_come_in_few_sizes():
    assert [batches.static_shape(n, 1)[0] for n in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]
    assert [batches.static_shape(1, n)[1] for n in (1, 32, 33)] == [32, 32, 64]


def test_an_arena_keeps_rows_through_a_change_of_shape():
    arena, example = Arena(), torch.zeros(1)
    assert arena.reserve(4 * 6)
    assert not arena.reserve(3)
    first = arena.maker(4, 4)(0, example, 3, 2, 5)
    assert first.shape == (2, 3, 2, 4, 5)
    torch.manual_seed(0)
    first.copy_(torch.randn(first.shape))
    expected = first[:, [0, 2], :, :3].clone()
    arena.move(torch.tensor([0, 2]), 3, (4, 4), (2, 6))
    cache = arena.cache(2, 6, torch.tensor([3]))
    kept = cache.take(1, 1, [7, 8])
    assert torch.equal(arena.view(0, 2, 6)[..., :3, :], expected)
    assert torch.equal(kept.layers[0], expected[:, 1, :, 1:3])
