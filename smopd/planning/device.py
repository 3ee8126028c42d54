"""What runs otherwise on a GPU than on a CPU, in numbers: the pairs attention computes, the head's chunks,
the launches of the hf engine.
"""

import numpy as np

from smopd.planning.gpus import Gpu
from smopd.planning.shapes import Shape
from smopd.scoring.chunks import device_rows
from smopd.scoring.tree import BLOCK, bucket

CHUNK_LAUNCHES = 100  # of a chunk of the head: its tests allow no more
# Launches of one sampled token in one layer, with the adapter beside the projections or merged, and outside
# the layers. A base in less than float32 casts: around its norms, and for every matrix of an adapter. A test
# counts them.
LAUNCHES, LAUNCHES_MERGED, LAUNCHES_OUTSIDE = 80, 52, 40
CASTS, ADAPTER_CASTS = 8, 14


def block_pairs(subtree_end: np.ndarray) -> int:
    """Query-key pairs in the blocks of a packed row that hold one pair to be seen, padding included."""
    length = len(subtree_end)
    padded = bucket(length)
    # A padding token is seen by nobody but itself.
    ends = np.arange(1, padded + 1)
    ends[:length] = subtree_end
    first_n = np.arange(0, padded, BLOCK)
    seen_nn = (first_n < first_n[:, None]) & (ends.reshape(-1, BLOCK).max(1) > first_n[:, None])
    return (int(seen_nn.sum()) + len(first_n)) * BLOCK * BLOCK


def chunk_rows(shape: Shape, free: float, losses: int = 1) -> int:
    """Rows of the head at once, with so much memory free: two float32 buffers and a gradient of each loss."""
    return device_rows(free, (2 + losses) * shape.vocabulary * 4)


def decode_launches(shape: Shape, dtype: str, merged: bool) -> int:
    """Launches of the hf engine for one sampled token of all rows."""
    layer = LAUNCHES_MERGED if merged else LAUNCHES
    if dtype != "float32":
        layer += CASTS + (0 if merged else ADAPTER_CASTS)
    return layer * shape.layers + LAUNCHES_OUTSIDE


def is_gpu(gpu: Gpu) -> bool:
    """Whether it is one: the table has a CPU too."""
    return gpu.name != "cpu"
