"""The view teacher: the teacher answers every turn in its own context, with its own weights, and the clean
context has a form that evaluation and training share.
"""

import json

import pytest
from safetensors.torch import load_file
from support.runs import checkpoint, complaint, equal, metrics, train, trainer_of

from smopd.chat.messages import clean_messages, full_messages, users_messages
from smopd.config import load_config, plan_of
from smopd.data import Example, load_examples
from smopd.evaluation.evaluate import judge
from smopd.evaluation.metrics import summarise
from smopd.evaluation.session import clean_form, evaluate_into, identity
from smopd.evaluation.store import load_outcomes
from smopd.models.adapter_files import WEIGHTS, averaged_teacher, load_adapter
from smopd.models.adapters import student_parameters
from smopd.objective.contexts import users_only
from smopd.rollout import Conversation, Driver, Sampled, Sampling, Stop, Turn, assembly
from smopd.rollout.hf import HFEngine
from smopd.rollout.play import Peers, Reply

TASK = Example(
    "x", "math", "Be brief.", ("How many?", "Seven were there.", "Two left."), "All.", {"value": "5"}
)
SHORT = ["rollout.middle_tokens=8", "rollout.answer_tokens=12", "lora.r=4", "lora.alpha=8", "eval.tokens=12",
         "eval.middle_tokens=8", "train.rollouts=2", "train.micro_batch=2"]  # fmt: skip
EVERYDAY = ["data.train=everyday@bill:train:8", "data.eval=everyday@bill:eval:3"]


def told(messages):
    return [message["content"] for message in messages if message["role"] == "user"]


def test_a_clean_context_has_three_forms_and_no_reply():
    assert told(users_messages(TASK, 1)) == ["How many?", "Seven were there."]
    assert told(users_messages(TASK, 1, "merged")) == ["How many?\n\nSeven were there."]
    assert told(users_messages(TASK, 2, "goal-last")) == ["Seven were there.\n\nTwo left.\n\nHow many?"]
    assert told(users_messages(TASK, 0, "goal-last")) == ["How many?"]
    for form in ("separate", "merged", "goal-last"):
        assert clean_messages(TASK, 2, form) == full_messages(TASK)  # the last turn sees the whole task
        assert clean_messages(TASK, 1, form) == users_messages(TASK, 1, form)
        assert clean_messages(TASK, 1, form)[0] == {"role": "system", "content": "Be brief."}


def test_the_form_is_a_part_of_the_plan_and_evaluation_takes_it_over():
    reply = Reply(TASK, "sharded", 0, 1, False, (), ())
    plan = plan_of(load_config(None))
    assert (plan.clean, plan.terms[0].teacher) == ("separate", users_only)
    merged = load_config(None, ["objective.clean=merged"])
    ((weight, context),) = plan_of(merged).terms[0].teacher(reply, Peers())
    assert (weight, context) == (1.0, users_messages(TASK, 1, "merged"))
    assert "teacher users_only(merged)" in plan_of(merged).describe()[1]
    assert clean_form(merged) == "merged"
    assert clean_form(load_config(None, ["objective.clean=merged", "eval.clean=goal-last"])) == "goal-last"
    # Also with the middle turns off, where no loss needs it; and of a method that has no such setting.
    assert clean_form(load_config(None, ["objective.clean=merged", "objective.middle=0"])) == "merged"
    assert clean_form(load_config(None, ["method=grpo"])) == "separate"


class Echo:
    """Answers every prompt alike and remembers what it was asked."""

    def __init__(self, ids):
        self.ids, self.asked, self.limits, self.seeds = ids, [], [], []

    def generate(self, prompts, seeds, sampling, sessions=None):
        self.asked += map(list, prompts)
        self.limits += [sampling.max_tokens] * len(prompts)
        self.seeds += seeds
        return [Sampled(tuple(self.ids), Stop.LENGTH) for _ in prompts]


@pytest.mark.parametrize("form", ["separate", "merged", "goal-last"])
def test_every_turn_is_answered_in_its_clean_context(pocket, form):
    examples = load_examples("pocket:eval:3")
    echo = Echo(pocket.renderer.encode("so 4"))
    driver = Driver(echo, pocket.renderer, Sampling(1.0, 9), 5, clean=form)
    played = driver.play(examples, "teacher", (1,))
    for example, conversation in zip(examples, played, strict=True):
        expected = [pocket.renderer.ids(clean_messages(example, t, form)) for t in range(len(example.shards))]
        assert [list(turn.context) for turn in conversation.turns] == expected
        assert conversation.asked == [*example.shards[:-1], example.full]
    assert sorted(echo.limits) == [5] * (len(echo.limits) - 3) + [9] * 3
    assert len(set(echo.seeds)) == len(echo.seeds) == sum(len(e.shards) for e in examples)


def test_its_last_reply_is_the_one_to_the_full_task(pocket):
    examples = load_examples("pocket:eval:4")
    engine = HFEngine(pocket.model, pocket.renderer.end_ids, 16)
    driver = Driver(engine, pocket.renderer, Sampling(0, 60), 60)
    teacher, full = (driver.play(examples, view, (1,)) for view in ("teacher", "full"))
    assert [c.final_text for c in teacher] == [c.final_text for c in full]


def said(example, view, wrong):
    """A conversation whose replies are right but for some turns."""
    talk = Conversation(example, view)
    for number, state in enumerate(example.answer["turns"]):
        talk.asked.append("")
        talk.turns.append(Turn((1,), (2,), Stop.END, f"total: {state['total'] + (number in wrong)}"))
    return talk


def test_its_turn_accuracy_stands_beside_the_students():
    examples = load_examples("everyday@bill:eval:3")
    talks = [said(e, "sharded", {0, 1, 9}) for e in examples] + [said(e, "teacher", {1}) for e in examples]
    summary = summarise(judge(talks))
    teacher, student = (summary["views"][view]["middle_turns"] for view in ("teacher", "sharded"))
    middle = sum(len(e.shards) - 1 for e in examples)
    assert (teacher["correct"], student["correct"], teacher["total"]) == (middle - 3, middle - 6, middle)
    change = summary["teacher_minus_sharded"]
    assert (change["n"], change["difference"]) == (3, 0.0)
    assert change["middle_turns"]["difference"] == pytest.approx(teacher["accuracy"] - student["accuracy"])
    assert change["middle_turns"]["gained"] == 3
    assert "teacher_minus_full" not in summary


def test_turn_accuracy_that_is_all_wrong_has_an_interval_all_the_same():
    example = load_examples("everyday@bill:eval:1")[0]
    turns = summarise(judge([said(example, "teacher", set(range(9)))]))["views"]["teacher"]["middle_turns"]
    assert (turns["accuracy"], turns["low"]) == (0, 0)
    assert turns["high"] > 0.5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose teacher is far from its student, and samples of the teacher at its second step."""
    path = tmp_path_factory.mktemp("teacher") / "run"
    more = ["train.steps=3", "optim.lr=0.02", "teacher.decay=0.9", "train.teacher_every=2"]
    return train(path, *SHORT, *EVERYDAY, *more)


def test_a_run_answers_with_its_averaged_teacher_and_says_so(run, tmp_path, pocket, monkeypatch):
    folder = run / "checkpoints" / "step-000003"
    with averaged_teacher(folder) as teacher:
        assert equal(load_file(teacher / WEIGHTS), checkpoint(run, 3, "teacher"))
        model = load_adapter(pocket.model, teacher)
        assert equal(student_parameters(model), checkpoint(run, 3, "teacher"))
    assert not teacher.exists()
    used = []
    make = assembly.evaluation_driver

    def noted(config, adapter, track):
        used.append(load_file(adapter / WEIGHTS) if adapter else None)
        return make(config, adapter, track)

    monkeypatch.setattr(assembly, "evaluation_driver", noted)
    config = load_config("pocket", [*SHORT, *EVERYDAY, 'eval.views=["teacher","sharded"]'])
    examples = load_examples(config.data.eval)
    summary = evaluate_into(tmp_path / "e", config, examples, "test", folder)
    assert len(used) == 2
    assert equal(used[0], checkpoint(run, 3))
    assert equal(used[1], checkpoint(run, 3, "teacher"))
    assert summary["teacher"] == {"weights": "averaged", "clean": "separate"}
    assert [o.view for o in load_outcomes(tmp_path / "e")] == ["teacher"] * 3 + ["sharded"] * 3
    base = evaluate_into(tmp_path / "b", config, examples, "test")
    assert base["teacher"]["weights"] == "model"
    assert used[2:] == [None]  # one model plays both views


def test_an_evaluation_without_the_view_is_what_it_was(run):
    """Its identity names its folder: finished ones are found again, whatever this view's settings."""
    plain, other = (load_config("pocket", EVERYDAY + more) for more in ([], ["eval.clean=merged"]))
    examples = load_examples(plain.data.eval)
    assert identity(plain, examples, None) == identity(other, examples, None)
    assert "teacher" not in identity(plain, examples, None)
    assert "clean" not in identity(plain, examples, None)["eval"]
    views = 'eval.views=["teacher"]'
    folder = run / "checkpoints" / "step-000003"
    seen = [identity(load_config("pocket", [*EVERYDAY, views, f"eval.clean={form}"]), examples, adapter)
            for form in ("separate", "merged") for adapter in (None, folder)]  # fmt: skip
    assert len({json.dumps(one["teacher"]) for one in seen}) == 4


def test_training_reports_turn_accuracy_and_samples_the_teacher_now_and_then(run, tmp_path):
    rows = metrics(run)
    assert ["teacher/turn_accuracy" in row for row in rows] == [False, True, False]
    assert all(0 <= row["turn_accuracy"] <= 1 for row in rows)
    more = ["train.steps=3", "optim.lr=0.02", "teacher.decay=0.9"]
    without = train(tmp_path / "without", *SHORT, *EVERYDAY, *more)
    for name in ("adapter_model", "teacher", "optimizer"):  # to look changes nothing
        assert equal(checkpoint(run, 3, name), checkpoint(without, 3, name))
    assert [row["loss"] for row in rows] == [row["loss"] for row in metrics(without)]


def test_the_teachers_replies_are_its_own_in_the_plans_form(tmp_path, monkeypatch):
    """Each is judged by the state after its turn; tasks that know none are not asked."""
    trainer = trainer_of(tmp_path / "r", *SHORT, *EVERYDAY, "train.teacher_every=1", "objective.clean=merged")
    all_rollouts = trainer.player.verify_and_grade(trainer.player.play(1))
    asked = []

    def right(self, places, seed):
        asked.extend(places)
        assert self.clean == "merged"
        assert trainer.model.active_adapter == "teacher"
        texts = [f"total: {example.answer['turns'][turn]['total']}" for example, turn, _ in places]
        return [Turn((), (), Stop.END, text) for text in texts]

    monkeypatch.setattr(Driver, "answer_clean", right)
    assert trainer.player.turn_accuracy(all_rollouts, trainer.model, 1)["teacher/turn_accuracy"] == 1.0
    assert asked
    assert all(turn < len(example.shards) - 1 for example, turn, _ in asked)
    assert trainer.model.active_adapter == "default"


def test_where_no_task_knows_its_middle_replies_nothing_is_reported_and_no_sample_promised(tmp_path):
    trainer = trainer_of(tmp_path / "m", *SHORT)
    all_rollouts = trainer.player.verify_and_grade(trainer.player.play(1))
    assert trainer.player.turn_accuracy(all_rollouts, trainer.model, 1) == {}
    message = complaint(tmp_path / "n", *SHORT, "train.teacher_every=1", call=trainer_of)
    assert "train.teacher_every: no task of pocket:train knows what a middle reply should say" in message
