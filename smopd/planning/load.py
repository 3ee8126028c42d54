"""What a step has to compute, in tokens: conversations of average length, scored as the plan says."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from math import ceil, prod
from typing import Any, Literal

from smopd.chat.messages import Message
from smopd.chat.views import View, user_turns
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.objective.plan import Plan, Term
from smopd.objective.tokens import Moment
from smopd.objective.units import units_of
from smopd.planning.averages import Averages, common_prefix
from smopd.rollout.driver import Conversation, Turn
from smopd.rollout.engine import Stop, Traits, traits_of
from smopd.rollout.play import Peers, Rollout
from smopd.scoring.tree import QUERIES, bucket, layout, rows_within, segments_of
from smopd.settings import AUTO
from smopd.verify.verdict import Verdict

Pairs = list[tuple[Sequence[int], Sequence[int]]]  # context, reply
Attention = Literal["segments", "flex", "mask"]


@dataclass(frozen=True)
class Packed:
    """Packed rows of one model's passes."""

    tokens: float = 0
    rows: float = 0
    pairs: float = 0  # query-key pairs for which attention keeps a mask
    paths: float = 0  # tokens whose keys and values attention keeps, a copy for each path through them
    longest: float = 0  # tokens of the largest row

    def plus(self, other: "Packed", share: float = 1.0) -> "Packed":
        """This and, in a share of the steps, the other."""
        sums = {name: value + share * getattr(other, name) for name, value in vars(self).items()}
        return Packed(**sums | {"longest": max(self.longest, other.longest)})


@dataclass(frozen=True)
class SampledLoad:
    """Generate calls, each for some replies side by side."""

    steps: float  # tokens of the longest reply of each call
    tokens: float  # of all replies
    read: float  # cached tokens that are read, summed over the sampled tokens
    prefilled: float


@dataclass(frozen=True)
class Load:
    """One step of one process."""

    student: Packed
    teacher: Packed
    scored: float  # rows of logits, of student and teacher each
    products: float  # of a row and the head: both logits, and a gradient for each loss that the row can move
    gradients: int  # rows with a gradient, if every branch is played and every token counts
    sampled: SampledLoad
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
        self.system = list(range(round(self.lengths.system) + self.lengths.template.start))  # everybody's
        self.prompt = self.new(self.lengths.template.prompt)

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

    def context(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a context, as a renderer would give them."""
        rendered = [token for m in messages if m["role"] != "system" for token in self.ids(m)]
        return [*self.system, *rendered, *self.prompt]

    def play(self, view: View, verbatim: bool) -> Conversation:
        """A conversation with replies of average length; `verbatim`: the history keeps sampled tokens."""
        form, dirty = self.lengths.template, self.system
        users = user_turns(self.example, view)
        played = Conversation(self.example, view)
        for turn, words in enumerate(users):
            reply = self.new(self.lengths.answer if turn == len(users) - 1 else self.lengths.middle)
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


def engine_traits(config: Config) -> Traits:
    """What the engine can do; `auto` counts as vLLM."""
    return traits_of("vllm" if config.engine.kind == AUTO else config.engine.kind)


def pack(sequences: Pairs, row_tokens: int, attention: Attention = "segments") -> Packed:
    """What goes through a model for these sequences, in rows of at most `row_tokens`. Attention goes segment
    by segment (on a CPU), through flex_attention (on a GPU, in padded rows), or under a whole mask.
    """
    whole = [[*context, *reply] for context, reply in sequences]
    total = Packed()
    for chosen in rows_within(whole, row_tokens) if whole else []:
        subtree_end = layout([whole[k] for k in chosen])[2]
        length = len(subtree_end)
        if attention == "flex":  # keys and values once, and no mask
            length = bucket(length)
            pairs, paths = 0, length
        else:
            pairs, paths = (
                (length * length, 0) if attention == "mask" else _attended(segments_of(subtree_end))
            )
        total = total.plus(Packed(length, 1, pairs, paths, length))
    return total


def _attended(segments: Sequence[Any]) -> tuple[int, int]:
    pairs = paths = 0
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
    return _load(config, plan, lengths, turns, on_gpu)


def largest_load(config: Config, lengths: Averages, on_gpu: bool = False) -> tuple[Packed, int]:
    """Student rows of the largest micro-batch (longest replies, every branch), and its gradient rows."""
    plan = plan_of(config)
    branches = [p for p in plan.plays[1:] if p.share and not p.instead]
    certain = replace(plan, plays=(plan.plays[0], *(replace(p, share=1.0) for p in branches)))
    size = min(config.train.micro_batch, config.train.rollouts * plan.samples)
    limits = config.rollout
    longest = replace(lengths, middle=limits.middle_tokens, answer=limits.answer_tokens)
    load = _load(config, certain, longest, [max(lengths.turns)] * size, on_gpu)
    return load.student, load.gradients


def _shares(plan: Plan) -> dict[str, float]:
    first, *branches = plan.plays
    alone = prod(1 - play.share for play in branches if play.instead)
    return {first.view: alone, **{play.view: play.share for play in branches}}


def _kept(term: Term, steps: int) -> float:
    """The share of its tokens that a term counts, over a run: tokens it drops cost no gradient product."""
    seen = range(1, steps + 1, max(1, steps // 1000))
    return sum(term.logged(Moment(step, steps)).get("keep", 1.0) for step in seen) / len(seen)


def _load(config: Config, plan: Plan, lengths: Averages, turns: list[int], on_gpu: bool) -> Load:
    """Typical conversations of so many turns each, played and scored as the plan says; branches of the plan
    count by their share.
    """
    attention: Attention = "flex" if on_gpu else "segments"
    if config.model.attention != "sdpa":
        attention = "mask"
    # The rollouts of a group are of one example.
    groups = [TypicalExample(lengths, t, k) for k, t in enumerate(turns[:: plan.samples])]
    examples = [groups[k // plan.samples] for k in range(len(turns))]
    by_id = {e.example.id: e for e in groups}
    moment = Moment(config.train.steps, config.train.steps)
    plays = []  # the share of the steps that play it, and its rollouts
    calls = list[tuple[float, ...]]()
    for play in plan.plays:
        share = _shares(plan)[play.view]
        played = [example.play(play.view, config.chat.history == "verbatim") for example in examples]
        calls += _calls(config, played, share)
        # Half of the answers right, so that terms about either kind have something to do.
        verdicts = [Verdict(k % 2 == 0, None, "ok", "") for k in range(len(played))]
        rollouts = [Rollout(c.example, (c,), (verdicts[k],), k % plan.samples) for k, c in enumerate(played)]
        plays.append((share, rollouts))
    student, teacher, scored, products, gradients = Packed(), Packed(), 0.0, 0.0, 0
    size, passes = config.train.micro_batch, 2 if plan.needs_survey else 1
    for first in range(0, len(turns), size):
        always: tuple[Pairs, Pairs] = ([], [])  # branches that are always played share their rows
        for share, rollouts in plays:
            chosen = [rollout.replies() for rollout in rollouts[first : first + size]]
            replies, units, _ = units_of(chosen, plan, moment, Peers(rollouts))
            shown: Pairs = []
            for unit in units:
                reply = replies[unit.reply]
                for context in [*(c for _, c in unit.contexts), *unit.auxiliary[1]]:
                    ids = context if isinstance(context, tuple) else by_id[reply.example.id].context(context)
                    shown.append((ids, reply.tokens))
                scored += share * len(reply.tokens)
                gradients += len(reply.tokens) * len(unit.terms)
                # On a GPU nobody waits to learn which rows count: all of them get their product.
                counted = sum(1.0 if on_gpu else _kept(term, config.train.steps) for term in unit.terms)
                products += share * len(reply.tokens) * (passes * (2 + len(unit.auxiliary[1])) + counted)
            seen: Pairs = [(r.context, r.tokens) for r in replies]
            if share == 1:
                always[0].extend(seen)
                always[1].extend(shown)
            else:
                student = student.plus(pack(seen, config.train.row_tokens, attention), share)
                teacher = teacher.plus(pack(shown, config.train.row_tokens, attention), share)
        student = student.plus(pack(always[0], config.train.row_tokens, attention))
        teacher = teacher.plus(pack(always[1], config.train.row_tokens, attention))
    sampled = SampledLoad(*map(sum, zip(*calls, strict=True)))
    return Load(student, teacher, scored, products, gradients, sampled, len(turns), passes)


def _calls(config: Config, played: list[Conversation], share: float) -> Iterator[tuple[float, ...]]:
    """Generate calls: for every turn one of middle replies, one of last ones."""
    reuses = not engine_traits(config).in_place or config.engine.cache_mb > 0
    limits, size = config.rollout, config.rollout.batch
    for turn, last in product(range(max(len(c.turns) for c in played)), (False, True)):
        now = [c.turns for c in played if turn < len(c.turns) and (turn == len(c.turns) - 1) == last]
        limit = limits.answer_tokens if last else limits.middle_tokens
        for first in range(0, len(now), size):
            yield _call(now[first : first + size], turn, limit, share, reuses)


def _call(
    conversations: list[list[Turn]], turn: int, limit: int, share: float, reuses: bool
) -> tuple[float, ...]:
    """One call for a turn of these conversations, a share of them played: what `SampledLoad` holds."""
    tokens = read = prefilled = 0.0
    for turns in conversations:
        context, reply = turns[turn].context, turns[turn].reply
        before = (*turns[turn - 1].context, *turns[turn - 1].reply) if turn and reuses else ()
        tokens += len(reply)
        read += len(reply) * (len(context) + len(reply) / 2)
        prefilled += len(context) - common_prefix(before, context)
    expected = share * len(conversations)
    mean = tokens / len(conversations)
    # The longest of n lengths that are spread like an exponential is the mean times 1 + 1/2 + ... + 1/n.
    longest = mean * sum(1 / k for k in range(1, max(1, round(expected)) + 1))
    # Fewer than one reply on average takes a call of its own, in so many of the steps.
    steps = min(1.0, expected) * max(mean, min(limit, longest))
    return steps, share * tokens, share * read, share * prefilled
