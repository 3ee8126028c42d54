"""A small HTTP server for tests: it counts what is under way, and ends with all its threads."""

import json
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_UP = object()  # an answer: the connection is closed without a word


class HttpStub(ABC):
    """A server on a free port. `respond` makes an answer: a body (bytes, text or JSON), or (status, body,
    headers) with or without headers.
    """

    def __init__(self) -> None:
        self.now = self.most = 0  # requests with a body that are under way
        self.lock, self.closing = threading.Lock(), threading.Event()
        self.server, self.port, self.threads = None, 0, []
        self.start()

    @abstractmethod
    def respond(self, path: str, body: Any, headers: Any) -> Any:
        """The answer to one request."""

    def start(self) -> None:
        """Listen, at the old port after `stop`."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                stub.threads.append(threading.current_thread())
                length = int(self.headers["Content-Length"])
                sent = self.rfile.read(length)
                if len(sent) < length:
                    return  # the client gave up while it was sending
                lines = self.headers.get("Content-Type") == "application/x-ndjson"
                body = [json.loads(line) for line in sent.splitlines()] if lines else json.loads(sent)
                with stub.lock:
                    stub.now += 1
                    stub.most = max(stub.most, stub.now)
                try:
                    answer = stub.respond(self.path, body, self.headers)
                finally:
                    with stub.lock:
                        stub.now -= 1  # before the answer leaves: its receiver may ask again at once
                self.send(answer)

            def do_GET(self):
                stub.threads.append(threading.current_thread())
                self.send(stub.respond(self.path, None, self.headers))

            def do_CONNECT(self):
                stub.respond(self.path, None, self.headers)
                self.send((502, "no way out"))

            def send(self, answer):
                if answer is HANG_UP:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, body, *more = answer if isinstance(answer, tuple) else (200, answer)
                data = body if isinstance(body, bytes | str) else json.dumps(body)
                data = data.encode() if isinstance(data, str) else data
                try:
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(data))} | dict(*more)).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client gave up

            def log_message(self, *_):
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 128

            def handle_error(self, request, client_address):
                if not isinstance(sys.exception(), ConnectionError):  # a client may hang up at any moment
                    super().handle_error(request, client_address)

        self.server = Listener(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Nobody listens any more; what was loaded is kept, as behind a network that is down."""
        server, self.server = self.server, None
        if server:
            server.shutdown()
            server.server_close()

    def end(self) -> None:
        """Stop, and wait for what is under way. Answers that wait for `closing` need wait no longer."""
        self.closing.set()
        self.stop()
        for thread in self.threads:
            thread.join(5)


@contextmanager
def stubs_of(kind: type[HttpStub]) -> Iterator[Any]:
    """Inside, a function that starts servers; outside, they have ended."""
    with ExitStack() as stack:

        def start(*args: Any, **settings: Any) -> HttpStub:
            stub = kind(*args, **settings)
            stack.callback(stub.end)
            return stub

        yield start
