"""How the hf engine cuts its work, known without torch, since the planner counts with the same numbers: the
sizes of its buffers, and prompts that begin alike, such as questions about one database. What those have in
common goes through the model once, and every prompt continues from its keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

GROWTH = 128  # columns added when a buffer of keys and values is full
WIDTH = 512  # columns of a static cache come in multiples of this: few shapes, so few graphs
# A shorter common prefix is not worth a pass of its own. System prompts of a few sentences stay below.
SHORTEST = 192
PADDING = 1.25  # prefixes share a pass while the longest has at most this many times the shortest's tokens


def static_shape(rows: int, columns: int) -> tuple[int, int]:
    """The shape of a static cache with room for so much: rows come in powers of two, columns in widths."""
    return 1 << max(0, rows - 1).bit_length(), -(-columns // WIDTH) * WIDTH


@dataclass(frozen=True)
class Prefix:
    """The first `length` tokens of the prompts with these indices."""

    members: list[int]
    length: int


def shared_prefixes(prompts: Sequence[Sequence[int]], computed: Sequence[int]) -> list[Prefix]:
    """Prefixes of at least two prompts that hold SHORTEST tokens beyond those `computed` of any of them.

    Where there are some, a prompt in no group that has more left to compute than those in groups becomes a
    prefix by itself: all rows of the pass that follows are as long as the longest of them. Deeper prefixes
    within a group are found by asking again with `computed` raised to the group's length.
    """
    order = sorted(range(len(prompts)), key=lambda k: list(prompts[k]))
    groups: list[Prefix] = []
    for before, k in pairwise(order):
        # Without the last token of either, which is computed for its logits.
        common = common_length(prompts[before][:-1], prompts[k][:-1])
        extends = bool(groups) and groups[-1].members[-1] == before
        group = groups[-1] if extends else Prefix([before], common)
        group = Prefix([*group.members, k], min(common, group.length))
        if group.length >= max(computed[m] for m in group.members) + SHORTEST:
            groups[-1 if extends else len(groups) :] = [group]
    grouped = {m for group in groups for m in group.members}
    rest = max((len(prompts[m]) - group.length for group in groups for m in group.members), default=0)
    alone = [k for k in order if k not in grouped and len(prompts[k]) - computed[k] > rest] if groups else []
    return groups + [Prefix([k], len(prompts[k]) - 1) for k in alone]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    limit = min(len(first), len(second))
    return next((k for k in range(limit) if first[k] != second[k]), limit)
