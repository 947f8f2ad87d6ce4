"""Overload, stopping, growing, and being killed."""

import shutil
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hierlearn.cli import main
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.explain import rows_of
from hierlearn.pipeline.remember import MemoryFolder
from service.client import Running

ROW = {"a": 1, "b": 2.0, "kind": "x", "note": "purrs", "day": "2024-01-11"}


# ---------------------------------------------------------------------- overload


def test_what_does_not_fit_into_the_queue_is_told_to_come_back(models, started):
    server = started(models / "table", "--max-queue", "64", "--max-batch", "8", "--max-rows", "64")

    def ask(_):
        return server.request("POST", "/predict", {"rows": [ROW] * 64})

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, range(48)))
    codes = [code for code, _, _ in found]
    assert {*codes} == {200, 503}
    for code, headers, answer in found:
        if code == 503:
            assert int(headers["retry-after"]) >= 1
            assert "the server is busy" in answer["error"]
        else:
            assert len(answer["answers"]) == 64
    assert server.metric('hierlearn_requests_total{path="/predict",code="503"}') == codes.count(503)
    assert server.metric("hierlearn_queue_rows") == 0
    assert len(server.predict([ROW])) == 1


# ---------------------------------------------------------------------- stopping


def test_a_stop_finishes_what_was_accepted(models, started):
    slow = ("--timeout", "200", "--stop-timeout", "200")
    server = started(models / "table", "--max-batch", "8", *slow)
    rows = [{**ROW, "a": number % 5} for number in range(2000)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(server.post, "/predict", {"rows": rows}) for _ in range(2)]
        while not server.metric('hierlearn_rows_total{queue="predict"}'):
            time.sleep(0.005)
        server.signal()
        found = [job.result() for job in jobs]
    for code, answer in found:
        assert code == 200
        assert len(answer["answers"]) == 2000
    assert server.wait() == 0
    with pytest.raises(ConnectionError):
        server.get("/health")
    assert server.complained == []


@pytest.mark.slow
def test_a_server_that_drains_is_alive_but_not_ready(models, started):
    server = started(models / "table", "--drain", "8")
    assert server.get("/ready")[0] == 200
    server.signal(signal.SIGINT)
    while server.get("/ready")[0] == 200:
        time.sleep(0.01)
    assert server.get("/ready")[0] == 503
    assert server.get("/health")[0] == 200
    assert len(server.predict([ROW])) == 1
    assert server.wait() == 0


def test_a_second_signal_ends_at_once(models, started):
    server = started(models / "table", "--timeout", "1000", "--stop-timeout", "1000")
    with server.begun():
        server.signal()
        time.sleep(0.5)
        assert server.job.poll() is None  # it waits for the body
        server.signal()
        assert server.wait() == 128 + signal.SIGTERM


def test_a_stop_has_a_limit(models, started):
    server = started(models / "table", "--timeout", "1000", "--stop-timeout", "1")
    with server.begun():
        server.signal()
        assert server.wait() == 1  # something was cut off


# ---------------------------------------------------------------------- growing

NEW = ["blorp zizz", "zizz blorp number"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_new_class_is_answered_at_once_and_the_folder_stays(models, started):
    server = started(models / "texts")
    before = contents(models / "texts")
    total = server.get("/model")[2]["remembered_rows"]
    stop, wrong = threading.Event(), []

    def ask():
        connection = server.connect()
        while not stop.is_set():
            code, found = server.post("/predict", {"rows": NEW, "by_level": True}, connection)
            paths = {one["path"] for one in found["answers"]} if code == 200 else {code}
            tops = {one["level_1"] for one in found["answers"]} if code == 200 else {code}
            if len(paths) != 1 and "plant/fern" in paths:
                wrong.append(found)  # a request is answered by one model
            if not tops <= {"animal", "plant"}:
                wrong.append(found)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    code, found = server.remember(NEW * 20, ["plant/fern"] * 40)
    paths = [one["path"] for one in server.predict(NEW)]
    stop.set()
    for thread in threads:
        thread.join()
    assert code == 200, found
    assert paths == ["plant/fern"] * 2
    assert found == {
        "rows": 40,
        "known": 0,
        "new_classes": ["plant/fern"],
        "total": total + 40,
        "saved": False,
        "repeatable": False,
    }
    assert not wrong
    assert server.get("/model")[2]["remembered_rows"] == total + 40
    assert server.metric("hierlearn_remembered_rows") == total + 40
    assert "plant/fern" in str(server.get("/hierarchy")[2])
    assert contents(models / "texts") == before


def test_what_is_remembered_is_written_where_that_is_asked_for(models, tmp_path, started):
    folder = tmp_path / "model"
    shutil.copytree(models / "texts", folder)
    server = started(folder, "--save")
    code, found = server.remember(NEW, ["plant/fern"] * 2, ids=["Q1", "Q2"])
    assert (code, found["saved"]) == (200, True)
    loaded = Pipeline.load(folder)
    assert rows_of(loaded).ids[-2:] == ["Q1", "Q2"]
    assert loaded.predict(NEW[:1]) == [server.predict(NEW[:1])[0]["path"]]
    files = contents(folder)
    again = {"rows": 0, "known": 2, "new_classes": [], "total": found["total"]}
    again |= {"saved": True, "repeatable": True}
    assert server.remember(NEW, ["plant/fern"] * 2, ids=["Q1", "Q2"]) == (200, again)
    # Also in another order, joined with another row, and by a server that was started again.
    code, other = server.remember(NEW[::-1], ["plant/fern"] * 2, ids=["Q2", "Q1"])
    assert (code, other) == (200, again)
    server.end()
    server = started(folder, "--save")
    assert server.remember(NEW, ["plant/fern"] * 2, ids=["Q1", "Q2"]) == (200, again)
    assert contents(folder) == files
    assert server.metric("hierlearn_remembered_rows") == found["total"]
    code, found = server.remember(NEW, ["animal/dog/pug", "nowhere to be"], ids=["a", "b"])
    assert code == 422  # no class above it
    assert len(rows_of(Pipeline.load(folder))) == len(rows_of(loaded))
    with MemoryFolder.open(folder) as memory:  # another process, meanwhile
        memory.remember(["a palm"], [["plant/fern"]], ids=["other"])
    assert server.remember(NEW[:1], ["plant/fern"], ids=["Q3"])[0] == 200
    assert rows_of(Pipeline.load(folder)).ids[-2:] == ["other", "Q3"]


def test_rows_without_ids_are_added_again_and_the_answer_says_so(models, started):
    server = started(models / "texts")
    totals = []
    for _ in range(2):
        code, found = server.remember(NEW, ["plant/fern"] * 2)
        assert (code, found["rows"], found["known"], found["repeatable"]) == (200, 2, 0, False)
        totals.append(found["total"])
    assert totals[1] == totals[0] + 2


def test_a_server_that_is_killed_while_it_writes_leaves_a_model(models, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(models / "texts", folder)
    old = len(rows_of(Pipeline.load(folder)))
    server = Running(folder, "--save", cwd=tmp_path, is_warm=False)
    known = {path.name for path in folder.iterdir()}

    def ask():
        while True:
            try:
                server.remember(NEW * 50, ["plant/fern"] * 100)
            except OSError:
                return

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + 200
    while {path.name for path in folder.iterdir()} <= known and time.monotonic() < deadline:
        time.sleep(0.0005)  # until a hidden folder appears beside the files
    server.signal(signal.SIGKILL)
    assert server.wait() == -signal.SIGKILL
    thread.join()
    server.end()
    loaded = Pipeline.load(folder)
    assert (len(rows_of(loaded)) - old) % 100 == 0
    assert len(loaded.predict(NEW)) == 2


# ---------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--save"], "--save writes what POST /remember adds, which needs a token"),
        (["--token-file", "short.txt"], "short.txt must have at least 16 printable ASCII"),
        (["--token-file", "odd.txt"], "odd.txt is not ASCII"),
        (["--token-file", "none.txt"], "none.txt"),
        (["--max-queue", "10"], "--max-queue 10 must be at least --max-batch 1,024"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1, port 0"),
        (["--host", "no such host"], "cannot listen on no such host"),
    ],
    ids=lambda one: one[-1] if isinstance(one, list) else "",
)
def test_what_the_command_refuses(models, tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIERLEARN_TOKEN", raising=False)
    (tmp_path / "short.txt").write_text("short\n")
    (tmp_path / "odd.txt").write_bytes(b"\xff" * 20)
    line = ["hierlearn", "serve", str(models / "table"), "--port", "0", *words]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_port_that_is_taken(models, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = ["hierlearn", "serve", str(models / "table"), "--port", str(port)]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as caught:
            main()
    assert caught.value.code == 2
    assert f"port {port}: Address already in use" in capsys.readouterr().err
