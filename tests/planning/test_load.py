"""Planned tokens against real conversations, rendered, packed and sampled by the code that trains."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from average_lengths import measure
from conftest import shared
from support.contexts import clean_context, full_context

from smopd.chat import DirtyContext, Renderer
from smopd.config import load_config
from smopd.data import load_examples
from smopd.planning.load import (
    ANSWER_SHARE,
    DEFAULTS,
    MIDDLE_SHARE,
    common_prefix,
    find_averages,
    largest_load,
    step_load,
)
from smopd.rollout import Driver, Sampling
from smopd.rollout.hf import HFEngine
from smopd.scoring.tree import PrefixTree, rows_within

CLOSE = 0.1


@pytest.fixture(scope="module")
def pocket_renderer():
    from smopd.models import load_renderer

    return load_renderer(load_config("pocket"))


def spoken(renderer, examples, length: float, draw: Random) -> list[int]:
    """A reply of about so many tokens, in the words of the examples: tokens that the history will show again
    as they are.
    """
    text = " ".join(draw.choice(draw.choice(examples).shards) for _ in range(round(length)))
    cut = renderer.encode(text)[: round(length) - 1]
    return [*renderer.encode(renderer.decode(cut)), renderer.end_ids[0]]


def played(renderer, examples, example, middle: int, answer: int, history: str, draw: Random):
    """The student's and the teacher's sequences of a conversation, with replies half as long to half as long
    again.
    """
    context = DirtyContext(renderer, example, history)
    student, teacher = [], []
    for turn, user in enumerate(example.shards):
        mean = answer if turn == len(example.shards) - 1 else middle
        reply = spoken(renderer, examples, mean * draw.uniform(0.5, 1.5), draw)
        student.append((context.ask(user), reply))
        teacher.append((clean_context(renderer, example, turn), reply))
        context.answer(reply)
    return student, teacher


def packed_tokens(groups, row_tokens: int) -> int:
    total = 0
    for sequences in groups:
        whole = [[*c, *r] for c, r in sequences]
        total += sum(
            len(PrefixTree.pack([whole[k] for k in row]).input_ids) for row in rows_within(whole, row_tokens)
        )
    return total


@pytest.mark.parametrize(
    ("history", "row_tokens"), [("template", 10**6), ("template", 512), ("verbatim", 512)]
)
@pytest.mark.parametrize("name", ["qwen3", "pocket"])
def test_packed_tokens(request, name, history, row_tokens):
    if name == "qwen3":
        renderer = Renderer(request.getfixturevalue("qwen3"))
        examples = load_examples(shared("data/lic/math.json"), 20)
    else:
        renderer, examples = request.getfixturevalue("pocket_renderer"), load_examples("pocket:train:20")
    middle, answer = 40, 80
    lengths = replace(measure(examples, renderer), middle=middle, answer=answer)
    overrides = [
        f"train.row_tokens={row_tokens}",
        "train.rollouts=20",
        "objective.rho=0.0",
        f"chat.history={history}",
    ]
    load = step_load(load_config("qwen3-1.7b", overrides), lengths)
    draw = Random(0)
    real = [played(renderer, examples, e, middle, answer, history, draw) for e in examples]
    assert load.student.tokens == pytest.approx(packed_tokens([s for s, _ in real], row_tokens), rel=CLOSE)
    assert load.teacher.tokens == pytest.approx(packed_tokens([t for _, t in real], row_tokens), rel=CLOSE)
    scored = sum(len(reply) for s, _ in real for _, reply in s)
    assert load.scored == pytest.approx(scored, rel=CLOSE)


def test_packed_tokens_with_full_branches_and_several_rollouts_a_row(pocket_renderer):
    examples = load_examples("pocket:train:24")
    lengths = replace(measure(examples, pocket_renderer), middle=40, answer=40)
    config = load_config("pocket", ["train.rollouts=24", "train.micro_batch=8", "objective.rho=1.0"])
    load, draw, real = step_load(config, lengths), Random(1), []
    for example in examples:
        student, teacher = played(pocket_renderer, examples, example, 40, 40, "template", draw)
        reply = spoken(pocket_renderer, examples, 40 * draw.uniform(0.5, 1.5), draw)
        context = full_context(pocket_renderer, example)
        real.append(([*student, (context, reply)], [*teacher, (context, reply)]))
    for planned, side in ((load.student, 0), (load.teacher, 1)):
        groups = [[s for one in real[first : first + 8] for s in one[side]] for first in range(0, 24, 8)]
        assert planned.tokens == pytest.approx(packed_tokens(groups, config.train.row_tokens), rel=CLOSE)


def test_rollout_tokens(pocket):
    """Against conversations that the hf engine sampled, and its own count of what it prefilled for them."""
    config = load_config("pocket", ["train.rollouts=12", "objective.rho=0.0"])
    examples = load_examples("pocket:train:12")
    engine = HFEngine(pocket.model, pocket.renderer.end_ids)
    conversations = Driver(engine, pocket.renderer, Sampling(1.0, 40, 0.95, 20), 40).play(
        examples, "sharded", ("plan",)
    )
    middle = [len(turn.reply) for c in conversations for turn in c.turns[:-1]]
    answer = [len(c.turns[-1].reply) for c in conversations]
    lengths = replace(
        measure(examples, pocket.renderer), middle=sum(middle) / len(middle), answer=sum(answer) / len(answer)
    )
    load = step_load(config, lengths)
    assert load.sampled.tokens == pytest.approx(sum(middle) + sum(answer), rel=CLOSE)
    new = sum(len(c.turns[0].context) for c in conversations)
    for c in conversations:
        for before, turn in pairwise(c.turns):
            new += len(turn.context) - common_prefix(before.context + before.reply, turn.context)
    assert load.sampled.prefilled == pytest.approx(new, rel=CLOSE)
    # rows with less to compute repeat some, where padding would stand: the engine's count is the plan's and a
    # little more
    assert (
        load.sampled.prefilled
        < 1.1 * (engine.usage.prompt - engine.usage.reused)
        < 1.5 * load.sampled.prefilled
    )
    nothing_kept = step_load(
        load_config("pocket", ["train.rollouts=12", "objective.rho=0.0", "engine.cache_mb=0"]), lengths
    )
    assert nothing_kept.sampled.prefilled == pytest.approx(engine.usage.prompt, rel=CLOSE)


@pytest.mark.parametrize("name", ["qwen3", "pocket"])
def test_words_tell_how_many_tokens_a_text_has(request, name):
    """Within a fifth of the tokens of a turn, its template's included; of the template itself all."""
    if name == "qwen3":
        renderer, data = Renderer(request.getfixturevalue("qwen3")), shared("data/lic/math.json")
        counted = find_averages(load_config("qwen3-1.7b", [f"data.train={data}"]))
    else:
        renderer, data = request.getfixturevalue("pocket_renderer"), "pocket:train"
        counted = find_averages(load_config("pocket"))
    real = measure(load_examples(data), renderer)
    for part in ("turns", "start", "user", "prompt", "lost", "close", "repeats"):
        assert getattr(counted, part) == getattr(real, part)
    for text in ("shard", "full", "system"):
        known = real.user + real.prompt + getattr(real, text)
        assert counted.user + counted.prompt + getattr(counted, text) == pytest.approx(known, rel=2 * CLOSE)


def test_the_defaults_are_what_the_command_prints(qwen3):
    measured = measure(load_examples(shared("data/lic/math.json")), Renderer(qwen3))
    for name, value in vars(measured).items():
        if name not in ("source", "middle", "answer"):
            assert value == pytest.approx(getattr(DEFAULTS, name), abs=0.05)


def test_lengths_come_from_the_recipes_data_where_it_is_readable():
    assert find_averages(load_config("pocket")).source == "words of pocket:train"
    there_is_none = find_averages(load_config("qwen3-1.7b"))
    assert there_is_none.source == DEFAULTS.source
    assert (there_is_none.middle, there_is_none.answer) == (MIDDLE_SHARE * 256, ANSWER_SHARE * 1024)
    assert find_averages(load_config("qwen3-1.7b"), 100, 9999).middle == 100
    assert find_averages(load_config("qwen3-1.7b"), 100, 9999).answer == 1024  # a limit is a limit


def test_several_processes_share_a_step():
    config, lengths = load_config("qwen3-1.7b"), find_averages(load_config("qwen3-1.7b"))
    one, eight = step_load(config, lengths), step_load(config, lengths, 8)
    assert (one.rollouts, eight.rollouts) == (8, 1)
    assert eight.sampled.tokens < one.sampled.tokens / 6
    # but sampling waits for the longest reply, and a batch of one is as many steps as its reply is long
    assert eight.sampled.steps > one.sampled.steps / 8


GROUPS = """
from smopd.methods import Method
from smopd.objective import Plan, Term, every, judged
from smopd.rollout.play import Play
from smopd.scoring import forward_kl, sampled_nll
from smopd.settings import Section
from smopd.chat.messages import full_messages, users_messages

def two(reply, peers):
    (other,) = peers.others(reply)
    return [(1.0, full_messages(reply.example)), (-0.5, full_messages(other))]

def plan(s):
    return Plan((Play(samples=4),), (
        Term("pg", every, None, sampled_nll()),
        Term("wrong", judged(every, False), two, forward_kl()),
    ))

METHODS = [Method("groups", "", "", "", Section, plan)]
"""


def test_a_plan_of_groups_without_teacher_and_of_mixed_contexts(tmp_path):
    """Four samples of each example; the teacher scores two contexts of every second rollout's replies."""
    (tmp_path / "groups.py").write_text(GROUPS)
    config = load_config("qwen3-1.7b", ["train.rollouts=4"], str(tmp_path / "groups.py"))
    lengths = find_averages(config)
    once = step_load(load_config("qwen3-1.7b", ["train.rollouts=4", "objective.rho=0.0"]), lengths)
    load = step_load(config, lengths)
    assert load.rollouts == 16
    assert load.sampled.tokens == pytest.approx(4 * once.sampled.tokens)
    assert load.student.tokens == pytest.approx(4 * once.student.tokens)
    # every reply once without a teacher, half of them once more with one: 3 products a row each time
    assert load.scored == pytest.approx(1.5 * 4 * once.scored, rel=0.1)
    assert load.products == pytest.approx(3 * load.scored)
    assert load.teacher.tokens > 0


def test_an_exclusive_branch_takes_the_place_of_the_others():
    lengths = find_averages(load_config("qwen3-1.7b"))
    added, instead = (
        step_load(load_config("qwen3-1.7b", ["objective.rho=0.5", f"objective.full_branch={kind}"]), lengths)
        for kind in ("additive", "exclusive")
    )
    assert instead.scored < added.scored
    assert instead.student.tokens < added.student.tokens


def test_the_largest_micro_batch_is_larger_than_any_average_one():
    config = load_config("qwen3-1.7b")
    lengths = find_averages(config)
    largest = largest_load(config, lengths)
    student, replies = largest.student, largest.gradients
    load = step_load(config, lengths)
    assert student.tokens > load.student.tokens / 8
    assert replies == 8 * 256 + 2 * 1024
    at_limits = step_load(config, replace(lengths, middle=256, answer=1024))
    assert student.longest >= at_limits.teacher.longest > 1024
