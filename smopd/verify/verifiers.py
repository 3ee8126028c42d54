"""Is a reply's answer right? Finds the verifier of an example's task; many replies at once use every core.

The rules stand in `math.py`, `actions.py`, `database.py`, `code.py` and, for tasks of the user's, `own.py`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from smopd.data.example import Example
from smopd.data.tasks import scored
from smopd.errors import UserError
from smopd.verify import own, workers
from smopd.verify.actions import verify_actions
from smopd.verify.math import judge as judge_math
from smopd.verify.verdict import Verdict as Verdict

Work = workers.Job | Callable[[], Verdict]
_DATABASE = workers.Kind("database")
_databases: Path | None = None


def use_databases(folder: str | Path | None) -> None:
    """Run queries on the .sqlite files of a folder (DB_ID/DB_ID.sqlite, as Spider has them) from now on;
    None: on made ones.
    """
    global _databases
    place = Path(folder).expanduser() if folder else None
    if place is not None and not place.exists():
        raise UserError(f"{folder}: no such folder of databases")
    if (
        place is not None
        and place.is_dir()
        and not any(next(place.glob(p), None) for p in ("*/*.sqlite", "*.sqlite"))
    ):
        raise UserError(
            f"{folder}: holds no .sqlite files; expected DB_ID/DB_ID.sqlite, as in Spider's database folder"
        )
    _databases = place


def verify(example: Example, reply_text: str) -> Verdict:
    """Score a reply by the rule of the example's task."""
    found = _judge(example, reply_text)
    return found if isinstance(found, Verdict) else _do([found])[0]


def verify_all(pairs: Sequence[tuple[Example, str]]) -> list[Verdict]:
    """The verdicts on many replies, in order: the same as one by one, but whatever takes more than reading
    uses all cores.
    """
    verdicts: dict[int, Verdict] = {}
    work: dict[int, Work] = {}
    alike: dict[object, list[int]] = defaultdict(list)
    for number, (example, reply) in enumerate(pairs):
        found = _judge(example, reply, elsewhere=True)
        if isinstance(found, Verdict):
            verdicts[number] = found
        else:
            work[number] = found
            # Queries on the same databases go to one process, which builds them once.
            shared = isinstance(found, workers.Job) and found.kind == _DATABASE
            alike[("query", example.answer["reference_sql"]) if shared else number].append(number)
    most = max(1, len(work) // (2 * workers.width()))
    parts = [group[at : at + most] for group in alike.values() for at in range(0, len(group), most)]
    with ThreadPoolExecutor(workers.width()) as pool:
        try:
            for part, found_here in zip(
                parts, pool.map(lambda part: _do([work[n] for n in part]), parts), strict=True
            ):
                verdicts |= zip(part, found_here, strict=True)
        except BaseException:
            pool.shutdown(
                wait=False, cancel_futures=True
            )  # Ctrl-C waits for what runs, not for all that is queued
            raise
    return [verdicts[number] for number in range(len(pairs))]


def _judge(example: Example, reply: str, elsewhere: bool = False) -> Verdict | Work:
    """A verdict where reading is enough, otherwise what gives it; `elsewhere` wants queries in another
    process, too.
    """
    answer, said = example.answer, _without_thoughts(reply)
    if example.task == "math":
        return judge_math(answer, said)
    if example.task == "actions":
        return verify_actions(answer, said)
    if example.task == "code":
        from smopd.verify.code import verify_code

        return lambda: verify_code(answer, said)
    if example.task == "database":
        from smopd.verify.database import TIMEOUT, verify_database

        place = _databases
        needed = {name: answer.get(name, "") for name in ("reference_sql", "schema_sql", "db_id")}
        if not elsewhere or not all(
            isinstance(text, str) and (text or name == "db_id") for name, text in needed.items()
        ):
            return lambda: verify_database(answer, said, database=place)
        call = {"answer": needed, "reply": said, "database": place and str(place)}
        return workers.Job(
            _DATABASE, call, TIMEOUT + workers.GRACE
        )  # it keeps its time by itself, but for what it cannot stop
    if example.task in scored():
        return own.job(example.task, answer, said)
    raise UserError(
        f"{example.id}: task {example.task!r} cannot be scored; the tasks that can are {', '.join(scored())}"
    )


def _do(work: Sequence[Work]) -> list[Verdict]:
    """The verdicts of a few pieces of work: jobs of one kind, or calls."""
    jobs = [piece for piece in work if isinstance(piece, workers.Job)]
    return (
        workers.ask_all(jobs) if jobs else [piece() for piece in work if not isinstance(piece, workers.Job)]
    )


def _without_thoughts(text: str) -> str:
    """The text outside closed think blocks; a block that only closes was opened by the prompt."""
    kept, at = [], 0
    while (close := text.find("</think>", at)) >= 0:
        start = text.find("<think>", at, close)
        kept.append(text[at:start] if start >= 0 else "")
        at = close + len("</think>")
    return "\n".join([*kept, text[at:]])
