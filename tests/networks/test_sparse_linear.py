"""The head of sparse weights: what it answers from given weights, and how it is kept."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.networks import Network, SparseRows
from hierlearn.networks.ensemble import ensemble_of, heads_of
from hierlearn.networks.sparse_linear import SparseLinearHead

TREE = Hierarchy.from_paths(["a/x", "a/y", "b/u", "b/v", "c"])
RAGGED = LabelSpace(TREE, [*TREE.leaves.tolist(), TREE.index("a")])  # rows may end at a
DAG = LabelSpace(Hierarchy.from_edges([("a", "c"), ("b", "c"), ("b", "d"), ("a", "e")]))
WIDTH = 7


def head_of(space, strategy, seed=0, **options):
    """A head with some random weights, and (D + 1, S) the weights."""
    head = SparseLinearHead(WIDTH, space, strategy=strategy, **options)
    rng = np.random.default_rng(seed)
    slots = len(head.bias)
    full = rng.normal(size=(WIDTH, slots)) * (rng.random((WIDTH, slots)) < 0.4)
    full[3] = 0  # a column without weights
    columns, of = np.nonzero(full)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=WIDTH))])
    bias = rng.normal(size=slots)
    head.set(offsets, of, full[columns, of].astype(np.float32), bias.astype(np.float32))
    return head, np.vstack([full, bias])


def rows(count=9, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, WIDTH)) * (rng.random((count, WIDTH)) < 0.5)
    dense = torch.from_numpy(x.astype(np.float32))
    return dense, SparseRows.from_scipy(csr_array(dense.numpy()))


@pytest.mark.parametrize("strategy", ["flat", "per-parent", "per-class"])
def test_sparse_and_dense_rows_have_the_same_scores(strategy):
    head, full = head_of(RAGGED, strategy)
    dense, sparse = rows()
    expected = dense.double().numpy() @ full[:-1] + full[-1]
    np.testing.assert_allclose(head.scores(dense), expected, atol=1e-5)
    np.testing.assert_allclose(head.scores(sparse), expected, atol=1e-5)
    assert head.scores(dense.double()).dtype == torch.float64
    assert head(sparse.take(torch.arange(0))).probabilities.shape == (0, len(TREE))
    for _ in range(2):  # one row alone, again and again: the bias stays what it is
        np.testing.assert_allclose(
            head.scores(sparse.take(torch.arange(1))), expected[:1], atol=1e-5
        )


def softmax(scores):
    values = np.exp(scores - max(scores))
    return values / values.sum()


def test_per_parent_is_a_softmax_of_every_family_down_the_path():
    head, full = head_of(RAGGED, "per-parent", slope=2.5)
    dense, _ = rows()
    output = head(dense)
    assert len(head.bias) == len(TREE) + 1
    for row, scores in enumerate(2.5 * (dense.double().numpy() @ full[:-1] + full[-1])):
        at = {name: scores[TREE.index(name)] for name in TREE.names}
        top = dict(zip("abc", softmax([at["a"], at["b"], at["c"]]), strict=True))
        x, y, here = softmax([at["a/x"], at["a/y"], scores[len(TREE)]])
        u, v = softmax([at["b/u"], at["b/v"]])
        p = output.probabilities[row].double().numpy()
        expected = {**top, "a/x": x * top["a"], "a/y": y * top["a"]}
        expected |= {"b/u": u * top["b"], "b/v": v * top["b"]}
        for name, value in expected.items():
            assert p[TREE.index(name)] == pytest.approx(value, abs=1e-5)
        masses = head.link.log_masses(output.logits)[row].exp()
        assert masses[TREE.index("a")] == pytest.approx(here * top["a"], abs=1e-5)


def test_flat_is_a_softmax_of_the_terminal_classes():
    for space in (RAGGED, DAG):
        head, full = head_of(space, "flat", slope=3.0)
        dense, _ = rows()
        terminals = np.array(space.terminals)
        scores = dense.double().numpy() @ full[:-1] + full[-1]
        masses = head.link.log_masses(head(dense).logits).exp()
        for own, found in zip(scores, masses, strict=True):
            np.testing.assert_allclose(found[terminals], softmax(3 * own[terminals]), atol=1e-5)


def test_per_class_is_the_maximum_of_what_lies_below():
    head, full = head_of(DAG, "per-class", slope=1.5)
    dense, _ = rows()
    scores = 1.5 * (dense.double().numpy() @ full[:-1] + full[-1])
    p, h = head(dense).probabilities, DAG.hierarchy
    below_b = scores[:, [h.index(name) for name in h.names if name.rpartition("/")[2] in "bcd"]]
    np.testing.assert_allclose(p[:, h.index("b")], 1 / (1 + np.exp(-below_b.max(1))), atol=1e-5)


def test_the_strategy_is_that_of_the_labels_unless_it_is_given():
    choose = SparseLinearHead.options_from_labels
    one = Labels([["a/x"], ["c"]], TREE)
    assert choose(one, {}) == {"strategy": "per-parent"}
    assert choose(one, {"strategy": "flat"}) == {}
    assert choose(Labels([["a/x", "c"]], TREE), {}) == {"strategy": "per-class"}
    assert choose(Labels([[], ["c"]], TREE), {}) == {"strategy": "per-class"}
    assert choose(Labels([["d"]], DAG.hierarchy), {}) == {"strategy": "flat"}


def test_options_are_checked():
    with pytest.raises(HierlearnError, match="unknown strategy 'per-level'"):
        SparseLinearHead(3, TREE, strategy="per-level")
    with pytest.raises(HierlearnError, match=r"per-parent needs a tree.*use flat"):
        SparseLinearHead(3, DAG)
    for slope in (0, float("inf"), -1):
        with pytest.raises(HierlearnError, match="slope must be a number above 0"):
            SparseLinearHead(3, TREE, slope=slope)


@pytest.mark.parametrize("dense_first", [False, True])
def test_weights_are_stored_copied_and_loaded(dense_first):
    head, _ = head_of(RAGGED, "per-parent")
    dense, sparse = rows()
    other, _ = head_of(RAGGED, "per-parent", seed=5)
    if dense_first:
        other.scores(dense)  # what is derived must not outlive the weights
    for one in (copy.deepcopy(head), other):
        one.load_state_dict(head.state_dict())
        for x in (dense, sparse):
            assert torch.equal(one.scores(x), head.scores(x))
    with torch.device("meta"):
        empty = SparseLinearHead(WIDTH, RAGGED)
    assert empty.bias.is_meta


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", torch.tensor([99] * 5, dtype=torch.int16)),
        ("slots", torch.tensor([-1] * 5, dtype=torch.int16)),
        ("values", torch.zeros(4)),
        ("offsets", torch.tensor([0, 5, 4, 5, 5, 5, 5, 5])),
        ("offsets", torch.tensor([0, 1, 1, 1, 1, 1, 1, 4])),
    ],
)
def test_damaged_weights_are_refused(name, value):
    head = SparseLinearHead(WIDTH, TREE)
    offsets = np.array([0, 5, 5, 5, 5, 5, 5, 5])
    head.set(offsets, np.arange(5), np.ones(5, np.float32), np.zeros(len(TREE)))
    state = {**head.state_dict(), name: value}
    with pytest.raises(HierlearnError, match="weights of a sparse linear head do not fit"):
        SparseLinearHead(WIDTH, TREE).load_state_dict(state)


def test_members_of_an_ensemble_and_many_slots():
    heads = [head_of(TREE, "flat", seed)[0] for seed in range(3)]
    several = ensemble_of([Network(nn.Identity(), one) for one in heads])
    dense, sparse = rows()
    found = several(sparse).logits
    assert found.shape == (3, len(dense), len(TREE))
    torch.testing.assert_close(found[1], heads[1](dense).logits)
    assert heads_of(several, SparseLinearHead) == heads
    wide = Hierarchy.from_paths([str(n) for n in range(40_000)])
    head = SparseLinearHead(2, wide, strategy="flat")
    head.set(np.array([0, 1, 1]), np.array([39_999]), np.ones(1, np.float32), np.zeros(40_000))
    assert head.slots.dtype == torch.int32
    assert float(head.scores(torch.tensor([[2.0, 1.0]]))[0, 39_999]) == 2.0
