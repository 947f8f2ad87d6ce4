"""A memory that grows: labels of every form, further training, and what is refused unchanged."""

import pickle

import numpy as np
import pytest
import torch

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import DataError, HierlearnError, LabelError
from hierlearn.estimator.incremental import IncrementalState, restore_memory
from hierlearn.losses.joint import JointLoss
from hierlearn.memory import LabelSets, Remembered
from hierlearn.networks.memories import embed, embeddings_of, remembered, set_memory
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.remember import remap
from tolerances import HALF_ROUNDED

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
        (lambda c: c.partial_fit(X[:3], PATHS[:5], train=True), "3 rows but labels have 5"),
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


@pytest.mark.parametrize("size", [1, 2])
def test_training_on_a_new_class(size):
    clf = fit(PATHS, ensemble_size=size)
    weights = weights_of(clf)
    some = np.concatenate([NEW, X[:3]])
    y, counts = [*["b/w"] * 6, *PATHS[:3]], [1, 1, 0, 2, 2, 2, 1, 1, 1]
    clf.partial_fit(some, y, sample_weight=counts, train=True)
    kept = {k: v for k, v in weights.items() if k in clf.pipeline_.network.state_dict()}
    assert kept
    assert not same_weights(clf, kept)
    rows = remembered(clf.pipeline_.network)
    assert list(rows.ids) == [str(n) for n in range(68)]
    assert rows.weights[-8:].tolist() == [1, 1, 2, 2, 2, 1, 1, 1]
    assert clf.predict(NEW).tolist() == ["b/w"] * 6
    # The last rows are remembered as the new weights embed them.
    clf.pipeline_.network.eval()
    queries = embed(clf.pipeline_.network, clf.pipeline_.rows(some[[0, 1, *range(3, 9)]]))["main"]
    held = embeddings_of(clf.pipeline_.network)["main"]
    HALF_ROUNDED.assert_close(held[..., -8:, :].float(), queries.detach())
    assert not held[..., :3, :].equal(held[..., -3:, :])  # older rows keep their embeddings


def test_texts_outlast_training():
    texts = ["small dog snores", "big dog fetches", "red rose smells"] * 20
    clf = fit(PATHS, X=texts)
    clf.partial_fit(["the rose has thorns"] * 2, ["b/z"] * 2, train=True)
    rows = remembered(clf.pipeline_.network)
    assert list(rows.texts) == [*texts, *["the rose has thorns"] * 2]
    assert clf.explain(["the rose has thorns"])[0][0].text == "the rose has thorns"


def test_embeddings_beyond_half_precision_stay_finite(paths):
    network = paths.pipeline_.network
    held, rows = embeddings_of(network), remembered(network)
    width = held["main"].shape[-1]
    last = Remembered(LabelSets(rows.labels.sets, rows.labels.of_row[-2:]), rows.ids[-2:])
    set_memory(network, {"main": torch.full((2, width), 1e6)}, last)
    restore_memory(network, held, rows)
    found = embeddings_of(network)["main"]
    assert found.shape == (60, width)
    assert (found[-2:] == 1e6).all()
    assert (found[:-2] == held["main"][:-2]).all()


# ---------------------------------------------------------------------- what trains further


def test_the_state_of_training_lasts_while_the_classes_do(paths):
    state = paths._incremental
    assert isinstance(state.loss, JointLoss)
    paths.remember(X[:2], PATHS[:2])
    paths.forget(0)
    assert paths._incremental is state
    paths.remember(NEW, ["b/w"] * 6)
    assert paths._incremental is None


def test_a_loaded_model_trains_its_joint_losses(paths, tmp_path):
    paths.save(tmp_path / "model")
    loaded = HierarchicalClassifier.load(tmp_path / "model")
    assert loaded.pipeline_.config["recipe"]["joint"] == {"bce": 1.0, "soft-labels": 3.0}
    fresh, own = IncrementalState.from_pipeline(loaded.pipeline_).loss, paths._incremental.loss
    assert fresh.names == own.names == ["main", "bce", "soft-labels"]
    assert fresh.weights == own.weights
    assert [type(part) for part in fresh.parts] == [type(part) for part in own.parts]
    loaded.partial_fit(X[:6], PATHS[:6], train=True)
    # Another class drops the joint heads, and their losses.
    loaded.remember(NEW, ["b/w"] * 6)
    assert not isinstance(IncrementalState.from_pipeline(loaded.pipeline_).loss, JointLoss)
    loaded.partial_fit(NEW, ["b/w"] * 6, train=True)
    assert loaded.predict(NEW).tolist() == ["b/w"] * 6


def test_a_model_without_its_recipe_remembers_but_does_not_train(paths):
    paths._incremental = None
    paths.pipeline_.config.pop("recipe")
    before = state_of(paths)
    with pytest.raises(HierlearnError, match="does not say which loss trained it"):
        paths.partial_fit(X[:2], PATHS[:2], train=True)
    assert state_of(paths) == before
