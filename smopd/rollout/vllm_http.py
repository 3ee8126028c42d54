"""The engine of vLLM servers: token-id prompts over HTTP. Every request names the adapter of its version,
under a name that no other weights ever had, and an answer has to name it back.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from smopd.errors import UserError
from smopd.formatting import one_line
from smopd.models.loading import model_source
from smopd.rollout import engine as engines
from smopd.rollout.engine import Dialogue, Engine, ReplyRequest, Sampled, Sampling, SaveAdapter, Usage, send
from smopd.rollout.http import Body, Client, Rejected, Unreachable
from smopd.rollout.pool import Pool, Server
from smopd.rollout.vllm_shared import AdapterStore, ReplyReader, UnusableReply, max_rank
from smopd.settings import Settings

log = logging.getLogger("smopd")

PROBE_SECONDS = 10.0  # for the calls a sound server answers at once
# Another tokenizer will hardly cut this the same way.
PROBE_TEXT = "Ünïcode, 12345 words & <|im_end|>\n\ttabs.\n"


class _Served(Server):
    """A vLLM server, what it serves, and which of our adapters it knows."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.base = self.root = ""  # the served model's name, and where it stands
        self.loaded: set[str] = set()  # adapters of ours that it surely knows
        self.loads, self.loading = 0, threading.Lock()
        self.held: set[str] = set()  # adapters of ours that it may know


class VLLMServers(Engine):
    """Samples at the servers of `[engine]`. `folder` takes adapters where `engine.adapters` names none."""

    traits = engines.TRAITS["vllm-http"]

    def __init__(
        self, config: Settings, end_ids: Sequence[int], vocabulary: int, folder: Path,
        encode: Callable[[str], Sequence[int]] | None = None, rank: int = 0, pause: float = 1.0,
    ) -> None:  # fmt: skip
        settings = config.engine
        engines.refuse_unready(settings)
        self._settings, self._model = settings, model_source(config)
        self._cut = list(encode(PROBE_TEXT)) if encode else None  # its token ids
        self._rank = max_rank(rank) if rank else 0
        self._client, self._replies = Client(settings.api_key_env), ReplyReader(end_ids, vocabulary)
        self.usage = Usage()  # known where the servers tell: --enable-prompt-tokens-details
        self._adapter: Path | None = None
        self._pinned: list[Path | None] = []  # what calls under way sample from
        self._store = AdapterStore(Path(settings.adapters or folder / "served"), folder)
        self._pool = Pool(_Served, settings, pause, self._inspect)
        self._pool.each(self._inspect)
        if not self._pool.usable:
            raise self._pool.make_lost_error()
        self._store.sweep()
        for server in self._pool.servers:
            # By the last part of the path only: on another machine the same model may stand elsewhere.
            if server.root and PurePath(server.root).name != PurePath(self._model).name:
                message = "%s serves %s; it has to be the model.path of this run, %s"
                log.warning(message, server.url, one_line(server.root), self._model)

    generate = engines.generate_by_conversing

    def converse(self, dialogues: Sequence[Dialogue], sampling: Sampling) -> None:
        """A worker a conversation, from the adapter of the last `refresh`, or from the base before the first.
        That adapter stays with the servers until all are over, whatever is loaded meanwhile.
        """
        adapter, speaking = self._adapter, threading.Lock()  # renderers are not made for two threads

        def play(dialogue: Dialogue) -> None:
            with speaking:
                request = send(dialogue, None)
            while request:
                complete = partial(self._complete, adapter, request, sampling)
                reply, cached = self._pool.ask(complete, request.seed, request.session.name)
                with speaking:
                    if cached is not None:
                        self.usage.add(len(request.prompt), cached)
                    request = send(dialogue, reply)

        self._pinned.append(adapter)
        try:
            self._pool.run(play, dialogues)
        finally:
            self._pinned.remove(adapter)
            if adapter not in (self._adapter, *self._pinned):
                self._store.drop(adapter)

    def refresh(self, version: int, save: SaveAdapter) -> None:
        """Load the adapter everywhere, under a new name; at a server that is away with its next request."""
        if not self._rank:
            raise ValueError("made for a base model: VLLMServers(rank=0)")
        old, new = self._adapter, self._store.write(version, save)
        self._adapter = new
        self._pool.homes.clear()
        self._pool.each(lambda server: self._load(server, new))
        if old not in self._pinned:
            self._store.drop(old)

    def cancel(self) -> None:
        self._pool.cancel()

    def close(self) -> None:
        """Unload our adapters and delete them. The servers keep running."""
        used, self._adapter = self._adapter, None
        if used:
            self._pool.each(self._unload_unused)
        self._store.close()

    def _complete(
        self, adapter: Path | None, request: ReplyRequest, sampling: Sampling, server: _Served
    ) -> tuple[Sampled, int | None]:
        """A reply and its cached prompt tokens if known; the adapter is loaded first where it is missing."""
        fields = self._replies.fields(sampling, request)
        fields |= {"prompt": request.prompt, "return_token_ids": True}
        for _ in range(2):
            load = self._load(server, adapter) if adapter else 0
            model = adapter.name if adapter else server.base
            try:
                answer = self._call(server, "/v1/completions", fields | {"model": model})
            except Rejected as error:
                if error.status != 404 or not adapter:
                    raise self._refusal(server, error) from None
                # It was restarted. Another request may have noticed and loaded the adapter since.
                with server.loading:
                    if server.loads == load:
                        server.loaded.discard(adapter.name)
                continue
            return self._read(server, answer, model, request), _read_cached_tokens(answer, request)
        problem = "loads the adapter and then does not know it; is this one server process?"
        raise Unreachable(f"{server.url}: {problem} (--api-server-count 1)")

    def _read(self, server: _Served, answer: Any, model: str, request: ReplyRequest) -> Sampled:
        """The reply in an answer. What is wrong with it may be right at another server, or the next time."""
        try:
            if answer["model"] != model:
                name = self._client.shown(repr(answer["model"]), 80)
                raise UnusableReply(f"asked for {model!r}, it answers as {name}")
            if len(answer["choices"]) != 1:
                raise UnusableReply(f"asked for one reply, it gives {len(answer['choices'])}")
            (choice,) = answer["choices"]
            ids, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            echo, count = choice.get("prompt_token_ids"), (answer.get("usage") or {}).get("prompt_tokens")
            if echo not in (None, request.prompt) or count not in (None, len(request.prompt)):
                raise UnusableReply("the answer is to another prompt")
            return self._replies.read(ids, logps, choice["finish_reason"], request.limit)
        except (KeyError, TypeError, IndexError, AttributeError):
            missing = "no completion with token ids and log-probabilities"
            raise Unreachable(f"{server.url}: {missing}: {self._client.shown(answer, 200)}") from None
        except UnusableReply as error:
            raise Unreachable(f"{server.url}: {error}") from None

    def _load(self, server: _Served, adapter: Path) -> int:
        """Make the server know the adapter, then let go of the ones before. Returns its count of loads."""
        with server.loading:
            if adapter.name in server.loaded:
                return server.loads
            if server.unavailable_reason:  # the thread that held the lock before found out
                raise Unreachable(server.unavailable_reason)
            server.held.add(adapter.name)
            epoch = server.epoch
            where = {"lora_name": adapter.name, "lora_path": str(adapter)}
            try:
                self._call(server, "/v1/load_lora_adapter", where)
            except Rejected as error:
                # The name is of these weights and no others: if the server knows it, it has what it needs.
                if "already been loaded" not in error.message:
                    raise self._make_load_error(server, error.message) from None
            except Unreachable as error:
                # A 500 from a server that is well: vLLM's way of saying that the adapter does not fit.
                with suppress(Rejected, Unreachable):
                    if error.status == 500:
                        self._call(server, "/health", timeout=PROBE_SECONDS)
                        raise self._make_load_error(server, str(error)) from None
                # Before the lock is free: not every waiting thread has to find out.
                self._pool.mark_unavailable(server, epoch, error)
                raise
            server.loaded.add(adapter.name)
            server.loads += 1
            self._unload_unused(server)
            return server.loads

    def _unload_unused(self, server: _Served) -> None:
        used = {adapter.name for adapter in (self._adapter, *self._pinned) if adapter}
        for name in sorted(server.held - used):
            try:
                self._call(server, "/v1/unload_lora_adapter", {"lora_name": name}, PROBE_SECONDS)
            except (Rejected, Unreachable) as error:
                # Unknown to a restarted server; else it only costs the server memory.
                log.debug("%s: %s is not unloaded: %s", server.url, name, error)
            server.held.discard(name)
            server.loaded.discard(name)

    def _inspect(self, server: _Served) -> None:
        """Whether the server is there, and is what the run needs. UserError says what to mend."""
        try:
            self._call(server, "/health", timeout=PROBE_SECONDS)
            models = self._call(server, "/v1/models", timeout=PROBE_SECONDS)["data"]
            base = next(model for model in models if not model.get("parent"))
            server.base, server.root = str(base["id"]), str(base.get("root") or base["id"])
            known = {str(model["id"]) for model in models}
        except Rejected as error:
            raise self._refusal(server, error) from None
        except (KeyError, TypeError, AttributeError, StopIteration):
            raise UserError(f"{server.url}/v1/models: lists no model; is this a vLLM server?") from None
        server.held |= {name for name in known if self._store.abandoned(name)}
        server.loaded &= known  # it may have been restarted
        try:
            if self._rank:
                self._call(server, "/v1/load_lora_adapter", timeout=PROBE_SECONDS)
        except Rejected as error:
            if error.status == 404:
                needs = f"takes no adapters while it runs; start it with\n  {self._command()}"
                raise UserError(f"{server.url}: {needs}") from None
        body = {"model": server.base, "prompt": PROBE_TEXT, "add_special_tokens": False}
        with suppress(Rejected, KeyError, TypeError):  # switched off there, which proves nothing
            if self._cut and self._cut != self._call(server, "/tokenize", body, PROBE_SECONDS)["tokens"]:
                served = f"its model {one_line(server.base)} has another tokenizer"
                raise UserError(f"{server.url}: {served} than model.path = {self._model}")

    def _make_load_error(self, server: _Served, reason: str) -> UserError:
        read = f"read {self._store.root} under this very path (engine.adapters names another folder)"
        needs = f"every server has to {read}, and to be started with\n  {self._command()}"
        return UserError(f"{server.url}: does not load the adapter: {reason}\n{needs}")

    def _refusal(self, server: _Served, error: Rejected) -> UserError:
        hint, name = "", self._settings.api_key_env
        if error.status in (401, 403):
            sent = f"it was sent the key in {name}"
            sent = sent if self._client.key else f"no key was sent: {name} is not set"
            hint = f"\n{sent} (engine.api_key_env names the environment variable)"
        return UserError(f"{server.url}: refused: {error}{hint}")

    def _command(self) -> str:
        options = f"--enable-lora --max-lora-rank {self._rank} --generation-config vllm"
        return f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {self._model} {options}"

    def _call(self, server: Server, path: str, body: Body = None, timeout: float | None = None) -> Any:
        return self._client.request(server.url + path, body, timeout or self._settings.timeout)


def _read_cached_tokens(answer: Any, request: ReplyRequest) -> int | None:
    try:
        count = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    except (KeyError, TypeError):
        return None
    return count if type(count) is int and 0 <= count <= len(request.prompt) else None
