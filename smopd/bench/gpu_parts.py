"""What `bench gpu` runs: each part of a training step on one device, by our path and by others.

A variant is made by a function that returns the work to time, which returns facts about its result. Shapes: N
tokens, d width, V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, Qwen3Config

from smopd.bench import scoring, step, trl
from smopd.bench.head import Head, make_problem
from smopd.bench.replies import renderer_of
from smopd.chat import Renderer
from smopd.config import load_config
from smopd.data import Example, load_examples
from smopd.models.adapters import attach
from smopd.pocket import MODEL_DIR
from smopd.rollout import Driver, Sampling
from smopd.rollout.assembly import make_engine
from smopd.rollout.engine import Engine
from smopd.rollout.stock import StockEngine
from smopd.scoring import gjs, plain, token_stats

Work = Callable[[], dict[str, Any]]
Make = Callable[[], Work]
OURS = "ours"
BETA = 0.5
DISTANCES = (0.01, 0.1, 1.0)  # of the teacher's hidden states from the student's, for the precision
TURNS = 5


@dataclass(frozen=True)
class Size:
    """A model's shape and how much goes through it."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    head_tokens: int  # rows of the head
    precision_tokens: int
    conversations: int  # of five turns
    reply: int  # tokens of every reply
    against_trl: trl.Steps  # the whole step, in TRL's trainer too
    attention_layers: int = 4


SIZES = {
    "tiny": Size(
        32, 2, 4, 2, 8, 64, 896, 48, 8, 2, 6,
        trl.Steps(conversations=2, reply=4, layers=1, width=18, vocabulary=896, rank=4), attention_layers=1,
    ),
    # Qwen3-0.6B and Qwen3-1.7B; SmolLM2-135M in TRL's trainer
    "small": Size(1024, 28, 16, 8, 128, 3072, 151936, 2048, 64, 4, 128, trl.Steps()),
    "full": Size(2048, 28, 16, 8, 128, 6144, 151936, 4096, 64, 8, 192, trl.Steps(8, reply=192)),
}  # fmt: skip


class Variant(NamedTuple):
    """A row of the report; `missing` says why it cannot run here."""

    part: str
    name: str
    make: Make
    missing: str = ""


@dataclass
class Bench:
    """A size on a device, in a precision of the weights."""

    size: Size
    device: torch.device
    dtype: torch.dtype
    seed: int = 0
    opened: ExitStack = field(default_factory=ExitStack)  # what a variant holds until it is measured

    def close(self) -> None:
        """End what the variants made so far have started."""
        self.opened.close()

    def variants(self) -> Iterator[Variant]:
        """Everything that is timed; in each part ours comes first."""
        for name, missing in head_variants(self.device).items():
            yield Variant("head", name, lambda name=name: self.head(name), missing)  # type: ignore[misc]
        yield Variant("attention", OURS, lambda: self.attention("packed"))
        yield Variant("attention", "padded rows", lambda: self.attention("padded"))
        yield Variant("scoring step", OURS, lambda: self.step("fast"))
        yield Variant("scoring step", "plain", lambda: self.step("plain"))
        yield Variant("training step", OURS, lambda: self.training(trl.OurStep))
        absent = "" if find_spec("trl") and find_spec("datasets") else "trl is not installed"
        yield Variant("training step", "trl", lambda: self.training(trl.TrlStep), absent)
        yield Variant("rollout", OURS, lambda: self.rollout("hf"))
        yield Variant("rollout", "generate", lambda: self.rollout("stock"))
        yield Variant("rollout", "vllm", lambda: self.rollout("vllm"), missing_vllm(self.device))

    @cached_property
    def renderer(self) -> Renderer:
        """The pocket model's chat template: its tokens are there without a download."""
        return renderer_of(MODEL_DIR)

    @cached_property
    def examples(self) -> list[Example]:
        """Five-turn conversations."""
        fitting = [e for e in load_examples("pocket:eval:400") if len(e.shards) == TURNS]
        return fitting[: self.size.conversations]

    def head(self, name: str) -> Work:
        """From hidden states to the gradient of the mean divergence."""
        rows = Head(
            tokens=self.size.head_tokens, width=self.size.hidden, vocabulary=self.size.vocabulary,
            seed=self.seed,
        )  # fmt: skip
        problem = make_problem(rows)
        student_Nd, teacher_Nd, weight_Vd = (
            t.detach().to(self.device, self.dtype)
            for t in (problem.student_Nd, problem.teacher_Nd, problem.weight_Vd)
        )
        tokens_N = problem.tokens_N.to(self.device)

        def run() -> dict[str, Any]:
            rows_Nd = student_Nd.clone().requires_grad_()
            loss = mean_divergence(name, rows_Nd, teacher_Nd, weight_Vd, tokens_N)
            loss.backward()
            return {"loss": loss.item()}

        return run

    def model(self, layers: int) -> PreTrainedModel:
        """A random model of the size, made where it is needed."""
        torch.manual_seed(self.seed)
        size = self.size
        shape = Qwen3Config(
            hidden_size=size.hidden, num_hidden_layers=layers, num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads, head_dim=size.head_dim, intermediate_size=size.intermediate,
            vocab_size=size.vocabulary, tie_word_embeddings=True, max_position_embeddings=32768,
        )  # fmt: skip
        with torch.device(self.device):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                shape, dtype=self.dtype, trust_remote_code=False
            )
        return model

    def attention(self, path: str) -> Work:
        """Passes of the student, forward and backward, through a few layers: packed rows, or padded ones."""
        body: Any = self.model(self.size.attention_layers).base_model
        body.embed_tokens.weight.requires_grad_(False)
        sequences = scoring.sequences_of(self.renderer, self.examples, self.size.reply, self.seed)
        problem = scoring.Problem(body, sequences, 8192 if path == "packed" else None, self.device)

        def run() -> dict[str, Any]:
            value = problem.run("student", path).item()
            body.zero_grad(set_to_none=True)
            return {"value": value}

        return run

    def step(self, path: str) -> Work:
        """Both passes, the head and backward for a step's rollouts, with adapters, one rollout at a time."""
        config = load_config(None, ["train.row_tokens=8192"])
        model = attach(self.model(self.size.layers), config.lora, self.seed)
        step.leave_teacher(model, self.seed)
        rollouts = step.given_rollouts(self.renderer, self.examples, self.size.reply, self.seed)
        problem = step.Problem(config, model, self.renderer, rollouts)

        def run() -> dict[str, Any]:
            loss = problem.run(path)
            model.zero_grad(set_to_none=True)
            return {"loss": loss}

        return run

    def training(self, kind: type[trl.OurStep] | type[trl.TrlStep]) -> Work:
        """A whole step of SDFT, sampling included, in float32."""
        whole = kind(self.size.against_trl)

        def run() -> dict[str, Any]:
            whole.sampled, whole.sampling_seconds = 0, 0.0
            return {**whole.run(), "sampled_tokens": whole.sampled}

        return run

    def rollout(self, kind: str) -> Work:
        """Conversations played to their end by one engine; no adapter."""
        model = self.model(self.size.layers).eval()
        folder = self.opened.enter_context(TemporaryDirectory(prefix="smopd-bench-"))
        ids = list(self.renderer.end_ids)
        if kind == "stock":
            engine: Engine = StockEngine(model, ids, self.size.conversations)
        else:
            words = [f"engine.kind={kind}", f"model.dtype={str(self.dtype).removeprefix('torch.')}"]
            if kind == "vllm":
                model.save_pretrained(folder)
                AutoTokenizer.from_pretrained(str(MODEL_DIR), trust_remote_code=False).save_pretrained(folder)
                words += [f"model.path={folder}", "engine.max_length=8192", "engine.memory=0.5"]
                model = model.cpu()
            config = load_config(None, words)
            engine = make_engine(config, self.renderer, self.size.conversations, Path(folder), model)
        self.opened.callback(engine.close)
        reply, calls = self.size.reply, count()
        driver = Driver(engine, self.renderer, Sampling(1.0, reply, 1.0, 0), reply)

        def run() -> dict[str, Any]:
            # Another seed every time: replies that were sampled before may stand in a cache.
            played = driver.play(self.examples, "sharded", (self.seed, "bench", next(calls)))
            return {"sampled_tokens": sum(len(turn.reply) for c in played for turn in c.turns)}

        return run

    def precision(self) -> Iterator[dict[str, Any]]:
        """Errors of every head against float64 from the same hidden states, by the size of the divergence."""
        for distance in DISTANCES:
            g = torch.Generator().manual_seed(self.seed)
            rows, width = self.size.precision_tokens, self.size.hidden
            student_Nd = 6 * torch.randn(rows, width, generator=g)
            teacher_Nd = student_Nd + distance * torch.randn(rows, width, generator=g)
            weight_Vd = torch.randn(self.size.vocabulary, width, generator=g) / width**0.5
            rounded = [t.to(self.device, self.dtype) for t in (student_Nd, teacher_Nd, weight_Vd)]
            tokens_N = torch.zeros(rows, dtype=torch.long, device=self.device)
            truth, slope = _with_gradient("plain", [t.double() for t in rounded], tokens_N)
            for name, missing in head_variants(self.device).items():
                row: dict[str, Any] = {"name": name, "divergence": truth.item()}
                if missing:
                    yield row | {"skipped": missing}
                    continue
                value, gradient = _with_gradient(name, rounded, tokens_N)
                row["value_error"] = ((value - truth).abs() / truth).item()
                yield row | {"gradient_error": ((gradient - slope).norm() / slope.norm()).item()}


def _with_gradient(
    name: str, inputs: list[torch.Tensor], tokens_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean divergence and its gradient by the student's rows, in float64."""
    student_Nd = inputs[0].clone().requires_grad_()
    loss = mean_divergence(name, student_Nd, inputs[1], inputs[2], tokens_N)
    (gradient,) = torch.autograd.grad(loss, student_Nd)
    return loss.detach().double(), gradient.double()


def mean_divergence(
    name: str,
    student_Nd: torch.Tensor,
    teacher_Nd: torch.Tensor,
    weight_Vd: torch.Tensor,
    tokens_N: torch.Tensor,
) -> torch.Tensor:
    """The mean over all tokens of GJS at beta 1/2, by one of the heads: what all of them can compute."""
    if name == "trl":
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

        arguments = (student_Nd, weight_Vd, None, teacher_Nd, weight_Vd, None, BETA)
        divergence_N: torch.Tensor = ChunkedDivergenceFunction.apply(*arguments)[0]
        return divergence_N.mean()
    if name == "liger":
        from liger_kernel.transformers import LigerFusedLinearJSD

        loss: torch.Tensor = LigerFusedLinearJSD(jsd_beta=BETA)(
            student_Nd, weight_Vd, teacher_Nd, weight_Vd, None
        )
        return loss
    function = token_stats if name == OURS else plain.token_stats
    (stats,) = function(student_Nd, teacher_Nd, weight_Vd, tokens_N, [gjs(BETA)])
    return stats.divergence.mean()


def head_variants(device: torch.device) -> dict[str, str]:
    """The heads by name, and why one is missing here."""
    liger = "" if device.type == "cuda" else "runs on GPUs only"
    return {
        OURS: "",
        "plain": "",
        "trl": "" if find_spec("trl") else "trl is not installed",
        "liger": liger if find_spec("liger_kernel") else "liger_kernel is not installed",
    }


def missing_vllm(device: torch.device) -> str:
    """Why vLLM cannot sample here; empty where it can."""
    if not find_spec("vllm"):
        return "vllm is not installed"
    return "" if device.type == "cuda" else "no GPU"
