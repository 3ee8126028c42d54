"""The settings that every run has, whatever its method. A method's own are in `smopd/methods/`."""

from typing import Any, ClassVar, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

AUTO = "auto"  # decided when the run starts, see smopd/rollout/engine.py
ENGINES = (AUTO, "hf", "vllm", "vllm-http", "openai")
LARGEST, LARGEST_SEED = 10**9, 2**63 - 1
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def share_of_steps(**idle: float) -> dict[str, JsonValue]:
    """Mark a setting as a share of train.steps, whose meaning changes when a run is lengthened. `idle`:
    values of other settings in its table at which it has no effect.
    """
    return {"share_of_steps": True, "idle": {**idle}}


class Section(BaseModel):
    """A table of the tree: frozen, no unknown keys, no conversions except from a whole number to a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    # What to change when a run warns: cause ("clipped": tokens over a term's cap get no gradient; "FULL":
    # answers to the whole task get worse) -> setting of this table -> value that helps; None means raise it.
    remedies: ClassVar[dict[str, dict[str, Any]]] = {}

    @field_validator("*", mode="before")
    @classmethod
    def _split_list(cls, value: Any, info: ValidationInfo) -> Any:
        """Accept a string for a list: words separated by commas; a shell takes the quotes of [a, b]."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, str) and value and get_origin(field.annotation) is list:
            bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
            return [word.strip() for word in bare.split(",")]
        return value

    @field_validator("*")
    @classmethod
    def _check_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        most = LARGEST_SEED if info.field_name == "seed" else LARGEST
        if type(value) is int and value > most:  # loops over it would never end
            raise ValueError(f"expected a whole number of at most {most:,}")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and "\0" in text:  # no file or server can be named so
                raise ValueError("expected a text without null characters")
        return value


class ModelSettings(Section):
    path: str = Field("pocket", min_length=1, description="pocket, a folder, a GGUF file or a hub id")
    adapter: str = Field("", description="a PEFT adapter to start from; empty for a fresh one")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="of the base weights")
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="sdpa (in scoring on a GPU: compiled flex_attention) or eager"
    )
    quantize: Literal["none", "nf4", "int8"] = Field("none", description="base weights in 4 or 8 bits (GPU)")


class ChatSettings(Section):
    history: Literal["template", "verbatim"] = Field(
        "template", description="earlier replies as the chat template renders them, or as they were sampled"
    )
    thinking: bool = Field(False, description="let models with a thinking mode think")


class DataSettings(Section):
    train: str = Field("pocket:train", min_length=1, description='training examples: file or "pocket:train"')
    eval: str = Field("pocket:eval", min_length=1, description='evaluation examples: file or "pocket:eval"')
    train_limit: int = Field(0, ge=0, description="use only the first N training examples; 0 = all")
    cluster: int = Field(1, ge=1, description="examples of one system prompt drawn in a row, sharing a pass")
    verifiers: list[str] = Field([], description="Python files with @verifier functions")
    databases: str = Field("", description="database task: folder with ID/ID.sqlite; empty = generated ones")


class RolloutSettings(Section):
    batch: int = Field(64, ge=1, description="conversations in one generate call")
    temperature: float = Field(1.0, gt=0, description="sampling temperature")
    top_p: float = Field(0.95, gt=0, le=1, description="nucleus sampling; 1 = off")
    top_k: int = Field(20, ge=0, description="sample among the k most likely tokens; 0 = off")
    merge: bool = Field(False, description="sample with the adapter merged: faster, more memory")
    ahead: int = Field(1, ge=1, le=1000, description="steps sampled together, see docs/staleness.md")
    overlap: bool = Field(False, description="servers: sample the next block while this one is trained")
    middle_tokens: int = Field(256, ge=1, le=1_000_000, description="token limit of a middle reply")
    answer_tokens: int = Field(1024, ge=1, le=1_000_000, description="token limit of an answer or FULL reply")


class EngineSettings(Section):
    kind: str = Field(
        "hf",
        description="auto (vllm where there is a GPU and vLLM, else hf), hf, vllm, vllm-http, openai "
        "(evaluation), or your own Python file",
    )
    cache_mb: int = Field(4096, ge=0, description="hf: size of the KV cache kept between turns; 0 = none")
    servers: list[str] = Field([], description="vllm-http, openai: base URLs, e.g. http://host:8000")
    model: str = Field("", description="openai: the served model's name; empty = the endpoint's first")
    api_key_env: str = Field(
        "OPENAI_API_KEY", description="servers: environment variable of the API key, which is never written"
    )
    concurrency: int = Field(64, ge=1, le=10_000, description="servers: concurrent requests per server")
    timeout: float = Field(600.0, gt=0, description="servers: timeout of a request, in seconds")
    retries: int = Field(5, ge=0, description="servers: retries of failed requests, with exponential backoff")
    adapters: str = Field("", description="vllm-http: folder all servers can read; empty = in the run folder")
    memory: float = Field(0.3, gt=0, le=1, description="vllm: fraction of the GPU's memory it may use")
    max_length: int = Field(0, ge=0, description="vllm: maximum tokens of context and reply; 0 = the model's")
    args: list[str] = Field([], description='vllm: its further arguments, such as "tensor_parallel_size=2"')
    sleep: bool = Field(False, description="vllm: release the GPU's memory while training")
    gap_warning: float = Field(
        0.05, gt=0, description="warn if sampling and training log-probabilities differ by more, nats a token"
    )

    @field_validator("kind")
    @classmethod
    def _check_engine_kind(cls, kind: str) -> str:
        if kind in ENGINES or kind.endswith(".py"):
            return kind
        raise ValueError(f"expected one of {', '.join(ENGINES)}, or your own Python file (docs/extending.md)")


class LoraSettings(Section):
    r: int = Field(64, ge=1, le=8192, description="rank")
    alpha: int = Field(128, ge=1, description="scale, divided by the rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in front of the adapter")
    targets: list[str] = Field(PROJECTIONS, min_length=1, description="linear layers that get an adapter")


class TeacherSettings(Section):
    """The teacher: a moving average of the student's adapter."""

    decay: float = Field(0.99, ge=0, le=1, description="decay of the moving average")
    every: int = Field(1, ge=1, description="steps between teacher updates")


class OptimSettings(Section):
    lr: float = Field(5e-6, gt=0, description="peak learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="learning rate schedule after the warm-up"
    )
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    grad_clip: float = Field(1.0, ge=0, description="maximum gradient norm; 0 = off")


class TrainSettings(Section):
    steps: int = Field(100, ge=1, description="optimizer steps")
    rollouts: int = Field(8, ge=1, le=100_000, description="examples rolled out for one step")
    micro_batch: int = Field(1, ge=1, description="rollouts scored at once; changes memory and speed alone")
    row_tokens: int = Field(2048, ge=1, description="tokens per scoring pass; changes memory and speed alone")
    recompute: bool = Field(False, description="gradient checkpointing: less memory, more computation")
    checkpoint_every: int = Field(10, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="number of latest checkpoints kept on disk")
    save_rollouts: bool = Field(True, description="write every rollout into the run folder")
    save_tokens: bool = Field(False, description="log statistics of every token, see docs/view.md")
    alternatives: int = Field(5, ge=1, description="top-k alternatives logged per token and model")
    max_skipped: int = Field(5, ge=1, description="stop after N consecutive steps without a gradient")
    shard: bool = Field(False, description="shard the frozen weights across processes (FSDP2)")
    eval_every: int = Field(0, ge=0, description="steps between evaluations while training; 0 = none")
    eval_limit: int = Field(50, ge=1, description="evaluation examples used while training")
    teacher_every: int = Field(
        0, ge=0, description="steps between measurements of the teacher's own middle replies; 0 = none"
    )
    patience: int = Field(0, ge=0, description="early-stopping patience, in evaluations; 0 disables it")
    trackers: list[Literal["tensorboard", "trackio", "wandb"]] = Field([], description="metrics trackers")


class EvalSettings(Section):
    limit: int = Field(0, ge=0, description="use only the first N examples; 0 = all")
    batch: int = Field(64, ge=1, description="conversations in one generate call")
    tokens: int = Field(1024, ge=1, le=1_000_000, description="token limit of an answer reply")
    middle_tokens: int = Field(1024, ge=1, le=1_000_000, description="token limit of a middle reply")
    temperature: float = Field(0.0, ge=0, description="0 = greedy")
    views: list[Literal["full", "concat", "sharded", "recap", "snowball", "simulated", "teacher"]] = Field(
        ["full", "sharded"], min_length=1, description="views to play, see docs/evaluation.md"
    )
    clean: Literal["method", "separate", "merged", "goal-last"] = Field(
        "method", description="view teacher: form of the user turns; method = as in training"
    )
    runs: int = Field(1, ge=1, description="times each conversation is played, with different seeds")
    save_tokens: bool = Field(False, description="hf: log statistics of every reply token, see docs/view.md")
    save_tokens_limit: int = Field(0, ge=0, description="log tokens of the first N examples only; 0 = all")
    alternatives: int = Field(5, ge=1, description="top-k alternatives logged per token")


class UserSettings(Section):
    """The model that plays the user in the view simulated: any chat endpoint."""

    servers: list[str] = Field([], description="base URLs, e.g. http://host:8000")
    model: str = Field("", description="the served model's name; empty = the endpoint's first")
    api_key_env: str = Field("OPENAI_API_KEY", description="environment variable with the key")
    concurrency: int = Field(16, ge=1, le=10_000, description="concurrent requests per server")
    timeout: float = Field(600.0, gt=0, description="timeout of a request, in seconds")
    retries: int = Field(3, ge=0, description="retries of a failed request or an unusable answer")
    temperature: float = Field(1.0, ge=0, description="of the user's messages; all else is greedy")


class Settings(Section):
    seed: int = Field(42, ge=0, description="every random choice of the run derives from it")
    model: ModelSettings = Field(default_factory=ModelSettings)
    chat: ChatSettings = Field(default_factory=ChatSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    rollout: RolloutSettings = Field(default_factory=RolloutSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    lora: LoraSettings = Field(default_factory=LoraSettings)
    teacher: TeacherSettings = Field(default_factory=TeacherSettings)
    optim: OptimSettings = Field(default_factory=OptimSettings)
    train: TrainSettings = Field(default_factory=TrainSettings)
    eval: EvalSettings = Field(default_factory=EvalSettings)
    user: UserSettings = Field(default_factory=UserSettings)
