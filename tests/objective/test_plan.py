"""Plans: what may be declared, what is computed of it, and how it is told."""

import pytest

from smopd.config import load_config, plan_of
from smopd.methods import METHODS
from smopd.objective import Plan, Term, batch, entropy, every, top, whole_task
from smopd.rollout.play import Play
from smopd.scoring import reverse_kl

TERM = Term("one", every, whole_task, reverse_kl())


@pytest.mark.parametrize(
    ("plays", "terms", "named"),
    [
        ((), (TERM,), "plays"),
        ((Play(), Play()), (TERM,), "plays"),
        ((Play(),), (), "terms"),
        ((Play(),), (TERM, TERM), "terms"),
        ((Play(share=0.5),), (TERM,), "everybody's"),
        ((Play(samples=0),), (TERM,), "everybody's"),
        ((Play("full", instead=True),), (TERM,), "everybody's"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(plays, terms, named):
    with pytest.raises(ValueError, match=named):
        Plan(plays, terms)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_declares_a_plan_and_tells_it(method):
    plan = plan_of(load_config("pocket", method=method))
    lines = plan.describe()
    assert lines[0].startswith("plays ")
    assert [line.split(":")[0] for line in lines[1:]] == [term.name for term in plan.terms]
    assert "object at 0x" not in "".join(lines)


def test_a_plan_is_told_in_the_words_it_is_written_in():
    plan = plan_of(load_config("pocket", ["objective.answer=0", "objective.clip=inf"], "clip-scale"))
    assert plan.describe() == [
        "plays sharded, full for 20%",
        "middle: replies middle, teacher users_only, loss gjs(0.5), tokens after(0.33, top(entropy, 0.8)), "
        "cap scale(inf), turns reliability()",
        "answer: off",
        "full: replies full, teacher whole_task, loss rkl, cap scale(inf)",
    ]
    assert [term.name for term in plan.scored] == ["middle", "full"]


def test_what_needs_a_look_at_the_whole_step_first():
    def needs(**parts):
        return Plan((Play(),), (Term("one", every, whole_task, reverse_kl(), **parts),)).needs_survey

    assert not needs(tokens=top(entropy, 0.5))
    assert needs(tokens=batch(top(entropy, 0.5)))
    assert needs(per="batch")
    assert needs(per="batch", mean_over="weight")
    assert not needs(per="batch", mean_over="all")  # the number of tokens is known beforehand
    assert not needs(tokens=batch(top(entropy, 0.5)), scale=0.0)
