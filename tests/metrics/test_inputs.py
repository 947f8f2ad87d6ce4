"""What every metric refuses, in one wording."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.metrics import average_precision, hier_dist, hit_at_k, level_accuracy
from hierlearn.metrics.choices import best_classes
from metrics.score_batches import ANIMALS, random_batch

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
    monkeypatch.setattr("hierlearn.hierarchy.chunks.CHUNK", 7)
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
            monkeypatch.setattr("hierlearn.hierarchy.chunks.CHUNK", 20)
            assert best_classes(scores, numbers, k).tolist() == expected
            monkeypatch.undo()
