"""The estimator: scikit-learn's own checks, and every form of labels and inputs, learned."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator.toy_data import LEAVES, blobs, classifier, texts
from hierlearn import Hierarchy
from hierlearn.datasets.labels import LabelWarning
from hierlearn.errors import DataError, LabelError
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics import hierarchical_f1
from hierlearn.pipeline.missing import MissingWarning

# Rows of a batch are shuffled, so a row of weight 2 is met once with twice the say, and a repeated
# one twice in different batches; the networks end alike, not equal.
CANNOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": "a weight is no repetition in mini-batches",
    "check_sample_weight_equivalence_on_sparse_data": "a weight is no repetition in mini-batches",
}


@pytest.fixture(scope="module")
def paths():
    """A classifier of one path a row, with its rows."""
    X, group = blobs()
    return classifier().fit(X, LEAVES[group]), X, LEAVES[group]


# ---------------------------------------------------------------------- scikit-learn


@pytest.mark.filterwarnings("ignore:all training rows have the label")
@parametrize_with_checks([classifier(epochs=15)], expected_failed_checks=lambda _: CANNOT_APPLY)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_grid_search_pipeline_and_clone(paths):
    _, X, y = paths
    pipe = make_pipeline(StandardScaler(), classifier(standardize=False, epochs=10))
    grid = {"hierarchicalclassifier__loss": ["hcl", "leaf-ce"]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.predict(X[:3]).tolist() == y[:3].tolist()
    # A copy has the parameters and nothing of the training; set_params reaches it.
    copy = clone(search.best_estimator_[-1]).set_params(epochs=np.int64(3), learning_rate=0.01)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert len(copy.fit(X, y).history_) == 3


def test_cross_validation_over_several_labels_takes_any_folds(paths):
    _, X, y = paths
    several = [[label] for label in y]
    scores = cross_val_score(classifier(epochs=10), X, several, cv=KFold(2, shuffle=True))
    assert scores.min() > 0.9


def test_a_fold_without_a_class_still_scores(paths):
    """A label that the training fold lacks is a miss, not an error; a given hierarchy has it."""
    _, X, y = paths
    X, y = np.r_[X, X[:1]], [*y, "plant/rose/dog rose"]
    fitted = classifier().fit(X[:-1], y[:-1])
    with pytest.warns(LabelWarning, match="1 row has 1 label that training never saw"):
        assert fitted.score(X, y) == pytest.approx(fitted.score(X[:-1], y[:-1]) * 150 / 151)
    h = Hierarchy.from_paths(sorted(set(y)))
    scores = cross_val_score(
        classifier(epochs=5), X, y, cv=KFold(2), params={"hierarchy": h}, error_score="raise"
    )
    assert scores.min() > 0.5
    with pytest.raises(LabelError, match=r"row 2: unknown label 'cow'"):
        classifier().fit(X[:3], ["plant/oak", "animal/cat", "cow"], h)
    with pytest.warns(LabelWarning, match="scored at the nearest known class above"):
        classifier(epochs=1).fit(X, y, h).score(X[:2], ["plant/oak", "plant/rse"])


# ---------------------------------------------------------------------- determinism, batches


def test_the_same_random_state_gives_the_same_model(paths):
    fitted, X, y = paths
    again = clone(fitted).fit(X, y)
    assert np.array_equal(fitted.predict_proba(X), again.predict_proba(X))
    other = clone(fitted).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(fitted.predict_proba(X), other.predict_proba(X))
    # A generator is drawn from, and None is different each time.
    drawn = [
        clone(fitted).set_params(epochs=1, random_state=state).fit(X, y).predict_proba(X)
        for state in (np.random.RandomState(5), np.random.RandomState(5), None, None)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[2], drawn[3])


def test_a_row_does_not_see_its_batch():
    """With a wide network single precision would move the probabilities by more than 1e-7."""
    X, group = blobs()
    wide = classifier(epochs=3, network_options={"width": 800}).fit(X, LEAVES[group])
    whole = wide.predict_proba(X)
    alone = np.concatenate([wide.predict_proba(row[None]) for row in X])
    np.testing.assert_allclose(alone, whole, rtol=1e-12)
    np.testing.assert_allclose(wide.predict_proba(X[::-1])[::-1], whole, rtol=1e-12)


def test_training_leaves_the_global_generators_alone(paths):
    _, X, y = paths
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    classifier(epochs=1).fit(X, y).predict(X)
    assert (torch.rand(1), np.random.rand()) == before  # noqa: NPY002


# ---------------------------------------------------------------------- forms of labels


def test_one_path_per_row(paths):
    fitted, X, y = paths
    assert fitted.recipe_ == "quick"
    assert fitted.recipe_reason_ == "inputs are numbers, and every training row has one path"
    assert fitted.classes_.tolist() == sorted(LEAVES)
    assert (fitted.predict(X) == y).mean() > 0.98
    assert fitted.score(X, y) == accuracy_score(y, fitted.predict(X))
    assert fitted.predict_proba(X).shape == (150, 5)
    p = fitted.predict_node_proba(X)
    assert p.shape == (150, 8)
    column = {name: number for number, name in enumerate(fitted.hierarchy_.names)}
    children = p[:, [column["animal/dog"], column["animal/cat"]]].sum(axis=1)
    np.testing.assert_allclose(children, p[:, column["animal"]], rtol=1e-5)
    np.testing.assert_allclose(p[:, [column["animal"], column["plant"]]].sum(axis=1), 1)


@pytest.mark.parametrize(
    ("labels", "sorted_labels"),
    [
        (np.array([7, -3, 10, 2, 0]), [-3, 0, 2, 7, 10]),
        (np.array([1.0, 3.0, 2.0, 5.0, 4.0]), [1.0, 2.0, 3.0, 4.0, 5.0]),
        (np.array(["10", "2", "b", "a", "B"]), ["10", "2", "B", "a", "b"]),
        (np.array([True, False, True, False, True]), [False, True]),
        (np.array(["x", "y", "z", "u", "v"], dtype=object), ["u", "v", "x", "y", "z"]),
    ],
    ids=["ints", "floats", "texts", "bools", "objects"],
)
def test_plain_values_come_back_as_they_were(labels, sorted_labels):
    X, group = blobs()
    y = labels[group]
    fitted = classifier().fit(X, y)
    answer = fitted.predict(X)
    assert answer.dtype == y.dtype
    assert fitted.classes_.tolist() == sorted_labels
    assert fitted.classes_.dtype.kind == y.dtype.kind
    assert (answer == y).mean() > 0.98
    # The columns are those of classes_, as scikit-learn's scores read them.
    assert log_loss(y, fitted.predict_proba(X), labels=fitted.classes_) < 0.2
    assert fitted.predict(X[:1], decoder="stop", threshold=1.0).tolist() == [None]


def test_several_labels_per_row():
    """Two groups have two labels in different branches, one has an inner class, one has none."""
    X, group = blobs()
    sets = [["plant/oak", "animal/dog/pug"], ["plant/oak"], ["animal/dog"], [], ["animal/cat"]]
    y = [sets[number] for number in group]
    fitted = classifier(epochs=60).fit(X, y)
    assert fitted.recipe_ == "quick"
    assert fitted.recipe_reason_.endswith("30 of 150 training rows have several labels")
    answers = fitted.predict(X)
    assert [answers[row] for row in range(5)] == sets
    targets, h = Labels(y, fitted.hierarchy_).targets(), fitted.hierarchy_
    expected = hierarchical_f1(h.encode(answers), targets, h)
    assert fitted.score(X, y) == pytest.approx(float(expected))
    assert expected > 0.95
    p = fitted.predict_proba(X)
    for number in range(len(h)):
        for parent in h.parents(number):
            assert (p[:, number] <= p[:, parent]).all()
    # A weight counts a row so many times.
    weights = np.where(group == 0, 3, 1)
    repeated = fitted.score(
        np.repeat(X, weights, axis=0), [y[i] for i in np.repeat(range(150), weights)]
    )
    assert fitted.score(X, y, sample_weight=weights) == pytest.approx(repeated)


def test_inner_classes_are_predicted_where_rows_end_there():
    X, group = blobs()
    y = np.array(["animal/dog", "animal/dog/pug", "animal", "animal/cat", "plant"])[group]
    for recipe in ("hcl", "flat"):
        fitted = classifier(recipe=recipe, epochs=60).fit(X, y)
        assert fitted.score(X, y) > 0.95, recipe


def test_rows_without_a_label_are_predicted_as_none():
    X, group = blobs()
    y = [None if label == "plant/oak" else str(label) for label in LEAVES[group]]
    fitted = classifier(epochs=60).fit(X, y)
    assert fitted.recipe_reason_.endswith("30 of 150 training rows have no label")
    assert fitted.predict(X[:5]).tolist() == y[:5]
    assert fitted.score(X, y) > 0.95


def test_descendants_of_a_label_may_be_ignored():
    """Half the dogs are labeled 'dog' alone, a tenth of the rows nothing; breeds are learned."""
    X, group = blobs(300)
    y = LEAVES[group].astype(object)
    draw = np.random.default_rng(1)
    coarse = draw.random(300) < 0.5
    y[coarse & (group < 2)] = "animal/dog"
    y[draw.random(300) < 0.1] = None
    fitted = classifier(unlabeled_descendants="ignore").fit(X, y)
    assert fitted.recipe_reason_.endswith("every labeled training row has one path")
    new, truth = blobs(100, seed=5)
    assert (fitted.predict(new) == LEAVES[truth]).mean() > 0.9
    # A breed is no mistake for a row that only says 'dog'; another branch is.
    dogs = np.isin(fitted.predict(X), LEAVES[:2])
    assert fitted.score(X[dogs], ["animal/dog"] * dogs.sum()) == 1
    assert fitted.score(X[dogs], ["animal/cat"] * dogs.sum()) == 0
    with pytest.raises(DataError, match="no row has a label, so there is nothing to score"):
        fitted.score(X[:2], [None, None])
    # Under "negative" the same labels say that a dog is of no breed.
    strict = classifier().fit(X[y != None], y[y != None])  # noqa: E711
    assert (strict.predict(new[truth < 2]) == "animal/dog").any()


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_one_column_per_level(kind):
    X, group = blobs()
    cells = np.array(
        [["a", "x", 1], ["a", "x", 2], ["a", "y", None], ["b", None, None], ["c", "x", 1]],
        dtype=object,
    )[group]
    columns = dict(zip(["top", "middle", "low"], cells.T.tolist(), strict=True))
    y = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "array": lambda _: cells}[kind](columns)
    fitted = classifier(epochs=60).fit(X, y)
    assert "a/x/2" in fitted.classes_
    assert fitted.predict(X[:5]).tolist() == cells[:5].tolist()
    assert fitted.score(X, y) > 0.95


def test_a_given_hierarchy():
    X, group = blobs()
    h = Hierarchy.from_edges(
        [("p", "q"), ("p", "r"), ("s", "r"), ("s", "t"), ("r", "u"), ("r", "v")]
    )
    names = np.array(["q", "t", "u", "v", "q"])[group]
    fitted = classifier().fit(X, names, hierarchy=h)
    assert not fitted.hierarchy_.is_tree
    assert fitted.score(X, names) > 0.95
    # Numbers are then class numbers, and come back as such.
    numbers = np.array([h.index(name) for name in names])
    same = classifier().fit(X, numbers, h)
    assert np.array_equal(same.predict(X), [h.index(name) for name in fitted.predict(X)])
    assert same.classes_.tolist() == h.leaves.tolist()
    # Bare names find their class; the answer is its name.
    tree = Hierarchy.from_paths(LEAVES.tolist())
    bare = np.array([name.split("/")[-1] for name in LEAVES])[group]
    assert classifier().fit(X, bare, tree).predict(X[:2]).tolist() == LEAVES[:2].tolist()


# ---------------------------------------------------------------------- forms of inputs


def test_frames_remember_their_columns(paths):
    _, X, y = paths
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = classifier(epochs=5).fit(frame, pd.Series(y))
    assert fitted.feature_names_in_.tolist() == list("abcd")
    by_polars = fitted.predict_proba(pl.DataFrame(frame.to_dict("list")))
    assert np.array_equal(by_polars, fitted.predict_proba(frame))
    with pytest.raises(ValueError, match="The feature names should match those"):
        fitted.predict(frame.rename(columns={"a": "A"}))


def test_another_number_of_columns_is_refused(paths):
    fitted, X, _ = paths
    with pytest.raises(ValueError, match="X has 3 features, but HierarchicalClassifier is exp"):
        fitted.predict(X[:, :3])
    with pytest.raises(DataError, match="learned from numbers, but X holds texts"):
        fitted.predict(["a text"])
    with pytest.raises(DataError, match="learned from texts, but X holds numbers"):
        classifier(epochs=1, network_options=None).fit(*texts(10)).predict(X)


@pytest.mark.parametrize("form", [csr_array, csr_matrix])
def test_sparse_rows(form):
    X, group = blobs()
    X = np.where(X > 0, X, 0)
    fitted = classifier(network_options=None).fit(form(X), LEAVES[group])
    assert fitted.recipe_ == fitted.pipeline_.network_spec.name == "linear"
    assert fitted.pipeline_.preprocessor is None
    bag = classifier(network_options=None, recipe="hcl").fit(form(X), LEAVES[group])
    assert bag.pipeline_.network_spec.name == "token-bag"
    assert bag.score(form(X), LEAVES[group]) > 0.95
    assert fitted.score(form(X), LEAVES[group]) > 0.95
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.predict_proba(form(X)), rtol=1e-9)
    dense = classifier().fit(X, LEAVES[group])
    assert np.array_equal(dense.predict_proba(form(X)), dense.predict_proba(X))
    X[3, 2] = 1e200
    with pytest.raises(DataError, match=r"row 3, column 2 .*: 1e\+200 does not fit float32"):
        fitted.predict(form(X))


@pytest.mark.parametrize("form", [list, np.array, pd.Series, lambda t: pl.Series(t)])
def test_texts(form):
    X, y = texts()
    fitted = classifier(network_options={"width": 8}).fit(form(X), y)
    assert fitted.predict(form(["bark", "whiskers"])).tolist() == ["plant/oak", "animal/cat"]
    assert not hasattr(fitted, "n_features_in_")


def test_texts_through_a_pipeline():
    X, y = texts()
    pipe = make_pipeline(TfidfVectorizer(), classifier(network_options=None))
    assert cross_val_score(pipe, X, y, cv=2).min() > 0.9
    assert pipe.fit(X, y).predict(["an acorn"]).tolist() == ["plant/oak"]


def test_missing_numbers():
    X, group = blobs()
    X[::7, 1] = np.nan
    names = ["one", "two", "three", "four"]
    fitted = classifier().fit(pd.DataFrame(X, columns=names), LEAVES[group])
    new = pd.DataFrame(X[:3], columns=names)
    new.iloc[2, 1] = np.nan
    assert np.isfinite(fitted.predict_proba(new)).all()
    new.iloc[2, 3] = np.nan
    for method in (fitted.predict, fitted.predict_proba):
        with pytest.warns(MissingWarning, match=r"1 of 3 rows lacks .*: 'four' \(1\); an av"):
            assert len(method(new)) == 3
    fitted.set_params(missing="error")
    with pytest.raises(DataError, match=r"row 2 \(.*\), column 'four': the value is missing, but"):
        fitted.predict(new)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        fitted.predict(new.replace(np.nan, np.inf))
    with pytest.raises(ValueError, match="Input X contains infinity"):
        classifier().fit(np.full((5, 2), np.inf), list("abcde"))
    X = csr_array(np.nan_to_num(X))
    sparse = classifier(network_options=None, epochs=1).fit(X, LEAVES[group])
    X.data[0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sparse.predict(X)
    with pytest.raises(DataError, match=r"row 0, column 0 .* missing"):
        sparse.predict(X.toarray())


def test_numbers_are_standardized_by_default(paths):
    _, X, y = paths
    scaled, shifted = classifier(recipe="hcl", epochs=5), X * 1000 + 5e4
    same = scaled.fit(X, y).predict_proba(X), clone(scaled).fit(shifted, y).predict_proba(shifted)
    np.testing.assert_allclose(*same, atol=1e-3)
    raw = classifier(recipe="hcl", epochs=5, standardize=False).fit(X, y)
    assert not np.allclose(raw.predict_proba(X), same[0], atol=1e-3)
