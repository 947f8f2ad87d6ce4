"""Every write of a training, of a memory and of a study fails once, or is the last of its process.

See tests/faults/fault_matrix.py. Writes results/faults.json: of each job the number of writing
steps, how many faults were tried, and which of them did not end as they should.

    python benchmarks/fault_matrix.py [--every N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import write

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run the matrix and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="try one of this many faults")
    given = parser.parse_args()
    paths = [str(ROOT / "src"), str(ROOT / "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        script = ROOT / "tests" / "faults" / "fault_matrix.py"
        words = [sys.executable, script, folder, "--every", str(given.every)]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    jobs = json.loads(done.stdout)
    tried = {mode: sum(one["faults"][mode] for one in jobs.values()) for mode in ("full", "killed")}
    failed = sum(len(one["failures"]) for one in jobs.values())
    figures = {"one_of": given.every, "tried": tried, "failed": failed, "jobs": jobs}
    write("faults", figures, f"python benchmarks/fault_matrix.py --every {given.every}")
    print(f"{tried['full']} full disks, {tried['killed']} kills, {failed} not as they should be")


if __name__ == "__main__":
    main()
