"""fetch against a real server on this machine that truncates, corrupts, stalls and refuses."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from hierlearn.datasets import download
from hierlearn.datasets.download import cache_dir, fetch, mismatch, recorded_sha256
from hierlearn.errors import DownloadError

BODY = bytes(range(256)) * 800  # 204,800 bytes: several blocks
SIZE = len(BODY)
SHA256 = hashlib.sha256(BODY).hexdigest()
HALF = SIZE // 2
BY_HAND = "put the file by hand into a folder named by --data-dir or HIERLEARN_DATA"


class Server(ThreadingHTTPServer):
    """Answers request i with ``script[i]``, the last entry for all further ones."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = [honour]
        self.ranges = []  # the Range header of each request
        self.release = threading.Event()  # ends the stalls

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/rows.arff"

    def handle_error(self, request, client_address):
        """Stay silent: clients hang up on purpose here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        number = len(self.server.ranges)
        self.server.ranges.append(self.headers["Range"])
        self.server.script[min(number, len(self.server.script) - 1)](self)
        self.close_connection = True

    def log_message(self, *arguments):
        """Keep the test output quiet."""

    @property
    def start(self):
        return int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "bytes=0-")[1])

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def head_of_range(self):
        start = self.start
        if start >= SIZE:
            self.head(416, Content_Range=f"bytes */{SIZE}", Content_Length=0)
            return b""
        if start:
            span = f"bytes {start}-{SIZE - 1}/{SIZE}"
            self.head(206, Content_Range=span, Content_Length=SIZE - start)
        else:
            self.head(200, Content_Length=SIZE)
        return BODY[start:]


def honour(handler):
    handler.wfile.write(handler.head_of_range())


def ignore_range(handler):
    handler.head(200, Content_Length=SIZE)
    handler.wfile.write(BODY)


def truncate(count):
    def answer(handler):
        handler.wfile.write(handler.head_of_range()[:count])

    return answer


def stall(count):
    def answer(handler):
        handler.wfile.write(handler.head_of_range()[:count])
        handler.wfile.flush()
        handler.server.release.wait(10)

    return answer


def never_answer(handler):
    handler.server.release.wait(10)


def status(code):
    return lambda handler: handler.head(code, Content_Length=0)


def corrupt(handler):
    body = handler.head_of_range()
    handler.wfile.write(body[:-1] + bytes([body[-1] ^ 1]))


def of_length(count):
    def answer(handler):
        handler.head(200, Content_Length=count)
        handler.wfile.write((BODY * 2)[:count])

    return answer


def without_length(count):
    """Send no Content-Length: the end of the connection ends the body."""

    def answer(handler):
        handler.head(200, Connection="close")
        handler.wfile.write((BODY * 2)[:count])

    return answer


def chunked(*, complete):
    def answer(handler):
        handler.head(200, Transfer_Encoding="chunked")
        handler.wfile.write(b"%x\r\n" % SIZE)
        handler.wfile.write(BODY + b"\r\n0\r\n\r\n" if complete else BODY[:HALF])

    return answer


def wrong_range(handler):
    handler.head(206, Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}", Content_Length=SIZE)
    handler.wfile.write(BODY)


def redirect(target):
    return lambda handler: handler.head(302, Location=target, Content_Length=0)


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
    monkeypatch.setattr(download, "_PAUSE", 0.01)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "rows.arff"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def part_of(target):
    return target.with_name(target.name + ".part")


def leave_part(target, data):
    target.parent.mkdir(parents=True, exist_ok=True)
    part_of(target).write_bytes(data)


def get(server, target, **options):
    return fetch(server.url, target, **{"size": SIZE, "sha256": SHA256, "timeout": 5.0, **options})


def refusal(server, target, **options):
    with pytest.raises(DownloadError) as caught:
        get(server, target, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---------------------------------------------------------------- the good case


def test_the_file_arrives_whole_and_alone(server, target):
    assert get(server, target) == target
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]
    assert server.ranges == [None]


def test_a_right_file_is_not_downloaded_again(server, target):
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
def test_a_server_that_names_no_length(server, target, answer, size):
    server.script = [answer]
    get(server, target, size=size)
    assert target.read_bytes() == BODY


def test_the_end_of_the_body_needs_no_hang_up(server, target):
    server.script = [stall(SIZE)]
    begin = time.monotonic()
    get(server, target, timeout=5.0)
    assert time.monotonic() - begin < 2
    assert target.read_bytes() == BODY


def test_a_redirect_is_followed(server, target):
    server.script = [redirect(server.url), honour]
    get(server, target)
    assert target.read_bytes() == BODY


# ---------------------------------------------------------------- resuming


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
    server.script = [wrong_range, honour]
    get(server, target)
    assert server.ranges == [f"bytes={HALF}-", None]
    assert target.read_bytes() == BODY


def test_a_range_refused_for_good_is_an_error(server, target):
    leave_part(target, BODY[:HALF])
    server.script = [status(416)]
    assert refusal(server, target, retries=0) == (
        f"{server.url}: the server could not continue at byte {HALF}; 0 of {SIZE} bytes arrived "
        f"in 1 attempts; run again to continue from there, or {BY_HAND}"
    )
    assert names(target.parent) == []


# ---------------------------------------------------------------- broken connections


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_truncated_body_is_noticed_and_resumed(server, target, size):
    server.script = [truncate(HALF), truncate(1000), honour]
    get(server, target, size=size)
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
    assert target.read_bytes() == BODY


def test_a_truncated_chunk_is_noticed_and_resumed(server, target):
    server.script = [chunked(complete=False), honour]
    get(server, target, size=None)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


def test_a_truncated_body_without_length_is_noticed_by_size(server, target):
    server.script = [without_length(HALF), honour]
    get(server, target)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("size", [SIZE, None])
def test_truncation_for_good_says_how_much_arrived(server, target, size):
    server.script = [truncate(1000)]
    assert refusal(server, target, size=size, retries=2) == (
        f"{server.url}: the connection closed early; 3000 of {SIZE} bytes arrived in 3 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert not target.exists()
    assert part_of(target).read_bytes() == BODY[:3000]
    server.script = [honour]
    get(server, target, size=size)
    assert server.ranges[-1] == "bytes=3000-"
    assert target.read_bytes() == BODY


def test_a_stall_is_resumed(server, target):
    server.script = [stall(HALF), honour]
    get(server, target, timeout=0.2)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert target.read_bytes() == BODY


def test_a_stall_for_good_ends_in_time(server, target):
    server.script = [stall(1000)]
    begin = time.monotonic()
    assert refusal(server, target, timeout=0.2, retries=1) == (
        f"{server.url}: no byte came for 0.2 s; 2000 of {SIZE} bytes arrived in 2 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert time.monotonic() - begin < 3
    assert names(target.parent) == ["rows.arff.part"]


def test_a_server_that_never_answers(server, target):
    server.script = [never_answer]
    assert refusal(server, target, timeout=0.2, retries=0, size=None) == (
        f"{server.url}: no byte came for 0.2 s; 0 of unknown bytes arrived in 1 attempts; "
        f"run again to continue from there, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_a_server_that_is_not_there(server, target):
    server.shutdown()
    server.socket.close()
    assert refusal(server, target, retries=1) == (
        f"{server.url}: the connection failed (Connection refused); 0 of {SIZE} bytes arrived in "
        f"2 attempts; run again to continue from there, or {BY_HAND}"
    )


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_passing_refusal_is_tried_again(server, target, code):
    server.script = [status(code), honour]
    get(server, target)
    assert target.read_bytes() == BODY


def test_a_lasting_500_is_an_error(server, target):
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


def test_a_redirect_out_of_http_is_refused(server, target):
    server.script = [redirect("ftp://127.0.0.1/rows.arff")]
    assert "unknown url type: ftp" in refusal(server, target, retries=0)


# ---------------------------------------------------------------- another file


def test_a_wrong_hash_deletes_what_arrived(server, target):
    server.script = [corrupt]
    wrong = hashlib.sha256(BODY[:-1] + bytes([BODY[-1] ^ 1])).hexdigest()
    assert refusal(server, target) == (
        f"{server.url} has SHA-256 {wrong}, expected {SHA256}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []
    assert len(server.ranges) == 1


def test_a_wrong_hash_leaves_the_old_file(server, target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    server.script = [corrupt]
    refusal(server, target)
    assert target.read_bytes() == b"old"
    assert names(target.parent) == ["rows.arff"]


@pytest.mark.parametrize("count", [SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_refused_before_its_body(server, target, count):
    server.script = [of_length(count)]
    assert refusal(server, target) == (
        f"{server.url} has {count} bytes, expected {SIZE}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_a_resumed_file_of_another_size_is_refused(server, target):
    leave_part(target, BODY[:HALF])
    assert "has 204800 bytes, expected 204801" in refusal(server, target, size=SIZE + 1)
    assert names(target.parent) == []


def test_a_body_that_does_not_end_is_refused(server, target):
    server.script = [without_length(2 * SIZE)]
    assert refusal(server, target) == (
        f"{server.url} has more than {SIZE} bytes, expected {SIZE}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []


# ---------------------------------------------------------------- trust


def test_without_a_hash_trust_must_be_said(server, target):
    assert refusal(server, target, sha256=None) == (
        f"no SHA-256 is known for rows.arff, so what {server.url} sends cannot be checked; pass "
        f"trust=True to accept it and record its hash, or {BY_HAND}"
    )
    assert server.ranges == []
    assert not target.parent.exists()


def test_trust_records_the_hash_and_later_calls_need_no_trust(server, target):
    get(server, target, sha256=None, trust=True)
    record = target.with_name("rows.arff.sha256")
    assert record.read_text() == f"{SHA256}  rows.arff\n"
    assert recorded_sha256(target) == SHA256
    get(server, target, sha256=None)
    assert len(server.ranges) == 1


def test_a_known_hash_writes_no_record(server, target):
    get(server, target, trust=True)
    assert names(target.parent) == ["rows.arff"]


def test_a_file_that_left_its_record_is_fetched_again(server, target):
    get(server, target, sha256=None, trust=True)
    target.write_bytes(b"x" * SIZE)
    get(server, target, sha256=None)
    assert target.read_bytes() == BODY


def test_a_source_that_left_the_record_is_refused(server, target):
    get(server, target, sha256=None, trust=True)
    target.unlink()
    server.script = [corrupt]
    message = refusal(server, target, sha256=None, trust=True)
    assert f"expected {SHA256}; what had arrived was deleted: delete " in message
    assert message.endswith(f"{target}.sha256 to trust the file again, or {BY_HAND}")
    assert names(target.parent) == ["rows.arff.sha256"]


def test_a_trusted_file_already_in_place_is_recorded(server, target):
    target.parent.mkdir()
    target.write_bytes(BODY)
    get(server, target, sha256=None, trust=True)
    assert server.ranges == []
    assert recorded_sha256(target) == SHA256


def test_a_damaged_record_is_an_error(server, target):
    target.parent.mkdir()
    target.with_name("rows.arff.sha256").write_text("hello\n")
    assert refusal(server, target, sha256=None, trust=True) == (
        f"{target}.sha256 does not begin with a SHA-256; delete it"
    )


# ---------------------------------------------------------------- arguments and folders


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


def cannot_write(folder, why):
    return (
        f"cannot write rows.arff into {folder}: {why}; set HIERLEARN_CACHE to a folder that can be "
        f"written, or {BY_HAND}"
    )


def test_a_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    target = tmp_path / "cache" / "deeper" / "rows.arff"
    assert refusal(server, target) == cannot_write(target.parent, "Not a directory")
    assert names(tmp_path) == ["cache"]
    assert server.ranges == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder(server, target, monkeypatch, code):
    target.parent.mkdir()
    real = Path.open

    def refuse(path, mode="r", *arguments, **options):
        if path.parent == target.parent and set(mode) & set("wax+"):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(server, target) == cannot_write(target.parent, os.strerror(code))
    assert names(target.parent) == []
    assert server.ranges == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_write_permission(server, target):
    target.parent.mkdir()
    target.parent.chmod(0o500)
    assert refusal(server, target) == cannot_write(target.parent, "Permission denied")
    assert names(target.parent) == []


def test_a_read_only_folder_with_the_right_file_is_fine(server, target, monkeypatch):
    get(server, target)

    def refuse(path, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert get(server, target) == target


def test_a_full_disk_keeps_what_arrived(server, target, monkeypatch):
    leave_part(target, BODY[:HALF])
    real = Path.open

    def full(block):
        raise OSError(errno.ENOSPC, "No space left on device")

    def opened(path, mode="r", *arguments, **options):
        file = real(path, mode, *arguments, **options)
        if path == part_of(target) and mode == "ab":
            file.write = full
        return file

    monkeypatch.setattr(Path, "open", opened)
    assert refusal(server, target) == cannot_write(target.parent, "No space left on device")
    assert part_of(target).read_bytes() == BODY[:HALF]


# ---------------------------------------------------------------- progress and interruption


def test_progress_climbs_to_the_total(server, target):
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


def test_an_interruption_leaves_a_part_and_no_lock(server, target):
    def interrupt(received, total):
        if received:
            assert not target.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, target, progress=interrupt)
    assert names(target.parent) == ["rows.arff.part"]
    get(server, target)
    assert re.fullmatch(r"bytes=[1-9]\d*-", server.ranges[-1])
    assert target.read_bytes() == BODY


def test_bytes_are_on_the_disk_before_the_rename(server, target, monkeypatch):
    steps = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("fsync"), fsync(fd)))
    monkeypatch.setattr(
        Path, "replace", lambda path, other: (steps.append("rename"), replace(path, other))
    )
    get(server, target)
    assert steps == ["fsync", "rename"]


# ---------------------------------------------------------------- several at once


PROGRAM = """
import sys
from hierlearn.datasets.download import fetch
fetch(sys.argv[1], sys.argv[2], size=int(sys.argv[3]), sha256=sys.argv[4], timeout=8)
"""


def start(server, target):
    command = [sys.executable, "-c", PROGRAM, server.url, target, SIZE, SHA256]
    return subprocess.Popen([str(word) for word in command])


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_process_leaves_no_destination_and_no_held_lock(server, target):
    server.script = [stall(HALF), honour]
    process = start(server, target)
    try:
        # The last bytes may still be in the process's buffer, so not all of the half is awaited.
        wait_until(lambda: part_of(target).exists() and part_of(target).stat().st_size > HALF // 2)
        assert not target.exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    arrived = part_of(target).stat().st_size
    assert names(target.parent) == ["rows.arff.lock", "rows.arff.part"]
    get(server, target)
    assert server.ranges == [None, f"bytes={arrived}-"]
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]


def test_two_processes_download_once(server, target):
    server.script = [stall(HALF), honour]
    processes = [start(server, target)]
    try:
        wait_until(lambda: server.ranges == [None])
        processes.append(start(server, target))
        time.sleep(0.5)
        server.release.set()
        assert [process.wait(10) for process in processes] == [0, 0]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
    # The stalled connection ends early and is resumed; the second process asks for nothing.
    assert server.ranges[0] is None
    assert len(server.ranges) == 2
    assert server.ranges[1] is not None
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["rows.arff"]


def test_many_threads_download_once(server, target):
    results = []

    def work():
        results.append(get(server, target).read_bytes() == BODY)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
    assert server.ranges == [None]
    assert names(target.parent) == ["rows.arff"]


def test_a_lock_that_was_removed_while_waiting_is_taken_again(tmp_path):
    # Were the removed file's lock accepted, two holders could meet on two files of one name.
    lock = tmp_path / "x.lock"
    inside = []
    most = []

    def work():
        for _ in range(20):
            with download._locked(lock):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1


# ---------------------------------------------------------------- the small helpers


def test_mismatch_says_both_sides(tmp_path):
    path = tmp_path / "x"
    assert mismatch(path, size=None, sha256=None) == "cannot be read (No such file or directory)"
    path.write_bytes(b"abc")
    found = hashlib.sha256(b"abc").hexdigest()
    assert mismatch(path, size=3, sha256=found) is None
    assert mismatch(path, size=None, sha256=None) is None
    assert mismatch(path, size=4, sha256=found) == "has 3 bytes, expected 4"
    assert mismatch(path, size=3, sha256=SHA256) == f"has SHA-256 {found}, expected {SHA256}"


def test_the_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("HIERLEARN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path("/home/ada/.cache/hierlearn")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_dir() == Path("/scratch/hierlearn")
    monkeypatch.setenv("HIERLEARN_CACHE", "~/data")
    assert cache_dir() == Path("/home/ada/data")
