"""The protocol every rollout engine keeps: token ids in, token ids out, one seed a reply. And which engine
`engine.kind = "auto"` is; a run folder keeps "auto": it may go on where that is another.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

from smopd.errors import UserError
from smopd.machine import engine_facts
from smopd.plugins import load_python
from smopd.settings import AUTO, EngineSettings, Settings

log_once = cache(logging.getLogger("smopd").info)
S = TypeVar("S", bound=Settings)
SaveAdapter = Callable[[Path], None]  # writes the student's adapter into a folder, in plain PEFT format


class Stop(StrEnum):
    END = "end"  # the model sampled an end-of-turn token, which is the reply's last token
    LENGTH = "length"  # the token limit cut it; it has no end token


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn. Temperature 0 is greedy."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Sampled:
    """What an engine sampled, an end token included. `logps`: temperature 1, untruncated, as in training."""

    ids: tuple[int, ...]
    stop: Stop
    logps: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Session:
    """The conversation a prompt belongs to. `more`: another turn will follow, so a cache may pay."""

    name: str
    more: bool = True


@dataclass(frozen=True)
class ReplyRequest:
    """One reply that a conversation asks for, of at most `limit` tokens."""

    prompt: list[int]
    seed: int
    limit: int
    session: Session


# A conversation as engines see it: asks for a reply, is sent it (a `Sampled`), asks for the next, and ends.
Dialogue = Generator[ReplyRequest, Any, None]
Prompts = Sequence[Sequence[int]]
Sessions = Sequence[Session] | None


@dataclass
class Usage:
    """What an engine put through its model so far, in tokens."""

    prompt: int = 0  # of all prompts
    reused: int = 0  # of them taken from an earlier turn
    prefilled: int = 0  # computed for prompts, padding included

    def add(self, prompt: int, reused: int, padding: int = 0) -> None:
        self.prompt += prompt
        self.reused += reused
        self.prefilled += prompt - reused + padding


@dataclass(frozen=True)
class Traits:
    """What an engine can do, known before one is made."""

    token_ids: bool = True  # gives the ids it sampled; without them it plays evaluations only
    in_place: bool = False  # samples with the module that is trained: its adapter can be merged, none is sent
    remote: bool = False  # runs elsewhere, on GPUs of its own
    graphs: bool = False  # replays CUDA graphs, so that issuing a layer's work costs next to nothing


TRAITS = {
    "hf": Traits(in_place=True),
    "vllm": Traits(graphs=True),
    "vllm-http": Traits(remote=True, graphs=True),
    "openai": Traits(token_ids=False, remote=True),
}


def traits_of(kind: str) -> Traits:
    """What the engine of that name can do, or the one in a Python file of the user's."""
    if kind == AUTO:  # for plans, as on a GPU: a run has its engine chosen before (`resolve_engine`)
        return TRAITS["vllm"]
    if kind in TRAITS:
        return TRAITS[kind]
    traits = getattr(load_python(Path(kind)), "TRAITS", None)
    if not isinstance(traits, Traits):
        raise UserError(f"engine.kind: {kind} declares no TRAITS, a smopd.rollout.engine.Traits")
    return traits


def refuse_unready(engine: EngineSettings) -> None:
    """A UserError for an engine whose package or servers are missing."""
    if engine.kind == "vllm" and find_spec("vllm") is None:
        raise UserError("engine.kind: vllm is not installed: pip install 'smopd[vllm]'")
    if engine.kind == "vllm-http" and not engine.servers:
        raise UserError('engine.servers: engine.kind = "vllm-http" needs the base URLs of vLLM servers')


def choose_engine(settings: Settings, cuda: bool, vllm: bool, processes: int) -> tuple[str, str]:
    """Engine and reason, from whether there is a CUDA device and vLLM, and how many processes train."""
    if not cuda:
        return "hf", "no CUDA device"
    if settings.model.quantize != "none":
        return "hf", "vLLM would sample from another model than the quantized one that is trained"
    if Path(settings.model.path).suffix == ".gguf":
        return "hf", "a GGUF file, whose weights transformers reads into plain numbers"
    if not vllm:
        return "hf", "vLLM is not installed: make gpu"
    if processes > 1:
        # vLLM in a process takes torch's default process group for its own, and that is the trainer's here.
        # Servers sample for all processes.
        return "hf", f"{processes} processes; engine.kind=vllm-http would sample with servers"
    return "vllm", "CUDA device and vLLM found"


def with_chosen_engine(settings: S, cuda: bool, vllm: bool, processes: int) -> S:
    if settings.engine.kind != AUTO:
        return settings
    kind, _ = choose_engine(settings, cuda, vllm, processes)
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"kind": kind})})


def resolve_engine(settings: S) -> S:
    """The settings with a concrete engine, for this machine; logs once which one and why."""
    if settings.engine.kind != AUTO:
        return settings
    log_once(engine_line(settings))
    return with_chosen_engine(settings, *engine_facts())


def engine_line(settings: Settings) -> str:
    """What `auto` is on this machine, and why; empty for a concrete engine."""
    if settings.engine.kind != AUTO:
        return ""
    return "engine.kind auto: {} ({})".format(*choose_engine(settings, *engine_facts()))


class Engine(Protocol):
    """Samples a reply to each prompt, which depends on the prompt and its seed alone, not on the batch."""

    traits: Traits
    usage: Usage  # stays empty where an engine cannot know

    def generate(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
    ) -> list[Sampled]:
        """Replies in the order of the prompts. Prompts of one session are turns of one conversation."""

    def converse(self, dialogues: Sequence[Dialogue], sampling: Sampling) -> None:
        """Play dialogues to their ends, none waiting for another one; without anything better, in rounds."""
        converse_in_rounds(self, dialogues, sampling)

    def refresh(self, version: int, save: SaveAdapter) -> None:
        """The policy is now `version`: no reply, and no cached prefix, comes from an older one any more."""
        return

    def sleep(self) -> None:
        """Nothing will be sampled until the next `refresh`: give memory back to training."""
        return

    def cancel(self) -> None:
        """Give up what other threads are sampling; they get an error."""
        return

    def close(self) -> None:
        """The run is over: end what the engine started."""
        return


def converse_in_rounds(engine: Engine, dialogues: Sequence[Dialogue], sampling: Sampling) -> None:
    """Turn by turn, side by side: a batch of replies for each token limit, the shortest limit first."""
    asked = [(dialogue, request) for dialogue in dialogues if (request := send(dialogue, None))]
    while asked:
        replies: dict[int, Sampled] = {}
        for limit in sorted({request.limit for _, request in asked}):
            now = [i for i, (_, request) in enumerate(asked) if request.limit == limit]
            requests = [asked[i][1] for i in now]
            prompts, seeds = [r.prompt for r in requests], [r.seed for r in requests]
            sessions = [r.session for r in requests]
            batch = engine.generate(prompts, seeds, replace(sampling, max_tokens=limit), sessions)
            replies.update(zip(now, batch, strict=True))
        asked = [(d, request) for i, (d, _) in enumerate(asked) if (request := send(d, replies[i]))]


def send(dialogue: Dialogue, reply: Sampled | None) -> ReplyRequest | None:
    """Hand a dialogue its reply (None to begin with); its next request, None where it has ended."""
    try:
        return dialogue.send(reply)
    except StopIteration:
        return None


def generate_by_conversing(
    engine: Engine, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
) -> list[Sampled]:
    """Replies in the order of the prompts, each a dialogue of one turn."""
    replies: dict[int, Sampled] = {}

    def dialogue(i: int, session: Session) -> Dialogue:
        replies[i] = yield ReplyRequest(list(prompts[i]), seeds[i], sampling.max_tokens, session)

    named = sessions or [Session("", False)] * len(prompts)
    engine.converse([dialogue(i, session) for i, session in enumerate(named)], sampling)
    return [replies[i] for i in range(len(prompts))]
