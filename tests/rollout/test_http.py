"""One request against servers that drip, never end, lie or hang up: it ends by its deadline or its limit."""

import asyncio
import socket
import struct
import threading
import time

import pytest

from smopd.rollout import http
from smopd.rollout.http import Cancellation, Cancelled, Client, Rejected, Unreachable
from smopd.rollout.pool import side_by_side

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def serve():
    """Starts servers on raw sockets: `talk(connection, ended)` is what one does once it was asked."""
    ended, listeners, threads = threading.Event(), [], []

    def begin(work, *args):
        threads.append(threading.Thread(target=work, args=args, daemon=True))
        threads[-1].start()

    def handle(connection, talk):
        with connection:
            try:
                connection.recv(1 << 16)
                talk(connection, ended)
            except OSError:
                pass  # the client gave up

    def accept(listener, talk):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            begin(handle, connection, talk)

    def start(talk):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        begin(accept, listener, talk)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    ended.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which `close` does not
        listener.close()
    for thread in threads:
        thread.join(5)


def dripping(first: bytes, drop: bytes):
    def talk(connection, ended):
        connection.sendall(first)
        while not ended.wait(0.02):
            connection.sendall(drop)

    return talk


def endless(first: bytes, part: bytes):
    def talk(connection, ended):
        connection.sendall(first)
        while not ended.is_set():
            connection.sendall(part)

    return talk


def once(answer: bytes):
    return lambda connection, _: connection.sendall(answer)


@pytest.mark.parametrize(
    "talk",
    [
        dripping(OK + b"Content-Length: 100000\r\n\r\n", b" "),
        dripping(OK, b"x"),
        dripping(OK, b"X: y\r\n"),
        dripping(b"", b"H"),
        dripping(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        lambda connection, ended: ended.wait(20),
    ],
    ids=["body", "a header", "headers", "status line", "continue", "nothing"],
)
def test_the_deadline_is_for_the_whole_request(serve, talk):
    began = time.monotonic()
    with pytest.raises(Unreachable, match="timed out"):
        Client("").request(serve(talk), {"a": 1}, timeout=0.4)
    assert 0.4 <= time.monotonic() - began < 1.5


def test_an_endless_body_is_read_up_to_the_limit(serve, monkeypatch):
    monkeypatch.setattr(http, "LARGEST", 4 << 20)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="the answer has more than 4 MB"):
        Client("").request(serve(endless(OK + b"\r\n", b"x" * 65536)), timeout=20.0)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("first", "part"),
    [
        (OK, b"A: b\r\n" * 1000),
        (OK + b"A: ", b"b" * 65536),
        (b"HTTP/1.1 200 ", b"O" * 65536),
        (b"", b"\r\n" * 30000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 65536),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 1000),
    ],
    ids=["headers", "a header", "status line", "empty lines", "a chunk's size", "trailers"],
)
def test_an_endless_head_ends(serve, first, part):
    began = time.monotonic()
    with pytest.raises(Unreachable):
        Client("").request(serve(endless(first, part)), timeout=2.0)
    assert time.monotonic() - began < 4


def test_answers_before_the_answer_end_with_the_deadline(serve):
    began = time.monotonic()
    with pytest.raises(Unreachable, match="timed out"):
        Client("").request(serve(endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100)), timeout=0.5)
    assert time.monotonic() - began < 2


def test_small_chunks_end_with_the_deadline(serve):
    first = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    began = time.monotonic()
    with pytest.raises(Unreachable, match="timed out"):
        Client("").request(serve(endless(first, b"1\r\nx\r\n" * 1000)), timeout=0.5)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("status", [b"400 Bad", b"503 Busy", b"302 Found"])
def test_a_servers_words_are_shown_without_control_characters(serve, status):
    body = "\x1b]0;owned\x07\x9b2J\u202e\u2067\u200d\ufeff\r\nerror: forged".encode()
    head = b"HTTP/1.1 " + status + b"\r\nLocation: http://a/\xe2\x80\xae\xc2\x9b\r\n\r\n"
    with pytest.raises((Rejected, Unreachable)) as refused:
        Client("").request(serve(once(head + body)), timeout=5.0)
    assert set(str(refused.value)) <= {chr(i) for i in range(32, 127)} | {"\ufffd", "\xe2"}


def test_a_body_of_the_largest_size_is_taken(serve, monkeypatch):
    monkeypatch.setattr(http, "LARGEST", 1 << 20)
    body = b'"' + b"x" * ((1 << 20) - 2) + b'"'
    assert len(Client("").request(serve(once(OK + b"\r\n" + body)))) == (1 << 20) - 2


def test_a_refusal_without_end_is_told_by_its_beginning(serve):
    with pytest.raises(Rejected, match="400: x") as refused:
        Client("").request(serve(endless(b"HTTP/1.1 400 Bad\r\n\r\n", b"x" * 65536)), timeout=20.0)
    assert len(refused.value.message) == http.EXPLANATION


def test_a_refusal_that_drips_is_told_by_its_status(serve):
    talk = dripping(b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 9000\r\n\r\nno", b" ")
    with pytest.raises(Unreachable, match="429: no") as refused:
        Client("").request(serve(talk), timeout=0.3)
    assert (refused.value.status, refused.value.retry_after) == (429, 7.0)


def hang_up(connection, _):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        (once(b""), "disconnected"),
        (once(b"hello\r\n\r\n"), "illegal status line"),
        (once(OK + b"Content-Length: 9\r\n\r\n{}"), "expected 9"),
        (hang_up, "Connection reset by peer"),
    ],
)
def test_no_whole_answer_is_none(serve, talk, message):
    with pytest.raises(Unreachable, match=message):
        Client("").request(serve(talk), timeout=5.0)


def test_no_compressed_answer_is_unpacked(serve):
    """A small one could grow past the limit."""
    url = serve(once(OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]"))
    assert Client("").request(url, timeout=5.0) == []


def test_requests_are_cancelled_from_another_thread(serve):
    url, cancellation = serve(lambda connection, ended: ended.wait(20)), Cancellation()
    before = http.CURRENT.set(cancellation)
    threading.Timer(0.2, cancellation.set).start()
    began = time.monotonic()
    try:
        with pytest.raises(Cancelled):
            Client("").request(url, timeout=20.0)
        assert 0.2 <= time.monotonic() - began < 1.5
        with pytest.raises(Cancelled):  # nor is another one begun
            Client("").request(url, timeout=20.0)
    finally:
        http.CURRENT.reset(before)


def test_a_notebook_has_a_loop_of_its_own_running(serve):
    url = serve(once(OK + b"Content-Length: 2\r\n\r\n[]"))

    async def cell():
        return Client("").request(url, timeout=5.0)

    assert asyncio.run(cell()) == []


def test_side_by_side_keeps_the_order_and_begins_nothing_after_an_error():
    assert side_by_side(lambda n: n * n, range(50), 8, Cancellation()) == [n * n for n in range(50)]
    assert side_by_side(lambda n: n, [], 8, Cancellation()) == []
    begun, cancellation = [], Cancellation()

    def work(item):
        begun.append(item)
        if item == "bad":
            raise ValueError("the first")
        if not cancellation.wait(10):
            raise AssertionError("nobody cancelled")
        raise Cancelled

    with pytest.raises(ValueError, match="the first"):
        side_by_side(work, ["slow", "slow", "bad", "never", "never"], 3, cancellation)
    assert sorted(begun) == ["bad", "slow", "slow"]
    assert not [t for t in threading.enumerate() if t.name.startswith("smopd")]
