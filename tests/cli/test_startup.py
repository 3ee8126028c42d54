"""What a command imports before it knows that it needs it: each of these answers without torch."""

import json
import subprocess
import sys

import pytest
from support.fuzzed import make_run

from smopd.config import load_config
from smopd.config_io import to_toml

HEAVY = ("torch", "transformers", "peft", "accelerate", "matplotlib", "scipy.stats", "math_verify")
PROGRAM = f"""
import contextlib, io, json, sys
from smopd.cli.main import main

found = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["smopd", *words.split()]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = int(exit.code or 0)
    found.append([words, code, said.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]])
print(json.dumps(found))
"""
REFUSED = {
    "train pocket --set data.train=nope.jsonl": "nope.jsonl: no such data file",
    "train pocket --set model.path=./nosuch": "no such model folder",
    "train pocket --set model.path=no/such": "model.path: no/such: no such folder here, and the hub cannot",
    "train pocket --set model.adapter=empty": "empty: neither a PEFT adapter",
    "train pocket --out keep.txt/run": "keep.txt/run: cannot be written: ",
    "train pocket --set engine.kind=vllm-http": "needs the base URLs of vLLM servers",
    "eval pocket --engine vllm-http": "needs the base URLs of vLLM servers",
    "eval pocket --engine openai": "engine.servers: no endpoint is named",
    "train pocket --method entorpy": "did you mean 'entropy'?",
    "train pocket --set train.step=3": "did you mean 'train.steps'?",
    "train pocket --out empty": "not a run folder",
    "train nosuch": "no such recipe or file",
    "train pocket --set train.eval_every=1 --set data.eval=nope.jsonl": "nope.jsonl: no such data file",
    "quickstart --set data.train=nope.jsonl": "nope.jsonl: no such data file",
    "quickstart --set data.eval=nope.jsonl": "nope.jsonl: no such data file",
    "quickstart --world everyday --set data.eval=nope.jsonl": "nope.jsonl: no such data file",
    "eval pocket --data nope.jsonl": "nope.jsonl: no such data file",
    "eval pocket --adapter empty": "empty: neither a PEFT adapter",
    "eval no/such": "model.path: no/such",
    "eval runs/runn": "runs/runn: no such folder; did you mean 'run'?",
    "chat runs/runn": "runs/runn: no such folder; did you mean 'run'?",
    "eval compare empty empty": "empty",
    "eval inspect empty x.eval": "empty: is no evaluation",
    "chat ./nosuch": "no such model folder",
    "export empty out": "empty: neither a PEFT adapter",
    "watch nosuch": "nosuch: not a run folder",
    "view nosuch": "nosuch: no such folder",
    "report empty": "empty: not a run folder",
    "plan nosuch": "no such recipe or file",
    "plan pocket --gpu h1000": "did you mean",
    "methods show entrpy": "did you mean 'entropy'?",
    "study nosuch": "no such study or file",
    "study calibration empty": "not a run folder",
    "study gradients empty": "not a run folder",
    "data check nope.jsonl": "nope.jsonl: no such data file",
    "bench head --reps 3": "python -m benchmarks",
    "doctor --size tiny": "--size: works with --speed only",
    "base build nosuch": "unknown",
}
DONE = {
    "plan pocket": "memory", "plan qwen3-1.7b qwen3-8b": "Qwen3-8B", "methods show maigo": "tokens sampled",
    "view run --out pages": "index.html", "watch run --once": "loss", "report --help": "RUN|STUDY",
    "train --help": "--dry-run",
}  # fmt: skip


@pytest.mark.parametrize(("asked", "expected"), [(REFUSED, 2), (DONE, 0)], ids=["refused", "done"])
def test_torch_waits_until_it_is_needed(tmp_path, asked, expected):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "empty"):
        (folder / "keep.txt").write_text("mine")
    (tmp_path / "runs").mkdir()
    for run in ("run", "runs/run"):
        make_run(tmp_path / run, to_toml(load_config("pocket")))
    call = [sys.executable, "-c", PROGRAM, json.dumps([*asked])]
    ran = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for command_line, code, output, imported in json.loads(ran.stdout):
        assert (code, imported) == (expected, []), (command_line, output)
        assert asked[command_line] in output, (command_line, output)
        assert "Traceback" not in output
