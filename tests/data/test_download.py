"""Downloads against a server that truncates, stalls, refuses, lies, and now and then works."""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import bcol
from bcol.data import TASKS, fetch, pair, write_d4rl
from bcol.data.download import Patience, cache_dir, cached_file
from conftest import assert_same, rows

TASK = TASKS["hopper-medium-v2"]
HASTE = Patience(stall_s=0.3, tries=3, pause_s=0.01)


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "original.hdf5"
    noise = np.random.default_rng(0).standard_normal((3000, 2))
    write_d4rl(path, rows("s" * 2999 + "T", observations=noise, actions=np.clip(noise, -1, 1)))
    return path.read_bytes()


class Server:
    """A loopback server that answers each request as the next entry of `plan` says; the last one repeats."""

    def __init__(self, content):
        self.content, self.etag = content, '"one"'
        self.plan: list[str | int] = ["whole"]
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, to):
        how = self.plan[min(len(self.requests), len(self.plan) - 1)]
        asked = to.headers.get("Range")
        self.requests.append((to.path, asked))
        if isinstance(how, int):
            return to.send_error(how)
        content = b"<html>sign in first</html>" * 50 if how == "html" else self.content
        start = 0
        if asked and how != "no ranges" and to.headers.get("If-Range") == self.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return to.send_error(416)
        to.send_response(206 if start else 200)
        if start:
            to.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if how != "no mark":
            to.send_header("ETag", self.etag)
        to.send_header("Content-Length", str(len(content) - start))
        to.end_headers()
        body = content[start:]
        if how in ("cut", "stall", "no mark"):
            to.wfile.write(body[: len(body) // 2])
            to.wfile.flush()
            if how == "stall":
                time.sleep(1)
        else:
            to.wfile.write(body)
        return None


@pytest.fixture
def server(whole, tmp_path, monkeypatch):
    server = Server(whole)
    monkeypatch.setenv("BCOL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("BCOL_MIRRORS", server.base)
    monkeypatch.setattr("bcol.data.download.D4RL_BASE", "http://127.0.0.1:9")  # nobody listens there
    yield server
    server.http.shutdown()
    server.http.server_close()


def get(**options):
    return fetch(TASK, patience=HASTE, show_progress=False, **options)


def test_whole(server, whole):
    path = get()
    assert path == cached_file(TASK)
    assert path.read_bytes() == whole
    assert server.requests == [(f"/{TASK.file}", None)]
    record = json.loads(path.with_name(path.name + ".json").read_text())
    assert record["sha256"] == hashlib.sha256(whole).hexdigest()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, path.name + ".json"]
    get()
    assert len(server.requests) == 1


def test_load_by_name(server, whole, tmp_path):
    assert_same(bcol.load_dataset(TASK.name), pair(bcol.data.read_d4rl(tmp_path / "original.hdf5"), TASK))
    assert bcol.load_dataset(TASK.name).spec.source == TASK.name


@pytest.mark.parametrize("trouble", ["cut", "stall", 500, 503])
def test_trouble_then_resumed(server, whole, trouble):
    server.plan = [trouble, trouble, "whole"]
    assert get().read_bytes() == whole
    if trouble in ("cut", "stall"):
        half = len(whole) // 2
        assert server.requests[1][1] == f"bytes={half}-"


def test_many_cuts_still_arrive(server, whole):
    server.plan = ["cut"] * 8 + ["whole"]
    assert get().read_bytes() == whole


def test_a_server_without_ranges(server, whole):
    server.plan = ["cut", "no ranges"]
    assert get().read_bytes() == whole


def test_a_server_without_version_marks_starts_again(server, whole):
    server.plan = ["no mark", "whole"]
    assert get().read_bytes() == whole
    assert server.requests[1][1] is None


def test_a_file_that_changes_between_tries(server, whole):
    server.plan = ["cut", "cut", "whole"]
    original = server.answer

    def answer(to):
        if len(server.requests) == 1:
            server.content, server.etag = whole[::-1], '"two"'
            server.content = whole[:8] + server.content[8:]
        original(to)

    server.answer = answer
    assert get().read_bytes() == server.content


def test_a_part_that_is_too_long(server, whole):
    path = cached_file(TASK)
    path.parent.mkdir(parents=True)
    path.with_name(path.name + ".part").write_bytes(whole + b"more")
    path.with_name(path.name + ".part.etag").write_text(server.etag)
    assert get().read_bytes() == whole


def test_interrupted_downloads_leave_no_file(server):
    server.plan = ["cut", 403]
    with pytest.raises(bcol.InputError):
        get()
    path = cached_file(TASK)
    assert not path.exists()
    assert path.with_name(path.name + ".part").exists()


@pytest.mark.parametrize(
    ("trouble", "word"), [(403, "HTTP 403"), (404, "HTTP 404"), (500, "HTTP 500"), ("html", "not HDF5")]
)
def test_refusal_says_where_to_put_the_file(server, trouble, word):
    server.plan = [trouble]
    with pytest.raises(bcol.InputError, match=word) as caught:
        get()
    message = str(caught.value)
    assert "\n" not in message
    assert f"put it at {cached_file(TASK)}" in message
    assert "BCOL_MIRRORS" in message
    assert len(server.requests) == (HASTE.tries if trouble == 500 else 1)


def test_offline(tmp_path, monkeypatch):
    monkeypatch.delenv("BCOL_MIRRORS", raising=False)
    monkeypatch.setattr("bcol.data.download.D4RL_BASE", "http://127.0.0.1:9")
    with pytest.raises(bcol.InputError, match=r"cannot download hopper_medium-v2.hdf5 .*refused.* put it at"):
        get(cache=tmp_path)


def test_addresses_that_are_none(tmp_path, server):
    server.plan = [403]
    with pytest.raises(bcol.InputError, match="nonsense/gym_mujoco_v2"):
        get(mirrors=["nonsense"])


def test_a_stalled_server_is_given_up(server):
    server.plan = ["stall", 403]
    start = time.monotonic()
    with pytest.raises(bcol.InputError):
        get()
    assert time.monotonic() - start < 5


def test_the_next_mirror_is_tried(server, whole, monkeypatch):
    monkeypatch.delenv("BCOL_MIRRORS")
    assert get(mirrors=["http://127.0.0.1:9", server.base + "/"]).read_bytes() == whole


def test_a_file_put_there_by_hand_counts(server, whole):
    path = cached_file(TASK)
    path.parent.mkdir(parents=True)
    path.write_bytes(whole)
    assert get() == path
    assert server.requests == []


def test_a_changed_file_is_refused(server, whole):
    path = get()
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(bcol.InputError, match="has changed since its first use"):
        get()
    path.unlink()
    assert get().read_bytes() == whole


def test_wrong_bytes_on_a_second_download_are_refused(server, whole):
    get().unlink()
    server.content = whole[:-1] + b"?"
    with pytest.raises(bcol.InputError, match="has changed since its first use"):
        get()


def test_a_damaged_record(server):
    path = get()
    path.with_name(path.name + ".json").write_text("{")
    with pytest.raises(bcol.InputError, match="is damaged; delete it"):
        get()


def test_cache_places(tmp_path, monkeypatch):
    monkeypatch.setenv("BCOL_DATA", str(tmp_path))
    assert cache_dir() == tmp_path
    assert cache_dir(tmp_path / "x") == tmp_path / "x"
    monkeypatch.delenv("BCOL_DATA")
    assert cache_dir().name == "bcol"


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(bcol.InputError, match="cannot write to"):
        get(cache=tmp_path / "file")
