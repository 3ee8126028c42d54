"""Collect a study's results from its folders; with `rejudge`, every reply is verified again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.config_io import config_hash
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, prepared_examples, told_so_far
from smopd.evaluation.store import data_digest, load_identity, load_outcomes, load_summary
from smopd.files import file_digest, read_json
from smopd.runs import Run
from smopd.runs.evaluations import TRAINED, evaluation_folder
from smopd.runs.layout import EVAL
from smopd.study.calibration import calibration, load_tokens
from smopd.study.plan import PlannedCell
from smopd.study.results import DIGITS, TURNS, Cell, CellSource, Results, encode, round_finite
from smopd.study.run import StudyFolder
from smopd.tracking import Track, quiet
from smopd.verify.verifiers import verify_all

# Of a metric that is logged per loss term, the first term is used.
CURVES = ("loss", "outcome", "clipped", "kept", "entropy", "divergence", "delta", "weight", "grad_norm")


def collect(folder: StudyFolder, rejudge: bool = False, track: Track = quiet) -> Results:
    """The results of all finished cells; the unfinished ones are listed in `missing`."""
    study = folder.study
    bases = [(None, model.name, folder.base(model.name)) for model in study.models]
    places = [*bases, *((cell, cell.model, folder.cell(cell)) for cell in study.cells)]
    config = study.cells[0].config
    reader = _Reader(folder.path, config, rejudge)
    cells, base, missing = list[Cell](), list[Cell](), list[str]()
    with track("reading", len(places)) as update:
        for number, (cell, model, place) in enumerate(places, 1):
            if result := reader.cell(place, model, cell):
                (cells if cell else base).append(result)
            else:
                missing.append(cell.label if cell else f"{model}, untrained")
            update(number)
    if not cells and not base:
        what = f"no cell of the study {study.name} is finished yet"
        raise UserError(f"{folder.path}: {what}; run: smopd study {study.name}")
    names = ("name", "title", "about", "reference", "axes", "seeds", "paper")
    arms, models = ([each.name for each in several] for several in (study.arms, study.models))
    views = [*dict.fromkeys(config.eval.views), *([TURNS] if reader.middle else [])]
    return Results(
        **{name: getattr(study, name) for name in names}, arms=arms, models=models, views=views,
        runs=config.eval.runs, items=reader.items, data=config.data.eval, cells=cells, base=base,
        missing=missing, rules=reader.rules or {}, middle=reader.middle,
    )  # fmt: skip


class _Reader:
    def __init__(self, root: Path, config: Config, rejudge: bool) -> None:
        self.root = root
        self.items: list[str] = []
        self.middle: list[int] = []  # judged middle replies by item, if every item has some
        self.data = ""
        self.rules: dict[str, str] | None = None
        self.examples: dict[str, Example] | None = None
        if rejudge:
            examples = prepared_examples(config, "eval")
            self.examples, self.data = {e.id: e for e in examples}, data_digest(examples)

    def cell(self, place: Path, model: str, planned: PlannedCell | None) -> Cell | None:
        """Read a planned cell, or the untrained model if `planned` is None; None if it is not finished."""
        evaluation = evaluation_folder(place, TRAINED) if planned else place / EVAL
        if (summary := load_summary(evaluation)) is None:
            return None
        arm, axes, seed = (planned.arm, planned.axes, planned.seed) if planned else ("base", {}, None)
        run, identity, outcomes = Run(place), load_identity(evaluation), load_outcomes(evaluation)
        self.data = self.data or identity["examples"]
        rules = identity.get("rules") or {}
        self.rules = rules if self.rules is None else self.rules
        checkpoint = max(run.checkpoints, default=None) if planned else None
        if planned and not checkpoint:
            what = "has an evaluation but no checkpoint"
            raise UserError(f"{place}: {what}; delete the folder and run the study again")
        problem = ""
        if identity["examples"] != self.data:
            problem = "played other examples than the rest of the study"
        elif rules != self.rules:
            problem = f"was judged by other rules ({rules}) than the rest of the study ({self.rules})"
        elif checkpoint and file_digest(checkpoint / "adapter_model.safetensors") != identity["adapter"]:
            problem = f"is not an evaluation of {checkpoint}"
        if problem:
            raise UserError(f"{evaluation}: {problem}; delete it and run the study again")
        outcomes = rejudged(outcomes, self.examples, evaluation) if self.examples else outcomes
        views: list[str] = list(dict.fromkeys(o.view for o in outcomes))
        metrics, timings = run.steps, run.timings
        source = CellSource(
            folder=place.relative_to(self.root).as_posix(),
            config=config_hash(run.config),
            seed=seed,
            data=identity["examples"],
            trained_by=read_json(checkpoint / "state.json")["smopd"] if checkpoint else None,
            evaluated_by=summary.get("code", "unknown"),
            adapter=identity["adapter"],
        )
        return Cell(
            *(model, arm, axes, seed, source),
            right={view: self._counts(outcomes, view, "correct") for view in views} | self._turns(outcomes),
            right_any={view: self._counts(outcomes, view, "any_correct") for view in views},
            curves={k: [round_finite(row.get(k), 4) for row in metrics] for k in curve_names(metrics)},
            tokens=calibration(load_tokens(place)) if run.token_files else None,
            gradients=run.gradients,
            seconds=round_finite(sum(row["seconds/step"] for row in timings), 4) if timings else None,
        )

    def _counts(self, outcomes: Sequence[Outcome], view: str, right: str) -> str:
        """How many runs of each item were right; `right` is a field of Outcome."""
        counts: Counter[str] = Counter()
        for outcome in (o for o in outcomes if o.view == view):
            counts[outcome.id] += getattr(outcome, right)
        self.items = self.items or list(counts)
        if set(counts) != set(self.items):
            raise UserError(f"{self.root}: the cells of the study have not played the same items")
        return encode([counts[item] for item in self.items])

    def _turns(self, outcomes: Sequence[Outcome]) -> dict[str, str]:
        """The number of right middle replies of each item; empty unless known for every item."""
        right: dict[str, list[bool]] = {item: [] for item in self.items}
        for outcome in (o for o in outcomes if o.view == "sharded"):
            right[outcome.id] += [turn["right"] for turn in outcome.turns[:-1] if "right" in turn]
        judged = list(map(len, right.values()))
        if not judged or min(judged) == 0 or max(judged) >= len(DIGITS):
            return {}
        self.middle = judged
        return {TURNS: encode([sum(replies) for replies in right.values()])}


def curve_names(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The logged metrics among CURVES, plain or of the loss's first term."""
    logged = dict.fromkeys(name for row in metrics for name in row)
    term = next((name.removeprefix("loss/") for name in logged if name.startswith("loss/")), "")
    names = [name if name in logged else f"{name}/{term}" for name in CURVES]
    return [name for name in names if name in logged]


def rejudged(outcomes: Sequence[Outcome], examples: Mapping[str, Example], source: Path) -> list[Outcome]:
    """Verify the replies again, except with a simulated user, which judged by its own rule."""
    played = [o for o in outcomes if o.view != "simulated"]
    if strange := next((o for o in played if o.id not in examples), None):
        what = f"the conversation {strange.id!r} is of no example of the data {source} was evaluated on"
        raise UserError(f"{source}: {what}")
    verdicts = iter(verify_all([(examples[o.id], turn["reply"]) for o in played for turn in o.turns]))
    places = [(o, n) for o in played for n, turn in enumerate(o.turns) if "right" in turn]
    pairs = [(told_so_far(examples[o.id], n) or examples[o.id], o.turns[n]["reply"]) for o, n in places]
    middle = iter(verify_all(pairs))

    def verified(outcome: Outcome) -> Outcome:
        judged = [next(verdicts) for _ in outcome.turns]
        last = {name: getattr(judged[-1], name) for name in ("correct", "extracted", "status")}
        turns = [
            turn | {"right": next(middle).correct} if "right" in turn else turn for turn in outcome.turns
        ]
        return replace(outcome, any_correct=any(v.correct for v in judged), turns=turns, **last)

    return [outcome if outcome.view == "simulated" else verified(outcome) for outcome in outcomes]
