"""fetch when all goes well: the file, its progress, and the arguments."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise

import pytest

from download_server import (
    BODY,
    HALF,
    SHA256,
    SIZE,
    chunked,
    get,
    honor_range,
    ignore_range,
    leave_part,
    names,
    of_length,
    redirect,
    refusal,
    stall,
    truncate,
    without_length,
)
from hierlearn.errors import DownloadError
from hierlearn.lab.corpora.download import fetch


def test_the_file_is_complete_and_nothing_else_is_left(server, target):
    assert get(server, target) == target
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]
    assert server.ranges == [None]


@pytest.mark.parametrize("planted", [".part", ".lock"])
def test_a_planted_link_is_not_written_through(server, target, tmp_path, planted):
    (tmp_path / "mine").write_text("keep me\n")
    target.parent.mkdir()
    target.with_name(f"{target.name}{planted}").symlink_to(tmp_path / "mine")
    with pytest.raises(DownloadError, match=r"cannot write rows.arff into .* symbolic links"):
        get(server, target)
    assert (tmp_path / "mine").read_text() == "keep me\n"
    assert not target.exists()


def test_a_planted_pipe_is_not_waited_for(server, target):
    target.parent.mkdir()
    os.mkfifo(target.with_name(f"{target.name}.part"))
    with pytest.raises(DownloadError, match="which is a FIFO"):
        get(server, target)


def test_a_correct_file_is_not_downloaded_again(server, target):
    get(server, target)
    get(server, target, sha256=SHA256.upper())
    assert len(server.ranges) == 1


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
    assert names(target.parent) == ["rows.arff"]


@pytest.mark.parametrize("answer", [without_length(SIZE), chunked(complete=True)])
@pytest.mark.parametrize("size", [SIZE, None])
def test_a_server_that_sends_no_length(server, target, answer, size):
    server.script = [answer]
    get(server, target, size=size)
    assert target.read_bytes() == BODY


def test_the_end_of_the_body_needs_no_closed_connection(server, target):
    server.script = [stall(SIZE)]
    get(server, target, timeout=60.0)
    assert server.ranges == [None]
    assert not server.release.is_set()
    assert target.read_bytes() == BODY


def test_a_redirect_is_followed(server, target):
    server.script = [redirect(server.url), honor_range]
    get(server, target)
    assert target.read_bytes() == BODY


def test_progress_rises_to_the_total(server, target):
    server.script = [truncate(HALF), ignore_range]
    seen = []
    get(server, target, progress=lambda received, total: seen.append((received, total)))
    counts = [received for received, _ in seen]
    assert counts[0] == 0
    assert counts[-1] == SIZE
    assert all(a < b for a, b in pairwise(counts))
    assert {total for _, total in seen} == {SIZE}
    assert len(counts) > 3


def test_progress_begins_where_the_part_ends(server, target):
    leave_part(target, BODY[:HALF])
    seen = []
    get(server, target, size=None, progress=lambda *report: seen.append(report))
    assert seen[0] == (HALF, SIZE)
    assert seen[-1] == (SIZE, SIZE)


def test_progress_without_a_total(server, target):
    server.script = [without_length(SIZE)]
    seen = []
    get(server, target, size=None, progress=lambda *report: seen.append(report))
    assert seen[-1] == (SIZE, None)


@pytest.mark.parametrize(
    "url", ["file:///etc/hosts", "ftp://host/x", "rows.arff", "http:///x", "http://[x"]
)
def test_only_http_addresses(tmp_path, url):
    with pytest.raises(DownloadError) as caught:
        fetch(url, tmp_path / "x", size=1, sha256=SHA256)
    assert str(caught.value) == (f"{url!r} is not an http or https address; give one that is")
    assert names(tmp_path) == []


@pytest.mark.parametrize(("timeout", "retries"), [(0.0, 3), (1.0, -1)])
def test_timeout_and_retries_are_checked(server, target, timeout, retries):
    assert refusal(server, target, timeout=timeout, retries=retries) == (
        f"timeout {timeout:g} must be more than 0 and retries {retries} at least 0"
    )


@pytest.mark.parametrize("answer", [without_length(SIZE), chunked(complete=True)])
def test_a_download_of_unknown_size_ends_somewhere(server, target, answer, monkeypatch):
    monkeypatch.setattr("hierlearn.lab.corpora.download.LARGEST", SIZE - 1)
    server.script = [answer]
    with pytest.raises(DownloadError, match=f"has more than {SIZE - 1:,} bytes; what had arrived"):
        get(server, target, size=None)
    assert not target.exists()
