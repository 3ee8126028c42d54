"""Many requests over several servers: least busy first, bounded at each, silent servers set aside. Only
`Unreachable` is tried again; any other error ends the call, and no thread outlives it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from smopd.errors import EngineLost
from smopd.rollout.http import CURRENT, Cancellation, Cancelled, Unreachable, base_url
from smopd.seeds import derive
from smopd.settings import EngineSettings

log = logging.getLogger("smopd")
T = TypeVar("T")
R = TypeVar("R")

LONGEST_PAUSE = 60.0  # seconds
LONGEST_WAIT = 0.2  # seconds until a waiting thread sees that it was cancelled
# Requests by which the server that knows a conversation may be busier and still get its next turn.
HOME = 4


def side_by_side(
    work: Callable[[T], R], items: Sequence[T], width: int, cancellation: Cancellation
) -> list[R]:
    """`work` on every item in threads, `width` at once. The first error is raised and cancels the rest."""
    errors: list[BaseException] = []
    workers: set[threading.Thread] = set()

    def run(item: T) -> R:
        workers.add(threading.current_thread())
        CURRENT.set(cancellation)
        if cancellation.is_set():
            raise Cancelled
        try:
            return work(item)
        except BaseException as error:
            errors.append(error)  # before the others are cancelled: the first is the one that counts
            cancellation.set()
            raise

    with ThreadPoolExecutor(max(1, min(width, len(items))), "smopd-request") as threads:
        try:
            futures = [threads.submit(run, item) for item in items]
            wait(futures)
        finally:
            cancellation.set()
            threads.shutdown(wait=False, cancel_futures=True)
            # A thread whose start was interrupted by Ctrl-C runs, but the executor does not know it.
            for worker in tuple(workers):
                worker.join()
    if errors:
        raise errors[0]
    return [done.result() for done in futures]


class Server:
    """One base URL and how it fares. Everything here is read and written under the pool's lock."""

    def __init__(self, url: str) -> None:
        self.url, self.in_flight = url, 0
        self.unavailable_reason = ""  # why no request goes there; empty while it is used
        self.epoch = 0  # counts how often it was set aside
        self.strikes = 0  # the same since its last good answer: the pauses grow with them
        self.rests_until = 0.0
        self.trial = -1  # the epoch in which it is being tried out after its rest


S = TypeVar("S", bound=Server)


class Pool(Generic[S]):
    """The servers. `pause`: seconds after a first failure. One that was set aside is tried out once it has
    rested: by `probe`, which raises when the server is not well, or else by a single request.
    """

    def __init__(
        self, kind: type[S], settings: EngineSettings, pause: float, probe: Callable[[S], None] | None = None
    ) -> None:
        self.servers = [kind(url) for url in dict.fromkeys(map(base_url, settings.servers))]
        self._probe, self.pause, self.retries = probe, pause, settings.retries
        self._report = log.warning if probe else log.debug  # without probes a server may often just be busy
        self.concurrency = settings.concurrency  # requests that may be in flight at a server
        self.width = self.concurrency * len(self.servers)  # and together
        self._changed = threading.Condition()
        self._calls: list[Cancellation] = []  # of those under way
        self.homes: dict[str, Server] = {}  # of conversations, by name: a server may keep their prefixes

    def cancel(self) -> None:
        """End every call that is under way, in other threads."""
        for cancellation in tuple(self._calls):
            cancellation.set()

    @property
    def usable(self) -> list[S]:
        return [server for server in self.servers if not server.unavailable_reason]

    def each(self, action: Callable[[S], object]) -> None:
        """Do something at every usable server, side by side; one that cannot be reached is set aside."""

        def run(server: S) -> None:
            epoch = server.epoch
            try:
                action(server)
            except Unreachable as error:
                self.mark_unavailable(server, epoch, error)

        side_by_side(run, self.usable, len(self.servers), Cancellation())

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """`work` on every item, as many at once as requests may be in flight. The first error ends it."""
        cancellation = Cancellation()
        self._calls.append(cancellation)
        try:
            return side_by_side(work, items, self.width, cancellation)
        finally:
            self._calls.remove(cancellation)

    def backoff(self, failures: int, key: int | str) -> float:
        """Doubling seconds, a little different for each request: what failed together comes back apart."""
        share = derive("pause", key, failures) / 2**63
        return min(self.pause * 2 ** min(failures, 30), LONGEST_PAUSE) * (1 + share / 4)

    def ask(self, send: Callable[[S], T], key: int, name: str = "") -> T:
        """One request, to another server when one fails it, and after a pause when all have."""
        tried: set[Server] = set()
        rounds = 0
        while True:
            server, epoch = self._take(tried, self.homes.get(name))
            try:
                result = send(server)
            except Unreachable as error:
                self.mark_unavailable(server, epoch, error)
                reason = str(error)
            else:
                with self._changed:
                    server.strikes = 0
                    if server.epoch == epoch:
                        server.unavailable_reason = ""
                    if name:
                        self.homes[name] = server
                return result
            finally:
                with self._changed:
                    server.in_flight -= 1
                    if server.trial == epoch:
                        server.trial = -1
                    self._changed.notify_all()
            tried.add(server)
            if not set(self.usable) - tried:
                tried.clear()
                rounds += 1
                if rounds > self.retries:
                    raise self.make_lost_error(reason, rounds)
                CURRENT.get().wait(self.backoff(rounds - 1, key))

    def mark_unavailable(self, server: Server, epoch: int, error: Exception) -> None:
        """Send nothing there until it has rested. A failure of an earlier `epoch` says nothing of it now."""
        with self._changed:
            if server.epoch != epoch:
                return
            if not server.unavailable_reason:
                self._report("set aside: %s", error)
            server.unavailable_reason = str(error) or type(error).__name__
            asked = min(getattr(error, "retry_after", None) or 0.0, LONGEST_PAUSE)
            server.rests_until = time.monotonic() + max(self.backoff(server.strikes, server.url), asked)
            server.strikes += 1
            server.epoch += 1
            self._changed.notify_all()

    def _take(self, tried: set[Server], home: Server | None) -> tuple[S, int]:
        """A place at the least busy server, one that has not failed this request if there is any, and its
        epoch. While there is none, servers that have rested are probed.
        """
        while not CURRENT.get().is_set():
            with self._changed:
                now = time.monotonic()
                untested = [s for s in self.servers if s.unavailable_reason and s.trial != s.epoch]
                rested = [s for s in untested if s.rests_until <= now]
                usable = self.usable if self._probe else self.usable + rested
                untried = [s for s in usable if s not in tried] or usable
                free = [s for s in untried if s.in_flight < self.concurrency]
                if free:
                    server = min(free, key=lambda s: s.in_flight - HOME * (s is home))
                    server.in_flight += 1
                    server.trial = server.epoch if server.unavailable_reason else -1
                    return server, server.epoch
                if all(s.unavailable_reason and s.strikes > self.retries + 1 for s in self.servers):
                    raise self.make_lost_error()
                if not self._probe or not rested:
                    rests = [s.rests_until - now for s in untested if s not in rested]
                    self._changed.wait(min([LONGEST_WAIT, *rests]))
                    continue
                server = min(rested, key=lambda s: s.rests_until)
                server.trial = server.epoch
            self._try_out(server, self._probe)
        raise Cancelled

    def _try_out(self, server: S, probe: Callable[[S], None]) -> None:
        try:
            probe(server)
        except Cancelled:  # the next call looks again
            pass
        except Exception as error:  # also one that came back set up wrongly: the others can do without it
            self.mark_unavailable(server, server.epoch, error)
        else:
            self._report("back: %s", server.url)
            server.unavailable_reason = ""
        with self._changed:
            server.trial = -1
            self._changed.notify_all()

    def make_lost_error(self, why: str = "", tries: int = 0) -> EngineLost:
        urls = " or ".join(s.url for s in self.servers)
        count = f" in {tries} {'tries' if tries > 1 else 'try'}" if tries else ""
        reasons = [why] if why else [s.unavailable_reason for s in self.servers if s.unavailable_reason]
        listed = "\n  ".join(dict.fromkeys(reasons))
        advice = "nothing is wrong with the run: see that the servers run, then the same command continues it"
        busy = "for busy ones lower engine.concurrency or raise engine.timeout and engine.retries (--set)"
        return EngineLost(f"no answer from {urls}{count}; the last words:\n  {listed}\n{advice}; {busy}")
