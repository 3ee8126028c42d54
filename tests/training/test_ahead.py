"""Conversations played ahead: how old they are is a function of the step; no stop or delay changes a byte."""

import hashlib
import random
import time
from pathlib import Path

import pytest
from support.http_stub import stubs_of
from support.kill_run import differences
from support.runs import complaint, metrics, rows, trainer_of
from support.vllm_stub import Stub, completion, error

from smopd.config import load_config
from smopd.models import load_renderer
from smopd.training.ahead import STATE
from smopd.training.check import check_training
from smopd.training.loop import Stopped

SMALL = ("train.steps=7", "train.rollouts=2", "train.micro_batch=2", "train.checkpoint_every=1",
         "train.keep_checkpoints=9", "rollout.middle_tokens=16", "rollout.answer_tokens=24",
         "optim.lr=1e-3", "optim.warmup_steps=0", "objective.rho=0.5")  # fmt: skip
AHEAD = (*SMALL, "rollout.ahead=3")


def run(path: Path, *settings: str, method: str | None = None, stop_after: int = 0) -> Path:
    def interrupt(row):
        if row["step"] == stop_after:
            raise KeyboardInterrupt

    trainer_of(path, *settings, method=method).train(interrupt)
    return path


def said(path: Path, step: int):
    """What a step's conversations were."""
    records = rows(path / f"rollouts/step-{step:06d}.jsonl")
    return [(row["id"], row.get("sharded"), row.get("full")) for row in records]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("ahead") / "run", *AHEAD)


def test_a_block_is_sampled_with_the_policy_of_its_first_step(finished, tmp_path):
    assert [row["rollout/stale"] for row in metrics(finished)] == [0, 1, 2, 0, 1, 2, 0]
    on_policy = run(tmp_path / "run", *SMALL)
    assert "rollout/stale" not in metrics(on_policy)[0]
    assert said(finished, 1) == said(on_policy, 1)
    # What the untrained policy says to the examples of steps 2 and 3; step 4 has learnt from all three.
    untrained = run(tmp_path / "untrained", *SMALL, "optim.lr=1e-30")
    assert [said(finished, step) for step in (2, 3)] == [said(untrained, step) for step in (2, 3)]
    assert said(finished, 4) != said(untrained, 4)
    gaps = {row["rollout/stale"]: row["rollout/logp_gap"] for row in metrics(finished)[:3]}
    assert gaps[0] < 1e-4 < min(gaps[1], gaps[2])


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_stopped_anywhere_in_a_block_and_started_again(finished, tmp_path, after):
    with pytest.raises(Stopped):
        run(tmp_path / "run", *AHEAD, stop_after=after)
    assert (tmp_path / "run/checkpoints" / f"step-{after:06d}" / STATE).exists() == (after % 3 != 0)
    run(tmp_path / "run", *AHEAD)
    assert differences(finished, tmp_path / "run") == []


@pytest.mark.parametrize("method", ["grpo", "tcod", "sft"])
def test_groups_curricula_and_recited_replies(tmp_path, method):
    """Every kind of play: a step's conversations are those of its own draw, at its own number of turns."""
    settings = [s for s in AHEAD if not s.startswith("objective.")] + ["train.steps=4", "optim.lr=1e-30"]
    ahead = run(tmp_path / "ahead", *settings, method=method)
    one = run(tmp_path / "one", *settings, "rollout.ahead=1", method=method)
    assert [said(ahead, step) for step in range(1, 5)] == [said(one, step) for step in range(1, 5)]


def test_a_guard_says_when_conversations_are_too_old(tmp_path):
    settings = [*SMALL, "rollout.ahead=6", "train.steps=6", "optim.lr=1e-2", "engine.gap_warning=0.01"]
    path = run(tmp_path / "run", *settings)
    causes = {row["cause"]: row["warning"] for row in rows(path / "warnings.jsonl")}
    assert "lower rollout.ahead or optim.lr" in causes["stale"]


def test_overlap_needs_an_engine_that_is_elsewhere():
    config = load_config("pocket", ["rollout.overlap=true"])
    assert "rollout.overlap: engine.kind=hf samples on the device that trains" in complaint(
        config, call=check_training
    )


class Delayed(Stub):
    """A server whose model says what weights, prompt and seed make of it, sooner or later."""

    def __init__(self, delays: int) -> None:
        self.random, self.ends = random.Random(delays), load_renderer(load_config("pocket")).end_ids[0]
        super().__init__()

    def answer(self, path, body):
        if path == "/v1/load_lora_adapter" and body:
            self.loads.append(body["lora_name"])
            weights = (Path(body["lora_path"]) / "adapter_model.safetensors").read_bytes()
            self.adapters[body["lora_name"]] = hashlib.blake2b(weights, digest_size=8).hexdigest()
            return b"Success"
        if path == "/tokenize":  # switched off, as it may be
            return 404, error("Not Found", 404)
        if path != "/v1/completions":
            return super().answer(path, body)
        time.sleep(self.random.random() / 50)
        if body["model"] not in self.adapters:
            return 404, error(f"The model `{body['model']}` does not exist.", 404)
        text = f"{self.adapters[body['model']]} {body['prompt']} {body['seed']}"
        digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
        return completion(body, [*(20 + byte for byte in digest[: body["max_tokens"] - 1]), self.ends])


@pytest.fixture
def serve():
    with stubs_of(Delayed) as start:
        yield start


def overlapping(path: Path, stub: Stub, *more: str, **options) -> Path:
    settings = ["engine.kind=vllm-http", f"engine.servers={stub.url}", "rollout.overlap=true", *more]
    return run(path, *SMALL, *settings, **options)


@pytest.mark.parametrize("ahead", [1, 2])
def test_delays_and_stops_change_no_byte(serve, tmp_path, ahead):
    """Conversations of a block are as old as the block says, whenever the servers answer."""
    more = [f"rollout.ahead={ahead}", "train.eval_every=3", "train.eval_limit=2", "eval.tokens=8"]
    first = overlapping(tmp_path / "first", serve(1), *more)
    stale = [row["rollout/stale"] for row in metrics(first)]
    assert stale == ([0, 1, 1, 1, 1, 1, 1] if ahead == 1 else [0, 1, 2, 3, 2, 3, 2])
    other = overlapping(tmp_path / "other", serve(2), *more)
    stopped = tmp_path / "stopped"
    for after in (1, 4):
        with pytest.raises(Stopped):
            overlapping(stopped, serve(after + 2), *more, stop_after=after)
    overlapping(stopped, serve(9), *more)
    for path in (other, stopped):
        assert [d for d in differences(first, path) if not d.startswith("config.toml")] == []
