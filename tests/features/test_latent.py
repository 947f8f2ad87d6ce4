"""Texts as numbers, against scikit-learn's n-grams and a dense singular value decomposition."""

import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import FEATURES, from_state
from hierlearn.features.texts import LatentPreprocessor

WORDS = ("oak elm fir ash", "fox cat dog cow", "red blue green gray", "north south east west")


def texts(count=60, seed=0):
    draw = np.random.default_rng(seed)
    groups = [words.split() for words in WORDS]
    return [" ".join(draw.choice(groups[k % 4], 3)) for k in range(count)]


def test_directions_span_those_of_a_dense_decomposition():
    rows = texts()
    step = LatentPreprocessor(4, ngrams=1, char_ngrams=0).fit(rows)
    tfidf = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    x = tfidf.fit_transform(rows).toarray()
    _, _, v = np.linalg.svd(x, full_matrices=False)
    expected = x @ v[:4].T
    expected *= 2 / np.linalg.norm(expected, axis=1, keepdims=True)
    found = step.transform(rows)
    # Directions may be turned; inner products of rows may not.
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=0.02)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2, rtol=1e-5)


def test_similar_texts_lie_near_each_other():
    step = LatentPreprocessor(8).fit(texts())
    oak, elm, fox = step.transform(["oak fir ash", "elm fir ash", "fox cat dog"])
    assert np.linalg.norm(oak - elm) < 0.7 * np.linalg.norm(oak - fox)


def test_a_stored_state_transforms_bit_for_bit():
    step = LatentPreprocessor(8).fit(texts())
    settings, arrays = step.state()
    again = from_state(json.loads(json.dumps(settings)), arrays)
    assert np.array_equal(again.transform(texts(seed=1)), step.transform(texts(seed=1)))


def test_a_text_without_a_known_word_becomes_zeros():
    step = LatentPreprocessor(8).fit(texts())
    assert not step.transform(["zzz", ""]).any()
    assert step.transform([]).shape == (0, step.columns)


def test_fewer_texts_than_numbers():
    step = LatentPreprocessor(300).fit(["oak elm", "fox cat", "red"])
    assert step.columns == 3
    assert np.isfinite(step.transform(["oak", "fox red"])).all()


def test_what_is_refused():
    assert FEATURES["latent"] is LatentPreprocessor
    with pytest.raises(HierlearnError, match="size must be an integer from 1 to 4096"):
        LatentPreprocessor(0)
    with pytest.raises(DataError, match="not fitted yet"):
        LatentPreprocessor().transform(["oak"])
    settings, arrays = LatentPreprocessor(2).fit(texts()).state()
    arrays["directions"] = arrays["directions"][1:]
    with pytest.raises(DataError, match="damaged: directions"):
        from_state(settings, arrays)
