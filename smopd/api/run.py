"""`smopd.Run`: a run folder to look at from Python. It reads files; nothing here trains."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.api.tables import messages, table
from smopd.config import Config, load_config
from smopd.errors import UserError
from smopd.files import read_jsonl
from smopd.formatting import esc, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smopd.api.evaluation import Evaluation


class Run:
    """A run folder: its settings, metrics, tokens, conversations, checkpoints and evaluations."""

    def __init__(self, path: "str | Path | Run") -> None:
        self.path: Path = path.path if isinstance(path, Run) else Path(path).expanduser()
        if not (self.path / "config.toml").is_file():
            raise UserError(f"{self.path}: is no run folder (no config.toml)")

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return load_config(self.path / "config.toml")

    @property
    def adapter(self) -> Path:
        """The newest checkpoint, a plain PEFT adapter."""
        from smopd.models import resolve_adapter

        return resolve_adapter(self.path)

    @property
    def metrics(self) -> Any:
        """A row a step, with its seconds, as a DataFrame (a list of dicts without pandas)."""
        return table(self._rows())

    @property
    def summary(self) -> dict[str, Any]:
        """In a few numbers: model, method, steps, the last step, the finished evaluations."""
        config, rows = self.config, self._rows()
        return {
            "path": str(self.path),
            "model": config.model.path,
            "method": config.method,
            "seed": config.seed,
            "steps": len(rows),
            "of": config.train.steps,
            "last": rows[-1] if rows else None,
            "evaluations": {e.path.name: {v: s["accuracy"] for v, s in e.items()} for e in self.evaluations},
        }

    @property
    def evaluations(self) -> "list[Evaluation]":
        """The finished evaluations of the run, wherever they are, in the order they were finished."""
        from smopd.api.evaluation import Evaluation
        from smopd.evaluation.run_evaluations import evaluations_of

        listed, _ = evaluations_of(self.path, self.config)
        done = [Evaluation(e.folder, e.side) for e in listed if e.summary is not None]
        return sorted(done, key=lambda e: (e.path / "summary.json").stat().st_mtime_ns)

    def tokens(self, step: int) -> Any:
        """What is known of every scored token of a step: a row each, with its rollout's id and its term."""
        from smopd.training import tokens

        path = self.path / "tokens" / f"step-{step:06d}.safetensors"
        if not path.exists():
            advice = "tokens are kept with settings={'train.save_tokens': True}"
            raise UserError(f"{self.path}: has no tokens of step {step}; {advice}")
        columns = tokens.read(path, "numpy")
        values = {name: column.tolist() for name, column in columns.values.items()}
        values["id"] = [columns.ids[number] for number in values["rollout"]]
        values["term"] = [columns.terms[number] for number in values.pop("part")]
        for name in ("kept", "clipped"):
            values[name] = [bool(value) for value in values[name]]
        names = ["id", "term", *(name for name in values if name not in ("id", "term"))]
        return table(
            [dict(zip(names, row, strict=True)) for row in zip(*(values[n] for n in names), strict=True)]
        )

    def conversations(self, step: int | None = None, view: str | None = None) -> Any:
        """The conversations played in training, a row each; of one step, or in one view."""
        steps = [f"step-{step:06d}"] if step is not None else ["step-*"]
        files = [file for name in steps for file in sorted((self.path / "rollouts").glob(f"{name}.jsonl"))]
        if not files:
            where = "anything" if step is None else f"step {step}"
            raise UserError(f"{self.path}: has no conversations of {where} (train.save_rollouts)")
        rows = [row for file in files for row in _played(file)]
        return table([row for row in rows if view is None or row["view"] == view])

    def evaluate(self, examples: Any = None, **how: Any) -> "Evaluation":
        """Accuracy of the run: `smopd.evaluate(run, examples, ...)`."""
        from smopd.api.evaluation import evaluate

        return evaluate(self, examples, **how)

    def compare(self, other: "str | Path | Run") -> dict[str, Any]:
        """This run against another (which is "before"), paired by item, on what both were last evaluated on.

        "base": against the run's own model before training. The folders compared are in "a" and "b".
        """
        from smopd.evaluation.metrics import compare_evaluations
        from smopd.evaluation.run_evaluations import evaluations_to_compare

        before = self.path if other == "base" else Run(other).path
        return compare_evaluations(*evaluations_to_compare(before, self.path))

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Loss and share of right answers by step, and the accuracies of the evaluations; saved if named."""
        from smopd.api.plotting import plot

        return plot(self, path)

    def export(self, out: str | Path, **how: Any) -> Path:
        """The trained model as a plain Hugging Face folder, the adapter folded in (`smopd export`)."""
        from smopd.training.export import export

        export(self.path, Path(out), **how)
        return Path(out)

    def _rows(self) -> list[dict[str, Any]]:
        seconds = {row["step"]: row for row in read_jsonl(self.path / "timings.jsonl")}
        return [row | seconds.get(row["step"], {}) for row in read_jsonl(self.path / "metrics.jsonl")]

    def _lines(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as (what, value)."""
        found = self.summary
        last = found["last"] or {}
        right = f", right {percent(last['outcome'])}" if last.get("outcome") is not None else ""
        lines = [("run", str(self.path)), ("model", found["model"])]
        lines += [("method", f"{found['method']}, seed {found['seed']}")]
        lines += [("steps", f"{found['steps']} of {found['of']}")]
        lines += [("last step", f"loss {last['loss']:.4g}{right}")] if last.get("loss") is not None else []
        for name, views in found["evaluations"].items():
            lines.append((f"eval/{name}", ", ".join(f"{v.upper()} {percent(a)}" for v, a in views.items())))
        return lines

    def __repr__(self) -> str:
        return "\n".join(f"{what:<10} {value}" for what, value in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{esc(what)}</th><td>{esc(value)}</td></tr>" for what, value in self._lines())
        return f"<table>{rows}</table>"


def _played(file: Path) -> Iterator[dict[str, Any]]:
    """The conversations of one step's rollouts. The verdict is on the rollout: on its first view."""
    step = int(file.stem.removeprefix("step-"))
    for record in read_jsonl(file):
        plays = {key: turns for key, turns in record.items() if _is_turns(turns)}
        for number, (view, turns) in enumerate(plays.items()):
            yield {
                "step": step,
                "id": record["id"],
                "sample": record.get("sample", 0),
                "view": view,
                "messages": messages("", turns),
                "turns": turns,
                "correct": record["correct"] if number == 0 else None,
                "extracted": record["extracted"] if number == 0 else None,
                "expected": record["expected"],
                "loss": record["loss"],
            }


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(turn, dict) and "reply" in turn for turn in value)
