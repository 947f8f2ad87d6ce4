"""The linear solver against scikit-learn, autograd, and a training of batches."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from hierlearn import HierarchicalClassifier, Hierarchy, LabelSpace
from hierlearn.datasets import Dataset
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.losses import BCELoss, CondSoftmaxLoss, HingeLoss, LeafCELoss
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.prepare import prepare, summary
from hierlearn.training.rows import Rows
from hierlearn.training.settings import Plan
from hierlearn.training.solvers import linear as linear_solver
from hierlearn.training.solvers.linear import minimize, solve_linear

CPU = torch.device("cpu")
FLAT = Hierarchy.from_paths(["a", "b", "c"])
TREE = Hierarchy.from_paths(["a/x", "a/y", "b/u", "b/v", "b/w", "c"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("b", "d"), ("a", "e")])
PATHS = ["a/x", "a/y", "b/u", "b/v", "b/w", "c"]
FAR = 1e-5  # tolerance of the gradient where optima are compared


def sparse_rows(count=80, width=30, seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(count, width)) * (rng.random((count, width)) < 0.3)
    return csr_matrix(dense.astype(np.float32)), rng


def make(labels, hierarchy, inputs, weights=None, unlabeled_descendants="negative"):
    found = Labels(labels, hierarchy, unlabeled_descendants=unlabeled_descendants)
    return Rows(inputs, found, CPU, weights)


def with_constant(inputs):
    """The bias as a column, since it is penalized too."""
    return np.hstack([inputs.toarray(), np.ones((inputs.shape[0], 1), dtype=np.float32)])


@pytest.fixture(params=["span of rows", "columns"])
def path(request, monkeypatch):
    if request.param == "columns":
        monkeypatch.setattr(linear_solver, "FEW", 0)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighted", [False, True])
def test_a_flat_softmax_is_logistic_regression(weighted):
    inputs, rng = sparse_rows()
    numbers = rng.integers(0, 3, inputs.shape[0])
    weights = rng.random(len(numbers)) + 0.5 if weighted else None
    rows = make([["abc"[n]] for n in numbers], FLAT, inputs, weights)
    oracle = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-8, max_iter=10_000)
    oracle.fit(with_constant(inputs), numbers, weights)
    for loss in (CondSoftmaxLoss(FLAT), LeafCELoss(FLAT)):
        weight, bias = solve_linear(loss, rows, 0.5, FAR)
        np.testing.assert_allclose(weight, oracle.coef_[:, :-1].T, atol=1e-3)
        np.testing.assert_allclose(bias, oracle.coef_[:, -1], atol=1e-3)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("margin", [1.0, 4.0])
def test_a_flat_hinge_is_a_linear_svm(margin):
    inputs, rng = sparse_rows()
    numbers = rng.integers(0, 3, inputs.shape[0])
    rows = make([["abc"[n]] for n in numbers], FLAT, inputs)
    oracle = LinearSVC(C=2.0, tol=1e-8, max_iter=100_000).fit(inputs, numbers)
    weight, bias = solve_linear(HingeLoss(FLAT, margin=margin), rows, 0.5, FAR)
    np.testing.assert_allclose(weight / margin, oracle.coef_.T, atol=1e-3)
    np.testing.assert_allclose(bias / margin, oracle.intercept_, atol=1e-3)


@pytest.mark.usefixtures("path")
def test_several_labels_are_a_logistic_regression_for_every_class():
    inputs, rng = sparse_rows()
    chosen = [[p for p in PATHS if rng.random() < 0.4] for _ in range(inputs.shape[0])]
    rows = make(chosen, TREE, inputs)
    weight, bias = solve_linear(BCELoss(TREE), rows, 0.5, FAR)
    targets = rows.labels.targets().numpy()
    for number in range(len(TREE)):
        oracle = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-8, max_iter=10_000)
        oracle.fit(with_constant(inputs), targets[:, number])
        np.testing.assert_allclose(weight[:, number], oracle.coef_[0, :-1], atol=1e-3)
        np.testing.assert_allclose(bias[number], oracle.coef_[0, -1], atol=1e-3)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unlabeled_descendants", ["negative", "ignore"])
@pytest.mark.parametrize("loss", [HingeLoss, CondSoftmaxLoss, LeafCELoss, BCELoss])
@pytest.mark.parametrize("kind", ["paths", "several", "inner", "dag"])
def test_the_gradient_of_the_loss_is_zero_at_the_optimum(
    kind, loss, unlabeled_descendants, weighted
):
    """Autograd through the loss of the house, penalty included: weights, masks, DAGs, sets."""
    tree = kind != "dag"
    if (not tree and loss in (HingeLoss, CondSoftmaxLoss)) or (
        loss is LeafCELoss and unlabeled_descendants == "ignore"
    ):
        return
    inputs, rng = sparse_rows()
    hierarchy = TREE if tree else DAG
    pool = {"inner": [*PATHS, "a", "b"], "dag": ["c", "d", "e", "a"]}.get(kind, PATHS)
    size = 2 if kind == "several" else 1
    chosen = [list(rng.choice(pool, size, replace=False)) for _ in range(inputs.shape[0])]
    weights = rng.random(len(chosen)) + 0.5 if weighted else None
    rows = make(chosen, hierarchy, inputs, weights, unlabeled_descendants)
    space = LabelSpace.from_labels(rows.labels)
    trained = loss(space, reduction="sum")
    found = solve_linear(trained, rows, 0.5, FAR)
    weight, bias = (one.double().requires_grad_() for one in found)
    logits = torch.from_numpy(inputs.toarray()).double() @ weight + bias
    every = torch.arange(len(rows))
    share = None if rows.weights is None else rows.weights.double()
    value = trained(logits, rows.targets(every), rows.mask(every), share)
    value = value + 0.25 * (weight.square().sum() + bias.square().sum())
    for gradient in torch.autograd.grad(value, [weight, bias]):
        assert float(gradient.abs().max()) < 0.02  # of sums over 80 rows, in single precision


def test_dense_rows_give_the_same():
    inputs, rng = sparse_rows()
    labels = [[PATHS[n]] for n in rng.integers(0, len(PATHS), inputs.shape[0])]
    found = [
        solve_linear(HingeLoss(TREE), make(labels, TREE, one), 0.3, FAR)
        for one in (inputs, inputs.toarray())
    ]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=3e-3)


def test_repeated_rows_do_not_disturb():
    inputs, rng = sparse_rows(20)
    twice = csr_matrix(np.vstack([inputs.toarray()] * 2))
    labels = [[PATHS[n]] for n in rng.integers(0, len(PATHS), 20)]
    once = solve_linear(HingeLoss(TREE), make(labels, TREE, inputs, np.full(20, 2.0)), 0.3, FAR)
    both = solve_linear(HingeLoss(TREE), make(labels * 2, TREE, twice), 0.3, FAR)
    np.testing.assert_allclose(once[0], both[0], atol=2e-3)


def test_lbfgs_finds_the_minimum_of_a_quadratic():
    rng = np.random.default_rng(0)
    factor, target = (torch.from_numpy(rng.normal(size=(6, n))) for n in (6, 2))
    matrix = factor @ factor.T + torch.eye(6)
    start = torch.zeros(6, 2, dtype=torch.float64)

    def function(x):
        return float(0.5 * (x * (matrix @ x)).sum() - (target * x).sum()), matrix @ x - target

    found = minimize(function, start, tolerance=1e-8)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), rtol=1e-5, atol=1e-8)
    assert not start.any()


# ---------------------------------------------------------------------- as a training

TEXTS = ["red apple", "green apple", "red cherry", "oak tree", "pine tree", "old oak"] * 3
FRUITS = [["fruit/apple"], ["fruit/apple"], ["fruit/cherry"], ["tree/oak"], ["tree/pine"]]
FRUITS = [*FRUITS, ["tree/oak"]] * 3
WORLD = Hierarchy.from_paths(["fruit/apple", "fruit/cherry", "tree/oak", "tree/pine"])


def dataset():
    return Dataset(TEXTS, FRUITS, WORLD)


def test_the_recipe_linear_is_solved_saved_and_resumed(tmp_path):
    pipeline = train(dataset(), Plan(), tmp_path / "model")
    assert pipeline.config["settings"]["optimizer"] == "lbfgs"
    assert pipeline.config["training"]["steps"] == 1
    again = Pipeline.load(tmp_path / "model")
    assert [str(one) for one in again.predict(TEXTS[:6])] == [
        str(one) for one in pipeline.predict(TEXTS[:6])
    ]
    (tmp_path / "model" / "config.json").unlink()
    resumed = train(dataset(), Plan(), tmp_path / "model", resume=True)
    for name, value in pipeline.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], value)


def test_the_summary_says_so():
    words = summary(prepare(dataset(), Plan(), CPU))
    assert "solved by L-BFGS with penalty" in words
    assert "epoch" not in words


def test_members_of_an_ensemble_are_equal_and_validated():
    plan = Plan(valid_fraction=0.2, settings={"ensemble_size": 3})
    records = []
    pipeline = train(dataset(), plan, reporting=Reporting(on_epoch=records.append))
    (record,) = records
    assert len(record["loss"]) == 3
    assert len(set(record["valid"]["au-prc"])) == 1
    weight = pipeline.network.state_dict()["network.heads.main.linear.weight"]
    assert torch.equal(weight[0], weight[2])


def test_the_estimator_answers():
    clf = HierarchicalClassifier(random_state=0).fit(TEXTS, [one[0] for one in FRUITS])
    assert list(clf.predict(["a cherry", "an oak"])) == ["fruit/cherry", "tree/oak"]
    (record,) = clf.history_
    assert record["loss"][0] < 16


def test_partial_fit_goes_on_in_batches():
    clf = HierarchicalClassifier(random_state=0).fit(TEXTS, [one[0] for one in FRUITS])
    before = clf.pipeline_.network.state_dict()["heads.main.linear.weight"].clone()
    clf.partial_fit(TEXTS, [one[0] for one in FRUITS])
    assert not torch.equal(clf.pipeline_.network.state_dict()["heads.main.linear.weight"], before)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"loss": "hcl"}, "the loss is HCLLoss"),
        ({"network": "token-bag"}, "the network is not linear"),
        ({"network_options": {"input_dropout": 0.5}}, "the network is not linear"),
    ],
)
def test_what_cannot_be_solved_is_trained_in_batches_unless_it_was_asked_for(plan, reason):
    own = Plan(recipe="linear", **plan)
    assert prepare(dataset(), own, CPU).decision.settings.optimizer == "adamw"
    asked = Plan(recipe="linear", settings={"optimizer": "lbfgs"}, **plan)
    with pytest.raises(HierlearnError, match=reason):
        prepare(dataset(), asked, CPU)
