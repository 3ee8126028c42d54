"""Several rollouts of one example: different conversations, numbered, graded as a group."""

from collections import Counter

import pytest
from support.runs import metrics, rows, trainer_of

from smopd.data import load_examples
from smopd.objective.contexts import attempts
from smopd.rollout.play import Peers, Play, drawn_plays, group_of, samples_of
from smopd.training.player import grade_groups

GROUPS = """
from smopd.methods import Method
from smopd.objective import Plan, Term, every
from smopd.rollout.play import Play
from smopd.scoring import sampled_nll
from smopd.settings import Section


class Settings(Section):
    samples: int = 3


def centred(group):
    rewards = [float(r.correct) for r in group]
    return [reward - sum(rewards) / len(rewards) for reward in rewards]


def plan(s):
    term = Term("pg", every, None, sampled_nll(), lambda t: t.advantage, mean_over="all")
    return Plan((Play(samples=s.samples),), (term,), grade=centred)


METHODS = [Method("groups", "groups", "groups", "none", Settings, plan)]
"""


def rollouts_of(trainer):
    """The rollouts of the first step."""
    return trainer.player.verify_and_grade(trainer.player.play(1))


def trainer(path, *sets, method=None):
    return trainer_of(path, "train.steps=1", *sets, method=method)


def test_sample_numbers_go_on_where_an_example_comes_again():
    a, b = load_examples("pocket:train:2")
    assert samples_of([a, b, a], 2) == [(a, 0), (a, 1), (b, 0), (b, 1), (a, 2), (a, 3)]


def test_an_example_that_comes_twice_in_a_step_is_another_rollout(tmp_path):
    """Three examples for eight rollouts: eight conversations, none of them counted again."""
    rollouts = rollouts_of(trainer(tmp_path / "small", "data.train=pocket:train:3", "train.rollouts=8"))
    assert len({(r.example.id, r.sample) for r in rollouts}) == 8
    transcripts = {tuple(t.reply for t in r.conversations[0].turns) for r in rollouts}
    assert len(transcripts) == 8
    assert {r.example.id: r.sample for r in rollouts if r.sample == 2}.keys() <= {
        r.example.id for r in rollouts
    }


def test_the_first_sample_is_what_an_example_played_once_gives(tmp_path):
    once = rollouts_of(trainer(tmp_path / "once", "data.train=pocket:train:3", "train.rollouts=3"))
    again = rollouts_of(trainer(tmp_path / "again", "data.train=pocket:train:3", "train.rollouts=6"))
    first = {r.example.id: [t.reply for t in r.conversations[0].turns] for r in again if r.sample == 0}
    assert first == {r.example.id: [t.reply for t in r.conversations[0].turns] for r in once}


def test_branches_are_drawn_for_each_sample():
    (example,) = load_examples("pocket:train:1")
    plays = (Play(), Play("full", share=0.5), Play("concat", share=0.3, instead=True))
    drawn = [drawn_plays(plays, (1, step), example, k) for step in range(40) for k in range(2)]
    assert drawn == [drawn_plays(plays, (1, step), example, k) for step in range(40) for k in range(2)]
    assert any(drawn[2 * k] != drawn[2 * k + 1] for k in range(40))
    for chosen in drawn:
        assert (plays[2] in chosen) == (plays[0] not in chosen)


def test_a_group_is_played_graded_and_learnt_from(tmp_path):
    (tmp_path / "groups.py").write_text(GROUPS)
    method = str(tmp_path / "groups.py")
    run = trainer(
        tmp_path / "groups", "train.rollouts=4", "objective.samples=3", "train.micro_batch=5", method=method
    )
    rollouts = rollouts_of(run)
    assert len(rollouts) == 12
    for k in range(0, 12, 3):
        group = rollouts[k : k + 3]
        assert [r.sample for r in group] == [0, 1, 2]
        assert len({r.example.id for r in group}) == 1
        rewards = [float(r.correct) for r in group]
        assert [r.advantage for r in group] == pytest.approx([x - sum(rewards) / 3 for x in rewards])
        assert sum(r.advantage for r in group) == pytest.approx(0)
    run.train()
    (row,) = metrics(run.folder.path)
    assert row["grad_norm"] > 0
    assert row["loss/pg"] == pytest.approx(row["loss"])
    (records,) = (run.folder.path / "rollouts").glob("*.jsonl")
    assert [r.get("sample", 0) for r in rows(records)] == [0, 1, 2] * 4


def test_an_example_that_is_drawn_twice_makes_two_groups_and_grading_keeps_the_order(tmp_path):
    (tmp_path / "groups.py").write_text(GROUPS)
    small = ("data.train=pocket:train:2", "train.rollouts=4", "objective.samples=3")
    rollouts = rollouts_of(trainer(tmp_path / "run", *small, method=str(tmp_path / "groups.py")))
    assert Counter(map(group_of, rollouts)) == {
        (id, repeat): 3 for id in {r.example.id for r in rollouts} for repeat in (0, 1)
    }
    graded = grade_groups(rollouts, lambda group: [10 * k + len(group) for k in range(len(group))])
    assert [(r.example.id, r.sample) for r in graded] == [(r.example.id, r.sample) for r in rollouts]
    assert [r.advantage for r in graded] == [3, 13, 23] * 4
    peers = Peers(rollouts)
    for number, rollout in enumerate(rollouts):
        assert [r.sample // 3 for r in peers.siblings(rollout.replies()[0])] == [rollout.sample // 3] * 2
        texts = attempts(rollout.replies()[0], peers, rollout.correct, with_own=True)
        group = rollouts[number // 3 * 3 :][:3]
        assert texts == [r.conversations[0].final_text for r in group if r.correct == rollout.correct]
