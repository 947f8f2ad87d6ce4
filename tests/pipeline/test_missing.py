"""Values that only new rows lack: imputed with one warning everywhere, or refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

from hierlearn import HierarchicalClassifier, Predictor, load
from hierlearn.datasets import read_table
from hierlearn.errors import DataError
from hierlearn.pipeline import evaluate, train
from hierlearn.pipeline.missing import MissingWarning
from hierlearn.training import Plan
from mixed_rows import make_rows

INPUTS = ["title", "price", "brand", "day", "used"]


def frame_of(count, seed=0):
    """Rows in which nothing is missing."""
    frame = pd.DataFrame(make_rows(count, seed))
    return frame[[*INPUTS, "class"]].assign(brand=frame["brand"].replace("", "Acme"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing")
    frame_of(300).to_csv(folder / "rows.csv", index=False)
    data = read_table(folder / "rows.csv", label="class")
    assert data.inputs.kinds == {
        **{"title": "text", "price": "number", "brand": "category", "day": "date:iso"},
        "used": "boolean",
    }
    train(data, Plan(recipe="linear"), out=folder / "model")
    return folder / "model"


@pytest.fixture
def holes(tmp_path):
    """Some new rows, each of the first ones without one value, and their whole twins."""
    whole = frame_of(60, seed=1)
    frame = whole.copy()
    for row, name in enumerate(INPUTS):
        frame.loc[row, name] = None
    frame.loc[0, "price"] = None
    frame.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv", frame, whole


SAID = "5 of 60 rows lack a value where every training row has one: 'price' (2), 'title' (1), "


def caught(function, *args):
    """Return what a function returns, and the texts of its warnings of missing values."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(one.message) for one in found if one.category is MissingWarning]


def test_every_way_of_predicting_imputes_and_says_so_once(model, holes):
    path, frame, whole = holes
    pipeline = load(model)
    inputs = pipeline.preprocessor.read(frame[INPUTS])
    answers, said = caught(pipeline.predict, inputs)
    assert len(said) == 1
    assert said[0].startswith(SAID)
    assert answers[5:] == pipeline.predict(whole[INPUTS])[5:]
    classifier = HierarchicalClassifier.load(model)
    ways = {
        "estimator": lambda: list(classifier.predict(frame[INPUTS])),
        "predictor": lambda: list(Predictor(model, keep=())(frame)["path"]),
        "evaluate": lambda: (evaluate(pipeline, read(path, pipeline), ["hit@1"]), answers)[1],
    }
    for name, way in ways.items():
        found, said = caught(way)
        assert found == answers, name
        assert len(said) == 1, name
        assert said[0].startswith(SAID), name


def read(path, pipeline):
    """Return labeled rows."""
    kinds = pipeline.preprocessor.kinds
    return read_table(path, label="class", column_kinds=kinds, hierarchy=pipeline.hierarchy)


def test_where_that_is_asked_for_they_are_refused(model, holes):
    _, frame, _ = holes
    pipeline = load(model)
    pipeline.missing = "error"
    refused = r"column 'title': the value is missing, .*; fill it in, or leave out missing='error'"
    classifier = HierarchicalClassifier.load(model).set_params(missing="error")
    for way in (
        lambda: pipeline.predict(pipeline.preprocessor.read(frame[INPUTS])),
        lambda: classifier.predict(frame[INPUTS]),
        lambda: Predictor(model, missing="error")(frame),
    ):
        with pytest.raises(DataError, match=refused):
            way()
    with pytest.raises(ValueError, match="unknown missing 'drop'"):
        Predictor(model, missing="drop")


def test_an_imputed_value_is_the_average_of_the_training_rows(model, holes):
    _, frame, whole = holes
    pipeline = load(model)
    step = pipeline.preprocessor
    rows = step.transform(step.read(frame[INPUTS])).toarray()
    trained = step.transform(step.read(frame_of(300)[INPUTS])).toarray()
    of_price = list(range(step._numbers.columns))
    np.testing.assert_allclose(trained[:, of_price].mean(axis=0), 0, atol=1e-5)
    assert not rows[1, of_price].any()  # encoded numbers are standardized, so that is the mean
    used = len(of_price)  # the only boolean
    assert rows[4, used] == pytest.approx(trained[:, used].mean(), abs=1e-6)
    assert rows[5:].tolist() == step.transform(step.read(whole[INPUTS])).toarray()[5:].tolist()


def test_what_was_missing_in_training_goes_as_it_went(tmp_path):
    rows = frame_of(200)
    rows.loc[::7, INPUTS] = None
    rows.to_csv(tmp_path / "rows.csv", index=False)
    pipeline = train(read_table(tmp_path / "rows.csv", label="class"), Plan(recipe="linear"))
    new = rows.head(20)[INPUTS]
    _, said = caught(pipeline.predict, pipeline.preprocessor.read(new))
    assert said == []


def test_a_memory_takes_no_row_that_lacks_what_no_other_does():
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = ["a/b", "a/c", "d", "d"] * 10
    model = HierarchicalClassifier(recipe="neighbors", epochs=1, random_state=0).fit(X, y)
    X[0, 1] = np.nan
    with pytest.warns(MissingWarning, match=r"1 of 40 rows lacks a value .*: 1 \(1\); an average"):
        assert len(model.predict(X)) == 40
    with pytest.raises(DataError, match=r"row 0 .*, column 1: the value is missing.*fill it in$"):
        model.remember(X[:2], y[:2])


def test_columns_without_a_value_are_left_out_with_a_warning():
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:, 1] = np.nan
    y = ["a/b", "a/c", "d", "d"] * 10
    model = HierarchicalClassifier(recipe="hcl", epochs=1, random_state=0)
    with pytest.warns(UserWarning, match="column 1 has no value in any training row, and is left"):
        model.fit(X, y)
    X[:, 1] = 5.0
    p = model.predict_proba(X)
    X[:, 1] = -5.0
    np.testing.assert_array_equal(model.predict_proba(X), p)
    frame = pd.DataFrame(X, columns=list("abc")).assign(c=np.nan, d=["red", "blue"] * 20)
    with pytest.warns(UserWarning, match="column 'c' has no value in any training row, and is"):
        HierarchicalClassifier(recipe="hcl", epochs=1, random_state=0).fit(frame, y)
    with pytest.raises(DataError, match="no column has a value in any training row"):
        model.fit(np.full((40, 3), np.nan), y)


def test_marks_of_missing_numbers_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"{one},{n},c\n" for n, one in enumerate(MARKED)))
    found = read_table(path, label="y").inputs[:, 0]
    np.testing.assert_array_equal(found, np.float32([1, *[np.nan] * 7, 2.5]))


MARKED = ["1", "", "NA", "n/a", "nan", "NaN", "null", "None", "2.5"]
