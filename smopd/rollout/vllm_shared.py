"""What the two vLLM engines share: requests, replies, ranks, adapters on disk. Imports no vLLM."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Sequence, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.formatting import one_line
from smopd.rollout.engine import ReplyRequest, Sampled, Sampling, SaveAdapter, Stop

log = logging.getLogger("smopd")

# A log-probability above 0 by no more than this is a rounding error of float32 and read as 0.
ROUNDING = 1e-4
LOWEST = -1e9  # vLLM writes -9999 for minus infinity
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM takes as max_lora_rank


def max_rank(rank: int) -> int:
    """The smallest of vLLM's rank limits that holds adapters of this rank."""
    if rank > RANKS[-1]:
        raise UserError(f"lora.r: vLLM serves adapters up to rank {RANKS[-1]}, this one has {rank}")
    return next(limit for limit in RANKS if rank <= limit)


def read_arguments(words: Sequence[str], known: Set[str], ours: Set[str]) -> dict[str, Any]:
    """vLLM's engine arguments of `engine.args`: NAME=VALUE, the value as JSON or else a text. `known`: the
    names vLLM has; `ours`: those that follow from other settings.
    """
    arguments = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals:
            raise UserError(f"engine.args: {word}: expected NAME=VALUE, such as tensor_parallel_size=2")
        if name in ours:
            raise UserError(f"engine.args: {name} follows from the other settings of the run")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise UserError(f"engine.args: vLLM has no engine argument '{name}'{hint}")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value.strip()
    return arguments


class UnusableReply(Exception):
    """What vLLM gave is not a whole reply."""


class ReplyReader:
    """How replies are asked of vLLM, and how they are read, or what is wrong with them."""

    def __init__(self, end_ids: Sequence[int], vocabulary: int) -> None:
        self.end_ids, self.vocabulary = frozenset(end_ids), vocabulary
        self._warned = False

    def fields(self, sampling: Sampling, request: ReplyRequest) -> dict[str, Any]:
        """vLLM's names for one request, every one that a server's defaults could set otherwise."""
        return {
            "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k,
            "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "max_tokens": request.limit, "stop_token_ids": sorted(self.end_ids), "ignore_eos": True,
            "seed": request.seed,
            "logprobs": 0,  # of the sampled token and of no other
        }  # fmt: skip

    def read(self, ids: Sequence[int], logps: Sequence[float], finish: str | None, limit: int) -> Sampled:
        """UserError: the server ends replies where we do not."""
        if not 0 < len(ids) <= limit or len(logps) != len(ids):
            counts = f"{len(ids)} tokens and {len(logps)} log-probabilities"
            raise UnusableReply(f"{counts} for a limit of {limit}")
        if strange := [i for i in ids if type(i) is not int or not 0 <= i < self.vocabulary]:
            raise UnusableReply(f"{one_line(repr(strange[0]), 40)} is no token id below {self.vocabulary}")
        if wrong := [p for p in logps if type(p) not in (int, float) or not LOWEST <= p <= ROUNDING]:
            raise UnusableReply(f"{one_line(repr(wrong[0]), 40)} is no log-probability")
        if finish not in ("stop", "length"):
            raise UnusableReply(f"the reply ended with {one_line(repr(finish), 40)}")
        if self.end_ids & set(ids[:-1]):
            raise UnusableReply("tokens behind the end of the turn")
        ended = ids[-1] in self.end_ids
        if finish == "stop" and not ended:
            where = f"at token {ids[-1]}, which ends no turn of this model (those are {sorted(self.end_ids)})"
            raise UserError(f"vLLM ended a reply {where}: start the server with --generation-config vllm")
        if len(ids) < limit and not ended and not self._warned:
            self._warned = True
            cut = f"replies are cut before their limit of {limit} tokens; raise its max_model_len"
            log.warning("vLLM's context is full: %s", cut)
        return Sampled(tuple(ids), Stop.END if ended else Stop.LENGTH, tuple(min(p, 0.0) for p in logps))


class AdapterStore:
    """Adapter folders under a root that runs may share, named after run, process and a count."""

    _alive: set[str] = set()  # noqa: RUF012 - the stores of this process, shared on purpose

    def __init__(self, root: Path, run: Path) -> None:
        self.root = root.expanduser().resolve()
        origin = f"{socket.gethostname()}\n{run.expanduser().resolve()}"
        self._run = f"smopd-{hashlib.blake2b(origin.encode(), digest_size=6).hexdigest()}"
        self._prefix = f"{self._run}-{os.getpid()}-{time.time_ns():x}"
        self._alive.add(self._prefix)
        self._count = 0

    def write(self, version: int, save: SaveAdapter) -> Path:
        """A new folder, seen whole or not at all, whose name belongs to these weights and no others, ever."""
        self._count += 1
        final = self.root / f"{self._prefix}-{self._count}-v{version}"
        partial = final.with_name(f"{final.name}.partial")
        try:
            partial.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"{self.root}: cannot write adapters here: {error.strerror}") from None
        save(partial)
        return partial.rename(final)

    def drop(self, adapter: Path | None) -> None:
        if adapter:
            shutil.rmtree(adapter, ignore_errors=True)

    def abandoned(self, name: str) -> bool:
        """Whether the name is of an earlier process of this run that has ended."""
        match = re.match(rf"({self._run}-(\d+)-[^-]+)", name)
        if match is None or match[1] in self._alive:
            return False
        try:
            os.kill(int(match[2]), 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)  # else it is another user's
        return int(match[2]) == os.getpid()

    def sweep(self) -> None:
        """Delete the folders that killed processes of this run left."""
        for folder in self.root.glob(f"{self._run}-*"):
            if self.abandoned(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        for path in self.root.glob(f"{self._prefix}-*"):
            shutil.rmtree(path, ignore_errors=True)
        self._alive.discard(self._prefix)
        with contextlib.suppress(OSError):
            self.root.rmdir()
