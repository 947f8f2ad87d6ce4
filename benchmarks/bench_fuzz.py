"""Run the fuzzers of tests/fuzz at length; write counts and causes to results/fuzz.json.

Hypothesis draws the cases, as in the suite. A case that computes for more than 10 s fails.

python benchmarks/bench_fuzz.py --inputs 20000 --commands 1000 --seed 0
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from hypothesis import Phase  # noqa: E402

from fuzz.cases import COMMAND_LINES, explore  # noqa: E402
from fuzz.engine import Tally  # noqa: E402
from fuzz.folders import Examples  # noqa: E402
from fuzz.formats import FORMATS  # noqa: E402
from machine import RESULTS, write  # noqa: E402

SHARES = {**dict.fromkeys(FORMATS, 1.0), "model": 0.6, "checkpoint": 0.15, "study": 0.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds, with commas; command: all commands")
    options = parser.parse_args()
    total = sum(SHARES.values())
    counts = {name: math.ceil(options.inputs * share / total) for name, share in SHARES.items()}
    counts |= dict.fromkeys(COMMAND_LINES, math.ceil(options.commands / len(COMMAND_LINES)))
    if options.only:
        names = options.only.replace("command", ",".join(COMMAND_LINES)).split(",")
        counts = {name: counts[name] for name in names}
    found = {}
    with tempfile.TemporaryDirectory() as root:
        for name in ("HIERLEARN_CACHE", "HIERLEARN_DATA"):
            os.environ[name] = str(Path(root) / "cache")
        examples = Examples(root)
        for name, count in counts.items():
            folder = Path(root) / f"case-{name.replace(' ', '-')}"
            folder.mkdir()
            found[name] = run(name, count, options.seed, folder, examples)
            print(name, json.dumps(found[name]), flush=True)
    before = RESULTS / "fuzz.json"
    if options.only and before.exists():
        found = json.loads(before.read_text())["figures"]["by_kind"] | found
    lines = [found[name]["cases"] for name in COMMAND_LINES if name in found]
    figures = {
        "inputs": sum(one["cases"] for one in found.values()) - sum(lines),
        "command_lines": sum(lines),
        "failed": sum(one["failed"] for one in found.values()),
        "by_kind": found,
    }
    write("fuzz", figures, f"python benchmarks/bench_fuzz.py {' '.join(sys.argv[1:])}")


def run(name, count, seed, folder, examples):
    """Let hypothesis draw cases of one kind; return what came of them."""
    tally, begun = Tally(), time.monotonic()

    def on_outcome(drawn, outcome):
        tally.add(outcome)
        if outcome.reason is not None:
            print(f"{name}: {outcome.reason}: {str(drawn)[:2000]}", flush=True)

    first = seed
    while tally.cases < count:  # hypothesis may stop early where it finds nothing new
        done, left = tally.cases, count - tally.cases
        phases = [Phase.generate]
        explore(name, folder, examples, on_outcome, first, max_examples=left, phases=phases)
        first += 1
        if tally.cases == done:
            break
    return {
        "seed": seed,
        "cases": tally.cases,
        "accepted": tally.accepted,
        "refused": tally.refused,
        "failed": sum(tally.causes.values()),
        "causes": dict(tally.causes.most_common(10)),
        "seconds": round(time.monotonic() - begun, 1),
        "slowest_cpu_seconds": round(tally.slowest, 2),
    }


if __name__ == "__main__":
    main()
