"""What a step has to compute, in tokens: conversations of average length, packed as training packs them.

No text is needed, only lengths: every token of a typical conversation gets a number of its own, the
template's repetitions are repeated, and `PrefixTree` packs the result. It leaves out what the tokens cost
(`flops.py`, `memory.py`, `timing.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

from smopd.config import Config
from smopd.planning.averages import Averages, common_prefix
from smopd.rollout.engine import TRAITS
from smopd.scoring.attention import BLOCK
from smopd.scoring.tree import PrefixTree, rows_within

Sequence = tuple[list[int], list[int]]  # context, reply


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
class TypicalConversation:
    """Token sequences of an example of average lengths, as student and teacher are scored on them."""

    student: list[Sequence]
    teacher: list[Sequence]
    full: Sequence  # the FULL branch, the same for both


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
    middle: float  # reply tokens scored
    answer: float  # of answers and FULL replies
    sampled: Sampled
    rollouts: int


def conversation(
    config: Config, lengths: Averages, turns: int, middle: float, answer: float, number: int
) -> TypicalConversation:
    """An example of so many turns with replies of these lengths; no other `number` has any of its tokens."""
    form = lengths.template
    unused = count((number + 1) << 32)  # the system prompt's tokens are below

    def new(length: float) -> list[int]:
        return [next(unused) for _ in range(round(length))]

    system = list(range(round(lengths.system) + form.start))
    dirty, clean = list(system), list(system)
    student: list[Sequence] = []
    teacher: list[Sequence] = []
    full = (system + new(form.user + lengths.full) + new(form.prompt), new(answer))
    for turn in range(turns):
        last = turn == turns - 1
        user, prompt = new(form.user + lengths.shard), new(form.prompt)
        reply = new(answer if last else middle)
        dirty, clean = dirty + user, clean + user
        student.append((dirty + prompt, reply))
        teacher.append((full[0] if last else clean + prompt, reply))
        # The reply's end token stands in the history as the first token that closes it.
        if form.repeats and config.chat.history != "verbatim":
            dirty = dirty + prompt[: form.prompt - form.lost] + new(len(reply) - 1 + form.close)
        else:
            dirty = dirty + prompt + reply + new(form.close - 1)
    return TypicalConversation(student, teacher, full)


def pack(sequences: list[Sequence], row_tokens: int, tree_attention: bool = True) -> Packed:
    """What goes through a model for these sequences, in rows of at most `row_tokens`."""
    whole = [[*context, *reply] for context, reply in sequences]
    total = Packed()
    for chosen in rows_within(whole, row_tokens) if whole else []:
        tree = PrefixTree.pack([whole[k] for k in chosen])
        length = len(tree.input_ids)
        pairs, paths = _attended(tree) if tree_attention else (length * length, 0)
        total = total.plus(Packed(length, 1, pairs, paths, length))
    return total


def _attended(tree: PrefixTree) -> tuple[int, int]:
    """Query-key pairs that attention over a tree computes, and the tokens of all its paths."""
    pairs = paths = 0
    segments = tree.segments()
    for segment in segments:
        above = sum(segments[k].stop - segments[k].start for k in segment.ancestors)
        length = segment.stop - segment.start
        paths += above + length
        for first in range(0, length, BLOCK):
            size = min(BLOCK, length - first)
            pairs += size * (above + first + size)
    return pairs, paths


def turn_counts(lengths: Averages, rollouts: int) -> list[int]:
    """So many numbers of turns, spread like those of the data, in an order that mixes long and short."""
    spread = [turns for turns, examples in sorted(lengths.turns.items()) for _ in range(examples)]
    picked = [spread[int((k + 0.5) / rollouts * len(spread))] for k in range(rollouts)]
    return picked[::2] + picked[1::2][::-1]


def step_load(config: Config, lengths: Averages, processes: int = 1) -> Load:
    """An average step, as the process with most rollouts meets it."""
    rollouts = ceil(config.train.rollouts / processes)
    turns = turn_counts(lengths, rollouts)
    share = config.objective.rho
    exclusive = config.objective.full_branch == "exclusive"
    sharded = 1 - share if exclusive else 1.0
    middle, answer = lengths.middle, lengths.answer
    played = [conversation(config, lengths, t, middle, answer, k) for k, t in enumerate(turns)]
    student, teacher = Packed(), Packed()
    for first in range(0, rollouts, config.train.micro_batch):
        part = played[first : first + config.train.micro_batch]
        full = [c.full for c in part]
        student = student.plus(_packed(config, [c.student for c in part], full, share, exclusive))
        teacher = teacher.plus(_packed(config, [c.teacher for c in part], full, share, exclusive))
    middle_tokens = sharded * sum(t - 1 for t in turns) * middle
    answer_tokens = (sharded + share) * rollouts * answer
    calls = [vars(call).values() for call in _calls(config, lengths, played, share, sharded)]
    sampled = Sampled(*map(sum, zip(*calls, strict=True)))
    return Load(student, teacher, middle_tokens, answer_tokens, sampled, rollouts)


def largest_load(config: Config, lengths: Averages) -> tuple[Packed, int]:
    """The student's rows and reply tokens of the largest micro-batch: most turns, replies at their limit."""
    middle, answer = config.rollout.middle_tokens, config.rollout.answer_tokens
    size, turns = min(config.train.micro_batch, config.train.rollouts), max(lengths.turns)
    played = [conversation(config, lengths, turns, middle, answer, k) for k in range(size)]
    share = 1.0 if config.objective.rho and config.objective.full_branch == "additive" else 0.0
    student = _packed(config, [c.student for c in played], [c.full for c in played], share, False)
    return student, round(size * ((turns - 1) * middle + (1 + share) * answer))


def _packed(
    config: Config, turns: list[list[Sequence]], full: list[Sequence], share: float, exclusive: bool
) -> Packed:
    """One model's passes over the turns of a micro-batch, of which `share` has a FULL branch."""
    row_tokens, tree = config.train.row_tokens, config.model.attention == "sdpa"
    sharded = [sequence for conversation in turns for sequence in conversation]
    without = pack(sharded, row_tokens, tree)
    if not share:
        return without
    return without.mixed(pack(full if exclusive else sharded + full, row_tokens, tree), share)


def _calls(
    config: Config, lengths: Averages, played: list[TypicalConversation], share: float, sharded: float
) -> Iterator[Sampled]:
    """The generate calls of a step: for every turn one of middle replies, one of answers; one for FULL."""
    reuses = not TRAITS[config.engine.kind].in_place or config.engine.cache_mb > 0
    limits, size = config.rollout, config.rollout.batch
    for turn in range(max(lengths.turns)):
        for last in (False, True):
            now = [c for c in played if turn < len(c.student) and (turn == len(c.student) - 1) == last]
            limit = limits.answer_tokens if last else limits.middle_tokens
            for first in range(0, len(now), size):
                some = now[first : first + size]
                before = [c.student[turn - 1] for c in some] if turn and reuses else None
                yield _call([c.student[turn] for c in some], limit, sharded, before)
    if share and played:
        # Fewer than one on average still takes a call of its own, in so many of the steps.
        expected = share * len(played)
        asked = [c.full for c in played[: max(1, round(expected))]]
        factor = expected / len(asked)
        call = _call(asked, limits.answer_tokens, factor)
        yield replace(call, steps=factor * call.steps)


def _call(
    sequences: list[Sequence], limit: int, share: float, before: list[Sequence] | None = None
) -> Sampled:
    """A call for `share` of these replies; `before`: the turns that are still cached."""
    tokens = read = prefilled = pairs = 0.0
    for k, (context, reply) in enumerate(sequences):
        cached = common_prefix(before[k][0] + before[k][1], context) if before else 0
        tokens += len(reply)
        read += len(reply) * (len(context) + len(reply) / 2)
        prefilled += len(context) - cached
        pairs += (len(context) - cached) * len(context)
    mean = tokens / len(sequences)
    # The longest of n lengths that are spread like an exponential is the mean times 1 + 1/2 + ... + 1/n.
    longest = mean * sum(1 / k for k in range(1, len(sequences) + 1))
    steps = max(mean, min(limit, longest))
    return Sampled(1, steps, share * tokens, share * read, share * prefilled, share * pairs)
