"""Forests against loops and scikit-learn, their coherence, and arrays that are no trees."""

from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.tree import ExtraTreeRegressor

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.networks import InputSpec
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.ensemble import LoopedEnsemble, heads_of
from hierlearn.networks.trees import ForestHead
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import derive
from hierlearn.training.solvers import forest
from reference.trees import trees, trees_of_known

CPU = torch.device("cpu")
TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f")])
each_hierarchy = pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])


def problem(hierarchy, count=60, seed=0, policy="negative", weights=None):
    """Rows with none, one or several labels, some of them inner, and equal inputs among them."""
    draw = np.random.default_rng(seed)
    labels = [
        [hierarchy.names[one] for one in draw.choice(len(hierarchy), size, replace=False)]
        for size in draw.integers(0 if policy == "negative" else 1, 3, count)
    ]
    x = draw.normal(size=(count, 4)).astype(np.float32).round(1)
    x[1::7] = x[0]
    made = Labels(labels, hierarchy, unlabeled_descendants=policy)
    return Rows(x, made, CPU, weights)


def grown(rows, seed=3, **options):
    chosen = {"trees": 5, "min_samples_leaf": 2, **options}
    head = ForestHead(4, rows.labels.hierarchy, **chosen)
    forest.grow(head, rows, seed)
    return head


def nested(head):
    """Return the trees as nested tuples, thresholds as they are stored."""

    def node(number):
        right = int(head.right[number])
        if right == number:
            return ("leaf",)
        split = (int(head.feature[number]), float(head.threshold[number]))
        return (*split, node(number + 1), node(right))

    return [node(root) for root in head.roots.tolist()]


def queries(rows, seed=1):
    """Training rows, and others between them."""
    others = np.random.default_rng(seed).normal(size=(20, 4)).astype(np.float32)
    return torch.cat([rows.inputs, torch.from_numpy(others)])


def at_thresholds(head):
    """Rows that lie at the first thresholds of every tree."""
    x = torch.zeros(len(head.roots), 4)
    for row, root in zip(x, head.roots.tolist(), strict=True):
        row[int(head.feature[root])] = head.threshold[root]
    return x


@each_hierarchy
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_the_answers_by_loops(hierarchy, weighted):
    weights = np.random.default_rng(2).integers(1, 4, 60).astype(float) if weighted else np.ones(60)
    rows = problem(hierarchy, weights=weights if weighted else None)
    head = grown(rows)
    x = torch.cat([queries(rows), at_thresholds(head)])
    found = head(x).probabilities
    targets = rows.labels.targets().tolist()
    wanted = trees(nested(head), rows.inputs.tolist(), targets, weights, x.tolist())
    assert found.tolist() == [pytest.approx(row, abs=1e-6) for row in wanted]
    torch.testing.assert_close(head(x).log_not_p.exp(), 1 - found, atol=1e-6, rtol=0)


@each_hierarchy
def test_the_answers_of_partial_labels_by_loops(hierarchy):
    rows = problem(hierarchy, policy="ignore")
    head, x = grown(rows), queries(rows)
    closed = [
        [k for k in range(len(hierarchy)) if k != j and up[j][k]]
        for up in [Labels([[name] for name in hierarchy.names], hierarchy).targets().tolist()]
        for j in range(len(hierarchy))
    ]
    known = rows.labels.mask().tolist()
    assert not all(map(all, known))
    wanted = trees_of_known(
        nested(head),
        rows.inputs.tolist(),
        rows.labels.targets().tolist(),
        known,
        x.tolist(),
        closed,
    )
    assert head(x).probabilities.tolist() == [pytest.approx(row, abs=1e-6) for row in wanted]


@pytest.mark.parametrize("projections", [64, 3], ids=["targets", "projections"])
def test_the_trees_are_those_of_scikit_learn(projections):
    """With all targets the answers are scikit-learn's own, with projections the leaves are."""
    rows = problem(TREE)
    head, x = grown(rows, projections=projections, max_features=0.5), queries(rows)
    targets = rows.labels.targets().double().numpy()
    answers, leaves = [], head.leaves(x) - head.roots
    for number in range(5):
        seed = derive(3, "tree", number)
        drawn = np.random.default_rng(seed).standard_normal((len(TREE), projections))
        split_by = targets if projections >= len(TREE) else targets @ drawn
        one = ExtraTreeRegressor(
            max_features=0.5, min_samples_leaf=2, random_state=seed % (1 << 32)
        ).fit(rows.inputs.numpy(), split_by)
        assert leaves[:, number].tolist() == one.apply(x.numpy()).tolist()
        answers.append(one.predict(x.numpy()))
    if projections >= len(TREE):
        wanted = torch.from_numpy(np.mean(answers, axis=0)).float()
        torch.testing.assert_close(head(x).probabilities, wanted, atol=1e-6, rtol=0)


def test_projections_keep_distances_on_average():
    drawn = np.random.default_rng(0).standard_normal((300, 4000))
    distance = (drawn[0] - drawn[1]) ** 2  # of two rows with one class each
    assert distance.mean() == pytest.approx(2.0, rel=0.1)


@each_hierarchy
@pytest.mark.parametrize("policy", ["negative", "ignore"])
def test_no_class_is_more_probable_than_its_parents(hierarchy, policy):
    rows = problem(hierarchy, 200, policy=policy)
    p = grown(rows, min_samples_leaf=5)(queries(rows)).probabilities
    assert p.min() >= 0
    assert p.max() <= 1
    closed = Labels([[name] for name in hierarchy.names], hierarchy).targets()
    for child, ancestor in closed.nonzero().tolist():
        assert (p[:, child] <= p[:, ancestor] + 1e-7).all()


def test_a_threshold_in_float32_sends_every_float32_the_same_way():
    draw = np.random.default_rng(0)
    values = draw.normal(size=1000) * 10.0 ** draw.integers(-20, 20, 1000)
    stored = forest.rounded_down(values)
    for near in (np.float32(values), np.nextafter(np.float32(values), np.float32(np.inf))):
        assert np.array_equal(near <= values, near <= stored)


def test_rows_of_weight_0_and_rows_of_which_nothing_is_known_are_left_out():
    rows = problem(TREE)
    kept = np.arange(60) % 3 > 0
    weighted = Rows(rows.inputs, rows.labels, CPU, kept.astype(float))
    numbers = np.flatnonzero(kept)
    names = [
        [TREE.names[one] for one in row.nonzero()[:, 0].tolist()] for row in rows.labels.targets()
    ]
    alone = Rows(rows.inputs[numbers], Labels([names[one] for one in numbers], TREE), CPU)
    x = queries(rows)
    torch.testing.assert_close(
        grown(weighted)(x).probabilities, grown(alone)(x).probabilities, atol=1e-6, rtol=0
    )
    empty = Rows(np.ones((3, 4)), Labels([[]] * 3, TREE, unlabeled_descendants="ignore"), CPU)
    with pytest.raises(HierlearnError, match="no training row has a label"):
        grown(empty)


def test_many_label_sets_are_mixed_in_blocks(monkeypatch):
    module = import_module("hierlearn.networks.trees")  # the package has a function of this name
    rows = problem(TREE)
    head, x = grown(rows), queries(rows)
    wanted = head(x).probabilities
    monkeypatch.setattr(module, "DENSE", 1)
    monkeypatch.setattr("hierlearn.memory.store.BLOCK", 2 * len(TREE))
    monkeypatch.setattr(module, "ENTRIES", 100)
    torch.testing.assert_close(head(x).probabilities, wanted, atol=1e-7, rtol=0)


def test_a_state_of_any_size_is_loaded_and_answers_alike():
    rows = problem(DAG, policy="ignore")
    head, x = grown(rows), queries(rows)
    other = ForestHead(4, DAG)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(x).log_p, head(x).log_p)
    other.load_state_dict(grown(rows, trees=2).state_dict())
    assert len(other.roots) == 2
    with pytest.raises(HierlearnError, match="no trees have been grown"):
        ForestHead(4, DAG)(x)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("right", lambda one: one.fill_(0)),
        ("right", lambda one: one.resize_(2)),
        ("right", lambda one: one.add_(1_000_000)),
        ("feature", lambda one: one.fill_(4)),
        ("threshold", lambda one: one.fill_(float("nan"))),
        ("roots", lambda one: one.add_(1_000_000)),
        ("offsets", lambda one: one.neg_()),
        ("sets", lambda one: one.fill_(-1)),
        ("sets", lambda one: one.fill_(10_000)),
        ("shares", lambda one: one.neg_()),
        ("shares", lambda one: one.fill_(float("inf"))),
        ("set_offsets", lambda one: one.mul_(2)),
        ("set_offsets", lambda one: one.resize_(0)),
        ("threshold", lambda one: one.unsqueeze_(1)),
    ],
)
def test_arrays_that_are_no_trees_are_refused(name, change):
    state = {key: value.clone() for key, value in grown(problem(TREE)).state_dict().items()}
    change(state[name])
    with pytest.raises(HierlearnError, match=f"{name} does not describe the trees"):
        ForestHead(4, TREE).load_state_dict(state)


def test_nodes_with_several_parents_take_no_time():
    """There are 2^100 ways through these 200 nodes."""
    head, nodes = ForestHead(4, TREE), 201
    right = np.minimum(np.arange(nodes) + 2, nodes - 1)
    right[-2:] = nodes - 2, nodes - 1
    arrays = {
        **{name: np.zeros(nodes) for name in ("feature", "threshold")},
        **{"roots": [0], "right": right, "offsets": np.zeros(nodes + 1)},
        **{"sets": [], "shares": [], "set_offsets": [0], "set_classes": []},
    }
    head.set(arrays, partial=False)
    assert head.depth <= nodes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trees": 0}, "trees must be an integer of at least 1, not 0"),
        ({"max_features": 0}, r"max_features must be in \(0, 1\] or 'sqrt', not 0"),
        ({"max_features": "log2"}, r"max_features must be in \(0, 1\] or 'sqrt', not 'log2'"),
        ({"kind": "boosted"}, "unknown kind 'boosted'"),
    ],
)
def test_options_that_are_refused(options, message):
    spec = NetworkSpec("trees", InputSpec.numbers(4), options)
    with pytest.raises(HierlearnError, match=message):
        build_network(spec, LabelSpace.of(TREE))


def test_inputs_heads_and_members():
    space = LabelSpace.of(TREE)
    with pytest.raises(HierlearnError, match="reads dense numbers, not inputs of kind 'sparse'"):
        build_network(NetworkSpec("trees", InputSpec.sparse(4)), space)
    heads = {"main": HeadSpec("neighbors")}
    with pytest.raises(HierlearnError, match="other heads need a Network with a LinearHead"):
        build_network(NetworkSpec("trees", InputSpec.numbers(4), heads=heads), space)
    several = build_network(NetworkSpec("trees", InputSpec.numbers(4), members=3), space)
    assert isinstance(several, LoopedEnsemble)
    assert len(heads_of(several, ForestHead)) == 3
