"""Conversations played ahead. With `rollout.ahead` = k, those of k steps (a block) are sampled together with
the policy of the block's first step, then used step by step. So the age of a step's conversations, 0 to k - 1
updates, depends on the step's number and never on timing.

With `rollout.overlap` the next block is sampled while this one trains, with the policy of this block's first
step: k to 2k - 1 updates old (0 to k - 1 in the first block), still independent of timing. A checkpoint holds
the unused conversations and, with overlap, the policy of the next block, which a resumed run samples again.
"""

import copy
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file

from smopd.files import read_json, write_json
from smopd.models.adapters import StudentAdapter
from smopd.rollout.driver import Conversation, Turn
from smopd.training.player import Played, StepConversations, StepPlayer

STATE, POLICY = "ahead.json", "ahead.safetensors"  # files of a checkpoint
TURNS = TypeAdapter(list[Turn])


@dataclass
class NextBlock:
    """The block sampled while another one trains, with the policy after `version` updates."""

    step: int
    version: int
    policy: StudentAdapter


class Ahead:
    """The blocks of a run. `_pending` and `_next` are the same on every process."""

    def __init__(self, player: StepPlayer, last: int) -> None:
        self.player, self.last = player, last
        # Step -> conversations of all processes, and the number of updates their policy had.
        self._pending: dict[int, tuple[StepConversations, int]] = {}
        self._at_once: dict[int, tuple[Played, int]] = {}  # this process's share of a one-step block
        self._next: NextBlock | None = None
        self._thread = ThreadPoolExecutor(1, "smopd-ahead")
        self._background: Future[list[StepConversations]] | None = None  # plays `_next`
        self._other: StepPlayer | None = None  # plays in the thread

    def __contains__(self, step: int) -> bool:
        return step in self._pending or step in self._at_once

    def block(self, step: int) -> range:
        """The steps from `step` to the end of its block."""
        k = self.player.config.rollout.ahead
        return range(step, min((step - 1) // k * k + k, self.last) + 1)

    def sample(self, step: int, version: int) -> None:
        """Play the block that begins at `step` with the policy after `version` updates. Collective."""
        steps = self.block(step)
        if len(steps) == 1:  # used at once, so it need not be gathered
            self._at_once[step] = self.player.play(step), version
        else:
            self._add(steps, self.player.play_block(steps), version)

    def take(self, step: int) -> tuple[Played, int]:
        """Return this process's share of a step's conversations, and their age in updates."""
        if step in self._at_once:
            played, version = self._at_once.pop(step)
            return played, step - 1 - version
        of_all, version = self._pending.pop(step)
        return self.player.pair_up(step, self.player.processes.share(of_all)), step - 1 - version

    def _add(self, steps: Sequence[int], played: Sequence[StepConversations], version: int) -> None:
        for step, of_step in zip(steps, played, strict=True):
            self._pending[step] = self.player.processes.gather(of_step), version

    @property
    def interrupted(self) -> NextBlock | None:
        """The block that was being sampled when the run was stopped."""
        return None if self._background else self._next

    def start(self, block: NextBlock) -> None:
        """Sample a block in a thread, unless it begins after the last step."""
        self._next = block if block.step <= self.last else None
        if self._next:
            if self._other is None:
                # Tokenizers are not thread-safe, and this thread goes on rendering teacher contexts.
                renderer = copy.deepcopy(self.player.driver.renderer)
                self._other = replace(self.player, driver=replace(self.player.driver, renderer=renderer))
            self._background = self._thread.submit(self._other.play_block, self.block(block.step))

    def collect(self) -> bool:
        """Wait for the block that is being sampled; return whether there was one. Collective."""
        background, block = self._background, self._next
        if background is None or block is None:
            return False
        self._add(self.block(block.step), background.result(), block.version)
        self._background = self._next = None
        return True

    def close(self) -> None:
        if self._background:
            self.player.driver.engine.cancel()
            wait([self._background])

    def save(self, folder: Path) -> None:
        """Add unused conversations and the next block's policy to a checkpoint, if there are any."""
        steps = {
            step: {"version": version, "rollouts": [[_to_json(k, c) for k, c in talks] for talks in of_all]}
            for step, (of_all, version) in self._pending.items()
        }
        if steps or self._next:
            block = {"step": self._next.step, "version": self._next.version} if self._next else None
            write_json(folder / STATE, {"steps": steps, "next": block})
        if self._next:
            save_file(self._next.policy.tensors(), folder / POLICY)

    def load(self, folder: Path, policy: StudentAdapter) -> None:
        if not (folder / STATE).exists():
            return
        state = read_json(folder / STATE)
        for step, saved in state["steps"].items():
            rows = zip(self.player.of_all(int(step)), saved["rollouts"], strict=True)
            talks = [[self._from_json(example, row) for row in of_one] for (example, _), of_one in rows]
            self._pending[int(step)] = talks, saved["version"]
        if block := state["next"]:
            kept = replace(policy, kept=load_file(folder / POLICY))
            self._next = NextBlock(block["step"], block["version"], kept)

    def _from_json(self, example: Any, row: dict[str, Any]) -> tuple[int, Conversation]:
        turns, view = TURNS.validate_python(row["turns"]), self.player.plan.plays[row["play"]].view
        return row["play"], Conversation(example, view, row["asked"], turns, row["cut"])


def _to_json(play: int, conversation: Conversation) -> dict[str, Any]:
    turns = TURNS.dump_python(conversation.turns, exclude={"__all__": {"tokens"}})
    return {"play": play, "cut": conversation.cut, "asked": conversation.asked, "turns": turns}
