"""A thousand damaged files and settings over all verbs: exit code 0 or 2, no traceback, no run without end.

The seed is fixed. An audit that finds differences ends with 1, as its help says. Nothing is trained: verbs
that would compute meet a damaged file, a dry run or a base that is not there.
"""

import shutil
import signal
from pathlib import Path
from random import Random

import pytest
from support.fuzzed import TEXTS, make_seeds, mutated, setting

from smopd.config import Config
from smopd.config_io import describe_fields
from smopd.methods import METHODS

CHUNK, CHUNKS, USUAL = 50, 20, 4  # 1,000 cases; the first 200 in every run of the suite, all with -m long
SECONDS = 30  # of CPU for one command
KEYS = [key for key, *_ in describe_fields(Config)]
# The file that is damaged, and the command that meets it; `own.py` holds a task that nobody uses.
FILES = [
    ("data.jsonl", "data check data.jsonl --verifiers own.py"),
    ("data.jsonl", "data check data.jsonl --against data.json --json"),
    ("data.jsonl", "data stats data.jsonl --plot out.html"),
    ("data.json", "data stats data.json --json"),
    ("data.json", "data check data.json"),
    ("pairs.jsonl", "data shard pairs.jsonl out.jsonl --task math"),
    ("pairs.jsonl", "data shard pairs.jsonl out.jsonl --task units --verifiers own.py --json"),
    ("raw/gsm8k_train.jsonl", "data build raw out.jsonl --domains math --eval data.jsonl"),
    ("own.py", "data check data.jsonl --verifiers own.py"),
    ("own.py", "train pocket --set data.verifiers=[\"own.py\"] --dry-run"),
    ("recipe.toml", "train recipe.toml --dry-run"),
    ("recipe.toml", "plan recipe.toml --gpu h100"),
    ("study.toml", "study study.toml --dry-run --json"),
    ("results.json", "report results.json --out out"),
    ("run/config.toml", "report run"),
    ("run/metrics.jsonl", "report run --json"),
    ("run/timings.jsonl", "report run"),
    ("run/eval/base/summary.json", "report run"),
    ("run/eval/trained/conversations.jsonl", "report run"),
    ("run/eval/trained/conversations.jsonl", "report run --audit"),
    ("run/eval/base/summary.json", "eval compare run/eval/base run/eval/trained"),
    ("run/eval/base/conversations.jsonl", "eval compare run/eval/base run/eval/trained --json"),
    ("run/eval/base/evaluation.json", "eval compare run/eval/base run/eval/trained"),
    ("run/eval/base/evaluation.json", "eval pocket --limit 1 --out run/eval/base"),
    ("run/tokens/step-000001.safetensors", "study calibration run"),
    ("run/config.toml", "study gradients run --examples 1"),
    ("run/config.toml", "eval run --adapter adapter --limit 1"),
    ("adapter/adapter_config.json", "export adapter out"),
    ("adapter/adapter_model.safetensors", "export adapter out --dtype bfloat16"),
    ("adapter/adapter_config.json", "eval ./nothere --adapter adapter --limit 1"),
    ("data.jsonl", "eval ./nothere --data data.jsonl --out out"),
]  # fmt: skip
NUMBERS = ["-1", "0", "1", "x", "nan", "inf", "1e9", str(10**30), ""]
OPTIONS = [
    "study power --items {} --seeds {}", "study power --seed-sd {} --discordance {}", "plan pocket --gpus {}",
    "plan pocket --middle {} --answer {}", "plan pocket --mfu {}", "data pocket out.jsonl --count {}x",
    "bench {}", "doctor --speed --size x{} --only {}", "doctor --size x{}", "methods show {}", "methods {}",
    "eval ./nothere --views {} --limit 1",
    "eval ./nothere --limit {}", "data check {}", "data stats pocket:eval:{}", "report {}", "export {} out",
    "eval compare {} {}", "study {}", "train {} --dry-run", "plan {}", "data shard {} out.jsonl --task {}",
    "data build {} out.jsonl --domains {}", "study calibration {}", "eval ./nothere --engine {}", "doctor {}",
]  # fmt: skip


def command(draw: Random) -> list[str]:
    """The words of one command line; a file that it reads has been damaged."""
    kind = draw.random()
    if kind < 0.6:
        file, line = draw.choice(FILES)
        mutated(draw, Path(file))
        return line.split()
    if kind < 0.85:
        verb = draw.choice(["quickstart --dry-run", "train pocket --dry-run", "train qwen3-1.7b --dry-run",
                            "study study.toml --dry-run", "eval ./nothere", "plan pocket"])  # fmt: skip
        args = verb.split()
        if draw.random() < 0.3 and args[0] in ("quickstart", "train"):
            args += ["--method", draw.choice([*METHODS, *TEXTS])]
        for _ in range(draw.choice((1, 1, 2, 4))):
            args += ["--set", setting(draw, KEYS)]
        return args
    values = draw.choice([NUMBERS, [text for text in TEXTS if text.strip() and "\0" not in text]])
    return [word.replace("{}", draw.choice(values)) for word in draw.choice(OPTIONS).split()]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    make_seeds(folder)
    return folder


def chunks() -> list:
    return [pytest.param(n, marks=[pytest.mark.long] if n >= USUAL else []) for n in range(CHUNKS)]


@pytest.mark.parametrize("chunk", chunks())
def test_damaged_files_and_settings_end_with_a_message(smopd, seeds, tmp_path, monkeypatch, chunk):
    def too_long(*_):
        raise AssertionError(f"more than {SECONDS} s of CPU")

    before = signal.signal(signal.SIGPROF, too_long)
    try:
        for case in range(CHUNK * chunk, CHUNK * chunk + CHUNK):
            place = tmp_path / str(case)
            shutil.copytree(seeds, place)
            monkeypatch.chdir(place)
            args = command(Random(f"smopd fuzz {case}"))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                code, _, err = smopd(*args)
            except BaseException as error:
                raise AssertionError(f"case {case}: smopd {args}: {error!r}") from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            assert code in ((0, 1, 2) if "--audit" in args else (0, 2)), f"case {case}: {args}: {err}"
            assert "Traceback" not in err, f"case {case}: {args}: {err}"
            assert code == 0 or err.strip(), f"case {case}: {args}: ended with {code} and no word"
            shutil.rmtree(place)
    finally:
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("command_line", [
    "data check data.jsonl --verifiers own.py --against data.json", "data stats data.json --plot out.html",
    "data shard pairs.jsonl out.jsonl --task math", "data build raw built.jsonl --domains math",
    "train recipe.toml --dry-run", "study study.toml --dry-run", "report results.json --out out",
    "report run", "eval compare run/eval/base run/eval/trained", "study calibration run",
])  # fmt: skip
def test_the_same_files_are_taken_where_they_are_sound(smopd, seeds, tmp_path, monkeypatch, command_line):
    """Otherwise the damaged ones might never be looked at."""
    shutil.copytree(seeds, tmp_path / "sound")
    monkeypatch.chdir(tmp_path / "sound")
    code, _, err = smopd(*command_line.split())
    assert code == 0, err
