"""`benchmarks ahead`: sampling the conversations of several steps together, against step by step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Work, report_of
from smopd.config import load_config
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.models import load_model
from smopd.rollout import Conversation, Driver, Sampling
from smopd.rollout.driver import ConversationRequest
from smopd.rollout.hf import HFEngine
from smopd.tracking import Track, quiet

BY_STEP, TOGETHER = "step by step", "together"


@dataclass(frozen=True)
class Blocks:
    """The conversations of a block: so many a step, every fifth of them with a FULL one beside it."""

    model: str = "pocket"
    data: str = "pocket:train:400"
    conversations: int = 8  # of one step
    ahead: int = 4
    middle: int = 36
    answer: int = 40


class TimedEngine(HFEngine):
    """Tells prefill from the rest."""

    prefill_seconds = 0.0

    def prefill(self, *args: Any) -> Any:
        began = time.process_time()
        result = super().prefill(*args)
        self.prefill_seconds += time.process_time() - began
        return result


def block_requests(settings: Blocks) -> list[list[ConversationRequest]]:
    """The conversations of every step, sharded ones first."""
    examples = load_examples(settings.data)[: settings.conversations * settings.ahead]
    if len(examples) < settings.conversations * settings.ahead:
        needs = f"{settings.ahead} steps need {settings.conversations * settings.ahead}"
        raise UserError(f"{settings.data}: holds {len(examples)} examples, {needs}")
    steps = []
    for step in range(settings.ahead):
        some = examples[step * settings.conversations :][: settings.conversations]
        sharded = [ConversationRequest(e, "sharded", ("bench", step)) for e in some]
        steps.append(sharded + [ConversationRequest(e, "full", ("bench", step)) for e in some[::5]])
    return steps


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work: a block, in one of the two ways."""
    chosen = Blocks(**settings)
    chat = load_model(load_config("pocket", [f"model.path={chosen.model!r}"]))
    engine = TimedEngine(chat.model, chat.renderer.end_ids)
    driver = Driver(engine, chat.renderer, Sampling(1.0, chosen.answer, 0.95, 20), chosen.middle)
    steps = block_requests(chosen)

    def by_step() -> list[Conversation]:
        played = []
        for requests in steps:
            for view in ("sharded", "full"):
                played += driver.play_all([r for r in requests if r.view == view])
            engine.sleep()
        return played

    def together() -> list[Conversation]:
        return driver.play_all([request for requests in steps for request in requests], continuous=True)

    def facts(conversations: list[Conversation]) -> dict[str, Any]:
        tokens = sum(len(turn.reply) for c in conversations for turn in c.turns)
        return {"sampled_tokens": tokens, "prefill_seconds": engine.prefill_seconds}

    def warm_up() -> None:
        driver.play_all([ConversationRequest(steps[0][0].example, "full", ("warm",))])
        engine.prefill_seconds = 0.0

    run: Callable[[], list[Conversation]] = by_step if variant == BY_STEP else together
    return Work(warm_up, run, facts)


def report(settings: Blocks, reps: int, track: Track = quiet) -> dict[str, Any]:
    """Measure both ways."""
    block_requests(settings)  # what the user can mend is said before anything is measured
    report = report_of("ahead", settings, reps, {TOGETHER: [BY_STEP]}, track)
    count, notes = settings.conversations * settings.ahead, []
    for row in report["results"]:
        share, each = row["prefill_seconds"] / row["seconds"], row["seconds"] / count
        cost = f"{each:.2f} s a conversation, {share:.0%} of it prefill"
        notes.append(f"{row['name']}: {cost}; {row['sampled_tokens']:,} tokens sampled")
    return report | {"notes": notes}
