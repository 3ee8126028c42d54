"""A finished evaluation as a log of inspect_ai, for `inspect view` and its analysis tools.

One log an evaluation: a sample for each conversation (its id is VIEW/ID, its epoch the run, from 1) with all
messages, the score `correct` (C or I) and, beside it, `any_turn`; a result for each view. It leaves out
what an evaluation does not keep: events, timings and token usage of the calls.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.store import load_identity, load_outcomes, load_summary

NEEDED = "needs the package inspect_ai: pip install 'smopd[inspect]'"
ENDINGS = (".eval", ".json")


def write_inspect_log(folder: Path, out: Path) -> Path:
    """Write the log of the evaluation in `folder`; the ending of `out` decides the format."""
    if out.suffix not in ENDINGS:
        raise UserError(f"{out}: a log of inspect_ai ends in {' or '.join(ENDINGS)}")
    if load_summary(folder) is None:
        raise UserError(f"{folder}: is no evaluation (no summary.json)")
    try:
        from inspect_ai.log import write_eval_log
    except ImportError:
        raise UserError(f"{out}: writing a log of inspect_ai {NEEDED}") from None
    log = inspect_log(folder)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_eval_log(log, str(out))
    except OSError as error:
        raise UserError(f"{out}: the log cannot be written: {error.strerror or error}") from None
    return out


def inspect_log(folder: Path) -> Any:
    """The same as an object of inspect_ai, an EvalLog."""
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalMetric,
        EvalResults,
        EvalScore,
        EvalSpec,
        EvalStats,
    )

    outcomes, identity, summary = load_outcomes(folder), load_identity(folder), load_summary(folder)
    assert summary is not None, "load_outcomes has seen it"
    finished = datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, UTC).isoformat()
    scores = []
    for view, found in summary["views"].items():
        numbers = {name: found[name] for name in ("accuracy", "low", "high")}
        numbers["any_turn"] = found["any_turn"]["accuracy"]
        metrics = {name: EvalMetric(name=name, value=value) for name, value in numbers.items()}
        scores.append(EvalScore(name=view, scorer="smopd", scored_samples=found["total"], metrics=metrics))
    items = list(dict.fromkeys(o.id for o in outcomes))
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=finished,
            task="smopd",
            task_id=folder.name,
            eval_id=folder.name,
            run_id=folder.name,
            dataset=EvalDataset(name=Path(str(identity.get("data"))).name, samples=len(items)),
            model=f"smopd/{identity.get('model')}",
            config=EvalConfig(epochs=summary["runs"]),
            packages={"smopd": version("smopd")},
            metadata={"identity": identity, "code": summary.get("code")},
        ),
        results=EvalResults(total_samples=len(outcomes), completed_samples=len(outcomes), scores=scores),
        stats=EvalStats(started_at=finished, completed_at=finished),
        samples=_samples(outcomes),
    )


def _samples(outcomes: Sequence[Outcome]) -> list[Any]:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score

    samples = []
    for o in outcomes:
        said: list[Any] = [ChatMessageSystem(content=o.system)] if o.system else []
        for turn in o.turns:
            said += [ChatMessageUser(content=turn["user"]), ChatMessageAssistant(content=turn["reply"])]
        told = {"view": o.view, "task": o.task, "shards": o.shards, "answer": o.answer, "full": o.full}
        verdict = Score(value="C" if o.correct else "I", answer=o.extracted, explanation=o.detail or None,
                        metadata={"status": o.status})  # fmt: skip
        samples.append(
            EvalSample(
                id=f"{o.view}/{o.id}",
                epoch=o.run + 1,
                input=[m for m in said if m.role != "assistant"],
                target=_target(o.answer),
                messages=said,
                output=ModelOutput.from_content("smopd", o.turns[-1]["reply"]),
                scores={"correct": verdict, "any_turn": Score(value="C" if o.any_correct else "I")},
                metadata=told,
            )
        )
    return samples


def _target(answer: dict[str, Any]) -> str:
    values = list(answer.values())
    return str(values[0]) if len(values) == 1 else str(answer)
