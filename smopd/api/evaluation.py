"""`smopd.evaluate`: accuracy of a run or a model on examples, in a folder from which it can resume."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smopd.api.inputs import materialize_inputs, verifier_facts
from smopd.api.objects import EVERY
from smopd.api.training import TrainingCall, toml
from smopd.config import Config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples
from smopd.evaluation.session import check_evaluation, evaluate_into
from smopd.evaluation.store import INPUTS, Evaluation
from smopd.files import digest, file_digest
from smopd.models import resolve_adapter
from smopd.progress import track
from smopd.rollout.engine import resolve_engine
from smopd.runs.evaluations import BASE, evaluate_side, evaluation_folder, slug
from smopd.tracking import quiet
from smopd.training.processes import Processes
from smopd.verify import custom, load_verifiers, tasks


def evaluate(
    model: Any,
    examples: Any = None,
    *,
    views: Sequence[str] | None = None,
    verifier: Any = None,
    tokenizer: Any = None,
    base: bool = False,
    limit: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
    **more: Any,
) -> Evaluation:
    """Evaluate a run, or a model as `smopd.train` takes one: accuracy by view. The same call resumes.

    `examples`: as in `smopd.train`; by default those the run or recipe names for evaluation. `verifier`: by
    default the run's own. `base`: evaluate the run's model before training. `out`: by default a folder in the
    run, or under runs/. With several processes the first one plays, and all get its result.
    """
    requested = {"eval.views": list(views) if views else None, "eval.limit": limit}
    requested |= flatten(settings or {}) | more
    call = TrainingCall(model, None, tokenizer, {k: v for k, v in requested.items() if v is not None}, None)
    if base and not call.run:
        raise UserError("base: names the model of a run before training; the first argument is no run")
    config = call.config()
    if examples is None and call.run and _is_input(config.data.train) and not _is_input(config.data.eval):
        raise UserError(f"{call.run}: was given no examples for evaluation (eval=); pass some")
    if examples is not None or verifier is not None:
        _add(call, config, config.data.eval if examples is None else examples, verifier)
    wanted = config.model.adapter if base or not call.run else call.checkpoint or call.run
    adapter = resolve_adapter(wanted) if wanted else None
    processes = Processes()
    folder = processes.broadcast(Path(out) if out is not None else _folder(call, config, adapter, base))
    custom.unload_verifiers()
    with materialize_inputs(folder, call.inputs, processes) as files:
        if "data.verifiers" in files:
            files["data.verifiers"] = [files["data.verifiers"]]
        config = resolve_engine(call.config(files))
        check_evaluation(config)
        prepared, shown = prepared_examples(config, "eval"), track if progress else quiet
        if not call.run:
            label = adapter.name if adapter else "eval"
            processes.on_first(lambda: evaluate_into(folder, config, prepared, label, adapter, track=shown))
            return Evaluation(folder)
        run, side = call.run, BASE if base or adapter is None else adapter.name
        asked = [f"{key}={toml(key, value)}" for key, value in {**call.settings, **files}.items()]
        how = (config, prepared, adapter, folder, asked)
        processes.on_first(lambda: evaluate_side(run, side, *how, track=shown))
    return Evaluation(folder, side)


def _add(call: TrainingCall, config: Config, rows: Any, verifier: Any) -> None:
    custom.unload_verifiers()
    known, every = None, False
    if verifier is None:
        load_verifiers(config.data.verifiers)
        names = custom.loaded_tasks()
        known = tasks.find(names[0]) if len(names) == 1 else None
        every = any(EVERY in verifier_facts(Path(file)) for file in config.data.verifiers)
    call.inputs.add_examples({"eval": rows}, verifier, known, every and known is not None)


def _folder(call: TrainingCall, config: Config, adapter: Path | None, base: bool) -> Path:
    """The default folder, in the run or under runs/; its name depends on model, settings and inputs."""
    # The kind of engine is left out, as for a run: the sampler may change.
    asked = [config.eval.model_dump(), config.chat.model_dump(), config.seed, config.data.eval]
    weights = file_digest(adapter / "adapter_model.safetensors") if adapter else ""
    mark = digest([*asked, config.model.path, call.inputs.digest, weights], 4)
    if not call.run:
        return Path("runs") / f"eval-{slug(call.name, 'run')}-{mark}"
    return evaluation_folder(call.run, BASE if base or not adapter else adapter.name, mark)


def _is_input(name: str) -> bool:
    return Path(name).parent.name == INPUTS
