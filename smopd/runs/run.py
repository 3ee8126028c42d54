"""`Run` reads a run folder; `writer.py` writes it."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.config import Config, load_config
from smopd.errors import UserError
from smopd.evaluation.store import Evaluation, SelfDescribing
from smopd.files import read_json, read_jsonl
from smopd.formatting import percent
from smopd.frames import messages, table
from smopd.models.adapter_files import checkpoints
from smopd.runs import layout
from smopd.runs.evaluations import Evaluated, evaluations_of, evaluations_to_compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # safe for colour blindness


class Run(SelfDescribing):
    """A run folder: its settings, metrics, tokens, conversations, checkpoints and evaluations."""

    def __init__(self, path: "str | Path | Run") -> None:
        self.path: Path = path.path if isinstance(path, Run) else Path(path).expanduser()
        if not layout.is_run(self.path):
            raise UserError(f"{self.path}: not a run folder (no {layout.CONFIG})")

    # --- for the rest of the package

    @cached_property
    def config(self) -> Config:
        return load_config(self.path / layout.CONFIG)

    def config_with(self, overrides: list[str]) -> Config:
        return load_config(self.path / layout.CONFIG, overrides)

    @property
    def name(self) -> str:
        return self.path.name or self.path.resolve().name

    @property
    def steps(self) -> list[Row]:
        """The metrics of every step, with its timings."""
        seconds = {row["step"]: row for row in self.timings}
        return [row | seconds.get(row["step"], {}) for row in layout.read_rows(self.path, layout.METRICS)]

    @property
    def timings(self) -> list[Row]:
        return layout.read_rows(self.path, layout.TIMINGS)

    @property
    def starts(self) -> list[Row]:
        return layout.read_rows(self.path, layout.STARTS)

    @property
    def warnings(self) -> list[Row]:
        """The warnings given: step, cause, warning."""
        return layout.read_rows(self.path, layout.WARNINGS)

    @property
    def training_evaluations(self) -> list[Row]:
        """The accuracies measured during training: step, metric, value."""
        return layout.read_rows(self.path, layout.EVALUATIONS)

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first, including damaged ones."""
        return checkpoints(self.path)

    @property
    def rollout_files(self) -> list[Path]:
        return sorted((self.path / layout.ROLLOUTS).glob("step-*.jsonl"))

    @property
    def token_files(self) -> list[Path]:
        return sorted((self.path / layout.TOKENS).glob("step-*.safetensors"))

    @property
    def gradients(self) -> Row | None:
        file = self.path / layout.GRADIENTS
        return read_json(file) if file.exists() else None

    @property
    def working(self) -> bool:
        """Whether a process works on the run, or was killed while it did."""
        return (self.path / layout.LOCK).exists()

    def evaluated(self) -> tuple[list[Evaluated], list[Evaluated]]:
        """The run's evaluations, finished or not, and the listed ones that are no longer there."""
        return evaluations_of(self.path, self.config)

    # --- for users

    @property
    def adapter(self) -> Path:
        """The newest checkpoint, a plain PEFT adapter."""
        from smopd.models import resolve_adapter

        return resolve_adapter(self.path)

    @property
    def metrics(self) -> Any:
        """A row per step, with its timings, as a DataFrame (without pandas, a list of dicts)."""
        return table(self.steps)

    @property
    def summary(self) -> dict[str, Any]:
        """Model, method, seed, steps, the last step's metrics, and the accuracies of finished evaluations."""
        config, rows = self.config, self.steps
        what = {"model": config.model.path, "method": config.method, "seed": config.seed}
        done = {"steps": len(rows), "of": config.train.steps, "last": rows[-1] if rows else None}
        accuracies = {e.path.name: {v: s["accuracy"] for v, s in e.items()} for e in self.evaluations}
        return {"path": str(self.path), **what, **done, "evaluations": accuracies}

    @property
    def evaluations(self) -> list[Evaluation]:
        """The finished evaluations of the run, in its folder or elsewhere, oldest first."""
        listed, _ = self.evaluated()
        done = [Evaluation(e.folder, e.side) for e in listed if e.summary is not None]
        return sorted(done, key=lambda e: (e.path / "summary.json").stat().st_mtime_ns)

    def tokens(self, step: int) -> Any:
        """The token log of a step: a row per scored token, with its rollout's id and its term."""
        from smopd.runs import tokens

        path = layout.step_file(self.path, layout.TOKENS, step, ".safetensors")
        if not path.exists():
            advice = "tokens are kept with settings={'train.save_tokens': True}"
            raise UserError(f"{self.path}: has no tokens of step {step}; {advice}")
        columns = tokens.read(path, "numpy")
        values = {name: column.tolist() for name, column in columns.values.items()}
        ids = [columns.ids[number] for number in values["rollout"]]
        terms = [columns.terms[number] for number in values.pop("part")]
        flags = {name: [bool(value) for value in values[name]] for name in ("kept", "clipped")}
        values = {"id": ids, "term": terms} | values | flags
        return table([dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)])

    def conversations(self, step: int | None = None, view: str | None = None) -> Any:
        """The conversations played in training, a row each; optionally of one step, or in one view."""
        files = [f for f in self.rollout_files if step is None or f.stem == f"step-{step:06d}"]
        if not files:
            where = "anything" if step is None else f"step {step}"
            raise UserError(f"{self.path}: has no conversations of {where} (train.save_rollouts)")
        rows = [row for file in files for row in _read_conversations(file)]
        return table([row for row in rows if view is None or row["view"] == view])

    def evaluate(self, examples: Any = None, **how: Any) -> Evaluation:
        """Evaluate the run: the same as `smopd.evaluate(run, examples, ...)`."""
        import smopd

        return smopd.evaluate(self, examples, **how)

    def compare(self, other: "str | Path | Run") -> dict[str, Any]:
        """Compare with another run (as "before"), paired by item, on what both were last evaluated on. "base"
        stands for the run's model before training. The result names the compared folders in "a" and "b".
        """
        from smopd.evaluation.metrics import compare_evaluations

        before = self.path if other == "base" else Run(other).path
        return compare_evaluations(*evaluations_to_compare(before, self.path))

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Plot loss and correct answers by step, and accuracies of evaluations; save it to `path`, if any."""
        from matplotlib.figure import Figure

        evaluations = self.evaluations
        figure = Figure(figsize=(10 if evaluations else 6, 3.6), layout="constrained")
        parts: Any = figure.subplots(1, 2 if evaluations else 1, squeeze=False)[0]
        rows = self.steps
        steps = [row["step"] for row in rows]
        training, right = parts[0], parts[0].twinx()
        training.plot(steps, [row["loss"] for row in rows], color=COLOURS[0], label="loss")
        outcomes = [row.get("outcome") for row in rows]
        right.plot(steps, outcomes, color=COLOURS[1], ls="--", label="correct answers")
        for view, colour in (("sharded", COLOURS[2]), ("full", COLOURS[3])):
            if measured := [
                (r["step"], r["value"]) for r in self.training_evaluations if r["metric"] == view
            ]:
                label = f"evaluated, {view.upper()}"
                right.plot(*zip(*measured, strict=True), "o", color=colour, label=label)
        right.set_ylim(-0.02, 1.02)
        training.set(xlabel="step", ylabel="loss", title=self.path.name)
        right.set_ylabel("share correct")
        lines = [*training.get_lines(), *right.get_lines()]
        training.legend(lines, [str(line.get_label()) for line in lines], fontsize="small")
        if evaluations:
            _accuracies(parts[1], evaluations)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def export(self, out: str | Path, **how: Any) -> Path:
        """Write the trained model as a Hugging Face folder, with the adapter merged in (`smopd export`)."""
        from smopd.runs.export import export

        export(self.path, Path(out), **how)
        return Path(out)

    def _lines(self) -> list[tuple[str, str]]:
        summary = self.summary
        last = summary["last"] or {}
        right = f", correct {percent(last['outcome'])}" if last.get("outcome") is not None else ""
        lines = [("run", str(self.path)), ("model", summary["model"])]
        lines += [("method", f"{summary['method']}, seed {summary['seed']}")]
        lines += [("steps", f"{summary['steps']} of {summary['of']}")]
        lines += [("last step", f"loss {last['loss']:.4g}{right}")] if last.get("loss") is not None else []
        for name, views in summary["evaluations"].items():
            lines.append((f"eval/{name}", ", ".join(f"{v.upper()} {percent(a)}" for v, a in views.items())))
        return lines


def _read_conversations(file: Path) -> Iterator[Row]:
    """The conversations of one step. A rollout's verdict is only in the row of its first view."""
    step = int(file.stem.removeprefix("step-"))
    for record in read_jsonl(file):
        plays = {key: turns for key, turns in record.items() if _is_turns(turns)}
        verdict = {"correct": record["correct"], "extracted": record["extracted"]}
        for view, turns in plays.items():
            place = {"step": step, "id": record["id"], "sample": record.get("sample", 0), "view": view}
            conversation = {"messages": messages("", turns), "turns": turns}
            yield {**place, **conversation, **verdict, "expected": record["expected"], "loss": record["loss"]}
            verdict = dict.fromkeys(verdict)


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(turn, dict) and "reply" in turn for turn in value)


def _accuracies(axes: Any, evaluations: list[Any]) -> None:
    views = list(dict.fromkeys(view for evaluation in evaluations for view in evaluation))
    width = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        shown = [(place, evaluation[view]) for place, view in enumerate(views) if view in evaluation]
        heights = [view["accuracy"] for _, view in shown]
        below = [max(0.0, view["accuracy"] - view["low"]) for _, view in shown]
        above = [max(0.0, view["high"] - view["accuracy"]) for _, view in shown]
        places = [place + number * width for place, _ in shown]
        look = {"color": COLOURS[number % len(COLOURS)], "label": evaluation.path.name, "capsize": 3}
        axes.bar(places, heights, width, yerr=(below, above), **look)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(views))], [v.upper() for v in views])
    axes.set(ylim=(0, 1.05), ylabel="accuracy, 95% interval")
    axes.legend(fontsize="small")
