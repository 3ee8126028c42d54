"""The causes of a step without a gradient, and which of them end a run when they come again and again."""

from dataclasses import replace

import pytest
import torch
from methods.scene import make_scene, whole_loss

from smopd.config import load_config, plan_of
from smopd.objective import Moment, Plan, Term, dirty, every, hard, relative, whole_task
from smopd.rollout.play import Play
from smopd.scoring import reverse_kl
from smopd.training.no_gradient import explain

MOMENT = Moment(7, 10, (5, 7))


class Spoilt:
    """A row loss that is no number, with a gradient that is one."""

    name = "spoilt"

    def __init__(self, value: float = float("nan")) -> None:
        self.spoil = value

    def value(self, rows):
        return rows.student.sum(-1) + self.spoil


def nothing(tokens):
    return torch.zeros_like(tokens.entropy)


def explained(monkeypatch, plan, **scene_settings):
    """What is said of a step of this plan; there must be nothing to learn from in it."""
    scene = make_scene(plan, **scene_settings)
    losses = whole_loss(monkeypatch, scene, plan, MOMENT)
    total = torch.stack([loss.total for loss in losses]).mean()
    norm = sum(gradient.square().sum() for gradient in scene.gradient().values())
    finite = bool(torch.isfinite(total)) and bool(torch.isfinite(torch.as_tensor(norm)))
    assert not finite or norm == 0
    tokens = sum(len(reply.tokens) for r in scene.rollouts for reply in r.replies())
    replies = sum(bool(reply.tokens) for r in scene.rollouts for reply in r.replies())
    cause, stops = explain(scene.rollouts, losses, plan, MOMENT, finite)
    return cause.replace(f" {tokens} ", " N ").replace(f" {replies} ", " R "), stops


LOST = Term("lost", every, whole_task, reverse_kl())


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ({"loss": Spoilt()}, "the loss is not finite on N of N tokens"),
        ({"loss": Spoilt(float("inf"))}, "the loss is not finite on N of N tokens"),
        ({"loss": Spoilt(), "cap": hard(0.5)}, "the loss is not finite on N of N tokens"),
        ({"loss": Spoilt(), "cap": relative(9.0)}, "the loss is not finite on N of N tokens"),
        ({"loss": Spoilt(), "tokens": nothing}, "the loss is not finite on N of N tokens"),
        (
            {"tokens": lambda t: t.entropy * float("nan")},
            "the token weight (<lambda>) is not finite on N of N tokens",
        ),
        ({"turns": lambda t: t.deltas * float("nan")}, "the turn weight (<lambda>) is not finite"),
        ({"turns": lambda t: t.deltas * 0}, "its turn weight is 0 for every reply"),
        ({"replies": lambda replies, moment: []}, "no reply is chosen for it"),
        (
            {"teacher": lambda reply, peers: []},
            "the teacher had no context for any of its R replies (<lambda>)",
        ),
        ({"tokens": nothing}, "the token weight kept none of N tokens (nothing)"),
        ({"cap": hard(0.0)}, "all N tokens that it keeps are over its cap hard(0)"),
        (
            {"loss": Spoilt(float("inf")), "cap": hard(0.5)},
            "all N tokens that it keeps are over its cap hard(0.5)",
        ),
        ({"teacher": dirty, "weights": "student"}, "student and teacher agree on all N tokens that it keeps"),
    ],
)
def test_the_part_that_left_nothing_to_learn_is_named_and_stops_the_run(parts, cause, monkeypatch):
    plan = Plan((Play(),), (replace(LOST, **parts),))
    assert explained(monkeypatch, plan, seed=1) == (f"term 'lost': {cause}", True)


def test_every_term_has_its_own_cause(monkeypatch):
    terms = (replace(LOST, tokens=nothing), replace(LOST, name="other", cap=hard(0.0)))
    cause, stops = explained(monkeypatch, Plan((Play(),), terms), seed=1)
    assert stops
    assert cause == (
        "term 'lost': the token weight kept none of N tokens (nothing); "
        "term 'other': all N tokens that it keeps are over its cap hard(0)"
    )


@pytest.mark.parametrize(
    ("method", "settings", "right", "cause"),
    [
        ("grpo", (), "all", "term 'policy': all advantages are 0"),
        ("grpo", (), "none", "term 'policy': all advantages are 0"),
        (
            "rlsta",
            ("objective.anchor=0", "objective.beta=0"),
            "none",
            "term 'policy': the token weight kept none",
        ),
        ("sdpo", (), "none", "term 'distil': the teacher had no context for any of its R replies"),
        ("sft", (), "none", "term 'solutions': no reply is chosen for it"),
        ("ogls-sd", (), "all", "term 'steer': no reply is chosen for it"),
    ],
)
def test_outcomes_that_leave_nothing_to_learn_do_not_stop_a_run(method, settings, right, cause, monkeypatch):
    plan = plan_of(load_config("pocket", settings, method))
    explanation, stops = explained(monkeypatch, plan, right=right)
    assert explanation.startswith(cause)
    assert not stops


def test_what_no_outcome_would_mend_stops_it(monkeypatch):
    """Groups of one, and examples without the reference that every teacher context needs."""
    alone = replace(plan_of(load_config("pocket", (), "grpo")), plays=(Play(),))
    assert explained(monkeypatch, alone) == ("term 'policy': all advantages are 0", True)
    cause, stops = explained(monkeypatch, plan_of(load_config("pocket", (), "opsd")), task="code")
    assert cause == "term 'distil': the teacher had no context for any of its R replies (with_reference)"
    assert stops


def test_conversations_that_are_still_cut_short_do_not_stop_it(monkeypatch):
    """TCOD's first turn: student and teacher see the same, and more turns follow."""
    agree = replace(LOST, teacher=dirty, weights="student")
    assert not explained(monkeypatch, Plan((Play(turns=lambda step: 1),), (agree,)))[1]
