"""Seconds and peak memory of every decoder.

100,000 rows of 2,000 classes: a tree with levels of 10, 100 and 1,890 classes, and a softmax over
the leaves that is confident in most rows, in float32. Each decoder runs in a process of its own;
memory is its peak beyond the probabilities, the result included.
Run with ``python benchmarks/bench_decoding.py [rows]``; the figures go to results/decoding.json.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bench_losses import tree
from hierlearn.decoding import DECODERS
from hierlearn.links import SoftmaxLink
from machine import seconds, write

LEVELS = (10, 100, 1890)
ROWS = 100_000
OPTIONS: dict[str, dict[str, Any]] = {
    "subset": {"allowed": [0, 1, 2], "decoder": "cost"},
    "stop": {"threshold": 0.6},
    "conformal": {"threshold": 0.02},
}


def probabilities(link: SoftmaxLink, rows: int) -> torch.Tensor:
    """Return (rows, C) node probabilities whose best leaf has a median of about 0.8."""
    generator = torch.Generator().manual_seed(0)
    classes = len(link.hierarchy)
    out = torch.empty(rows, classes)
    for part in out.split(2000):
        logits = 1.5 * torch.randn(len(part), classes, generator=generator)
        truth = link.terminals[
            torch.randint(len(link.terminals), (len(part),), generator=generator)
        ]
        confidence = 10 + 2 * torch.randn(len(part), 1, generator=generator)
        logits.scatter_add_(1, truth[:, None], confidence)
        part.copy_(link.probabilities(logits))
    return out


def peak_bytes(*, reset: bool = False) -> int:
    """Return the largest memory this process has held, since the last reset."""
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # what is free but kept would hide what is taken next
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+([0-9]+)", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def one(name: str, rows: int) -> dict[str, Any]:
    """Measure one decoder in this process."""
    hierarchy = tree(LEVELS)
    p = probabilities(SoftmaxLink(hierarchy), rows)
    decoder = DECODERS[name](hierarchy, **OPTIONS.get(name, {}))
    decoder(p[:100])
    before = peak_bytes(reset=True)
    answer = decoder(p)
    memory = peak_bytes() - before
    timed = seconds(lambda: decoder(p), repeat=3)
    return {
        "options": OPTIONS.get(name, {}),
        "seconds": {key: round(value, 3) for key, value in timed.items()},
        "peak_mebibytes": round(memory / 2**20, 1),
        "answer_mebibytes": round(answer.nbytes / 2**20, 1),
    }


def main(rows: int) -> None:
    figures: dict[str, Any] = {"rows": rows, "levels": LEVELS, "dtype": "float32", "decoders": {}}
    for name in DECODERS:
        command = [sys.executable, __file__, str(rows), name]
        figures["decoders"][name] = found = json.loads(subprocess.check_output(command))
        print(f"{name:12} {found['seconds']['median']:8.2f} s {found['peak_mebibytes']:8.0f} MiB")
    path = write("decoding", figures, f"python benchmarks/bench_decoding.py {rows}")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    if len(sys.argv) > 2:
        print(json.dumps(one(sys.argv[2], rows)))
    else:
        main(rows)
