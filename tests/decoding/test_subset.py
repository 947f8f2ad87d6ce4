"""Subset: only kept classes, and what conditioning leaves alone."""

import re

import pytest
import torch

from decoding.probability_cases import random_case
from hierlearn import DECODERS, Hierarchy
from hierlearn.decoding import Leaf, Stop, Subset, make_decoder
from hierlearn.errors import HierlearnError, LabelError
from hierlearn.links import SoftmaxLink
from reference import decoding as reference

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
INNER = [name for name in DECODERS if name != "subset"]


def probabilities(rows=30, seed=0):
    logits = 2 * torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
    return SoftmaxLink(TREE).probabilities(logits.double())


@pytest.mark.parametrize("name", INNER)
def test_everything_allowed_changes_nothing(name):
    p = probabilities()
    tops = [0, 1, 2]
    assert torch.equal(Subset(TREE, tops, name)(p), make_decoder(TREE, name)(p))


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("seed", range(15))
def test_only_kept_classes_are_answered(name, seed):
    case = random_case(seed, dag=seed % 2 == 1 and not DECODERS[name].needs_tree)
    h = case.hierarchy
    allowed = [seed % len(h)]
    kept = reference.kept_classes(case.parents, allowed)
    subset = Subset(h, allowed, name)
    sets = subset.sets(case.p)
    answered = set(sets.any(dim=0).nonzero().flatten().tolist())
    if subset.answers == "class":
        answered |= set(subset(case.p).tolist()) - {-1}
    assert answered <= kept


def test_conditioning_keeps_the_proportions():
    p = probabilities()
    found = Subset(TREE, ["a/b", "h"]).renormalized(p)
    b, c, h = (TREE.index(name) for name in ("a/b", "a/b/c", "h"))
    torch.testing.assert_close(found[:, c] / found[:, b], p[:, c] / p[:, b])
    torch.testing.assert_close(found[:, b], p[:, b] / (p[:, b] + p[:, h]))
    torch.testing.assert_close(found[:, TREE.index("a")], found[:, b])  # a/e is out
    for name in ("a/e", "f", "f/g"):
        assert not found[:, TREE.index(name)].any()


def test_names_numbers_and_nested_subsets():
    p = probabilities()
    expected = Subset(TREE, ["a/b"], "leaf")(p)
    assert torch.equal(Subset(TREE, (TREE.index("a/b"),), Leaf(TREE))(p), expected)
    assert torch.equal(Subset(TREE, iter(["b", "c"]), "leaf")(p), expected)
    nested = Subset(TREE, ["a"], Subset(TREE, ["a/b", "h"], "leaf"))
    assert torch.equal(nested(p), expected)
    apart = Subset(TREE, ["a/e"], Subset(TREE, ["a/b"], "leaf"))
    assert apart(p).tolist() == [-1] * 30
    inner = Subset(TREE, ["a/b"], "coherent", threshold=0.0)  # takes all it may
    assert TREE.decode(Subset(TREE, ["a/b/c"], inner)(p)) == [["a/b/c"]] * 30


def test_a_row_without_mass_there():
    p = TREE.encode([["h"], ["f/g"]]).double()
    assert Subset(TREE, ["a", "f"])(p).tolist() == [-1, TREE.index("f")]
    assert Subset(TREE, ["a", "f"]).renormalized(p)[0].tolist() == [0.0] * 8
    for name in ("coherent", "conformal"):
        sets = Subset(TREE, ["a", "f"], name, threshold=0.0)(p)
        assert sets.any(dim=1).tolist() == [False, True]


def test_tiny_mass_is_mass():
    """Conditioning works on shares: a subtree of 1e-30 decides as if it were all."""
    p = TREE.encode([["h"]]).double()
    for name, share in (("a", 1.0), ("a/b", 0.75), ("a/b/c", 0.75), ("a/e", 0.25)):
        p[0, TREE.index(name)] = share * 1e-30
    found = Subset(TREE, ["a"], "stop", threshold=0.5)
    assert found(p).tolist() == [TREE.index("a/b/c")]


def test_it_is_what_the_other_decoder_is():
    assert Subset(TREE, [0], "coherent").answers == "set"
    assert Subset(TREE, [0], Stop(TREE, 0.2)).answers == "class"
    assert Subset(TREE, [0], "top-down").needs_tree
    assert not Subset(TREE, [0], "stop").needs_tree


def test_arguments_that_do_not_fit():
    with pytest.raises(HierlearnError, match="allowed names no class; a subset needs at least one"):
        Subset(TREE, [])
    with pytest.raises(LabelError, match="give a list of classes, not one text 'a'"):
        Subset(TREE, "a")
    with pytest.raises(LabelError, match="unknown label 'x'"):
        Subset(TREE, ["a", "x"])
    with pytest.raises(HierlearnError, match=re.escape("unknown decoder 'agmax'; did you mean")):
        Subset(TREE, ["a"], "agmax")
    with pytest.raises(HierlearnError, match="row 0: the top classes sum to 3, more than 1; use"):
        Subset(TREE, ["a"]).renormalized(torch.ones(1, 8))
