"""The typed tree of every setting, and where its values come from.

A value comes from the last of these that sets it: the field's default, the settings of the file's method, the recipe file, the
settings of a method switched on the command line, --set. An unknown key, a string for a number or a value out of range is an
error that names the place; nothing is guessed. The defaults are the paper's values and, where the paper leaves a point open, the
project's choices. Left out: what is no part of an experiment (where a run is written, how it is logged, which device it uses;
that is the command line's), and the reading, checking and writing of such a tree (`smopd/config_io.py`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from smopd.config_io import (
    check,
    choices,
    config_hash,
    describe_fields,
    differences,
    flatten,
    nest,
    parse_override,
    read_toml,
    to_toml,
)
from smopd.errors import UserError
from smopd.methods import METHODS

__all__ = ["Config", "config_hash", "describe", "differences", "load_config", "recipe_names", "settings_hash", "to_toml"]

RECIPES = Path(__file__).parent / "recipes"
# What may change while a run goes on, since no result depends on it: what samples and where it is reached (a server moves,
# another engine takes over), how scoring is cut, who watches.
MAY_CHANGE = (
    "engine.", "user.", "train.micro_batch", "train.row_tokens", "train.recompute", "train.shard", "train.keep_checkpoints",
    "train.save_rollouts", "train.save_tokens", "train.max_skipped", "train.trackers",
)  # fmt: skip


class Section(BaseModel):
    """A table of the tree: frozen, no unknown keys, no conversions except from a whole number to a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Model(Section):
    """Which weights are trained."""

    path: Annotated[
        str, Field(min_length=1, description='"pocket" for the embedded model, a folder, a GGUF file, or a hub id')
    ] = "pocket"
    adapter: Annotated[str, Field(description="a PEFT adapter to start from; empty for a fresh one")] = ""
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], Field(description="of the frozen base weights")] = "float32"
    attention: Annotated[Literal["sdpa", "eager"], Field(description="the attention implementation")] = "sdpa"
    quantize: Annotated[Literal["none", "nf4", "int8"], Field(description="base weights in 4 or 8 bits (GPU)")] = "none"


class Chat(Section):
    """How conversations become token ids."""

    history: Annotated[
        Literal["template", "verbatim"],
        Field(description='earlier replies as the chat template renders them, or ("verbatim") the sampled tokens'),
    ] = "template"
    thinking: Annotated[bool, Field(description="let models with a thinking mode think")] = False


class Data(Section):
    """The examples: JSONL, LiC's own JSON, or the generated pocket world."""

    train: Annotated[str, Field(min_length=1, description='training examples: a file, or "pocket:train"')] = "pocket:train"
    eval: Annotated[str, Field(min_length=1, description='evaluation examples: a file, or "pocket:eval"')] = "pocket:eval"
    train_limit: Annotated[int, Field(ge=0, description="use only the first so many training examples; 0 = all")] = 0
    verifiers: Annotated[list[str], Field(description="your Python files with @verifier functions, for tasks of your own")] = []
    databases: Annotated[
        str, Field(description="database task: folder of .sqlite files (DB_ID/DB_ID.sqlite); empty = synthesised")
    ] = ""


class Rollout(Section):
    """How the student's replies are sampled in training."""

    batch: Annotated[int, Field(ge=1, description="conversations in one generate call")] = 64
    temperature: Annotated[float, Field(gt=0, description="sampling temperature")] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, description="nucleus sampling; 1 = off")] = 0.95
    top_k: Annotated[int, Field(ge=0, description="sample among the k likeliest tokens; 0 = off")] = 20
    merge: Annotated[
        bool,
        Field(description="sample with the adapter folded into the weights: faster, for a second copy of the adapted weights"),
    ] = False
    middle_tokens: Annotated[int, Field(ge=1, description="limit of a middle reply")] = 256
    answer_tokens: Annotated[int, Field(ge=1, description="limit of an answer reply and of a reply to the FULL prompt")] = 1024


class Engine(Section):
    """What samples the replies."""

    kind: Annotated[
        Literal["hf", "vllm", "vllm-http", "openai"],
        Field(description="transformers; vLLM in this process; vLLM servers; any chat endpoint (evaluation only)"),
    ] = "hf"
    cache_mb: Annotated[int, Field(ge=0, description="hf: keys and values kept from turn to turn; 0 = none")] = 4096
    servers: Annotated[list[str], Field(description="vllm-http, openai: base URLs, e.g. http://host:8000")] = []
    model: Annotated[str, Field(description="openai: the served model's name; empty = the endpoint's first")] = ""
    api_key_env: Annotated[
        str, Field(description="openai, vllm-http: environment variable with the key; the key is never written anywhere")
    ] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1, description="servers: requests in flight at each")] = 64
    timeout: Annotated[float, Field(gt=0, description="servers: seconds for one request")] = 600.0
    retries: Annotated[int, Field(ge=0, description="servers: further tries of a failed request, with growing pauses")] = 5
    adapters: Annotated[str, Field(description="vllm-http: folder all servers can read; empty = in the run folder")] = ""
    memory: Annotated[float, Field(gt=0, le=1, description="vllm: share of the GPU's memory it may take")] = 0.3
    max_length: Annotated[int, Field(ge=0, description="vllm: longest context and reply, in tokens; 0 = the model's")] = 0
    sleep: Annotated[bool, Field(description="vllm: leave the GPU's memory to training between rollouts")] = False
    gap_warning: Annotated[
        float, Field(gt=0, description="warn where engine and training differ more, in mean nats a sampled token")
    ] = 0.05


class Objective(Section):
    """The loss of a rollout."""

    keep: Annotated[float, Field(gt=0, le=1, description="share of a middle reply's tokens kept; 1 = no mask")] = 0.8
    eta: Annotated[float, Field(ge=0, le=1, description="how far the final outcome moves a turn's weight; 0 = not at all")] = 0.0
    ranking: Annotated[
        Literal["entropy", "random", "divergence", "inverted"],
        Field(description="the mask keeps the highest of these; inverted drops the highest entropies; controls but for entropy"),
    ] = "entropy"
    denominator: Annotated[
        Literal["kept", "all"],
        Field(description="a masked reply's loss is divided by its kept tokens, or (control) by all"),
    ] = "kept"
    beta_mid: Annotated[float, Field(ge=0, le=1, description="teacher's share in the middle turns' mixture (0.5 = JS)")] = 0.5
    beta_final: Annotated[float, Field(ge=0, le=1, description="of answer and FULL losses: 1 = reverse KL, 0 = forward KL")] = 1.0
    clip: Annotated[float, Field(gt=0, allow_inf_nan=True, description="cap of one token's divergence, in nats; inf = off")] = 0.5
    clip_level: Annotated[
        Literal["position", "vocab"], Field(description="cap after the sum over the vocabulary, or each of its terms (OPSD)")
    ] = "position"
    clip_mode: Annotated[
        Literal["hard", "scale"], Field(description="no gradient above the cap, or its direction kept and its length scaled down")
    ] = "hard"
    rho: Annotated[float, Field(ge=0, le=1, description="probability that an example also gets the FULL branch")] = 0.2
    full_branch: Annotated[
        Literal["additive", "exclusive"], Field(description="FULL loss beside the others, or instead of them (MAIGO)")
    ] = "additive"
    mask_after: Annotated[float, Field(ge=0, le=1, description="share of the steps before the entropy mask begins")] = 0.33
    quantile: Annotated[
        Literal["linear", "lower", "higher", "midpoint", "nearest"], Field(description="interpolation of the mask's threshold")
    ] = "linear"
    importance_cap: Annotated[
        float, Field(ge=0, description="truncated importance weight of engine against training, at most this; 0 = off")
    ] = 0.0
    eps: Annotated[float, Field(gt=0, description="floor of a turn's discrepancy in the reliability weight")] = 1e-6


class Lora(Section):
    """The adapters of student and teacher."""

    r: Annotated[int, Field(ge=1, description="rank")] = 64
    alpha: Annotated[int, Field(ge=1, description="scale, divided by the rank")] = 128
    dropout: Annotated[float, Field(ge=0, lt=1, description="dropout in front of the adapter")] = 0.0
    targets: Annotated[list[str], Field(min_length=1, description="names of the linear layers that get an adapter")] = [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    ]  # fmt: skip


class Teacher(Section):
    """The teacher: a moving average of the student's adapter."""

    decay: Annotated[float, Field(ge=0, le=1, description="share of the old teacher kept at each step")] = 0.99


class Optim(Section):
    """AdamW and its schedule."""

    lr: Annotated[float, Field(gt=0, description="peak learning rate")] = 5e-6
    beta1: Annotated[float, Field(ge=0, lt=1, description="decay of the first moment")] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1, description="decay of the second moment")] = 0.999
    eps: Annotated[float, Field(gt=0, description="added to the root of the second moment")] = 1e-8
    weight_decay: Annotated[float, Field(ge=0, description="decoupled weight decay")] = 0.0
    schedule: Annotated[Literal["constant", "linear", "cosine"], Field(description="of the rate after warm-up")] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, description="steps of linear warm-up")] = 0
    grad_clip: Annotated[float, Field(ge=0, description="largest gradient norm; 0 = off")] = 1.0


class Train(Section):
    """The loop."""

    steps: Annotated[int, Field(ge=1, description="optimizer steps")] = 100
    rollouts: Annotated[int, Field(ge=1, description="examples rolled out for one step")] = 8
    micro_batch: Annotated[int, Field(ge=1, description="rollouts scored at once; changes memory and speed, not the result")] = 1
    row_tokens: Annotated[
        int, Field(ge=1, description="packed tokens in one scoring pass; changes memory and speed, not the result")
    ] = 2048
    recompute: Annotated[
        bool, Field(description="gradient checkpointing: keep one activation a layer and compute the rest again, for memory")
    ] = False
    checkpoint_every: Annotated[int, Field(ge=1, description="steps between checkpoints")] = 10
    keep_checkpoints: Annotated[int, Field(ge=1, description="how many of the latest checkpoints stay on disk")] = 2
    save_rollouts: Annotated[bool, Field(description="write every rollout into the run folder")] = True
    save_tokens: Annotated[bool, Field(description="write every token's statistics into the run folder, see docs/study.md")] = (
        False
    )
    max_skipped: Annotated[int, Field(ge=1, description="stop after so many steps in a row without a finite gradient")] = 5
    shard: Annotated[bool, Field(description="several processes: split the frozen weights among them (FSDP2)")] = False
    eval_every: Annotated[int, Field(ge=0, description="steps between evaluations while training; 0 = none")] = 0
    eval_limit: Annotated[int, Field(ge=1, description="evaluation examples used for that")] = 50
    patience: Annotated[int, Field(ge=0, description="stop after so many of them without a better SHARDED; 0 = never")] = 0
    trackers: Annotated[list[Literal["tensorboard", "trackio", "wandb"]], Field(description="where metrics go, too")] = []


class Eval(Section):
    """How accuracy is measured."""

    limit: Annotated[int, Field(ge=0, description="use only the first so many examples; 0 = all")] = 0
    batch: Annotated[int, Field(ge=1, description="conversations in one generate call")] = 64
    tokens: Annotated[int, Field(ge=1, description="limit of an answer reply")] = 1024
    middle_tokens: Annotated[int, Field(ge=1, description="limit of a middle reply")] = 1024
    temperature: Annotated[float, Field(ge=0, description="0 = greedy")] = 0.0
    views: Annotated[
        list[Literal["full", "concat", "sharded", "recap", "snowball", "simulated"]],
        Field(min_length=1, description="how a task is told, see docs/evaluation.md"),
    ] = ["full", "sharded"]
    runs: Annotated[int, Field(ge=1, description="how often every conversation is played, each time with other seeds")] = 1


class User(Section):
    """The model that plays the user in the view simulated: any chat endpoint."""

    servers: Annotated[list[str], Field(description="base URLs, e.g. http://host:8000")] = []
    model: Annotated[str, Field(description="the served model's name; empty = the endpoint's first")] = ""
    api_key_env: Annotated[str, Field(description="environment variable with the key")] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1, description="requests in flight at each server")] = 16
    timeout: Annotated[float, Field(gt=0, description="seconds for one request")] = 600.0
    retries: Annotated[
        int, Field(ge=0, description="further tries of a failed request, and of an answer that cannot be used")
    ] = 3
    temperature: Annotated[float, Field(ge=0, description="of the user's words; labels and extractions are greedy")] = 1.0


class Prompts(Section):
    """System prompts in place of those the examples carry; empty = theirs."""

    math: Annotated[str, Field(description="of math examples")] = ""
    actions: Annotated[str, Field(description="of actions examples; {functions} stands for the schemas")] = ""
    database: Annotated[str, Field(description="of database examples; {schema} stands for the tables")] = ""
    code: Annotated[str, Field(description="of code examples")] = ""


class Config(Section):
    """Every setting. Made by `load_config`: the class itself does not apply the settings of the method it names."""

    method: Annotated[str, Field(description="a declared method; sets what the recipe and --set leave open")] = "entropy"
    seed: Annotated[int, Field(ge=0, description="every random choice of the run derives from it")] = 42
    model: Model = Field(default_factory=Model)
    chat: Chat = Field(default_factory=Chat)
    data: Data = Field(default_factory=Data)
    rollout: Rollout = Field(default_factory=Rollout)
    engine: Engine = Field(default_factory=Engine)
    objective: Objective = Field(default_factory=Objective)
    lora: Lora = Field(default_factory=Lora)
    teacher: Teacher = Field(default_factory=Teacher)
    optim: Optim = Field(default_factory=Optim)
    train: Train = Field(default_factory=Train)
    eval: Eval = Field(default_factory=Eval)
    user: User = Field(default_factory=User)
    prompts: Prompts = Field(default_factory=Prompts)

    @field_validator("method")
    @classmethod
    def _declared(cls, name: str) -> str:
        if name in METHODS:
            return name
        raise ValueError(f"unknown method{choices(name, list(METHODS), 'methods')}")


def recipe_names() -> list[str]:
    """The shipped recipes, by the name that `load_config` takes."""
    return sorted(path.name.removesuffix(".toml") for path in RECIPES.glob("*.toml"))


def load_config(recipe: str | Path | None = None, overrides: Sequence[str] = (), method: str | None = None) -> Config:
    """One Config from a recipe (shipped name or TOML file), `a.b=value` overrides and a method; UserError tells what is wrong."""
    source, file = _read_recipe(recipe) if recipe is not None else ("", {})
    argument = {} if method is None else {"method": method}
    problems = check(Config, file, source) + check(Config, argument, "--method")
    given: dict[str, Any] = {}
    for text in overrides:
        try:
            key, value = parse_override(text)
        except UserError as error:
            problems.append(str(error))
            continue
        tree = nest({key: value})
        problems += check(Config, tree, "--set")
        given |= flatten(tree)
    if method is not None and given.get("method", method) != method:
        problems.append(f"--set method={given['method']}: contradicts --method {method}; give one of them")
    if problems:
        raise UserError("\n".join(problems))

    explicit = argument | {key: value for key, value in given.items() if key == "method"}
    if explicit:  # a switch on the command line is meant to switch: it wins over what a file spells out
        return Config.model_validate(nest(flatten(file) | _switched(explicit["method"]) | explicit | given))
    settings = METHODS[file.get("method", Config().method)].settings
    return Config.model_validate(nest(settings | flatten(file) | given))


def _switched(method: str) -> dict[str, Any]:
    """A method's settings, and the defaults of what only other methods set: switching from one leaves nothing of it behind."""
    defaults = flatten(Config().model_dump())
    return {key: defaults[key] for other in METHODS.values() for key in other.settings} | METHODS[method].settings


class _Settings(BaseModel, extra="allow"):
    """Any settings."""


def settings_hash(config: Config) -> str:
    """A hash of the settings a run must keep. Defaults are left out, so a setting that a later version adds changes nothing."""
    given = flatten(config.model_dump(exclude_defaults=True))
    return config_hash(_Settings(**{k: v for k, v in given.items() if not k.startswith(MAY_CHANGE)}))


def describe() -> Iterator[tuple[str, Any, str]]:
    """(dotted key, default, description) of every setting, in order."""
    return describe_fields(Config)


def _read_recipe(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """The name to complain under and the tables of a recipe; a shipped name wins over a file of the same name (write ./NAME)."""
    name, path = str(recipe), Path(recipe)
    shipped = recipe_names()
    if name in shipped:
        return f"{name}.toml", read_toml(RECIPES / f"{name}.toml", f"{name}.toml")
    if path.is_file():
        return name, read_toml(path, name)
    if (path / "config.toml").is_file():
        raise UserError(f"{name}: is a folder; its settings are in {path / 'config.toml'}")
    raise UserError(f"{name}: no such recipe or file{choices(path.name.removesuffix('.toml'), shipped, 'shipped recipes')}")
