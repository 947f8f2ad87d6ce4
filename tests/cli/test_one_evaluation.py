"""One evaluation: every place that shows a figure of a model shows the same one, to the last digit.

The oracle is a loop over the file that ``predict`` wrote, joined to the labels: it knows paths and
nothing of hierlearn.
"""

import csv
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from cli.conftest import CLASSES
from hierlearn import HierarchicalClassifier
from hierlearn.metrics.measure import figure_lines, shown

WORDS = [["bark", "paw"], ["bark", "lead"], ["purr", "paw"], ["leaf", "acorn"], ["leaf", "thorn"]]


def numbers(draw, kind):
    """Numbers around a corner a class, some of them far off."""
    corner = np.array([kind, kind**2 % 3, kind % 2])
    return [f"{cell:.4f}" for cell in corner + draw.normal(0, 0.7, 3)]


def texts(draw, kind):
    """Words of the class, and some of any."""
    every = sorted({word for words in WORDS for word in words})
    return [" ".join([*draw.choice(WORDS[kind], 2), *draw.choice(every, 3)])]


def one(draw, kind):
    return CLASSES[kind]


def several(draw, kind):
    more = [name for name in CLASSES if draw.random() < 0.1]
    return ";".join(dict.fromkeys([CLASSES[kind], *more]))


def partly(draw, kind):
    """Some labels end above the leaf."""
    path = CLASSES[kind]
    return path.rpartition("/")[0] if draw.random() < 0.3 else path


KINDS = {
    "a memory": ("a,b,c", numbers, one, "--features a,b,c"),
    "a linear model": ("note", texts, one, "--text note"),
    "several labels": ("a,b,c", numbers, several, "--features a,b,c --recipe max --epochs 15"),
    "inner labels": ("a,b,c", numbers, partly, "--features a,b,c --recipe hcl --epochs 15"),
    "answers that stop": (
        "a,b,c",
        numbers,
        one,
        "--features a,b,c --recipe hcl --epochs 40 --decoder stop --decoder-option threshold=0.8",
    ),
    "partial labels": (
        "a,b,c",
        numbers,
        partly,
        "--features a,b,c --recipe hcl --epochs 15 --unlabeled-descendants ignore",
    ),
}


def closed(paths):
    """Every beginning of some paths."""
    return {path.rsplit("/", k)[0] for path in paths for k in range(path.count("/") + 1)}


def at(paths, level):
    return {path for path in paths if path.count("/") == level - 1}


def loop(answers, labels, terminals, depth, *, partial):
    """The figures of answers (paths and their probabilities) beside the labels of each row."""
    right, labeled, wrong_levels, both, sizes, sure = [0] * depth, [0] * depth, [], 0, 0, []
    given = full = 0
    for answer, label in zip(answers, labels, strict=True):
        truth = closed(label)
        ends = {one for one in truth if not any(two.startswith(f"{one}/") for two in truth)}

        def unknown(path, ends=ends):
            return partial and any(path.startswith(f"{end}/") for end in ends)

        said = {path for path in closed(answer) if not unknown(path)}
        wrong = [k for k in range(1, depth + 1) if at(said, k) != at(truth, k)]
        wrong_levels.append(len(wrong))
        for k in range(1, depth + 1):
            if at(truth, k):
                labeled[k - 1] += 1
                right[k - 1] += k not in wrong
        both += len(said & truth)
        sizes += len(said) + len(truth)
        sure += [(p, path in truth) for path, p in answer.items() if not unknown(path)]
        given += bool(answer)
        full += bool(answer) and all(path in terminals for path in answer)
    mistakes = [count for count in wrong_levels if count]
    bins = [[] for _ in range(15)]
    for p, hit in sure:
        bins[min(int(p * 15), 14)].append(p - hit)
    return {
        "accuracy": [hits / rows for hits, rows in zip(right, labeled, strict=True)],
        "exact": 1 - len(mistakes) / len(labels),
        "severity": sum(mistakes) / len(mistakes) if mistakes else math.nan,
        "f1": 2 * both / sizes,
        "calibration": sum(abs(sum(one)) for one in bins) / len(sure),
        "answered": given / len(labels),
        "complete": full / len(labels),
    }


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=KINDS, ids=lambda name: name.replace(" ", "-"))
def kind(request, tmp_path):
    columns, inputs, label, options = KINDS[request.param]
    draw = np.random.default_rng(3)
    lines = []
    for row in range(150):
        which = int(draw.integers(0, 5))
        part = "train" if row < 90 else "test"
        lines.append(",".join([*inputs(draw, which), label(draw, which), part]))
    for name, some in (("rows", lines), ("test", lines[90:])):
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{columns},class,part", *some]) + "\n")
    return request.param, columns, options


def test_every_place_shows_the_same_figures(kind, call, tmp_path):
    name, columns, options = kind
    said = call(f"train rows.csv --label class --split part {options} --out model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    figures = config["metrics"]["test"]
    assert config["plan"]["unlabeled_descendants"] == (
        "ignore" if name == "partial labels" else "negative"
    )

    # What predict wrote, in a loop.
    call("predict model test.csv --out out.csv")
    answers = []
    for row in read(tmp_path / "out.csv"):
        paths = [path for path in row["path"].split(";") if path]
        sure = [float(p) for p in row["probability"].split(";") if p]
        answers.append(dict(zip(paths, sure, strict=False)))
    labels = [row["class"].split(";") for row in read(tmp_path / "test.csv")]
    trained = [row["class"].split(";") for row in read(tmp_path / "rows.csv")][:90]
    ends = {
        end
        for row in trained
        for end in row
        if not any(other.startswith(f"{end}/") for other in closed(row))
    }
    if name == "partial labels":  # there, what ends above a leaf says nothing of what lies below
        ends = set()
    expected = loop(answers, labels, {*CLASSES, *ends}, 3, partial=name == "partial labels")
    assert figures.keys() == expected.keys()
    for one in figures:
        assert figures[one] == pytest.approx(expected[one], rel=1e-5), one
    assert 0.1 < figures["exact"] < 1
    assert name != "answers that stop" or figures["complete"] < figures["answered"] < 1

    # evaluate, and the estimator.
    told = call("evaluate model rows.csv --rows test --out figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["metrics"] == figures
    alone = call("evaluate model test.csv --out alone.json --rows all")
    assert json.loads((tmp_path / "alone.json").read_text())["metrics"] == figures
    rows = read(tmp_path / "test.csv")
    if columns == "note":
        X = [row["note"] for row in rows]
    else:
        X = pd.read_csv(tmp_path / "test.csv")[columns.split(",")]
    y = [row["class"] for row in rows] if name != "several labels" else labels
    classifier = HierarchicalClassifier.load(tmp_path / "model")
    found = classifier.evaluate(X, y)
    texts = figure_lines([figures])
    assert figure_lines([found]) == texts
    score = "f1" if name == "several labels" else "exact"
    assert classifier.score(X, y) == pytest.approx(figures[score], rel=1e-12)

    # Whatever shows text: train, evaluate, the card, the page.
    card = (tmp_path / "model" / "README.md").read_text()
    for label, _, (text,) in texts:
        for place in (said, told, alone):
            line = next(line for line in place.splitlines() if f" {label} " in line)
            assert text in line
        assert f"| {label} | {text} |" in card
    call("report model --data test.csv --out page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"<b>{shown('exact', figures['exact'])}</b>" in page
    cells = re.findall(r'<td class="number">([0-9.]+ %)</td></tr>', page.split("</table>")[0])
    assert cells == [shown("accuracy", one) for one in figures["accuracy"]]
    for one in ("severity", "f1", "calibration"):
        assert f"<dd>{shown(one, figures[one])}</dd>" in page
    assert ("Rows with a complete answer" in page) == (figures["complete"] < 1)
    wrong = re.search(r'class="value">([0-9.]+) % wrong', page)[1]
    assert wrong == f"{100 * (1 - figures['exact']):.1f}"


def test_a_study_has_the_figures_of_the_loop(call, tmp_path):
    """The table of a comparison, and the bar of its mistakes, where labels end at inner classes."""
    draw = np.random.default_rng(3)
    lines = [
        ",".join([*numbers(draw, k), partly(draw, k), "train" if row < 90 else "test"])
        for row, k in enumerate(draw.integers(0, 5, 150).tolist())
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,class,part", *lines]) + "\n")
    columns = "--label class --split part --features a,b,c"
    call(f"compare rows.csv {columns} --methods hcl --seeds 1 --epochs 5 --out study")
    summary = json.loads((tmp_path / "study" / "summary.json").read_text())
    exact = summary["figures"]["exact"][0]["mean"]
    (bar,) = summary["severity"].values()
    assert bar[0] == pytest.approx(exact)
    levels = summary["figures"]["severity"][0]["mean"]
    assert sum(k * share for k, share in enumerate(bar)) / (1 - bar[0]) == pytest.approx(levels)
    page = (tmp_path / "study" / "report.html").read_text()
    assert f"{100 * (1 - exact):.1f} % wrong" in page
