"""Coherence violations: children that are more probable than their parents."""

import pytest
import torch
from hypothesis import given

from hierlearn.errors import HierlearnError
from hierlearn.links import LINKS
from hierlearn.metrics import coherence_violations
from metrics.score_batches import ANIMALS, DIAMOND, assert_same, batches, tree
from reference import metrics as naive


@given(batches())
def test_naive_loops_agree(batch):
    for tolerance in (0.0, 1e-6, 0.125, 0.3):
        for reduction in ("none", "mean"):
            found = coherence_violations(
                batch.scores, batch.hierarchy, tolerance=tolerance, reduction=reduction
            )
            expected = naive.coherence_violations(
                batch.scores.tolist(), batch.parents, tolerance, reduction
            )
            assert_same(found, expected)


def test_by_hand():
    p = tree([{"animal": 0.5, "dog": 0.6, "pug": 0.6}, {"animal": 0.9, "dog": 0.5, "oak": 0.1}])
    assert coherence_violations(p, ANIMALS, reduction="none").tolist() == [1, 1]
    assert float(coherence_violations(p, ANIMALS)) == 1
    assert float(coherence_violations(p, ANIMALS, tolerance=0.2)) == 0


def test_in_a_dag_every_edge_counts():
    p = torch.zeros(1, len(DIAMOND))
    p[0, DIAMOND.index("d")] = 1.0
    assert float(coherence_violations(p, DIAMOND)) == 2


@pytest.mark.parametrize("name", LINKS)
def test_coherent_links_violate_nothing(name):
    link = LINKS[name](ANIMALS)
    logits = 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    found = coherence_violations(link.probabilities(logits), ANIMALS)
    assert (found == 0) == link.coherent


def test_what_is_refused():
    p = torch.rand(2, 7)
    with pytest.raises(HierlearnError, match="unknown reduction 'max'; known: mean, none"):
        coherence_violations(p, ANIMALS, reduction="max")
    for tolerance in (-1e-9, float("nan")):
        with pytest.raises(HierlearnError, match=r"tolerance = .* must be 0 or more"):
            coherence_violations(p, ANIMALS, tolerance=tolerance)
    with pytest.raises(HierlearnError, match=r"row 1: the probability of 'plant' is 3, outside"):
        coherence_violations(torch.tensor([[0.0] * 7, [1, 3, 0, 0, 0, 0, 0]]), ANIMALS)
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no coherence viol"):
        coherence_violations(p[:0], ANIMALS)
    assert coherence_violations(p[:0], ANIMALS, reduction="none").shape == (0,)
