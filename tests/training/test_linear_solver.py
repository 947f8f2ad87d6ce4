"""The linear solver against scikit-learn, a naive solver in double precision, and itself."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.svm import LinearSVC

from hierlearn import HierarchicalClassifier, Hierarchy, LabelSpace
from hierlearn.datasets import Dataset
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels.linear_numba import LANES, solve
from hierlearn.networks.estimator import ROOT, families
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.prepare import prepare, summary
from hierlearn.training.rows import Rows
from hierlearn.training.settings import Plan
from hierlearn.training.solvers import linear as linear_solver
from hierlearn.training.solvers.linear import fit_head, groups_of, out_of_fold, take
from reference.linear_svm import objective, svm

CPU = torch.device("cpu")
TREE = Hierarchy.from_paths(["a/x", "a/y", "b/u", "b/v", "b/w", "c"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("b", "d"), ("a", "e")])
PATHS = ["a/x", "a/y", "b/u", "b/v", "b/w", "c"]
MANY = [f"{top}/{number}" for top in "pqr" for number in range(9)]  # more than a vector has lanes
FAR = 1e-4  # tolerance where optima are compared


def sparse_rows(count=90, width=40, seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(count, width)) * (rng.random((count, width)) < 0.3)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    return csr_matrix(dense.astype(np.float32)), rng


def make(labels, hierarchy, inputs, weights=None, unlabeled_descendants="negative"):
    found = Labels(labels, hierarchy, unlabeled_descendants=unlabeled_descendants)
    return Rows(inputs, found, CPU, weights)


def draw(paths, count, rng):
    return [[paths[n]] for n in rng.integers(0, len(paths), count)]


def solved(rows, strategy, penalty=0.5, **options):
    """Return the head, and (D + 1, S) its weights with the bias last."""
    space = LabelSpace.from_labels(rows.labels)
    head = SparseLinearHead(rows.inputs.shape[1], space, strategy=strategy)
    fit_head(head, rows, penalty, **{"tolerance": FAR, **options})
    return head, stacked(head)


def stacked(head):
    return np.vstack([head.dense().numpy(), head.bias.numpy()])


# ---------------------------------------------------------------------- the optimum


@pytest.mark.parametrize("paths", [["a", "b"], ["a", "b", "c"], MANY], ids=len)
@pytest.mark.parametrize("weighted", [False, True])
def test_flat_is_linear_svc(paths, weighted):
    hierarchy = Hierarchy.from_paths(paths)
    inputs, rng = sparse_rows(200)
    labels = draw(paths, 200, rng)
    weights = rng.random(200) + 0.5 if weighted else None
    rows = make(labels, hierarchy, inputs, weights)
    _, found = solved(rows, "flat")
    numbers = rows.labels.terminal[1]
    oracle = LinearSVC(C=2.0, tol=1e-9, max_iter=200_000).fit(inputs, numbers, weights)
    theirs = np.vstack([oracle.coef_.T, oracle.intercept_])
    if len(paths) == 2:  # one problem, of which the other class is the mirror
        theirs = np.hstack([-theirs, theirs])
    np.testing.assert_allclose(found[:, oracle.classes_], theirs, atol=2e-3)


@pytest.mark.parametrize("paths", [PATHS, [*PATHS, "a", "b"], MANY, ["a"]], ids=str)
def test_per_parent_is_an_svm_among_siblings(paths):
    """Where rows end at a parent, "ends here" competes with its children."""
    hierarchy = Hierarchy.from_paths(MANY) if paths is MANY else TREE
    inputs, rng = sparse_rows(200)
    weights = rng.random(200) + 0.5
    rows = make(draw(paths, 200, rng), hierarchy, inputs, weights)
    head, found = solved(rows, "per-parent")
    space, x = head.label_space, inputs.toarray()
    names, last = hierarchy.names, rows.labels.terminal[1]
    for parent, members in families(space).items():
        for member in members.tolist():
            ends = parent == member
            slot = len(space) + head.ends.tolist().index(member) if ends else member
            inside = [parent == ROOT or below(names[row], names[parent]) for row in last]
            right = [row == member if ends else below(names[row], names[member]) for row in last]
            y = np.where(right, 1, -1) * np.array(inside)
            if {*y} <= {0, 1} or {*y} <= {0, -1}:
                assert not found[:-1, slot].any()
                assert found[-1, slot] == ((1 if 1 in y else -1) if y.any() else 0)
                continue
            expected = svm(x, y, 2 * rows.weights.double().numpy())
            np.testing.assert_allclose(found[:, slot], expected, atol=2e-3)


def below(name, ancestor):
    return name == ancestor or name.startswith(f"{ancestor}/")


@pytest.mark.parametrize("unlabeled_descendants", ["negative", "ignore"])
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
def test_per_class_leaves_out_what_is_unknown(hierarchy, unlabeled_descendants):
    inputs, rng = sparse_rows()
    pool = hierarchy.names
    chosen = [list(rng.choice(pool, rng.integers(0, 3), replace=False)) for _ in range(90)]
    rows = make(chosen, hierarchy, inputs, None, unlabeled_descendants)
    head, found = solved(rows, "per-class")
    targets, mask = rows.labels.targets().numpy(), rows.labels.mask().numpy()
    for number in range(len(hierarchy)):
        y = np.where(targets[:, number], 1, -1) * mask[:, number]
        expected = svm(inputs.toarray(), y, np.full(90, 2.0))
        np.testing.assert_allclose(found[:, number], expected, atol=2e-3)
    assert type(head.link).__name__ == "MaxLink"


def test_two_classes_are_no_mirror_where_a_row_may_have_both():
    inputs, rng = sparse_rows()
    chosen = [[one for one in "ab" if rng.random() < 0.5] for _ in range(90)]
    rows = make(chosen, Hierarchy.from_paths(["a", "b"]), inputs)
    _, found = solved(rows, "per-class")
    assert np.abs(found[:, 0] + found[:, 1]).max() > 0.05


def test_rows_of_an_inner_class_whose_leaf_is_unknown_count_where_they_can():
    """Flat: against all leaves but their own. Per parent: down to where they are known."""
    inputs, rng = sparse_rows()
    rows = make(draw([*PATHS, "a", "b"], 90, rng), TREE, inputs, None, "ignore")
    _, flat = solved(rows, "flat")
    targets, mask = rows.labels.targets().numpy(), rows.labels.mask().numpy()
    for number in TREE.leaves.tolist():
        y = np.where(targets[:, number], 1, -1) * mask[:, number]
        np.testing.assert_allclose(
            flat[:, number], svm(inputs.toarray(), y, np.full(90, 2.0)), atol=2e-3
        )
    head, found = solved(rows, "per-parent")
    assert not len(head.ends)
    x, a = TREE.index("a/x"), TREE.index("a")
    y = np.where(targets[:, x], 1, -1) * (targets[:, x] | targets[:, TREE.index("a/y")])
    np.testing.assert_allclose(found[:, x], svm(inputs.toarray(), y, np.full(90, 2.0)), atol=2e-3)
    y = np.where(targets[:, a], 1, -1)
    np.testing.assert_allclose(found[:, a], svm(inputs.toarray(), y, np.full(90, 2.0)), atol=2e-3)


def test_positives_can_cost_more():
    inputs, rng = sparse_rows()
    rows = make(draw(PATHS, 90, rng), TREE, inputs)
    factors = np.linspace(0.5, 3, len(TREE)).astype(np.float32)
    for strategy in ("flat", "per-parent"):
        _, found = solved(rows, strategy, positive_weight=factors)
        number, targets = TREE.index("c"), rows.labels.targets().numpy()
        right = targets[:, number]
        costs = np.where(right, 2.0 * factors[number], 2.0)
        expected = svm(inputs.toarray(), np.where(right, 1, -1), costs)
        np.testing.assert_allclose(found[:, number], expected, atol=2e-3)


@pytest.mark.parametrize("tolerance", [0.1, 0.01])
def test_the_tolerance_bounds_the_objective(tolerance):
    inputs, rng = sparse_rows(300, 200)
    rows = make(draw(PATHS, 300, rng), TREE, inputs)
    _, found = solved(rows, "flat", tolerance=tolerance)
    targets = rows.labels.targets().numpy()
    ours = theirs = 0
    for number in TREE.leaves.tolist():
        y, costs = np.where(targets[:, number], 1, -1), np.full(300, 2.0)
        x = inputs.toarray().astype(np.float64)
        ours += objective(found[:, number].astype(np.float64), x, y, costs)
        theirs += objective(svm(x, y, costs), x, y, costs)
    assert theirs * (1 - 1e-6) <= ours <= theirs * (1 + 0.01 * tolerance)


def test_the_unit_of_the_inputs_does_not_matter():
    """But for the bias, whose column keeps its unit."""
    inputs, _ = sparse_rows()
    both = csr_matrix(np.vstack([inputs.toarray(), -inputs.toarray()]))  # so that no bias helps
    labels = [["a"]] * 90 + [["b"]] * 90
    hierarchy = Hierarchy.from_paths(["a", "b"])
    one, other = (solved(make(labels, hierarchy, x), "flat")[1] for x in (both, 8 * both))
    np.testing.assert_allclose(one[:-1], 8 * other[:-1], atol=2e-3)


def test_dense_rows_give_the_same():
    inputs, rng = sparse_rows()
    labels = draw(PATHS, 90, rng)
    found = [solved(make(labels, TREE, one), "per-parent")[1] for one in (inputs, inputs.toarray())]
    np.testing.assert_allclose(*found, atol=2e-3)


def test_a_weight_of_2_is_a_row_twice_and_of_0_none():
    inputs, rng = sparse_rows(30)
    labels = draw(PATHS, 30, rng)
    weights = rng.integers(0, 3, 30).astype(np.float64)
    times = np.repeat(np.arange(30), weights.astype(int))
    once = solved(make(labels, TREE, inputs, weights), "per-parent")[1]
    often = make([labels[n] for n in times], TREE, inputs[times])
    np.testing.assert_allclose(once, solved(often, "per-parent")[1], atol=2e-3)
    left = fit_left_out(labels, inputs, np.flatnonzero(weights == 0))
    kept = weights > 0
    alone = make([labels[n] for n in np.flatnonzero(kept)], TREE, inputs[kept])
    np.testing.assert_allclose(left, solved(alone, "per-parent")[1], atol=2e-3)


def fit_left_out(labels, inputs, rows):
    return solved(make(labels, TREE, inputs), "per-parent", left_out=rows)[1]


def test_rows_without_any_column_are_the_bias_alone():
    rows = make([["a/x"], ["a/y"], ["a/y"]], TREE, csr_matrix((3, 5), dtype=np.float32))
    head, found = solved(rows, "per-parent")
    assert len(head.values) == 0
    y = np.array([1, -1, -1])
    expected = svm(np.zeros((3, 0)), y, np.full(3, 2.0))
    assert found[-1, TREE.index("a/x")] == pytest.approx(expected[-1], abs=1e-3)


# ---------------------------------------------------------------------- how it is found


@pytest.mark.parametrize("strategy", ["flat", "per-parent"])
def test_threads_do_not_change_a_bit(strategy):
    inputs, rng = sparse_rows(300)
    rows = make(draw(MANY, 300, rng), Hierarchy.from_paths(MANY), inputs)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(solved(rows, strategy, tolerance=0.1)[0].state_dict())
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in other)
    _, again = solved(rows, strategy, tolerance=0.1, seed=1)
    assert not np.array_equal(again, solved(rows, strategy, tolerance=0.1)[1])


@pytest.mark.parametrize("strategy", ["flat", "per-parent", "per-class"])
def test_a_warm_start_ends_where_a_cold_one_does(strategy):
    inputs, rng = sparse_rows(300)
    rows = make(draw(MANY, 300, rng), Hierarchy.from_paths(MANY), inputs)
    space = LabelSpace.from_labels(rows.labels)
    head = SparseLinearHead(inputs.shape[1], space, strategy=strategy)
    left = np.arange(0, 300, 5)
    duals = {}
    fit_head(head, rows, 0.5, left_out=left, duals=duals, tolerance=FAR)
    assert all(not duals[first][place].any() for first, place in places_of(head, rows, left))
    fit_head(head, rows, 0.5, duals=duals, tolerance=FAR)
    np.testing.assert_allclose(stacked(head), solved(rows, strategy)[1], atol=2e-3)


def places_of(head, rows, left):
    """Yield the first slot of each group, and where rows that are left out are in it."""
    for group in groups_of(head, rows):
        for first in range(0, len(group.slots), LANES):
            yield int(group.slots[first]), np.isin(group.rows, left)


def test_a_warm_start_takes_fewer_passes():
    inputs, rng = sparse_rows(400, 300)
    numbers = rng.integers(0, LANES, 400)
    matrix, used = take((inputs.indptr, inputs.indices, inputs.data), 300, np.arange(400))
    sides = np.where(numbers[:, None] == np.arange(LANES), 1, -1).astype(np.int8)
    a, w = np.zeros((400, LANES), np.float32), np.empty((len(used) + 1, LANES), np.float32)

    def passes(costs):
        made, left = solve(matrix, sides, costs, np.ones(LANES, np.float32), a, w, 0.1, 1000, 1)
        assert left == 0
        return made

    costs = np.full(400, 2, np.float32)
    part = costs.copy()
    part[::5] = 0
    cold = passes(part)
    assert cold > 10
    assert passes(costs) <= cold
    assert passes(costs) == 1


def test_scores_out_of_fold_are_of_weights_that_never_saw_the_rows():
    inputs, rng = sparse_rows(300)
    labels = draw(PATHS, 300, rng)
    rows = make(labels, TREE, inputs)
    space = LabelSpace.from_labels(rows.labels)
    head = SparseLinearHead(inputs.shape[1], space)
    folds = [np.arange(number, 300, 3) for number in range(3)]
    found = out_of_fold(head, rows, folds, 0.5)
    assert found.shape == (300, len(head.bias))
    np.testing.assert_allclose(  # to the tolerance of a fit
        stacked(head), solved(rows, "per-parent", tolerance=0.1)[1], atol=0.1
    )
    for fold, scores in zip(folds, found.split(100), strict=True):
        kept = np.setdiff1d(np.arange(300), fold)
        alone = make([labels[n] for n in kept], TREE, inputs[kept])
        other, _ = solved(alone, "per-parent")
        expected = other.scores(rows.take(torch.from_numpy(fold)))
        torch.testing.assert_close(scores, expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("strategy", ["flat", "per-parent", "per-class"])
def test_the_slope_makes_left_out_rows_most_likely(strategy):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(PATHS), 400)
    x = (np.eye(len(PATHS))[numbers] + rng.normal(size=(400, len(PATHS))) * 0.5).astype(np.float32)
    rows = make([[PATHS[n]] for n in numbers], TREE, csr_matrix(x))
    head = SparseLinearHead(len(PATHS), LabelSpace.from_labels(rows.labels), strategy=strategy)
    fold = np.arange(0, 400, 4)
    scores = out_of_fold(head, rows, [fold], 0.5)
    chosen = float(head.slope)
    targets = rows.targets(torch.from_numpy(fold))

    def loss(slope):
        head.slope.fill_(slope)
        log_p, log_not_p = head.link(head.logits(scores))
        if strategy == "per-class":
            return -float(torch.where(targets, log_p, log_not_p).sum())
        last = torch.from_numpy(rows.labels.terminal[1][fold])
        return -float(log_p[torch.arange(len(fold)), last].sum())  # all are leaves

    others = np.exp(np.linspace(np.log(0.5), np.log(50), 200))
    best = others[np.argmin([loss(one) for one in others])]
    assert chosen == pytest.approx(best, rel=0.06)
    given = SparseLinearHead(len(PATHS), head.label_space, strategy=strategy, slope=2.0)
    out_of_fold(given, rows, [fold], 0.5)
    assert float(given.slope) == 2.0


def test_rows_of_classes_with_one_row_say_nothing_about_the_slope():
    paths = [f"{top}/{n}" for top in "pq" for n in range(60)]
    inputs, _ = sparse_rows(120)
    rows = make([[one] for one in paths], Hierarchy.from_paths(paths), inputs)
    head = SparseLinearHead(40, LabelSpace.from_labels(rows.labels), strategy="flat")
    out_of_fold(head, rows, [np.arange(0, 120, 2)], 0.5)
    assert float(head.slope) == 4.0


def test_rows_of_one_id_are_left_out_together():
    inputs, rng = sparse_rows(300)
    rows = make(draw(PATHS, 300, rng), TREE, inputs)
    rows.ids = [str(n // 2) for n in range(300)]
    head = SparseLinearHead(40, LabelSpace.from_labels(rows.labels))
    fold = linear_solver.rows_of_slope(head, rows, 0)
    assert 40 < len(fold) < 80
    assert np.array_equal(np.unique(fold // 2, return_counts=True)[1], np.full(len(fold) // 2, 2))
    few = make([["c"], ["a/x"]] * 5, TREE, inputs[:10])
    assert not len(linear_solver.rows_of_slope(head, few, 0))


def test_several_labels_need_per_class():
    inputs, _ = sparse_rows(4)
    for chosen in ([["a", "b"]] * 4, [[]] * 4):
        rows = make(chosen, Hierarchy.from_paths(["a", "b"]), inputs)
        for strategy in ("flat", "per-parent"):
            with pytest.raises(HierlearnError, match="strategy must be per-class, not"):
                solved(rows, strategy)


# ---------------------------------------------------------------------- as a training

TEXTS = ["red apple", "green apple", "red cherry", "oak tree", "pine tree", "old oak"] * 3
FRUITS = [["fruit/apple"], ["fruit/apple"], ["fruit/cherry"], ["tree/oak"], ["tree/pine"]]
FRUITS = [*FRUITS, ["tree/oak"]] * 3
WORLD = Hierarchy.from_paths(["fruit/apple", "fruit/cherry", "tree/oak", "tree/pine"])


def dataset():
    return Dataset(TEXTS, FRUITS, WORLD)


@pytest.mark.parametrize("strategy", [None, "flat"])
def test_the_recipe_linear_is_solved_saved_and_resumed(tmp_path, strategy):
    plan = Plan() if strategy is None else Plan("linear", head_options={"strategy": strategy})
    pipeline = train(dataset(), plan, tmp_path / "model")
    assert pipeline.config["settings"]["optimizer"] == "linear"
    assert pipeline.config["training"]["steps"] == 1
    again = Pipeline.load(tmp_path / "model")
    assert np.array_equal(again.probabilities(TEXTS), pipeline.probabilities(TEXTS))
    assert list(again.predict(TEXTS)) == [one[0] for one in FRUITS]
    (tmp_path / "model" / "config.json").unlink()
    resumed = train(dataset(), plan, tmp_path / "model", resume=True)
    for name, value in pipeline.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], value)


@pytest.mark.parametrize(
    ("labels", "hierarchy", "strategy"),
    [
        (FRUITS, WORLD, "per-parent"),
        ([["c"], ["d"], ["e"]] * 6, DAG, "flat"),
        ([["fruit/apple", "tree"], ["tree/oak"], []] * 6, WORLD, "per-class"),
    ],
)
def test_the_strategy_is_that_of_the_labels(labels, hierarchy, strategy):
    prepared = prepare(Dataset(TEXTS, labels, hierarchy), Plan(), CPU)
    assert prepared.network.heads["main"].strategy == strategy
    assert prepared.network_spec.heads["main"].options == {"strategy": strategy}
    words = summary(prepared)
    assert f"linear SVMs, {strategy}, " in words
    assert "solved at once with penalty" in words
    assert "epoch" not in words


def test_members_of_an_ensemble_are_equal_and_validated():
    plan = Plan(valid_fraction=0.2, settings={"ensemble_size": 3})
    records = []
    pipeline = train(dataset(), plan, reporting=Reporting(on_epoch=records.append))
    (record,) = records
    assert len(record["loss"]) == 3
    assert len(set(record["valid"]["au-prc"])) == 1
    state = pipeline.network.state_dict()
    assert torch.equal(state["networks.0.heads.main.values"], state["networks.2.heads.main.values"])


def test_the_estimator_answers():
    clf = HierarchicalClassifier(random_state=0).fit(TEXTS, [one[0] for one in FRUITS])
    assert list(clf.predict(["a cherry", "an oak"])) == ["fruit/cherry", "tree/oak"]
    with pytest.raises(HierlearnError, match="solved on all rows at once; call fit"):
        clf.partial_fit(TEXTS, [one[0] for one in FRUITS])


def test_vectors_of_length_1_are_solved():
    inputs, rng = sparse_rows(120)
    data = Dataset(inputs.toarray(), draw(PATHS, 120, rng), TREE)
    pipeline = train(data, Plan(network="embeddings"))
    head = pipeline.network.heads["main"]
    unit = inputs.toarray() / np.linalg.norm(inputs.toarray(), axis=1, keepdims=True)
    expected = make(data.labels, TREE, unit)
    np.testing.assert_allclose(
        stacked(head), solved(expected, "per-parent", tolerance=0.1)[1], atol=0.15
    )


@pytest.mark.parametrize(
    "plan",
    [
        {"loss": "hcl"},
        {"network": "token-bag"},
        {"settings": {"epochs": 2}},
    ],
)
def test_what_has_gradients_is_trained_in_batches(plan):
    found = prepare(dataset(), Plan(recipe="linear", **plan), CPU)
    assert found.decision.settings.optimizer == "adamw"
    assert type(found.network.heads["main"]).__name__ == "LinearHead"


def test_only_a_network_without_weights_of_its_own_goes_with_sparse_weights():
    plan = Plan("softmax", network="mlp", head="sparse-linear")
    data = Dataset(np.eye(4, dtype=np.float32), [["c"], ["d"]] * 2, DAG)
    with pytest.raises(HierlearnError, match="no gradients to train MLPEncoder; use the network"):
        train(data, plan)
