"""Terms balanced by their gradient norms: the same as scaling the gradients that each term has alone."""

from dataclasses import replace

import pytest
import torch

from smopd.config import load_config
from smopd.models.adapters import student_parameters
from smopd.objective.tokens import Moment
from smopd.runs.writer import RunFolder
from smopd.training.loop import Trainer
from smopd.training.step_scoring import StepScorer, balance

SETTINGS = ["train.rollouts=4", "train.micro_batch=3", "train.steps=2"]
SETTINGS += ["objective.rho=1.0", "objective.clip=inf"]


@pytest.fixture
def trainer(tmp_path):
    config = load_config("pocket", SETTINGS)
    new_trainer = Trainer(config, RunFolder(tmp_path / "run", config))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # away from the teacher, or nothing differs on the first turn
        for parameter in student_parameters(new_trainer.model).values():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    yield new_trainer
    new_trainer.engine.close()


def gradient(trainer, plan, rollouts):
    scorer = StepScorer(trainer.model, trainer.renderer, plan, trainer.config.train, trainer.processes)
    _, norms = scorer.score(rollouts, Moment(1, 2, (42, 1)))
    return torch.cat([p.grad.flatten() for p in trainer.student]).clone(), norms


def test_every_term_is_felt_alike(trainer):
    plan = trainer.plan
    rollouts = trainer.player.verify_and_grade(trainer.player.play(1))
    alone = {term.name: gradient(trainer, replace(plan, terms=(term,)), rollouts)[0] for term in plan.terms}
    sizes = {name: float(g.norm()) for name, g in alone.items()}
    assert max(sizes.values()) > 1.5 * min(sizes.values()) > 0
    balanced, norms = gradient(trainer, replace(plan, balance=True), rollouts)
    assert norms == pytest.approx(sizes, rel=1e-4)
    target = sum(sizes.values()) / 3
    expected = sum(target / sizes[name] * g for name, g in alone.items())
    torch.testing.assert_close(balanced, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
    plain, _ = gradient(trainer, plan, rollouts)
    torch.testing.assert_close(plain, sum(alone.values()), rtol=1e-3, atol=1e-5 * float(plain.abs().max()))


def test_a_term_without_gradient_changes_nothing(trainer):
    plan = trainer.plan
    rollouts = trainer.player.verify_and_grade(trainer.player.play(1))
    nothing = replace(plan.terms[0], name="nothing", replies=lambda replies, moment: [])
    two = replace(plan, terms=plan.terms[1:], balance=True)
    with_nothing = replace(two, terms=(nothing, *two.terms))
    one, other = (gradient(trainer, some, rollouts) for some in (two, with_nothing))
    torch.testing.assert_close(one[0], other[0])
    assert other[1]["nothing"] == 0


def test_a_gradient_that_is_rounding_is_not_scaled_up():
    vectors = {"large": [3.0, 0.0], "small": [0.0, 1.0], "rounding": [0.0, 1e-6]}
    total, norms = balance({name: [torch.tensor(vector)] for name, vector in vectors.items()})
    assert norms == pytest.approx({"large": 3.0, "small": 1.0, "rounding": 1e-6})
    torch.testing.assert_close(total, [torch.tensor([2.0, 2.0 + 1e-6])], rtol=1e-7, atol=0)
