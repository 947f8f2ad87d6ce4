"""The mass that ends at each class: its sums, and what does not add up."""

import re

import pytest
import torch

from decoding.probability_cases import random_case
from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding import terminal_mass
from hierlearn.errors import HierlearnError
from hierlearn.links import SoftmaxLink
from reference import decoding as reference

DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


@pytest.mark.parametrize("seed", range(20))
def test_the_mass_of_a_softmax_is_its_softmax(seed):
    case = random_case(seed, dag=seed % 2 == 1)
    link = SoftmaxLink(LabelSpace(case.hierarchy, range(len(case.hierarchy))))
    logits = torch.randn(5, len(case.hierarchy), generator=torch.Generator().manual_seed(seed))
    q = terminal_mass(link.probabilities(logits), case.hierarchy)
    torch.testing.assert_close(q, logits.softmax(dim=1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(q.sum(dim=1), torch.ones(5))
    assert (q >= 0).all()


@pytest.mark.parametrize("seed", range(60))
def test_the_first_row_and_class_that_do_not_add_up(seed):
    case = random_case(seed, dag=seed % 2 == 1, adds_up=False)
    found = reference.first_excess(case.rows, case.parents)
    if found is None:
        terminal_mass(case.p, case.hierarchy)
        return
    row, number, below, own = found
    tree = case.hierarchy.is_tree
    if number == reference.ROOT:
        what = "the top classes sum" if tree else "all classes come"
        message = f"row {row}: {what} to {below:.4g}, more than 1; use a link"
    else:
        name = case.hierarchy.names[number]
        what = f"the children of {name!r} sum" if tree else f"the classes below {name!r} come"
        message = f"row {row}: {what} to {below:.4g}, more than its own {own:.4g}; use a link"
    with pytest.raises(HierlearnError, match=re.escape(message)):
        terminal_mass(case.p, case.hierarchy)


def test_a_dag_counts_a_shared_class_once():
    q = torch.tensor([[0.25, 0.25, 0.125, 0.375]])  # a, b, c, d
    p = DAG.sum_up(q)
    assert p.tolist() == [[1.0, 0.625, 0.5, 0.375]]  # b and c come to more than a, and may
    assert torch.equal(terminal_mass(p, DAG), q)


def test_rounding_is_cut_off():
    p = torch.tensor([[0.5, 0.25, 0.25 + 5e-5]])
    h = Hierarchy.from_paths(["a/b", "a/c"])
    assert terminal_mass(p, h)[0, 0] == 0
    with pytest.raises(HierlearnError, match=r"row 0: the children of 'a' sum to 0\.5003"):
        terminal_mass(p + torch.tensor([0.0, 2.5e-4, 0.0]), h)
    with pytest.raises(HierlearnError, match="the children of 'a' sum"):
        terminal_mass(p.double() + torch.tensor([0.0, 2.5e-4, 0.0]), h)
    # Half precision rounds every p by up to 0.4 %.
    half = torch.tensor([[0.5, 0.25, 0.253]], dtype=torch.bfloat16)
    assert terminal_mass(half, h).dtype == torch.float32
    assert terminal_mass(p[:0], h).shape == (0, 3)
