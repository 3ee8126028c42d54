"""Judge replies by the task of their example; many replies at once use every core."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from smopd.errors import UserError
from smopd.verify import tasks, workers
from smopd.verify.task import UNREADABLE, Judged, Task
from smopd.verify.verdict import FAILED, Verdict

T = TypeVar("T")
Work = workers.Job | Callable[[], Verdict]
log = logging.getLogger("smopd")
_failed: dict[str, Task] = {}  # tasks whose verifier failed, as each is warned about once


def verify(example: Judged, reply_text: str) -> Verdict:
    judged = _judge(example, reply_text)
    return judged if isinstance(judged, Verdict) else _run([judged])[0]


def verify_all(pairs: Sequence[tuple[Judged, str]], tell: bool = True) -> list[Verdict]:
    """Judge replies on all cores and return verdicts in order; with `tell`, warn if a verifier fails."""
    verdicts: dict[int, Verdict] = {}
    groups: dict[object, list[tuple[int, Work]]] = defaultdict(list)
    for number, (example, reply) in enumerate(pairs):
        judged = _judge(example, reply)
        if isinstance(judged, Verdict):
            verdicts[number] = judged
        else:
            together = isinstance(judged, workers.Job) and judged.group and (judged.kind, judged.group)
            groups[together or number].append((number, judged))
    most = max(1, sum(map(len, groups.values())) // (2 * workers.width()))
    parts = [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]
    with ThreadPoolExecutor(workers.width()) as pool:
        try:
            results = pool.map(lambda part: _run([work for _, work in part]), parts)
            for part, result in zip(parts, results, strict=True):
                verdicts |= zip((number for number, _ in part), result, strict=True)
        except BaseException:  # on Ctrl-C, wait for what runs but not for what is queued
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for number, (example, _) in enumerate(pairs if tell else ()):
        verdict, task = verdicts[number], tasks.find(example.task)
        if verdict.status in FAILED and task and _failed.get(task.name) is not task:
            _failed[task.name] = task
            why = f"{example.id} ({verdict.status}: {verdict.detail})"
            counted = "such replies count as not correct and are counted apart, this is said once"
            log.warning("the verifier of %s failed on a reply to %s; %s", task.name, why, counted)
    return [verdicts[number] for number in range(len(pairs))]


def _judge(example: Judged, reply: str) -> Verdict | Work:
    task = tasks.find(example.task)
    if task is None or task.judge is None:
        raise UserError(f"{example.id}: task {tasks.not_scored(example.task)}")
    # Closed think blocks are removed; one that only closes was opened by the prompt.
    *thoughts, rest = reply.split("</think>")
    kept = [part.partition("<think>")[0] if "<think>" in part else "" for part in thoughts]
    return _attempt(partial(task.judge, example, "\n".join([*kept, rest])))


def _run(work: Sequence[Work]) -> list[Verdict]:
    jobs = [piece for piece in work if isinstance(piece, workers.Job)]
    return workers.ask_all(jobs) if jobs else [_attempt(piece) for piece in work if callable(piece)]


def _attempt(judge: Callable[[], T]) -> T | Verdict:
    try:
        return judge()
    except UserError:
        raise
    except UNREADABLE as error:
        detail = f"the reference answer is not of the task's form: {type(error).__name__}: {error}"
        return Verdict(False, None, "error", detail)
