"""Many requests over several servers: least busy first, bounded at each, silent servers set aside. Only
`Unreachable` is tried again, elsewhere, with exponential backoff; any other error ends the call, and no
thread outlives it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from smopd.errors import EngineLost
from smopd.rollout.http import Cancellation, Cancelled, Unreachable
from smopd.seeds import derive

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
        self.aside = ""  # why no request goes there; empty while it is used
        self.strikes = 0  # times set aside or found ill since its last good answer: the pauses grow with them
        self.failed_probes, self.probe_at, self.probing = 0, 0.0, False
        self.epoch = 0  # counts how often it was set aside


S = TypeVar("S", bound=Server)


class Pool(Generic[S]):
    """The servers. `pause` are the seconds after a first failure.

    `probe` raises when a server is not well. Without one, a server that was set aside gets a single request
    once it has rested, and all others when that is answered.
    """

    def __init__(
        self, servers: Sequence[S], concurrency: int, retries: int, probe: Callable[[S], None] | None,
        pause: float,
    ) -> None:  # fmt: skip
        self.servers, self._probe = list(servers), probe
        self._report = log.warning if probe else log.debug  # without probes a server may often just be busy
        self.concurrency, self.retries, self.pause = concurrency, retries, pause
        self.cancellation, self._changed = Cancellation(), threading.Condition()
        self._homes: dict[str, Server] = {}

    @property
    def usable(self) -> list[S]:
        """The servers that are not set aside."""
        return [server for server in self.servers if not server.aside]

    @property
    def width(self) -> int:
        """Requests that may be in flight together."""
        return self.concurrency * len(self.servers)

    def start(self) -> None:
        """Look at every server once. UserError if one is set up wrongly, EngineLost if none answers."""
        assert self._probe
        self.each(self._probe)
        if not self.usable:
            raise self._lost()

    def each(self, action: Callable[[S], object]) -> None:
        """Do something at every usable server, side by side; one that cannot be reached is set aside."""

        def run(server: S) -> None:
            try:
                action(server)
            except Unreachable as error:
                self.set_aside(server, error)

        self.cancellation = Cancellation()
        side_by_side(run, self.usable, len(self.servers), self.cancellation)

    def map(
        self, send: Callable[[S, int], T], keys: Sequence[int], sessions: Sequence[str] | None = None
    ) -> list[T]:
        """`send(server, index)` for every key, in order. A session prefers the server of its last request."""
        names = sessions or [""] * len(keys)
        cancellation = self.cancellation = Cancellation()

        def ask(i: int) -> T:
            return self.ask(lambda server: send(server, i), keys[i], cancellation, names[i])

        return side_by_side(ask, range(len(keys)), self.width, cancellation)

    def set_aside(self, server: Server, error: Unreachable) -> None:
        """Send nothing there until a probe finds it well again."""
        with self._changed:
            if not server.aside or not self._probe:
                server.failed_probes = server.failed_probes + 1 if server.aside else 0
                server.aside = str(error)
                server.epoch += 1
                self._strike(server, error.retry_after or 0.0)
                self._report("set aside: %s", error)
                self._changed.notify_all()

    def forget_homes(self) -> None:
        """No server knows any conversation any more."""
        self._homes.clear()

    def backoff(self, failures: int, key: int | str) -> float:
        """Doubling seconds, a little different for each request: what failed together comes back apart."""
        share = derive("pause", key, failures) / 2**63
        return min(self.pause * 2 ** min(failures, 30), LONGEST_PAUSE) * (1 + share / 4)

    def ask(self, send: Callable[[S], T], key: int, cancellation: Cancellation, name: str = "") -> T:
        """One request, to another server when one fails it, and after a pause when all have."""
        tried: set[Server] = set()
        rounds = 0
        while True:
            server, pause = self._take(tried, self._homes.get(name), cancellation), 0.0
            epoch = server.epoch
            try:
                result = send(server)
                with self._changed:
                    server.strikes = 0
                    if not self._probe and server.epoch == epoch:
                        server.aside = ""
                    if name:
                        self._homes[name] = server
                return result
            except Unreachable as error:
                # A failure of before the last probe says nothing about the server as it is now.
                if server.epoch == epoch:
                    self.set_aside(server, error)
                tried.add(server)
                if not set(self.usable) - tried:
                    pause = self.backoff(rounds, key)
                    rounds += 1
                    tried.clear()
                    if rounds > self.retries:
                        raise self._lost(str(error), rounds) from None
            finally:
                with self._changed:
                    server.in_flight -= 1
                    self._changed.notify_all()
            cancellation.wait(pause)

    def _take(self, tried: set[Server], home: Server | None, cancellation: Cancellation) -> S:
        """A place at the least busy server, one that has not failed this request if there is any."""
        while not cancellation.is_set():
            with self._changed:
                usable = self.usable
                if not self._probe:
                    now = time.monotonic()
                    usable += [s for s in self.servers if s.aside and not s.in_flight and s.probe_at <= now]
                untried = [s for s in usable if s not in tried] or usable
                free = [s for s in untried if s.in_flight < self.concurrency]
                if free:
                    server = min(free, key=lambda s: s.in_flight - HOME * (s is home))
                    server.in_flight += 1
                    return server
                aside = [s for s in self.servers if s.aside and not s.probing]
                if all(s.aside and s.failed_probes > self.retries for s in self.servers):
                    raise self._lost()
                ill = min(aside, key=lambda s: s.probe_at, default=None)
                pause = min(ill.probe_at - time.monotonic(), LONGEST_WAIT) if ill else LONGEST_WAIT
                if ill is None or pause > 0 or not self._probe:
                    self._changed.wait(pause if pause > 0 else LONGEST_WAIT)
                    continue
                ill.probing = True
            self._look_at(ill, self._probe)
        raise Cancelled

    def _look_at(self, server: S, probe: Callable[[S], None]) -> None:
        why = ""
        try:
            probe(server)
        except Cancelled:  # the next call looks again
            server.probing = False
            return
        except Exception as error:  # also one that came back set up wrongly: the others can do without it
            why = str(error) or type(error).__name__
        with self._changed:
            server.probing, server.aside = False, why
            if why:
                server.failed_probes += 1
                self._strike(server)
            else:
                server.failed_probes = 0
                self._report("back: %s", server.url)
            self._changed.notify_all()

    def _strike(self, server: Server, at_least: float = 0.0) -> None:
        pause = max(self.backoff(server.strikes, server.url), min(at_least, LONGEST_PAUSE))
        server.probe_at = time.monotonic() + pause
        server.strikes += 1

    def _lost(self, why: str = "", tries: int = 0) -> EngineLost:
        urls = " or ".join(s.url for s in self.servers)
        count = f" in {tries} {'tries' if tries > 1 else 'try'}" if tries else ""
        reasons = "\n  ".join(dict.fromkeys([why] if why else [s.aside for s in self.servers if s.aside]))
        advice = (
            "nothing is wrong with the run: see that the servers run, then the same command continues it; "
            "for busy ones lower engine.concurrency or raise engine.timeout and engine.retries (--set)"
        )
        return EngineLost(f"no answer from {urls}{count}; the last words:\n  {reasons}\n{advice}")
