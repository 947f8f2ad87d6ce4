"""evaluate and scorers: figures of a classifier on labeled rows, also inside scikit-learn."""

import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimator.toy_data import LEAVES, blobs, classifier, solved
from hierlearn import Hierarchy, join_levels, load, metrics, scorer
from hierlearn.datasets.labels import LabelWarning
from hierlearn.errors import DataError, HierlearnError
from hierlearn.pipeline.seen_rows import row_digests

X, GROUP = blobs(100, noise=2.0)  # some rows are missed
Y = LEAVES[GROUP]
LEVELS = np.array([path.split("/") + [None] * (2 - path.count("/")) for path in Y], dtype=object)
FORMS = {
    "paths": Y,
    "list": Y.tolist(),
    "lists": [path.split("/") for path in Y],
    "sets": [{path} for path in Y],
    "series": pd.Series(Y, index=range(7, 107)),
    "polars series": pl.Series(Y.tolist()),
    "array": LEVELS,
    "frame": pd.DataFrame(LEVELS),
    "polars frame": pl.DataFrame(LEVELS.tolist(), schema=["a", "b", "c"], orient="row"),
}
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def fitted():
    return solved(decoder="leaf").fit(X, Y)  # as probabilities are read without a model


# ---------------------------------------------------------------------- evaluate


@each_form
def test_labels_in_any_form_have_the_same_figures(fitted, form):
    expected = fitted.evaluate(X, Y)
    assert fitted.evaluate(X, FORMS[form]) == expected
    found = metrics.measure(fitted.predict_node_proba(X), FORMS[form], fitted.hierarchy_)
    assert found == expected


def test_the_figures_are_those_that_a_loop_counts(fitted):
    """By hand: of what predict answers, whole paths and their beginnings."""
    predicted = fitted.predict(X)
    found = fitted.evaluate(X, Y)
    assert found["exact"] == np.mean(predicted == Y) == fitted.score(X, Y)
    pairs = [(one.split("/"), other.split("/")) for one, other in zip(predicted, Y, strict=True)]
    for level in (1, 2, 3):
        rows = [a[:level] == b[:level] for a, b in pairs if len(b) >= level]
        assert found["accuracy"][level - 1] == pytest.approx(np.mean(rows))
    wrong = [
        sum(a[k : k + 1] != b[k : k + 1] or a[:k] != b[:k] for k in range(max(len(a), len(b))))
        for a, b in pairs
        if a != b
    ]
    assert found["severity"] == pytest.approx(np.mean(wrong))


def test_a_result_is_a_dict_that_prints_accuracy_first(fitted):
    found = fitted.evaluate(X, Y)
    assert json.loads(json.dumps(found)) == found
    assert list(found)[:2] == ["accuracy", "exact"]
    lines = [line.split() for line in str(found).splitlines()]
    assert repr(found) == str(found)
    assert lines[0] == ["metric", "value", "better"]
    assert [line[:3] for line in lines[1:4]] == [
        ["accuracy,", "level", str(level)] for level in (1, 2, 3)
    ]
    assert lines[4] == ["exact", f"{100 * found['exact']:.2f}", "%", "higher"]
    better = {line[0]: line[-1] for line in lines}
    assert better["severity"] == better["calibration"] == "lower"
    assert not {"answered", "complete"} & set(better)  # all rows are, which says nothing
    assert str(metrics.Evaluation({"hit@1": None})).splitlines()[1].split() == [
        "hit@1",
        "n/a",
        "higher",
    ]


def test_chosen_metrics_and_errors(fitted):
    assert list(fitted.evaluate(X, Y, ["mrr", "hit@1"])) == ["mrr", "hit@1"]
    with pytest.raises(HierlearnError, match=r"unknown metric 'acuracy'"):
        fitted.evaluate(X, Y, ["acuracy"])
    with pytest.raises(DataError, match="inputs have 100 rows but labels have 99"):
        fitted.evaluate(X, Y[:-1])


def test_a_label_that_the_training_lacked_is_scored_at_the_nearest_class_above(fitted):
    more_x, more_y = np.r_[X, X[:3]], [*Y, "plant/rose", "animal/dog/pug/fawn", "stone"]
    above = [*Y, "plant", "animal/dog/pug", []]
    told = (
        "3 rows have 3 labels that training never saw: scored at the nearest known class above; "
        "1 row of them has none above, so any class is wrong there: 'stone'"
    )
    for model in (fitted, solved(hierarchy=fitted.hierarchy_, decoder="leaf").fit(X, Y)):
        with pytest.warns(LabelWarning) as said:
            found = model.evaluate(more_x, more_y)
        assert [str(one.message) for one in said] == [told]
        assert found == fitted.evaluate(
            more_x, [[one] if isinstance(one, str) else one for one in above]
        )
        with pytest.warns(LabelWarning, match="labels that training never saw"):
            assert model.score(more_x, more_y) == found["exact"]
    with pytest.raises(HierlearnError, match="row 0: unknown label 'stone'"):
        fitted.evaluate(X[:1], ["stone"])  # nothing that is known: a wrong column


def test_node_probabilities_have_the_order_of_the_hierarchy():
    """b10 comes before b2 in scikit-learn's order, after it in the hierarchy's."""
    y = np.array(["b10", "b2", "b1"])[GROUP % 3]
    flat = solved().fit(X, y)
    assert flat.classes_.tolist() == ["b1", "b10", "b2"]
    assert flat.hierarchy_.names == ("b1", "b2", "b10")
    nodes = flat.predict_node_proba(X)
    np.testing.assert_allclose(nodes[:, [0, 2, 1]], flat.predict_proba(X), rtol=1e-6)
    accuracy = float(metrics.leaf_accuracy(nodes, y, flat.hierarchy_))
    assert accuracy == flat.evaluate(X, y)["exact"] == flat.score(X, y)
    # A frame names its columns, so its order does not matter.
    frame = pd.DataFrame(flat.predict_proba(X), columns=flat.classes_)
    assert float(metrics.leaf_accuracy(frame, y, flat.hierarchy_)) == accuracy


# ---------------------------------------------------------------------- scorers


def test_scores_are_the_metrics_and_larger_is_better(fitted):
    found = fitted.evaluate(X, Y, "all")
    assert scorer("f1")(fitted, X, Y) == found["f1"]
    assert scorer("accuracy", level=2)(fitted, X, Y) == found["accuracy"][1]
    assert scorer("severity")(fitted, X, Y) == -found["severity"]
    assert scorer("hier-f1")(fitted, X, Y) == found["hier-f1"]
    assert scorer("lca-height")(fitted, X, Y) == -found["lca-height"]
    assert scorer("level-accuracy", level=2)(fitted, X, Y) == found["level-accuracy"][1]


def test_a_search_over_a_pipeline_with_several_scores():
    pipe = make_pipeline(StandardScaler(), solved(standardize=False))
    grid = {"hierarchicalclassifier__l2_penalty": [0.1, 1000.0]}
    scoring = {"f1": scorer("hier-f1"), "cost": scorer("lca-height")}
    search = GridSearchCV(pipe, grid, cv=2, scoring=scoring, refit="f1", error_score="raise")
    search.fit(X, Y)
    assert search.best_params_ == {"hierarchicalclassifier__l2_penalty": 0.1}
    assert (search.cv_results_["mean_test_cost"] < 0).all()
    # A search is scored like what it found.
    assert scorer("mrr")(search, X, Y) == scorer("mrr")(search.best_estimator_, X, Y)
    one = scorer("hier-f1")
    assert pickle.loads(pickle.dumps(one)) == one == clone(one, safe=False)


@pytest.mark.parametrize("form", ["array", "frame", "polars frame"])
def test_level_columns_are_scored_in_cross_validation(form):
    table = FORMS[form]
    cv = KFold(2, shuffle=True, random_state=0)
    expected = cross_val_score(solved(), X, Y, cv=cv, scoring=scorer("leaf-accuracy"))
    found = cross_val_score(solved(), X, table, cv=cv, scoring=scorer("leaf-accuracy"))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        cross_val_score(solved(), X, table, cv=cv), cross_val_score(solved(), X, Y, cv=cv)
    )
    # The accuracy of scikit-learn itself, and stratified folds, take paths.
    accuracy = cross_val_score(solved(), X, join_levels(table), cv=2, scoring="accuracy")
    assert accuracy.min() > 0.4
    np.testing.assert_array_equal(accuracy, cross_val_score(solved(), X, Y, cv=2))


def test_folds_that_lack_a_class_are_scored():
    rare = Y.copy().astype(object)
    rare[0] = "plant/rose"
    with pytest.warns(LabelWarning, match="1 row has 1 label that training never saw"):
        scored = cross_validate(solved(), X, rare, cv=KFold(2), scoring=scorer("hit@1"))
    found = scored["test_score"]
    assert not np.isnan(found).any()


def test_what_scorers_raise(fitted):
    with pytest.raises(HierlearnError, match=r"unknown metric 'f2'"):
        scorer("f2")
    with pytest.raises(HierlearnError, match="mean-level is no score: neither more nor less"):
        scorer("mean-level")
    with pytest.raises(HierlearnError, match="level-accuracy has one value per level; choose one"):
        scorer("level-accuracy")
    with pytest.raises(HierlearnError, match="level=2 cannot be scored: mrr is one number"):
        scorer("mrr", level=2)
    with pytest.raises(HierlearnError, match="level=0 cannot be scored: levels count from 1"):
        scorer("level-accuracy", level=0)
    with pytest.raises(HierlearnError, match="level 9 of level-accuracy does not exist: there are"):
        scorer("level-accuracy", level=9)(fitted, X, Y)
    with pytest.raises(HierlearnError, match="is needed, or a pipeline that ends in one, not Log"):
        scorer("mrr")(LogisticRegression().fit(X, Y), X, Y)


def test_a_hierarchy_may_be_a_parameter(tmp_path):
    h = Hierarchy.from_paths([*LEAVES, "plant/rose"])
    by_parameter = solved(hierarchy=h)
    assert clone(by_parameter).get_params()["hierarchy"] == h
    by_parameter.fit(X, [name.split("/")[-1] for name in Y])  # bare names
    by_argument = solved().fit(X, Y, h)
    assert by_parameter.hierarchy_ == h
    np.testing.assert_array_equal(by_parameter.predict_proba(X), by_argument.predict_proba(X))
    assert solved(hierarchy=h).fit(X, Y, Hierarchy.from_paths(LEAVES)).hierarchy_ != h
    assert classifier(hierarchy=h, recipe="hcl").partial_fit(X, Y).hierarchy_ == h
    by_parameter.save(tmp_path / "m")
    loaded = type(by_parameter).load(tmp_path / "m")
    assert loaded.hierarchy_ == h
    assert loaded.hierarchy is None  # the model folder has it
    with pytest.raises(HierlearnError, match=r"hierarchy is 'h.txt', not a Hierarchy"):
        solved(hierarchy="h.txt").fit(X, Y)


def test_a_saved_classifier_knows_its_rows(tmp_path):
    X, y = blobs()
    pipeline = load(classifier().fit(X[:30], y[:30]).save(tmp_path / "model"))
    assert pipeline.seen.overlap(row_digests(pipeline, X[:20])).known == 20
    assert pipeline.seen.overlap(row_digests(pipeline, X[30:])).known == 0
