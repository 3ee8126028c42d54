"""The tables of settings that every run has, whichever method it trains with. The defaults are the paper's
values and, where the paper leaves a point open, the project's choices.

It leaves out the tree they hang in and where its values come from (`smopd/config.py`), a method's own
settings (`smopd/methods/`), and what is no part of an experiment, such as where a run is written: that is the
command line's.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

ENGINES = ("hf", "vllm", "vllm-http", "openai")


class Section(BaseModel):
    """A table of the tree: frozen, no unknown keys, no conversions except from a whole number to a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Model(Section):
    """Which weights are trained."""

    path: Annotated[
        str,
        Field(
            min_length=1, description='"pocket" for the embedded model, a folder, a GGUF file, or a hub id'
        ),
    ] = "pocket"
    adapter: Annotated[str, Field(description="a PEFT adapter to start from; empty for a fresh one")] = ""
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], Field(description="of the frozen base weights")
    ] = "float32"
    attention: Annotated[Literal["sdpa", "eager"], Field(description="the attention implementation")] = "sdpa"
    quantize: Annotated[
        Literal["none", "nf4", "int8"], Field(description="base weights in 4 or 8 bits (GPU)")
    ] = "none"


class Chat(Section):
    """How conversations become token ids."""

    history: Annotated[
        Literal["template", "verbatim"],
        Field(
            description='earlier replies as the chat template renders them, or ("verbatim") the sampled tokens'
        ),
    ] = "template"
    thinking: Annotated[bool, Field(description="let models with a thinking mode think")] = False


class Data(Section):
    """The examples: JSONL, LiC's own JSON, or the generated pocket world."""

    train: Annotated[str, Field(min_length=1, description='training examples: a file, or "pocket:train"')] = (
        "pocket:train"
    )
    eval: Annotated[str, Field(min_length=1, description='evaluation examples: a file, or "pocket:eval"')] = (
        "pocket:eval"
    )
    train_limit: Annotated[
        int, Field(ge=0, description="use only the first so many training examples; 0 = all")
    ] = 0
    verifiers: Annotated[
        list[str], Field(description="your Python files with @verifier functions, for tasks of your own")
    ] = []
    databases: Annotated[
        str,
        Field(description="database task: folder of .sqlite files (DB_ID/DB_ID.sqlite); empty = synthesised"),
    ] = ""


class Rollout(Section):
    """How the student's replies are sampled in training."""

    batch: Annotated[int, Field(ge=1, description="conversations in one generate call")] = 64
    temperature: Annotated[float, Field(gt=0, description="sampling temperature")] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, description="nucleus sampling; 1 = off")] = 0.95
    top_k: Annotated[int, Field(ge=0, description="sample among the k likeliest tokens; 0 = off")] = 20
    merge: Annotated[
        bool,
        Field(
            description="sample with the adapter folded into the weights: faster, for a second copy of the adapted weights"
        ),
    ] = False
    middle_tokens: Annotated[int, Field(ge=1, description="limit of a middle reply")] = 256
    answer_tokens: Annotated[
        int, Field(ge=1, description="limit of an answer reply and of a reply to the FULL prompt")
    ] = 1024


class Engine(Section):
    """What samples the replies."""

    kind: Annotated[
        str,
        Field(
            description="hf (transformers), vllm, vllm-http (servers), openai (evaluation), or a file of yours"
        ),
    ] = "hf"
    cache_mb: Annotated[
        int, Field(ge=0, description="hf: keys and values kept from turn to turn; 0 = none")
    ] = 4096
    servers: Annotated[
        list[str], Field(description="vllm-http, openai: base URLs, e.g. http://host:8000")
    ] = []
    model: Annotated[
        str, Field(description="openai: the served model's name; empty = the endpoint's first")
    ] = ""
    api_key_env: Annotated[
        str,
        Field(
            description="openai, vllm-http: environment variable with the key; the key is never written anywhere"
        ),
    ] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1, description="servers: requests in flight at each")] = 64
    timeout: Annotated[float, Field(gt=0, description="servers: seconds for one request")] = 600.0
    retries: Annotated[
        int, Field(ge=0, description="servers: further tries of a failed request, with growing pauses")
    ] = 5
    adapters: Annotated[
        str, Field(description="vllm-http: folder all servers can read; empty = in the run folder")
    ] = ""
    memory: Annotated[float, Field(gt=0, le=1, description="vllm: share of the GPU's memory it may take")] = (
        0.3
    )
    max_length: Annotated[
        int, Field(ge=0, description="vllm: longest context and reply, in tokens; 0 = the model's")
    ] = 0
    sleep: Annotated[bool, Field(description="vllm: leave the GPU's memory to training between rollouts")] = (
        False
    )
    gap_warning: Annotated[
        float,
        Field(gt=0, description="warn where engine and training differ more, in mean nats a sampled token"),
    ] = 0.05

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind in ENGINES or kind.endswith(".py"):
            return kind
        raise ValueError(
            f"expected one of {', '.join(ENGINES)}, or a Python file of yours (docs/extending.md)"
        )


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

    decay: Annotated[float, Field(ge=0, le=1, description="share of the old teacher kept at each step")] = (
        0.99
    )


class Optim(Section):
    """AdamW and its schedule."""

    lr: Annotated[float, Field(gt=0, description="peak learning rate")] = 5e-6
    beta1: Annotated[float, Field(ge=0, lt=1, description="decay of the first moment")] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1, description="decay of the second moment")] = 0.999
    eps: Annotated[float, Field(gt=0, description="added to the root of the second moment")] = 1e-8
    weight_decay: Annotated[float, Field(ge=0, description="decoupled weight decay")] = 0.0
    schedule: Annotated[
        Literal["constant", "linear", "cosine"], Field(description="of the rate after warm-up")
    ] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, description="steps of linear warm-up")] = 0
    grad_clip: Annotated[float, Field(ge=0, description="largest gradient norm; 0 = off")] = 1.0


class Train(Section):
    """The loop."""

    steps: Annotated[int, Field(ge=1, description="optimizer steps")] = 100
    rollouts: Annotated[int, Field(ge=1, description="examples rolled out for one step")] = 8
    micro_batch: Annotated[
        int, Field(ge=1, description="rollouts scored at once; changes memory and speed, not the result")
    ] = 1
    row_tokens: Annotated[
        int,
        Field(
            ge=1, description="packed tokens in one scoring pass; changes memory and speed, not the result"
        ),
    ] = 2048
    recompute: Annotated[
        bool,
        Field(
            description="gradient checkpointing: keep one activation a layer and compute the rest again, for memory"
        ),
    ] = False
    checkpoint_every: Annotated[int, Field(ge=1, description="steps between checkpoints")] = 10
    keep_checkpoints: Annotated[
        int, Field(ge=1, description="how many of the latest checkpoints stay on disk")
    ] = 2
    save_rollouts: Annotated[bool, Field(description="write every rollout into the run folder")] = True
    save_tokens: Annotated[
        bool, Field(description="write every token's statistics into the run folder, see docs/study.md")
    ] = False
    max_skipped: Annotated[
        int, Field(ge=1, description="stop after so many steps in a row without a finite gradient")
    ] = 5
    shard: Annotated[
        bool, Field(description="several processes: split the frozen weights among them (FSDP2)")
    ] = False
    eval_every: Annotated[
        int, Field(ge=0, description="steps between evaluations while training; 0 = none")
    ] = 0
    eval_limit: Annotated[int, Field(ge=1, description="evaluation examples used for that")] = 50
    patience: Annotated[
        int, Field(ge=0, description="stop after so many of them without a better SHARDED; 0 = never")
    ] = 0
    trackers: Annotated[
        list[Literal["tensorboard", "trackio", "wandb"]], Field(description="where metrics go, too")
    ] = []


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
    runs: Annotated[
        int, Field(ge=1, description="how often every conversation is played, each time with other seeds")
    ] = 1


class User(Section):
    """The model that plays the user in the view simulated: any chat endpoint."""

    servers: Annotated[list[str], Field(description="base URLs, e.g. http://host:8000")] = []
    model: Annotated[str, Field(description="the served model's name; empty = the endpoint's first")] = ""
    api_key_env: Annotated[str, Field(description="environment variable with the key")] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1, description="requests in flight at each server")] = 16
    timeout: Annotated[float, Field(gt=0, description="seconds for one request")] = 600.0
    retries: Annotated[
        int,
        Field(ge=0, description="further tries of a failed request, and of an answer that cannot be used"),
    ] = 3
    temperature: Annotated[
        float, Field(ge=0, description="of the user's words; labels and extractions are greedy")
    ] = 1.0


class Settings(Section):
    """All of them: what models, engines and data need to know of a run."""

    seed: Annotated[int, Field(ge=0, description="every random choice of the run derives from it")] = 42
    model: Model = Field(default_factory=Model)
    chat: Chat = Field(default_factory=Chat)
    data: Data = Field(default_factory=Data)
    rollout: Rollout = Field(default_factory=Rollout)
    engine: Engine = Field(default_factory=Engine)
    lora: Lora = Field(default_factory=Lora)
    teacher: Teacher = Field(default_factory=Teacher)
    optim: Optim = Field(default_factory=Optim)
    train: Train = Field(default_factory=Train)
    eval: Eval = Field(default_factory=Eval)
    user: User = Field(default_factory=User)
