"""The teaching file computes what the package computes."""

import importlib.util
import runpy
from pathlib import Path

import pytest
import torch
from support.played import gradient, move_student, play, student_of, totals

from smopd.data import load_examples
from smopd.methods.smopd import Settings, plan
from smopd.models.adapters import teacher_weights
from smopd.objective.tokens import Moment
from smopd.training.scores import score

FILE = Path(__file__).parents[1] / "examples" / "smopd_step.py"


@pytest.fixture(scope="module")
def step():
    spec = importlib.util.spec_from_file_location("smopd_step", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_needs_no_package():
    text = FILE.read_text()
    assert len(text.splitlines()) <= 160
    assert "import smopd" not in text
    assert "from smopd" not in text


@pytest.mark.parametrize("masked", [False, True])
def test_loss_and_gradient_are_those_of_the_package(step, pocket, masked):
    model, renderer, tokenizer = student_of(pocket), pocket.renderer, pocket.renderer.tokenizer
    rollouts = play(model, renderer, load_examples("pocket:train:4"), 2)
    move_student(model, 0.03)
    model.double()
    losses = score(model, renderer, rollouts, plan(Settings()), Moment(10 if masked else 1, 10))
    totals(losses).mean().backward()
    expected = gradient(model)

    def teacher(ids):
        with teacher_weights(model, "ema"):
            return model(ids)

    values = []
    for rollout in rollouts:
        example, (sharded, *full) = rollout.example, rollout.conversations
        task = {"system": example.system, "shards": example.shards, "full": example.full}
        history, turns = [step.message("system", example.system)], []
        for shard, turn in zip(example.shards, sharded.turns, strict=True):
            history = [*history, step.message("user", shard)]
            assert step.encode(tokenizer, history) == list(turn.context)
            turns.append((history, list(turn.reply)))
            history = [*history, step.message("assistant", turn.text)]
        reply = list(full[0].turns[0].reply) if full else None
        values.append(step.rollout_loss(model, teacher, tokenizer, task, turns, reply, masked))
    torch.stack(values).mean().backward()
    torch.testing.assert_close(torch.stack(values), totals(losses), rtol=1e-9, atol=1e-11)
    # The norms inside the model compute in float32 whatever its type.
    torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-7)


def test_the_teacher_is_a_moving_average_and_the_loss_has_a_gradient(step, pocket):
    torch.manual_seed(0)
    student = pocket.model.requires_grad_(True)
    before = [p.detach().clone() for p in student.parameters()]
    teacher = step.copy.deepcopy(student)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.mul_(1.001)  # a teacher that is not the student: there is something to learn
    old = [p.detach().clone() for p in teacher.parameters()]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    loss = step.train_step(student, teacher, pocket.renderer.tokenizer, optimizer, step.TASKS, masked=True)
    assert loss > 0
    new = [p.detach() for p in student.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(new, before, strict=True))
    for now, previous, weight in zip(teacher.parameters(), old, new, strict=True):
        torch.testing.assert_close(now.detach(), 0.99 * previous + 0.01 * weight)


@pytest.mark.slow
def test_it_runs(capsys):
    runpy.run_path(str(FILE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 20
    assert sum(line.startswith("model: ") for line in lines) == 5
