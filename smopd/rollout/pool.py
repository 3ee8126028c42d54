"""Many requests over several servers: least busy first, bounded at each, failed ones elsewhere, silent
servers set aside.

One `map` call hands every item to some server and returns the results in the order of the items: an item has
one slot and is at any time either waiting, in flight at one server, or done, so none is lost or done twice.
What a request is, and how a server is asked whether it is well, is the caller's. Only `Unreachable` is tried
again; any other error ends the call. No thread outlives the call that started it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from smopd.errors import EngineLost
from smopd.rollout.http import Cancellation, Cancelled, Unreachable
from smopd.seeds import derive

log = logging.getLogger("smopd")
T = TypeVar("T")

LONGEST_PAUSE = 60.0  # seconds
# Requests by which the server that knows a conversation may be busier and still get its next turn.
HOME = 4


class Server:
    """One base URL and how it fares. Everything here is read and written under the pool's lock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.in_flight = 0
        self.aside = ""  # why no request goes there; empty while it is used
        self.strikes = 0  # times set aside or found ill since its last good answer: the pauses grow with them
        self.failed_probes = 0  # in a row
        self.probe_at = 0.0
        self.probing = False
        self.epoch = 0  # counts how often it was set aside


S = TypeVar("S", bound=Server)


@dataclass
class _Task:
    """One item on its way. A round is over when every usable server has failed it."""

    index: int
    key: int
    home: Server | None
    ready_at: float = 0.0
    rounds: int = 0
    tried: set[Server] = field(default_factory=set)


class _Call(Generic[T]):
    """One `map`: what waits, what is done, what went wrong."""

    def __init__(self, tasks: list[_Task]) -> None:
        self.count = len(tasks)
        self.waiting = tasks
        self.results: dict[int, T] = {}
        self.error: BaseException | None = None


class Pool(Generic[S]):
    """The servers. `probe` raises when a server is not well; `pause` is the wait after a first failure, in
    seconds. `cancellation` is for the requests of the present call.
    """

    def __init__(
        self, servers: Sequence[S], concurrency: int, retries: int, probe: Callable[[S], None], pause: float
    ) -> None:
        self.servers = list(servers)
        self.concurrency, self.retries, self.pause = concurrency, retries, pause
        self.cancellation = Cancellation()
        self._probe = probe
        self._changed = threading.Condition()
        self._homes: dict[str, Server] = {}

    @property
    def usable(self) -> list[S]:
        """The servers that are not set aside."""
        return [server for server in self.servers if not server.aside]

    def start(self) -> None:
        """Look at every server once. UserError if one is set up wrongly, EngineLost if none answers."""
        self.each(self._probe)
        if not self.usable:
            raise self._lost()

    def each(self, action: Callable[[S], object]) -> None:
        """Do something at every usable server, side by side. One that cannot be reached is set aside; other
        errors are raised.
        """

        def run(server: S) -> None:
            try:
                action(server)
            except Unreachable as error:
                self.set_aside(server, error)

        with self._threads(len(self.servers)) as threads:
            for done in [threads.submit(run, server) for server in self.usable]:
                done.result()

    def set_aside(self, server: Server, error: Unreachable) -> None:
        """Send nothing there until a probe finds it well again."""
        with self._changed:
            if not server.aside:
                server.aside = str(error)
                server.epoch += 1
                server.failed_probes = 0
                self._strike(server, error.retry_after or 0.0)
                log.warning("set aside: %s", error)
                self._changed.notify_all()

    def forget_homes(self) -> None:
        """No server knows any conversation any more."""
        self._homes.clear()

    def map(
        self, send: Callable[[S, int], T], keys: Sequence[int], sessions: Sequence[str] | None = None
    ) -> list[T]:
        """`send(server, index)` for every key, in their order.

        A key is what the request's pauses derive from; requests of one session prefer the server that had the
        last of them.
        """
        names = list(sessions) if sessions else [""] * len(keys)
        homes = [self._homes.get(name) for name in names]
        call: _Call[T] = _Call([_Task(i, key, homes[i]) for i, key in enumerate(keys)])
        workers = min(len(keys), self.concurrency * len(self.servers))
        with self._threads(workers + len(self.servers)) as threads:
            for _ in range(workers):
                threads.submit(self._work, call, send, names)
            with self._changed:
                while len(call.results) < call.count and call.error is None:
                    self._probe_due(threads)
                    if all(s.aside and s.failed_probes > self.retries for s in self.servers):
                        call.error = self._lost()
                        break
                    due = [s.probe_at for s in self.servers if s.aside and not s.probing]
                    self._changed.wait(max(0.0, min(due) - time.monotonic()) if due else None)
        if call.error is not None:
            raise call.error
        return [call.results[i] for i in range(call.count)]

    @contextmanager
    def _threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """Threads for one call. At its end, however it ends, requests under way are cancelled, and with them
        the threads.
        """
        self.cancellation = Cancellation()
        with ThreadPoolExecutor(count, "smopd-pool") as threads:
            try:
                yield threads
            finally:
                self.cancellation.set()
                with self._changed:
                    self._changed.notify_all()

    def _work(self, call: _Call[T], send: Callable[[S, int], T], names: list[str]) -> None:
        """One worker: take a request and a server, send, put the result into its slot or the request back."""
        while True:
            with self._changed:
                while (picked := self._pick(call)) is None:
                    # Nothing waits: whoever has a request in flight will put it back and take it again
                    # itself.
                    if self.cancellation.is_set() or not call.waiting:
                        return
                    now = time.monotonic()
                    later = [task.ready_at - now for task in call.waiting if task.ready_at > now]
                    self._changed.wait(min(later) if later else None)
                task, server = picked
                server.in_flight += 1
                epoch = server.epoch
            try:
                result = send(server, task.index)
            except Unreachable as error:
                with self._changed:
                    server.in_flight -= 1
                    # A failure of before the last probe says nothing about the server as it is now.
                    if server.epoch == epoch:
                        self.set_aside(server, error)
                    self._put_back(call, task, server, str(error))
                    self._changed.notify_all()
            except BaseException as error:
                with self._changed:
                    server.in_flight -= 1
                    call.error = call.error or error
                    self._changed.notify_all()
                return
            else:
                with self._changed:
                    server.in_flight -= 1
                    server.strikes = 0
                    call.results[task.index] = result
                    if names[task.index]:
                        self._homes[names[task.index]] = server
                    self._changed.notify_all()

    def _pick(self, call: _Call[T]) -> tuple[_Task, S] | None:
        """The first request that may go now and the server for it."""
        usable = self.usable
        if self.cancellation.is_set() or all(s.in_flight >= self.concurrency for s in usable):
            return None
        now = time.monotonic()
        for place, task in enumerate(call.waiting):
            untried = [s for s in usable if s not in task.tried] or usable
            free = [s for s in untried if s.in_flight < self.concurrency]
            if free and task.ready_at <= now:
                del call.waiting[place]
                return task, min(free, key=lambda s: s.in_flight - HOME * (s is task.home))
        return None

    def _put_back(self, call: _Call[T], task: _Task, server: Server, why: str) -> None:
        """To another server at once, or, when all have failed it, after a pause; for the last time if it was
        the last round.
        """
        task.tried.add(server)
        if not [s for s in self.usable if s not in task.tried]:
            task.rounds += 1
            task.tried.clear()
            task.ready_at = time.monotonic() + self._pause(task.rounds - 1, task.key)
            if task.rounds > self.retries:
                call.error = call.error or self._lost(why)
                return
        call.waiting.append(task)

    def _probe_due(self, threads: ThreadPoolExecutor) -> None:
        for server in self.servers:
            if server.aside and not server.probing and server.probe_at <= time.monotonic():
                server.probing = True
                threads.submit(self._probe_one, server)

    def _probe_one(self, server: S) -> None:
        why = ""
        try:
            self._probe(server)
        except Cancelled:  # the call is over; the next one asks again
            server.probing = False
            return
        except Exception as error:  # also one that came back set up wrongly: the others can do without it
            why = str(error) or type(error).__name__
        with self._changed:
            server.probing = False
            server.aside = why
            if why:
                server.failed_probes += 1
                self._strike(server)
            else:
                server.failed_probes = 0
                log.warning("back: %s", server.url)
            self._changed.notify_all()

    def _strike(self, server: Server, at_least: float = 0.0) -> None:
        pause = max(self._pause(server.strikes, server.url), min(at_least, LONGEST_PAUSE))
        server.probe_at = time.monotonic() + pause
        server.strikes += 1

    def _pause(self, failures: int, key: int | str) -> float:
        """Doubling seconds. What failed together must not come back together, and no random state is to be
        drawn from.
        """
        share = derive("pause", key, failures) / 2**63
        return min(self.pause * 2 ** min(failures, 30), LONGEST_PAUSE) * (0.75 + 0.5 * share)

    def _lost(self, why: str = "") -> EngineLost:
        reasons = [why] if why else [s.aside for s in self.servers if s.aside]
        return EngineLost(
            f"no rollout server answers ({', '.join(s.url for s in self.servers)}); the last words:\n  "
            + "\n  ".join(dict.fromkeys(reasons))
            + "\nnothing is wrong with the run: start the servers, then the same command continues it"
        )
