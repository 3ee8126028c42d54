"""Checkpoints and exported adapters under vLLM's server with --enable-lora, as they are, on the CPU."""

import json
import urllib.request

import pytest
from support.contexts import full_context
from support.vllm_servers import LiveServer, require_vllm

from smopd.config import load_config
from smopd.data import load_examples
from smopd.models import load_model
from smopd.models.adapter_files import load_adapter
from smopd.pocket import MODEL_DIR
from smopd.rollout.engine import Sampling
from smopd.rollout.hf import HFEngine
from smopd.runs.export import export

pytestmark = pytest.mark.vllm
require_vllm()

COUNT, TOKENS = 6, 24


def asked(url: str, model: str, prompts: list[list[int]]) -> list[str]:
    """The greedy replies of a served model."""
    body = {"model": model, "prompt": prompts, "max_tokens": TOKENS, "temperature": 0.0}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        choices = json.load(answer)["choices"]
    return [choice["text"] for choice in sorted(choices, key=lambda choice: choice["index"])]


def test_a_checkpoint_and_an_exported_adapter_are_served_as_they_are(tiny_run, tmp_path):
    checkpoint, exported = tiny_run / "checkpoints" / "step-000002", tmp_path / "adapter"
    export(tiny_run, exported, adapter_only=True)
    adapters = {"checkpoint": checkpoint, "exported": exported}
    server = LiveServer(tmp_path / "server.log", 16, 512, adapters=adapters)
    try:
        chat = load_model(load_config(tiny_run / "config.toml"))
        prompts = [full_context(chat.renderer, example) for example in load_examples("pocket:eval", COUNT)]

        def greedy(model) -> list[str]:
            engine = HFEngine(model, chat.renderer.end_ids)
            drawn = engine.generate(prompts, [0] * COUNT, Sampling(0.0, TOKENS))
            return [chat.renderer.decode(reply.ids) for reply in drawn]

        before = greedy(chat.model)
        after = greedy(load_adapter(chat.model, checkpoint))
        assert before != after
        server.wait()
        assert asked(server.url, "checkpoint", prompts) == after
        assert asked(server.url, "exported", prompts) == after
        assert asked(server.url, str(MODEL_DIR), prompts) == before
    finally:
        server.kill()
