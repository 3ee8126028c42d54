"""JSON over HTTP for engines with servers: no retries, and no redirects, which would carry the key away."""

import asyncio
import functools
import json
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from smopd.errors import UserError
from smopd.formatting import one_line

T = TypeVar("T")
Body = Mapping[str, Any] | None  # sent as JSON

LARGEST = 16 * 2**20  # bytes of an answer: ten times what 30,000 tokens with log-probabilities take
EXPLANATION = 4000  # bytes that are read of a refusal


class Unreachable(Exception):
    """No answer (connection, time-out, 5xx, 429): it may come elsewhere, or after `retry_after` seconds."""

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Rejected(Exception):
    """The server understood and said no (4xx, or a redirect): the same request will be refused again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Cancelled(Exception):
    """The request was given up on our side."""


class Cancellation(threading.Event):
    """Once set, every request that was given it raises `Cancelled`, under way or not yet begun."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._running: set[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = set()

    def set(self) -> None:
        super().set()
        with self._lock:
            for loop, task in self._running:
                loop.call_soon_threadsafe(task.cancel)  # type: ignore[union-attr]

    @contextmanager
    def applies(self) -> Iterator[None]:
        """To the current asyncio task, inside this block."""
        entry = asyncio.get_running_loop(), asyncio.current_task()
        with self._lock:
            if self.is_set():
                raise Cancelled
            self._running.add(entry)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(entry)


# Of the call whose work a thread does.
CURRENT = ContextVar("cancellation", default=Cancellation())  # noqa: B039 - nobody sets the default


class Client:
    """Sends the key of an environment variable, which no message shows. `proxies`: https may use a proxy."""

    def __init__(self, key_variable: str, proxies: bool = False) -> None:
        self.key, self.proxies = os.environ.get(key_variable, "").strip(), proxies
        if not (self.key.isascii() and self.key.isprintable()):  # httpx's own complaint would show it
            where = f"the environment variable {key_variable} (engine.api_key_env)"
            raise UserError(f"{where}: not a key: it holds more than plain characters")

    def request(self, url: str, body: Body = None, timeout: float = 60.0) -> Any:
        """POST `body` as JSON, or GET without one; the decoded answer, None if empty, within `timeout`."""
        try:
            status, headers, content = _run(lambda: self._exchange(url, body, timeout))
        except asyncio.CancelledError:
            raise Cancelled from None
        except TimeoutError:
            raise Unreachable(f"{url}: timed out") from None
        except (OSError, ValueError, ImportError, httpx.HTTPError, httpx.InvalidURL) as error:  # proxies, too
            raise Unreachable(f"{url}: {self.shown(_reason(error))}") from None
        text = content.decode("utf-8", "replace").strip()
        if 200 <= status < 300:
            return _decode(text)
        if 300 <= status < 400:
            raise Rejected(status, self.shown(f"redirects to {headers.get('Location')}"))
        reason = self.shown(_refusal(text) or httpx.codes.get_reason_phrase(status))
        if status >= 500 or status in (408, 409, 425, 429):
            raise Unreachable(f"{url}: {status}: {reason}", status, _seconds(headers.get("Retry-After")))
        raise Rejected(status, reason)

    def shown(self, answer: object, limit: int = EXPLANATION) -> str:
        """What a server said as part of a message: in one line, visible, and *** where the key stands."""
        text = str(answer)
        return one_line(text.replace(self.key, "***") if self.key else text, limit)

    async def _exchange(self, url: str, body: Body, timeout: float) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body. httpx's own time-outs start again with every byte: they bound nothing."""
        # A compressed answer could outgrow the limit while it is unpacked, so none is asked for.
        sent = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            sent["Authorization"] = f"Bearer {self.key}"
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        proxies = self.proxies and url.startswith("https:")
        client = httpx.AsyncClient(verify=_tls(), timeout=None, trust_env=proxies)
        status, headers, content = 0, httpx.Headers(), bytearray()
        try:
            with CURRENT.get().applies():
                stream = client.stream(method, url, content=data, headers=sent)
                async with asyncio.timeout(timeout), client, stream as answer:
                    status, headers = answer.status_code, answer.headers
                    async for part in answer.aiter_raw():
                        content += part
                        if status >= 300 and len(content) >= EXPLANATION:
                            del content[EXPLANATION:]
                            break
                        if len(content) > LARGEST:
                            raise Unreachable(f"{url}: the answer has more than {LARGEST >> 20} MB")
        except (TimeoutError, httpx.HTTPError):
            if status < 300:  # else it died while it was explaining its refusal
                raise
        return status, headers, bytes(content)


def base_url(url: str) -> str:
    """The address in front of /v1, from a URL with or without it."""
    where = "--url (engine.servers)"
    cut = url.strip().rstrip("/").removesuffix("/chat/completions").removesuffix("/v1").rstrip("/")
    if "@" in cut:  # not shown: what stands before it is a secret
        raise UserError(f"{where}: a user or a password in a URL; a key belongs into the environment")
    with suppress(ValueError):  # a port that is no number, brackets that do not close, a host that is no name
        parts = urlsplit(cut)
        host = parts.hostname and parts.hostname.encode("idna")
        plain = cut.isascii() and not set(cut) & set(" ?#")
        if parts.scheme in ("http", "https") and host and parts.port != 0 and plain:
            return cut
    shown = cut.partition("?")[0]  # some services take their key in the query
    raise UserError(f"{where}: {shown!r} is no base URL; expected one such as http://localhost:8000")


class _Loop(asyncio.SelectorEventLoop):
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Names are looked up there. A name server that does not answer is not waited for."""


def _run(request: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:  # as in a notebook: this thread has a loop and cannot have another
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: _run(request)).result()
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(request())


_tls = functools.cache(ssl.create_default_context)


def _reason(error: BaseException) -> str:
    """What the system said: of a refused connection httpx itself tells only that all attempts failed."""
    reason, cause = error, error.__cause__ or error.__context__
    while cause is not None:
        reason = cause if isinstance(cause, OSError) else reason
        group = isinstance(cause, BaseExceptionGroup)
        cause = cause.exceptions[0] if group else cause.__cause__ or cause.__context__  # type: ignore[attr-defined]
    if isinstance(reason, OSError) and reason.errno and "Connect call failed" in str(reason):
        return f"[Errno {reason.errno}] {os.strerror(reason.errno)}"  # asyncio does not say it
    return str(reason) or type(reason).__name__


def _decode(text: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # some calls of vLLM answer with a sentence
        return text


def _refusal(text: str) -> str:
    """What the server says of its refusal: the message inside the usual JSON, else the text."""
    message = _decode(text)
    for key in ("error", "message", "detail"):
        if isinstance(message, dict) and message.get(key):
            message = message[key]
    return message if isinstance(message, str) else text


def _seconds(value: Any) -> float | None:
    """The seconds of a Retry-After header, which may hold a date; None if it makes no sense."""
    with suppress(TypeError, ValueError):
        return max(0.0, float(value))
    with suppress(TypeError, ValueError):
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    return None
