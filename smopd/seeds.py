"""Seeds are derived, not drawn: stable hashes of (run seed, purpose, step, example, turn, ...). So a resumed
run repeats the uninterrupted one, and no random choice depends on what else is in the batch.
"""

import hashlib
import random

from smopd.lazy import torch  # processes that only verify derive seeds too, and start faster without it


def derive(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on nothing else."""
    text = "\x1f".join(f"{type(p).__name__}:{p}" for p in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def rng(*parts: int | str) -> random.Random:
    return random.Random(derive(*parts))


def torch_generator(*parts: int | str) -> "torch.Generator":
    return torch.Generator().manual_seed(derive(*parts))
