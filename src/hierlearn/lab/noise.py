"""The noise study: how much each candidate loses when labels or the taxonomy are wrong.

For every kind of noise and every rate the training and validation rows are corrupted, every loss
and recipe is trained, and its decisions are evaluated on the clean test rows by the clean taxonomy:

    terminal-accuracy   the decided terminal class is one of the row's terminal labels
    lca-height          the LCA height of that class to the nearest label, 0 for a hit
    level-m             a class of level m on the path to it is right, over rows with a label there
    au-prc              of the probabilities, where the taxonomy is clean

A network that learned a wrong taxonomy decides a class of that taxonomy; the class of the clean one
that it stands for is evaluated, so the curves of both kinds mean the same.

A draw repeats everything with other noise and other training seeds; rate 0, which has no noise, is
trained once per draw and serves every kind. A cell, a kind at a rate in a draw, is a study of its
own in ``cells/``, so an interrupted run is resumed, and further draws and rates are added.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.describe import describe
from hierlearn.errors import HierlearnError, arg, quoted, unknown_name
from hierlearn.files.writing import is_empty
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.compare import begin, run_studies
from hierlearn.lab.corpora.synthetic import (
    corrupt_hierarchy,
    with_label_noise,
    with_terminal_labels,
)
from hierlearn.lab.noise_figures import DECIDED, SCORES, summarize_noise
from hierlearn.lab.protocol import KINDS, Noise, Protocol
from hierlearn.lab.runner import check_test_rows, with_training_rows
from hierlearn.lab.study import StudyError, holds_studies
from hierlearn.metrics.measure import find_metric
from hierlearn.reports.decisions import Truth, hits_on_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.compare import Comparison
    from hierlearn.lab.noise_figures import Values
    from hierlearn.lab.study import Study

LOSSES = (
    *("bce", "hxe", "soft-labels", "mcloss", "leaf-ce"),
    *("hcl-hier", "hcl-paper:floor=0.1", "loss:hcl"),
)
SHARED = ("settings", "network", "preprocessing", "valid_fraction")  # of the studies of all cells
DESCRIPTIONS = {"labels": "of the labels wrong", "hierarchy": "of the edges moved"}


@dataclass(frozen=True)
class Cell:
    """A kind of noise at a rate, in a draw; kind None is clean."""

    kind: str | None
    rate: float
    draw: int = 0

    @property
    def name(self) -> str:
        """The folder of the cell's study."""
        noise = "clean" if self.kind is None else f"{self.kind}-{self.rate:.15g}"
        return f"{noise}-draw-{self.draw}"


def default_candidates(dataset: Dataset) -> list[str]:
    """Return the losses of the study, and the recipes that ``auto`` chooses among."""
    memory = ["quick"] if dataset.kind == "numbers" else ["neighbors", "linear"]
    return [*LOSSES, "auto", *memory, "max", "flat", "hcl"]


def noise_study(
    dataset: Dataset,
    candidates: Sequence[str | Candidate] | None,
    out: Path | str,
    protocol: Protocol | None = None,
    *,
    noise: Noise | None = None,
    force: bool = False,
    executor: Executor | int = 1,
    on_step: Callable[[int, int, int], None] | None = None,
) -> dict[str, Any]:
    """Train every candidate under every noise, or resume where that was interrupted.

    Args:
        dataset: clean, with a split "test".
        candidates: what to compare, as ``compare`` takes them; the first is what the others are
            tested against. If None, ``default_candidates``.
        out: the folder.
        protocol: how to train and evaluate them; the defaults of Protocol if None. Draw k trains
            with the seeds that follow those of draw k - 1.
        noise: which kinds of noise at which rates, in how many draws; the defaults of Noise if
            None.
        force: replace another study in the folder.
        executor: where candidates are trained, as ``compare`` takes it; the candidates of all
            cells at once.
        on_step: called with the number of the training among all, the step and the number of
            steps.

    Returns:
        Every figure with its interval and test, ready for JSON; see ``summarize_noise``.
    """
    noise, protocol = noise or Noise(), protocol or Protocol()
    parsed = parse_candidates(default_candidates(dataset) if candidates is None else candidates)
    rates, kinds = check_rates(noise.rates), check_kinds(noise.kinds)
    if noise.draws < 1:
        raise HierlearnError(f"{arg('draws')} must be at least 1, not {noise.draws}")
    check_test_rows(dataset)
    dataset = with_terminal_labels(with_training_rows(dataset))
    out = Path(out)
    check_folder(out)
    test = Labels(dataset.split("test").labels, dataset.hierarchy)
    truth = Truth(dataset.hierarchy, *test.closed)
    begun: dict[Cell, tuple[Study, Ints, float]] = {}

    def studies() -> Iterator[Comparison]:
        for cell in cells(kinds, rates, noise.draws):
            noisy, clean_numbers = corrupt(dataset, cell, noise.seed)
            one = begin(
                noisy,
                parsed,
                out / "cells" / cell.name,
                protocol.with_changes(seed=protocol.seed + cell.draw * protocol.seeds),
                force=force,
                metadata={"noise": {**asdict(cell), "source": dataset.source}},
            )
            if cell.kind == "hierarchy":  # what fraction of edges, or of training rows, is wrong
                before = edges(dataset.hierarchy)
                wrong, all_of = len(before - edges(noisy.hierarchy, clean_numbers)), len(before)
            else:
                rows = dataset.splits["train"]
                wrong = sum(dataset.labels[row] != noisy.labels[row] for row in rows)
                all_of = len(rows)
            fraction = wrong / max(all_of, 1)
            begun[cell] = (one.study, clean_numbers, fraction)
            yield one

    run_studies(studies(), protocol, executor, on_step)
    grid = {  # the cells of every kind, by rate and draw
        kind: [
            [Cell(kind if rate else None, rate, draw) for draw in range(noise.draws)]
            for rate in rates
        ]
        for kind in kinds
    }

    def of_each(kind: str, what: Callable[[Cell], Any]) -> list[list[Any]]:
        return [[what(cell) for cell in row] for row in grid[kind]]

    def improving(cell: Cell) -> list[str]:
        return [run["candidate"] for run in begun[cell][0].runs() if run["still_improving"]]

    first = next(iter(begun.values()))[0].config
    config: dict[str, Any] = {
        "dataset": describe(dataset),
        "noise_seed": noise.seed,
        **{name: first[name] for name in SHARED},
        "first_seed": protocol.seed,
        "versions": first["metadata"]["versions"],
        "machine": machine(),
        "corrupted": {kind: of_each(kind, lambda cell: begun[cell][2]) for kind in kinds},
        "still_improving": {
            kind: [
                list(dict.fromkeys(key for keys in row for key in keys))
                for row in of_each(kind, improving)
            ]
            for kind in kinds
        },
    }
    values = {
        cell: measured(study, truth, clean_numbers, cell)
        for cell, (study, clean_numbers, _) in begun.items()
    }
    by_kind = {kind: of_each(kind, values.__getitem__) for kind in kinds}
    return summarize_noise(by_kind, rates, parsed, config)


def measured(study: Study, truth: Truth, clean_numbers: Ints, cell: Cell) -> Values:
    """Return the metrics of a cell's candidates, by the clean taxonomy."""
    # Probabilities of a wrong taxonomy are of other classes: only decisions are mapped back.
    scores = [] if cell.kind == "hierarchy" else [n for n in SCORES if n in study.config["metrics"]]
    return {
        one.key: {
            **evaluate_decisions(truth, clean_numbers[study.rows(one)["terminal"]], DECIDED),
            **{name: study.values(one, name) for name in scores},
        }
        for one in study.candidates
    }


def cells(kinds: Sequence[str], rates: Sequence[float], draws: int = 1) -> list[Cell]:
    """Return the cells to train, draw after draw; a clean one serves every kind."""
    clean = [Cell(None, 0.0)] if 0.0 in rates else []
    once = clean + [Cell(kind, rate) for kind in kinds for rate in rates if rate]
    return [replace(cell, draw=draw) for draw in range(draws) for cell in once]


def check_rates(rates: Sequence[float]) -> list[float]:
    """Return the rates in ascending order; raise for rates that make no study."""
    for rate in rates:
        if not 0 <= rate <= 1:
            raise HierlearnError(f"a rate of noise must lie in [0, 1], not {rate}")
    if len(set(rates)) < max(len(rates), 2):
        raise HierlearnError(
            f"name at least two rates of noise, each once, not {', '.join(map(str, rates))}"
        )
    return sorted(float(rate) for rate in rates)


def check_kinds(kinds: Sequence[str]) -> list[str]:
    for kind in kinds:
        if kind not in KINDS:
            raise HierlearnError(unknown_name("kind of noise", kind, KINDS))
    if not kinds:
        raise HierlearnError(f"name at least one kind of noise, of {quoted(KINDS)}")
    return list(dict.fromkeys(kinds))


def check_folder(out: Path) -> None:
    """Raise for a folder with other files in it, before anything is trained."""
    cells_of = out / "cells"
    if not is_empty(out) and not (cells_of.is_dir() and holds_studies(cells_of)):
        raise StudyError(f"{out} exists and holds no noise study; name another folder")


def corrupt(dataset: Dataset, cell: Cell, seed: int) -> tuple[Dataset, Ints]:
    """Return the corrupted dataset of a cell, and the clean number of each of its classes.

    Args:
        dataset: the clean rows.
        cell: kind, rate and draw.
        seed: of the noise of the first draw.
    """
    seed += cell.draw
    same = np.arange(len(dataset.hierarchy))
    if cell.kind is None:
        return dataset, same
    # Two draws may agree in every count: the source is what tells their studies apart.
    noise = f"{100 * cell.rate:.15g} % {DESCRIPTIONS[cell.kind]}, noise seed {seed}"
    named = replace(dataset, source="; ".join(filter(None, [dataset.source, noise])))
    if cell.kind == "labels":
        return with_label_noise(named, cell.rate, seed), same
    return corrupt_hierarchy(named, cell.rate, seed)


def edges(hierarchy: Hierarchy, numbers: Ints | None = None) -> set[tuple[int, int]]:
    """Return (parent, child) of every edge, each class by the number given for it."""
    child, parent = hierarchy.structure.edge_children, hierarchy.structure.parent_ids
    if numbers is not None:
        child, parent = numbers[child], numbers[parent]
    return set(zip(parent.tolist(), child.tolist(), strict=True))


def machine() -> dict[str, Any]:
    """Return what the study ran on, without names of hosts or people."""
    import os
    import platform

    found: dict[str, Any] = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def evaluate_decisions(
    truth: Truth, decided: NDArray[Any], metrics: Sequence[str]
) -> dict[str, list[float]]:
    """Return metrics of decided classes, one value per seed, with ``level-m`` of every level.

    A decision is scored as the one class that could be meant: 1, all others 0.

    Args:
        truth: the labels.
        decided: (S, N) class numbers; any class may be decided, inner ones too.
        metrics: names of METRICS that read the best class.
    """
    hierarchy = truth.hierarchy
    space = LabelSpace(hierarchy, range(len(hierarchy)))
    found: dict[str, list[float]] = {name: [] for name in metrics}
    for classes in decided.astype(np.int64):
        scores = torch.zeros(truth.targets.shape)
        scores[torch.arange(len(truth)), torch.from_numpy(classes)] = 1
        for name in metrics:
            found[name].append(float(find_metric(name)(scores, truth.targets, space)))
        hits = rows_by_level(hierarchy, *hits_on_path(truth, classes))
        counts = rows_by_level(hierarchy, truth.rows, truth.closed)
        accuracies = np.where(counts > 0, hits / np.maximum(counts, 1), np.nan)
        for level, value in enumerate(accuracies.tolist(), start=1):
            found.setdefault(f"level-{level}", []).append(value)
    return found


def rows_by_level(hierarchy: Hierarchy, rows: Ints, classes: Ints) -> Ints:
    """Return (L,) how many different rows have a class of each level."""
    size = hierarchy.depth + 1
    found = np.unique(rows * size + hierarchy.levels[classes])
    return np.bincount(found % size, minlength=size)[1:]
