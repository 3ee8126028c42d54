"""JSON over HTTP for the engines that talk to servers: one request, and an error that says whether to try again."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any


class Unreachable(Exception):
    """No answer (connection, time-out, server error, too many requests): the same request may work elsewhere or later."""


class Rejected(Exception):
    """The server understood and said no (4xx): the same request will be refused again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def request_json(
    url: str, body: Mapping[str, Any] | None = None, timeout: float = 60.0, headers: Mapping[str, str] | None = None
) -> Any:
    """POST `body` as JSON, or GET without one; the decoded answer (None for an empty one). Neither error shows the headers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    # A proxy of the environment is for the outside world; engines are named by address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as answer:
            text = answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        told = error.read(2000).decode("utf-8", "replace").strip() or str(error.reason)
        if error.code >= 500 or error.code in (408, 409, 425, 429):
            raise Unreachable(f"{url}: {error.code}: {told}") from None
        raise Rejected(error.code, told) from None
    except (OSError, HTTPException) as error:  # URLError and TimeoutError are OSErrors
        reason = getattr(error, "reason", None) or error
        raise Unreachable(f"{url}: {reason or type(error).__name__}") from None
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # Some calls of vLLM answer with a sentence. Anything else is garbage, and the caller will not find its fields in it.
        return text
