"""Whole runs through real vLLM on the CPU, on the command line: both engines, a server killed in mid-step,
all of them gone.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import shared
from support.real_models import smollm2_folder
from support.runs import COMMAND, checkpoint, metrics, replies, rows, set_words
from support.vllm_servers import ENGINE_GROUP, ENVIRONMENT, RUN_GROUP, LiveServer, require_vllm

from smopd.files import read_jsonl

pytestmark = pytest.mark.vllm
require_vllm()

RANK, LENGTH, STEPS, ROLLOUTS = 8, 512, 5, 6
SETTINGS = {
    "train.steps": STEPS, "train.rollouts": ROLLOUTS, "train.micro_batch": ROLLOUTS,
    "train.checkpoint_every": 1, "lora.r": RANK, "engine.max_length": LENGTH, "engine.memory": 0.1,
    "engine.retries": 2, "rollout.merge": "false", "optim.lr": 2e-3,
}  # fmt: skip


def command(verb: str, *arguments: str, **settings: object) -> list[str]:
    return [*COMMAND, verb, *arguments, *set_words(f"{key}={value}" for key, value in settings.items())]


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)


def train(out: Path, kind: str, urls: list[str] | None = None, **more: object) -> list[str]:
    where = {"engine.kind": kind} | ({"engine.servers": json.dumps(urls)} if urls else {})
    return command("train", "pocket", "--out", str(out), **(SETTINGS | where | more))


def rollout_ids(out: Path) -> list[list[str]]:
    files = sorted((out / "rollouts").glob("step-*.jsonl"))
    return [[row["id"] for row in rows(file)] for file in files]


def sound(out: Path, steps: int = STEPS) -> None:
    """Every step once, on-policy, with its weights moving."""
    metric_rows = metrics(out)
    assert [row["step"] for row in metric_rows] == list(range(1, steps + 1))
    for row in metric_rows:
        assert row["rollout/logp_gap"] < 1e-3
        assert row["grad_norm"] > 0
        assert row["skipped"] == 0


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The same run with the hf engine: which examples every step draws does not depend on the engine."""
    out = tmp_path_factory.mktemp("plain") / "run"
    ran = run(train(out, "hf"))
    assert ran.returncode == 0, ran.stderr[-3000:]
    return out


def start(folder: Path, count: int, **more) -> list[LiveServer]:
    servers = [LiveServer(folder / f"{time.monotonic_ns()}.log", RANK, LENGTH, **more) for _ in range(count)]
    for server in servers:
        server.wait()
    return servers


@RUN_GROUP
def test_pocket_trains_in_process(tmp_path, plain):
    ran = run([*train(tmp_path / "run", "vllm"), "--json"])
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["steps"] == STEPS  # and nothing else on standard output
    sound(tmp_path / "run")
    assert rollout_ids(tmp_path / "run") == rollout_ids(plain)
    # The evaluation of a run with its adapter, by either engine.
    trained = [str(tmp_path / "run"), "--engine"]
    assert evaluated(tmp_path / "vllm", *trained, "vllm") == evaluated(tmp_path / "hf", *trained, "hf")


@contextmanager
def killed_at_step(server: LiveServer, out: Path, step: int) -> Iterator[None]:
    """Kill -9 while the step after `step` is being rolled out, or at the end of the run."""

    def work() -> None:
        while len(read_jsonl(out / "metrics.jsonl")) < step and not ended.wait(0.02):
            pass
        ended.wait(0.2)
        server.kill()

    ended = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@RUN_GROUP
def test_servers_die_one_by_one_and_the_run_goes_on(tmp_path, plain):
    first, second = start(tmp_path, 2)
    out = tmp_path / "run"
    try:
        # slow enough to be hit in mid-step: one request at a time at each server
        slow = {"engine.concurrency": 1, "train.steps": STEPS}
        with killed_at_step(first, out, 1):
            ran = run(train(out, "vllm-http", [first.url, second.url], **slow))
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert f"set aside: {first.url}" in ran.stderr
        sound(out)
        assert rollout_ids(out) == rollout_ids(plain)  # none lost, none doubled
        assert not (out / "adapters" / "served").exists()

        gone = tmp_path / "gone"
        with killed_at_step(second, gone, 2):
            ran = run(train(gone, "vllm-http", [first.url, second.url], **slow, **{"engine.retries": 1}))
        assert ran.returncode == 3, ran.stderr[-3000:]
        assert "Traceback" not in ran.stderr
        done = len(metrics(gone))
        assert 2 <= done < STEPS
        assert f"stopped after step {done}; everything is saved" in ran.stderr
        (third,) = start(tmp_path, 1)  # on another port: where servers are is no part of the run
        try:
            ran = run(train(gone, "vllm-http", [third.url]))
            assert ran.returncode == 0, ran.stderr[-3000:]
            assert f"after step {done}" in ran.stderr
            sound(gone)
            assert rollout_ids(gone) == rollout_ids(plain)
            _evaluated_as_an_endpoint(third, tmp_path)
        finally:
            third.kill()
    finally:
        first.kill()
        second.kill()


def _evaluated_as_an_endpoint(server: LiveServer, folder: Path) -> None:
    """`smopd eval --engine openai` against our own server says what the hf engine says."""
    endpoint = ["any", "--served-model", "", "--engine", "openai", "--url", server.url]
    assert evaluated(folder / "openai", *endpoint) == evaluated(folder / "hf", "pocket")


def evaluated(out: Path, *arguments: str) -> dict[tuple[str, str], list[str]]:
    """What an evaluation of eight examples said in both views."""
    limits = {"eval.tokens": 60, "eval.middle_tokens": 60}
    ran = run(command("eval", *arguments, "--data", "pocket:eval:8", "--out", str(out), "--json", **limits))
    assert ran.returncode == 0, ran.stderr[-3000:]
    sampled_replies = replies(out)
    assert len(sampled_replies) == 16
    return sampled_replies


@ENGINE_GROUP
@pytest.mark.smollm2
def test_smollm2_trains_through_both_engines(tmp_path):
    model = smollm2_folder(tmp_path / "smollm2")
    data = shared("data/lic/math.json")
    settings = SETTINGS | {
        "model.path": model, "data.train": data, "data.train_limit": 20, "train.rollouts": 2,
        "train.micro_batch": 1, "rollout.middle_tokens": 8, "rollout.answer_tokens": 12,
        "engine.max_length": 1024, "optim.lr": 1e-4, "train.steps": 2,
    }  # fmt: skip
    server = LiveServer(tmp_path / "server.log", RANK, 1024, model)
    try:
        for kind in ("vllm", "vllm-http"):
            out = tmp_path / kind
            where = {"engine.kind": kind}
            if kind == "vllm-http":
                server.wait()
                where["engine.servers"] = json.dumps([server.url])
            ran = run(command("train", "pocket", "--out", str(out), **settings, **where))
            assert ran.returncode == 0, ran.stderr[-3000:]
            sound(out, 2)
    finally:
        server.kill()
    moments = checkpoint(tmp_path / "vllm", 2, "optimizer")
    assert any(tensor.abs().max() > 0 for tensor in moments.values())
