"""Servers that answer like vLLM's endpoints and misbehave on request, and engines connected to them."""

import hashlib
import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.http_stub import HANG_UP, HttpStub, stubs_of

from smopd.config import Config
from smopd.rollout.engine import Sampling
from smopd.rollout.vllm_http import VLLMServers
from smopd.settings import EngineSettings

END, VOCABULARY = 1, 300
SAMPLING = Sampling(temperature=0.7, max_tokens=8, top_p=0.9, top_k=20)


def sampled(weights: str, prompt: list[int], seed: int) -> list[int]:
    """What the stub's model says: it depends on the weights, the prompt and the seed, and on nothing else."""
    digest = hashlib.blake2b(f"{weights} {prompt} {seed}".encode(), digest_size=4).digest()
    return [10 + byte for byte in digest] + [END]


class Stub(HttpStub):
    """One server. `fault(path, body)` may return (status, body), a body, or "die"; None: as usual."""

    def __init__(self, fault=lambda path, body: None, delay=0.0, updating=True):
        self.fault, self.delay, self.updating = fault, delay, updating
        self.adapters, self.asked, self.loads, self.unloads, self.headers = {}, [], [], [], []
        super().__init__()

    def respond(self, path, body, headers):
        """The fault's answer, or the usual one."""
        self.headers.append(dict(headers))
        answer = self.fault(path, body)
        if answer == "die":
            threading.Thread(target=self.stop).start()
            return HANG_UP
        return self.answer(path, body) if answer is None else answer

    def restart(self):
        """A new process at the same place: no adapter is loaded."""
        self.stop()
        self.adapters.clear()
        self.start()

    def answer(self, path, body):
        """As vLLM 0.32 answers."""
        if path == "/health":
            return b""
        if path == "/v1/models":
            cards = [{"id": "base", "root": "/models/model", "parent": None}]
            return {"data": cards + [{"id": name, "root": "x", "parent": "base"} for name in self.adapters]}
        if path == "/tokenize":
            return {"tokens": list(body["prompt"].encode())}
        if path == "/v1/load_lora_adapter" and not self.updating:
            return 404, {"detail": "Not Found"}
        if path == "/v1/load_lora_adapter" and body is None:
            return 405, {"detail": "Method Not Allowed"}
        if path == "/v1/load_lora_adapter":
            self.loads.append(body["lora_name"])
            if body["lora_name"] in self.adapters:
                return 400, error(
                    f"The lora adapter '{body['lora_name']}' has already been loaded. If you want ...", 400
                )
            try:
                self.adapters[body["lora_name"]] = (Path(body["lora_path"]) / "weights").read_text()
            except OSError:
                return 404, error(
                    f"The lora adapter '{body['lora_name']}' was not found at '{body['lora_path']}'", 404
                )
            return b"Success: LoRA adapter added successfully."
        if path == "/v1/unload_lora_adapter":
            self.unloads.append(body["lora_name"])
            if self.adapters.pop(body["lora_name"], None) is None:
                return 404, error("cannot be found", 404)
            return b"Success: LoRA adapter removed successfully."
        self.asked.append(body)
        time.sleep(self.delay)
        model = body["model"]
        if model != "base" and model not in self.adapters:
            return 404, error(f"The model `{model}` does not exist.", 404)
        ids = sampled(self.adapters.get(model, "base"), body["prompt"], body["seed"])
        return completion(
            body, ids[: body["max_tokens"]], "stop" if body["max_tokens"] >= len(ids) else "length"
        )


def error(message, code):
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": code}}


def completion(body, ids, finish="stop", **changes):
    choice = {
        "index": 0, "text": "", "token_ids": ids, "prompt_token_ids": body["prompt"], "finish_reason": finish,
        "logprobs": {"token_logprobs": [-float(i) for i in ids]},
    }  # fmt: skip
    usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": {"cached_tokens": 1}}
    return {"model": body["model"], "choices": [choice | changes], "usage": usage}


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Makes engines that are closed with the test."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ExitStack() as stack:

        def one(*stubs, folder=tmp_path / "run", encode=None, lora=True, **settings):
            urls = [stub if isinstance(stub, str) else stub.url for stub in stubs]
            settings = {"kind": "vllm-http", "servers": urls, "retries": 2, "timeout": 5.0} | settings
            config, rank = Config(engine=EngineSettings(**settings)), 64 if lora else 0
            engine = VLLMServers(config, [END, 2], VOCABULARY, folder, encode, rank, pause=0.02)
            stack.callback(engine.close)
            return engine

        yield one


@pytest.fixture
def start():
    """Starts stubs that end with the test."""
    with stubs_of(Stub) as one:
        yield one


def saves(weights: str):
    """A save function for an adapter that the stub can tell from others."""

    def save(folder: Path) -> None:
        (folder / "weights").write_text(weights)
        (folder / "adapter_config.json").write_text(json.dumps({"r": 8}))

    return save


def prompts(count: int) -> list[list[int]]:
    return [[i, 100 + i] for i in range(count)]


def play(engine, count=12, sampling=SAMPLING, sessions=None):
    """Generate; the ids of the replies and what they should be for given weights."""
    seeds = [1000 + i for i in range(count)]
    replies = engine.generate(prompts(count), seeds, sampling, sessions)
    return [list(r.ids) for r in replies], lambda w: [
        sampled(w, p, s) for p, s in zip(prompts(count), seeds, strict=True)
    ]


def once(answer, path="/v1/completions"):
    """A fault that happens at the first request of a path and never again."""
    left = [answer]
    return lambda at, body: left.pop() if at == path and body is not None and left else None
