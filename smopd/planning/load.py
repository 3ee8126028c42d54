"""What a step has to compute, in tokens: average conversations, laid out and packed by the same code that
training uses.

No text is needed, only lengths: every token of an average conversation gets a number of its own, the
template's repetitions are repeated, and `PrefixTree` packs the result. It leaves out what the tokens cost
(`flops.py`, `memory.py`, `timing.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

from smopd.config import Config
from smopd.planning.averages import Averages
from smopd.scoring.attention import BLOCK
from smopd.scoring.tree import PrefixTree, rows_within

Sequence = tuple[list[int], list[int]]  # context, reply


@dataclass(frozen=True)
class Packed:
    """Packed rows of one model's passes."""

    tokens: float = 0
    rows: float = 0
    pairs: float = 0  # query-key pairs that attention computes, those it then masks included
    paths: float = 0  # tokens of all paths from a root to a segment: keys and values are copied together along each of them
    longest: float = 0  # tokens of the largest row

    def mixed(self, other: "Packed", share: float) -> "Packed":
        """(1 - share) of this and share of the other."""
        return Packed(
            *(a + share * (b - a) for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    def plus(self, other: "Packed") -> "Packed":
        """Both, one after the other."""
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return Packed(**sums | {"longest": max(self.longest, other.longest)})


@dataclass(frozen=True)
class Conversation:
    """The token sequences of one example: what the student is scored on, what the teacher is, and the FULL
    branch of both.
    """

    student: list[Sequence]
    teacher: list[Sequence]
    full: Sequence


@dataclass(frozen=True)
class Decoding:
    """One generate call: so many replies side by side."""

    replies: int
    steps: float  # tokens of the longest of them
    tokens: float  # sampled, of all of them
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
    calls: list[Decoding]
    rollouts: int

    @property
    def sampled(self) -> float:
        """Tokens generated."""
        return sum(call.tokens for call in self.calls)

    @property
    def prefilled(self) -> float:
        """Prompt tokens computed for it."""
        return sum(call.prefilled for call in self.calls)


def conversation(
    lengths: Averages, turns: int, middle: float, answer: float, keeps_history: bool, number: int
) -> Conversation:
    """An average example of so many turns; `keeps_history`: sampled tokens stay as they are in the history."""
    form = lengths.template
    fresh = count(
        (number + 1) << 32
    )  # no token equals another conversation's; the system prompt is everybody's

    def new(length: float) -> list[int]:
        return [next(fresh) for _ in range(round(length))]

    system = list(range(round(lengths.system) + form.start))
    repeats = form.repeats and not keeps_history
    dirty, clean = list(system), list(system)
    student: list[Sequence] = []
    teacher: list[Sequence] = []
    full = (system + new(form.user + lengths.full) + new(form.prompt), new(answer))
    for turn in range(turns):
        last = turn == turns - 1
        asked, prompt, reply = (
            new(form.user + lengths.shard),
            new(form.prompt),
            new(answer if last else middle),
        )
        dirty, clean = dirty + asked, clean + asked
        student.append((dirty + prompt, reply))
        teacher.append((full[0] if last else clean + prompt, reply))
        # The reply's end token stands in the history as the first token that closes it.
        if repeats:
            dirty = dirty + prompt[: form.prompt - form.lost] + new(len(reply) - 1 + form.close)
        else:
            dirty = dirty + prompt + reply + new(form.close - 1)
    return Conversation(student, teacher, full)


def pack(sequences: list[Sequence], row_tokens: int, tree_attention: bool = True) -> Packed:
    """What goes through a model for these sequences, in rows of at most `row_tokens`."""
    whole = [[*context, *reply] for context, reply in sequences]
    total = Packed()
    for chosen in rows_within(whole, row_tokens) if whole else []:
        tree = PrefixTree.pack([whole[k] for k in chosen])
        length = len(tree.input_ids)
        pairs, paths = length * length, 0
        if tree_attention:
            segments = tree.segments()
            pairs = 0
            for segment in segments:
                above = sum(segments[k].stop - segments[k].start for k in segment.ancestors)
                own = segment.stop - segment.start
                paths += above + own
                for first in range(0, own, BLOCK):
                    size = min(BLOCK, own - first)
                    pairs += size * (above + first + size)
        total = total.plus(Packed(length, 1, pairs, paths, length))
    return total


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
    played = [
        conversation(lengths, t, lengths.middle, lengths.answer, config.chat.history == "verbatim", number)
        for number, t in enumerate(turns)
    ]
    student, teacher = Packed(), Packed()
    size, width = config.train.micro_batch, config.train.row_tokens
    for first in range(0, rollouts, size):
        part = played[first : first + size]
        for_student, for_teacher = _mixed(part, width, share, exclusive, config.model.attention == "sdpa")
        student, teacher = student.plus(for_student), teacher.plus(for_teacher)
    sharded = 1 - share if exclusive else 1.0
    middle = sharded * sum(t - 1 for t in turns) * lengths.middle
    answer = (sharded + share) * rollouts * lengths.answer
    return Load(
        student, teacher, middle, answer, list(_calls(config, lengths, played, share, sharded)), rollouts
    )


def largest_load(config: Config, lengths: Averages) -> tuple[Packed, Packed, int]:
    """The micro-batch that needs most memory: all replies at their limit, the most turns of the data, a FULL
    branch each.

    The student's and the teacher's packed rows, and the reply tokens.
    """
    middle, answer = config.rollout.middle_tokens, config.rollout.answer_tokens
    size, turns = min(config.train.micro_batch, config.train.rollouts), max(lengths.turns)
    played = [
        conversation(lengths, turns, middle, answer, config.chat.history == "verbatim", k)
        for k in range(size)
    ]
    share = 1.0 if config.objective.rho and config.objective.full_branch == "additive" else 0.0
    tree = config.model.attention == "sdpa"
    student, teacher = _mixed(played, config.train.row_tokens, share, False, tree)
    return student, teacher, round(size * ((turns - 1) * middle + (1 + share) * answer))


def _mixed(
    part: list[Conversation], row_tokens: int, share: float, exclusive: bool, tree: bool
) -> tuple[Packed, Packed]:
    """Student and teacher passes of a micro-batch of which `share` has a FULL branch."""
    full = [c.full for c in part]
    found = []
    for own in ([s for c in part for s in c.student], [s for c in part for s in c.teacher]):
        without = pack(own, row_tokens, tree)
        found.append(
            without.mixed(pack(full if exclusive else own + full, row_tokens, tree), share)
            if share
            else without
        )
    return found[0], found[1]


def _calls(
    config: Config, lengths: Averages, played: list[Conversation], share: float, sharded: float
) -> Iterator[Decoding]:
    """The generate calls of a step: of every turn one for the middle replies and one for the answers, and one
    for FULL.
    """
    reuses = config.engine.kind != "hf" or config.engine.cache_mb > 0
    for turn in range(max(lengths.turns)):
        for last in (False, True):
            now = [c for c in played if turn < len(c.student) and (turn == len(c.student) - 1) == last]
            limit = config.rollout.answer_tokens if last else config.rollout.middle_tokens
            for first in range(0, len(now), config.rollout.batch):
                some = now[first : first + config.rollout.batch]
                before = [c.student[turn - 1] for c in some] if turn and reuses else [None] * len(some)
                call = _call([c.student[turn] for c in some], before, limit)
                yield replace(
                    call,
                    **{
                        k: getattr(call, k) * sharded
                        for k in ("tokens", "read", "prefilled", "prefill_pairs")
                    },
                )
    if share and played:
        # Fewer than one on average still takes a call of its own, in so many of the steps.
        expected = share * len(played)
        asked = [c.full for c in played[: max(1, round(expected))]]
        call = _call(asked, [None] * len(asked), config.rollout.answer_tokens)
        factor = expected / len(asked)
        yield Decoding(call.replies, *(factor * value for value in list(vars(call).values())[1:]))


def _call(sequences: list[Sequence], before: list[Sequence] | list[None], limit: int) -> Decoding:
    tokens = read = new = pairs = 0.0
    for (context, reply), earlier in zip(sequences, before, strict=True):
        shared = _common([*earlier[0], *earlier[1]], context) if earlier else 0
        tokens += len(reply)
        read += len(reply) * (len(context) + len(reply) / 2)
        new += len(context) - shared
        pairs += (len(context) - shared) * len(context)
    mean = tokens / len(sequences)
    # The longest of n lengths that are spread like an exponential is the mean times 1 + 1/2 + ... + 1/n.
    longest = mean * sum(1 / k for k in range(1, len(sequences) + 1))
    return Decoding(len(sequences), max(mean, min(limit, longest)), tokens, read, new, pairs)


def _common(a: Iterable[int], b: Iterable[int]) -> int:
    shared = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        shared += 1
    return shared
