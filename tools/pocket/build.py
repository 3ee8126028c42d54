"""Builds the pocket model from nothing and prints its accuracies. Up to 25 minutes on two cores.

    python -m tools.pocket.build --out runs/pocket-model

Plain next-token training on the replies of `dialogues`, deterministic for a seed and a machine; the result is
a Hugging Face folder. The package ships one, smopd/pocket/model, and needs nothing from here to use it.
"""

import argparse
import json
import os
import shutil
from dataclasses import asdict, dataclass
from itertools import islice
from math import cos, pi
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from smopd.config import load_config
from smopd.data.pocket_world import tasks
from smopd.evaluation.evaluate import prepared_examples
from smopd.evaluation.metrics import summarise
from smopd.evaluation.session import run_evaluation
from smopd.progress import track as show_progress
from smopd.seeds import derive, rng
from smopd.tracking import Track, Update, quiet
from smopd.viewer.terminal import summary_table
from tools.pocket.dialogues import Message, full_dialogue, mixed_dialogue, prefix_dialogue
from tools.pocket.tokenizer import END, PAD, train_tokenizer

IGNORED = -100


@dataclass(frozen=True)
class BuildSettings:
    """Everything that decides the weights."""

    seed: int = 0
    steps: int = 2400
    batch: int = 32
    tasks: int = 24_000
    lr: float = 2e-3
    warmup: int = 100
    label_smoothing: float = 0.03
    weight_decay: float = 0.05
    vocabulary: int = 840
    width: int = 128
    layers: int = 4
    threads: int = 2
    kinds: tuple[float, float] = (0.30, 0.30)  # complete tasks, clean prefixes; the rest are mixed dialogues


Row = tuple[list[int], list[int]]  # token ids, and the same with everything but replies ignored


def dialogues(settings: BuildSettings) -> list[list[Message]]:
    """One dialogue for each told task, of a kind drawn by `settings.kinds`."""
    written = []
    drawn = tasks("train", derive("pocket build", settings.seed) % 10**6)
    for index, item in enumerate(islice(drawn, settings.tasks)):
        r = rng("pocket dialogue", settings.seed, index)
        draw = r.random()
        full, prefix = settings.kinds
        write = full_dialogue if draw < full else prefix_dialogue if draw < full + prefix else mixed_dialogue
        written.append(write(item, r))
    return written


def _id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    token_id = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(token_id, int)
    return token_id


def encode(tokenizer: PreTrainedTokenizerFast, messages: list[Message]) -> Row:
    """Token ids through the template; labels on the replies and their end token only."""
    ids: list[int] = []
    labels: list[int] = []
    end = _id(tokenizer, END)
    for message in messages:
        role = _id(tokenizer, f"<|{message['role']}|>")
        content = tokenizer.encode(message["content"], add_special_tokens=False)
        ids += [role, *content, end]
        labelled = message["role"] == "assistant"
        labels += [IGNORED, *content, end] if labelled else [IGNORED] * (len(content) + 2)
    return ids, labels


def _batches(rows: list[Row], settings: BuildSettings) -> list[list[Row]]:
    """Batches of rows of like length (little padding), in a shuffled order, enough for all steps."""
    batches: list[list[Row]] = []
    epoch = 0
    while len(batches) < settings.steps:
        r = rng("pocket epoch", settings.seed, epoch)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]) + r.random() * 8)
        size = settings.batch
        chunks = [[rows[i] for i in order[k : k + size]] for k in range(0, len(order), size)]
        r.shuffle(chunks)
        batches += chunks
        epoch += 1
    return batches[: settings.steps]


def _tensors(batch: list[Row], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row, _ in batch])
    labels = torch.tensor([row + [IGNORED] * (longest - len(row)) for _, row in batch])
    return ids, labels


def _model(tokenizer: PreTrainedTokenizerFast, settings: BuildSettings) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=3 * settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=settings.width // 4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=_id(tokenizer, END),
        pad_token_id=_id(tokenizer, PAD),
    )
    torch.manual_seed(derive("pocket weights", settings.seed))
    return Qwen3ForCausalLM(config)


def build(folder: Path, settings: BuildSettings, track: Track = quiet) -> None:
    """Train and write the model; `folder` appears only when complete."""
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)  # another number of threads sums in another order
    try:
        with track("building", settings.steps) as update:
            model, tokenizer = _train(settings, update)
    finally:
        torch.set_num_threads(threads)
    _save(folder, model, tokenizer, settings)


def _train(settings: BuildSettings, update: Update) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    written = dialogues(settings)
    texts = (message["content"] for messages in written for message in messages)
    tokenizer = train_tokenizer(texts, settings.vocabulary)
    rows = [encode(tokenizer, messages) for messages in written]
    model = _model(tokenizer, settings).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    running = 0.0
    for step, batch in enumerate(_batches(rows, settings), 1):
        rate = min(1.0, step / settings.warmup) * (0.02 + 0.98 * 0.5 * (1 + cos(pi * step / settings.steps)))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate
        ids, labels = _tensors(batch, _id(tokenizer, PAD))
        # Padding stands at the end only, so the causal mask already hides it from every labelled position.
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        wanted = labels[:, 1:]
        logits = model.lm_head(hidden[wanted != IGNORED])
        loss = F.cross_entropy(logits, wanted[wanted != IGNORED], label_smoothing=settings.label_smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running = loss.item() if step == 1 else 0.95 * running + 0.05 * loss.item()
        if step % 20 == 0 or step == settings.steps:
            update(step, f"loss {running:.3f}")
    return model, tokenizer


def _save(
    folder: Path, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, settings: BuildSettings
) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.generation_config.do_sample = False
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    (partial / "build.json").write_text(json.dumps(asdict(settings), indent=1) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)


def main(arguments: list[str] | None = None) -> None:
    """Build the model, evaluate it with the code of `smopd eval`, and print its accuracies."""
    parser = argparse.ArgumentParser(
        description="Build the pocket model from nothing and print its accuracies."
    )
    parser.add_argument("--out", type=Path, default=Path("runs/pocket-model"), help="folder; must not exist")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another model")
    parser.add_argument("--eval", type=int, default=400, help="held-out conversations for the accuracies")
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out}: exists; nothing was written, choose another --out")
    build(options.out, BuildSettings(seed=options.seed), show_progress)
    path = json.dumps(str(options.out.resolve()))
    config = load_config("pocket", [f"model.path={path}", f"data.eval=pocket:eval:{options.eval}"])
    summary = summarise(run_evaluation(config, prepared_examples(config, "eval"), "pocket"))
    Console(highlight=False).print(summary_table(summary))


if __name__ == "__main__":
    main()
