"""fetch: one complete, verified file or none; what failed on the way, and what is tried again."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from download_server import (
    BODY,
    BY_HAND,
    HALF,
    SHA256,
    SIZE,
    Server,
    chunked,
    corrupt,
    get,
    names,
    never_answer,
    of_length,
    redirect,
    refusal,
    stall,
    status,
    truncate,
    whole,
    without_length,
)
from hierlearn.errors import DownloadError
from hierlearn.files.locations import cache_dir
from hierlearn.lab.corpora import download
from hierlearn.lab.corpora.download import fetch, mismatch


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _direct_and_quick(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.01)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "rows.arff"


def test_the_file_is_complete_and_nothing_else_is_left(server, target):
    assert get(server, target) == target
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]


def test_a_correct_file_is_not_downloaded_again(server, target):
    get(server, target)
    get(server, target, sha256=SHA256.upper())
    assert server.asked == 1


@pytest.mark.parametrize("data", [b"", BODY[:-1], BODY[:-1] + b"x"])
def test_a_wrong_file_in_place_is_replaced(server, target, data):
    target.parent.mkdir()
    target.write_bytes(data)
    get(server, target)
    assert target.read_bytes() == BODY


def test_an_empty_file_is_a_file(server, target):
    server.script = [of_length(0)]
    get(server, target, size=0, sha256=hashlib.sha256(b"").hexdigest())
    assert target.read_bytes() == b""


@pytest.mark.parametrize("answer", [without_length(SIZE), chunked(complete=True)])
@pytest.mark.parametrize("size", [SIZE, None])
def test_a_server_that_sends_no_length(server, target, answer, size):
    server.script = [answer]
    get(server, target, size=size)
    assert target.read_bytes() == BODY


def test_the_end_of_the_body_needs_no_closed_connection(server, target):
    server.script = [stall(SIZE)]
    get(server, target, timeout=60.0)
    assert not server.release.is_set()
    assert target.read_bytes() == BODY


def test_a_redirect_is_followed(server, target):
    server.script = [redirect(server.url), whole]
    get(server, target)
    assert target.read_bytes() == BODY


def test_a_redirect_away_from_the_web_is_refused(server, target):
    server.script = [redirect("file:///etc/hosts")]
    assert "302" in refusal(server, target, retries=0)


@pytest.mark.parametrize(("size", "total"), [(SIZE, SIZE), (None, None)])
def test_progress(server, target, size, total):
    server.script = [without_length(SIZE)]
    seen = []
    get(server, target, size=size, progress=lambda *report: seen.append(report))
    assert seen[0] == (0, total)
    assert seen[-1] == (SIZE, total)
    assert seen == sorted(seen)
    assert len(seen) > 3


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://host/x", "rows.arff", "http:///x"])
def test_only_http_addresses(tmp_path, url):
    with pytest.raises(DownloadError) as caught:
        fetch(url, tmp_path / "x", size=1, sha256=SHA256)
    assert str(caught.value) == f"{url!r} is not an http or https address; give one that is"
    assert names(tmp_path) == []


# ---------------------------------------------------------------------- verified


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_wrong_hash_leaves_what_was_there(server, target, old):
    if old is not None:
        target.parent.mkdir()
        target.write_bytes(old)
    server.script = [corrupt]
    wrong = hashlib.sha256(BODY[:-1] + bytes([BODY[-1] ^ 1])).hexdigest()
    assert refusal(server, target) == (
        f"{server.url} has SHA-256 {wrong}, expected {SHA256}, so it was deleted; run again, or "
        f"{BY_HAND}"
    )
    assert names(target.parent) == ([] if old is None else ["rows.arff"])
    assert old is None or target.read_bytes() == old
    assert server.asked == 1


@pytest.mark.parametrize("count", [SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_refused_before_its_body(server, target, count):
    server.script = [of_length(count)]
    assert refusal(server, target) == (
        f"{server.url} has {count:,} bytes, expected {SIZE:,}; check the address, or {BY_HAND}"
    )
    assert names(target.parent) == []


@pytest.mark.parametrize("answer", [without_length(SIZE), chunked(complete=True)])
@pytest.mark.parametrize("size", [SIZE - 1, None])
def test_a_body_that_does_not_end_is_refused(server, target, size, answer, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", SIZE - 1)
    server.script = [answer]
    assert refusal(server, target, size=size) == (
        f"{server.url} has more than {SIZE - 1:,} bytes; check the address, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_without_a_hash_the_file_is_taken_as_it_is(server, target):
    get(server, target, sha256=None)
    target.write_bytes(b"x" * SIZE)
    get(server, target, sha256=None)
    assert server.asked == 1
    assert target.read_bytes() == b"x" * SIZE


def test_mismatch_shows_both_sides(tmp_path):
    path = tmp_path / "x"
    assert mismatch(path, size=None, sha256=None) == "cannot be read (No such file or directory)"
    path.write_bytes(b"abc")
    found = hashlib.sha256(b"abc").hexdigest()
    assert mismatch(path, size=3, sha256=found) is None
    assert mismatch(path, size=None, sha256=None) is None
    assert mismatch(path, size=4, sha256=found) == "has 3 bytes, expected 4"
    assert mismatch(path, size=3, sha256=SHA256) == f"has SHA-256 {found}, expected {SHA256}"


# ---------------------------------------------------------------------- tried again


@pytest.mark.parametrize(
    "broken",
    [truncate(HALF), chunked(complete=False), without_length(HALF), status(429), status(503)],
)
def test_a_broken_connection_is_tried_again(server, target, broken):
    server.script = [broken, whole]
    get(server, target)
    assert server.asked == 2
    assert target.read_bytes() == BODY


def test_a_stall_is_tried_again(server, target):
    server.script = [stall(HALF), whole]
    get(server, target, timeout=1.5)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (truncate(1000), f"the connection closed after 1,000 of {SIZE:,} bytes"),
        (never_answer, "no byte came for 0.5 s"),
        (status(500), "the server answered 500 Internal Server Error"),
    ],
)
def test_what_fails_every_time(server, target, answer, reason):
    server.script = [answer]
    assert refusal(server, target, timeout=0.5, retries=1) == (
        f"{server.url}: {reason}, 2 times; run again, or {BY_HAND}"
    )
    assert server.asked == 2
    assert names(target.parent) == []


def test_a_server_that_is_down(server, target):
    server.shutdown()
    server.socket.close()
    assert refusal(server, target, retries=1) == (
        f"{server.url}: the connection failed (Connection refused), 2 times; run again, or "
        f"{BY_HAND}"
    )


def test_a_404_is_final(server, target):
    server.script = [status(404)]
    assert refusal(server, target) == (
        f"{server.url}: the server answered 404 Not Found; check the address, or {BY_HAND}"
    )
    assert server.asked == 1
    assert names(target.parent) == []


def test_an_interruption_leaves_nothing(server, target):
    def interrupt(received, total):
        if received:
            assert not target.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, target, progress=interrupt)
    assert names(target.parent) == []


def test_many_threads_leave_one_file(server, target):
    results = []

    def work():
        results.append(get(server, target).read_bytes() == BODY)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert names(target.parent) == ["rows.arff"]


# ---------------------------------------------------------------------- written


def cannot_write(folder, why):
    return (
        f"cannot write rows.arff into {folder}: {why}; set HIERLEARN_CACHE to a folder that can be "
        f"written, or {BY_HAND}"
    )


def test_a_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    target = tmp_path / "cache" / "deeper" / "rows.arff"
    assert refusal(server, target) == cannot_write(target.parent, "Not a directory")
    assert server.asked == 0


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder(server, target, monkeypatch, code):
    target.parent.mkdir()
    real = os.open

    def refuse(path, flags, *arguments, **options):
        if Path(path).parent == target.parent and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(server, target) == cannot_write(target.parent, os.strerror(code))
    assert server.asked == 0


def test_a_full_disk(server, target, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hierlearn.files.writing.flush", full)
    assert refusal(server, target) == cannot_write(target.parent, "No space left on device")
    assert names(target.parent) == []


def test_the_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("HIERLEARN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path("/home/ada/.cache/hierlearn")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_dir() == Path("/scratch/hierlearn")
    monkeypatch.setenv("HIERLEARN_CACHE", "~/data")
    assert cache_dir() == Path("/home/ada/data")
