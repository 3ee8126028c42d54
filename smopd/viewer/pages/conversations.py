"""Conversations of evaluations and training as records for the pages, with their token logs."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from smopd.errors import UserError
from smopd.evaluation import tokens as evaluation_tokens
from smopd.evaluation.store import load_outcomes, load_summary
from smopd.files import read_jsonl
from smopd.runs import tokens as training_tokens
from smopd.runs.layout import TOKENS
from smopd.scoring.token_log import Others
from smopd.verify import tasks
from smopd.viewer.pages.packing import fixed, record

# Maximum characters of a text and tokens of a reply on the pages; the files have all of it.
LONGEST_TEXT, LONGEST_REPLY = 1_000_000, 50_000


@dataclass(frozen=True)
class Part:
    """The tokens of one reply under one term of the loss, or under the model alone."""

    term: str
    weight: float | None
    values: dict[str, np.ndarray]
    others: dict[str, Others]  # by model


@dataclass
class Shown:
    id: str
    view: str
    task: str
    shards: int
    number: int  # the step of a rollout, the run of an evaluation
    sample: int
    verdict: bool | None
    status: str
    head: dict[str, Any]
    turns: list[dict[str, Any]]
    parts: dict[int, list[Part]] = field(default_factory=dict)  # by turn
    pieces: Mapping[int, str] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(turn.get("tokens") or 0 for turn in self.turns)

    def text(self) -> str:
        messages = [part for turn in self.turns for part in (turn["user"], turn["reply"])]
        return "\n".join([self.id, *messages])[:LONGEST_TEXT]

    def packed(self) -> bytes:
        by_turn = [(turn, self.parts.get(number, [])) for number, turn in enumerate(self.turns)]
        turns = [{**_cut_texts(turn), "parts": list(map(_summary, parts))} for turn, parts in by_turn]
        parts, places = [part for _, turn_parts in by_turn for part in turn_parts], dict[int, int]()
        columns = list(_columns(parts, places)) if parts else []
        models = list(parts[0].others) if parts else []
        pieces = [self.pieces.get(token, f"[{token}]") for token in places]
        return record({**_cut_texts(self.head), "turns": turns, "pieces": pieces, "models": models}, columns)


def _cut_texts(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:LONGEST_TEXT] if isinstance(value, str) else value for key, value in row.items()}


def _summary(part: Part) -> dict[str, Any]:
    values, summary = part.values, {"term": part.term, "count": len(part.values["token"])}
    if part.weight is None:
        return summary
    delta = np.abs(values["student_logp"].astype(float) - values["teacher_logp"]).mean()
    return {**summary, "weight": part.weight, "delta": float(delta)}


def _columns(parts: list[Part], places: dict[int, int]) -> Iterator[np.ndarray]:
    """Yield two-byte, then one-byte columns, in the page's order; `places` collects token ids."""

    def number(ids: np.ndarray) -> np.ndarray:
        unlike, inverse = np.unique(ids, return_inverse=True)
        numbers = [min(places.setdefault(token, len(places)), 65535) for token in unlike.tolist()]
        return np.array(numbers, dtype="<u2")[inverse]

    def join(name: str) -> np.ndarray:
        return np.concatenate([part.values[name] for part in parts])

    names = ("entropy", "student_logp", "teacher_entropy", "teacher_logp", "divergence")
    yield number(join("token"))
    for name in (name for name in names if name in parts[0].values):
        yield fixed(-join(name) if name.endswith("logp") else join(name))
    by_model = ([part.others[model] for part in parts] for model in parts[0].others)
    joined = [Others(*map(np.concatenate, zip(*some, strict=True))) for some in by_model]
    for others in joined:
        yield number(others.tokens)
        yield fixed(-others.logps)
    yield from (others.counts.astype(np.uint8) for others in joined)
    if "kept" in parts[0].values:
        yield join("kept").astype(np.uint8) + 2 * join("clipped").astype(np.uint8)


def evaluated(folder: Path) -> Iterator[Shown]:
    """The conversations of an evaluation; none if it is unfinished."""
    if load_summary(folder) is None:
        return
    logged, pieces = _evaluation_parts(folder / "tokens")
    for o in load_outcomes(folder):
        tokens = logged.get((o.view, o.run, o.id), {}), pieces
        head = {name: getattr(o, name) for name in ("system", "full", "extracted", "status", "detail")}
        head["expected"] = answer_text(o.task, o.answer)
        yield Shown(o.id, o.view, o.task, o.shards, o.run, 0, o.correct, o.status, head, o.turns, *tokens)


def rollouts_of(run: Path, file: Path) -> Iterator[Shown]:
    log = run / TOKENS / f"{file.stem}.safetensors"
    parts, pieces = _training_parts(log) if log.exists() else ({}, {})
    seen = read_jsonl(log.with_suffix(".contexts.jsonl"))
    step = int(file.stem.removeprefix("step-"))
    for number, row in enumerate(read_jsonl(file)):
        replies = seen[number]["replies"] if number < len(seen) else []
        contexts = {(each["view"], each["turn"]): each["contexts"] for each in replies}
        messages = (m for some in contexts.values() for context in some for m in context.get("messages", ()))
        head = {
            "system": next((m["content"] for m in messages if m["role"] == "system"), ""),
            "expected": answer_text(row.get("task", ""), row.get("expected") or {}),
            "loss": row.get("loss"), "extracted": row.get("extracted"),
        }  # fmt: skip
        for view, turns in row.items():
            if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "reply" in turns[0]:
                for turn, reply in enumerate(turns):
                    if (view, turn) in contexts:
                        reply["teacher"] = contexts[view, turn]
                yield Shown(
                    row["id"], view, row.get("task", ""), len(turns), step, row.get("sample", 0),
                    row.get("correct"), "", head, turns, parts.get((number, view), {}), pieces,
                )  # fmt: skip


def answer_text(task: str, answer: Mapping[str, Any]) -> str:
    """The expected answer: a reference reply if the task has one, else the data's answer."""
    if "value" in answer:
        return str(answer["value"])
    written = ", ".join(f"{key}: {value}" for key, value in answer.items())
    if known := tasks.find(task):
        # An answer that the task cannot read stays as it is.
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            written = str(next(iter(known.reference_replies(answer)), written))
    return written[:2000]


Parts = dict[int, list[Part]]


def _evaluation_parts(folder: Path) -> tuple[dict[tuple[str, int, str], Parts], dict[int, str]]:
    by_conversation, pieces = dict[tuple[str, int, str], Parts](), dict[int, str]()
    for path in sorted(folder.glob("*.safetensors")):
        log = evaluation_tokens.read(path, "numpy")
        values = log.values | {"student_logp": log.values["logp"]}
        others = {evaluation_tokens.MODEL: log.others}
        for (place, turn), columns, likely in _cut_replies(values, others, ("conversation", "turn")):
            of_turn = by_conversation.setdefault((log.view, log.run, log.ids[place]), {})
            of_turn[turn] = [Part("", None, columns, likely)]
        pieces |= log.pieces
    return by_conversation, pieces


def _training_parts(path: Path) -> tuple[dict[tuple[int, str], Parts], Mapping[int, str]]:
    log = training_tokens.read(path, "numpy")
    by_rollout, names = dict[tuple[int, str], Parts](), ("rollout", "view", "turn", "part")
    for (rollout, view, turn, term), columns, likely in _cut_replies(log.values, log.others, names):
        part = Part(log.terms[term], float(columns["weight"][0]), columns, likely)
        of_rollout = by_rollout.setdefault((rollout, log.views[view]), {})
        of_rollout.setdefault(turn, []).append(part)
    return by_rollout, log.pieces


def _cut_replies(
    values: Mapping[str, np.ndarray], others: Mapping[str, Others], names: tuple[str, ...]
) -> Iterator[tuple[list[int], dict[str, np.ndarray], dict[str, Others]]]:
    """Split a log by reply: yield its values of the columns `names`, its rows, the likely tokens by model."""
    keys = np.array([values[name].astype(np.int64) for name in names])
    changes = np.diff(keys).any(axis=0)
    ends = [0, *(np.flatnonzero(changes) + 1).tolist(), keys.shape[1]] if keys.size else []
    places = {m: np.append(0, np.cumsum(some.counts, dtype=np.int64)) for m, some in others.items()}
    for first, last in pairwise(ends):
        if values["position"][first] != 0 or values["position"][last - 1] != last - first - 1:
            raise UserError("a token log with incomplete replies: run the training again")
        last = min(last, first + LONGEST_REPLY)
        likely = {}
        for model, some in others.items():
            inside = slice(places[model][first], places[model][last])
            likely[model] = Others(some.counts[first:last], some.tokens[inside], some.logps[inside])
        yield keys[:, first].tolist(), {name: rows[first:last] for name, rows in values.items()}, likely
