"""Serve pages over HTTP on this machine only, and rebuild them while a run goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

from smopd.errors import UserError

HOST = "127.0.0.1"


class _Handler(SimpleHTTPRequestHandler):
    """Serves one folder to its own pages only: a foreign host name that resolves here gets nothing."""

    def log_message(self, *args: Any) -> None:
        """Do not log every request."""

    def do_GET(self) -> None:
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(403)
            return
        super().do_GET()

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()


@contextmanager
def serve_folder(folder: Path, port: int) -> Iterator[str]:
    """Serve the folder inside the block; yields its address."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        advice = "choose another --port, or --port 0 for any"
        raise UserError(f"--serve: {HOST}:{port} cannot be used: {error.strerror}; {advice}") from None
    with server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()  # returns when no request is served any more


def keep_calling(work: Callable[[], object], seconds: float) -> NoReturn:
    while True:
        time.sleep(seconds)
        work()
