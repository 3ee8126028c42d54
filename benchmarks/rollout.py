"""`benchmarks rollout`: sampling with keys and values kept between turns, against `generate`."""

import hashlib
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Work, report_of
from smopd.config import load_config
from smopd.data import Example, load_examples
from smopd.errors import UserError
from smopd.models import load_model
from smopd.rollout import Conversation, Driver, Sampling
from smopd.rollout.hf import HFEngine, StockEngine
from smopd.tracking import Track, quiet

ENGINES = {"kept": HFEngine, "stock": StockEngine}


@dataclass(frozen=True)
class Rollouts:
    """Which model plays which conversations."""

    model: str = "pocket"
    data: str = "pocket:eval:400"
    conversations: int = 16
    turns: int = 0  # only examples of so many shards; 0 = any
    reply: int = 64  # token limit of every reply
    history: str = "template"


def chosen_examples(settings: Rollouts) -> list[Example]:
    """The first examples that have the wanted number of turns."""
    fitting = [e for e in load_examples(settings.data) if settings.turns in (0, len(e.shards))]
    if len(fitting) < settings.conversations:
        count = f"{len(fitting)} examples" + (f" of {settings.turns} turns" if settings.turns else "")
        raise UserError(f"{settings.data}: holds only {count}; lower --conversations or change --turns")
    return fitting[: settings.conversations]


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work; a variant is an engine's name."""
    chosen = Rollouts(**settings)
    examples = chosen_examples(chosen)
    chat = load_model(load_config("pocket", [f"model.path={chosen.model!r}"]))
    engine = ENGINES[variant](chat.model, chat.renderer.end_ids, chosen.conversations)
    history: Any = chosen.history
    driver = Driver(engine, chat.renderer, Sampling(0.0, chosen.reply), chosen.reply, history)

    def warm_up() -> None:
        warm = Driver(ENGINES[variant](chat.model, chat.renderer.end_ids), chat.renderer, Sampling(0.0, 2), 2)
        warm.play(examples[:1], "full", ("warm",))

    def facts(conversations: list[Conversation]) -> dict[str, Any]:
        replies = [turn.reply for c in conversations for turn in c.turns]
        usage, layers = engine.usage, chat.model.config.num_hidden_layers
        digest = hashlib.sha256(repr(replies).encode()).hexdigest()[:16]
        prefilled = {"tokens": usage.prefilled, "prefilled_times_layers": usage.prefilled * layers}
        prompts = {"prompt_tokens": usage.prompt, "reused_tokens": usage.reused}
        return {**prefilled, **prompts, "sampled_tokens": sum(map(len, replies)), "digest": digest}

    return Work(warm_up, lambda: driver.play(examples, "sharded", ("bench",)), facts)


def report(settings: Rollouts, reps: int, track: Track = quiet) -> dict[str, Any]:
    """Measure both engines."""
    chosen_examples(settings)  # what the user can mend is said before anything is measured
    report = report_of("rollout", settings, reps, {"kept": ["stock"]}, track)
    kept, stock = report["results"]
    fewer = stock["tokens"] / kept["tokens"]
    same = kept["digest"] == stock["digest"]
    replies = "are identical" if same else "DIFFER"
    sampled, prompts, reused = (kept[f"{name}_tokens"] for name in ("sampled", "prompt", "reused"))
    notes = [f"tokens: prefilled, padding included: {fewer:.1f} times fewer; replies {replies}"]
    notes += [f"{sampled:,} tokens sampled; of {prompts:,} prompt tokens {reused:,} taken from earlier turns"]
    return report | {"fewer_prefilled_tokens": fewer, "same_tokens": same, "notes": notes}
