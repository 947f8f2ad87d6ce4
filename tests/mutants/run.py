"""Break the core on purpose, one line at a time, and see which ring of tests notices.

    python tests/mutants/run.py                 # both rings, every mutant: half an hour
    python tests/mutants/run.py --only 3,7 --ring first

Each mutant is a copy of the package with one text replaced, tested by the folders that are named
beside it. It is killed where a test fails. Both rings must kill all of them; what survives is
printed, and the exit code is 1. `test_mutants.py` keeps the list up to date.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hierlearn"


@dataclass(frozen=True)
class Mutant:
    """A fault: ``old`` becomes ``new`` in a file of the package; ``tests`` should notice."""

    what: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    # ---------------------------------------- losses and links
    Mutant(
        "the threshold of the curriculum is one class off",
        "losses/hcl/functional.py",
        "+ positions <= threshold",
        "+ positions + 1 <= threshold",
        "losses/hcl",
    ),
    Mutant(
        "the curriculum takes the hardest classes first",
        "losses/hcl/functional.py",
        "torch.sort(class_losses.detach(), stable=True)",
        "torch.sort(class_losses.detach(), stable=True, descending=True)",
        "losses/hcl",
    ),
    Mutant(
        "unknown entries bind others",
        "losses/hcl/functional.py",
        "losses.masked_fill(~mask, -torch.inf)",
        "losses.masked_fill(~mask, 0.0)",
        "losses/hcl",
    ),
    Mutant(
        "a level is bound by itself, not by the levels above",
        "losses/hcl/functional.py",
        "peak = best if peak is None else torch.where(best > peak, best, peak)",
        "peak = best",
        "losses/hcl",
    ),
    Mutant(
        "HXE weighs the wrong way",
        "losses/hxe.py",
        "(-alpha * torch.tensor(far",
        "(alpha * torch.tensor(far",
        "losses/test_hxe.py",
    ),
    Mutant(
        "a conditional probability is not divided by its parent's",
        "losses/hxe.py",
        "edges[0], above, alpha=-1)",
        "edges[0], above, alpha=0)",
        "losses/test_hxe.py",
    ),
    Mutant(
        "the prior of a softmax does not sum to 1",
        "links/softmax.py",
        "prior[self.terminals] -= prior[self.terminals].logsumexp(dim=0)",
        "prior[self.terminals] -= prior[self.terminals].mean(dim=0)",
        "links",
    ),
    # ---------------------------------------- hierarchy
    Mutant(
        "a class of a DAG counts twice where two paths reach it",
        "hierarchy/propagate.py",
        "if not structure.is_tree:",
        "if False:",
        "hierarchy",
    ),
    # ---------------------------------------- decoding
    Mutant(
        "the cost of a path has the wrong sign",
        "decoding/classes.py",
        "keepdim=True) - 2 * hierarchy.sum_down(p)",
        "keepdim=True) + 2 * hierarchy.sum_down(p)",
        "decoding",
    ),
    Mutant(
        "a risk forgets the new row: n for n + 1",
        "decoding/guarantees.py",
        "rank = int(fraction * (count + 1))",
        "rank = int(fraction * count)",
        "decoding",
    ),
    Mutant(
        "the threshold of a risk is one rank off",
        "decoding/guarantees.py",
        "sort(descending=True).values[rank - 1]",
        "sort(descending=True).values[rank]",
        "decoding",
    ),
    Mutant(
        "stopping goes on below a class that is not sure",
        "decoding/guarantees.py",
        "passes.cumprod(dim=1).bool()",
        "passes.bool()",
        "decoding",
    ),
    Mutant(
        "an inner terminal class keeps the mass of its children",
        "decoding/probabilities.py",
        "p.index_select(1, child), alpha=-1)",
        "p.index_select(1, child), alpha=0)",
        "decoding",
    ),
    # ---------------------------------------- metrics
    Mutant(
        "precision and recall change places",
        "metrics/sets.py",
        "above, below = both, answered",
        "above, below = both, true",
        "metrics",
    ),
    Mutant(
        "unknown entries count as wrong answers",
        "metrics/answers.py",
        "odd = self.known(self.sets) != self.targets",
        "odd = self.sets != self.targets",
        "metrics",
    ),
    Mutant(
        "accuracy of a level counts rows without a label there",
        "metrics/answers.py",
        "return (labeled & ~answers.wrong_levels)",
        "return (~answers.wrong_levels)",
        "metrics",
    ),
    # ---------------------------------------- memory
    Mutant(
        "a row is its own neighbor in training",
        "memory/compare.py",
        "logits.softmax(-1).masked_fill(excluded, 0.0)",
        "logits.softmax(-1)",
        "memory",
    ),
    Mutant(
        "the search finds the farthest rows",
        "memory/search.py",
        "held.topk(self.keep, largest=False, sorted=False)",
        "held.topk(self.keep, largest=True, sorted=False)",
        "memory",
    ),
    Mutant(
        "few rows of a new class count as little as others",
        "memory/store.py",
        "np.clip(USUAL * sizes[trained].mean() / sizes[new], 1.0, MOST)",
        "np.clip(USUAL * sizes[trained].mean() / sizes[new], 1.0, 1.0)",
        "memory",
    ),
    # ---------------------------------------- features
    Mutant(
        "a missing number becomes 0 before it is standardized",
        "features/numbers.py",
        "filled = np.where(np.isnan(chunk), self._mean, chunk)",
        "filled = np.where(np.isnan(chunk), 0.0, chunk)",
        "features",
    ),
    Mutant(
        "numbers are centered and not scaled",
        "features/numbers.py",
        "filled = (filled - self._mean) / self._scale",
        "filled = filled - self._mean",
        "features",
    ),
    # ---------------------------------------- training
    Mutant(
        "copies of a row fall into different folds",
        "training/blending.py",
        "fold = fold_of_group[groups]",
        "fold = np.arange(rows) % folds",
        "training",
    ),
    Mutant(
        "validation rows are trained on",
        "training/prepare.py",
        "return np.sort(shuffled[count:]), np.sort(shuffled[:count])",
        "return np.sort(shuffled), np.sort(shuffled[:count])",
        "training",
    ),
    Mutant(
        "gradients of the step before are still there",
        "training/solvers/gradient.py",
        "        self.network.zero_grad()\n        microbatches",
        "        microbatches",
        "training",
    ),
    Mutant(
        "the curriculum never hears of progress",
        "training/solvers/gradient.py",
        "self.loss.set_progress(step / self.steps)",
        "self.loss.set_progress(0.0)",
        "training",
    ),
    Mutant(
        "early stopping keeps the last weights",
        "training/solvers/gradient.py",
        "        self.stopping.restore()\n",
        "",
        "training",
    ),
    # ---------------------------------------- pipeline
    Mutant(
        "the last row of a batch is lost",
        "pipeline/pipeline.py",
        "inputs[first : first + batch]",
        "inputs[first : first + batch - 1]",
        "pipeline",
    ),
    Mutant(
        "a tile is filled up with the next rows",
        "training/inference.py",
        "index.clamp_max(len(rows) - 1)",
        "index.clamp_max(len(rows) - 2)",
        "pipeline",
    ),
    Mutant(
        "calibration looks at scaled probabilities",
        "pipeline/calibrate.py",
        "replace(pipeline, scaling=None).probabilities(inputs)",
        "pipeline.probabilities(inputs) ** 0.5",
        "pipeline",
    ),
    Mutant(
        "rows that are remembered already are remembered again",
        "pipeline/remember.py",
        "kept = np.flatnonzero(~found)",
        "kept = np.arange(len(new))",
        "pipeline estimator",
    ),
)


def run(mutant: Mutant, ring: str) -> bool:
    """Test a copy of the package with one fault in it; return whether a test noticed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "hierlearn"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / mutant.file
        path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
            + ["--all"] * (ring == "all")
            + [f"tests/{name}" for name in mutant.tests.split()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):  # neither passed nor failed
        raise SystemExit(f"{mutant.what}: pytest ended with {done.returncode}\n{done.stdout}")
    return done.returncode == 1


def main() -> None:
    """Run what was asked for, and print what survives."""
    parser = argparse.ArgumentParser(description="Break the core on purpose.")
    parser.add_argument("--only", help="numbers of mutants, from 1, with commas")
    parser.add_argument("--ring", choices=("first", "all", "both"), default="both")
    asked = parser.parse_args()
    numbers = (
        [int(one) for one in asked.only.split(",")] if asked.only else range(1, 1 + len(MUTANTS))
    )
    rings = ("first", "all") if asked.ring == "both" else (asked.ring,)
    survivors = 0
    for number in numbers:
        mutant = MUTANTS[number - 1]
        killed = {ring: run(mutant, ring) for ring in rings}
        survivors += not all(killed.values())
        shown = ", ".join(
            f"{ring} {'killed' if dead else 'SURVIVED'}" for ring, dead in killed.items()
        )
        print(f"{number:2} {mutant.what}: {shown}", flush=True)
    print(f"{len(numbers) - survivors} of {len(numbers)} mutants killed")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
