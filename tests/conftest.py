"""What several test files share: where the public data stand, a small random model, the pocket model."""

import fcntl
import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # as smopd itself does

import pytest
import torch
from hypothesis import settings
from support.apples import EXAMPLES, SMALL, last_number
from support.chat_stub import KEY, Stub
from support.http_stub import stubs_of
from support.optional_groups import PUBLIC_DATA, group_lines
from support.runs import COMMAND, train
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from smopd import Run
from smopd import train as train_from_python
from smopd.cli.main import main
from smopd.config import Config, load_config
from smopd.models import ChatModel, load_model
from smopd.verify import custom

torch.set_num_threads(1)
settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")
# Started in the background: the tests of Ctrl-C need it heard.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: one that comes last would leave the other process with nothing to do. Of the long
    ones, those that have no parameters are the longest.
    """

    def place(item: pytest.Item) -> int:
        if item.get_closest_marker("long"):
            return 2 if hasattr(item, "callspec") else 0
        return 1 if item.get_closest_marker("slow") else 3

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Thousands of items and parsed modules live to the end: collections need not look at them again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which optional groups ran."""
    for line in group_lines(terminalreporter.stats):
        terminalreporter.write_line(line)


SHARED = Path(__file__).parents[1].parent / "shared"


def shared(name: str) -> Path:
    """A file of the public data beside the repository; the test is skipped where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} {PUBLIC_DATA}")
    return path


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Verifiers of one's own that a test loaded are not there for the next."""
    yield
    custom.unload_verifiers()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Folders that tests only read, one for all processes of a session: the first test that asks for a folder
    makes it, the others wait for that.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def get(name: str, make: Callable[[Path], object]) -> Path:
        folder, ready = base / name, base / f"{name}.ready"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                ready.touch()
        return folder

    return get


@pytest.fixture(scope="session")
def qwen3() -> PreTrainedTokenizerBase:
    """The real Qwen3 tokenizer with its template."""
    return AutoTokenizer.from_pretrained(shared("tokenizers/qwen3"))


@pytest.fixture(scope="session")
def pocket_config() -> Config:
    """The pocket recipe, cut to a few seconds."""
    short = ["train.steps=4", "train.rollouts=4", "train.micro_batch=4", "train.checkpoint_every=2"]
    return load_config("pocket", short)


@pytest.fixture
def pocket(pocket_config: Config) -> ChatModel:
    """A fresh pocket model."""
    return load_model(pocket_config)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> Path:
    """A finished pocket run of two steps that changed what is said; to be copied, not to be written to."""
    few = ("train.rollouts=2", "train.micro_batch=2", "rollout.answer_tokens=16", "rollout.middle_tokens=12")
    short = ("eval.tokens=16", "eval.middle_tokens=8", "data.eval=pocket:eval:4", "optim.warmup_steps=0")
    return train(tmp_path_factory.mktemp("tiny") / "run", *few, *short, "train.steps=2", "optim.lr=3e-2")


@pytest.fixture
def run(tiny_run, tmp_path) -> Path:
    """A copy of it in the test's folder."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def chat_server(monkeypatch):
    """Starts chat endpoints that end with the test, and sets the key they are sent."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with stubs_of(Stub) as start:
        yield start


@pytest.fixture
def smopd(monkeypatch, capsys, tmp_path):
    """Run a command line in an empty folder; its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["smopd", *arguments])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = int(exit.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def smopd_process(tmp_path):
    """Starts a command line in a process of its own, in the test's folder. It does not outlive the test."""
    started = []

    def start(*arguments: str) -> subprocess.Popen:
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture(scope="session")
def apples(tmp_path_factory) -> Run:
    """Two steps on a list of dicts with a verifier function, in a folder that is not the current one."""
    folder = tmp_path_factory.mktemp("apples")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return train_from_python(
            "pocket", train=EXAMPLES, eval=EXAMPLES[:2], verifier=last_number, steps=2, out=folder / "run",
            settings=SMALL | {"train.save_tokens": True}, progress=False,
        )  # fmt: skip
    finally:
        os.chdir(before)
