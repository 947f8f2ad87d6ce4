"""Measure: figures ready for JSON, and the same for each row."""

import json

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.decoding import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import HeadOutput, MaxLink
from hierlearn.metrics import METRICS, measure, measure_rows
from hierlearn.metrics.measure import compute, plain, shown_metrics
from metrics.score_batches import ANIMALS, random_batch

SPACE = LabelSpace(ANIMALS, ["dog"])
BATCH = random_batch(ANIMALS, 25, seed=4)
OUTPUT = HeadOutput.from_logits(6 * BATCH.scores - 3, MaxLink(ANIMALS))
P = OUTPUT.probabilities


def read_by(name):
    """What a metric reads: terminal scores where it chooses among terminal classes."""
    return terminal_scores(P, ANIMALS) if METRICS[name].of_terminals else P


def test_the_shown_metrics_are_measured():
    found = measure(P, BATCH.targets, SPACE)
    assert list(found) == shown_metrics()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    every = measure(P, BATCH.targets, SPACE, "all")
    assert list(every) == list(METRICS)
    assert every.items() >= found.items()
    for name, value in every.items():
        if value is None:
            continue
        expected = METRICS[name](read_by(name), BATCH.targets, SPACE)
        assert value == pytest.approx(expected.tolist(), nan_ok=True)


def test_terminal_scores_matter():
    """Under a coherent link an inner terminal class would always win by p."""
    by_p = METRICS["terminal-accuracy"](P, BATCH.targets, SPACE)
    found = measure(P, BATCH.targets, SPACE, ["terminal-accuracy"])["terminal-accuracy"]
    assert found != float(by_p)
    assert float(compute("terminal-accuracy", P, BATCH.targets, SPACE)) == found


def test_outputs_arrays_and_labels_measure_the_same():
    expected = measure(P, BATCH.targets, SPACE)
    labels = ANIMALS.decode(BATCH.targets)
    for scores, truth in (
        (OUTPUT, labels),
        (P.numpy(), BATCH.targets.numpy()),
        (P.tolist(), labels),
    ):
        assert measure(scores, truth, SPACE) == expected
    assert float(compute("exact", OUTPUT, labels, SPACE)) == expected["exact"]


def test_the_rows_have_the_figures_as_means():
    found = measure_rows(P, BATCH.targets, SPACE)
    figures = measure(P, BATCH.targets, SPACE)
    assert list(found) == [name for name in shown_metrics() if METRICS[name].per_row]
    for name, rows in found.items():
        assert isinstance(rows, np.ndarray)
        assert rows.dtype == np.float64
        assert rows.shape == (25,)
        assert np.nanmean(rows) == pytest.approx(figures[name])
    assert list(measure_rows(OUTPUT, BATCH.targets, SPACE, ["hit@5"])) == ["hit@5"]
    with pytest.raises(HierlearnError, match="au-prc is not a mean over rows"):
        measure_rows(P, BATCH.targets, SPACE, ["au-prc"])


def test_what_is_not_defined_is_none_unless_it_was_named():
    p, nothing = torch.full((2, 7), 0.5), torch.zeros(2, 7, dtype=torch.bool)
    found = measure(p, nothing, ANIMALS, "all")
    assert found["hit@1"] is None
    assert found["coherence-violations"] == 0
    with pytest.raises(HierlearnError, match="none of the 2 rows has a label"):
        measure(p, nothing, ANIMALS, ["hit@1"])
    assert np.isnan(measure_rows(p, nothing, ANIMALS, ["hit@1"])["hit@1"]).all()
    assert plain(float("nan")) is None
    assert plain(0.5) == 0.5


def test_a_metric_that_the_label_space_does_not_support():
    small = Hierarchy.from_paths(["a", "b"])
    p, targets = torch.tensor([[0.9, 0.1]]), torch.tensor([[True, False]])
    for call in (measure, measure_rows):
        with pytest.raises(HierlearnError, match="hit@5 needs 5 classes, but there are 2"):
            call(p, targets, small, ["hit@5"])
        with pytest.raises(HierlearnError, match="hier-dist@5 needs 5 terminal classes, but there"):
            call(p, targets, small, ["hier-dist@5"])


@pytest.mark.parametrize("call", [measure, measure_rows])
@pytest.mark.parametrize(
    ("p", "targets", "message"),
    [
        (P[:, :6], BATCH.targets, r"probabilities \(25, 6\) must be \(N, 7\)"),
        (P * torch.nan, BATCH.targets, "is nan, outside"),
        (P + 1, BATCH.targets, "outside"),
        (P, BATCH.targets[:3], r"targets \(3, 7\) must match probabilities \(25, 7\)"),
        (P, torch.eye(7).repeat(4, 1)[:25], "targets are not closed"),
    ],
)
def test_wrong_inputs_raise_and_are_not_none(call, p, targets, message):
    with pytest.raises(HierlearnError, match=message):
        call(p, targets, SPACE)
