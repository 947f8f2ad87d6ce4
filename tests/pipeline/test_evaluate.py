"""Evaluate: what METRICS says of the model's probabilities, ready for JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.errors import DataError, HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.metrics import METRICS
from hierlearn.metrics.measure import measure, shown_metrics
from hierlearn.pipeline import Pipeline, evaluate, train
from hierlearn.pipeline.evaluate import EvaluationWarning, known_entries
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from hierlearn.training.blending import scorer
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes
from hierlearn.training.rows import Rows
from hierlearn.training.solvers.solver import EarlyStopping, member_values
from training.datasets import TREE, partial_problem, plan, problem

QUIET = Reporting(bar=False)


@pytest.fixture(scope="module")
def trained():
    return train(problem(), plan("leaf-ce", epochs=5, learning_rate=0.02), reporting=QUIET)


def test_the_shown_figures_are_those_of_the_registry(trained):
    dataset = problem().split("test")
    found = evaluate(trained, dataset)
    assert list(found) == shown_metrics()
    p = trained.probabilities(dataset.inputs)
    targets = dataset.hierarchy.encode(dataset.labels)
    for name in shown_metrics():
        expected = METRICS[name](p, targets, trained.label_space)
        assert found[name] == pytest.approx(expected.tolist(), nan_ok=True)
    assert list(evaluate(trained, dataset, "all")) == list(METRICS)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_hit_at_1_by_hand(trained):
    dataset = problem().split("test")
    best = trained.probabilities(dataset.inputs).argmax(dim=1)
    hits = dataset.hierarchy.encode(dataset.labels)[torch.arange(len(best)), best]
    assert evaluate(trained, dataset, ["hit@1"]) == {
        "hit@1": pytest.approx(float(hits.double().mean()))
    }


def test_terminal_accuracy_by_hand_where_every_row_ends_at_a_leaf(trained):
    dataset = problem().split("test")
    leaves = torch.tensor(dataset.hierarchy.leaves)
    best = leaves[trained.probabilities(dataset.inputs)[:, leaves].argmax(dim=1)].tolist()
    right = np.mean(
        [dataset.hierarchy.names[n] == row[0] for n, row in zip(best, dataset.labels, strict=True)]
    )
    assert evaluate(trained, dataset, ["terminal-accuracy"])["terminal-accuracy"] == pytest.approx(
        right
    )


def test_a_model_knows_what_it_was_measured_at(tmp_path):
    dataset = problem()
    model = train(dataset, plan("bce"), out=tmp_path, reporting=QUIET)
    for name in ("valid", "test"):
        assert model.config["metrics"][name] == evaluate(model, dataset.split(name))
    assert "train" not in model.config["metrics"]


def test_a_model_is_kept_where_its_test_rows_cannot_be_evaluated(tmp_path):
    dataset = problem()
    whole = train(dataset, plan("bce"), reporting=QUIET)
    inputs = dataset.inputs.copy()
    inputs[dataset.splits["test"][2]] = 3e38  # no number of float32 any more when standardized
    spoiled = replace(dataset, inputs=inputs)
    with pytest.warns(EvaluationWarning, match="trained, but its test rows cannot be evaluated: "):
        train(spoiled, plan("bce"), out=tmp_path, reporting=QUIET)
    model = Pipeline.load(tmp_path)
    assert list(model.config["metrics"]) == ["valid"]
    p, expected = (one.probabilities(dataset.inputs) for one in (model, whole))
    assert torch.equal(p, expected)


def test_a_model_is_kept_where_its_network_raises_on_a_test_row(tmp_path, monkeypatch):
    monkeypatch.setattr(Pipeline, "probabilities", lambda *_: 1 / 0)
    with pytest.warns(EvaluationWarning) as said:
        train(problem(), plan("bce"), out=tmp_path, reporting=QUIET)
    assert {str(one.message) for one in said} == {
        f"the model is trained, but its {name} rows cannot be evaluated: ZeroDivisionError: "
        f"division by zero"
        for name in ("valid", "test")
    }
    assert Pipeline.load(tmp_path).config["metrics"] == {}


def test_probabilities_that_are_nan_name_their_rows(trained, monkeypatch):
    rows = problem().split("test")
    p = trained.probabilities(rows.inputs)
    p[[3, 5], 1] = float("nan")
    monkeypatch.setattr(type(trained), "probabilities", lambda *_: p)
    with pytest.raises(DataError) as caught:
        evaluate(trained, replace(rows, ids=[f"r{row}" for row in range(len(rows))]))
    assert str(caught.value) == (
        f"the probabilities of 2 rows of {len(rows)} are NaN, the first of row 3 (id r3); check "
        f"the inputs of these rows, or leave them out"
    )


def test_a_figure_that_is_not_defined_is_none_unless_it_was_asked_for():
    p = torch.full((2, 8), 0.5)
    targets = torch.zeros(2, 8, dtype=torch.bool)  # rows without a label
    found = measure(p, targets, TREE, "all")
    assert found["hit@1"] is None
    assert found["coherence-violations"] == 0
    with pytest.raises(HierlearnError, match="label"):
        measure(p, targets, TREE, ["hit@1"])


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["hit@11"], "unknown metric 'hit@11'; did you mean 'hit@1'"),
        ([], "no metric is named; name at least one"),
    ],
)
def test_metrics_that_do_not_exist(trained, metrics, message):
    with pytest.raises(HierlearnError, match=message):
        evaluate(trained, problem(), metrics)


def test_a_metric_that_the_hierarchy_does_not_allow():
    small = Hierarchy.from_paths(["a", "b"])
    p, targets = torch.tensor([[0.9, 0.1]]), torch.tensor([[True, False]])
    with pytest.raises(HierlearnError, match="hit@5 needs 5 classes, but there are 2"):
        measure(p, targets, small, ["hit@5"])


def test_rows_of_another_hierarchy_and_no_rows_are_refused(trained):
    with pytest.raises(
        HierlearnError,
        match=r"the rows are labeled by another hierarchy \(Hierarchy\(8 classes.*; read them",
    ):
        evaluate(trained, partial_problem())
    dataset = problem()
    empty = replace(dataset, inputs=dataset.inputs[:0], labels=[], splits={})
    with pytest.raises(HierlearnError, match="there are no rows to evaluate on"):
        evaluate(trained, empty)


# ---------------------------------------------------------------------- partial labels


class Partial:
    """Rows of which some are labeled above the leaf, and probabilities that are given."""

    h = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g"])
    labels = ("a/b", "a/b/c", "a", "f/g", "f")
    names = ("a/b/c", "a/b/c", "f/g", "f/g", "f/g")  # what is answered

    @classmethod
    def p(cls):
        return 0.6 * cls.h.encode(cls.names).float()

    @classmethod
    def known(cls):
        return Labels(cls.labels, cls.h, unlabeled_descendants="ignore")


@pytest.mark.parametrize("metric", ["exact", "f1", "au-prc", "hier-f1", "terminal-accuracy"])
def test_partial_labels_count_the_same_in_validation_selection_and_evaluation(metric):
    """Below the labels of rows 0, 2 and 4 nothing is known, so only row 2 is wrong."""
    p, labels = Partial.p(), Partial.known()
    space = LabelSpace(Partial.h)
    cpu, network = torch.device("cpu"), torch.nn.Identity()
    rows = Rows(p.numpy(), labels, cpu)
    stopping, here = EarlyStopping(network, 1, metric, None), Processes(0, 1, cpu)
    read = lambda found: HeadOutput(found.log(), (1 - found).log())  # noqa: E731
    validated, wrong = member_values(network, rows, read, stopping, space, here)
    assert not wrong
    chosen = scorer(metric, labels.targets(), space, labels.mask())(p)
    told = measure(p, labels, space, [metric], mask=labels.mask())[metric]
    assert validated == pytest.approx(told)
    assert chosen == pytest.approx(told, abs=1e-3)  # of half precision
    as_negatives = measure(p, labels, space, [metric])[metric]
    assert told > as_negatives or metric == "terminal-accuracy"
    if metric == "exact":
        assert told == 4 / 5
    if metric == "terminal-accuracy":
        assert told == 1  # of rows 1 and 3, whose labels are whole


def test_validation_rows_have_the_mask_of_the_training_rows():
    dataset = replace(
        partial_problem(), splits={"train": np.arange(30), "valid": np.arange(30, 60)}
    )
    for policy in ("ignore", "negative"):
        made = Plan(loss="bce", unlabeled_descendants=policy, settings={"epochs": 1})
        prepared = prepare(dataset, made, torch.device("cpu"))
        valid = prepared.valid
        assert valid.is_partial == prepared.rows.is_partial == (policy == "ignore")
        if policy == "ignore":
            truth = Labels(
                dataset.split("valid").labels, dataset.hierarchy, unlabeled_descendants=policy
            )
            assert torch.equal(valid.mask(torch.arange(30)), truth.mask())


def test_a_label_that_the_taxonomy_lacks_says_that_no_class_below_is_true():
    labels = Partial.known()
    mask = known_entries(labels, {0: ("a/b/new",)})
    assert mask[0].all()
    assert torch.equal(mask[1:], labels.mask()[1:])
    found = measure(Partial.p(), labels, Partial.h, ["exact"], mask=mask)
    assert found == {"exact": 3 / 5}
    assert known_entries(Labels(Partial.labels, Partial.h), {0: ("a/b/new",)}) is None
