"""A run is a folder: config.toml, metrics.jsonl, rollouts/, checkpoints/, eval/, report.html. Everything is written atomically.

It leaves out what a run does; it only knows where things stand and refuses a folder that belongs to something else.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, load_peft_weights, set_peft_model_state_dict

from smopd.config import Config, differences, load_config, to_toml
from smopd.errors import UserError
from smopd.files import read_jsonl, write_json, write_jsonl, write_text
from smopd.rollout.engine import SaveAdapter
from smopd.training.adapters import STUDENT, load_parameters, save_teacher, teacher_parameters


class RunFolder:
    """One run's files. Making the object only looks; `begin` is the first to write."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        settled = path / "config.toml"
        if settled.exists():
            # What samples, and where it is reached, may change while a run goes on: a server moves, another engine takes over.
            other = [line for line in differences(load_config(settled), config) if not line.startswith("engine.")]
            if other:
                listed = "\n  ".join(other)
                raise UserError(
                    f"{path}: holds a run of another configuration; choose another --out or the same settings:\n  {listed}"
                )
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path}: exists and is not a run folder (no config.toml); nothing was written, choose another --out")

    def begin(self) -> None:
        """Make the folder with its config, once everything the run needs is known to be there."""
        if not (self.path / "config.toml").exists():
            try:
                write_text(self.path / "config.toml", to_toml(self.config))
            except OSError as error:
                raise UserError(f"{self.path}: the run folder cannot be made: {error.strerror}") from None

    @property
    def metrics_file(self) -> Path:
        """One JSON object a step."""
        return self.path / "metrics.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        """The rows written so far."""
        return read_jsonl(self.metrics_file)

    def cut_metrics(self, step: int) -> None:
        """Drop rows of steps that are going to be repeated."""
        if self.metrics_file.exists():
            write_jsonl(self.metrics_file, [row for row in self.metrics() if row["step"] <= step])

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Append one step's row."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    @staticmethod
    def adapter_saver(model: PeftModel) -> SaveAdapter:
        """What writes the student's adapter into a folder, in plain PEFT format."""
        return lambda folder: model.save_pretrained(str(folder), selected_adapters=[STUDENT], save_embedding_layers=False)

    def save_checkpoint(self, step: int, model: PeftModel, optimizer: torch.optim.Optimizer, keep: int) -> Path:
        """Adapter in plain PEFT format, teacher, optimizer and step; visible under its name only when complete."""
        final = self.path / "checkpoints" / f"step-{step:06d}"
        if final.exists():
            return final
        partial = final.with_name(f".partial-{final.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        self.adapter_saver(model)(partial)
        save_teacher(model, partial / "teacher.safetensors")
        torch.save(optimizer.state_dict(), partial / "optimizer.pt")
        write_json(partial / "state.json", {"step": step})
        partial.rename(final)
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(old)
        return final

    def restore(self, model: PeftModel, optimizer: torch.optim.Optimizer) -> int:
        """Load the newest checkpoint into model and optimizer; the step it stands at, 0 without one."""
        saved = self.checkpoints()
        if not saved:
            return 0
        newest = saved[-1]
        set_peft_model_state_dict(model, load_peft_weights(str(newest), device="cpu"), adapter_name=STUDENT)
        load_parameters(teacher_parameters(model), newest / "teacher.safetensors")
        optimizer.load_state_dict(torch.load(newest / "optimizer.pt", weights_only=True, map_location="cpu"))
        return int(json.loads((newest / "state.json").read_text())["step"])

    def save_rollouts(self, step: int, rows: list[dict[str, Any]]) -> None:
        """The conversations of one step."""
        write_jsonl(self.path / "rollouts" / f"step-{step:06d}.jsonl", rows)
