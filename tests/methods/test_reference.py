"""Every method's whole loss against a reference in float64 that is written apart from the parts, in value and
gradient, on random rollouts of uneven lengths; by the fused path and the plain one, in micro-batches. Of
three steps one draws an example twice.

A reference gets the replies of every rollout of a step (`Shown`) and returns one number: the step's loss.
"""

import pytest
import torch
from methods import baselines, compared, neighbours, ours, privileged  # noqa: F401 - they register them
from methods.references import CASES, REFERENCES
from methods.scene import make_scene, shown, whole_loss

from smopd.config import load_config, plan_of
from smopd.methods import METHODS
from smopd.objective.tokens import Moment


@pytest.mark.parametrize("step", [2, 7])  # before and after what begins with a third or half of the run
@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize(("name", "setting"), CASES)
def test_the_whole_loss_is_the_reference(name, setting, path, step, monkeypatch):
    config = load_config("pocket", [setting] if setting else [], method=name)
    plan, moment = plan_of(config), Moment(step, 10, (5, step))
    for seed in range(3):
        scene = make_scene(plan, seed, step=step, twice=seed == 2)
        expected = REFERENCES[name](shown(scene), config.objective, moment)
        expected.backward()
        wanted = scene.gradient()
        losses = whole_loss(monkeypatch, scene, plan, moment, path == "fused")
        total = torch.stack([loss.total for loss in losses]).mean()
        assert total.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-10)
        for key, gradient in scene.gradient().items():
            torch.testing.assert_close(gradient, wanted[key], rtol=1e-10, atol=1e-10)
        assert any(gradient.abs().max() > 1e-6 for gradient in wanted.values())


def test_every_method_has_a_reference():
    assert set(METHODS) == set(REFERENCES)
