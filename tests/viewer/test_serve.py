"""Pages over HTTP on this machine: to our own pages only, and gone when the block ends."""

import http.client
import threading

import pytest

from smopd.errors import UserError
from smopd.viewer.pages.serve import keep_calling, serve_folder


def asked(address, path="/", host=None):
    """Status and content of one request."""
    place = address.removeprefix("http://").strip("/")
    connection = http.client.HTTPConnection(place, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_files_of_the_folder_are_served_to_this_machine_and_nothing_else(tmp_path):
    folder = tmp_path / "view"
    (folder / "data").mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (tmp_path / "secret").write_text("not yours")
    threads = threading.active_count()
    with serve_folder(folder, 0) as address:
        assert address.startswith("http://127.0.0.1:")
        assert asked(address) == (200, b"the page")
        assert asked(address, "/../secret")[0] == 404
        assert asked(address, "/data/")[0] == 404
        assert asked(address, host="evil.example")[0] == 403
        with pytest.raises(UserError, match="--port"), serve_folder(folder, int(address[17:-1])):
            pass
    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        asked(address)


def test_pages_are_made_anew_until_somebody_ends_it():
    calls = []

    def remake():
        calls.append(len(calls))
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_calling(remake, 0.01)
    assert calls == [0, 1, 2]
