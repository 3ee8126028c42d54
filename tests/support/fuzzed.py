"""Files of every kind that a verb reads, sound ones, and what may become of them: bytes flipped, cut or
encoded anew, fields dropped, doubled or of another kind, hostile texts and numbers.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from support.synthetic_study import study

from smopd.config import load_config
from smopd.config_io import to_toml
from smopd.data import Example, load_examples
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import summarise
from smopd.evaluation.store import EvaluationFolder
from smopd.files import write_jsonl
from smopd.runs import tokens
from smopd.study.results import save_results
from smopd.viewer.results import report_run

TEXTS = ["", " ", "\0", "\ud800", "\x1b[2J", "a\nb\r\nc", "\u202e", "é", "你好", "A" * 3000, "../../x", "/",
         "1e999", "'" * 300, "[[" * 200, "{functions}", "nan", "full", "-1", "\ufeff"]  # fmt: skip
VALUES = [None, True, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), [], {},
          [[]], {"": None}, ["a", 1], *TEXTS]  # fmt: skip
DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]
DATA = "pocket:eval:4"
PAIR = {"question": "Tom has 3 apples. Ana gives him 4. How many does he have?", "answer": 7}
VERIFIER = """from smopd.verify import verifier

@verifier("units", answer="value")
def units(answer, reply):
    return str(answer["value"]) in reply
"""
STUDY = """name = "mini"
recipe = "pocket"
seeds = [1]

[set]
"train.steps" = 1

[[arms]]
name = "baseline"
method = "baseline"

[[arms]]
name = "entropy"
method = "entropy"
"""


def make_seeds(folder: Path) -> None:
    """One sound file, or folder, of every kind."""
    examples = load_examples(DATA)
    write_jsonl(folder / "data.jsonl", [e.to_json() for e in examples])
    (folder / "data.json").write_text(json.dumps([e.to_json() for e in examples]))
    write_jsonl(folder / "pairs.jsonl", [PAIR, PAIR | {"id": "b", "answer": "#### 7"}])
    (folder / "own.py").write_text(VERIFIER)
    (folder / "study.toml").write_text(STUDY)
    config = load_config("pocket", [f"data.eval={DATA}", "train.steps=3"])
    (folder / "recipe.toml").write_text(to_toml(config))
    save_results(folder / "results.json", study(["one"], seeds=(1,), items=3, base=True))
    make_run(folder / "run", to_toml(config))
    report_run(folder / "run")
    make_adapter(folder / "adapter")
    (folder / "raw").mkdir()
    write_jsonl(folder / "raw" / "gsm8k_train.jsonl", [PAIR | {"answer": "#### 7"}])


def make_run(run: Path, config: str) -> None:
    """A run folder as training and evaluation leave it, without its checkpoints."""
    rows = [
        {"step": s, "loss": 1 / s, "loss/middle": 0.1, "outcome": 0.5, "grad_norm": 1.0} for s in (1, 2, 3)
    ]
    run.mkdir()
    (run / "config.toml").write_text(config)
    write_jsonl(run / "metrics.jsonl", rows)
    write_jsonl(run / "timings.jsonl", [{"step": s, "seconds/step": 1.0} for s in (1, 2, 3)])
    for name in ("base", "trained"):
        played = [(example, view) for view in ("full", "sharded") for example in load_examples(DATA)]
        outcomes = [outcome(example, view, number % 2 == 0) for number, (example, view) in enumerate(played)]
        identity = {"examples": "x", "adapter": None, "model": "pocket", "data": DATA}
        with EvaluationFolder(run / "eval" / name, identity) as evaluation:
            evaluation.add(outcomes)
            evaluation.finish(outcomes, summarise(outcomes))
    zeros = {name: torch.zeros(6, dtype=getattr(torch, kind)) for name, kind in tokens.TYPES.items()}
    drawn = torch.from_numpy(np.random.default_rng(0).random(6).astype("float32"))
    zeros |= {"entropy": drawn, "student_logp": -drawn, "teacher_logp": -2 * drawn}
    tokens.write(
        run / "tokens" / "step-000001.safetensors", tokens.Columns(zeros, ["a"], ["middle"], ["middle"])
    )


def outcome(e: Example, view: Any, correct: bool) -> Outcome:
    """A conversation of one turn."""
    turns = [{"user": "How many?", "reply": "7", "stop": "end", "tokens": 3}]
    judged = (correct, correct, "7", "ok", "")
    return Outcome(e.id, view, 0, e.task, len(e.shards), turns, *judged, e.system, e.full, dict(e.answer))


def make_adapter(folder: Path) -> None:
    """A LoRA adapter whose base is not there."""
    folder.mkdir()
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{layer}.lora_A.weight": torch.ones(2, 4), f"{layer}.lora_B.weight": torch.ones(4, 2)}
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": "./nothere"})
    )


def mutated(draw: Random, path: Path) -> None:
    """Damage a file in one to three ways."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        structural = _MUTATE.get(path.suffix)
        if structural and draw.random() < 0.6:
            structural(draw, path)
        else:
            path.write_bytes(draw.choice(_BYTES)(draw, path.read_bytes()))


def value(draw: Random) -> Any:
    """Anything that JSON can hold, and some that it cannot."""
    return copy.deepcopy(draw.choice([*VALUES, DEEP]))


def setting(draw: Random, keys: list[str]) -> str:
    """A --set of a real key, mostly, to a value that may not fit."""
    key = (
        draw.choice(keys)
        if draw.random() < 0.9
        else draw.choice(["", "a.b.c", "train", "optim.", "\ud800", "x" * 500])
    )
    some = draw.choice(
        [*map(str, VALUES), "[1, 2]", "{a = 1}", '"x"', "9" * 5000, "[" * 500, "1e400", "pocket"]
    )
    return f"{key}={some}"


def _change(draw: Random, tree: Any) -> Any:
    """A JSON value with one of its parts dropped, doubled, renamed or of another kind."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(tree)
    if not places or draw.random() < 0.03:
        return value(draw)
    node, key = draw.choice(places)
    kind = draw.choice(("drop", "value", "value", "rename", "double", "wrap"))
    if kind == "drop":
        del node[key]
    elif kind == "rename" and isinstance(node, dict):
        node[draw.choice(TEXTS)] = node.pop(key)
    elif kind == "double" and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    else:
        node[key] = [node[key]] if kind == "wrap" else value(draw)
    return tree


def _json(draw: Random, path: Path) -> None:
    try:
        tree = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    path.write_text(json.dumps(_change(draw, tree)), encoding="utf-8", errors="surrogatepass")


def _jsonl(draw: Random, path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    k = draw.randrange(len(lines))
    try:
        lines[k] = json.dumps(_change(draw, json.loads(lines[k]))).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        lines[k] = draw.choice([b"", b"{", b"null", b"[]", b'"x"', b"NaN", b"{}", b"\xff"])
    if draw.random() < 0.2:
        lines.insert(k, lines[k])
    path.write_bytes(b"\n".join(lines))


def _lines(draw: Random, path: Path) -> None:
    """A text whose lines are dropped, doubled, swapped or given another value."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    k = draw.randrange(len(lines))
    kind = draw.choice(("drop", "double", "swap", "value"))
    if kind == "drop":
        del lines[k]
    elif kind == "double":
        lines.insert(k, lines[k])
    elif kind == "swap":
        other = draw.randrange(len(lines))
        lines[k], lines[other] = lines[other], lines[k]
    else:
        some = draw.choice(
            ["", "nan", "-1", "[]", '"x"', "{}", "9" * 5000, "[" * 400, "true", "1979-05-27", "'''"]
        )
        lines[k] = f"{lines[k].split('=')[0]}= {some}"
    path.write_text("\n".join(lines), encoding="utf-8")


def _flip(draw: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 4, 40))):
        if out:
            out[draw.randrange(len(out))] = draw.randrange(256)
    return bytes(out)


_BYTES: list[Callable[[Random, bytes], bytes]] = [
    _flip,
    lambda draw, data: data[: draw.randrange(len(data) + 1)],
    lambda draw, data: b"\xef\xbb\xbf" + data,
    lambda draw, data: data.replace(b"\n", b"\r\n"),
    lambda draw, data: data.decode("utf-8", "replace").encode("utf-16"),
    lambda draw, data: b"",
    lambda draw, data: data + draw.choice([b"\0" * 50, b"\n\n{", b"]", b"\xff\xfe", b"(" * 300, data]),
    lambda draw, data: data.replace(b":", b"", 1),
]
_MUTATE = {".json": _json, ".jsonl": _jsonl, ".toml": _lines, ".py": _lines}
