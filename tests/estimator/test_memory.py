"""A classifier with a memory: evidence, growth, another taxonomy, in the form of scikit-learn."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.networks.memories import remembered
from hierlearn.pipeline.explain import rows_of

NAMES = ["animal/dog/pug", "animal/dog/lab", "plant/rose"]


def blobs(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    kind = np.arange(rows) % 3
    return rng.normal(size=(rows, 6)) * 0.4 + 3 * np.eye(6)[kind], [NAMES[k] for k in kind]


def new_kind(rows=6, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, 6)) * 0.4 - 4


@pytest.fixture(scope="module")
def fitted():
    X, y = blobs()
    made = HierarchicalClassifier("neighbors", epochs=3, random_state=0, calibration=False)
    return made.fit(X, y)


@pytest.fixture
def clf(fitted):
    return pickle.loads(pickle.dumps(fitted))


def test_evidence_has_the_form_of_the_labels(clf):
    X, _ = blobs()
    found = clf.explain(X[:2], n_neighbors=4)
    assert [len(row) for row in found] == [4, 4]
    first = found[0][0]
    assert first.id == "0"  # a row is its own nearest neighbor
    assert first.labels == ("animal/dog/pug",)
    weights = [one.weight for one in found[0]]
    assert weights == sorted(weights, reverse=True)


def test_all_evidence_sums_to_the_probability(clf):
    X, _ = blobs(9, seed=5)
    found, p = clf.explain(X, n_neighbors=1000), clf.predict_proba(X)
    column = clf.classes_.tolist().index("animal/dog/pug")
    for row, evidence in enumerate(found):
        total = sum(one.weight for one in evidence if "animal/dog/pug" in one.labels)
        assert total == pytest.approx(p[row, column], abs=1e-5)


def test_evidence_of_integer_labels_is_integers():
    X, _ = blobs()
    clf = HierarchicalClassifier("neighbors", epochs=2, random_state=0).fit(X, np.arange(60) % 3)
    assert clf.explain(X[:1])[0][0].labels == (0,)
    clf.remember(new_kind(), [7] * 6)
    assert clf.predict(new_kind(seed=2)).tolist() == [7] * 6
    assert clf.classes_.tolist() == [0, 1, 2, 7]
    assert clf.predict_proba(X[:4]).shape == (4, 4)


def test_a_new_class_is_remembered_and_predicted(clf):
    X, y = blobs()
    before = clf.predict(X)
    clf.remember(new_kind(), ["animal/cat"] * 6)
    assert clf.predict(new_kind(seed=2)).tolist() == ["animal/cat"] * 6
    assert (clf.predict(X) == before).all()
    assert "animal/cat" in clf.classes_
    assert clf.score(X, y) == 1.0
    assert clf.explain(new_kind(1, seed=3))[0][0].id in [str(n) for n in range(60, 66)]


def test_rows_are_forgotten_by_id(clf):
    clf.remember(new_kind(), ["animal/cat"] * 6, ids=[f"cat {n}" for n in range(6)])
    assert clf.forget([f"cat {n}" for n in range(6)]) == 6
    found = clf.explain(new_kind(seed=2), n_neighbors=100)
    assert not [one for row in found for one in row if one.id.startswith("cat")]
    assert "animal/cat" in clf.classes_  # the class stays, without a row
    with pytest.raises(HierlearnError, match="no row with id 'cat 0'"):
        clf.forget("cat 0")


def test_rows_that_are_remembered_again_by_their_ids_are_there_once(clf):
    X, y = blobs()

    def held():
        return len(rows_of(clf.pipeline_))

    before = held()
    clf.remember(X[:2] + 0.5, y[:2], ids=["p", "q"])
    p = clf.predict_proba(X)
    for _ in range(2):
        clf.remember(X[:2] + 0.5, y[:2], ids=["p", "q"])
        assert held() == before + 2
    np.testing.assert_array_equal(clf.predict_proba(X), p)
    clf.remember(X[:2] + 5, y[:2], ids=["p", "q"])  # other rows under the same ids
    assert held() == before + 4


def test_rows_of_weight_zero_are_not_remembered(clf):
    clf.remember(new_kind(), ["animal/cat"] * 6, sample_weight=[1, 1, 0, 0, 2, 2])
    assert len(remembered(clf.pipeline_.network)) == 64


def test_a_given_hierarchy_grows_below_known_parents_only():
    X, y = blobs()
    h = Hierarchy.from_paths(NAMES)
    clf = HierarchicalClassifier("neighbors", epochs=2, random_state=0).fit(X, y, hierarchy=h)
    with pytest.raises(HierlearnError, match="neither 'fungus/mold' nor a parent"):
        clf.remember(new_kind(), ["fungus/mold"] * 6)
    larger = Hierarchy.from_paths([*NAMES, "fungus/mold"])
    clf.remember(new_kind(), ["fungus/mold"] * 6, hierarchy=larger)
    assert clf.predict(new_kind(seed=2)).tolist() == ["fungus/mold"] * 6
    clf.remember(new_kind(), ["fungus/yeast"] * 6)
    assert "fungus/yeast" in clf.hierarchy_


def test_another_taxonomy(clf):
    X, _ = blobs()
    new = Hierarchy.from_paths(["mammal/pug", "mammal/lab", "plant/rose/red", "plant/rose/white"])
    mapping = {
        "animal": "mammal",
        "animal/dog": "mammal",
        "animal/dog/pug": "mammal/pug",
        "animal/dog/lab": "mammal/lab",
        "plant/rose": ["plant/rose/red", "plant/rose/white"],
    }
    red = {str(row): "plant/rose/red" for row in range(2, 60, 3)}
    old = clf.hierarchy_
    counts = clf.remap(new, mapping, red, dry_run=True)
    assert clf.hierarchy_ == old
    assert clf.remap(new, mapping, red) == counts
    assert counts["split"] == 1
    assert counts["rows with labels of their own"] == 20
    assert clf.predict(X[:3]).tolist() == ["mammal/pug", "mammal/lab", "plant/rose/red"]


def test_calibrated_thresholds_follow_a_taxonomy_and_end_with_new_rows(clf):
    X, y = blobs(seed=7)
    clf.calibrate(X, y, risk=0.1)
    new = Hierarchy.from_paths(["animal/canine/pug", "animal/canine/lab", "plant/rose"])
    names = {"animal/dog": "animal/canine"}
    names |= {f"animal/dog/{kind}": f"animal/canine/{kind}" for kind in ("pug", "lab")}
    threshold = clf.thresholds_["stop"]
    clf.remap(new, names)
    assert clf.thresholds_["stop"] == threshold
    clf.remember(new_kind(), ["animal/cat"] * 6)
    assert not hasattr(clf, "thresholds_")


@pytest.mark.parametrize("size", [1, 2])
def test_growth_is_saved_and_loaded(size, tmp_path):
    X, y = blobs()
    made = HierarchicalClassifier("neighbors", epochs=2, random_state=0, ensemble_size=size)
    clf = made.fit(X, y).remember(new_kind(), ["animal/cat"] * 6)
    clf.save(tmp_path / "model")
    loaded = HierarchicalClassifier.load(tmp_path / "model")
    rows = np.concatenate([X, new_kind(seed=2)])
    assert (loaded.predict(rows) == clf.predict(rows)).all()
    assert np.array_equal(loaded.predict_proba(rows), clf.predict_proba(rows))
    loaded.remember(-new_kind(), ["plant/oak"] * 6).forget(["0"])
    assert loaded.predict(-new_kind(seed=2)).tolist() == ["plant/oak"] * 6


def test_partial_fit_trains_once_and_then_remembers():
    X, y = blobs()
    clf = HierarchicalClassifier("neighbors", epochs=3, random_state=0)
    clf.partial_fit(X, y, classes=[*NAMES, "animal/cat"])
    weights = {k: v.clone() for k, v in clf.pipeline_.network.state_dict().items()}
    clf.partial_fit(new_kind(), ["animal/cat"] * 6)
    assert clf.predict(new_kind(seed=2)).tolist() == ["animal/cat"] * 6
    for name, value in clf.pipeline_.network.state_dict().items():
        assert value.equal(weights[name])
    assert clf.score(X, y) == 1.0


def test_heads_without_a_memory_say_so():
    X, y = blobs()
    clf = HierarchicalClassifier("flat", epochs=1, random_state=0).fit(X, y)
    calls = [
        lambda: clf.explain(X),
        lambda: clf.remember(X, y),
        lambda: clf.forget(["0"]),
        lambda: clf.remap(clf.hierarchy_),
    ]
    for call in calls:
        with pytest.raises(HierlearnError, match=r"no memory.*recipe='neighbors'"):
            call()


def test_clone_and_texts():
    texts = ["small dog snores", "big dog fetches", "red rose smells"] * 10
    clf = clone(HierarchicalClassifier("neighbors", epochs=3, random_state=0))
    clf.fit(texts, NAMES * 10)
    found = clf.explain(["a small dog that snores"])[0][0]
    assert found.text == "small dog snores"
    clf.remember(["the rose has thorns"], ["plant/rose"])
    assert clf.explain(["the rose has thorns"])[0][0].text == "the rose has thorns"
