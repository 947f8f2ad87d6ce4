"""Conformal sets: leaf by leaf or by subtrees, closed, and the calibrated threshold."""

import re

import pytest
import torch

from decoding.probability_cases import random_case
from hierlearn import Hierarchy
from hierlearn.decoding import ConformalSets
from hierlearn.decoding.decoder import most_specific, topmost
from hierlearn.decoding.guarantees import rank_of
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace, structure
from hierlearn.links import SoftmaxLink

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def probabilities(rows=50, seed=0):
    logits = 2 * torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
    return SoftmaxLink(TREE).probabilities(logits)


def test_the_ends_of_the_threshold():
    p = probabilities()
    assert ConformalSets(TREE)(p).all()  # nothing is left out before calibration
    assert ConformalSets(TREE).sets(p).any() == torch.tensor(False)  # no class is above all
    nobody = ConformalSets(TREE, 1.0)(p)
    assert not nobody.any()
    assert not ConformalSets(TREE, 1.0).sets(p).any()
    sure = TREE.encode([["a/b/c"]]).float()
    assert TREE.decode(ConformalSets(TREE, 1.0)(sure)) == [["a/b/c"]]
    assert TREE.decode(ConformalSets(TREE, 1.0).sets(sure)) == [["a/b/c"]]


def test_what_spread_does():
    """a of three leaves holds 0.9, b of two 0.8, c 0.5: which is densest depends on spread."""
    p = torch.zeros(1, 8)
    for name, value in (("a", 0.9), ("a/b", 0.8), ("a/b/c", 0.5), ("a/b/d", 0.3), ("a/e", 0.1)):
        p[0, TREE.index(name)] = value
    p[0, TREE.index("h")] = 0.1
    for spread, threshold, names in (
        (1.0, 0.45, ["a/b/c"]),  # densities of a, b, c: 0.3, 0.4, 0.5
        (0.5, 0.54, ["a/b"]),  # 0.52, 0.57, 0.5
        (0.0, 0.85, ["a"]),  # 0.9, 0.8, 0.5
    ):
        decoder = ConformalSets(TREE, threshold, spread)
        tops = decoder.representatives(p)[0].nonzero().flatten().tolist()
        found = [TREE.names[c] for c in tops]
        assert found == names
        assert TREE.decode(decoder.sets(p)) == [names]


@pytest.mark.parametrize("spread", [None, 0.5])
@pytest.mark.parametrize("seed", range(30))
def test_the_leaves_of_the_set_are_those_of_its_subtrees(seed, spread):
    case = random_case(seed, dag=seed % 2 == 1)
    decoder = ConformalSets(case.hierarchy, 0.2, spread)
    candidates, tops = decoder(case.p), decoder.representatives(case.p)
    leaves = torch.tensor(case.hierarchy.leaves)
    below = case.hierarchy.max_down(tops.to(torch.uint8)).bool()
    assert torch.equal(below[:, leaves], candidates[:, leaves])
    above = case.hierarchy.max_up(candidates.to(torch.uint8)).bool()
    assert torch.equal(above, candidates)
    if spread is None:
        assert torch.equal(candidates[:, leaves], case.p[:, leaves] >= 0.2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [None, 0.0, 0.3, 1.0])
def test_calibrated_sets_cover_the_calibration_rows(dtype, spread):
    """All rows from the rank on are covered, ties with the threshold included."""
    p = probabilities(99, seed=1).to(dtype)
    labels = torch.randint(8, (99, 2), generator=torch.Generator().manual_seed(2)).tolist()
    targets = TREE.encode(labels, numbers=True)
    for alpha in (0.01, 0.1, 0.29):
        decoder = ConformalSets(TREE, spread=spread).calibrate(p, targets, alpha)
        ends = targets & ~has_positive_child(targets)
        missed = (ends & ~decoder(p)).any(dim=1).sum()
        assert missed <= round(alpha * 100) - 1
        higher = ConformalSets(TREE, min(1.0, decoder.threshold * 1.02 + 1e-6), spread)
        assert (ends & ~higher(p)).any(dim=1).sum() >= round(alpha * 100)


def has_positive_child(targets):
    covered = torch.zeros_like(targets)
    for c in range(8):
        for parent in TREE.parents(c):
            covered[:, parent] |= targets[:, c]
    return covered


def test_many_children_are_counted():
    """256 true children, which a count of 8 bits would take for none."""
    h = Hierarchy.from_parents([-1, *[0] * 256])
    everything = torch.ones(1, 257, dtype=torch.bool)
    assert most_specific(everything, h).sum() == 256
    assert topmost(everything, h).sum() == 1


def test_calibrating_keeps_the_options():
    p, targets = probabilities(30), TREE.encode([["a/e"]] * 30)
    decoder = ConformalSets(LabelSpace(TREE, ["a/b"]), spread=0.5)
    found = decoder.calibrate(p, targets, 0.1)
    assert decoder.threshold == 0
    assert found.spread == 0.5
    assert found.label_space == LabelSpace(TREE, ["a/b"])
    assert torch.equal(found.size, decoder.size)
    assert not torch.equal(found.size, ConformalSets(TREE, spread=0.5).size)
    assert found.threshold > 0


@pytest.mark.parametrize("chunk", [1, 2**22])
def test_arguments_that_do_not_fit(chunk, monkeypatch):
    monkeypatch.setattr(structure, "CHUNK", chunk)
    p, targets = probabilities(30), TREE.encode([["a/e"]] * 29 + [[]])
    with pytest.raises(HierlearnError, match="row 29 has no label; calibrate on labeled rows"):
        ConformalSets(TREE).calibrate(p, targets, 0.1)
    with pytest.raises(
        HierlearnError, match=r"a risk of 0\.1 needs at least 9 calibration rows, but"
    ):
        ConformalSets(TREE).calibrate(p[:8], targets[:8], 0.1)
    with pytest.raises(HierlearnError, match=r"targets must be bool, not torch\.int64"):
        ConformalSets(TREE).calibrate(p, targets.long(), 0.1)
    for options in ({"threshold": 1.5}, {"spread": -0.5}):
        ((name, value),) = options.items()
        with pytest.raises(
            HierlearnError, match=re.escape(f"{name} must lie in [0, 1], not {value}")
        ):
            ConformalSets(TREE, **options)


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-17, 1e-9])
def test_tiny_levels_are_refused_at_once(alpha):
    with pytest.raises(HierlearnError, match=r"needs at least .* calibration rows, but"):
        rank_of(alpha, 10)


@pytest.mark.parametrize("count", [1, 7, 99, 1000])
def test_the_rank_is_the_largest_that_the_level_allows(count):
    for alpha in [k / (count + 1) for k in range(1, count + 1)] + [0.29, 0.05, 0.5]:
        ranks = [k for k in range(1, count + 1) if k / (count + 1) <= alpha]
        if ranks:
            assert rank_of(alpha, count) == ranks[-1]
        else:
            with pytest.raises(HierlearnError, match="needs at least"):
                rank_of(alpha, count)


@pytest.mark.parametrize("alpha", [None, "0.1", True, float("nan"), 0, 1, 5, -1])
def test_a_risk_is_a_number_between_0_and_1(alpha):
    with pytest.raises(HierlearnError, match="risk must lie between 0 and 1"):
        rank_of(alpha, 100)
