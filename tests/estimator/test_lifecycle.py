"""The life of a classifier: stopping, weights, decoders, calibration, folders and pickles."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn

from estimator.toy_data import LEAVES, blobs, classifier, texts
from hierlearn import HierarchicalClassifier
from hierlearn.decoding import ConformalSets
from hierlearn.errors import HierlearnError
from hierlearn.features import FEATURES, NumericPreprocessor
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics import hierarchical_f1
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.missing import MissingWarning


@pytest.fixture(scope="module")
def paths():
    """A classifier of one path a row, with its rows."""
    X, group = blobs()
    return classifier().fit(X, LEAVES[group]), X, LEAVES[group]


def test_the_networks_of_an_ensemble_are_averaged(paths):
    _, X, y = paths
    alone = [classifier(epochs=3, random_state=seed).fit(X, y) for seed in (4, 5)]
    together = classifier(epochs=3, random_state=4, ensemble_size=2).fit(X, y)
    mean = np.mean([one.predict_proba(X) for one in alone], axis=0)
    np.testing.assert_allclose(together.predict_proba(X), mean, rtol=1e-3, atol=1e-5)
    logs = together.predict_log_proba(X)
    np.testing.assert_allclose(np.exp(logs), together.predict_proba(X), rtol=1e-12)


class Squares(NumericPreprocessor):
    """Every column, and its square."""

    name = "squares"

    @property
    def columns(self):
        return 2 * super().columns

    @property
    def input_columns(self):
        return super().columns

    def transform(self, inputs):
        numbers = np.asarray(inputs, dtype=np.float32)
        return np.concatenate([numbers, numbers**2], axis=1)


class Silent(Squares):
    """The same, without telling how many columns it reads."""

    name = "silent"
    input_columns = None


@pytest.mark.parametrize("step", [Squares, Silent])
def test_a_step_that_changes_the_columns_is_loaded(paths, tmp_path, monkeypatch, step):
    _, X, y = paths
    monkeypatch.setitem(FEATURES, step.name, step)
    trained = classifier(epochs=2, preprocessing=step.name).fit(X, y)
    loaded = HierarchicalClassifier.load(trained.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict_proba(X), trained.predict_proba(X))
    if step is Squares:
        assert loaded.n_features_in_ == 4
        with pytest.raises(ValueError, match=r"X has 8 features, but .* is expecting 4"):
            loaded.predict(np.concatenate([X, X], axis=1))


def test_numbers_in_bins_are_fitted_saved_and_loaded(paths, tmp_path):
    _, X, y = paths
    options = {"preprocessing": "piecewise-linear", "preprocessing_options": {"bins": 3}}
    trained = classifier(**options).fit(X, y)
    assert trained.pipeline_.preprocessor.columns == 12
    assert trained.n_features_in_ == 4
    assert trained.score(X, y) > 0.9
    loaded = HierarchicalClassifier.load(trained.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict_proba(X), trained.predict_proba(X))
    with pytest.warns(MissingWarning, match=r"2 of 2 rows lack a value .*: 1 \(2\); an average"):
        loaded.predict(np.where(np.arange(4) == 1, np.nan, X[:2]))


def test_early_stopping_keeps_the_best(paths):
    _, X, y = paths
    fitted = classifier(patience=2, metric="hit@1", valid_fraction=0.2).fit(X, y)
    found = [record["valid"]["hit@1"][0] for record in fitted.history_]
    assert len(found) < 30
    assert fitted.pipeline_.config["training"]["best_value"] == [max(found)]
    assert fitted.pipeline_.config["data"]["validation_rows"] == 30


def test_weights_count_rows():
    """Rows with a false label and weight 0 leave no trace; a small one little."""
    X, group = blobs()
    false = np.arange(150) % 3 == 0
    y = np.where(false, LEAVES[(group + 1) % 5], LEAVES[group])
    clean = classifier().fit(X[~false], y[~false]).predict_proba(X)
    weights = np.where(false, 0.0, 2.0)
    assert np.array_equal(classifier().fit(X, y, sample_weight=weights).predict_proba(X), clean)
    little = classifier().fit(X, y, sample_weight=np.where(false, 0.01, 1.0))
    much = classifier().fit(X, y)
    assert little.score(X, LEAVES[group]) > 0.95
    right = np.array([little.classes_.tolist().index(name) for name in LEAVES[group]])
    rows = np.arange(150)
    assert (little.predict_proba(X)[rows, right] > much.predict_proba(X)[rows, right]).mean() > 0.9
    score = little.score(X, y, sample_weight=np.where(false, 0, 1))
    assert score == little.score(X[~false], y[~false])


def test_a_given_module(paths):
    _, X, y = paths
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 8))
    before = net[0].weight.clone()
    first, second = (classifier(network=net, network_options=None).fit(X, y) for _ in range(2))
    assert torch.equal(net[0].weight, before)
    assert first.score(X, y) > 0.95
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    first.partial_fit(X, y)
    with pytest.raises(HierlearnError, match="ensemble_size=2 needs a network of NETWORKS"):
        clone(first).set_params(ensemble_size=2).fit(X, y)
    with pytest.raises(HierlearnError, match="a module of your own reads dense rows"):
        clone(first).fit(csr_array(X), y)
    with pytest.raises(HierlearnError, match="Sequential that was passed in as a module cannot be"):
        first.save("nowhere")


def test_decoders(paths):
    fitted, X, y = paths
    tops = fitted.predict(X, decoder="argmax")
    assert set(tops) == {"animal", "plant"}
    assert fitted.predict(X[:1], decoder="coherent") == [[y[0]]]
    conformal = ConformalSets(fitted.hierarchy_, threshold=0.0)
    assert sorted(fitted.predict(X[:1], decoder=conformal)[0]) == sorted(fitted.hierarchy_.names)
    assert fitted.predict(X[:1], decoder="subset", allowed=["plant"])[0].startswith("plant")
    sets = classifier(
        recipe="hcl", epochs=5, decoder="coherent", decoder_options={"threshold": 0.1}
    ).fit(X, y)
    assert any(len(answer) > 1 for answer in sets.predict(X * 0))
    expected = hierarchical_f1(
        sets.hierarchy_.encode(sets.predict(X)), sets.hierarchy_.encode(y), sets.hierarchy_
    )
    assert sets.score(X, y) == pytest.approx(float(expected))
    with pytest.raises(HierlearnError, match="unknown decoder 'lef'; did you mean 'leaf'"):
        fitted.predict(X, decoder="lef")


def test_calibrate_keeps_the_risk():
    """Noisy rows: at risk 0.1 about one answer in ten is wrong, fewer than without stopping."""
    X, group = blobs(200, noise=2.5)
    fitted = classifier().fit(X, LEAVES[group])
    held, truth = blobs(600, seed=1, noise=2.5)
    new, new_truth = blobs(600, seed=2, noise=2.5)
    plain = fitted.predict(new)
    assert fitted.calibrate(held, LEAVES[truth], risk=0.1) is fitted
    assert np.array_equal(fitted.predict(new), plain)

    def wrong(answers):
        pairs = zip(answers, LEAVES[new_truth], strict=True)
        return np.mean([a is not None and not f"{t}/".startswith(f"{a}/") for a, t in pairs])

    stopped = fitted.predict(new, decoder="stop")
    assert 0.05 < wrong(stopped) < 0.13 < wrong(plain)
    own = classifier(decoder="stop").fit(X, LEAVES[group])
    assert (own.predict(new) != stopped).any()
    own.calibrate(held, LEAVES[truth], risk=0.1)
    assert (own.predict(new) == stopped).all()
    # Other weights, no promise.
    assert not hasattr(own.partial_fit(X, LEAVES[group]), "thresholds_")
    with pytest.raises(HierlearnError, match="needs at least 99 calibration rows"):
        fitted.calibrate(held[:50], LEAVES[truth][:50], risk=0.01)


def test_any_decoder_that_has_calibrate_can_be_calibrated(paths, tmp_path):
    fitted, X, _ = paths
    fitted = pickle.loads(pickle.dumps(fitted))
    held, truth = blobs(400, seed=1)
    fitted.calibrate(held, LEAVES[truth], risk=0.1, decoder="conformal")
    p = torch.from_numpy(fitted.predict_node_proba(held))
    targets = Labels([[one] for one in LEAVES[truth]], fitted.hierarchy_).targets()
    space = fitted.pipeline_.label_space
    wanted = ConformalSets(space).calibrate(p, targets, 0.1).threshold
    assert fitted.thresholds_ == {"conformal": pytest.approx(wanted)}
    fitted.calibrate(held, LEAVES[truth], risk=0.1)
    assert set(fitted.thresholds_) == {"conformal", "stop"}
    loaded = HierarchicalClassifier.load(fitted.save(tmp_path / "m"))
    assert loaded.thresholds_ == fitted.thresholds_
    answers = fitted.predict(X, decoder="conformal")
    assert list(map(list, loaded.predict(X, decoder="conformal"))) == list(map(list, answers))
    message = "decoder leaf cannot be calibrated; a risk takes stop or conformal"
    with pytest.raises(HierlearnError, match=message):
        fitted.calibrate(held, LEAVES[truth], decoder="leaf")


def test_the_own_decoder_is_calibrated_with_its_own_options():
    X, group = blobs(200, noise=2.5)
    held, truth = blobs(400, seed=1, noise=2.5)
    options = {"decoder": "conformal", "decoder_options": {"spread": 0.0}}
    fitted = classifier(**options).fit(X, LEAVES[group])
    fitted.calibrate(held, LEAVES[truth], risk=0.1, decoder="conformal")
    own, named = fitted.predict(held), fitted.predict(held, decoder="conformal")
    assert list(map(list, own)) == list(map(list, named))


FORMS = {
    "paths": LEAVES,
    "ints": np.array([3, 1, 4, 0, 5]),
    "sets": np.array([["a/b", "c"], ["c"], [], ["a"], ["a/d"]], dtype=object),
    "levels": np.array([["a", 1], ["a", 2], ["b", None], ["c", 1], ["d", 3]], dtype=object),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seeds", [1, 2])
def test_save_and_load(form, seeds, tmp_path):
    X, group = blobs()
    X[::5, 0] = np.nan
    frame = pd.DataFrame(X, columns=list("abcd"))
    y = FORMS[form][group]
    fitted = classifier(ensemble_size=seeds, epochs=3, learning_rate=np.float64(0.01)).fit(frame, y)
    if form == "paths":
        fitted.calibrate(frame, y, risk=0.2)
    assert fitted.save(tmp_path / "model") == tmp_path / "model"
    loaded = HierarchicalClassifier.load(tmp_path / "model")
    assert loaded.get_params() == fitted.get_params()
    assert np.array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    assert np.array_equal(loaded.classes_, fitted.classes_)
    for decoder in (None, "stop"):
        before, after = (one.predict(frame, decoder=decoder) for one in (fitted, loaded))
        assert type(before) is type(after)
        assert np.array_equal(before, after) if form != "sets" else before == after
    assert loaded.score(frame, y) == fitted.score(frame, y)
    with pytest.raises(ValueError, match="The feature names should match"):
        loaded.predict(frame[["a", "b"]])
    with pytest.warns(MissingWarning, match="'b'"):
        loaded.predict(pd.DataFrame(np.full((1, 4), np.nan), columns=list("abcd")))
    loaded.partial_fit(frame, y)
    with pytest.raises(HierlearnError, match="exists; pass"):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", force=True)


def test_texts_and_sparse_rows_are_saved_too(tmp_path):
    X, y = texts()
    words = classifier(network_options=None, epochs=5).fit(X, y)
    words.save(tmp_path / "words")
    loaded = HierarchicalClassifier.load(tmp_path / "words")
    assert np.array_equal(loaded.predict_proba(X), words.predict_proba(X))
    matrix = TfidfVectorizer().fit_transform(X)
    sparse = classifier(network_options=None, epochs=5).fit(matrix, y)
    sparse.save(tmp_path / "sparse")
    loaded = HierarchicalClassifier.load(tmp_path / "sparse")
    assert np.array_equal(loaded.predict_proba(matrix), sparse.predict_proba(matrix))


def test_a_model_of_the_command_line_is_loaded(paths, tmp_path):
    """A folder without an estimator's own part answers paths, or sets where its decoder does."""
    fitted, X, y = paths
    fitted.pipeline_.save(tmp_path / "one")
    assert (HierarchicalClassifier.load(tmp_path / "one").predict(X) == fitted.predict(X)).all()
    sets = classifier(epochs=2).fit(X, [[label, "plant"] for label in y])
    sets.pipeline_.save(tmp_path / "sets")
    assert HierarchicalClassifier.load(tmp_path / "sets").predict(X) == sets.predict(X)
    # And the other way round.
    fitted.save(tmp_path / "mine")
    p = Pipeline.load(tmp_path / "mine").probabilities(X)
    np.testing.assert_allclose(p.numpy(), fitted.predict_node_proba(X), atol=1e-5)


def test_pickles_hold_no_second_network(paths):
    fitted, X, _ = paths
    fitted.predict(X)
    stored = pickle.dumps(fitted)
    assert np.array_equal(pickle.loads(stored).predict_proba(X), fitted.predict_proba(X))
    wide = pickle.dumps(clone(fitted).set_params(epochs=1).fit(*blobs()))
    assert len(stored) < len(wide) + 5000


def test_verbose_says_what_was_chosen(paths, capsys):
    _, X, y = paths
    classifier(epochs=1).fit(X, y)
    assert capsys.readouterr().out == ""
    classifier(epochs=1, verbose=True).fit(X, y)
    assert "because inputs are numbers, and every training row has one path" in (
        capsys.readouterr().out
    )
