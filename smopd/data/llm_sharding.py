"""Split requests into shards with a language model behind an OpenAI-compatible endpoint.

Every answer must pass `check_shards`, like rule-based shards. One that fails is retried with the failure
reason; after the last try the rule-based shards are used, or the request is dropped. Results go to a cache
file as they come, so an interrupted build resumes without asking twice.
"""

import hashlib
import json
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from smopd.data.sharding import LONGEST, check_shards, normalise, shard
from smopd.errors import UserError
from smopd.files import append_jsonl, read_jsonl, write_jsonl
from smopd.seeds import derive
from smopd.tracking import Track, quiet

_PROMPTS = tomllib.loads(Path(__file__).with_name("llm_sharding.toml").read_text(encoding="utf-8"))
SYSTEM, AGAIN = _PROMPTS["system"], _PROMPTS["again"]
TOKENS = 4096  # limit of a reply; a thinking model needs them
MOST_NEW = 0.3  # maximum share of content words that are not in the request
WARM = 0.7  # temperature of retries: a greedy one would fail again


@dataclass
class LlmSharder:
    """Splits texts. `counts`: how many came from the model, the cache, the rules, and were dropped."""

    endpoint: Any  # a ChatEndpoint, which this layer may not import
    cache: Path | None = None
    tries: int = 3
    fallback: Literal["rule", "drop"] = "rule"
    seed: int = 0
    track: Track = quiet

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise UserError(f"--tries: expected at least 1, found {self.tries}")
        self.counts, self._lock = Counter[str](), threading.Lock()
        rows = read_jsonl(self.cache) if self.cache else []
        if self.cache and self.cache.exists():
            write_jsonl(self.cache, rows)  # without a truncated last line
        self._known = {row["key"]: row for row in rows if isinstance(row, dict) and "key" in row}

    def __call__(self, texts: Sequence[str]) -> list[tuple[str, ...] | str]:
        """Return the shards of each text, or the reason why it has none."""
        pairs = [(self._key(text), text) for text in map(normalise, texts)]
        self.counts["from the cache"] += sum(key in self._known for key, _ in pairs)
        todo = {key: text for key, text in pairs if key not in self._known and len(text) <= LONGEST}
        before = len(self._known)

        def work(pair: tuple[str, str]) -> None:
            row = self._ask(*pair)
            with self._lock:
                self._known[row["key"]] = row
                if self.cache:
                    self.cache.parent.mkdir(parents=True, exist_ok=True)
                    append_jsonl(self.cache, row)
                update(len(self._known) - before)

        if todo:
            with self.track("shards by the model", len(todo)) as update:
                self.endpoint.each(work, list(todo.items()))
        return [self._result(self._known.get(key, {}), text) for key, text in pairs]

    def _key(self, text: str) -> str:
        parts = json.dumps([SYSTEM, AGAIN, MOST_NEW, self.endpoint.model(), self.tries, self.seed, text])
        return hashlib.sha256(parts.encode()).hexdigest()[:32]

    def _ask(self, key: str, text: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        problem = ""
        for attempt in range(self.tries):
            seed = derive("llm sharding", self.seed, key, attempt)
            reply = self.endpoint.text(messages, WARM if attempt else 0.0, TOKENS, seed)
            shards = parse_list(reply)
            problem = shards if isinstance(shards, str) else check_shards(text, shards, MOST_NEW) or ""
            if not problem:
                return {"key": key, "tries": attempt + 1, "shards": list(shards)}
            again = {"role": "user", "content": AGAIN.format(reason=problem)}
            messages = [*messages[:2], {"role": "assistant", "content": reply}, again]
        return {"key": key, "tries": self.tries, "failed": problem}

    def _result(self, row: dict[str, Any], text: str) -> tuple[str, ...] | str:
        if "shards" in row:
            self.counts["by the model"] += 1
            return tuple(row["shards"])
        if self.fallback == "drop" and row:  # without a row, the text was too long for a request
            self.counts["dropped"] += 1
            return f"model: {row['failed'].split(':')[0]}"
        shards = shard(text)
        self.counts["dropped" if isinstance(shards, str) else "by rule instead"] += 1
        return shards


def parse_list(reply: str) -> tuple[str, ...] | str:
    """Parse the messages in a reply, or say what is wrong with it."""
    bracket = re.search(r"\[.*\]", reply.rsplit("</think>", 1)[-1], re.DOTALL)
    parsed = None
    with suppress(json.JSONDecodeError):
        parsed = json.loads(bracket[0]) if bracket else None
    if not isinstance(parsed, list) or not all(isinstance(message, str) for message in parsed):
        return "it is no JSON list of texts"
    messages = tuple(" ".join(message.split()) for message in parsed if message.strip())
    return messages if len(messages) > 1 else "fewer than two shards"
