"""Play conversations in the views of a task, N runs of each, and verify every reply; metrics.py summarises.

A conversation succeeds by its last reply; success at any turn is recorded too. Interruptions do not change
the groups of conversations, and a group is recorded atomically, so a resumed evaluation gives the same result
as an uninterrupted one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from smopd.chat.messages import View
from smopd.data import Example, load_examples, scorable
from smopd.errors import UserError
from smopd.rollout.driver import Conversation, Driver, Seed
from smopd.rollout.openai import ChatDriver
from smopd.verify import Verdict, load_verifiers, tasks, use_databases, verify_all

if TYPE_CHECKING:
    from smopd.config import Config  # it imports all methods, which a file of verifiers does not need

Player = Driver | ChatDriver
# Plays the user of the view `simulated`; returns conversations, with a verdict on each reply.
User = Callable[[Player, Sequence[Example], Seed], list[tuple[Conversation, list[Verdict]]]]
Group = tuple[View, int, list[Example]]  # view, run, examples
# Sees the conversations of a group before they are recorded: view, run, index of the group.
Watch = Callable[[View, int, int, Sequence[Conversation]], None]


@dataclass(frozen=True)
class Outcome:
    """One conversation with the verdict on its last reply: a line of conversations.jsonl."""

    id: str
    view: View
    run: int
    task: str
    shards: int
    turns: list[dict[str, Any]]  # user, reply, stop, tokens; right (turn accuracy) where known
    correct: bool
    any_correct: bool
    extracted: str | None
    status: str
    detail: str
    system: str
    full: str
    answer: dict[str, Any]

    @property
    def key(self) -> tuple[str, int, str]:
        return self.view, self.run, self.id


def prepared_examples(config: "Config", split: Literal["train", "eval"]) -> list[Example]:
    """Put the config's verifiers, databases and rules in force; return the examples with its prompts. Raise a
    UserError if a reply to one of them could not be judged here.
    """
    load_verifiers(config.data.verifiers)
    use_databases(config.data.databases or None)
    tasks.use_rules(config.rules.model_dump())
    name = config.data.train if split == "train" else config.data.eval
    limit = config.data.train_limit if split == "train" else config.eval.limit
    examples = scorable(load_examples(name, limit or None), name)
    used = {example.task for example in examples}
    prompts = {name: prompt for name, prompt in config.prompts.model_dump().items() if prompt}
    for task in tasks.built_in().values():
        if task.name in used:
            task.require()
        prompt, place = prompts.get(task.name), task.placeholder
        if prompt and place and place.name not in prompt:
            unseen = "or the model would never see them"
            raise UserError(f"prompts.{task.name}: must contain {place.name}, {unseen}")
    return [
        replace(e, system=tasks.fill(prompts[e.task], e.answer)) if e.task in prompts else e for e in examples
    ]


def groups(examples: Sequence[Example], views: Sequence[View], runs: int, size: int) -> Iterator[Group]:
    """Group examples with similar numbers of turns, because a group waits for its longest one."""
    order = sorted(examples, key=lambda e: len(e.shards))
    for view, run, first in product(views, range(runs), range(0, len(order), size)):
        yield view, run, order[first : first + size]


def evaluate(
    player: Player, examples: Sequence[Example], views: Sequence[View] = ("full", "sharded"), runs: int = 1,
    seed: int = 0, group: int = 64, known: Sequence[Outcome] = (),
    record: Callable[[list[Outcome]], None] = lambda fresh: None, user: User | None = None,
    watch: Watch | None = None,
) -> list[Outcome]:  # fmt: skip
    """Return all outcomes. `known` ones are not played again; `record` gets each finished group."""
    outcomes = {outcome.key: outcome for outcome in known}
    for number, (view, run, chosen) in enumerate(groups(examples, views, runs, group)):
        if any((view, run, e.id) not in outcomes for e in chosen):
            seeds = ("eval", seed, run) if run else ("eval", seed)
            if view == "simulated":
                assert user is not None, "the view simulated needs somebody who plays the user"
                judged = user(player, chosen, seeds)
                played = [conversation for conversation, _ in judged]
                fresh = [outcome(c, run, verdicts) for c, verdicts in judged]
            else:
                played = player.play(chosen, view, seeds)
                fresh = judge(played, run)
            if watch:
                watch(view, run, number, played)
            outcomes |= {outcome.key: outcome for outcome in fresh}
            record(fresh)
    return [outcomes[view, run, e.id] for view in views for run in range(runs) for e in examples]


def judge(conversations: Sequence[Conversation], run: int = 0) -> list[Outcome]:
    """Verify every reply and, where known, whether it states what was told so far."""
    pairs = [(c.example, turn.text) for c in conversations for turn in c.turns]
    expected = [expected_so_far(c) for c in conversations]
    pairs += [pair for by_turn in expected for pair in by_turn.values()]
    verdicts = iter(verify_all(pairs))
    outcomes = [outcome(c, run, [next(verdicts) for _ in c.turns]) for c in conversations]
    for one, by_turn in zip(outcomes, expected, strict=True):
        for number in by_turn:
            one.turns[number]["right"] = next(verdicts).correct
    return outcomes


def expected_so_far(conversation: Conversation) -> dict[int, tuple[Example, str]]:
    """By turn, where the correct reply is known: the example as told up to then, and the reply."""
    turns = conversation.turns if conversation.view in ("sharded", "teacher") else []
    examples = [told_so_far(conversation.example, number) for number in range(len(turns))]
    return {number: (example, turns[number].text) for number, example in enumerate(examples) if example}


def told_so_far(example: Example, turn: int) -> Example | None:
    """The example as told up to a user turn (from 0); None if its task has no answer for that turn."""
    task = tasks.find(example.task)
    answer = task.turn_answer(example.answer, turn) if task else None
    return None if answer is None else replace(example, answer=answer)


def outcome(conversation: Conversation, run: int, verdicts: Sequence[Verdict]) -> Outcome:
    example, last = conversation.example, verdicts[-1]
    same = {name: getattr(example, name) for name in ("id", "task", "system", "full")}
    return Outcome(
        **same, **vars(last), view=conversation.view, run=run, shards=len(example.shards),
        turns=conversation.to_json()["turns"], any_correct=any(verdict.correct for verdict in verdicts),
        answer=dict(example.answer),
    )  # fmt: skip
