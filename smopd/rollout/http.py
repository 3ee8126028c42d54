"""JSON over HTTP for the engines that talk to servers: addresses, keys, one request, an error that says
whether to try again.

It leaves out trying again, which is the callers'. Redirects are refused: they would carry the key to another
host.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import urlsplit

from smopd.errors import UserError


class Unreachable(Exception):
    """No answer (connection, time-out, server error, too many requests): the same request may work elsewhere
    or later.

    `status` is the answer's, if there was one; `retry_after` the seconds for which the server asks to be left
    alone.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Rejected(Exception):
    """The server understood and said no (4xx, or a redirect): the same request will be refused again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Leave the 3xx answer an error."""


def request_json(
    url: str,
    body: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    headers: Mapping[str, str] | None = None,
    proxies: bool = False,
) -> Any:
    """POST `body` as JSON, or GET without one; the decoded answer (None for an empty one). Neither error
    shows the headers.

    `timeout` is for the whole answer. `proxies`: go through the proxy that the environment names, if any: it
    is for the outside world, not for machines of one's own.
    """
    began = time.monotonic()
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    handlers = [urllib.request.ProxyHandler(None if proxies else {}), _NoRedirect()]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            text = _read(answer, began + timeout).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        told = _words(error)
        if error.code >= 500 or error.code in (408, 409, 425, 429):
            raise Unreachable(
                f"{url}: {error.code}: {told}", error.code, _seconds(error.headers["Retry-After"])
            ) from None
        if 300 <= error.code < 400:
            told = f"redirects to {error.headers['Location']}"
        raise Rejected(error.code, told) from None
    except (OSError, HTTPException) as error:  # URLError and TimeoutError are OSErrors
        reason = getattr(error, "reason", None) or error
        raise Unreachable(f"{url}: {str(reason) or type(reason).__name__}") from None
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Some calls of vLLM answer with a sentence. Anything else is garbage, and the caller will not find
        # its fields in it.
        return text


def base_url(url: str) -> str:
    """The address in front of /v1, from a URL with or without it."""
    cut = url.strip().rstrip("/").removesuffix("/chat/completions").removesuffix("/v1").rstrip("/")
    if "@" in cut:  # not shown: what stands before it is a secret
        raise UserError(
            "--url (engine.servers): a user or a password in a URL; a key belongs into the environment"
        )
    try:
        parts = urlsplit(cut)
        host = parts.hostname and parts.hostname.encode("idna")
        usable = (
            parts.scheme in ("http", "https")
            and bool(host)
            and parts.port != 0
            and cut.isascii()
            and " " not in cut
        )
        usable = usable and "?" not in cut and "#" not in cut
    except ValueError:  # a port that is no number, brackets that do not close, a host that is no name
        usable = False
    if not usable:
        shown = cut.partition("?")[0]  # some services take their key in the query
        raise UserError(
            f"--url (engine.servers): {shown!r} is no base URL; expected one such as http://localhost:8000"
        )
    return cut


def api_key(name: str) -> str:
    """The key in an environment variable, empty if it is not set."""
    key = os.environ.get(name, "").strip() if name else ""
    if not (key.isascii() and key.isprintable()):  # http.client's own complaint would show it
        raise UserError(
            f"the environment variable {name} (engine.api_key_env): not a key: it holds more than plain characters"
        )
    return key


def _read(answer: HTTPResponse, deadline: float) -> bytes:
    """The whole body. The socket's own time-out starts again with every byte, so it does not bound a body
    that drips.
    """
    parts = []
    while part := answer.read1(1 << 16):
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    if answer.length:  # read1, unlike read, does not mind a body that ends early
        raise IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _words(error: urllib.error.HTTPError) -> str:
    """What the server says of its refusal: the message inside the usual JSON, else the text, else the status
    line.
    """
    try:
        text = error.read(4000).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):  # it died while it was explaining
        text = ""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return text or str(error.reason)
    for key in ("error", "message", "detail"):
        if isinstance(told, dict) and told.get(key):
            told = told[key]
    return told if isinstance(told, str) else text


def _seconds(value: str | None) -> float | None:
    """The seconds of a Retry-After header, which may hold a date; None if there is none or it makes no sense."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
