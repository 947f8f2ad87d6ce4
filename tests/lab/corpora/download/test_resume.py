"""fetch continues a partial download after a broken connection."""

from __future__ import annotations

import hashlib

import pytest

from download_server import (
    BODY,
    BY_HAND,
    HALF,
    SIZE,
    chunked,
    get,
    honor_range,
    ignore_range,
    leave_part,
    names,
    never_answer,
    part_of,
    redirect,
    refusal,
    stall,
    status,
    truncate,
    without_length,
    wrong_range,
)


def test_an_interrupted_download_continues_with_a_range(server, target):
    leave_part(target, BODY[:HALF])
    get(server, target)
    assert server.ranges == [f"bytes={HALF}-"]
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]


def test_resuming_keeps_what_had_arrived(server, target):
    # The server never sends the first half, so only a real continuation can hold this byte.
    mine = b"!" + BODY[1:]
    leave_part(target, mine[:HALF])
    get(server, target, sha256=hashlib.sha256(mine).hexdigest())
    assert target.read_bytes() == mine


def test_a_complete_part_needs_no_connection(server, target):
    leave_part(target, BODY)
    get(server, target)
    assert server.ranges == []
    assert target.read_bytes() == BODY


def test_a_server_that_ignores_range_starts_over(server, target):
    leave_part(target, b"x" * HALF)
    server.script = [ignore_range]
    get(server, target)
    assert server.ranges == [f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


def test_a_part_longer_than_the_file_starts_over(server, target):
    leave_part(target, BODY + b"x")
    get(server, target)
    assert server.ranges == [None]
    assert target.read_bytes() == BODY


def test_a_refused_range_starts_over(server, target):
    leave_part(target, BODY + b"x")
    get(server, target, size=None)
    assert server.ranges == [f"bytes={SIZE + 1}-", None]
    assert target.read_bytes() == BODY


def test_a_range_that_begins_elsewhere_starts_over(server, target):
    leave_part(target, BODY[:HALF])
    server.script = [wrong_range, honor_range]
    get(server, target)
    assert server.ranges == [f"bytes={HALF}-", None]
    assert target.read_bytes() == BODY


def test_a_range_refused_every_time_is_an_error(server, target):
    leave_part(target, BODY[:HALF])
    server.script = [status(416)]
    assert refusal(server, target, retries=0) == (
        f"{server.url}: the server could not continue at byte {HALF}; 0 of {SIZE} bytes arrived "
        f"in 1 attempts; run again to continue from there, or {BY_HAND}"
    )
    assert names(target.parent) == []


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_truncated_body_is_noticed_and_resumed(server, target, size):
    server.script = [truncate(HALF), truncate(1000), honor_range]
    get(server, target, size=size)
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
    assert target.read_bytes() == BODY


def test_a_truncated_chunk_is_noticed_and_resumed(server, target):
    server.script = [chunked(complete=False), honor_range]
    get(server, target, size=None)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


def test_a_truncated_body_without_length_is_noticed_by_size(server, target):
    server.script = [without_length(HALF), honor_range]
    get(server, target)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("size", [SIZE, None])
def test_truncation_every_time_says_how_much_arrived(server, target, size):
    server.script = [truncate(1000)]
    assert refusal(server, target, size=size, retries=2) == (
        f"{server.url}: the connection closed early; 3000 of {SIZE} bytes arrived in 3 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert not target.exists()
    assert part_of(target).read_bytes() == BODY[:3000]
    server.script = [honor_range]
    get(server, target, size=size)
    assert server.ranges[-1] == "bytes=3000-"
    assert target.read_bytes() == BODY


def test_a_stall_is_resumed(server, target):
    server.script = [stall(HALF), honor_range]
    get(server, target, timeout=1.5)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


def test_a_stall_every_time_ends_in_time(server, target):
    server.script = [stall(1000)]
    assert refusal(server, target, timeout=1.5, retries=1) == (
        f"{server.url}: no byte came for 1.5 s; 2000 of {SIZE} bytes arrived in 2 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert len(server.ranges) == 2
    assert names(target.parent) == ["rows.arff.part"]


def test_a_server_that_never_answers(server, target):
    server.script = [never_answer]
    assert refusal(server, target, timeout=1.5, retries=0, size=None) == (
        f"{server.url}: no byte came for 1.5 s; 0 of unknown bytes arrived in 1 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_a_server_that_is_down(server, target):
    server.shutdown()
    server.socket.close()
    assert refusal(server, target, retries=1) == (
        f"{server.url}: the connection failed (Connection refused); 0 of {SIZE} bytes arrived in "
        f"2 attempts; run again to continue from there, or {BY_HAND}"
    )


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_temporary_error_is_retried(server, target, code):
    server.script = [status(code), honor_range]
    get(server, target)
    assert target.read_bytes() == BODY


def test_a_permanent_500_is_an_error(server, target):
    server.script = [status(500)]
    assert refusal(server, target, retries=1) == (
        f"{server.url}: the server answered 500 Internal Server Error; 0 of {SIZE} bytes arrived "
        f"in 2 attempts; run again to continue from there, or {BY_HAND}"
    )
    assert len(server.ranges) == 2


def test_a_404_is_final(server, target):
    server.script = [status(404)]
    assert refusal(server, target) == (
        f"{server.url}: the server answered 404 Not Found; check the address, or {BY_HAND}"
    )
    assert len(server.ranges) == 1
    assert names(target.parent) == []


def test_a_redirect_away_from_http_is_refused(server, target):
    server.script = [redirect("ftp://127.0.0.1/rows.arff")]
    assert "unknown url type: ftp" in refusal(server, target, retries=0)
