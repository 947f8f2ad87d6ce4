"""Expected F: exactness beyond what the oracle can enumerate, and its limits."""

import random

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding import ExpectedF, terminal_mass
from hierlearn.decoding import sets as expected_f
from hierlearn.decoding import sets as size_search
from hierlearn.errors import HierlearnError
from hierlearn.links import SoftmaxLink
from losses.random_batches import random_hierarchy

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def wide_tree():
    return Hierarchy.from_paths(
        [f"a{i}/b{j}/c{k}" for i in range(5) for j in range(6) for k in range(9)]
    )


def expected_f_of(sets, p, hierarchy, beta=1.0):
    """E[F] of each row's set, by the definition."""
    q = terminal_mass(p, hierarchy)
    truths = hierarchy.encode(range(len(hierarchy)), numbers=True).to(p)  # (C, C)
    both = sets.to(p) @ truths.T
    size = sets.sum(dim=1, keepdim=True) + beta**2 * truths.sum(dim=1)
    return (q * (1 + beta**2) * both / size).sum(dim=1)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_few_classes_shown_first_change_nothing(scale, beta, monkeypatch):
    """The certificate: with 1, 4 or 32 of 305 classes shown the answers are those of all."""
    h = wide_tree()
    logits = torch.randn(60, len(h), generator=torch.Generator().manual_seed(0)).double()
    p = SoftmaxLink(LabelSpace(h, range(len(h)))).probabilities(scale * logits)
    decoder = ExpectedF(h, beta)
    monkeypatch.setattr(expected_f, "MOST_PROBABLE", len(h))
    exact = decoder(p)
    for most in (1, 4, 32, 128):
        monkeypatch.setattr(expected_f, "MOST_PROBABLE", most)
        assert torch.equal(decoder(p), exact)


@pytest.mark.parametrize(
    ("seed", "most"), [(1226, 10), (1441, 10), (2216, 8), (2863, 6), (3554, 6), (4095, 6)]
)
def test_a_class_that_is_not_shown_may_weigh_more(seed, most, monkeypatch):
    """Rows, found by search, for which the most probable classes end with a worse set.

    A class whose mass ends nearer to the root may be less probable and weigh more.
    """
    rng = random.Random(seed)
    h = random_hierarchy(rng, most=25)
    q = torch.rand(40, len(h), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q = q ** rng.choice([4, 8, 16])
    p = h.sum_up(q / q.sum(dim=1, keepdim=True)).clamp(max=1)
    decoder = ExpectedF(h, rng.choice([0.3, 0.5, 1.0, 2.0]))
    exact = decoder(p)
    monkeypatch.setattr(expected_f, "MOST_PROBABLE", most)
    assert torch.equal(decoder(p), exact)
    monkeypatch.setattr(size_search, "CLEAR", 0.0)  # without the certificate
    assert not torch.equal(decoder(p), exact)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_no_set_of_any_size_does_better(beta):
    """Against the best closed set of every size, found by sorting the weights of that size."""
    h = wide_tree()
    logits = 3 * torch.randn(20, len(h), generator=torch.Generator().manual_seed(1)).double()
    p = SoftmaxLink(h).probabilities(logits)
    found = ExpectedF(h, beta)(p)
    scores = expected_f_of(found, p, h, beta)
    q, level = terminal_mass(p, h), torch.tensor(h.levels)
    for k in range(1, len(h) + 1):
        weights = h.sum_up((1 + beta**2) * q / (k + beta**2 * level))
        best = weights.sort(dim=1, descending=True).values[:, :k].sum(dim=1)
        assert (scores >= best - 1e-12).all()


@pytest.mark.parametrize("seed", range(3))
def test_swapping_a_class_never_helps(seed):
    h = wide_tree()
    generator = torch.Generator().manual_seed(seed)
    p = SoftmaxLink(h).probabilities(2 * torch.randn(4, len(h), generator=generator).double())
    best = ExpectedF(h)(p)
    score = expected_f_of(best, p, h)
    for _ in range(50):
        other = best.clone()
        for row in other:
            row[torch.randint(len(h), (2,), generator=generator)] ^= True
        closed = h.max_up(other.to(torch.uint8)).bool()
        assert (expected_f_of(closed, p, h) <= score + 1e-12).all()


def test_a_sure_row_answers_its_path():
    p = TREE.encode([["a/b/d"], ["f"], ["h"]]).float()
    assert TREE.decode(ExpectedF(TREE)(p)) == [["a/b/d"], ["f"], ["h"]]


def test_nothing_but_the_root_answers_nothing():
    assert not ExpectedF(TREE)(torch.zeros(2, 8)).any()


def test_recall_makes_sets_larger():
    p = SoftmaxLink(TREE).probabilities(
        torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    )
    sizes = [int(ExpectedF(TREE, beta)(p).sum()) for beta in (0.1, 0.5, 1.0, 2.0, 10.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_ties_between_sizes_go_to_the_smaller():
    """Half the mass at each of two top classes: one alone scores 1/2, both 2/3 each: 2/3."""
    h = Hierarchy.from_parents([-1, -1])
    assert ExpectedF(h)(torch.tensor([[0.5, 0.5]])).tolist() == [[True, True]]
    # q = (2/3, 1/3): {0} scores 2/3, and so does {0, 1}.
    p = torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64)
    assert ExpectedF(h)(p).tolist() == [[True, False]]
    assert ExpectedF(h)(p.float()).tolist() == [[True, False]]
    # 2 / (k + 1) times the sum of the k largest is 0.4 for every k.
    four = Hierarchy.from_parents([-1] * 4)
    for dtype in (torch.float64, torch.float32):
        p = torch.tensor([[0.4, 0.2, 0.2, 0.2]], dtype=dtype)
        assert ExpectedF(four)(p).tolist() == [[True, False, False, False]]
    # And here for k = 1 and 2, where a larger set could still win.
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert ExpectedF(four)(p).tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("count", range(2, 30))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rounding_does_not_choose_the_size(count, dtype):
    """q = (a, a/2, a/2, ...): every size scores a, up to rounding, and the smallest is answered."""
    h = Hierarchy.from_parents([-1] * count)
    for scale in (1.0, 0.9, 0.7, 0.37):
        a = 2 * scale / (count + 1)
        p = torch.tensor([[a, *[a / 2] * (count - 1)]], dtype=dtype)
        assert int(ExpectedF(h)(p).sum()) == 1


def test_beta_out_of_range():
    for beta in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(HierlearnError, match=f"beta must be positive and finite, not {beta}"):
            ExpectedF(TREE, beta)
