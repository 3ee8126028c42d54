"""A chat endpoint that misbehaves on request, and the engine that talks to it."""

import time

from support.http_stub import HttpStub

from smopd.rollout import Sampling
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.settings import EngineSettings

KEY = "sk-very-secret-0123456789"


def said(text, finish="stop", tokens=3):
    """A chat completion."""
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {"completion_tokens": tokens}}  # fmt: skip


class Stub(HttpStub):
    """A server; `answer(body, headers)` returns a completion, text, or (status, body, headers) to send."""

    def __init__(self, answer=lambda body, headers: said("The answer is 4.")):
        self.answer, self.requests, self.gets = answer, [], []
        super().__init__()

    def respond(self, path, body, headers):
        """Keep the request, and answer it."""
        request = {"path": path, "body": body, "headers": dict(headers), "at": time.monotonic()}
        (self.gets if body is None else self.requests).append(request)
        return self.answer(body, headers)


def endpoint(*urls, pause=0.01, model="m", **settings) -> ChatEndpoint:
    return ChatEndpoint(
        EngineSettings(servers=list(urls), model=model, **{"retries": 2, "timeout": 10.0} | settings), pause
    )


def ask(*urls, **settings):
    """One reply to one message."""
    return endpoint(*urls, **settings).reply([{"role": "user", "content": "hi"}], Sampling(0.0, 7), 1)


def driver(*urls, **settings) -> ChatDriver:
    return ChatDriver(endpoint(*urls, **settings), Sampling(0.5, 9), middle_tokens=5)
