"""Latency and throughput of ``hierlearn serve`` on loopback, beside the bare model.

Two models of 105 classes on rows of 10 numbers, as in ``bench_predict.py``: a plain network
(``--recipe hcl``) and a memory of 5,000 rows (``--recipe neighbors``). The bare model is called in
this process: cells to inputs, probabilities and answers, without JSON or HTTP. The server
is a process of its own; clients are threads of this process that send prepared bytes over sockets
that stay open, so on a machine with few cores they compete with the server. Beside seconds, the
CPU time of the server is given, which a busy machine changes less.

The overload test measures the capacity with as many clients as keep the model busy, then offers
twice that rate whatever the answers: accepted requests must keep a bounded p99, the others get 503.

Run with ``python benchmarks/bench_serve.py``; the figures go to results/serve.json. ``--seconds``
sets how long each case runs, ``--threads`` how many threads torch has, here and in the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bench_predict import FEATURES, LABELED, command, draw, fill
from hierlearn.pipeline import Pipeline
from hierlearn.service.model import ServedModel, Task, to_json
from machine import versions, write

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCHS = ("--epochs", "2")  # what is learned does not matter here
MODELS = {"mlp": ("--recipe", "hcl", *EPOCHS), "memory": ("--recipe", "neighbors", *EPOCHS)}
CASES = ((1, 1), (8, 1), (32, 1), (1, 64), (4, 64), (2, 1024))  # clients, rows of a request
LEAST = 3  # measured requests of a client, also on a machine that is busy otherwise
OVERLOAD_ROWS, OVERLOAD_QUEUE, CONNECTIONS = 64, 2048, 96


def rows_of(count: int) -> list[dict[str, float]]:
    """Return rows as a request has them."""
    values, _ = draw(count, 4242)
    return [{f"x{n}": round(v, 5) for n, v in enumerate(row)} for row in values.tolist()]


def message(rows: int) -> bytes:
    """Return a request with so many rows."""
    body = to_json({"rows": rows_of(rows)})
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Address(NamedTuple):
    """Where a server listens, and its process."""

    port: int
    pid: int


class Client:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, content: bytes) -> int:
        """Send a request, read the whole response, and return its status."""
        self.socket.sendall(content)
        found = b""
        while b"\r\n\r\n" not in found:
            found += self._more()
        head, _, body = found.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        left = length - len(body)
        while left > 0:
            left -= len(self._more())
        return int(head[9:12])

    def _more(self) -> bytes:
        part = self.socket.recv(1 << 18)
        if not part:
            raise ConnectionError("the server has closed the connection")
        return part


def metrics(port: int) -> dict[str, float]:
    """Return the values of /metrics by line."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: one.recv(1 << 16), b"")).decode()
    lines = text.partition("\r\n\r\n")[2].splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


@contextmanager
def server(folder: Path, *words: str) -> Iterator[Address]:
    """Yield where a server in a process of its own listens."""
    own = str(Path(__file__).parents[1] / "src")
    threads = ("--threads", str(torch.get_num_threads()))
    job = subprocess.Popen(
        [sys.executable, "-m", "hierlearn", "serve", str(folder), "--port", "0", *threads, *words],
        env={**os.environ, "PYTHONPATH": own},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    try:
        for line in job.stdout:
            found = re.search(r"listening on http://[\d.]+:(\d+)", line)
            if found:
                yield Address(int(found[1]), job.pid)
                break
    finally:
        job.send_signal(signal.SIGTERM)
        code = job.wait()
        job.stdout.close()
        assert code == 0, code


def summary(times: list[float], seconds: float, rows: int) -> dict[str, float]:
    """Return percentiles in milliseconds, and rates."""
    ordered = sorted(times)
    at = lambda share: 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return {
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "requests_per_second": len(times) / seconds,
        "rows_per_second": rows * len(times) / seconds,
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bare(model: ServedModel, rows: int, seconds: float) -> dict[str, float]:
    """Measure the model alone."""
    columns = model.inputs.columns(rows_of(rows))
    task, times = Task(columns), []
    for _ in range(5):
        model.predict([task])
    end, used = time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end:
        begin = time.perf_counter()
        model.predict([task])
        times.append(time.perf_counter() - begin)
    cpu = (time.process_time() - used) / len(times)
    return {**summary(times, sum(times), rows), "cpu_ms_per_request": 1e3 * cpu}


def closed(address: Address, clients: int, rows: int, seconds: float) -> dict[str, Any]:
    """Measure clients that send the next request when they have the answer to the last."""
    content, times, every = message(rows), [], []
    begin, port = threading.Barrier(clients), address.port
    before, used = metrics(port), cpu_seconds(address.pid)

    def run() -> None:
        one = Client(port)
        begin.wait()
        warm, end, own = time.perf_counter() + 0.5, time.perf_counter() + 0.5 + seconds, 0
        while (start := time.perf_counter()) < end or own < LEAST:
            assert one.send(content) == 200
            every.append(1)
            if start > warm:
                own += 1
                times.append(time.perf_counter() - start)
        one.socket.close()

    started = time.perf_counter()
    run_threads([threading.Thread(target=run) for _ in range(clients)])
    took = time.perf_counter() - started - 0.5
    cpu = (cpu_seconds(address.pid) - used) / len(every)
    after = metrics(port)
    name = 'hierlearn_batch_rows_{}{{queue="predict"}}'.format
    gained = [after[name(kind)] - before.get(name(kind), 0) for kind in ("sum", "count")]
    more = {"rows_per_batch": gained[0] / gained[1], "cpu_ms_per_request": 1e3 * cpu}
    return {**summary(times, took, rows), **more}


def offered(port: int, rate: float, rows: int, seconds: float) -> dict[str, Any]:
    """Offer requests at a rate, whatever the answers; latencies count from the moment planned."""
    content, gap = message(rows), CONNECTIONS / rate
    accepted: list[float] = []
    refused: list[float] = []
    late: list[float] = []
    start = time.perf_counter() + 0.5

    def run(number: int) -> None:
        one, planned = Client(port), start + number / rate
        while planned < start + seconds:
            time.sleep(max(0.0, planned - time.perf_counter()))
            begin = time.perf_counter()
            late.append(begin - planned)
            code = one.send(content)
            assert code in (200, 503), code
            (accepted if code == 200 else refused).append(time.perf_counter() - begin)
            planned += gap
        one.socket.close()

    run_threads([threading.Thread(target=run, args=(n,)) for n in range(CONNECTIONS)])
    took = time.perf_counter() - start
    total = len(accepted) + len(refused)
    return {
        "offered_rows_per_second": rows * rate,
        "sent_rows_per_second": rows * total / took,
        "accepted": summary(accepted, took, rows),
        "refused_fraction": len(refused) / total,
        "refused_p99_ms": summary(refused, took, rows)["p99_ms"] if refused else None,
        "sent_late_p99_ms": summary(late, took, rows)["p99_ms"],
    }


def run_threads(threads: list[threading.Thread]) -> None:
    """Run threads to their end."""
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """Return all figures of a model."""
    model = ServedModel(Pipeline.load(folder))
    found: dict[str, Any] = {"bare": {}, "served": [], "waiting": []}
    for rows in sorted({rows for _, rows in CASES}):
        found["bare"][rows] = bare(model, rows, min(seconds, 2.0))
        print(folder.name, "bare", rows, figures(found["bare"][rows]), flush=True)
    with server(folder) as address:
        for clients, rows in CASES:
            own = closed(address, clients, rows, seconds)
            found["served"].append({"clients": clients, "rows": rows, **own})
            print(folder.name, "served", clients, rows, figures(own), flush=True)
    for wait in ("0", "1", "5"):
        with server(folder, "--max-wait-ms", wait) as address:
            own = closed(address, 8, 1, seconds)
        found["waiting"].append({"max_wait_ms": float(wait), "clients": 8, "rows": 1, **own})
        print(folder.name, "max wait", wait, figures(own), flush=True)
    with server(folder, "--max-queue", str(OVERLOAD_QUEUE)) as address:
        usual = closed(address, 8, OVERLOAD_ROWS, seconds)
        capacity = usual["requests_per_second"]
        twice = offered(address.port, 2 * capacity, OVERLOAD_ROWS, 2 * seconds)
    found["overload"] = {"max_queue_rows": OVERLOAD_QUEUE, "capacity": usual, "twice": twice}
    print(folder.name, "capacity", figures(usual), "twice", figures(twice), flush=True)
    return found


def figures(values: dict[str, Any]) -> str:
    """Return figures in one line."""
    flat = {
        **{k: v for k, v in values.items() if isinstance(v, float)},
        **{f"accepted {k}": v for k, v in values.get("accepted", {}).items()},
    }
    return ", ".join(f"{name} {value:.4g}" for name, value in flat.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {
        "rows": f"{FEATURES} numbers",
        "seconds_per_case": options.seconds,
        "threads_of_torch": options.threads,
        "versions": versions("fastapi", "uvicorn", "starlette"),
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fill(folder / "labeled.csv", LABELED, 1, labeled=True)
        for name, words in MODELS.items():
            line = ("train", folder / "labeled.csv", "--label", "label", "--out", folder / name)
            command((*line, *words))
            found[name] = measure(folder / name, options.seconds)
    ratios = [
        one["rows_per_second"] / found[name]["bare"][one["rows"]]["rows_per_second"]
        for name in MODELS
        for one in found[name]["served"]
        if one["rows"] == 64
    ]
    found["rows_64_of_bare"] = statistics.median(ratios)
    print(write("serve", json.loads(json.dumps(found)), "python benchmarks/bench_serve.py"))


if __name__ == "__main__":
    main()
