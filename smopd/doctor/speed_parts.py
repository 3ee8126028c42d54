"""What `smopd doctor --speed` measures: each part of a training step on one device, by our path and others.

A variant's function returns the work to time, which returns facts on its result. N tokens, d width, V
vocabulary.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, Qwen3Config

from smopd.chat import DirtyContext, Renderer
from smopd.config import load_config, plan_of
from smopd.data import Example, load_examples
from smopd.devices import using
from smopd.models.adapters import attach, student_parameters
from smopd.objective.tokens import Moment
from smopd.planning.shapes import SHAPES, Shape
from smopd.pocket import MODEL_DIR
from smopd.rollout import Conversation, Driver, Engine, Rollout, Sampling, Stop, Turn
from smopd.rollout.assembly import make_engine
from smopd.rollout.hf import StockEngine
from smopd.runs.writer import RunFolder
from smopd.scoring import gjs, passes, plain, token_stats
from smopd.seeds import rng, torch_generator
from smopd.training.loop import Trainer
from smopd.training.scores import FAST, PLAIN, ScoringPath, score
from smopd.verify import verify

Work = Callable[[], dict[str, Any]]
OURS = "ours"
BETA = 0.5
DISTANCES = (0.01, 0.1, 1.0)  # of the teacher's hidden states from the student's, for the precision
TURNS, ROW_TOKENS = 5, 8192


@dataclass(frozen=True)
class Size:
    shape: Shape
    head_tokens: int  # rows of the head
    precision_tokens: int
    conversations: int  # of five turns
    reply: int  # tokens of every reply
    attention_layers: int = 4


SIZES = {
    "tiny": Size(Shape(32, 2, 4, 2, 8, 64, 896, tied=True, normed=True), 48, 8, 2, 6, attention_layers=1),
    "small": Size(SHAPES[r"qwen3-0\.6b"], 2048, 64, 4, 128),
    "full": Size(SHAPES[r"qwen3-1\.7b"], 4096, 64, 8, 192),
}


class Variant(NamedTuple):
    """A row of the report; `missing` says why it cannot run here."""

    part: str
    name: str
    make: Callable[[], Work]
    missing: str = ""


def pocket_renderer() -> Renderer:
    """The chat template of the pocket model, which needs no download."""
    return Renderer(AutoTokenizer.from_pretrained(str(MODEL_DIR), trust_remote_code=False))


@dataclass
class SpeedBench:
    size: Size
    device: torch.device
    dtype: torch.dtype
    seed: int = 0
    renderer: Renderer = field(default_factory=pocket_renderer)
    opened: ExitStack = field(default_factory=ExitStack)  # resources of the current variant

    def variants(self) -> Iterator[Variant]:
        for name, missing in head_variants(self.device).items():
            yield Variant("head", name, lambda name=name: self.head(name), missing)  # type: ignore[misc]
        yield Variant("attention", OURS, lambda: self.attention("packed"))
        yield Variant("attention", "padded rows", lambda: self.attention("padded"))
        yield Variant("scoring step", OURS, lambda: self.scoring(FAST))
        yield Variant("scoring step", "plain", lambda: self.scoring(PLAIN))
        yield Variant("training step", OURS, self.training)
        yield Variant("training step", "trl", self.training, "in a checkout: python -m benchmarks gpu")
        yield Variant("rollout", OURS, lambda: self.rollout("hf"))
        yield Variant("rollout", "generate", lambda: self.rollout("stock"))
        yield Variant("rollout", "vllm", lambda: self.rollout("vllm"), missing_vllm(self.device))

    @cached_property
    def examples(self) -> list[Example]:
        fitting = [e for e in load_examples("pocket:eval:400") if len(e.shards) == TURNS]
        return fitting[: self.size.conversations]

    @cached_property
    def rollouts(self) -> list[Rollout]:
        return random_rollouts(self.renderer, self.examples, self.size.reply, self.seed)

    def head(self, name: str) -> Work:
        """From hidden states to the gradient of the mean divergence."""
        rows = self.rows(self.size.head_tokens)
        return lambda: {"loss": _differentiate(name, *rows)[0].item()}

    def rows(self, count: int, distance: float | None = None) -> list[Tensor]:
        """The inputs of a head, on the device: hidden states of student and teacher, weights, tokens."""
        shape = self.size.shape
        *rows, tokens_N = random_rows(count, shape.hidden, shape.vocabulary, self.seed, distance)
        return [*(t.to(self.device, self.dtype) for t in rows), tokens_N.to(self.device)]

    def model(self, layers: int) -> PreTrainedModel:
        torch.manual_seed(self.seed)
        shape = self.size.shape
        config = Qwen3Config(
            hidden_size=shape.hidden, num_hidden_layers=layers, num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.intermediate,
            vocab_size=shape.vocabulary, tie_word_embeddings=True, max_position_embeddings=32768,
        )  # fmt: skip
        with torch.device(self.device):
            return AutoModelForCausalLM.from_config(config, dtype=self.dtype, trust_remote_code=False)

    def attention(self, path: str) -> Work:
        """Forward and backward of the student through a few layers, in packed or padded rows."""
        body: Any = self.model(self.size.attention_layers).base_model
        body.embed_tokens.weight.requires_grad_(False)
        conversations = [[(reply.context, reply.tokens) for reply in r.replies()] for r in self.rollouts]

        def run() -> dict[str, Any]:
            if path == "packed":
                turns = [turn for c in conversations for turn in c]
                hidden_Nd = passes.reply_hidden(body, turns, self.device, row_tokens=ROW_TOKENS)
            else:
                rows = [plain.reply_hidden(body, c, self.device, sys.maxsize) for c in conversations]
                hidden_Nd = torch.cat(rows)
            value = hidden_Nd.square().mean()
            value.backward()
            body.zero_grad(set_to_none=True)
            return {"value": value.item()}

        return run

    def scoring(self, path: ScoringPath) -> Work:
        """Both passes, the head and backward for a step's rollouts, with adapters, one rollout at a time."""
        config = load_config(None, [])
        model = attach(self.model(self.size.shape.layers), config.lora, self.seed)
        move_student(model, self.seed)
        plan, moment = plan_of(config), Moment(1, 1, (self.seed, 1))
        renderer, rollouts = self.renderer, self.rollouts

        def run() -> dict[str, Any]:
            total = 0.0
            for rollout in rollouts:
                (loss,) = score(model, renderer, [rollout], plan, moment, row_tokens=ROW_TOKENS, path=path)
                (loss.total / len(rollouts)).backward()
                total += loss.total.item() / len(rollouts)
            model.zero_grad(set_to_none=True)
            return {"loss": total}

        return run

    def training(self) -> Work:
        """A whole step of `smopd train`: sampling, verdicts, scoring, update."""
        folder = Path(self.opened.enter_context(TemporaryDirectory(prefix="smopd-bench-")))
        reply, path = self.size.reply, save_model(self.model(self.size.shape.layers), folder / "model")
        config = load_config(
            None,
            [f"model.path={path}", f"model.dtype={str(self.dtype).removeprefix('torch.')}",
             "data.train=pocket:train:64", "engine.kind=hf", f"train.rollouts={self.size.conversations}",
             "train.save_rollouts=false", f"rollout.middle_tokens={reply}", f"rollout.answer_tokens={reply}"],
        )  # fmt: skip
        with using(self.device):
            trainer = Trainer(config, RunFolder(folder / "run", config))

        def run() -> dict[str, Any]:
            with using(self.device):
                row = trainer.take_step(1, nullcontext)
            return {"loss": row["loss"], "sampled_tokens": row["tokens/sampled"]}

        return run

    def rollout(self, kind: str) -> Work:
        """Conversations played to their end by one engine, without an adapter."""
        model = self.model(self.size.shape.layers).eval()
        folder = self.opened.enter_context(TemporaryDirectory(prefix="smopd-bench-"))
        if kind == "stock":
            engine: Engine = StockEngine(model, list(self.renderer.end_ids), self.size.conversations)
        else:
            overrides = [f"engine.kind={kind}", f"model.dtype={str(self.dtype).removeprefix('torch.')}"]
            if kind == "vllm":
                path = save_model(model, Path(folder))
                overrides += [f"model.path={path}", "engine.max_length=8192", "engine.memory=0.5"]
                model = model.cpu()
            config = load_config(None, overrides)
            engine = make_engine(config, self.renderer, self.size.conversations, Path(folder), model)
        self.opened.callback(engine.close)
        reply, examples, calls = self.size.reply, self.examples, count()
        driver = Driver(engine, self.renderer, Sampling(1.0, reply, 1.0, 0), reply)

        def run() -> dict[str, Any]:
            # A new seed every time, since an engine may cache the replies it has sampled.
            played = driver.play(examples, "sharded", (self.seed, "bench", next(calls)))
            return {"sampled_tokens": sum(len(turn.reply) for c in played for turn in c.turns)}

        return run

    def precision(self) -> Iterator[dict[str, Any]]:
        """Errors of every head against float64 from the same hidden states, by the size of the divergence."""
        for distance in DISTANCES:
            *rows, tokens_N = self.rows(self.size.precision_tokens, distance)
            truth, slope = _differentiate("plain", *(t.double() for t in rows), tokens_N)
            for name, missing in head_variants(self.device).items():
                row: dict[str, Any] = {"name": name, "divergence": truth.item()}
                if missing:
                    yield row | {"skipped": missing}
                    continue
                value, gradient = (t.double() for t in _differentiate(name, *rows, tokens_N))
                row["value_error"] = ((value - truth).abs() / truth).item()
                yield row | {"gradient_error": ((gradient - slope).norm() / slope.norm()).item()}


def save_model(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    pocket_renderer().tokenizer.save_pretrained(folder)
    return folder


def _differentiate(name: str, student_Nd: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Mean divergence and its gradient by the student's rows."""
    rows_Nd = student_Nd.clone().requires_grad_()
    loss = mean_divergence(name, rows_Nd, *others)
    (gradient,) = torch.autograd.grad(loss, rows_Nd)
    return loss.detach(), gradient


def mean_divergence(
    name: str, student_Nd: Tensor, teacher_Nd: Tensor, weight_Vd: Tensor, tokens_N: Tensor
) -> Tensor:
    """The mean GJS at beta 1/2 over all tokens, which every head can compute."""
    if name == "trl":
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

        arguments = (student_Nd, weight_Vd, None, teacher_Nd, weight_Vd, None, BETA)
        return ChunkedDivergenceFunction.apply(*arguments)[0].mean()
    if name == "liger":
        from liger_kernel.transformers import LigerFusedLinearJSD

        fused: Any = LigerFusedLinearJSD(jsd_beta=BETA)
        return fused(student_Nd, weight_Vd, teacher_Nd, weight_Vd, None)
    function = token_stats if name == OURS else plain.token_stats
    (stats,) = function(student_Nd, teacher_Nd, weight_Vd, tokens_N, [gjs(BETA)])
    return stats.divergence.mean()


def head_variants(device: torch.device) -> dict[str, str]:
    """The heads by name, with the reason if one is missing here."""
    trl = "" if find_spec("trl") else "trl is not installed"
    liger = "" if device.type == "cuda" else "runs on GPUs only"
    liger = liger if find_spec("liger_kernel") else "liger_kernel is not installed"
    return {OURS: "", "plain": "", "trl": trl, "liger": liger}


def missing_vllm(device: torch.device) -> str:
    if not find_spec("vllm"):
        return "vllm is not installed"
    return "" if device.type == "cuda" else "no GPU"


def random_rows(
    tokens: int, width: int, vocabulary: int, seed: int, distance: float | None = None
) -> tuple[Tensor, ...]:
    """Student and teacher [N, d], mostly close or at one distance, head [V, d], tokens [N]."""
    g = torch_generator(seed, "bench head")
    weight_Vd = torch.randn(vocabulary, width, generator=g) / width**0.5
    # The scale of a row is the standard deviation of its logits: with 8, only a few tokens are likely.
    student_Nd = torch.randn(tokens, width, generator=g) * (4 + 4 * torch.rand(tokens, 1, generator=g))
    # Squared, so that most teachers are close, and a few so far that the divergence exceeds the clip.
    distance_N1 = 4 * torch.rand(tokens, 1, generator=g) ** 2 if distance is None else distance
    teacher_Nd = student_Nd + distance_N1 * torch.randn(tokens, width, generator=g)
    return student_Nd, teacher_Nd, weight_Vd, torch.randint(vocabulary, (tokens,), generator=g)


def random_reply(renderer: Renderer, length: int, *seed: int | str) -> tuple[int, ...]:
    """Random ordinary tokens: no special ones, and no parts of a character."""
    tokenizer = renderer.tokenizer
    draw = rng(*seed, "bench reply")
    special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    reply: list[int] = []
    while len(reply) < length:
        token = draw.randrange(len(tokenizer))
        text = renderer.decode([token])
        if token not in special and text.strip() and "\ufffd" not in text:
            reply.append(token)
    return tuple(reply)


def random_conversation(
    renderer: Renderer, example: Example, length: int, seed: int, history: str = "template"
) -> Conversation:
    """An example told shard by shard, with a new reply of `length` random tokens in every turn."""
    conversation = Conversation(example, "sharded")
    context = DirtyContext(renderer, example, "verbatim" if history == "verbatim" else "template")
    for number, user in enumerate(example.shards):
        asked = context.ask(user)
        reply = random_reply(renderer, length, seed, example.id, number)
        context.answer(reply)
        conversation.asked.append(user)
        conversation.turns.append(Turn(tuple(asked), reply, Stop.LENGTH, renderer.decode(reply)))
    return conversation


def random_rollouts(renderer: Renderer, examples: Iterable[Example], reply: int, seed: int) -> list[Rollout]:
    conversations = [random_conversation(renderer, example, reply, seed) for example in examples]
    return [Rollout(c.example, (c,), (verify(c.example, c.final_text),)) for c in conversations]


@torch.no_grad()
def move_student(model: PeftModel, seed: int) -> None:
    """Move the student away from its teacher, since the loss of equal models is 0."""
    g = torch_generator(seed, "bench student")
    for parameter in student_parameters(model).values():
        parameter.add_((0.03 * torch.randn(parameter.shape, generator=g)).to(parameter))
    model.train()
