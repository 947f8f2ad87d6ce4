"""Run the fuzzers of tests/fuzz at length; write counts and causes to results/fuzz.json.

python benchmarks/bench_fuzz.py --inputs 20000 --commands 1000 --seed 0
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from fuzz.commands import prepare_command  # noqa: E402
from fuzz.engine import Tally, run_case  # noqa: E402
from fuzz.folders import FOLDERS, Examples  # noqa: E402
from fuzz.formats import FORMATS  # noqa: E402
from machine import RESULTS, write  # noqa: E402

SHARES = {**dict.fromkeys(FORMATS, 1.0), "model": 0.6, "checkpoint": 0.15, "study": 0.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    total = sum(SHARES.values())
    counts = {name: round(options.inputs * share / total) for name, share in SHARES.items()}
    counts["command"] = options.commands
    if options.only:
        counts = {name: counts[name] for name in options.only.split(",")}
    found = {}
    with tempfile.TemporaryDirectory() as root:
        examples = Examples(root)
        for name, count in counts.items():
            folder = Path(root) / f"case-{name}"
            folder.mkdir()
            tally, begun = Tally(), time.monotonic()
            for number in range(count):
                run_case(name, f"{options.seed}-{number}", maker(name, folder, examples), tally)
                if tally.failures and tally.failures[-1].seed == f"{options.seed}-{number}":
                    line = f" {prepare_command.last}" if name == "command" else ""
                    print(f"{name} {number}: {tally.failures[-1].reason}{line}", flush=True)
            found[name] = {
                "seed": options.seed,
                "cases": tally.cases,
                "accepted": tally.accepted,
                "refused": tally.refused,
                "failed": len(tally.failures),
                "causes": dict(tally.causes().most_common(10)),
                "seconds": round(time.monotonic() - begun, 1),
                "slowest_seconds": round(tally.slowest, 2),
            }
            print(name, json.dumps(found[name]), flush=True)
    before = RESULTS / "fuzz.json"
    if options.only and before.exists():
        found = json.loads(before.read_text())["figures"]["by_format"] | found
    figures = {
        "cases": sum(one["cases"] for one in found.values()),
        "failed": sum(one["failed"] for one in found.values()),
        "by_format": found,
    }
    write("fuzz", figures, f"python benchmarks/bench_fuzz.py {' '.join(sys.argv[1:])}")


def maker(name, folder, examples):
    if name in FORMATS:
        return lambda rng: FORMATS[name].prepare(rng, folder)
    make = FOLDERS.get(name, prepare_command)
    return lambda rng: make(rng, folder, examples)


if __name__ == "__main__":
    main()
