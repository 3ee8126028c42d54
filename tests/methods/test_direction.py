"""Policy gradients point the right way: after one small step, tokens and rollouts of positive advantage are
likelier than before, the others less likely.

The terms are found in the plans: whatever weighs -log s(y) of the sampled token. What counts as a positive
advantage is worked out here: the outcome against its group, or log t(y) - log s(y) of a token.
"""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from methods.scene import Scene, make_scene, shown, whole_loss

from smopd.config import load_config, plan_of
from smopd.methods import METHODS
from smopd.objective import Moment, Plan
from smopd.objective.plan import part_name
from smopd.scoring import sampled_nll

MOMENT = Moment(7, 10, (5, 7))
STEP = 1e-3
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def policies(name: str) -> list[Plan]:
    """Of a method's plan, one with each of its policy gradients alone."""
    plan = plan_of(load_config("pocket", method=name))
    return [replace(plan, terms=(term,)) for term in plan.scored if term.loss is sampled_nll()]


FOUND = [(name, plan) for name in METHODS for plan in policies(name)]


def log_ps(scene: Scene) -> dict[tuple, torch.Tensor]:
    """(example, sample, view, turn) -> log s(y) of a reply's tokens."""
    return {
        (r.reply.example.id, r.reply.sample, r.reply.view, r.reply.turn): r.of(r.log_s).detach()
        for replies in shown(scene)
        for r in replies
    }


def advantages(scene: Scene, plan: Plan) -> dict[tuple, torch.Tensor]:
    """The same keys -> the advantage of each token."""
    (term,), advantage_by_key = plan.terms, {}
    groups = defaultdict(list)
    for rollout in scene.rollouts:
        groups[rollout.example.id].append(float(rollout.correct))
    for replies in shown(scene):
        for r in replies:
            key = (r.reply.example.id, r.reply.sample, r.reply.view, r.reply.turn)
            if "advantage" in part_name(term.tokens):
                value = float(r.rollout.correct) - fmean(groups[r.reply.example.id])
                advantage_by_key[key] = torch.full((len(r.reply.tokens),), value)
            elif term.teacher is None:  # likelihood of what was judged right
                advantage_by_key[key] = torch.full((len(r.reply.tokens),), float(r.rollout.correct))
            else:
                contexts = term.teacher(r.reply, scene.peers(MOMENT))
                logits = sum(weight * r.logits_t(context, term.weights) for weight, context in contexts)
                advantage_by_key[key] = (r.of(logits.log_softmax(-1)) - r.of(r.log_s)).detach()
    return advantage_by_key


def assert_right_direction(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    rises, falls, weights = [], [], []
    for seed in range(3):
        scene = make_scene(plan, seed)
        for rollout in scene.rollouts:
            for talk in rollout.conversations:  # the engine's probabilities are the student's
                talk.turns[:] = [replace(turn, logps=()) for turn in talk.turns]
        before, gains = log_ps(scene), advantages(scene, plan)
        losses = whole_loss(monkeypatch, scene, plan, MOMENT)
        weights += [s.weight for loss in losses for term in loss.terms.values() for s in term.stats]
        for key, gradient in scene.gradient().items():
            scene.student[key].data -= STEP * gradient
        for key, after in log_ps(scene).items():
            change = after - before[key]
            moved = change.abs() > 1e-12
            # Token by token: each has hidden states of its own here.
            assert ((change > 0) == (gains[key] > 0))[moved].all()
            rises += change[moved & (gains[key] > 0)].tolist()
            falls += change[moved & (gains[key] < 0)].tolist()
    assert fmean(rises) > 0
    if (torch.cat(weights) < 0).any():  # some terms have positive weights alone
        assert fmean(falls) < 0
    else:
        assert not falls


@pytest.mark.parametrize(
    ("name", "plan"), FOUND, ids=[f"{name}-{plan.terms[0].name}" for name, plan in FOUND]
)
def test_a_policy_gradient_points_the_right_way(name, plan, monkeypatch):
    assert_right_direction(monkeypatch, plan)


def test_policy_gradients_are_found():
    assert {n for n, _ in FOUND} >= {"grpo", "rlsta", "opd", "reopold", "eopd", "aopd", "scope", "sod"}


def test_the_example_of_the_docs_points_the_right_way(tmp_path, monkeypatch):
    (text,) = re.findall(r"^`my_group.py`\n\n```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (tmp_path / "my_group.py").write_text(text, encoding="utf-8")
    assert_right_direction(monkeypatch, plan_of(load_config("pocket", method=str(tmp_path / "my_group.py"))))
