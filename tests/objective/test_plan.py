"""Plans: what may be declared, what is computed of it, and how it is told."""

import re
from dataclasses import replace
from math import inf

import pytest
import torch

from smopd.config import load_config, plan_of
from smopd.errors import UserError
from smopd.methods import METHODS
from smopd.models import load_renderer
from smopd.objective import (
    Auxiliary,
    Plan,
    Term,
    UsersOnly,
    Weight,
    after,
    batch,
    entropy,
    every,
    first,
    hard,
    product,
    top,
    whole_task,
)
from smopd.objective.caps import Cap
from smopd.objective.dry_run import try_parts
from smopd.rollout.play import Play
from smopd.scoring import hidden_mse, reverse_kl, row_loss, sampled_nll, top_k_forward_kl
from smopd.scoring.losses import Divergence

TERM = Term("one", every, whole_task, reverse_kl())


@pytest.mark.parametrize(
    ("plays", "terms", "named"),
    [
        ((), (TERM,), "plays"),
        ((Play(), Play()), (TERM,), "plays"),
        ((Play(),), (), "terms"),
        ((Play(),), (TERM, TERM), "terms"),
        ((Play(share=0.5),), (TERM,), "everybody's"),
        (Play(), (TERM,), "a plan's plays is a Play, expected a tuple"),
        ((Play(),), (TERM), "a plan's terms is a Term, expected a tuple"),
        ((Play(),), "terms", "a plan's terms is 'terms', expected a tuple"),
        ((Play, Play("full")), (TERM,), "one of a plan's plays is the class Play itself"),
        ((Play(),), (TERM, TERM.loss), "one of a plan's terms is a Divergence"),
        ((Play("full", instead=True),), (TERM,), "everybody's"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(plays, terms, named):
    with pytest.raises(ValueError, match=named):
        Plan(plays, terms)


def test_lists_of_plays_and_terms_will_do():
    assert Plan([Play()], [TERM]) == Plan((Play(),), (TERM,))


def no_argument():
    return []


@row_loss
def by_teacher(rows):
    return -rows.teacher.log_softmax(-1)[:, 0] * rows.student[:, 0]


@row_loss
def unpacks(rows):
    student, teacher, *_ = rows
    return (student - torch.where(teacher > 0, 0.0, 1.0)).square().mean(-1)


@row_loss
def student_alone(rows):
    return -rows.student.log_softmax(-1).gather(-1, rows.tokens[:, None])[:, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": "emma"}, "weights = 'emma'; did you mean 'ema'? The known ones are ema, base, student"),
        ({"mean_over": "al"}, "mean_over = 'al'; did you mean 'all'?"),
        ({"per": "bacth"}, "per = 'bacth'; did you mean 'batch'?"),
        ({"weights": None}, "weights = None"),
        ({"name": ""}, "the name of a term is '', expected a text"),
        ({"name": 3}, "the name of a term is 3"),
        ({"replies": "every"}, "replies is 'every', expected a function of (replies, moment)"),
        ({"replies": first}, "replies is first(count: int)"),
        ({"teacher": UsersOnly}, "teacher is the class UsersOnly itself"),
        ({"teacher": no_argument}, "teacher is no_argument(), expected a function of (reply, peers)"),
        ({"tokens": top}, "tokens is top(ranking"),
        ({"tokens": 0.5}, "tokens is 0.5, expected a function of (tokens)"),
        ({"cap": hard}, "cap is the function hard, not called, expected a cap such as hard(0.5)"),
        ({"cap": 0.5}, "cap is 0.5"),
        ({"turns": 1.0}, "turns is 1.0, expected a function of (turns)"),
        ({"scale": inf}, "scale is inf, expected a finite number"),
        ({"scale": "1"}, "scale is '1', expected a finite number"),
        ({"scale": True}, "scale is True, expected a finite number"),
        ({"auxiliary": whole_task}, "auxiliary is the function whole_task, not called, expected an Auxil"),
        ({"loss": reverse_kl}, "loss is the function reverse_kl, not called, expected a row loss such as"),
        ({"loss": Divergence}, "loss is the class Divergence itself"),
        ({"loss": None}, "loss is None"),
        ({"teacher": None}, "loss 'rkl' compares with a teacher, and teacher is None"),
        ({"teacher": None, "loss": top_k_forward_kl(8)}, "loss 'fkl of top 8' compares with a teacher"),
        ({"teacher": None, "loss": hidden_mse()}, "loss 'hidden mse' compares with a teacher"),
        ({"teacher": None, "loss": by_teacher}, "loss 'by_teacher' compares with a teacher"),
        ({"teacher": None, "loss": unpacks}, "loss 'unpacks' compares with a teacher"),
    ],
)
def test_a_term_checks_its_words_and_parts(changed, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TERM, **changed)


@pytest.mark.parametrize("loss", [sampled_nll(), student_alone])
def test_some_losses_need_no_teacher(loss):
    assert replace(TERM, teacher=None, loss=loss).teacher is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Play("shared"), "a play's view = 'shared'; did you mean 'sharded'?"),
        (lambda: Play(samples=0), "a play's samples is 0, expected a whole number of at least 1"),
        (lambda: Play(samples=2.0), "a play's samples is 2.0"),
        (lambda: Play(share=1.5), "a play's share is 1.5, expected a number from 0 to 1"),
        (lambda: Play(share="half"), "a play's share is 'half'"),
        (lambda: Play(turns=3), "a play's turns is 3, expected a function of (step)"),
        (lambda: Play(turns=lambda step: 0.5).turns_at(1), "returned 0.5, expected a whole number"),
        (lambda: Auxiliary(whole_task, "emma"), "the weights of an Auxiliary = 'emma'; did you mean 'ema'?"),
        (lambda: Auxiliary([]), "the contexts of an Auxiliary is a list of 0"),
        (lambda: Plan((Play(),), (TERM,), grade=1), "the grade of a plan is 1"),
        (lambda: UsersOnly("merge"), "the form of user turns = 'merge'; did you mean 'merged'?"),
        (lambda: hard("0.5"), "a cap's limit is '0.5'"),
        (lambda: hard(-1), "a cap's limit is -1"),
        (lambda: top(0.5, entropy), "the ranking of top(ranking, keep) is 0.5"),
        (lambda: top(entropy, 1.5), "keep in top(ranking, keep) is 1.5"),
        (lambda: after(top(entropy, 0.5), 0.3), "share in after(share, weight) is a Weight"),
        (lambda: product(0.5, entropy), "a token weight is 0.5, expected a function of (tokens)"),
        (lambda: Play("simulated"), "a play's view = 'simulated'"),
        (lambda: Play("full", share=0.5, instead="no"), "a play's instead is 'no', expected True or False"),
        (lambda: Play(verify=0), "a play's verify is 0, expected True or False"),
        (lambda: Play("full", reference="yes"), "a play's reference is 'yes', expected True or False"),
        (lambda: Plan((Play(),), (TERM,), balance="no"), "the balance of a plan is 'no', expected True"),
        (
            lambda: Plan((Play(), Play("full", samples=4)), (TERM,)),
            "the first play of a plan alone has samples",
        ),
        (lambda: Cap(0.5, "hrad"), "a cap's kind = 'hrad'; did you mean 'hard'?"),
        (
            lambda: Weight("mine", lambda replies: [], scope="bacth"),
            "the scope of the Weight mine = 'bacth'; did you mean 'batch'",
        ),
        (
            lambda: top(entropy, 0.5, "linaer"),
            "the interpolation of top(ranking, keep) = 'linaer'; did you mean",
        ),
    ],
)
def test_other_parts_check_theirs(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stands_its_dry_run(method):
    config = load_config("pocket", method=method)
    try_parts(plan_of(config), config.train.steps, (), load_renderer(config))


def test_a_loss_may_know_a_token_of_a_large_vocabulary():
    config = load_config("pocket")
    renderer = load_renderer(config)
    plan = Plan(
        (Play(),), (replace(TERM, loss=row_loss(lambda rows: -rows.student.log_softmax(-1)[:, 151_645])),)
    )
    with pytest.raises(UserError, match="IndexError: index 151645 is out of bounds"):
        try_parts(plan, 2, (), renderer)
    renderer.vocabulary = 151_936
    try_parts(plan, 2, (), renderer)


def test_a_context_that_the_chat_template_refuses_is_told():
    def late(reply, peers):
        return [(1.0, [{"role": role, "content": "x"} for role in ("user", "system")])]

    renderer = load_renderer(load_config("pocket"))
    refuses = (
        "{% if message.role == 'system' and not loop.first %}{{ raise_exception('late system') }}{% endif %}"
    )
    renderer.tokenizer.chat_template = "{% for message in messages %}" + refuses + "{% endfor %}"
    for parts in ({"teacher": late}, {"auxiliary": Auxiliary(lambda *how: [late(*how)[0][1]])}):
        plan = Plan((Play(),), (replace(TERM, **parts),))
        with pytest.raises(UserError, match=r"test_plan.py:\d+, term 'one', .*: TemplateError: late system"):
            try_parts(plan, 2, (), renderer)


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
        return Plan((Play(),), (Term("one", every, whole_task, reverse_kl(), **parts),)).needs_whole_step

    assert not needs(tokens=top(entropy, 0.5))
    assert needs(tokens=batch(top(entropy, 0.5)))
    assert needs(per="batch")
    assert needs(per="batch", mean_over="weight")
    assert not needs(per="batch", mean_over="all")  # the number of tokens is known beforehand
    assert not needs(tokens=batch(top(entropy, 0.5)), scale=0.0)
