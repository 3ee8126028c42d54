"""Evaluations on disk: refused, mended, continued; interrupted anywhere they end with the numbers of an
undisturbed one.
"""

import json
import os
from random import Random

import pytest

from smopd.chat.messages import user_turns
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.evaluation.evaluate import evaluate, groups
from smopd.evaluation.metrics import summarise
from smopd.evaluation.store import EvaluationFolder, load_outcomes, load_summary
from smopd.rollout import Conversation, Stop, Turn
from smopd.seeds import derive

ID = {"model": "m", "eval": {"runs": 2}}


class Moody:
    """Answers by its seed alone, sometimes rightly; may be stopped at the n-th conversation."""

    def __init__(self, stop_at=None):
        self.stop_at, self.played = stop_at, 0

    def play(self, examples, view, seed):
        conversations = []
        for example in examples:
            if self.played == self.stop_at:
                raise KeyboardInterrupt
            self.played += 1
            right = derive(*seed, view, example.id) % 3 == 0 and "value" in example.answer
            reply = Turn(
                (), (), Stop.END, f"The answer is {example.answer['value'] if right else -1}. ¿é? \n\n{{"
            )
            users = user_turns(example, view)
            conversations.append(Conversation(example, view, list(users), [reply] * len(users)))
        return conversations


def run(path, stop_at=None, limit=None):
    """The whole evaluation, or as far as it gets; the number of conversations played."""
    examples = load_examples("pocket:eval:14")
    player = Moody(stop_at)
    with EvaluationFolder(path, ID) as folder:
        outcomes = evaluate(player, examples, ["full", "sharded"], 2, 5, 4, folder.outcomes(), folder.add)
        folder.finish(outcomes, summarise(outcomes))
    assert not (path / ".lock").exists()
    return player.played


def test_interrupted_at_every_point_it_gives_the_same_numbers(tmp_path):
    total = run(tmp_path / "whole")
    assert total == 14 * 2 * 2
    wanted = [(tmp_path / "whole" / name).read_text() for name in ("conversations.jsonl", "summary.json")]
    assert json.loads(wanted[1])["views"]["full"]["correct"] > 0
    for stop_at in range(total):
        path = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at)
        assert load_summary(path) is None
        done = run(path)
        assert (
            total - stop_at <= done <= total - stop_at + 3
        )  # of what was finished only a group begun is played again
        assert [(path / name).read_text() for name in ("conversations.jsonl", "summary.json")] == wanted


def test_torn_at_any_byte_it_gives_the_same_numbers(tmp_path):
    run(tmp_path / "whole")
    wanted = (tmp_path / "whole" / "conversations.jsonl").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", 30)
    written = (tmp_path / "part" / "conversations.jsonl").read_bytes()
    for cut in Random(1).sample(range(len(written)), 25):
        (tmp_path / "part" / "conversations.jsonl").write_bytes(written[:cut])
        (tmp_path / "part" / "summary.json").unlink(missing_ok=True)
        run(tmp_path / "part")
        assert (tmp_path / "part" / "conversations.jsonl").read_bytes() == wanted


def test_torn_and_then_interrupted_again_it_still_goes_on(tmp_path):
    """What is appended behind a torn line would be unreadable."""
    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", 30)
    file = tmp_path / "part" / "conversations.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", 10)
    run(tmp_path / "part")
    assert file.read_bytes() == (tmp_path / "whole" / "conversations.jsonl").read_bytes()


def test_a_finished_evaluation_without_its_summary_is_not_played_again(tmp_path):
    run(tmp_path / "e")
    (tmp_path / "e" / "summary.json").unlink()
    assert run(tmp_path / "e") == 0


def test_nothing_is_written_before_the_first_group(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "e", 2)
    assert list(tmp_path.iterdir()) == []


def test_killed_while_the_folder_was_being_made_it_begins_anew(tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "evaluation.json.partial").write_text("{")
    assert run(tmp_path / "e") == 56
    assert not (tmp_path / "e" / "evaluation.json.partial").exists()


def test_two_at_once_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "e", 20)
    written = (tmp_path / "e" / "conversations.jsonl").read_bytes()
    with (
        EvaluationFolder(tmp_path / "e", ID),
        pytest.raises(UserError, match=f"plays this evaluation .pid {os.getpid()} on"),
    ):
        run(tmp_path / "e")
    assert (tmp_path / "e" / "conversations.jsonl").read_bytes() == written
    assert run(tmp_path / "e") > 0


def test_two_begun_at_once_the_later_one_stops_and_goes_on_when_asked_again(tmp_path):
    late = EvaluationFolder(tmp_path / "e", ID)
    with late:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "e", 20)
        written = (tmp_path / "e" / "conversations.jsonl").read_bytes()
        with pytest.raises(UserError, match="meanwhile; run the same command to resume"):
            late.add(late.outcomes()[:1])
    assert (tmp_path / "e" / "conversations.jsonl").read_bytes() == written
    assert run(tmp_path / "e") < 56


def test_another_evaluation_is_refused_and_the_difference_named(tmp_path):
    run(tmp_path / "e")
    with pytest.raises(UserError, match=r"(?s)something else.*model: \"m\" there, \"n\" now"):
        EvaluationFolder(tmp_path / "e", ID | {"model": "n"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        EvaluationFolder(tmp_path / "other", ID)


def test_unfinished_and_foreign_folders_are_no_results(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "e", 20)
    with pytest.raises(UserError, match="is not finished"):
        load_outcomes(tmp_path / "e")
    with pytest.raises(UserError, match="is no evaluation"):
        load_outcomes(tmp_path)
    run(tmp_path / "e")
    assert len(load_outcomes(tmp_path / "e")) == 56
    path = tmp_path / "e" / "conversations.jsonl"
    path.write_text(path.read_text().replace('"id"', '"ID"', 1))
    with pytest.raises(UserError, match=r"conversations.jsonl, line 1, field 'id': missing"):
        load_outcomes(tmp_path / "e")


def test_groups_hold_every_conversation_once_and_like_lengths_together():
    examples = load_examples("pocket:eval:30")
    seen = [
        (view, run, e.id) for view, run, chosen in groups(examples, ["full", "recap"], 3, 7) for e in chosen
    ]
    assert len(seen) == len(set(seen)) == 30 * 2 * 3
    lengths = [len(e.shards) for view, run, chosen in groups(examples, ["full"], 1, 7) for e in chosen]
    assert lengths == sorted(lengths)


def test_runs_differ_and_the_first_is_that_of_a_single_run(tmp_path):
    examples = load_examples("pocket:eval:14")
    three, one = (evaluate(Moody(), examples, ["sharded"], n, 5, 4) for n in (3, 1))
    assert [o.correct for o in three if o.run == 0] == [o.correct for o in one]
    assert len({tuple(o.correct for o in three if o.run == r) for r in range(3)}) > 1
