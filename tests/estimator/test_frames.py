"""The estimator on frames whose columns are numbers, categories, texts, dates and booleans."""

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from estimator.toy_data import texts
from hierlearn import HierarchicalClassifier, load
from hierlearn.datasets.tables.table import ColumnWarning
from hierlearn.errors import DataError, HierlearnError
from hierlearn.pipeline.missing import MissingWarning
from mixed_rows import make_rows

INPUTS = ["title", "price", "weight", "brand", "day", "used"]


def make_frame(count=900, seed=0):
    frame = pd.DataFrame(make_rows(count, seed))
    frame["price"] = frame["price"].astype(float)
    frame["weight"] = pd.to_numeric(frame["weight"])
    frame["day"] = pd.to_datetime(frame["day"])
    frame["used"] = frame["used"] == "yes"
    frame["brand"] = frame["brand"].replace("", None)
    return frame


FRAME = make_frame()
X, Y = FRAME[INPUTS], FRAME["class"].to_numpy()


@pytest.fixture(scope="module")
def fitted():
    return HierarchicalClassifier(random_state=0).fit(X[:600], Y[:600])


def score(columns, **parameters):
    classifier = HierarchicalClassifier(random_state=0, **parameters)
    part = X[columns]
    return classifier.fit(part[:600], Y[:600]).score(part[600:], Y[600:])


@pytest.mark.slow
def test_all_columns_together_beat_each_kind_alone(fitted):
    together = fitted.score(X[600:], Y[600:])
    alone = {
        "numbers": score(["price", "weight"], epochs=20),
        "texts": score(["title"]),
        "all but texts": score(INPUTS[1:], epochs=20),
        "all but numbers": score([one for one in INPUTS if one not in ("price", "weight")]),
    }
    assert together > max(alone.values()) + 0.03, (together, alone)
    assert together > 0.85
    assert fitted.recipe_ == "blend"  # linear models by parent and flat, decided by a race


def test_what_scikit_learn_expects_of_names(fitted):
    assert fitted.feature_names_in_.tolist() == INPUTS
    assert fitted.n_features_in_ == 6
    expected = fitted.predict_proba(X[600:])
    np.testing.assert_array_equal(fitted.predict_proba(X[600:][INPUTS[::-1]]), expected)
    pl = pytest.importorskip("polars")
    plain = X[600:].astype(object).where(X[600:].notna(), None)
    own = pl.DataFrame({name: plain[name].tolist() for name in INPUTS})
    np.testing.assert_array_equal(fitted.predict_proba(own), expected)


def test_a_frame_as_it_comes_with_ids_and_constants():
    with pytest.warns(ColumnWarning, match="is not used; drop it, or make it categorical to use"):
        classifier = HierarchicalClassifier(epochs=2, random_state=0).fit(
            FRAME[:600].iloc[:, :-1], Y[:600]
        )
    assert classifier.n_features_in_ == 8
    assert classifier.pipeline_.config["feature_names"] == INPUTS
    answers = classifier.predict(FRAME[600:].iloc[:, :-1])
    np.testing.assert_array_equal(classifier.predict(X[600:]), answers)  # they are not read


def test_a_saved_classifier_answers_alike(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = HierarchicalClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X[600:]), fitted.predict_proba(X[600:]))
    assert again.feature_names_in_.tolist() == INPUTS
    assert again.n_features_in_ == 6
    pipeline = load(tmp_path / "model")
    assert pipeline.predict(X[600:].reset_index()[INPUTS]) == fitted.predict(X[600:]).tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X.drop(columns="brand"), "the table lacks 1 column of the training rows: 'brand'"),
        (X.assign(size=1), "the table has 1 column that no training row has: 'size'; leave them"),
        (
            X.assign(price="cheap"),
            "row 0 (counted from 0), column 'price': 'cheap' is not a finite",
        ),
        (X.assign(day="soon"), "column 'day': 'soon' is not a date of the form iso"),
        (X.to_numpy(), "the model reads a table with the columns title, price"),
        (X["title"], "the classifier learned from a table, but X holds texts"),
    ],
)
def test_other_rows_raise(fitted, rows, message):
    with pytest.raises(DataError, match=re.escape(message)):
        fitted.predict(rows)


def test_missing_values_and_new_categories_are_answered(fitted):
    rows = X[600:610].copy()
    rows["brand"] = "never seen"
    rows["weight"] = np.nan
    rows["title"] = ""
    with pytest.warns(
        MissingWarning, match=r"10 of 10 rows lack a value .*: 'title' \(10\); an av"
    ):
        p = fitted.predict_proba(rows)
    assert np.isfinite(p).all()
    assert not np.array_equal(p, fitted.predict_proba(X[600:610]))


@pytest.mark.slow
def test_frames_of_numbers_are_what_they_were():
    numbers = FRAME[["price", "weight"]]
    a = HierarchicalClassifier(epochs=3, random_state=0).fit(numbers, Y)
    b = HierarchicalClassifier(epochs=3, random_state=0).fit(numbers.to_numpy(), Y)
    assert a.pipeline_.preprocessor.name == "numeric"
    np.testing.assert_array_equal(a.predict_proba(numbers), b.predict_proba(numbers.to_numpy()))
    as_objects = numbers.astype(object)
    c = HierarchicalClassifier(epochs=3, random_state=0).fit(as_objects, Y)
    np.testing.assert_array_equal(a.predict_proba(numbers), c.predict_proba(as_objects))


def test_a_memory_of_mixed_rows_explains_and_grows():
    classifier = HierarchicalClassifier(recipe="neighbors", epochs=3, random_state=0)
    classifier.fit(X[:600], Y[:600])
    (first, *_), *_ = classifier.explain(X[600:602], 2)
    assert first.text in set(X["title"][:600])
    classifier.remember(X[600:610], ["sport/air/kite"] * 10)
    assert "sport/air/kite" in classifier.classes_
    classifier.partial_fit(X[610:620], Y[610:620])
    assert len(classifier.predict(X[600:620])) == 20


def test_several_labels_use_bins_for_the_numbers_of_a_memory():
    several = [[label, "top"] for label in Y[:300]]
    classifier = HierarchicalClassifier(recipe="neighbors", epochs=1, random_state=0)
    classifier.fit(X[:300].drop(columns="title"), several)
    state, _ = classifier.pipeline_.preprocessor.state()
    assert state["parts"][0]["name"] == "piecewise-linear"


def test_it_works_with_the_tools_of_scikit_learn(fitted):
    found = cross_val_score(clone(fitted).set_params(epochs=3), X[:300], Y[:300], cv=2)
    assert found.shape == (2,)
    more = HierarchicalClassifier(random_state=0).partial_fit(X[:300], Y[:300])
    for _ in range(3):
        more.partial_fit(X[300:600], Y[300:600])
    assert more.score(X[600:], Y[600:]) > 0.3


def test_a_module_of_ones_own_reads_dense_rows_alone():
    import torch

    with pytest.raises(HierlearnError, match="a module of your own reads dense rows, but X is"):
        HierarchicalClassifier(network=torch.nn.Linear(3, 14)).fit(X, Y)


def test_one_column_of_texts_in_any_form():
    """A frame with one text column, its array, and a list of the texts all learn."""
    rows, y = texts(60)
    forms = {
        "pandas": pd.DataFrame({"text": rows}),
        "polars": pl.DataFrame({"text": rows}),
        "array": np.array(rows, dtype=object)[:, None],
        "list": rows,
    }
    for name, X in forms.items():
        fitted = HierarchicalClassifier(recipe="linear", random_state=0).fit(X, y)
        assert fitted.score(X, y) > 0.9, name
        assert pickle.loads(pickle.dumps(fitted)).predict(X).tolist() == fitted.predict(X).tolist()
    fitted = HierarchicalClassifier(recipe="linear").fit(forms["pandas"], y)
    with pytest.raises(DataError, match="text"):
        fitted.predict(pd.DataFrame({"words": rows}))
