"""A chat endpoint that misbehaves on request, and the engine that talks to it."""

import json
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from smopd.rollout import Sampling
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.settings import Engine

KEY = "sk-very-secret-0123456789"


def said(text, finish="stop", tokens=3):
    """A chat completion."""
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {"completion_tokens": tokens}}  # fmt: skip


class Stub:
    """A server on a free port. `answer(body, headers)` returns a completion, text, or (status, body, headers)
    to send.
    """

    def __init__(self, answer=lambda body, headers: said("The answer is 4.")):
        self.answer, self.requests, self.gets = answer, [], []
        self.now = self.most = 0
        self.lock, self.closing = threading.Lock(), threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub.lock:
                    stub.requests.append(
                        {
                            "path": self.path,
                            "body": body,
                            "headers": dict(self.headers),
                            "at": time.monotonic(),
                        }
                    )
                    stub.now += 1
                    stub.most = max(stub.most, stub.now)
                answer = stub.answer(body, self.headers)
                with stub.lock:
                    stub.now -= 1  # before the answer leaves: its receiver may ask again at once
                self.send(answer)

            def do_GET(self):
                stub.gets.append({"path": self.path, "headers": dict(self.headers)})
                self.send(stub.answer(None, self.headers))

            def do_CONNECT(self):
                stub.gets.append({"path": self.path, "headers": dict(self.headers)})
                self.send((502, "no way out", {}))

            def send(self, answer):
                status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
                data = (
                    body
                    if isinstance(body, bytes)
                    else body.encode()
                    if isinstance(body, str)
                    else json.dumps(body).encode()
                )
                try:
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(data))} | headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client gave up

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


def started():
    """Starts stubs that end with the test."""
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(Stub(*args))


def nobody() -> str:
    """A URL at which nothing listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}"


def endpoint(*urls, pause=0.01, model="m", **settings) -> ChatEndpoint:
    return ChatEndpoint(
        Engine(servers=list(urls), model=model, **{"retries": 2, "timeout": 10.0} | settings), pause
    )


def ask(*urls, **settings):
    """One reply to one message."""
    return endpoint(*urls, **settings).reply([{"role": "user", "content": "hi"}], Sampling(0.0, 7), 1)


def driver(*urls, **settings) -> ChatDriver:
    return ChatDriver(endpoint(*urls, **settings), Sampling(0.5, 9), middle_tokens=5)
