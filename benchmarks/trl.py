"""`benchmarks trl`: one whole training step of SDFT, by smopd's loop and by TRL's SDFTTrainer.

Both sample as many tokens, each with its own machinery: ours turn by turn with its own replies in the
history, TRL's every turn as a prompt of its own, with a history that somebody else wrote. Then both score the
same given replies under the same contexts with the same weights, so that loss and gradient can be compared,
and make the same update: GJS with beta 1/2 over the whole vocabulary, AdamW, the moving average.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.measure import Work, ratios, report_of
from smopd.config import Config, load_config, plan_of
from smopd.data import Example, load_examples
from smopd.doctor.speed_parts import pocket_renderer, random_conversation, save_model
from smopd.errors import UserError
from smopd.methods.sdft import METHODS as SDFTS
from smopd.models.adapters import student_parameters, teacher_parameters
from smopd.objective.scoring_requests import scoring_requests
from smopd.objective.tokens import Moment
from smopd.pocket import MODEL_DIR
from smopd.rollout import Conversation, Rollout
from smopd.rollout.play import Peers
from smopd.runs.writer import RunFolder
from smopd.seeds import torch_generator
from smopd.settings import PROJECTIONS
from smopd.tracking import Track, quiet
from smopd.training.loop import Trainer
from smopd.training.player import StepConversations

DATA = "pocket:eval:400"
HEADS = 9  # of SmolLM2, three of them for keys and values
RATE, DECAY, BETA = 1e-4, 0.99, 0.5
OURS, TRL = "ours", "trl"


@dataclass(frozen=True)
class Steps:
    """Conversations, and the model's shape: SmolLM2's unless told otherwise."""

    conversations: int = 4
    turns: int = 5
    reply: int = 48
    micro_batch: int = 1  # conversations differentiated at once, on both sides
    recompute: bool = False  # gradient checkpointing, on both sides
    sampling: bool = True
    layers: int = 30
    width: int = 576
    vocabulary: int = 49152
    rank: int = 16
    dtype: str = "float32"  # of the base
    seed: int = 0
    ahead: int = 1  # steps whose conversations we sample together


@dataclass(frozen=True)
class Scored:
    """One turn: what the student saw, what the teacher sees, and the reply that both score."""

    student: list[int]
    teacher: list[int]
    reply: list[int]


def chosen_examples(settings: Steps) -> list[Example]:
    """The first examples with that many turns."""
    fitting = [e for e in load_examples(DATA) if len(e.shards) == settings.turns]
    if len(fitting) < settings.conversations:
        there = f"{len(fitting)} conversations of {settings.turns} turns are there"
        raise UserError(f"--conversations: only {there}; lower it, or take 4 to 7 with --turns")
    return fitting[: settings.conversations]


def given_conversations(settings: Steps) -> list[Conversation]:
    """The conversations with the replies that both sides score."""
    renderer = pocket_renderer()
    make = partial(random_conversation, renderer, length=settings.reply, seed=settings.seed)
    return [make(example) for example in chosen_examples(settings)]


(SDFT,) = SDFTS


def training_config(settings: Steps, model: Path | None = None) -> Config:
    """Our recipe of the step; `model`: where its weights stand."""
    overrides = {
        "method": SDFT.name, "objective.beta": BETA, "seed": settings.seed, "data.train": DATA,
        "lora.r": settings.rank, "lora.alpha": 2 * settings.rank, "teacher.decay": DECAY, "optim.lr": RATE,
        "train.steps": settings.ahead, "rollout.ahead": settings.ahead,
        "train.rollouts": settings.conversations, "train.save_rollouts": False,
        "train.micro_batch": settings.micro_batch, "train.recompute": settings.recompute,
        "rollout.middle_tokens": settings.reply, "rollout.answer_tokens": settings.reply,
        "rollout.top_p": 1.0, "rollout.top_k": 0, "rollout.merge": True, "engine.kind": "hf",
        "model.path": str(model) if model else "pocket", "model.dtype": settings.dtype,
    }  # fmt: skip
    assignments = [f"{key}={str(v).lower() if isinstance(v, bool) else v}" for key, v in overrides.items()]
    return load_config(None, assignments)


def given_sequences(settings: Steps) -> list[Scored]:
    """Every turn of the given conversations, with the contexts that our plan shows student and teacher."""
    renderer, plan = pocket_renderer(), plan_of(training_config(settings))
    rollouts = [Rollout(c.example, (c,), (None,)) for c in given_conversations(settings)]
    moment = Moment(1, 1, (settings.seed, 1))
    replies, units, _ = scoring_requests([r.replies() for r in rollouts], plan, moment, Peers(rollouts))
    sequences = []
    for unit in units:
        reply, ((_, shown),) = replies[unit.reply], unit.contexts
        teacher = shown if isinstance(shown, tuple) else renderer.ids(shown)
        sequences.append(Scored(list(reply.context), list(teacher), list(reply.tokens)))
    return sequences


def random_model(settings: Steps) -> LlamaForCausalLM:
    """A model of SmolLM2's proportions, the same in every child."""
    torch.manual_seed(settings.seed)
    shape = LlamaConfig(
        vocab_size=settings.vocabulary, hidden_size=settings.width, tie_word_embeddings=True,
        intermediate_size=8 * settings.width // 3, num_hidden_layers=settings.layers,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 3, max_position_embeddings=8192,
    )  # fmt: skip
    return LlamaForCausalLM(shape)


@torch.no_grad()
def fill_student(parameters: dict[str, torch.nn.Parameter], seed: int) -> None:
    """A student that has left its teacher, the same on both sides: while they are equal there is no loss."""
    for name, parameter in parameters.items():
        g = torch_generator(seed, "bench student", name)
        size = 0.05 if "lora_B" in name else parameter.shape[1] ** -0.5
        parameter.copy_(size * torch.randn(parameter.shape, generator=g))


class OurStep:
    """One step of `smopd train --method sdft`."""

    def __init__(self, settings: Steps) -> None:
        self.settings, self.sampling_seconds, self.sampled = settings, 0.0, 0
        self._folder = TemporaryDirectory(prefix="smopd-bench-")
        folder = Path(self._folder.name)
        config = training_config(settings, save_model(random_model(settings), folder / "model"))
        self.trainer = Trainer(config, RunFolder(folder / "run", config))
        self.model = self.trainer.model
        fill_student(student_parameters(self.model), settings.seed)
        for parameter in teacher_parameters(self.model).values():
            parameter.data.zero_()  # TRL's teacher begins with no adapter at all
        # Nothing ends a reply but its length.
        self.trainer.engine.end_ids = []  # type: ignore[attr-defined]
        self._examples, self._play = chosen_examples(settings), self.trainer.player.play_block
        self.trainer.player.examples = self._examples
        self._given = {c.example.id: c for c in given_conversations(settings)}
        self.trainer.player.play_block = self._played  # type: ignore[method-assign]

    def _played(self, steps: Sequence[int]) -> list[StepConversations]:
        """Sample, and give the conversations that are to be scored."""
        if self.settings.sampling:
            began = time.process_time()
            played = self._play(steps)
            self.sampling_seconds = (time.process_time() - began) / len(steps)
            talks = [c for of_step in played for of_one in of_step for _, c in of_one]
            self.sampled = sum(len(turn.reply) for c in talks for turn in c.turns)
        return [[[(0, self._given[e.id])] for e in self.trainer.player.drawn(step)] for step in steps]

    def run(self) -> dict[str, float]:
        """Loss and gradient norm of the step."""
        row = self.trainer.take_step(1, nullcontext)
        return {"loss": row["loss"], "gradient_norm": row["grad_norm"]}


class TrlStep:
    """One step of TRL's SDFTTrainer on the same sequences."""

    def __init__(self, settings: Steps) -> None:
        self.settings, self.sampling_seconds, self.sampled = settings, 0.0, 0
        self._folder = TemporaryDirectory(prefix="smopd-bench-")
        self.trainer = trl_trainer(settings, self._folder.name, self._generated)
        self.model: Any = self.trainer.model
        part, named = ".default.", self.model.named_parameters()
        fill_student({n.replace(part, "."): p for n, p in named if part in n}, settings.seed)

    def _generated(self, generate: Callable[[], list[list[int]]]) -> None:
        if self.settings.sampling:
            began = time.process_time()
            replies = generate()
            self.sampling_seconds += time.process_time() - began
            self.sampled += sum(map(len, replies))

    def run(self) -> dict[str, float]:
        """Loss and gradient norm of the step."""
        loss = self.trainer.train().training_loss
        norm = next(row["grad_norm"] for row in self.trainer.state.log_history if "grad_norm" in row)
        return {"loss": loss, "gradient_norm": float(norm)}


def trl_trainer(settings: Steps, folder: str, generated: Callable[..., None]) -> Any:
    """TRL's trainer, given token ids where it would tokenise, and replies after it has sampled.

    Like ours: float32, no dropout, as many conversations differentiated at once.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import PrinterCallback
    from trl.experimental.sdft import SDFTConfig, SDFTTrainer

    sequences = given_sequences(settings)

    class Given(SDFTTrainer):
        def _tokenize_prompts(self, prompts: list[str]) -> list[list[int]]:
            # "student 3" or, as the trainer joins prompt and privileged context, "student 3\n\nteacher".
            sides = [("teacher" if "teacher" in p else "student", int(p.split()[1])) for p in prompts]
            return [getattr(sequences[number], side) for side, number in sides]

        def _generate(self, prompt_ids: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
            generated(lambda: super(Given, self)._generate(prompt_ids)[1])
            numbers = [next(k for k, s in enumerate(sequences) if s.student is ids) for ids in prompt_ids]
            return prompt_ids, [sequences[k].reply for k in numbers]

    rows = [{"prompt": f"student {k}", "privileged_context": "teacher"} for k in range(len(sequences))]
    batch = settings.micro_batch * settings.turns
    arguments = SDFTConfig(
        output_dir=folder, max_steps=1, per_device_train_batch_size=batch,
        gradient_accumulation_steps=len(sequences) // batch, num_generations=1, shuffle_dataset=False,
        max_prompt_length=None, max_completion_length=settings.reply,
        generation_kwargs={"min_new_tokens": settings.reply},  # nothing ends a reply but its length
        distillation_mode="full_logits", distillation_alpha=BETA, distillation_is_clip=None,
        teacher_model_kind="ema", teacher_update_rate=1 - DECAY, learning_rate=RATE, max_grad_norm=1.0,
        lr_scheduler_type="constant", gradient_checkpointing=settings.recompute, seed=settings.seed,
        use_cpu=not torch.cuda.is_available(), bf16=False, report_to="none", logging_steps=1,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    lora = LoraConfig(
        r=settings.rank, lora_alpha=2 * settings.rank, target_modules=PROJECTIONS, task_type="CAUSAL_LM"
    )
    trainer = Given(
        model=random_model(settings).to(getattr(torch, settings.dtype)),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(str(MODEL_DIR), trust_remote_code=False),
        peft_config=lora,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work; a variant is a side."""
    chosen = Steps(**settings)
    step: OurStep | TrlStep = OurStep(chosen) if variant == OURS else TrlStep(chosen)
    passed = 0

    def count(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal passed
        passed += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()

    def warm_up() -> None:
        body: Any = step.model.get_base_model().model
        body(input_ids=torch.arange(8, device=step.model.device)[None]).last_hidden_state.sum().backward()
        step.model.zero_grad(set_to_none=True)
        body.register_forward_pre_hook(count, with_kwargs=True)

    def facts(result: dict[str, float]) -> dict[str, Any]:
        replies = sum(len(s.reply) for s in given_sequences(chosen))
        counts = {"tokens": passed, "reply_tokens": replies, "sampled_tokens": step.sampled}
        return {**result, "sampling_seconds": step.sampling_seconds, **counts}

    return Work(warm_up, step.run, facts)


def report(settings: Steps, reps: int, track: Track = quiet) -> dict[str, Any]:
    """Measure both sides."""
    if find_spec("trl") is None or find_spec("datasets") is None:
        raise UserError("bench trl: TRL is not installed (pip install 'smopd[dev]')")
    chosen_examples(settings)  # what the user can mend is said before anything is measured
    if settings.conversations % settings.micro_batch:
        raise UserError("--micro-batch: has to divide --conversations")
    if settings.width % (2 * HEADS):  # rotary positions need heads of an even width
        raise UserError(f"--width: expected a multiple of {2 * HEADS}, found {settings.width}")
    report = report_of("trl", settings, reps, {OURS: [TRL]}, track)
    ours, trl = report["results"]
    if settings.ahead > 1:  # what was sampled for other steps is theirs
        ours["seconds"] -= (settings.ahead - 1) * ours["sampling_seconds"]
        report["ratios"][OURS] = ratios(ours, [trl])
    turns = settings.conversations * settings.turns
    work = (
        f"{settings.conversations} conversations of {settings.turns} turns, {settings.reply} tokens a reply"
    )
    alike = abs(ours["loss"] - trl["loss"]) <= 1e-3 * abs(trl["loss"])
    losses = f"loss {ours['loss']:.6f} and {trl['loss']:.6f}, gradient norm "
    losses += f"{ours['gradient_norm']:.6f} and {trl['gradient_norm']:.6f}"
    batch = f"{settings.micro_batch} of {settings.conversations} conversations differentiated at once"
    notes = [
        f"{work}; {batch}; recompute {'on' if settings.recompute else 'off'}",
        f"{losses}: {'the same work' if alike else 'they DIFFER'}",
        f"TRL {version('trl')}: SDFTTrainer, {turns} prompts with their history given; tokens: through the "
        "model, padding included",
    ]
    if settings.sampling:
        parts = [f"{row['sampling_seconds']:.2f} of {row['seconds']:.2f} s" for row in (ours, trl)]
        notes.append(f"sampling takes {parts[0]} (ours) and {parts[1]} (TRL); what is scored was given")
    return report | {"same_loss": alike, "trl": version("trl"), "notes": notes}
