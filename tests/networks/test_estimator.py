"""Any scikit-learn estimator as a head: probabilities against loops, storage, refusals."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from hierlearn import HierarchicalClassifier, Hierarchy, LabelSpace, load
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError
from hierlearn.hierarchy.labels import Labels
from hierlearn.networks import InputSpec
from hierlearn.networks.estimator import EstimatorHead, build, describe, estimator
from hierlearn.networks.inputs import SparseRows
from hierlearn.training.rows import Rows
from hierlearn.training.solvers.estimator import fit_head

TREE = Hierarchy.from_paths(["a/x/1", "a/x/2", "a/y", "b/z", "c"])
ENDS = ["a/x/1", "a/x/2", "a/y", "b/z", "c", "a/x"]  # a/x is an inner label
DAG = Hierarchy.from_edges([("top", "l"), ("top", "r"), ("l", "m"), ("r", "m"), ("r", "n")])


def drawn(names, rows=90, seed=0):
    draw = np.random.default_rng(seed)
    number = np.arange(rows) % len(names)
    centers = draw.normal(size=(len(names), 4)) * 2
    x = (centers[number] + draw.normal(size=(rows, 4))).astype(np.float32)
    return x, [names[one] for one in number]


def fitted(hierarchy, x, names, strategy="flat", *, base="logistic", weights=None, **options):
    labels = Labels(names, hierarchy, **options)
    space = LabelSpace.from_labels(labels)
    head = EstimatorHead(space, base, strategy)
    fit_head(head, Rows(x, labels, torch.device("cpu"), weights), seed=0)
    return head


def answers(head, x):
    with torch.no_grad():
        return head(torch.from_numpy(x)).probabilities.double().numpy()


def proba(x, names, new):
    """What scikit-learn gives by itself, by name."""
    if len(set(names)) == 1:
        return [{names[0]: 1.0} for _ in new]
    model = LogisticRegression().fit(x, names)
    return [dict(zip(model.classes_, row, strict=True)) for row in model.predict_proba(new)]


def within(name, ancestor):
    return name == ancestor or name.startswith(ancestor + "/")


def test_flat_sums_what_lies_below():
    x, names = drawn(ENDS)
    p = answers(fitted(TREE, x, names), x)
    for row, found in enumerate(proba(x, names, x)):
        for number, node in enumerate(TREE.names):
            wanted = sum(value for name, value in found.items() if within(name, node))
            assert p[row, number] == pytest.approx(wanted, abs=1e-6)


def test_per_parent_is_a_product_down_the_path():
    x, names = drawn(ENDS)
    p = answers(fitted(TREE, x, names, "per-parent"), x)
    expected = np.zeros_like(p)
    for parent in ["", *TREE.names]:
        inside = [i for i, name in enumerate(names) if not parent or within(name, parent)]
        depth = parent.count("/") + 1 if parent else 0
        if parent and not TREE.children(parent):
            continue
        steps = ["/".join(names[i].split("/")[: depth + 1]) for i in inside]
        for row, found in enumerate(proba(x[inside], steps, x)):
            for name, value in found.items():
                if name != parent:
                    above = expected[row, TREE.index(parent)] if parent else 1.0
                    expected[row, TREE.index(name)] = above * value
    np.testing.assert_allclose(p, expected, atol=1e-6)


def test_per_level_shares_out_what_siblings_have():
    x, names = drawn(ENDS)
    p = answers(fitted(TREE, x, names, "per-level"), x)
    expected = np.zeros_like(p)
    for level in range(3):
        steps = ["/".join(name.split("/")[: level + 1]) for name in names]
        for row, found in enumerate(proba(x, steps, x)):
            for node in TREE.names:
                if node.count("/") != level:
                    continue
                parent = node.rpartition("/")[0]
                rivals = [one for one in found if one.rpartition("/")[0] == parent or one == parent]
                if level == 0:
                    rivals = [one for one in found if "/" not in one]
                share = found[node] / sum(found[one] for one in rivals)
                above = expected[row, TREE.index(parent)] if parent else 1.0
                expected[row, TREE.index(node)] = above * share
    np.testing.assert_allclose(p, expected, atol=1e-6)


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
def test_per_class_takes_the_maximum_below(hierarchy):
    leaves = [hierarchy.names[number] for number in hierarchy.leaves]
    x, names = drawn(leaves)
    names = [[one, leaves[0]] if row % 3 else [] for row, one in enumerate(names)]
    head = fitted(hierarchy, x, names, "per-class")
    p = answers(head, x)
    targets = Labels(names, hierarchy).targets().numpy()
    own = np.zeros_like(p)
    for number in range(len(hierarchy)):
        own[:, number] = [
            found.get(True, 0.0) for found in proba(x, targets[:, number].tolist(), x)
        ]
    for number, node in enumerate(hierarchy.names):
        below = [hierarchy.index(one) for one in {node, *hierarchy.descendants(node)}]
        np.testing.assert_allclose(p[:, number], own[:, below].max(axis=1), atol=1e-6)


@pytest.mark.parametrize("strategy", ["flat", "per-parent", "per-level"])
@pytest.mark.parametrize("base", ["svc", "linear-svc", "forest"])
def test_answers_are_coherent_and_right(strategy, base):
    x, names = drawn(ENDS)
    head = fitted(TREE, x, names, strategy, base=base)
    p = answers(head, x)
    child, parent = TREE.structure.edge_children, TREE.structure.parent_ids
    assert np.all(p[:, child] <= p[:, parent] + 1e-6)
    assert np.all((p >= 0) & (p <= 1))
    tops = p[:, : TREE.level_sizes[0]]
    np.testing.assert_allclose(tops.sum(axis=1), 1, atol=1e-6)
    right = tops.argmax(axis=1) == [TREE.index(name.split("/")[0]) for name in names]
    assert right.mean() > 0.8


def test_a_label_above_says_as_much_as_it_does():
    """Under partial labels, rows of a/x help to tell a from b, and say nothing about 1 and 2."""
    x, names = drawn(["a/x/1", "a/x/2", "b/z", "a/x"])
    kept = [row for row, name in enumerate(names) if name != "a/x"]
    some = fitted(TREE, x[kept], [names[row] for row in kept], "per-parent")
    every = fitted(TREE, x, names, "per-parent", unlabeled_descendants="ignore")
    one, two, above = (TREE.index(name) for name in ("a/x/1", "a/x/2", "a/x"))
    p, q = answers(every, x), answers(some, x)
    space = every.label_space
    assert not space.is_terminal[above] or len(every.parts) == len(some.parts)
    if not space.is_terminal[above]:
        np.testing.assert_allclose(p[:, one] / p[:, above], q[:, one] / q[:, above], atol=1e-6)
    assert not np.allclose(p[:, above], q[:, above])
    assert p[:, two].max() <= 1


def test_weights_of_rows_are_counted():
    x, names = drawn(ENDS)
    twice = np.where(np.arange(90) < 30, 2.0, 1.0)
    weighted = answers(fitted(TREE, x, names, weights=twice), x)
    repeated = fitted(TREE, np.concatenate([x, x[:30]]), names + names[:30])
    np.testing.assert_allclose(weighted, answers(repeated, x), atol=1e-4)
    with pytest.raises(HierlearnError, match="KNeighborsClassifier takes no weights"):
        fitted(TREE, x, names, base="sklearn.neighbors:KNeighborsClassifier", weights=twice)


def test_sparse_rows():
    from scipy import sparse

    x, names = drawn(ENDS)
    x[np.abs(x) < 0.5] = 0
    labels = Labels(names, TREE)
    head = EstimatorHead(LabelSpace.from_labels(labels), "linear-svc", "per-parent")
    rows = Rows(sparse.csr_array(x), labels, torch.device("cpu"))
    fit_head(head, rows, seed=0)
    assert isinstance(rows.inputs, SparseRows)
    dense = fitted(TREE, x, names, "per-parent", base="linear-svc")
    found = head(rows.inputs).probabilities.double().numpy()
    np.testing.assert_allclose(found, answers(dense, x), atol=1e-3)


@pytest.mark.parametrize("base", ["svc", "forest", "lightgbm"])
def test_what_is_stored_answers_alike(base):
    x, names = drawn(ENDS)
    network = estimator(
        LabelSpace.from_labels(Labels(names, TREE)), InputSpec.numbers(4), base=base
    )
    if base == "lightgbm":
        pytest.importorskip("lightgbm")
    head = network.heads["main"]
    fit_head(head, Rows(x, Labels(names, TREE), torch.device("cpu")), seed=0)
    again = estimator(head.label_space, InputSpec.numbers(4), base=base)
    again.load_state_dict(network.state_dict())
    np.testing.assert_array_equal(answers(again.heads["main"], x), answers(head, x))


class Foreign(LogisticRegression):
    """Code that nobody named."""


def test_what_is_stored_runs_no_other_code():
    x, names = drawn(ENDS)
    head = fitted(TREE, x, names)
    odd = fitted(TREE, x, names)
    odd.make = Foreign
    fit_head(odd, Rows(x, Labels(names, TREE), torch.device("cpu")), seed=0)
    with pytest.raises(CheckpointError, match="Foreign, which is other code"):
        head.load_state_dict(odd.state_dict())
    damaged = {"fitted": head.state_dict()["fitted"][:-20]}
    with pytest.raises(CheckpointError, match="the stored estimator cannot be read"):
        head.load_state_dict(damaged)


def test_an_estimator_in_words():
    for made in (
        SVC(C=10.0, gamma="auto"),
        LinearSVC(class_weight={"a": 2.0}),
        make_pipeline(StandardScaler(), SVC(C=3)),
        RandomForestClassifier(7, max_depth=3),
    ):
        again = build(describe(made))
        assert str(again) == str(made)
    with pytest.raises(HierlearnError, match="base has a parameter that cannot be stored"):
        describe(SVC(kernel=lambda a, b: a @ b.T))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "lightgmb"}, "unknown base 'lightgmb'; did you mean 'lightgbm'"),
        ({"base": "sklearn.svm:SVX"}, "cannot be imported"),
        ({"base": "svc", "kernle": "rbf"}, "sklearn.svm:SVC cannot be made"),
        ({"base": "svc", "strategy": "by-parent"}, "unknown strategy 'by-parent'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(HierlearnError, match=message):
        estimator(LabelSpace.of(TREE), InputSpec.numbers(2), **options)


def test_a_dag_is_flat():
    with pytest.raises(HierlearnError, match="strategy per-parent needs a tree"):
        estimator(LabelSpace.of(DAG), InputSpec.numbers(2), strategy="per-parent")
    x, names = drawn(["top/l/m", "top/r/n"]) if "top/l/m" in DAG else drawn(["m", "n"])
    p = answers(fitted(DAG, x, names), x)
    np.testing.assert_allclose(p[:, DAG.index("top")], 1, atol=1e-6)


def test_several_labels_need_a_yes_or_no_per_class():
    x, names = drawn(ENDS)
    with pytest.raises(HierlearnError, match="rows have several labels, or none"):
        fitted(TREE, x, [[one, "c"] for one in names])


# ---------------------------------------- from rows to answers


@pytest.mark.parametrize("base", [SVC(C=3), "forest", make_pipeline(StandardScaler(), SVC())])
def test_a_classifier_with_a_base(tmp_path, base):
    x, names = drawn(ENDS, rows=150)
    clf = HierarchicalClassifier(base=base, strategy="per-parent", random_state=0)
    clf = clone(clf).fit(x, names)
    assert clf.recipe_ == "estimator"
    answers = clf.predict(x)
    assert np.mean(answers == np.array(names)) > 0.7
    assert "calibration" in clf.pipeline_.config
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(x.tolist()), answers)
    again = HierarchicalClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_node_proba(x), clf.predict_node_proba(x))
    with pytest.raises(HierlearnError, match="has no memory"):
        clf.remember(x[:1], names[:1])


def test_parameters_of_the_base_are_searched():
    search = HierarchicalClassifier(base=SVC(C=3)).set_params(base__C=7)
    assert search.base.C == 7
    x, names = drawn(["a", "b"], rows=40)
    fitted = HierarchicalClassifier(base="svc", network_options={"C": 5}).fit(x, names)
    (part,) = fitted.pipeline_.network.heads["main"].parts
    assert part.estimator.C == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"base": "svc", "network": "mlp"}, "base is trained instead of a network; leave network"),
        ({"base": "svc", "recipe": "quick"}, "base is trained instead of a network; leave recipe"),
        ({"strategy": "flat"}, "strategy is for a base; name it with base="),
        ({"base": "svc", "optimizer": "adamw"}, "estimator has no gradients for adamw"),
    ],
)
def test_what_a_base_does_not_go_with(given, message):
    x, names = drawn(["a", "b"], rows=40)
    with pytest.raises(HierlearnError, match=message):
        HierarchicalClassifier(**given).fit(x, names)


def test_weights_that_a_base_takes_change_its_answers():
    x, names = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), ["a", "b"] * 30
    heavy = np.where(np.array(names) == "a", 50.0, 1.0)
    plain = HierarchicalClassifier(base="logistic", random_state=0).fit(x, names)
    tilted = HierarchicalClassifier(base="logistic", random_state=0)
    tilted.fit(x, names, sample_weight=heavy)
    mass = [
        clf.pipeline_.network(torch.from_numpy(x)).probabilities[:, 0].mean()
        for clf in (plain, tilted)
    ]
    assert mass[1] > mass[0] + 0.02
