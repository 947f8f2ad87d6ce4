"""What a taxonomy of the size of the Gene Ontology costs on a small machine, end to end.

43,558 terms, 3,000 genes of 100 numbers with about 30 terms each once closed, in files made from a
seed. Every step is the command that a user runs, with no option but those that name the data.
Seconds are those on the clock and those of the processor, which a busy machine does not change;
memory is the peak of the process.
Run with ``python benchmarks/bench_gene_ontology.py``; the figures go to
results/gene_ontology.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import write
from ontology_files import make_ontology, write_obo, write_rows


def measure(words: str, folder: Path) -> dict[str, Any]:
    """Run one command in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "hierlearn", *words.split()]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{words}\n{said}")
    return {
        "command": f"hierlearn {words}",
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_megabytes": round(used.ru_maxrss / 1024),
        "said": [line for line in said.splitlines() if "classes" in line or "fmax" in line],
    }


def main() -> None:
    """Make the files and run the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the Gene Ontology's size")
    options = parser.parse_args()
    rows = "--id-column gene --split part --annotations genes.gaf"
    steps = {
        "train": f"train genes.csv --hierarchy go.obo {rows} --out model",
        "train, classes with 10 rows": f"train genes.csv --hierarchy go.obo {rows} --min-rows 10 "
        "--out small",
        "evaluate, Fmax and Smin": "cafa evaluate model genes.csv --rows test",
        "predict": "cafa predict model genes.csv --out scores.tsv",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ontology = make_ontology(scale=options.scale)
        write_obo(ontology, folder / "go.obo")
        closed = write_rows(ontology, folder, options.rows)
        figures: dict[str, Any] = {
            "terms": len(ontology.ids),
            "edges": sum(map(len, ontology.parents)),
            "levels": int(ontology.levels.max()),
            "rows": options.rows,
            "terms_per_row_closed": round(closed, 1),
            "load_average": os.getloadavg()[0],
            "steps": {},
        }
        for step, words in steps.items():
            figures["steps"][step] = measure(words, folder)
            print(step, figures["steps"][step], flush=True)
    command = " ".join(["python", "benchmarks/bench_gene_ontology.py", *sys.argv[1:]])
    print(f"wrote {write('gene_ontology', figures, command)}")


if __name__ == "__main__":
    main()
