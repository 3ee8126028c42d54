"""Continuous sampling gives the tokens of lockstep, whoever joins when."""

import pytest

from smopd.config import Config
from smopd.data import load_examples
from smopd.models import load_model
from smopd.rollout import Driver
from smopd.rollout.driver import ConversationRequest
from smopd.rollout.engine import ReplyRequest, Sampling, Session, Stop, converse_in_rounds
from smopd.rollout.hf import HFEngine

GREEDY, SAMPLED = Sampling(0.0, 24), Sampling(1.0, 24, top_p=0.95, top_k=20)
EXAMPLES = load_examples("pocket:eval:7")
VIEWS = ("sharded", "full")


def played(chat, sampling, continuous=True, middle=12, history="template", views=VIEWS, **engine):
    """The conversations, and the engine that sampled them."""
    requests = [ConversationRequest(e, view, (3,), n % 2) for n, e in enumerate(EXAMPLES) for view in views]
    one = HFEngine(chat.model, chat.renderer.end_ids, **engine)
    return Driver(one, chat.renderer, sampling, middle, history).play_all(requests, continuous), one


@pytest.fixture(scope="module")
def in_rounds():
    """The same conversations in lockstep, by sampling and history."""
    chat, cases = load_model(Config()), [(s, h) for s in (GREEDY, SAMPLED) for h in ("template", "verbatim")]
    return {(s, h): played(chat, s, continuous=False, history=h)[0] for s, h in cases}


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.asked == other.asked
        assert one.turns == other.turns
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logps == pytest.approx(twin.logps, abs=1e-4)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "nucleus"])
@pytest.mark.parametrize(("history", "batch"), [("template", 1), ("verbatim", 3), ("template", 64)])
def test_continuous_equals_rounds(pocket, in_rounds, sampling, history, batch):
    ours, engine = played(pocket, sampling, history=history, batch=batch)
    assert_same(ours, in_rounds[sampling, history])
    assert engine.usage.reused > engine.usage.prompt / 3  # a turn takes the earlier ones' keys along


@pytest.mark.parametrize("cache_mb", [0, 1], ids=["no bound", "one row at a time"])
def test_memory_bounds_change_nothing(pocket, in_rounds, cache_mb):
    ours, _ = played(pocket, SAMPLED, cache_mb=cache_mb)
    assert_same(ours, in_rounds[SAMPLED, "template"])


def test_eager_attention_samples_the_same(in_rounds):
    eager = load_model(Config.model_validate({"model": {"attention": "eager"}}))
    ours, _ = played(eager, SAMPLED, batch=4)
    assert_same(ours, in_rounds[SAMPLED, "template"])


def test_every_reply_has_its_own_limit(pocket):
    ours, _ = played(pocket, Sampling(1.0, 40), middle=3)
    for turn in (turn for conversation in ours for turn in conversation.turns[:-1]):
        assert len(turn.reply) == 3 or (len(turn.reply) < 3 and turn.stop == Stop.END)
    assert max(len(c.turns[-1].reply) for c in ours) > 3


def test_a_teacher_answers_every_turn_alone(pocket):
    rounds, _ = played(pocket, SAMPLED, continuous=False, views=("teacher",))
    ours, _ = played(pocket, SAMPLED, batch=5, views=("teacher",))
    assert_same(ours, rounds)
    assert all(len(c.turns) == len(c.asked) and all(t.reply for t in c.turns) for c in ours)


def test_nobody_waits_for_the_longest_reply(pocket):
    """A conversation of short replies is over while a long one is still in its first turn."""
    order, prompt = [], pocket.renderer.ids([{"role": "user", "content": "Hello."}])
    engine = HFEngine(pocket.model, pocket.renderer.end_ids)
    engine.end_ids = []  # every reply is as long as its limit

    def dialogue(name, limits):
        for turn, limit in enumerate(limits):
            yield ReplyRequest(list(prompt), turn, limit, Session(name, False))
            order.append((name, turn))

    engine.converse([dialogue("long", [40]), dialogue("short", [2, 2, 2])], GREEDY)
    assert order == [("short", 0), ("short", 1), ("short", 2), ("long", 0)]
    order.clear()
    converse_in_rounds(engine, [dialogue("long", [40]), dialogue("short", [2, 2, 2])], GREEDY)
    assert order[:2] == [("long", 0), ("short", 0)]  # here the second round waits for both
