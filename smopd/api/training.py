"""`smopd.train`: train from a recipe or a model and Python objects, into a run folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smopd.api.inputs import Inputs, materialize_inputs, model_settings
from smopd.config import MAY_CHANGE, Config, load_config
from smopd.config_io import flatten, scalar
from smopd.errors import UserError
from smopd.evaluation.store import INPUTS
from smopd.files import digest
from smopd.methods import Method
from smopd.progress import track, training_note
from smopd.runs.evaluations import slug
from smopd.runs.run import Run
from smopd.runs.target import Named, identify
from smopd.runs.writer import RunFolder
from smopd.tracking import quiet
from smopd.trainer_names import explain_name
from smopd.training.hooks import Hooks
from smopd.training.interrupt import Stopped
from smopd.training.processes import Processes
from smopd.training.runs import train_run
from smopd.verify import custom, load_verifiers

OnStep = Callable[[dict[str, Any]], Any]


def train(
    model: Any,
    *,
    method: str | Method | None = None,
    steps: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    train: Any = None,
    eval: Any = None,
    verifier: Any = None,
    tokenizer: Any = None,
    on_step: OnStep | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
    **more: Any,
) -> Run:
    """Train a run to its end, or resume it: the same call does both.

    `model`: a recipe ("pocket", "qwen3-1.7b", a TOML file), a model (folder, hub id, or a transformers model
    with `tokenizer=`), or a run folder. `train`, `eval`: examples (docs/python.md has their columns) or a
    file. `verifier`: a function (answer, reply) -> True, False or None. `method`: a name, file or Method.
    `on_step` gets the metrics of every step; the run ends where it returns False. `settings`, and keywords
    such as **{"lora.r": 8}: any setting of docs/configuration.md.
    """
    for name, value in more.items():
        if explained := explain_name(name, value, lambda key, shown: f"**{{{key!r}: {shown!r}}}"):
            raise UserError(explained)
    requested = {"train.steps": steps, "seed": seed, **flatten(settings or {}), **more}
    call = TrainingCall(model, method, tokenizer, {k: v for k, v in requested.items() if v is not None}, out)
    return run_training(call, {"train": train, "eval": eval}, verifier, _OnStep(on_step), progress)


class TrainingCall:
    def __init__(
        self, model: Any, method: str | Method | None, tokenizer: Any, settings: dict[str, Any],
        out: str | Path | None,
    ) -> None:  # fmt: skip
        self.method, self.out, self.inputs = method, out, Inputs()
        self.recipe: str | Path | None = None
        named, path = Named(), model.path if isinstance(model, Run) else model
        if isinstance(path, str | Path):
            if tokenizer is not None:
                advice = "leave it away, or pass the model"
                raise UserError(f"tokenizer: a model that is named has its own; {advice}")
            self.name, named = str(path), identify(path)
            if named.recipe or not _names_model(self.name):
                self.recipe = named.recipe or path  # for an unknown name, loading it lists the recipes
            else:
                settings = {"engine.kind": "auto", "model.path": self.name} | settings
        else:
            settings = {"engine.kind": "auto"} | model_settings(model, tokenizer) | settings
            self.inputs.add_model(model, tokenizer)
            self.name = str(getattr(model, "name_or_path", "")) or type(model).__name__
        self.settings, self.run, self.checkpoint = settings, named.run, named.checkpoint
        if self.run and out is not None and Path(out) != self.run:
            raise UserError(f"out: {self.run} is a run, which resumes in its own folder; drop out=")
        if isinstance(method, Method):
            self.inputs.add_method(method)

    def config(self, placed: Mapping[str, Any] = {}, trial: bool = False) -> Config:
        """Load the config with the settings of `placed` input files; a `trial` leaves out a method object."""
        settings = {**self.settings, **placed}
        if trial and isinstance(self.method, Method):
            settings = {key: v for key, v in settings.items() if not key.startswith("objective.")}
        method = None if isinstance(self.method, Method) else self.method
        overrides = [f"{key}={toml(key, value)}" for key, value in settings.items()]
        return load_config(self.recipe, overrides, method)

    def folder(self, config: Config) -> Path:
        if self.run or self.out is not None:
            return self.run or Path(str(self.out)).expanduser()
        method = self.method.name if isinstance(self.method, Method) else Path(config.method).stem
        name = f"{slug(self.name, 'run')}-{method}-seed{config.seed}"
        # What else makes it another run: not more steps, and not another engine.
        same = (*MAY_CHANGE, "train.steps", "seed", "model.path")
        asked = {k: toml(k, v) for k, v in self.settings.items() if not k.startswith(same)}
        if self.inputs.texts or asked:
            name += f"-{digest([asked, self.inputs.digest], 4)}"
        return Path("runs") / name


def run_training(
    call: TrainingCall, rows: dict[str, Any], verifier: Any, hooks: Hooks, progress: bool
) -> Run:
    if call.checkpoint:
        raise UserError(f"{call.checkpoint}: is a checkpoint; training resumes in its run folder, {call.run}")
    base = call.config(trial=True)
    custom.unload_verifiers()  # of an earlier call; a task may have another verifier now
    load_verifiers([f for f in base.data.verifiers if verifier is None or Path(f).parent.name != INPUTS])
    if verifier is not None and rows["train"] is None:
        rows = {**rows, "train": base.data.train}  # they become examples of its task
    call.inputs.add_examples(rows, verifier)
    custom.unload_verifiers()
    processes = Processes()
    out = processes.broadcast(call.folder(base))
    with materialize_inputs(out, call.inputs, processes) as settings:
        if "data.verifiers" in settings:
            ours = settings["data.verifiers"]
            settings["data.verifiers"] = [*(f for f in base.data.verifiers if f != ours), ours]
        config = call.config(settings)
        folder = RunFolder(out, config)
        try:
            train_run(config, folder, track if progress else quiet, training_note, hooks)
        except Stopped as stopped:
            saved = f"everything is saved in {out}, and the same call resumes it"
            raise KeyboardInterrupt(f"stopped after step {stopped.step}; {saved}") from None
    return Run(out)


def toml(key: str, value: Any) -> str:
    """Format a value as TOML; raise a UserError if no setting can have it."""
    if isinstance(value, Path):
        value = str(value)
    if hasattr(value, "tolist"):  # numpy's and torch's
        value = value.tolist()
    try:
        return scalar(list(value) if isinstance(value, tuple) else value)
    except TypeError:
        kinds = "a number, a text, true or false, or a list"
        raise UserError(f"{key}: expected {kinds}, found {type(value).__name__}") from None


def _names_model(name: str) -> bool:
    path = Path(name).expanduser()
    here = (path / "config.json").is_file() or path.suffix == ".gguf"
    on_hub = not path.exists() and name.count("/") == 1 and not name.startswith((".", "~", "/"))
    return (here or on_hub) and path.suffix != ".toml"


class _OnStep(Hooks):
    def __init__(self, function: OnStep | None) -> None:
        self.function = function

    def step_end(self, row: dict[str, Any]) -> None:
        if self.function:
            self.stop = self.function(row) is False
