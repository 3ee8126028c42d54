"""Write examples, verifier, method and model that were passed as Python objects into files, so that a run or
evaluation can resume from its folder without them. Existing files must equal what is passed now.
"""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from smopd.api.objects import PLAIN, Judges, Written, judges_of, method_file
from smopd.data import Example
from smopd.data.reading import FIELD, as_examples, plain_answers, rereadable
from smopd.errors import UserError
from smopd.evaluation.store import INPUTS
from smopd.files import digest, explain_os_errors, jsonl, write_text
from smopd.methods import Method
from smopd.plugins import register_in_memory_module
from smopd.runs.layout import CONFIG
from smopd.training.processes import Processes
from smopd.verify import custom, tasks
from smopd.verify.task import Task

log = logging.getLogger("smopd")
BEGUN = (CONFIG, "evaluation.json")  # one of them exists once the work has begun


@dataclass
class Inputs:
    """Texts by file name, the settings that name the files, and a model with its tokenizer."""

    texts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    model: tuple[Any, Any] | None = None
    # For objects without source text: registers the object under the path of its written file.
    held: dict[str, Callable[[Path], None]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest(self.texts, 4) if self.texts else ""

    def add(
        self, name: str, key: str, written: Written, hold: Callable[[Path], None], consequence: str
    ) -> None:
        self.texts[name], self.settings[key] = written.text, name
        if written.reason:
            self.held[name] = hold
            what = Path(name).stem
            log.warning("%s: no text of it can be kept (%s): %s", what, written.reason, consequence)

    def add_method(self, method: Method) -> None:
        hold = partial(register_in_memory_module, names={"METHODS": [method]})
        only = "only this Python process can resume the run"
        self.add("method.py", "method", method_file(method), hold, only)

    def add_examples(
        self, rows: dict[str, Any], verifier: Any, known: Task | None = None, every: bool = False
    ) -> None:
        examples, judges = judged_examples(rows, verifier, known, every)
        if judges:  # first, because examples carry its task: complain about a changed function before them
            hold = partial(custom.register_in_process, functions=judges.functions, fields=judges.fields)
            limits = "it is called in this process, one reply at a time, without a limit of time or memory"
            self.add("verifier.py", "data.verifiers", judges.file, hold, limits)
        for split, part in examples.items():
            self.texts[f"{split}.jsonl"] = jsonl(example.to_json() for example in part)
            self.settings[f"data.{split}"] = f"{split}.jsonl"

    def add_model(self, model: Any, tokenizer: Any) -> None:
        hasher = hashlib.sha256()
        for name, tensor in sorted(model.state_dict().items()):
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hasher.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        self.model, self.texts["model.sha256"] = (model, tokenizer), f"{hasher.hexdigest()}\n"
        self.settings["model.path"] = "model"


def judged_examples(
    rows: dict[str, Any], verifier: Any, known: Task | None = None, every: bool = False
) -> tuple[dict[str, list[Example]], Judges | None]:
    """Read the examples by split, with the task of the verifier. Without a verifier, `known` is the task of
    examples that name none, or of `every` example.
    """
    sources = {split: rereadable(part, split) for split, part in rows.items() if part is not None}
    plain = any(map(_had_plain_answers, sources.values()))
    judges = judges_of(verifier, plain) if verifier is not None else None
    if judges is None and known and plain and len(known.fields) != 1:
        needs = f"the verifier of {known.name} was made for answers that are objects"
        raise UserError(f"{', '.join(rows)}: the answers are plain values, but {needs}; pass verifier=")
    task, fields = (known.name, known.fields) if known else ("", ())
    functions: dict[str, Any] = {}
    if judges:
        task, fields, every, functions = judges.task, judges.fields, judges.every, judges.functions
    field = fields[0] if fields else FIELD
    for name, function in functions.items():  # they are not in a file yet; reading examples judges nothing
        tasks.register(Task(name, fields, judge=function))
    try:
        examples = {split: as_examples(part, split, task, field, every) for split, part in sources.items()}
    finally:
        for name in functions:
            tasks.forget(name)
    return examples, judges


def verifier_facts(file: Path) -> str:
    """The heading of a verifier's file; empty if smopd did not write it."""
    if file.parent.name != INPUTS or not file.is_file():
        return ""
    return file.read_text(encoding="utf-8").partition('"""\n\n')[0]


def _had_plain_answers(part: Any) -> bool:
    """Whether answers were passed as plain values; for a file, the verifier's heading beside it says so."""
    if isinstance(part, str | Path):
        return PLAIN in verifier_facts(Path(part).parent / "verifier.py")
    return plain_answers(part)


@contextmanager
def materialize_inputs(out: Path, inputs: Inputs, processes: Processes) -> Iterator[dict[str, Any]]:
    """Write the files into OUT/inputs and yield the settings that name them; delete them if the work does not
    begin. With several processes the first one writes, and the others wait for it.
    """
    folder = out / INPUTS
    begun = any((out / name).exists() for name in BEGUN)
    missing_folders = [p for p in (folder, *folder.parents) if not p.exists()]
    new: list[Path] = []
    try:
        processes.on_first(lambda: _write(folder, inputs, begun, new))
        for name, hold in inputs.held.items():
            hold(folder / name)
            if begun:
                same = "it cannot be told whether it is the one this run began with"
                log.warning("%s: has no text that could be compared: %s", folder / name, same)
        yield {key: str(folder / name) for key, name in inputs.settings.items()}
    except BaseException:
        if processes.first and (begun or not any((out / name).exists() for name in BEGUN)):
            for path in new:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            for path in missing_folders:
                with suppress(OSError):
                    path.rmdir()
        raise


def _write(folder: Path, inputs: Inputs, begun: bool, new: list[Path]) -> None:
    for name, text in inputs.texts.items():
        path = folder / name
        there = path.read_text(encoding="utf-8") if path.exists() else None
        if there == text:
            continue
        if there is not None and begun:
            advice = "pass the same, or choose another out="
            raise UserError(f"{path}: what is passed now is not what this folder was begun with; {advice}")
        new.append(path)
        with explain_os_errors(f"{path}: cannot be written"):
            write_text(path, text)
    if inputs.model and not (folder / "model" / "config.json").exists():
        model, tokenizer = inputs.model
        new += [folder / "model", folder / ".model"]
        shutil.rmtree(folder / "model", ignore_errors=True)
        tokenizer.save_pretrained(folder / ".model")
        model.save_pretrained(folder / ".model")
        (folder / ".model").rename(folder / "model")


def model_settings(model: Any, tokenizer: Any) -> dict[str, Any]:
    """The settings that a model in memory implies; a UserError if it cannot be saved as it is."""
    if hasattr(model, "peft_config"):
        advice = "pass its base, and settings={'model.adapter': FOLDER} to start from an adapter"
        raise UserError(f"model: it carries adapters of its own; {advice}")
    if not isinstance(model, PreTrainedModel):
        known = "a recipe, a TOML file, a run folder, a model's folder or hub id, or a transformers model"
        raise UserError(f"model: expected {known}; found {type(model).__name__}")
    if tokenizer is None:
        raise UserError("model: a model in memory needs its tokenizer: pass tokenizer=")
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None):
        advice = "pass its name and settings={'model.quantize': 'nf4'} (or int8)"
        raise UserError(f"model: quantised weights of this process cannot be kept as they are; {advice}")
    attention = getattr(model.config, "_attn_implementation", "sdpa")
    eager = {"model.attention": "eager"} if attention == "eager" else {}
    return {"model.dtype": str(model.dtype).removeprefix("torch."), **eager}
