"""Interrupted, killed and concurrent downloads leave one complete file and no lock."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from download_server import (
    BODY,
    HALF,
    SHA256,
    SIZE,
    get,
    honor_range,
    names,
    part_of,
    stall,
)
from hierlearn.lab.corpora import download


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
    assert steps == ["fsync", "rename", "fsync"]  # at last of the folder


PROGRAM = """
import sys
from hierlearn.lab.corpora.download import fetch
fetch(sys.argv[1], sys.argv[2], size=int(sys.argv[3]), sha256=sys.argv[4], timeout=100)
"""


def start(server, target):
    command = [sys.executable, "-c", PROGRAM, server.url, target, SIZE, SHA256]
    return subprocess.Popen([str(word) for word in command])


def wait_until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_process_leaves_no_destination_and_no_held_lock(server, target):
    server.script = [stall(HALF), honor_range]
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
    server.script = [stall(HALF), honor_range]
    processes = [start(server, target)]
    try:
        wait_until(lambda: server.ranges == [None])
        processes.append(start(server, target))
        time.sleep(0.5)
        server.release.set()
        assert [process.wait(240) for process in processes] == [0, 0]
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
            with download.locked(lock):
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
