"""The work of one step in tokens: conversations of average length, scored as the plan says.

Turns and tokens are averages of the words of the recipe's data if they are on this machine, else of LiC math.
A plan needs no tokenizer, whose import takes seconds: tools/average_lengths.py prints the templates' lengths.
Reply lengths are assumed, or options of `smopd plan`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, count, islice, product, takewhile
from math import ceil, hypot, prod
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from smopd.chat.messages import Message, View, user_turns
from smopd.config import Config, plan_of
from smopd.data import Example, load_examples
from smopd.data.reading import generated
from smopd.objective.plan import Plan
from smopd.objective.scoring_requests import scoring_requests
from smopd.objective.tokens import Moment
from smopd.rollout import Conversation, Peers, Rollout, Stop, Turn
from smopd.rollout.engine import traits_of
from smopd.scoring.tree import QUERIES, Segment, bucket, layout, rows_within, segments_of
from smopd.verify import load_verifiers
from smopd.verify.verdict import Verdict

MIDDLE_SHARE, ANSWER_SHARE = 0.75, 0.35  # of the token limits: middle replies are often cut, answers seldom
WORD = 1.33  # tokens per word


Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]  # context, reply
Attention = Literal["segments", "flex", "mask"]


@dataclass(frozen=True)
class Averages:
    """Mean tokens of a data set's texts and of replies, and the tokens that the chat template adds."""

    turns: Mapping[int, int]  # number of turns -> number of examples
    shard: float
    full: float
    system: float
    start: int  # before the first user turn, without the system message's text
    user: int  # around a user turn
    prompt: int  # generation prompt
    lost: int  # tokens of the generation prompt that are missing in the history
    close: int  # after a reply in the history, with its end token
    repeats: bool  # in the history, a reply has other tokens than as sampled
    source: str = ""
    middle: float = 0.0  # a middle reply
    answer: float = 0.0  # an answer or FULL reply


DEFAULTS = Averages(
    turns={4: 16, 5: 20, 6: 16, 7: 11, 8: 5, 9: 1}, shard=12.3, full=67.0, system=41.0,
    start=5, user=5, prompt=7, lost=4, close=2, repeats=True,
    source="LiC math with Qwen3's tokenizer (smopd's defaults)",
)  # fmt: skip
POCKET = replace(DEFAULTS, start=2, user=2, prompt=1, lost=0, close=1, repeats=False)


def find_averages(config: Config, middle: float | None = None, answer: float | None = None) -> Averages:
    """Averages of the recipe's data, or the defaults; `middle` and `answer`: mean reply lengths."""
    limits, data = config.rollout, config.data.train
    middle = min(middle or MIDDLE_SHARE * limits.middle_tokens, limits.middle_tokens)
    answer = min(answer or ANSWER_SHARE * limits.answer_tokens, limits.answer_tokens)
    averages = replace(POCKET if config.model.path == "pocket" else DEFAULTS, middle=middle, answer=answer)
    load_verifiers(config.data.verifiers)  # for examples of custom tasks
    if not generated(data) and not Path(data).is_file():
        return averages
    examples = load_examples(data, config.data.train_limit or None)  # raises a UserError for a broken file
    return replace(
        averages,
        turns=Counter(len(e.shards) for e in examples),
        shard=WORD * fmean(len(shard.split()) for e in examples for shard in e.shards),
        full=WORD * fmean(len(e.full.split()) for e in examples),
        system=WORD * fmean(len(e.system.split()) for e in examples),
        source=f"words of {data}",
    )


@dataclass(frozen=True)
class Packed:
    """Packed rows of one model's passes."""

    tokens: float = 0
    rows: float = 0
    pairs: float = 0  # query-key pairs for which attention keeps a mask
    paths: float = 0  # tokens whose keys and values attention keeps, a copy for each path through them
    longest: float = 0  # tokens of the largest row

    def plus(self, other: "Packed", share: float = 1.0) -> "Packed":
        """Add `other`, which occurs in a share of the steps."""
        sums = {name: value + share * getattr(other, name) for name, value in vars(self).items()}
        return Packed(**sums | {"longest": max(self.longest, other.longest)})


class SampledLoad(NamedTuple):
    steps: float = 0.0  # decode steps: tokens of the longest reply of each call
    tokens: float = 0.0  # of all replies
    read: float = 0.0  # cached tokens that are read, summed over the sampled tokens
    prefilled: float = 0.0


@dataclass
class Load:
    """The work of one step of one process."""

    rollouts: int
    passes: int  # forward passes of student and teacher: 2 with a pre-pass over the whole step
    sampled: SampledLoad = field(default_factory=SampledLoad)
    student: Packed = field(default_factory=Packed)
    teacher: Packed = field(default_factory=Packed)
    scored: float = 0.0  # rows of logits, of student and teacher each
    gradients: float = 0.0  # rows with a gradient, one per loss
    products: float = 0.0  # of a row and the head: both logits, and the gradients


class TypicalChat:
    """Examples and conversations of average lengths; a word is a token, and no two messages share tokens."""

    def __init__(self, lengths: Averages) -> None:
        self.lengths, self._unused = lengths, count()
        self._system = self._new(lengths.system + lengths.start)  # shared by all conversations
        self._prompt = self._new(lengths.prompt)
        self._message = cache(self._new_message)

    def _new(self, length: float) -> tuple[int, ...]:
        return tuple(islice(self._unused, round(length)))

    def _new_message(self, role: str, text: str) -> tuple[int, ...]:
        return self._new(len(text.split()) + (self.lengths.user if role == "user" else self.lengths.close))

    def context(self, messages: Sequence[Message]) -> tuple[int, ...]:
        rendered = (self._message(m["role"], m["content"]) for m in messages if m["role"] != "system")
        return tuple(chain(self._system, *rendered, self._prompt))

    def example(self, turns: int, number: int) -> Example:
        """An example of a task with a reference, which some teachers see."""
        shards = tuple(_text(f"shard-{number}-{k}", self.lengths.shard) for k in range(turns))
        full = _text(f"full-{number}", self.lengths.full)
        return Example(f"typical {number}", "math", "system", shards, full, {"value": "0"})

    def play(self, example: Example, view: View, verbatim: bool) -> Conversation:
        """A conversation with replies of average length; `verbatim`: the history keeps the sampled tokens."""
        lengths, dirty = self.lengths, self._system
        users, played = user_turns(example, view), Conversation(example, view)
        for turn, user in enumerate(users):
            reply = self._new(lengths.answer if turn == len(users) - 1 else lengths.middle)
            text = _text(f"reply-{next(self._unused)}", len(reply))
            dirty += self._message("user", user)
            played.turns.append(Turn(dirty + self._prompt, reply, Stop.END, text))
            # In the history, the reply's end token is the first of its closing tokens.
            if lengths.repeats and not verbatim:
                kept = self._prompt[: lengths.prompt - lengths.lost]
                dirty += kept + self._new(len(reply) - 1 + lengths.close)
            else:
                dirty += self._prompt + reply + self._new(lengths.close - 1)
        return played


def _text(name: str, word_count: float) -> str:
    return name + " word" * (round(word_count) - 1)


def pack(sequences: Pairs, row_tokens: int, attention: Attention = "segments") -> Packed:
    """Pack into rows of at most `row_tokens`; attention by segments (CPU), padded flex (GPU) or full mask."""
    whole, total = [[*context, *reply] for context, reply in sequences], Packed()
    for chosen in rows_within(whole, row_tokens) if whole else []:
        subtree_end = layout([whole[k] for k in chosen])[2]
        length = len(subtree_end)
        if attention == "segments":
            pairs, paths = _count_attended(segments_of(subtree_end))
        elif attention == "flex":  # keys and values once, and no mask
            length = bucket(length)
            pairs, paths = 0, length
        else:
            pairs, paths = length * length, 0
        total = total.plus(Packed(length, 1, pairs, paths, length))
    return total


def _count_attended(segments: Sequence[Segment]) -> tuple[int, int]:
    pairs = paths = 0
    for segment in segments:
        above = sum(segments[k].stop - segments[k].start for k in segment.ancestors)
        length = segment.stop - segment.start
        paths += above + length
        for first in range(0, length, QUERIES):
            size = min(QUERIES, length - first)
            pairs += size * (above + first + size)
    return pairs, paths


def step_load(config: Config, lengths: Averages, processes: int = 1, on_gpu: bool = False) -> Load:
    """An average step, for the process with the most rollouts."""
    plan = plan_of(config)
    rollouts = ceil(config.train.rollouts * plan.samples / processes)
    # Numbers of turns are distributed as in the data, long and short ones mixed.
    examples = ceil(rollouts / plan.samples)
    spread = sorted(Counter(lengths.turns).elements())
    picked = [spread[int((k + 0.5) / examples * len(spread))] for k in range(examples)]
    mixed = picked[::2] + picked[1::2][::-1]
    return _load(config, plan, lengths, [mixed[k // plan.samples] for k in range(rollouts)], on_gpu)


def largest_load(config: Config, lengths: Averages, on_gpu: bool = False) -> Load:
    """The largest micro-batch: replies at their limits, every branch of the plan taken."""
    plan = plan_of(config)
    branches = [replace(play, share=1.0) for play in plan.plays[1:] if play.share and not play.instead]
    certain = replace(plan, plays=(plan.plays[0], *branches))
    size = min(config.train.micro_batch, config.train.rollouts * plan.samples)
    limits = config.rollout
    longest = replace(lengths, middle=limits.middle_tokens, answer=limits.answer_tokens)
    return _load(config, certain, longest, [max(lengths.turns)] * size, on_gpu)


def _load(config: Config, plan: Plan, lengths: Averages, turns: list[int], on_gpu: bool) -> Load:
    """Play and score typical conversations of these turns; branches of the plan count by their share."""
    attention: Attention = "mask" if config.model.attention != "sdpa" else "flex" if on_gpu else "segments"
    chat, verbatim = TypicalChat(lengths), config.chat.history == "verbatim"
    steps, size = config.train.steps, config.train.micro_batch
    # Rollouts of a group share their example.
    examples = [chat.example(count, k // plan.samples) for k, count in enumerate(turns)]
    load = Load(len(turns), passes=2 if plan.needs_whole_step else 1)
    calls, sampled = list[SampledLoad](), list[tuple[float, Conversation]]()
    first, *branches = plan.plays
    shares = {first: prod(1 - play.share for play in branches if play.instead)}
    shares |= {play: play.share for play in branches}
    for share in sorted(set(shares.values())):
        plays = [play for play in plan.plays if shares[play] == share]
        played = [[chat.play(e, play.view, verbatim) for e in examples] for play in plays]
        for play, conversations in zip(plays, played, strict=True):
            if not play.reference:
                calls += _calls(config, conversations, share)
                sampled += [(share, conversation) for conversation in conversations]
        # Half of the answers are right, so that terms on either kind apply.
        verdicts = [(Verdict(k % 2 == 0, None, "ok", ""),) * len(plays) for k in range(len(turns))]
        parts = zip(examples, zip(*played, strict=True), verdicts, strict=True)
        rollouts = [Rollout(*part, k % plan.samples) for k, part in enumerate(parts)]
        for start in range(0, len(turns), size):
            chosen = [rollout.replies() for rollout in rollouts[start : start + size]]
            replies, units, _ = scoring_requests(chosen, plan, Moment(steps, steps), Peers(rollouts))
            shown = []
            for unit in units:
                reply, (_, further) = replies[unit.reply], unit.auxiliary
                for context in [*(context for _, context in unit.contexts), *further]:
                    ids = context if isinstance(context, tuple) else chat.context(context)
                    shown.append((ids, reply.tokens))
                scored = share * len(reply.tokens)
                load.scored += scored
                load.gradients += scored * len(unit.terms)
                load.products += scored * (load.passes * (2 + len(further)) + len(unit.terms))
            seen = [(reply.context, reply.tokens) for reply in replies]
            load.student = load.student.plus(pack(seen, config.train.row_tokens, attention), share)
            load.teacher = load.teacher.plus(pack(shown, config.train.row_tokens, attention), share)
    load.sampled = SampledLoad(*map(sum, zip(*calls, strict=True)))
    traits = traits_of(config.engine.kind)
    if not traits.in_place or (config.rollout.ahead > 1 and not on_gpu):  # on GPUs, hf has static shapes
        load.sampled = load.sampled._replace(steps=_continuous_steps(config, sampled, load.sampled.tokens))
    return load


def _continuous_steps(config: Config, sampled: list[tuple[float, Conversation]], tokens: float) -> float:
    """Decode steps per training step: the longest conversation's, or those of full batches if more."""
    ahead, limits = config.rollout.ahead, config.rollout
    count = max(1, round(ahead * sum(share for share, _ in sampled)))
    harmonic = sum(1 / k for k in range(1, count + 1))
    longest = 0.0
    for _, conversation in sampled:
        # Reply lengths are assumed to be exponential, with a deviation equal to their mean.
        means = [len(turn.reply) for turn in conversation.turns]
        most = limits.middle_tokens * (len(means) - 1) + limits.answer_tokens
        longest = max(longest, min(most, sum(means) + hypot(*means) * (harmonic - 1)))
    return max(longest / ahead, tokens / config.rollout.batch)


def _calls(config: Config, played: list[Conversation], share: float) -> Iterator[SampledLoad]:
    """Yield the generate calls of every turn, middle replies before last ones, weighted by `share`."""
    reuses = not traits_of(config.engine.kind).in_place or config.engine.cache_mb > 0
    limits, size = config.rollout, config.rollout.batch
    for number, last in product(range(max(len(c.turns) for c in played)), (False, True)):
        limit = limits.answer_tokens if last else limits.middle_tokens
        now = [c.turns for c in played if number < len(c.turns) and (number == len(c.turns) - 1) == last]
        for batch in (now[first : first + size] for first in range(0, len(now), size)):
            tokens = read = prefilled = 0.0
            for turns in batch:
                turn, before = turns[number], turns[number - 1]
                tokens += len(turn.reply)
                read += len(turn.reply) * (len(turn.context) + len(turn.reply) / 2)
                known = before.context + before.reply if number and reuses else ()
                prefilled += len(turn.context) - common_prefix(known, turn.context)
            expected, mean = config.rollout.ahead * share * len(batch), tokens / len(batch)
            # The expected longest of n exponential lengths is the mean times 1 + 1/2 + ... + 1/n.
            longest = mean * sum(1 / k for k in range(1, max(1, round(expected)) + 1))
            # With less than one reply on average, there is a call in that share of the steps.
            steps = min(1.0, expected) * max(mean, min(limit, longest))
            yield SampledLoad(steps / config.rollout.ahead, share * tokens, share * read, share * prefilled)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
