"""A memory that grows: labels of every form, further training, and what is refused unchanged."""

import pickle

import numpy as np
import pytest

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import DataError, HierlearnError, LabelError
from hierlearn.networks.memories import remembered
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.remember import remap

X = np.random.default_rng(0).normal(size=(60, 4)) * 0.3 + 3 * np.eye(4)[np.arange(60) % 3]
NEW = np.random.default_rng(1).normal(size=(6, 4)) * 0.3 - 4
PATHS = ["a/x", "a/y", "b/z"] * 20
INTEGERS = [0, 1, 2] * 20
LETTERS = Hierarchy.from_paths(["l/0", "l/1", "h/2"])
TO_LETTERS = {"0": "l/0", "1": "l/1", "2": "h/2"}


def fit(y, X=X, **options):
    made = HierarchicalClassifier(
        "neighbors", epochs=2, random_state=0, network_options={"width": 8}, **options
    )
    return made.fit(X, y)


@pytest.fixture(scope="module")
def once():
    return {"paths": fit(PATHS), "integers": fit(INTEGERS)}


@pytest.fixture
def paths(once):
    return pickle.loads(pickle.dumps(once["paths"]))


@pytest.fixture
def integers(once):
    return pickle.loads(pickle.dumps(once["integers"]))


def state_of(clf):
    """What a call that is refused must leave alone."""
    rows = remembered(clf.pipeline_.network)
    return (
        clf.classes_.tolist(),
        clf.hierarchy_.names,
        clf.pipeline_.hierarchy.names,
        list(rows.ids),
        rows.hierarchy.names,
    )


def weights_of(clf):
    return {name: value.clone() for name, value in clf.pipeline_.network.state_dict().items()}


def same_weights(clf, weights):
    found = clf.pipeline_.network.state_dict()
    return all(found[name].equal(value) for name, value in weights.items())


# ---------------------------------------------------------------------- labels that are numbers


def test_integer_labels_become_paths(integers):
    integers.remap(LETTERS, TO_LETTERS)
    assert integers.classes_.dtype == object
    assert integers.classes_.tolist() == ["h/2", "l/0", "l/1"]
    assert integers.predict(X[:3]).tolist() == ["l/0", "l/1", "h/2"]
    assert integers.explain(X[:1])[0][0].labels == ("l/0",)


def test_integer_labels_beside_a_string(integers):
    integers.remember(NEW, ["cat"] * 6)
    assert set(integers.classes_.tolist()) == {0, 1, 2, "cat"}
    assert integers.predict(np.concatenate([X[:3], NEW[:1]])).tolist() == [0, 1, 2, "cat"]
    columns = integers.predict_proba(NEW)
    assert (integers.classes_[columns.argmax(axis=1)] == "cat").all()
    assert integers.score(X, INTEGERS) == 1.0


def test_integer_labels_of_a_folder_that_was_remapped(integers, tmp_path):
    integers.save(tmp_path / "model")
    pipeline = Pipeline.load(tmp_path / "model")
    remap(pipeline, LETTERS, TO_LETTERS)
    pipeline.save(tmp_path / "new")
    loaded = HierarchicalClassifier.load(tmp_path / "new")
    assert loaded.classes_.tolist() == ["h/2", "l/0", "l/1"]
    assert loaded.predict(X[:3]).tolist() == ["l/0", "l/1", "h/2"]


def test_small_integers_widen():
    clf = fit(np.array(INTEGERS, dtype=np.uint8))
    clf.remember(NEW, [300] * 6)
    assert clf.classes_.tolist() == [0, 1, 2, 300]
    assert clf.predict(NEW).tolist() == [300] * 6


def test_numbers_in_a_mapping_are_labels():
    clf = fit([2, 10, 7] * 20)  # by name "10", "2", "7": the class number of 2 is 1
    with pytest.raises(LabelError, match=r"the label 0 is no class of .*name classes by"):
        clf.remap(Hierarchy.from_paths(["10", "7"]), {0: "10"})
    with pytest.raises(LabelError, match="the label 8 is no class of"):
        clf.remap(Hierarchy.from_paths(["10", "7", "9"]), {2: 8})
    counts = clf.remap(Hierarchy.from_paths(["10", "7", "9", "90"]), {2: [9, 90]}, {0: 9, "3": 90})
    assert counts["split"] == 1
    assert clf.classes_.dtype.kind == "i"
    assert set(clf.classes_.tolist()) == {7, 9, 10, 90}
    labels = [clf.explain(X[row : row + 1])[0][0].labels for row in range(4)]
    assert labels == [(9,), (10,), (7,), (90,)]


def test_numbers_in_a_mapping_of_a_given_hierarchy_are_class_numbers():
    h = Hierarchy.from_paths(["a/x", "a/y", "b"])
    given = [h.index(name) for name in ("a/x", "a/y", "b")]
    made = HierarchicalClassifier("neighbors", epochs=1, random_state=0)
    clf = made.fit(X, given * 20, hierarchy=h)
    new = Hierarchy.from_paths(["a/x", "a/w", "b"])
    clf.remap(new, {given[1]: new.index("a/w")})
    assert clf.explain(X[1:2])[0][0].labels == (new.index("a/w"),)


def test_numbers_beside_paths_are_names(paths):
    paths.remember(NEW, [7] * 6)
    assert paths.predict(NEW[:1]).tolist() == ["7"]
    assert paths.explain(NEW[:1])[0][0].labels == ("7",)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.remember(X[:3], PATHS[:5]), "inputs have 3 rows but labels have 5"),
        (lambda c: c.remember(X[:3], PATHS[:2]), "inputs have 3 rows but labels have 2"),
        (lambda c: c.remember(X[:2], PATHS[:2], ids="rst"), "2 rows but there are 1 ids"),
        (lambda c: c.remember(X[:2], PATHS[:2], ids=[7, 8, 9]), "2 rows but there are 3 ids"),
        (lambda c: c.remember(X[:2], PATHS[:2], ids=["7"]), "2 rows but there are 1 ids"),
        (lambda c: c.remember(X[:1], ["c/n"], hierarchy="h.csv"), "not a Hierarchy"),
        (lambda c: c.remap(Hierarchy.from_paths(["a/x"]), {3: "a/x"}), "the label 3 is no class"),
        (lambda c: c.forget(500), "no row with id '500'"),
    ],
)
def test_what_does_not_fit_changes_nothing(call, message, paths):
    before = state_of(paths)
    with pytest.raises(HierlearnError, match=message):
        call(paths)
    assert state_of(paths) == before


def test_labels_are_made_before_anything_changes(integers, monkeypatch):
    before = state_of(integers)

    def failing(self, numbers):
        raise DataError("no labels")

    with monkeypatch.context() as patch:
        patch.setattr(type(integers._label_format), "array", failing)
        for call in (
            lambda: integers.remember(NEW, ["cat"] * 6),
            lambda: integers.remap(LETTERS, TO_LETTERS),
        ):
            with pytest.raises(DataError, match="no labels"):
                call()
    assert state_of(integers) == before
    assert integers.predict(X[:3]).tolist() == [0, 1, 2]


def test_a_single_id(paths):
    assert paths.forget(5) == 1
    assert paths.forget(np.int64(6)) == 1
    assert paths.forget("7") == 1
    assert paths.forget([8, "9"]) == 2
    assert list(remembered(paths.pipeline_.network).ids) == [
        str(n) for n in range(60) if n not in (5, 6, 7, 8, 9)
    ]


# ---------------------------------------------------------------------- partial_fit


def test_classes_at_every_call(paths):
    weights = weights_of(paths)
    for _ in range(2):
        paths.partial_fit(X[:3], PATHS[:3], classes=["a/x", "a/y", "b/z"])
    assert same_weights(paths, weights)
    assert len(remembered(paths.pipeline_.network)) == 66
    paths.partial_fit(NEW, ["b/w"] * 6, classes=["a/x", "a/y", "b/z", "b/w", "b/v"])
    assert {"b/w", "b/v"} < set(paths.classes_.tolist())
    assert paths.predict(NEW).tolist() == ["b/w"] * 6


def test_a_larger_hierarchy_in_partial_fit():
    h = Hierarchy.from_paths(PATHS[:3])
    made = HierarchicalClassifier("neighbors", epochs=1, random_state=0)
    clf = made.partial_fit(X, PATHS, hierarchy=h)
    larger = Hierarchy.from_paths([*PATHS[:3], "c/n"])
    clf.partial_fit(NEW, ["c/n"] * 6, hierarchy=larger)
    assert clf.hierarchy_ == larger
    assert clf.predict(NEW).tolist() == ["c/n"] * 6
    with pytest.raises(HierlearnError, match="the new hierarchy lacks 'c'"):
        clf.partial_fit(NEW, ["a/x"] * 6, hierarchy=h)
