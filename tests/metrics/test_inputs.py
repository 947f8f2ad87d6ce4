"""What every metric reads, and what it raises for, in one wording."""

import numpy as np
import pandas as pd
import pytest
import torch

from hierlearn import Hierarchy, metrics
from hierlearn.errors import DataWarning, HierlearnError, LabelError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.links import HeadOutput, SigmoidLink, SoftmaxLink
from hierlearn.metrics import METRICS, average_precision, hier_dist, hit_at_k, level_accuracy
from hierlearn.metrics.inputs import best_classes
from metrics.score_batches import ANIMALS, DIAMOND, assert_same, random_batch

SCORES, TARGETS = torch.rand(3, 7), ANIMALS.encode(["pug", "cat", []])


def nan_at(row, number):
    scores = SCORES.clone()
    scores[row, number] = torch.nan
    return scores


def test_scores():
    with pytest.raises(HierlearnError, match=r"^row 2: the score of class 5 is NaN$"):
        hit_at_k(nan_at(2, 5), TARGETS)
    with pytest.raises(HierlearnError, match=r"^row 2: the score of 'animal/dog/bulldog' is NaN$"):
        hier_dist(nan_at(2, 5), TARGETS, ANIMALS)
    with pytest.raises(HierlearnError, match=r"^scores must be floating point, not torch.int64$"):
        hit_at_k(torch.zeros(3, 7, dtype=torch.long), TARGETS)
    with pytest.raises(
        HierlearnError, match=r"^scores \(7,\) must be \(N, C\), one column per class$"
    ):
        hit_at_k(SCORES[0], TARGETS[0])
    with pytest.raises(HierlearnError, match=r"^scores \(3, 0\) must be \(N, C\)"):
        hit_at_k(SCORES[:, :0], TARGETS[:, :0])
    other = Hierarchy.from_paths(["a", "b"])
    with pytest.raises(
        HierlearnError, match=r"^scores \(3, 7\) must be \(N, 2\), one column per class"
    ):
        level_accuracy(SCORES, TARGETS, other)


def test_the_first_nan_is_found_in_later_chunks(monkeypatch):
    monkeypatch.setattr("hierlearn.hierarchy.structure.CHUNK", 7)
    with pytest.raises(HierlearnError, match=r"^row 2: the score of class 5 is NaN$"):
        hit_at_k(nan_at(2, 5), TARGETS)


def test_targets():
    with pytest.raises(HierlearnError, match=r"^targets \(2, 7\) must match scores \(3, 7\)$"):
        hit_at_k(SCORES, TARGETS[:2])
    half = TARGETS.float()
    half[1, 3] = 0.5
    with pytest.raises(
        HierlearnError,
        match=r"^row 1: the entry of class 3 in targets is 0.5, but targets are 0 or 1",
    ):
        average_precision(SCORES, half)
    with pytest.raises(HierlearnError, match=r"row 1: the entry of 'animal/dog' in targets is 0.5"):
        hier_dist(SCORES, half, ANIMALS)
    half[1, 3] = torch.nan
    with pytest.raises(HierlearnError, match="in targets is nan, but"):
        hit_at_k(SCORES, half)
    broken = TARGETS.clone()
    broken[1, ANIMALS.index("animal")] = False
    with pytest.raises(
        HierlearnError,
        match=r"^row 1: targets are not closed: 'animal/cat' is positive but its parent 'animal' "
        r"is not; make targets with Hierarchy.encode$",
    ):
        hier_dist(SCORES, broken, ANIMALS)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.float64])
def test_targets_of_any_type_say_the_same(dtype):
    assert torch.equal(hit_at_k(SCORES, TARGETS.to(dtype)), hit_at_k(SCORES, TARGETS))


def test_gradients_and_inputs_are_left_alone():
    scores = SCORES.clone().requires_grad_()
    found = average_precision(scores, TARGETS)
    assert not found.requires_grad
    assert torch.equal(scores, SCORES)
    assert scores.grad is None


def test_best_classes_are_those_of_a_stable_sort(monkeypatch):
    scores = random_batch(ANIMALS, 30).scores.mul(3).round()
    some = torch.tensor([1, 2, 4, 6])
    for numbers in (None, torch.arange(7), some):
        allowed = range(7) if numbers is None else numbers.tolist()
        for k in (1, 2, 4):
            expected = [
                sorted(allowed, key=lambda c, row=row: (-row[c], c))[:k] for row in scores.tolist()
            ]
            assert best_classes(scores, numbers, k).tolist() == expected
            monkeypatch.setattr("hierlearn.hierarchy.structure.CHUNK", 20)
            assert best_classes(scores, numbers, k).tolist() == expected
            monkeypatch.undo()


# ---------------------------------------------------------------------- the estimator's output

# What HierarchicalClassifier.predict_node_proba and .predict return, by the form of the labels.
PROBA = random_batch(ANIMALS, 4, seed=3).scores.numpy()  # (N, C) float64
TRUTH = ["animal/dog/pug", "animal/cat", "plant/oak", "animal/dog"]
NUMBERS = [ANIMALS.index(name) for name in ("pug", "dog", "oak", "plant")]
PATHS = ["animal/dog/pug", "animal/dog", "plant/oak", "plant"]
TABLE = np.array(
    [
        ["animal", "dog", "pug"],
        ["animal", "dog", None],
        ["plant", "oak", None],
        ["plant", None, None],
    ],
    dtype=object,
)
ONE_LABEL = {
    "array of paths": np.array(PATHS),
    "array of objects": np.array(PATHS, dtype=object),
    "list of paths": PATHS,
    "list of lists": [[path] for path in PATHS],
    "bare names": ["pug", "dog", "oak", "plant"],
    "one column per level": TABLE,
    "frame with one column per level": pd.DataFrame(TABLE),
    "series": pd.Series(PATHS),
    "array of class numbers": np.array(NUMBERS),
    "list of class numbers": NUMBERS,
    "tensor of class numbers": torch.tensor(NUMBERS),
}
each_form = pytest.mark.parametrize("form", ONE_LABEL)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_take_what_predict_proba_returns(name):
    targets = ANIMALS.encode(TRUTH)
    metric, space = METRICS[name], LabelSpace(ANIMALS, ["dog"])
    expected = metric(torch.from_numpy(PROBA), targets, space)
    frozen = PROBA.copy()
    frozen.flags.writeable = False
    for scores in (PROBA, PROBA.tolist(), frozen, pd.DataFrame(PROBA), PROBA[::-1][::-1]):
        for truth in (TRUTH, np.array(TRUTH), targets.numpy(), targets.numpy().astype(int)):
            assert_same(metric(scores, truth, space), expected)
    module = metric.module(space)
    module.update(PROBA, TRUTH)
    assert_same(module.compute(), expected)


@each_form
def test_functions_of_decisions_take_what_predict_returns(form):
    decided, numbers = ONE_LABEL[form], torch.tensor(NUMBERS)
    targets = ANIMALS.encode(TRUTH)
    for truth in (TRUTH, targets):
        found = metrics.answer_accuracy(decided, truth, ANIMALS, reduction="none")
        assert found.tolist() == [1, 0, 1, 0]
        for function in (
            metrics.hierarchical_cost,
            metrics.hierarchical_f1,
            metrics.hierarchical_precision,
            metrics.hierarchical_recall,
            metrics.exact_match,
        ):
            assert_same(function(decided, truth, ANIMALS), function(numbers, targets, ANIMALS))
    assert_same(metrics.mean_level(decided, ANIMALS), (3 + 2 + 2 + 1) / 4)


@each_form
def test_targets_may_be_labels(form):
    expected = hier_dist(torch.from_numpy(PROBA), ANIMALS.encode(PATHS), ANIMALS)
    assert_same(hier_dist(PROBA, ONE_LABEL[form], ANIMALS), expected)
    labels = Labels(PATHS, ANIMALS)
    assert_same(hier_dist(PROBA, labels, ANIMALS), expected)


def test_none_is_the_root_and_a_row_without_labels():
    decided = np.array(["animal/dog", None, "animal/cat", None], dtype=object)
    truth = ["pug", "oak", None, []]
    found = metrics.answer_accuracy(decided, truth, ANIMALS, reduction="none")
    assert found.tolist() == [1, 1, 0, 1]  # the root is always right
    assert metrics.mean_level(decided, ANIMALS, reduction="none").tolist() == [2, 0, 2, 0]
    assert metrics.mean_level([3, None, 2, -1], ANIMALS, reduction="none").tolist() == [2, 0, 2, 0]
    found = metrics.exact_match([["dog"], None, "cat", []], truth, ANIMALS, reduction="none")
    assert found.tolist() == [0, 0, 0, 1]
    for missing in (None, "", float("nan"), []):
        assert hit_at_k(PROBA[:2], ["pug", missing], ANIMALS, reduction="none")[1].isnan()


def test_several_labels_per_row():
    answers, truth = [["pug", "oak"], ["cat"]], [["pug"], ["cat", "oak"]]
    expected = metrics.hierarchical_f1(ANIMALS.encode(answers), ANIMALS.encode(truth), ANIMALS)
    assert_same(metrics.hierarchical_f1(answers, truth, ANIMALS), expected)
    with pytest.raises(LabelError, match="row 0 has 2 labels, but a decision is one class"):
        metrics.answer_accuracy(answers, truth, ANIMALS)


def test_in_a_dag_labels_are_ids():
    scores = random_batch(DIAMOND, 2).scores
    expected = hit_at_k(scores, DIAMOND.encode(["d", "e"]))
    assert_same(hit_at_k(scores, ["d", "e"], DIAMOND), expected)


def test_what_labels_raise():
    for call in (
        lambda: hit_at_k(PROBA, TRUTH),
        lambda: metrics.answer_accuracy(PATHS, ANIMALS.encode(TRUTH)),
        lambda: average_precision(PROBA, np.array(TRUTH)),
        lambda: hit_at_k(PROBA, torch.tensor(NUMBERS)),
    ):
        with pytest.raises(HierlearnError, match=r"are labels, which need label_space= to be read"):
            call()
    with pytest.raises(LabelError, match="row 1: unknown label 'wolf'"):
        hit_at_k(PROBA, ["pug", "wolf", "cat", "oak"], ANIMALS)
    with pytest.raises(LabelError, match="row 1: unknown label 'wolf'"):
        metrics.mean_level(["pug", "wolf"], ANIMALS)
    with pytest.raises(LabelError, match="targets are a list with one entry per row, not the text"):
        hit_at_k(PROBA, "pug", ANIMALS)
    with pytest.raises(LabelError, match=r"row 0 of targets is a list of 7 zeros and ones, but l"):
        hit_at_k(PROBA, ANIMALS.encode(TRUTH).int().tolist(), ANIMALS)
    with pytest.raises(LabelError, match=r"row 0 of answers is a list of 7 zeros and ones"):
        metrics.exact_match(ANIMALS.encode(TRUTH).tolist(), TRUTH, ANIMALS)
    broken = TABLE.copy()
    broken[0, 1] = None
    with (
        pytest.warns(DataWarning, match="1 row with an empty level above a filled one"),
        pytest.raises(LabelError, match="unknown label 'animal/pug'"),
    ):
        hit_at_k(PROBA, broken, ANIMALS)
    for labels in (
        [["high", "low"]],
        ["high", "low"],
        np.array(["high"]),
        pd.Series(["high"], [9]),
    ):
        with pytest.raises(HierlearnError, match=r"scores are labels, such as 'high', but this m"):
            hit_at_k(labels, TARGETS[:1])
    with pytest.raises(HierlearnError, match=r"scores must be numbers, not object of shape"):
        hit_at_k(np.array([[None, 1.0]]), TARGETS[:1])
    with pytest.raises(HierlearnError, match=r"scores must be \(N, C\), one column per class"):
        hit_at_k([[0.1, 0.2], [0.3]], TARGETS)
    with pytest.raises(HierlearnError, match="targets must be numbers or labels, not object of sh"):
        hit_at_k(PROBA, object(), ANIMALS)
    with pytest.raises(HierlearnError, match=r"targets \(3, 7\) must match scores \(4, 7\)"):
        hit_at_k(PROBA, TRUTH[:3], ANIMALS)
    with pytest.raises(HierlearnError, match="a label space is made of a Hierarchy, not int"):
        hit_at_k(PROBA, TRUTH, 5)


# ---------------------------------------------------------------------- the output of a head


@pytest.mark.parametrize("name", METRICS)
def test_the_output_of_a_head_is_read_like_its_probabilities(name):
    metric, targets = METRICS[name], ANIMALS.encode(TRUTH)
    logits = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0)).double()
    logits.requires_grad_()
    link = SigmoidLink(ANIMALS)
    one, ensemble = (HeadOutput.from_logits(part, link) for part in (logits[0], logits))
    space = LabelSpace(ANIMALS, ["dog"])  # five terminal classes
    expected = metric(logits[0].sigmoid().detach(), targets, space)
    for output in (one, HeadOutput(one.log_p, one.log_not_p)):
        assert_same(metric(output, targets, space), expected)
    assert_same(metric(ensemble, TRUTH, space), metric(logits.sigmoid().mean(0), targets, space))
    assert one.log_p.requires_grad  # a loss still finds its graph


def test_reading_an_output_keeps_its_graph_for_the_loss():
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    output = HeadOutput.from_logits(logits, SoftmaxLink(ANIMALS))
    with torch.no_grad():
        hit_at_k(output, TRUTH, ANIMALS)
    output.log_p.sum().backward()
    assert logits.grad is not None


# ---------------------------------------------------------------------- what predict gives

NUMBERED = Hierarchy.from_paths(["1", "2", "3"])  # the class numbers are 0, 1, 2


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_integers_that_name_another_class_raise(kind):
    """predict gives 1 for the class named "1", whose number is 0: never read as a number."""
    message = "1 could be the class number 1.* or the class named '1'; give names as text"
    calls = (
        lambda: metrics.hierarchical_f1(kind([1, 1]), ["1", "1"], NUMBERED),
        lambda: metrics.answer_accuracy(kind([1, 1]), ["1", "1"], NUMBERED),
        lambda: metrics.mean_level(kind([1, 1]), NUMBERED),
        lambda: hit_at_k(np.eye(3)[:2], kind([1, 1]), NUMBERED),
    )
    for call in calls:
        with pytest.raises(LabelError, match=message):
            call()
    numbers = torch.tensor([1, 1])  # a tensor holds class numbers
    assert metrics.answer_accuracy(numbers, ["2", "2"], NUMBERED) == 1


def test_probabilities_where_sets_are_read_name_the_threshold():
    with pytest.raises(HierlearnError, match=r"answers are 0 or 1; for probabilities pass thresho"):
        metrics.hierarchical_f1(PROBA, TRUTH, ANIMALS)


def test_columns_of_a_frame_are_put_in_order():
    p = np.random.default_rng(0).random((4, len(ANIMALS)))
    order = np.random.default_rng(1).permutation(len(ANIMALS))
    frame = pd.DataFrame(p[:, order], columns=[ANIMALS.names[c] for c in order])
    for metric in (hit_at_k, metrics.leaf_accuracy, METRICS["mrr"]):
        assert_same(metric(frame, TRUTH, ANIMALS), metric(p, TRUTH, ANIMALS))
    expected = metrics.measure(p, TRUTH, ANIMALS, ["hit@1", "terminal-accuracy"])
    assert metrics.measure(frame, TRUTH, ANIMALS, ["hit@1", "terminal-accuracy"]) == expected
    numbered = pd.DataFrame(p)
    assert_same(hit_at_k(numbered, TRUTH, ANIMALS), hit_at_k(p, TRUTH, ANIMALS))
