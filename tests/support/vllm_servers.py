"""Real vLLM servers with the pocket model, on the CPU, in process groups of their own that can be killed."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.runs import free_port

from smopd.pocket import MODEL_DIR

# Tests that share an engine, servers or a run stay on one process; the two groups take about the same time.
ENGINE_GROUP, RUN_GROUP = pytest.mark.xdist_group("engine"), pytest.mark.xdist_group("run")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # compiling the sampler takes longer than all the tests, and a C++ compiler
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


def require_vllm() -> None:
    """Skip the module where vLLM is not installed: tests/vllm is found there, a package without a file."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)


class LiveServer:
    """One `vllm serve` process and its children."""

    def __init__(
        self,
        log: Path,
        rank: int,
        max_length: int,
        model: Path = MODEL_DIR,
        adapters: Mapping[str, Path] | None = None,
    ) -> None:
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", log
        options = [
            "--model", str(model), "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
            "--enforce-eager", "--max-model-len", str(max_length), "--max-num-seqs", "16",
            "--generation-config", "vllm", "--enable-lora", "--max-lora-rank", str(rank),
            "--enable-prompt-tokens-details",
        ]  # fmt: skip
        if adapters:
            options += ["--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items())]
        # The setting of the in-process engine would do no harm here and saves one of three processes.
        environment = os.environ | ENVIRONMENT | {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"
        }  # fmt: skip
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def wait(self, seconds: float = 240.0) -> None:
        """Until it answers."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).close()
                return
            except OSError:
                time.sleep(0.3)
        raise AssertionError(f"the server did not start:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """As `kill -9` of everything it consists of."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
