"""What a step has to compute, in tokens: conversations of average length, scored as the plan says."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from math import ceil, prod
from typing import Literal

import numpy as np

from smopd.chat.messages import Message
from smopd.chat.views import View, user_turns
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.objective.plan import Plan, Term
from smopd.objective.tokens import Moment
from smopd.objective.units import Unit, units_of
from smopd.planning.averages import Averages, common_prefix
from smopd.planning.device import block_pairs
from smopd.planning.engines import engine_traits
from smopd.rollout.buffers import padded_columns
from smopd.rollout.driver import Conversation, Turn
from smopd.rollout.engine import Stop
from smopd.rollout.play import Peers, Play, Reply, Rollout
from smopd.scoring.tree import QUERIES, bucket, layout, rows_within, segments_of
from smopd.verify.verdict import Verdict

Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]  # context, reply
Attention = Literal["segments", "flex", "mask"]
STATIC_ROWS = 1.5  # estimate: rows that static shapes compute for each that is not over


@dataclass(frozen=True)
class Packed:
    """Packed rows of one model's passes."""

    tokens: float = 0
    rows: float = 0
    pairs: float = 0  # query-key pairs that attention computes, those it then masks included
    paths: float = 0  # tokens of all paths from a root to a segment: attention copies their keys and values
    longest: float = 0  # tokens of the largest row

    def mixed(self, other: "Packed", share: float) -> "Packed":
        """(1 - share) of this and share of the other."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return Packed(*(a + share * (b - a) for a, b in both))

    def plus(self, other: "Packed") -> "Packed":
        """Both, one after the other."""
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return Packed(**sums | {"longest": max(self.longest, other.longest)})


@dataclass(frozen=True)
class Sampled:
    """Generate calls, each for some replies side by side."""

    calls: float
    steps: float  # tokens of the longest reply
    tokens: float  # of all replies
    read: float  # cached tokens that are read, summed over the sampled tokens
    prefilled: float
    prefill_pairs: float


@dataclass(frozen=True)
class Load:
    """One step of one process."""

    student: Packed
    teacher: Packed
    scored: float  # rows of logits, of student and teacher each
    products: float  # of a row and the head: both logits, and a gradient for each loss that the row can move
    sampled: Sampled
    rollouts: int
    passes: int = 1  # forward passes of student and teacher: 2 where the whole step is surveyed first


@dataclass
class TypicalExample:
    """An example of average lengths; every message is a number of tokens that no other message has."""

    lengths: Averages
    turns: int
    number: int
    _ids: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._unused = count((self.number + 1) << 32)  # the system prompt's tokens are below
        shards = tuple(f"[shard {k}]" for k in range(self.turns))
        # Of a task whose reference can be told: some teachers are shown it.
        answer = {"value": "0"}
        self.example = Example(f"typical {self.number}", "math", "system", shards, "[full]", answer)

    def new(self, length: float) -> list[int]:
        """So many tokens that stand nowhere else."""
        return [next(self._unused) for _ in range(round(length))]

    def ids(self, message: Message) -> list[int]:
        """The tokens of one message with what the template puts around it; the same each time."""
        key = (message["role"], message["content"])
        if key not in self._ids:
            sizes = {"[shard": self.lengths.shard, "[full": self.lengths.full, "[reply": self.lengths.middle}
            marks = re.findall(r"(\[shard|\[full|\[reply)[^\]]*\]", key[1])
            words = len(re.sub(r"\[(shard|full|reply)[^\]]*\]", "", key[1]).split())
            around = self.lengths.template.user if key[0] == "user" else self.lengths.template.close
            self._ids[key] = self.new(around + sum(sizes[mark] for mark in marks) + 1.3 * words)
        return self._ids[key]

    @property
    def system(self) -> list[int]:
        """What stands in front of the first user turn: everybody's."""
        return list(range(round(self.lengths.system) + self.lengths.template.start))

    @property
    def prompt(self) -> list[int]:
        """What asks for a reply."""
        return self._ids.setdefault(("", "prompt"), self.new(self.lengths.template.prompt))

    def context(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a context, as a renderer would give them."""
        rendered = [token for m in messages if m["role"] != "system" for token in self.ids(m)]
        return [*self.system, *rendered, *self.prompt]

    def play(self, view: View, middle: float, answer: float, verbatim: bool) -> Conversation:
        """A conversation with replies of these lengths; `verbatim`: the history keeps sampled tokens."""
        form, dirty = self.lengths.template, self.system
        users = user_turns(self.example, view)
        played = Conversation(self.example, view)
        for turn, words in enumerate(users):
            reply = self.new(answer if turn == len(users) - 1 else middle)
            dirty = dirty + self.ids({"role": "user", "content": words})
            context = (*dirty, *self.prompt)
            played.turns.append(Turn(context, tuple(reply), Stop.END, f"[reply {view} {turn} {reply[0]}]"))
            # The reply's end token stands in the history as the first token that closes it.
            if form.repeats and not verbatim:
                kept = self.prompt[: form.prompt - form.lost]
                dirty = dirty + kept + self.new(len(reply) - 1 + form.close)
            else:
                dirty = dirty + self.prompt + reply + self.new(form.close - 1)
        return played


def pack(sequences: Sequences, row_tokens: int, attention: Attention = "segments") -> Packed:
    """What goes through a model for these sequences, in rows of at most `row_tokens`: segment by segment (on
    a CPU), in the blocks of flex_attention (on a GPU, padding included), or every pair under a mask.
    """
    whole = [[*context, *reply] for context, reply in sequences]
    total = Packed()
    for chosen in rows_within(whole, row_tokens) if whole else []:
        subtree_end = layout([whole[k] for k in chosen])[2]
        length = len(subtree_end)
        pairs, paths = length * length, 0
        if attention == "segments":
            pairs, paths = _attended(subtree_end)
        elif attention == "flex":
            length, pairs = bucket(length), block_pairs(subtree_end)
        total = total.plus(Packed(length, 1, pairs, paths, length))
    return total


def _attended(subtree_end: np.ndarray) -> tuple[int, int]:
    pairs = paths = 0
    segments = segments_of(subtree_end)
    for segment in segments:
        above = sum(segments[k].stop - segments[k].start for k in segment.ancestors)
        length = segment.stop - segment.start
        paths += above + length
        for first in range(0, length, QUERIES):
            size = min(QUERIES, length - first)
            pairs += size * (above + first + size)
    return pairs, paths


def turn_counts(lengths: Averages, rollouts: int) -> list[int]:
    """So many numbers of turns, spread like those of the data, in an order that mixes long and short."""
    spread = [turns for turns, examples in sorted(lengths.turns.items()) for _ in range(examples)]
    picked = [spread[int((k + 0.5) / rollouts * len(spread))] for k in range(rollouts)]
    return picked[::2] + picked[1::2][::-1]


def step_load(config: Config, lengths: Averages, processes: int = 1, on_gpu: bool = False) -> Load:
    """An average step, as the process with most rollouts meets it."""
    plan = plan_of(config)
    rollouts = ceil(config.train.rollouts * plan.samples / processes)
    counts = turn_counts(lengths, ceil(rollouts / plan.samples))
    turns = [turns for turns in counts for _ in range(plan.samples)][:rollouts]
    played = _Played(config, plan, lengths, turns, lengths.middle, lengths.answer, on_gpu)
    student, teacher = Packed(), Packed()
    size = config.train.micro_batch
    for first in range(0, rollouts, size):
        for_student, for_teacher = played.packed(range(first, min(first + size, rollouts)))
        student, teacher = student.plus(for_student), teacher.plus(for_teacher)
    scored = products = 0.0
    passes = 2 if plan.needs_survey else 1
    for play in plan.plays:
        units, replies = played.units(play, range(rollouts))
        share = _shares(plan)[play.view]
        for unit in units:
            tokens = share * len(replies[unit.reply].tokens)
            scored += tokens
            looked_up = 2 * passes + len(unit.auxiliary[1]) * passes
            # On a GPU nobody waits to learn which rows count: all of them get their product.
            shares = [1.0 if on_gpu else _kept(term, config.train.steps) for term in unit.terms]
            products += tokens * (looked_up + sum(shares))
    calls = [vars(call).values() for call in played.calls()]
    sampled = Sampled(*map(sum, zip(*calls, strict=True)))
    return Load(student, teacher, scored, products, sampled, rollouts, passes)


def largest_load(config: Config, lengths: Averages, on_gpu: bool = False) -> tuple[Packed, int]:
    """Student rows of the largest micro-batch (longest replies, every branch), and its gradient rows."""
    plan = plan_of(config)
    branches = [p for p in plan.plays[1:] if p.share and not p.instead]
    certain = replace(plan, plays=(plan.plays[0], *(replace(p, share=1.0) for p in branches)))
    size, turns = min(config.train.micro_batch, config.train.rollouts * plan.samples), max(lengths.turns)
    limits = config.rollout.middle_tokens, config.rollout.answer_tokens
    played = _Played(config, certain, lengths, [turns] * size, *limits, on_gpu)
    rows = 0
    for play in certain.plays:
        units, replies = played.units(play, range(size))
        rows += sum(len(replies[unit.reply].tokens) * len(unit.terms) for unit in units)
    return played.packed(range(size))[0], rows


def _shares(plan: Plan) -> dict[str, float]:
    first, *branches = plan.plays
    alone = prod(1 - play.share for play in branches if play.instead)
    return {first.view: alone, **{play.view: play.share for play in branches}}


def _kept(term: Term, steps: int) -> float:
    """The share of its tokens that a term counts, over a run: tokens it drops cost no gradient product."""
    seen = range(1, steps + 1, max(1, steps // 1000))
    return sum(term.logged(Moment(step, steps)).get("keep", 1.0) for step in seen) / len(seen)


class _Played:
    """Typical conversations of a step, in every view that the plan plays."""

    def __init__(
        self, config: Config, plan: Plan, lengths: Averages, turns: list[int], middle: float, answer: float,
        on_gpu: bool,
    ) -> None:  # fmt: skip
        self.config, self.plan, self.on_gpu = config, plan, on_gpu
        # The rollouts of a group are of one example.
        groups = [TypicalExample(lengths, t, k) for k, t in enumerate(turns[:: plan.samples])]
        self.examples = [groups[k // plan.samples] for k in range(len(turns))]
        self.conversations: dict[str, list[Conversation]] = {}
        self.rollouts: dict[str, list[Rollout]] = {}
        # Half of the answers right, so that terms about either kind have something to do.
        verdicts = [Verdict(k % 2 == 0, None, "ok", "") for k in range(len(turns))]
        verbatim = config.chat.history == "verbatim"
        for view in (play.view for play in plan.plays):
            played = [example.play(view, middle, answer, verbatim) for example in self.examples]
            self.conversations[view] = played
            self.rollouts[view] = [
                Rollout(c.example, (c,), (verdicts[k],), k % plan.samples) for k, c in enumerate(played)
            ]

    def units(self, play: Play, chosen: range) -> tuple[list[Unit], list[Reply]]:
        moment = Moment(self.config.train.steps, self.config.train.steps)
        rollouts = self.rollouts[play.view]
        chosen_replies = [rollouts[k].replies() for k in chosen]
        replies, units, _ = units_of(chosen_replies, self.plan, moment, Peers(rollouts))
        return units, replies

    def packed(self, chosen: range) -> tuple[Packed, Packed]:
        row_tokens = self.config.train.row_tokens
        tree: Attention = "flex" if self.on_gpu else "segments"
        if self.config.model.attention != "sdpa":
            tree = "mask"
        of_play: list[tuple[Sequences, Sequences]] = []
        by_id = {e.example.id: e for e in self.examples}
        for play in self.plan.plays:
            units, replies = self.units(play, chosen)
            teacher: list[tuple[Sequence[int], Sequence[int]]] = []
            for unit in units:
                reply = replies[unit.reply]
                for context in [*(c for _, c in unit.contexts), *unit.auxiliary[1]]:
                    shown = by_id[reply.example.id]
                    ids = context if isinstance(context, tuple) else shown.context(context)
                    teacher.append((ids, reply.tokens))
            of_play.append(([(r.context, r.tokens) for r in replies], teacher))
        passes = []
        for side in (0, 1):
            first = of_play[0][side]
            total = pack(first, row_tokens, tree)
            for play, sequences in zip(self.plan.plays[1:], of_play[1:], strict=True):
                if play.share:
                    both = sequences[side] if play.instead else [*first, *sequences[side]]
                    total = total.mixed(pack(both, row_tokens, tree), play.share)
            passes.append(total)
        return passes[0], passes[1]

    def calls(self) -> Iterator[Sampled]:
        """The generate calls of a step: for every turn of a play one of middle replies, one of last ones."""
        traits = engine_traits(self.config)
        reuses = not traits.in_place or self.config.engine.cache_mb > 0
        static = traits.in_place and self.on_gpu
        limits, size = self.config.rollout, self.config.rollout.batch
        shares = _shares(self.plan)
        for number, play in enumerate(self.plan.plays):
            played, share = self.conversations[play.view], shares[play.view]
            if number and played:
                # Fewer than one on average still takes a call of its own, in so many of the steps.
                expected = share * len(played)
                played = played[: max(1, round(expected))]
                share = expected / len(played)
            if not share:
                continue
            for turn, last in product(range(max(len(c.turns) for c in played)), (False, True)):
                now = [c for c in played if turn < len(c.turns) and (turn == len(c.turns) - 1) == last]
                limit = limits.answer_tokens if last else limits.middle_tokens
                for first in range(0, len(now), size):
                    some = [c.turns for c in now[first : first + size]]
                    cached = some if turn and reuses else []
                    before = [(t[turn - 1].context, t[turn - 1].reply) for t in cached]
                    asked = [(t[turn].context, t[turn].reply) for t in some]
                    call = _call(asked, limit, share, before, static)
                    yield replace(call, steps=share * call.steps) if number else call


def _call(sequences: Sequences, limit: int, share: float, before: Sequences, static: bool) -> Sampled:
    tokens = read = prefilled = pairs = 0.0
    for k, (context, reply) in enumerate(sequences):
        cached = common_prefix([*before[k][0], *before[k][1]], context) if before else 0
        tokens += len(reply)
        read += len(reply) * (len(context) + len(reply) / 2)
        prefilled += len(context) - cached
        pairs += (len(context) - cached) * len(context)
    mean = tokens / len(sequences)
    # The longest of n lengths that are spread like an exponential is the mean times 1 + 1/2 + ... + 1/n.
    longest = mean * sum(1 / k for k in range(1, len(sequences) + 1))
    steps = max(mean, min(limit, longest))
    if static:  # the whole cache is read, whatever stands in it
        columns = padded_columns(ceil(max(len(context) for context, _ in sequences) + mean))
        read = STATIC_ROWS * tokens * columns
    return Sampled(1, steps, share * tokens, share * read, share * prefilled, share * pairs)
