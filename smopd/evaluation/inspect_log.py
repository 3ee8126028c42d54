"""Write a finished evaluation as an inspect_ai log, for `inspect view` and its analysis tools.

Each conversation is a sample (its id is VIEW/ID, its epoch the run, from 1) with all messages and the scores
`correct` and `any_turn` (C or I); each view is a result. Events, timings and token usage are not included.
"""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.store import load_identity, load_outcomes, load_summary
from smopd.files import explain_os_errors
from smopd.frames import messages


def write_inspect_log(folder: Path, out: Path) -> Path:
    if out.suffix not in (".eval", ".json"):
        raise UserError(f"{out}: a log of inspect_ai ends in .eval or .json")
    try:
        from inspect_ai.log import write_eval_log
    except ImportError:
        needs = "needs the package inspect_ai: pip install 'smopd[inspect]'"
        raise UserError(f"{out}: writing a log of inspect_ai {needs}") from None
    log = _eval_log(folder)
    with explain_os_errors(f"{out}: the log cannot be written"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_eval_log(log, str(out))
    return out


def _eval_log(folder: Path) -> Any:
    from inspect_ai import log

    outcomes, identity = load_outcomes(folder), load_identity(folder)
    summary = load_summary(folder) or {}  # load_outcomes has checked that it exists
    finished = datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, UTC).isoformat()
    scores, items = [], len({o.id for o in outcomes})
    for view, v in summary["views"].items():
        numbers = {n: v[n] for n in ("accuracy", "low", "high")} | {"any_turn": v["any_turn"]["accuracy"]}
        metrics = {name: log.EvalMetric(name=name, value=value) for name, value in numbers.items()}
        scores.append(log.EvalScore(name=view, scorer="smopd", scored_samples=v["total"], metrics=metrics))
    return log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=finished,
            task="smopd",
            **dict.fromkeys(("task_id", "eval_id", "run_id"), folder.name),
            dataset=log.EvalDataset(name=Path(str(identity.get("data"))).name, samples=items),
            model=f"smopd/{identity.get('model')}",
            config=log.EvalConfig(epochs=summary["runs"]),
            packages={"smopd": version("smopd")},
            metadata={"identity": identity, "code": summary.get("code")},
        ),
        results=log.EvalResults(total_samples=len(outcomes), completed_samples=len(outcomes), scores=scores),
        stats=log.EvalStats(started_at=finished, completed_at=finished),
        samples=list(map(_sample, outcomes)),
    )


def _sample(o: Outcome) -> Any:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    chat: list[Any] = messages(o.system, o.turns)
    target = o.answer if len(o.answer) != 1 else next(iter(o.answer.values()))
    verdict = Score(value="C" if o.correct else "I", answer=o.extracted, explanation=o.detail or None,
                    metadata={"status": o.status})  # fmt: skip
    return EvalSample(
        id=f"{o.view}/{o.id}",
        epoch=o.run + 1,
        input=[message for message in chat if message["role"] != "assistant"],
        target=str(target),
        messages=chat,
        output=ModelOutput.from_content("smopd", o.turns[-1]["reply"]),
        scores={"correct": verdict, "any_turn": Score(value="C" if o.any_correct else "I")},
        metadata={name: getattr(o, name) for name in ("view", "task", "shards", "answer", "full")},
    )
