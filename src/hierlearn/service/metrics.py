"""Metrics: what a server counts, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = tuple(float(1 << power) for power in range(0, 13, 2))  # 1, 4, ... 4096
ESCAPES = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def labeled(name: str, labels: Mapping[str, object]) -> str:
    """Return a name with its labels, as a line begins."""
    if not labels:
        return name
    pairs = (f'{k}="{str(v).translate(ESCAPES)}"' for k, v in labels.items())
    return f"{name}{{{','.join(pairs)}}}"


class Histogram:
    """Counts of values by upper bounds.

    Args:
        bounds: ascending.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Mapping[str, object]) -> list[str]:
        """Return its lines; each bound counts all values up to it."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            shown = bound if isinstance(bound, str) else f"{bound:g}"
            found.append(f"{labeled(f'{name}_bucket', {**labels, 'le': shown})} {below}")
        found.append(f"{labeled(f'{name}_sum', labels)} {self.total:.9g}")
        return [*found, f"{labeled(f'{name}_count', labels)} {below}"]


class Metrics:
    """What a server counts; threads may call it at once.

    Args:
        gauges: values that are read when the metrics are, by name: help and function.
        info: labels of the model.
    """

    def __init__(
        self,
        gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None,
        info: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self.gauges, self.info = dict(gauges or {}), info
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.latencies: dict[str, Histogram] = {}
        self.rows: defaultdict[str, int] = defaultdict(int)
        self.batches: dict[str, tuple[Histogram, Histogram]] = {}
        self._lock = threading.Lock()

    def request(self, path: str, code: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self.requests[path, code] += 1
            self.latencies.setdefault(path, Histogram(SECONDS)).observe(seconds)

    def batch(self, queue: str, rows: int, seconds: float) -> None:
        """Count a batch of the model."""
        with self._lock:
            self.rows[queue] += rows
            sizes, times = self.batches.setdefault(queue, (Histogram(ROWS), Histogram(SECONDS)))
            sizes.observe(rows)
            times.observe(seconds)

    def text(self) -> str:
        """Return everything, one value per line."""
        with self._lock:
            lines = [*self._counters(), *self._histograms()]
        for name, (help_, read) in self.gauges.items():
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge", f"{name} {read():g}"]
        if self.info is not None:
            name = "hierlearn_model_info"
            lines += [f"# HELP {name} The model that is served.", f"# TYPE {name} gauge"]
            lines.append(f"{labeled(name, self.info())} 1")
        return "\n".join(lines) + "\n"

    def _counters(self) -> list[str]:
        name = "hierlearn_requests_total"
        lines = [f"# HELP {name} Requests by path and status code.", f"# TYPE {name} counter"]
        lines += [
            f"{labeled(name, {'path': path, 'code': code})} {count}"
            for (path, code), count in sorted(self.requests.items())
        ]
        name = "hierlearn_rows_total"
        lines += [f"# HELP {name} Rows that were computed.", f"# TYPE {name} counter"]
        return lines + [
            f"{labeled(name, {'queue': queue})} {rows}" for queue, rows in sorted(self.rows.items())
        ]

    def _histograms(self) -> list[str]:
        name = "hierlearn_request_seconds"
        lines = [f"# HELP {name} From the request to its answer.", f"# TYPE {name} histogram"]
        for path, times in sorted(self.latencies.items()):
            lines += times.lines(name, {"path": path})
        of_batches = (
            ("hierlearn_batch_rows", "Rows that were computed together."),
            ("hierlearn_batch_seconds", "What the model took for a batch."),
        )
        for place, (name, help_) in enumerate(of_batches):
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} histogram"]
            for queue, both in sorted(self.batches.items()):
                lines += both[place].lines(name, {"queue": queue})
        return lines
