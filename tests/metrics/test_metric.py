"""Metric: what an entry of METRICS offers, and metrics that users add at run time."""

import math

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import METRICS, Metric, find_metric, measure, measure_rows
from hierlearn.metrics.measure import check_metrics, compute, shown_metrics
from hierlearn.training.settings import Settings
from metrics.score_batches import ANIMALS, assert_same, random_batch
from reference import metrics as naive

SPACE = LabelSpace(ANIMALS, ["animal", "dog"])
BATCH = random_batch(ANIMALS, 30, seed=2, labels=2)
BATCH.targets[4] = False  # a row without labels
BY_ROW = [name for name, metric in METRICS.items() if metric.per_row]


@pytest.mark.parametrize("name", BY_ROW)
def test_the_mean_of_the_rows_is_the_metric(name):
    metric = METRICS[name]
    rows = metric.rows(BATCH.scores, BATCH.targets, SPACE)
    assert rows.shape == (30,)
    assert rows.dtype == torch.float64
    assert_same(rows.nanmean(), metric(BATCH.scores, BATCH.targets, SPACE))
    every_row_counts = name in ("mean-level", "exact-match", "coherence-violations")
    every_row_counts |= name in ("exact", "severity", "answered", "complete")
    assert bool(rows[4].isnan()) == (not every_row_counts)
    # A row has its value whatever the others are.
    for row in (0, 4, 7):
        some = slice(row, row + 1)
        alone = metric.rows(BATCH.scores[some], BATCH.targets[some], SPACE)
        assert_same(alone, rows[some])


def test_rows_by_the_oracle():
    lists, targets = BATCH.scores.tolist(), BATCH.targets.tolist()
    options = {"candidates": "terminal", "correct_cost": "zero"}
    expected = naive.hier_dist(
        lists, targets, BATCH.parents, **options, terminals=SPACE.terminals, reduction="none"
    )
    assert_same(METRICS["lca-height"].rows(BATCH.scores, BATCH.targets, SPACE), expected)


def test_metrics_without_rows():
    without = sorted(set(METRICS) - set(BY_ROW))
    expected = ["accuracy", "ap-macro", "ap-micro", "au-prc", "calibration", "calibration-error"]
    expected += ["clus-au-prc", "f1", "fmax"]
    expected += ["hier-f1", "hier-precision", "hier-recall", "level-accuracy", "smin"]
    assert without == [*expected, "weighted-fmax"]
    for name in without:
        with pytest.raises(HierlearnError, match=f"{name} is not a mean over rows, so no row has"):
            METRICS[name].rows(BATCH.scores, BATCH.targets, SPACE)


@pytest.mark.parametrize(
    ("name", "value", "digits", "text"),
    [
        ("hit@1", 0.74666, None, "74.67"),
        ("mrr", 0.81, None, "81.00"),
        ("hit@1", 0.74666, 1, "74.7"),
        ("hier-dist", 1.25, None, "1.250"),
        ("hier-dist", 1.25, 1, "1.2"),
        ("au-prc", 0.5, None, "0.500"),
        ("hit@1", None, None, "n/a"),
        ("hier-dist", math.nan, None, "n/a"),
    ],
)
def test_figures_are_written_by_their_unit(name, value, digits, text):
    assert METRICS[name].format(value, digits) == text


def test_units():
    percent = [name for name, metric in METRICS.items() if metric.unit == "percent"]
    assert percent == [
        *("accuracy", "exact", "calibration", "answered", "complete"),
        *("hit@1", "hit@5", "mrr", "terminal-accuracy", "leaf-accuracy", "level-accuracy"),
        "exact-match",
    ]
    for name, metric in METRICS.items():
        assert metric.scale == (100 if name in percent else 1)


def test_names_are_checked_in_one_place():
    assert find_metric("mrr") is METRICS["mrr"]
    with pytest.raises(HierlearnError, match="unknown metric 'hit@11'; did you mean 'hit@1'"):
        find_metric("hit@11")
    with pytest.raises(HierlearnError, match="unknown metric 'hit@11'; did you mean 'hit@1'"):
        check_metrics(["mrr", "hit@11"])
    with pytest.raises(HierlearnError, match="no metric is named; name at least one"):
        check_metrics([])


# ---------------------------------------------------------------------- metrics of users


def brier(scores, targets, label_space):
    assert isinstance(label_space, LabelSpace)
    return ((scores - targets.double()) ** 2).mean().item()  # a plain float is fine


@pytest.fixture
def mine(monkeypatch):
    monkeypatch.setitem(METRICS, "mine", Metric("mine", brier))
    return METRICS["mine"]


def test_a_function_is_enough(mine):
    p, targets = BATCH.scores, BATCH.targets
    expected = ((p - targets.double()) ** 2).mean()
    for scores, truth in (
        (p, targets),
        (p.numpy(), ANIMALS.decode(targets)),
        (p.tolist(), targets),
    ):
        assert_same(mine(scores, truth, ANIMALS), expected)
    assert measure(p, targets, SPACE, ["mine"]) == {"mine": pytest.approx(float(expected))}
    assert_same(compute("mine", p, targets, SPACE), expected)
    module = mine.module(SPACE)
    for rows in (slice(0, 7), slice(7, None)):
        module.update(p[rows], targets[rows])
    assert_same(module.compute(), expected)
    assert module.higher_is_better is True
    assert mine.unsupported_reason(ANIMALS) is None
    assert mine.format(0.25) == "0.250"
    assert "mine" not in shown_metrics()
    assert Settings(metric="mine").metric == "mine"


def test_it_may_be_shown_and_have_rows(monkeypatch):
    def misses(scores, targets, label_space, *, far=0.5, reduction="mean"):
        rows = ((scores - targets.double()).abs() > far).double().mean(dim=1)
        return rows if reduction == "none" else rows.mean()

    metric = Metric(
        *("misses", misses, "entries that are far off"),
        direction="down",
        unit="percent",
        options={"far": 0.25},
        per_row=True,
        shown=True,
    )
    monkeypatch.setitem(METRICS, "misses", metric)
    found = measure(BATCH.scores, BATCH.targets, SPACE)["misses"]
    rows = measure_rows(BATCH.scores, BATCH.targets, SPACE)["misses"]
    expected = ((BATCH.scores - BATCH.targets.double()).abs() > 0.25).double().mean(dim=1)
    assert rows.tolist() == expected.tolist()
    assert found == pytest.approx(float(expected.mean()))
    assert metric.module(SPACE).higher_is_better is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": 3}, "metric mine: 3 is not a function"),
        ({"direction": "upward"}, "unknown direction 'upward'"),
        (
            {"unit": "meters"},
            "unknown unit 'meters'; known: count, edges, levels, percent, rank, s",
        ),
        ({"takes": "logits"}, "unknown takes 'logits'"),
        ({"per_row": True, "by_level": True}, "metric mine cannot be both per_row and by_level"),
    ],
)
def test_what_an_entry_raises(options, message):
    with pytest.raises(HierlearnError, match=message):
        Metric(**{"name": "mine", "function": brier, **options})
