# ruff: noqa: E501
"""Natural mistakes in a method file, as small changes of one that is right: (a part of it, what stands there
instead, a text in the line that is to be named, what is to be said). An empty line text: the file alone.
"""
# ruff: noqa: E501 - a mistake a line

RIGHT = """\
import numpy as np
import torch
from pydantic import Field

from smopd.chat.messages import full_messages, user, users_messages
from smopd.methods import Method
from smopd.objective import (
    Auxiliary, Plan, Term, UsersOnly, Weight, advantage, after, agreement, batch, clipped_ratio, entropy,
    every, first, hard, importance, judged, log_ratio, mixed, one_sampled, product, reliability_weight, top,
    where, whole_task,
)
from smopd.rollout.play import Play
from smopd.scoring import gjs, hinge, reverse_kl, row_loss, sampled_nll, top_k_forward_kl
from smopd.settings import Section

table = {}


class Settings(Section):
    keep: float = Field(0.5, gt=0, le=1, description="share of tokens that count")
    samples: int = Field(2, ge=1, description="rollouts of each example")


@row_loss
def cost(rows):
    log_s, log_t = rows.student.log_softmax(-1), rows.teacher.log_softmax(-1)
    return (log_s.exp() * (log_s - log_t)).sum(-1)


def selected(tokens):
    return tokens.entropy > 0.3


def seen(reply, peers):
    messages = users_messages(reply.example, reply.turn)
    return [(1.0, messages)]


def early(replies, moment):
    return [reply for reply in replies if not reply.last]


def weigh(turns):
    return torch.ones(len(turns.replies))


def credit(tokens):
    return tokens.advantage


def grade(group):
    return [float(rollout.correct) - 0.5 for rollout in group]


def plan(settings):
    play = Play(samples=settings.samples)
    middle = Term("middle", early, seen, cost, selected, turns=weigh)
    policy = Term("policy", every, None, sampled_nll(), credit, mean_over="all", per="batch")
    return Plan((play,), (middle, policy), grade=grade)


METHODS = [Method("mine", "Mine", "A method of mine.", "ours", Settings, plan)]
"""

LOSS = "    return (log_s.exp() * (log_s - log_t)).sum(-1)\n"
SELECT = "    return tokens.entropy > 0.3\n"
SEEN = "    return [(1.0, messages)]\n"
EARLY = "    return [reply for reply in replies if not reply.last]\n"
WEIGH = "    return torch.ones(len(turns.replies))\n"
GRADE = "    return [float(rollout.correct) - 0.5 for rollout in group]\n"
MIDDLE = 'Term("middle", early, seen, cost, selected, turns=weigh)'
PLAY = "Play(samples=settings.samples)"
PLAN = "Plan((play,), (middle, policy), grade=grade)"
METHOD = 'METHODS = [Method("mine", "Mine", "A method of mine.", "ours", Settings, plan)]'
KEEP = '    keep: float = Field(0.5, gt=0, le=1, description="share of tokens that count")\n'

CHECK = """
    @__import__("pydantic").model_validator(mode="after")
    def check(self):
        {}
"""

in_loss = "term 'middle', loss `cost`: "
in_tokens = "term 'middle', tokens `selected`: "
in_teacher = "term 'middle', teacher `seen`: "
in_replies = "term 'middle', replies `early`: "
in_turns = "term 'middle', turns `weigh`: "
in_grade = "grade `grade`: "
in_plan = "plan of 'mine': "


def loss(body: str, says: str, at: str = "@row_loss") -> tuple[str, str, str, str]:
    return LOSS, f"    {body}\n", at, in_loss + says


def tokens(body: str, says: str, at: str = "def selected") -> tuple[str, str, str, str]:
    return SELECT, f"    {body}\n", at, in_tokens + says


def teacher(body: str, says: str, at: str = "def seen") -> tuple[str, str, str, str]:
    return SEEN, f"    {body}\n", at, in_teacher + says


def replies(body: str, says: str, at: str = "def early") -> tuple[str, str, str, str]:
    return EARLY, f"    {body}\n", at, in_replies + says


def turns(body: str, says: str, at: str = "def weigh") -> tuple[str, str, str, str]:
    return WEIGH, f"    {body}\n", at, in_turns + says


def grade(body: str, says: str, at: str = "def grade") -> tuple[str, str, str, str]:
    return GRADE, f"    {body}\n", at, in_grade + says


def term(new: str, says: str, at: str = "middle = ") -> tuple[str, str, str, str]:
    """Another term in the place of the first; `says` with what stands in front of it."""
    return MIDDLE, new, at, says


def made(old: str, new: str, says: str, at: str = "") -> tuple[str, str, str, str]:
    """Something else in the plan, told with the line it stands in."""
    return old, new, at or new.splitlines()[0], in_plan + says


def file(old: str, new: str, says: str, at: str = "") -> tuple[str, str, str, str]:
    return old, new, at, says


MISTAKES = {
    # What a token costs.
    "loss without return": loss("log_s - log_t", "returned None, expected a tensor of 8 floats"),
    "loss over all rows": loss("return (log_s.exp() * (log_s - log_t)).sum()", "returned a Tensor of shape []"),
    "loss of a mean": loss("return (log_s - log_t).mean()", "returned a Tensor of shape []"),
    "loss with one number kept": loss("return (log_s - log_t).mean().view(1)", "returned a Tensor of shape [1]"),
    "loss not summed": loss("return log_s.exp() * (log_s - log_t)", "returned a Tensor of shape [8, 4096]"),
    "loss summed over rows": loss("return (log_s - log_t).sum(0)", "returned a Tensor of shape [4096]"),
    "loss with keepdim": loss("return (log_s - log_t).sum(-1, keepdim=True)", "returned a Tensor of shape [8, 1]"),
    "loss transposed": loss("return (log_s - log_t)[:, :1].T", "returned a Tensor of shape [1, 8]"),
    "loss as a float": loss("return (log_s - log_t).sum().item()", "returned "),
    "loss as a list": loss("return list((log_s - log_t).sum(-1))", "returned a list of 8"),
    "loss as a numpy array": loss("return (log_s - log_t).sum(-1).detach().numpy()", "returned a ndarray of shape [8]"),
    "loss of bools": loss("return (log_s - log_t).sum(-1) > 0", "returned a Tensor of shape [8] and type torch.bool"),
    "loss of ints": loss("return log_s.argmax(-1)", "returned a Tensor of shape [8] and type torch.int64"),
    "loss detached": loss("return (log_s - log_t).abs().sum(-1).detach()", "returned numbers without a gradient"),
    "loss of the teacher alone": loss("return -log_t.amax(-1)", "returned numbers without a gradient"),
    "loss nan": loss("return (log_s.exp() - log_t.exp()).log().sum(-1)", "returned nan in 8 of 8 numbers"),
    "loss inf": loss("return 1 / (log_s - log_s).sum(-1)", "returned inf in 8 of 8 numbers"),
    "loss with a gradient of nan": loss("return (log_s - log_s.detach()).abs().sum(-1).sqrt()", "has a gradient that is not finite"),
    "loss normalised over rows": loss("return (rows.student.softmax(0) - log_t.exp()).abs().sum(-1)", "gives a row another value when other rows are beside it"),
    "loss divided by the rows": loss("return (log_s - log_t).abs().sum(-1) / len(rows.tokens)", "gives a row another value"),
    "loss that writes on the student": loss("return rows.student.sub_(1).sum(-1)", "RuntimeError: a leaf Variable", "sub_(1)"),
    "loss that writes on the teacher": loss("return (log_s - rows.teacher.mul_(2)).abs().sum(-1)", "changed the rows it was given"),
    "loss that writes on the tokens": loss("return log_s.gather(-1, rows.tokens.sub_(rows.tokens)[:, None])[:, 0]", "changed the rows it was given"),
    "loss with a wrong index": loss("return -log_s.gather(-1, rows.tokens)[:, 0]", "RuntimeError: Index tensor", "log_s.gather"),
    "loss with an index of all rows": loss("return -log_s[:, rows.tokens]", "returned a Tensor of shape [8, 8]"),
    "loss with a typo": loss("return (log_s - log_q).sum(-1)", "NameError: name 'log_q' is not defined", "log_q"),
    "loss of an unknown column": loss("return rows.logits.sum(-1)", "AttributeError: 'Rows' object has no attribute 'logits'", "rows.logits"),
    "loss of a mistaken shape": loss("return (log_s - log_t[:, :5]).sum(-1)", "RuntimeError: The size of tensor", "log_t[:, :5]"),
    "loss of auxiliary contexts that are not there": loss("return (log_s[:, 0] - rows.auxiliary[:, 0]).abs()", "TypeError: 'NoneType' object is not subscriptable", "rows.auxiliary"),
    "loss that is a tuple": loss("return (log_s - log_t).sum(-1), 1", "returned a tuple of 2"),
    "loss of two arguments": ("def cost(rows):", "def cost(rows, scale):", "@row_loss", in_loss + "TypeError: cost() missing 1 required positional argument: 'scale'"),
    "loss not marked": made("@row_loss\n", "", "ValueError: term 'middle': loss is the function cost, not called", "middle = "),
    # What a token counts.
    "tokens without return": tokens("tokens.entropy > 0.3", "returned None, expected a tensor of 8 numbers"),
    "tokens as a scalar": tokens("return tokens.entropy.mean()", "returned a Tensor of shape []"),
    "tokens as a number": tokens("return 1.0", "returned 1.0, expected a tensor of 8 numbers"),
    "tokens as a list": tokens("return [1.0] * len(tokens.entropy)", "returned a list of 8, expected a tensor of 8"),
    "tokens as a numpy array": tokens("return np.ones(len(tokens.entropy))", "returned a ndarray of shape [8]"),
    "tokens with a column too many": tokens("return tokens.entropy[:, None]", "returned a Tensor of shape [8, 1]"),
    "tokens one too few": tokens("return tokens.entropy[1:]", "returned a Tensor of shape [7]"),
    "tokens picked instead of weighed": tokens("return tokens.entropy[tokens.entropy > 0.3]", "returned a Tensor of shape"),
    "tokens by index": tokens("return tokens.entropy.topk(1).indices", "returned a Tensor of shape [1]"),
    "tokens nan": tokens("return tokens.entropy / 0 * 0", "returned nan in 8 of 8 numbers, expected finite ones"),
    "tokens over their spread": tokens("return tokens.entropy / tokens.entropy.std()", "returned nan in 1 of 1 numbers"),
    "tokens that keep a gradient": tokens("return torch.ones(len(tokens.entropy), requires_grad=True)", "returned numbers with a gradient"),
    "tokens complex": tokens("return tokens.entropy + 1j", "returned a Tensor of shape [8] and type torch.complex64"),
    "tokens with a typo": tokens("return tokens.entropie", "AttributeError: 'Tokens' object has no attribute 'entropie'", "entropie"),
    "tokens by a missing setting": tokens("return tokens.entropy > settings.keep", "NameError: name 'settings' is not defined", "settings.keep\n"),
    "tokens by a missing key": tokens("return table['floor'] < tokens.entropy", "KeyError: 'floor'", "table['floor']"),
    "tokens of auxiliary contexts that are not there": tokens("return tokens.auxiliary[:, 0]", "TypeError: 'NoneType'", "tokens.auxiliary"),
    "tokens of too many": tokens("return tokens.entropy >= tokens.entropy.topk(9).values[-1]", "RuntimeError: selected index k out of range", "topk(9)"),
    "tokens that write on the statistics": tokens("tokens.entropy.clamp_(min=0.3)\n    return tokens.entropy", "changed the statistics it was given; work on copies"),
    "tokens by name": made("cost, selected", 'cost, "entropy"', "ValueError: term 'middle': tokens is 'entropy', expected a function of (tokens)", "middle = "),
    "a Weight the other way round": made("cost, selected", 'cost, Weight(lambda replies: [], "mine")', "ValueError: the text of a Weight is the function <lambda>, not called", "middle = "),
    "a Weight of no argument": made("cost, selected", 'cost, Weight("mine", lambda: [])', "ValueError: the function of the Weight mine is <lambda>(), expected a function of (replies)", "middle = "),
    "tokens that exit": tokens("raise SystemExit(1)", "SystemExit: 1", "SystemExit(1)"),
    "tokens with a log of None": term('Term("middle", early, seen, cost, Weight("mine", lambda replies: [r.entropy for r in replies], logged=lambda moment: None))', "tokens `mine`: AttributeError: 'NoneType' object has no attribute 'items'"),
    "tokens with a scope misspelt": made("cost, selected", 'cost, Weight("mine", lambda replies: [], scope="bacth")', "ValueError: the scope of the Weight mine = 'bacth'; did you mean 'batch'?", "middle = "),
    "tokens that return a factory": tokens("return top", "returned the function top, not called"),
    "tokens of no argument": made("def selected(tokens):", "def selected():", "ValueError: term 'middle': tokens is selected(), expected a function of (tokens)", "middle = "),
    "advantage without a grade": file(PLAN, "Plan((play,), (middle, policy))", "term 'policy', tokens `credit`: returned nan in 8 of 8 numbers, expected finite ones (the term has no teacher; the plan has no grade, hence no advantages)", "def credit"),
    "log-ratio without a teacher": file("def credit(tokens):\n    return tokens.advantage", "def credit(tokens):\n    return tokens.log_ratio", "term 'policy', tokens `credit`: returned nan in 8 of 8 numbers, expected finite ones (the term has no teacher)", "def credit"),
    "ranking without return": term('Term("middle", early, seen, cost, top(lambda tokens: None, 0.5))', "term 'middle', tokens `top(<lambda>, 0.5)`: returned None, expected a tensor of 8"),
    "a factor without return": term('Term("middle", early, seen, cost, product(lambda tokens: None, entropy))', "term 'middle', tokens `product(<lambda>, entropy)`, `<lambda>`: returned None"),
    "a whole step's tokens as one": term('Term("middle", early, seen, cost, batch(lambda tokens: tokens.entropy.mean()))', "tokens `batch(<lambda>)`: returned a Tensor of shape []"),
    "a factory for tokens that takes one argument": term('Term("middle", early, seen, cost, importance)', "term 'middle', tokens `importance`: TypeError: unsupported format string"),
    "agreement without contexts": term('Term("middle", early, seen, cost, agreement(0.1))', "term 'middle', tokens `agreement(0.1)`: AssertionError: agreement needs a term with auxiliary contexts"),
    "hinge without contexts": term('Term("middle", early, seen, hinge(0.1))', "term 'middle', loss `hinge(0.1)`: AssertionError: a hinge needs a term with an auxiliary context"),
    "a Weight of the wrong shape": term('Term("middle", early, seen, cost, Weight("mine", lambda replies: torch.ones(3)))', "tokens `mine`: returned a Tensor of shape [3] and type torch.float32, expected a list of tensors"),
    # What the teacher sees.
    "teacher without return": teacher("messages.append(1)", "returned None, expected a list of (weight, messages) pairs"),
    "teacher without weights": teacher("return messages", "returned a list with a dict of 2 in it, expected (weight, messages) pairs"),
    "teacher without weights, in a list": teacher("return [messages]", "returned a list with a list of"),
    "teacher with a pair alone": teacher("return (1.0, messages)", "returned a list with 1.0 in it"),
    "teacher the other way round": teacher("return [(messages, 1.0)]", "returned a list with a tuple of 2 in it"),
    "teacher as a text": teacher("return reply.example.full", "returned '"),
    "teacher of a text in a pair": teacher("return [(1.0, reply.example.full)]", "returned the context '"),
    "teacher as a dict": teacher("return {1.0: messages}", "returned a dict of 1, expected a list of (weight, messages)"),
    "teacher with a message alone": teacher("return [(1.0, messages[0])]", "returned the context a dict of 2"),
    "teacher of no messages": teacher("return [(1.0, [])]", "returned the context a list of 0, expected a list of mess"),
    "teacher of a role unknown": teacher("return [(1.0, [{'role': 'usr', 'content': 'x'}])]", "returned a message of the role 'usr'; did you mean 'user'?"),
    "teacher of no role": teacher("return [(1.0, [{'content': 'x'}])]", "returned a message of the role None"),
    "teacher of no content": teacher("return [(1.0, [{'role': 'user'}])]", "returned the message {'role': 'user'}, expected a role and a content"),
    "teacher of a content in parts": teacher("return [(1.0, [{'role': 'user', 'content': ['x']}])]", "returned the message {'role': 'user', 'content': ['x']}"),
    "teacher of ids in a list": teacher("return [(1.0, list(reply.context))]", "returned the message 1, expected a role"),
    "teacher of ids beyond the vocabulary": teacher("return [(1.0, (1, 99999))]", "returned the token id 99999, expected 0 to 839"),
    "teacher of ids below 0": teacher("return [(1.0, (1, -2))]", "returned the token id -2, expected 0 to"),
    "teacher of ids and texts": teacher("return [(1.0, (1, 'x'))]", "returned the token id 'x', expected 0 to"),
    "teacher of texts": teacher("return [(1.0, list(reply.example.shards))]", "returned the message '"),
    "teacher of a weight as text": teacher("return [('1.0', messages)]", "returned a list with a tuple of 2 in it"),
    "teacher of a weight of nan": teacher("return [(float('nan'), messages)]", "returned a list with a tuple of 2 in it"),
    "teacher of three": teacher("return [(1.0, messages, 'ema')]", "returned a list with a tuple of 3 in it"),
    "teacher as a number": teacher("return 1.0", "returned 1.0, expected a list of (weight, messages) pairs"),
    "teacher of a turn too many": teacher("return [(1.0, [user(reply.example.shards[reply.turn + 9])])]", "IndexError: tuple index out of range", "reply.turn + 9"),
    "teacher of an unknown field": teacher("return [(1.0, [user(reply.example.hint)])]", "AttributeError: 'Example' object has no attribute 'hint'", "example.hint"),
    "teacher of peers alone": made("def seen(reply, peers):", "def seen(peers):", "ValueError: term 'middle': teacher is seen(peers), expected a function of (reply, peers)", "middle = "),
    "teacher that fails in a helper": file(SEEN, "    return helped(messages)\n\n\ndef helped(messages):\n    return [(1 / 0, messages)]\n", in_teacher + "ZeroDivisionError: division by zero", "1 / 0"),
    "mixed without weights": term('Term("middle", early, mixed(seen, whole_task), cost)', "term 'middle', teacher `contexts`: TypeError: cannot unpack non-iterable function object"),
    "auxiliary with weights": term('Term("middle", early, seen, cost, auxiliary=Auxiliary(seen))', "term 'middle', auxiliary `seen`: returned the context a tuple of 2", "def seen"),
    # Which replies.
    "replies without return": replies("replies[0]", "returned None, expected a list of replies out of those it was given"),
    "replies as one": replies("return replies[0]", "returned a Reply, expected a list of replies"),
    "replies as a mask": replies("return [not reply.last for reply in replies]", "returned a list of"),
    "replies by number": replies("return [reply.turn for reply in replies]", "returned a list of"),
    "replies as a filter": replies("return filter(lambda reply: reply.last, replies)", "returned a filter, expected a list"),
    "replies as texts": replies("return [reply.text for reply in replies]", "returned a list of"),
    "replies with a typo": replies("return [r for r in replies if r.is_last]", "AttributeError: 'Reply' object has no attribute 'is_last'", "is_last"),
    "replies of another rollout": replies("from dataclasses import replace\n    return [replace(r, sample=99) for r in replies]", "returned replies of another rollout"),
    "replies of a term that is off": term('Term("middle", lambda replies, moment: None, seen, cost, scale=0)', "term 'middle', replies `<lambda>`: returned None"),
    "replies of one argument": made("def early(replies, moment):", "def early(replies):", "ValueError: term 'middle': replies is early(replies), expected a function of (replies, moment)", "middle = "),
    "first not called": made("early, seen", "first, seen", "ValueError: term 'middle': replies is first(count: int)", "middle = "),
    "where with a condition of two": term('Term("middle", where(early), seen, cost)', "term 'middle', replies `where(early)`: TypeError: early() missing 1 required positional argument: 'moment'"),
    # What a turn counts.
    "turns without return": turns("torch.ones(2)", "returned None, expected a tensor of"),
    "turns as a number": turns("return 1.0", "returned 1.0, expected a tensor of"),
    "turns as a scalar": turns("return turns.deltas.mean()", "returned a Tensor of shape []"),
    "turns as a list": turns("return [1.0 for _ in turns.replies]", "returned a list of"),
    "turns too many": turns("return torch.ones(7)", "returned a Tensor of shape [7] and type torch.float32, expected a tensor of"),
    "turns nan": turns("return turns.deltas / 0 * 0", "returned nan in"),
    "turns with a typo": turns("return turns.delta", "AttributeError: 'Turns' object has no attribute 'delta'", "turns.delta"),
    "turns not made": term('Term("middle", early, seen, cost, turns=reliability_weight)', "term 'middle', turns `reliability_weight`: returned a Reliability, expected a tensor of"),
    # Grades and plays.
    "grade without return": grade("[float(rollout.correct) for rollout in group]", "returned None, expected 2 numbers, one for each rollout of the group"),
    "grade as one number": grade("return 1.0", "returned 1.0, expected 2 numbers"),
    "grade of one": grade("return [1.0]", "returned a list of 1, expected 2 numbers"),
    "grade of texts": grade("return ['right' if r.correct else 'wrong' for r in group]", "returned 'right', expected a finite number"),
    "grade of None": grade("return [r.verdict and None for r in group]", "returned None, expected a finite number"),
    "grade of bools": grade("return [r.correct for r in group]", "returned True, expected a finite number"),
    "grade of nan": grade("x = torch.tensor([float(r.correct) for r in group])\n    return (x - x.mean()) / x.std()", "returned nan, expected a finite number"),
    "grade divided by a spread of zero": grade("from statistics import mean, pstdev\n    x = [float(r.correct) for r in group]\n    return [(a - mean(x)) / pstdev(x) for a in x]", "ZeroDivisionError: float division by zero", "pstdev(x) for"),
    "grade as a dict": grade("return {r.sample: 1.0 for r in group}", "returned a dict of 2"),
    "grade of a matrix": grade("return torch.ones(2, 2)", "returned a list of 2, expected a finite number for each rollout"),
    "grade with a typo": grade("return [r.corect for r in group]", "AttributeError: 'Rollout' object has no attribute 'corect'", "corect"),
    "grade of one rollout": made("def grade(group):", "def grade(rollout, verdict):", "ValueError: the grade of a plan is grade(rollout, verdict), expected a function of (rollouts)", "return Plan"),
    "play of turns as a float": file(PLAY, "Play(samples=settings.samples, turns=lambda step: step / 2)", "play 'sharded', turns: returned 0.5, expected a whole number of at least 1", "turns=lambda"),
    "play of no turns at first": file(PLAY, "Play(samples=settings.samples, turns=lambda step: step - 1)", "play 'sharded', turns: returned 0", "turns=lambda"),
    "play of an unknown view": made(PLAY, 'Play("sharted")', "ValueError: a play's view = 'sharted'; did you mean 'sharded'?"),
    "play with a simulated user": made(PLAY, 'Play("simulated")', "ValueError: a play's view = 'simulated'"),
    "play verified by a text": made(PLAY, 'Play(verify="no")', "ValueError: a play's verify is 'no', expected True or False"),
    "samples of a second play": made("Plan((play,)", 'Plan((play, Play("full", samples=4))', "ValueError: the first play of a plan alone has samples", "return Plan"),
    "play of no samples": made(PLAY, "Play(samples=0)", "ValueError: a play's samples is 0, expected a whole number of at least 1"),
    "play of a share over 1": made(PLAY, 'Play("full", share=20)', "ValueError: a play's share is 20, expected a number from 0 to 1"),
    "play of a misspelt keyword": made(PLAY, "Play(sample=2)", "TypeError: Play.__init__() got an unexpected keyword argument 'sample'"),
    "play of references in shards": made(PLAY, "Play(reference=True)", "ValueError: there are references for the whole task only"),
    # Words and parts of a term.
    "weights misspelt": made("turns=weigh)", 'weights="emma")', "ValueError: term 'middle': weights = 'emma'; did you mean 'ema'?"),
    "mean_over misspelt": made("turns=weigh)", 'mean_over="al")', "ValueError: term 'middle': mean_over = 'al'; did you mean 'all'?"),
    "per misspelt": made("turns=weigh)", 'per="bacth")', "ValueError: term 'middle': per = 'bacth'; did you mean 'batch'?"),
    "scale as text": made("turns=weigh)", 'scale="0.5")', "ValueError: term 'middle': scale is '0.5', expected a finite number"),
    "a keyword misspelt": made("turns=weigh)", 'weight="base")', "TypeError: Term.__init__() got an unexpected keyword argument 'weight'"),
    "a part left out": made(MIDDLE, 'Term("middle", early, cost)', "TypeError: Term.__init__() missing 1 required positional argument: 'loss'"),
    "loss in the place of the teacher": made(MIDDLE, 'Term("middle", early, cost, seen)', "ValueError: term 'middle': teacher is a FunctionLoss, expected a function of (reply, peers)"),
    "name left out": made(MIDDLE, "Term(early, seen, cost, selected)", "ValueError: the name of a term is the function early, not called, expected a text"),
    "no teacher": made(MIDDLE, 'Term("middle", early, None, cost)', "ValueError: term 'middle': loss 'cost' compares with a teacher, and teacher is None"),
    "loss by name": made("seen, cost, selected", 'seen, "reverse_kl", selected', "ValueError: term 'middle': loss is 'reverse_kl', expected a row loss", "middle = "),
    "loss not called": made("seen, cost, selected", "seen, reverse_kl, selected", "ValueError: term 'middle': loss is the function reverse_kl, not called", "middle = "),
    "cap not called": made("turns=weigh)", "cap=hard)", "ValueError: term 'middle': cap is the function hard, not called, expected a cap such as hard(0.5)"),
    "cap as a number": made("turns=weigh)", "cap=0.5)", "ValueError: term 'middle': cap is 0.5, expected a cap"),
    "cap that knows nothing of what is over it": file("turns=weigh)", "cap=type('Mine', (), {'apply': lambda cap, cost: cost, 'over': lambda cap, cost: None, 'has_gradient': lambda cap, cost: cost > 0})())", "term 'middle', cap `Mine`: returned None, expected a tensor of", "middle = "),
    "cap without a gradient": file("turns=weigh)", "cap=type('Mine', (), {'apply': lambda cap, cost: cost.detach(), 'over': lambda cap, cost: cost > 1, 'has_gradient': lambda cap, cost: cost > 0})())", "term 'middle', cap `Mine`: returned numbers without a gradient", "middle = "),
    "cap of a kind unknown": made("turns=weigh)", 'cap=type(hard(1))(0.5, "hrad"))', "ValueError: a cap's kind = 'hrad'; did you mean 'hard'?"),
    "cap negative": made("turns=weigh)", "cap=hard(-0.5))", "ValueError: a cap's limit is -0.5"),
    "top not called": made("cost, selected", "cost, top", "ValueError: term 'middle': tokens is top(ranking", "middle = "),
    "top the other way round": made("cost, selected", "cost, top(0.5, entropy)", "ValueError: the ranking of top(ranking, keep) is 0.5", "middle = "),
    "top of more than all": made("cost, selected", "cost, top(entropy, 80)", "ValueError: keep in top(ranking, keep) is 80", "middle = "),
    "after the other way round": made("cost, selected", "cost, after(top(entropy, 0.5), 0.3)", "ValueError: share in after(share, weight) is a Weight", "middle = "),
    "product of a number": made("cost, selected", "cost, product(0.5, entropy)", "ValueError: a token weight is 0.5, expected a function of (tokens)", "middle = "),
    "UsersOnly not made": made("early, seen", "early, UsersOnly", "ValueError: term 'middle': teacher is the class UsersOnly itself", "middle = "),
    "UsersOnly misspelt": made("early, seen", 'early, UsersOnly("merge")', "ValueError: the form of user turns = 'merge'; did you mean 'merged'?", "middle = "),
    "auxiliary weights misspelt": made("turns=weigh)", 'auxiliary=Auxiliary(seen, "bse"))', "ValueError: the weights of an Auxiliary = 'bse'; did you mean 'base'?"),
    "auxiliary not made": made("turns=weigh)", "auxiliary=seen)", "ValueError: term 'middle': auxiliary is the function seen, not called, expected an Auxiliary"),
    "gjs beyond its range": made("seen, cost, selected", "seen, gjs(1.5), selected", "ValueError: gjs needs 0 < beta < 1", "middle = "),
    "temperature of zero": term('Term("middle", early, seen, reverse_kl(temperature=0.0))', "term 'middle', loss `rkl`: returned nan in 8 of 8 numbers"),
    "top-k as text": term('Term("middle", early, seen, top_k_forward_kl("8"))', "term 'middle', loss `fkl of top 8`: TypeError: "),
    # Plans.
    "plan without return": made(f"    return {PLAN}", f"    {PLAN}", "returned None, expected a smopd.objective.Plan", "def plan"),
    "plan as a list of terms": made(f"return {PLAN}", "return [middle, policy]", "returned a list of 2, expected a smopd.objective.Plan", "def plan"),
    "plan of no argument": file("def plan(settings):", "def plan():", "ValueError: method 'mine': plan is plan(), expected a function of (settings)", "METHODS = "),
    "plan that raises": made(f"return {PLAN}", 'raise RuntimeError("not yet")', "RuntimeError: not yet"),
    "plan of an unknown setting": made("settings.samples", "settings.sample", "AttributeError: 'Settings' object has no attribute 'sample'", "play = "),
    "plan of settings as a dict": made("settings.samples", 'settings["samples"]', "TypeError: 'Settings' object is not subscriptable", "play = "),
    "plan of a missing key": made(PLAY, "Play(samples=table['samples'])", "KeyError: 'samples'"),
    "plan of a name unknown": made("early, seen", "middle_replies, seen", "NameError: name 'middle_replies' is not defined", "middle = "),
    "one term without a tuple": made(PLAN, "Plan((play,), (middle), grade=grade)", "ValueError: a plan's terms is a Term, expected a tuple: (Term(...),)", "return Plan"),
    "one play without a tuple": made(PLAN, "Plan(play, (middle, policy), grade=grade)", "ValueError: a plan's plays is a Play, expected a tuple: (Play(...),)", "return Plan"),
    "terms first": made(PLAN, "Plan((middle, policy), (play,), grade=grade)", "ValueError: one of a plan's plays is a Term", "return Plan"),
    "no terms": made(PLAN, "Plan((play,), (), grade=grade)", "ValueError: a plan needs terms", "return Plan"),
    "every term off": file(PLAN, "Plan((play,), (Term('middle', early, seen, cost, scale=0),), grade=grade)", "method: every term of my_method.py has the scale 0: nothing would be learnt"),
    "no plays": made(PLAN, "Plan((), (middle, policy), grade=grade)", "ValueError: a plan needs plays", "return Plan"),
    "terms of one name": made('"policy"', '"middle"', "ValueError: a plan needs terms, each with a name of its own; found ['middle', 'middle']", "return Plan"),
    "first play of a share": made(PLAY, "Play(share=0.5)", "ValueError: the first play of a plan is everybody's", "return Plan"),
    "grade called": made("grade=grade", "grade=grade([])", "ValueError: the grade of a plan is a list of 0, expected a function", "return Plan"),
    "an unknown keyword of a plan": made("grade=grade", "grades=grade", "TypeError: Plan.__init__() got an unexpected keyword argument 'grades'", "return Plan"),
    # The file and its settings.
    "METHODS left out": file(METHOD, "", "my_method.py declares no METHODS, a list of smopd.methods.Method"),
    "METHODS misspelt": file("METHODS =", "METHOD =", "my_method.py declares no METHODS, a list of smopd.methods.Method"),
    "METHODS a method": file(METHOD, METHOD.replace("[", "").replace("]", ""), "METHODS is a Method"),
    "METHODS a dict": file(METHOD, "METHODS = {'mine': plan}", "METHODS is a dict of 1"),
    "METHODS of plans": file(METHOD, "METHODS = [plan]", "METHODS is a list of 1"),
    "METHODS empty": file(METHOD, "METHODS = []", "METHODS is a list of 0"),
    "a method of too little": file('"ours", Settings, plan', "Settings, plan", "TypeError: Method.__init__() missing 1 required positional argument: 'plan'", "METHODS = "),
    "a method of a keyword unknown": file("Settings, plan)]", "Settings, plan, setings={})]", "TypeError: Method.__init__() got an unexpected keyword argument 'setings'", "METHODS = "),
    "settings made": file("Settings, plan)]", "Settings(), plan)]", "ValueError: method 'mine': section is a Settings, expected a class of settings", "METHODS = "),
    "settings no section": file("class Settings(Section):", "class Settings:", "ValueError: method 'mine': section is the class Settings itself, expected a class of settings, a smopd.settings.Section", "METHODS = "),
    "plan called": file("Settings, plan)]", "Settings, plan(Settings()))]", "ValueError: method 'mine': plan is a Plan, expected a function of (settings)", "METHODS = "),
    "plan and settings the other way round": file("Settings, plan)]", "plan, Settings)]", "ValueError: method 'mine': section is the function plan, not called", "METHODS = "),
    "summary left out": file('"A method of mine.", ', "None, ", "ValueError: a Method's summary is None, expected a text", "METHODS = "),
    "settings of a method as a list": file("Settings, plan)]", 'Settings, plan, ["objective.keep"])]', "ValueError: method 'mine': settings is a list of 1", "METHODS = "),
    "settings of a method misspelt": file("Settings, plan)]", 'Settings, plan, {"objective.kep": 1.0})]', "settings of 'mine': unknown key 'objective.kep'; did you mean 'objective.keep'?", "METHODS = "),
    "settings of a method out of range": file("Settings, plan)]", 'Settings, plan, {"objective.keep": 2.0})]', "settings of 'mine': objective.keep = 2.0: expected a number greater than 0 and at most 1", "METHODS = "),
    "settings of a method without a table": file("Settings, plan)]", 'Settings, plan, {"keep": 1.0})]', "settings of 'mine': unknown key 'keep'; did you mean 'objective.keep'?", "METHODS = "),
    "two methods of one name": file(METHOD, METHOD + "\nMETHODS.append(METHODS[0])", "a second method with the name 'mine'", "METHODS = "),
    "a setting without a type": file(KEEP, "    keep = 0.5\n", "PydanticUserError: A non-annotated attribute was detected: `keep = 0.5`", "class Settings"),
    "a setting without a default": file(KEEP, "    keep: float\n", "settings of 'mine': keep has no default", "METHODS = "),
    "a default of another type": file(KEEP, '    keep: float = "half"\n', 'settings of \'mine\': keep = "half": expected a finite number', "METHODS = "),
    "a default out of range": file("Field(0.5, gt=0", "Field(1.5, gt=0", "settings of 'mine': keep = 1.5: expected a number greater than 0 and at most 1", "METHODS = "),
    "a default of None": file(KEEP, "    keep: float | None = None\n", "settings of 'mine': keep is None, expected a text, a number, a bool or a list", "METHODS = "),
    "settings that refuse their defaults": file(KEEP, KEEP + CHECK.format("raise ValueError('too small')"), "settings of 'mine': Value error, too small", "METHODS = "),
    "settings with a mistake in a check": file(KEEP, KEEP + CHECK.format("return self.kep"), "settings of 'mine': AttributeError: 'Settings' object has no attribute 'kep'", "self.kep"),
    "a dict for a setting": file(KEEP, '    keep: dict = {"a": 0.5}\n', "settings of 'mine': keep is a dict of 1, expected a text, a number, a bool or a list", "METHODS = "),
    "a function for a setting": file(KEEP, "    keep: object = len\n", "settings of 'mine': keep is the function len, not called", "METHODS = "),
    "a syntax error": file("def selected(tokens):", "def selected(tokens)", "not valid Python: expected ':'", "def selected"),
    "an indentation lost": file(SELECT, SELECT.lstrip(), "not valid Python: expected an indented block", SELECT.strip()),
    "an import unknown": file("import numpy as np", "import nunpy as np", "ModuleNotFoundError: No module named 'nunpy'", "import nunpy"),
    "a name not to be imported": file("import Play\n", "import Plays\n", "ImportError: cannot import name 'Plays'", "import Plays"),
    "a part unknown": file("    every, first,", "    evry, first,", "ImportError: cannot import name 'evry'", "from smopd.objective"),
    "a mistake at the top": file("table = {}", "table = {}['floor']", "KeyError: 'floor'", "table = {}"),
    "an exit": file("table = {}", "raise SystemExit(3)", "SystemExit: 3", "SystemExit(3)"),
}  # fmt: skip

# What only a run's own replies show: after a time, a part fails.
LATER = {
    "loss": (LOSS, "    table[len(table)] = 0\n    return (log_s if len(table) < 6 else log_x).sum(-1)\n", "log_x", "term 'middle', loss `cost`: NameError: name 'log_x' is not defined"),
    "loss of a wrong shape": (LOSS, "    return (log_s - log_t).square().sum(-1 if rows.student.shape[1] == 4096 else 0)\n", "@row_loss", "term 'middle', loss `cost`: returned a Tensor of shape ["),
    "loss without a gradient": (LOSS, "    table[len(table)] = 0\n    cost = (log_s - log_t).abs().sum(-1)\n    return cost if len(table) < 6 else cost.detach()\n", "@row_loss", "term 'middle', loss `cost`: returned numbers without a gradient"),
    "tokens": (SELECT, "    return tokens.entropy if tokens.reply.text == 'It is 2.' else None\n", "def selected", "term 'middle', tokens `selected`: returned None, expected a tensor of"),
    "teacher": (SEEN, "    return [(1.0, messages)] if reply.text == 'It is 2.' else [messages]\n", "def seen", "term 'middle', teacher `seen`: returned a list with a list of"),
    "turns": (WEIGH, "    return torch.ones(len(turns.replies) if turns.replies[0].text == 'It is 2.' else 9)\n", "def weigh", "term 'middle', turns `weigh`: returned a Tensor of shape [9]"),
    "grade": (GRADE, "    return [{'It is 2.': 1.0}[r.conversations[0].final_text] for r in group]\n", "{'It is 2.'", "grade `grade`: KeyError: "),
}  # fmt: skip
