"""Several preprocessing steps side by side."""

import json

import numpy as np
import pytest
import torch

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import FEATURES, NumericPreprocessor, TextPreprocessor, from_state
from hierlearn.features.combined import SeveralPreprocessor
from hierlearn.features.numbers import PiecewiseLinearPreprocessor
from hierlearn.features.texts import LatentPreprocessor

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def test_columns_follow_each_other():
    both = SeveralPreprocessor([NumericPreprocessor(), PiecewiseLinearPreprocessor()]).fit(ROWS)
    one, two = (step().fit(ROWS) for step in (NumericPreprocessor, PiecewiseLinearPreprocessor))
    expected = np.concatenate([one.transform(ROWS), two.transform(ROWS)], axis=1)
    assert np.array_equal(both.transform(ROWS), expected)
    assert both.columns == expected.shape[1]
    assert both.input_columns == 3
    assert (both.reads, both.produces) == ("numbers", "numbers")


def test_texts_give_sparse_columns():
    texts = ["red oak", "white oak", "red maple"]
    both = SeveralPreprocessor([TextPreprocessor(), TextPreprocessor(ngrams=2)]).fit(texts)
    found = both.transform(texts)
    assert (both.reads, both.produces) == ("texts", "sparse")
    assert found.shape == (3, both.columns)
    first = TextPreprocessor().fit(texts)
    assert np.array_equal(found.toarray()[:, : first.columns], first.transform(texts).toarray())


def test_a_stored_state_transforms_alike():
    both = SeveralPreprocessor([NumericPreprocessor(), PiecewiseLinearPreprocessor()]).fit(ROWS)
    settings, arrays = both.state()
    again = from_state(json.loads(json.dumps(settings)), arrays)
    assert isinstance(again, SeveralPreprocessor)
    assert np.array_equal(again.transform(ROWS), both.transform(ROWS))


def test_the_torch_module_transforms_alike():
    both = SeveralPreprocessor([NumericPreprocessor(), PiecewiseLinearPreprocessor()]).fit(ROWS)
    found = both.as_module()(torch.from_numpy(ROWS)).numpy()
    np.testing.assert_allclose(found, both.transform(ROWS), atol=1e-5)


def test_what_is_missing_for_any_step():
    both = SeveralPreprocessor([NumericPreprocessor(), PiecewiseLinearPreprocessor()]).fit(ROWS)
    assert both.newly_missing(ROWS) == {}
    with_hole = ROWS.copy()
    with_hole[4, 1] = np.nan
    assert both.newly_missing(with_hole) == {1: [4]}


def test_it_is_not_chosen_by_name():
    assert "several" not in FEATURES


def test_dense_columns_beside_sparse_ones_become_sparse():
    texts = ["red oak", "white oak", "red maple", "white maple"] * 3
    sparse, dense = TextPreprocessor(), LatentPreprocessor(size=2)
    both = SeveralPreprocessor([sparse, dense]).fit(texts)
    found = both.transform(texts)
    assert both.produces == "sparse"
    expected = np.concatenate(
        [sparse.transform(texts).toarray(), dense.transform(texts)], axis=1
    )  # fmt: skip
    assert np.array_equal(found.toarray(), expected)


def test_steps_must_read_the_same():
    with pytest.raises(HierlearnError, match="at least one"):
        SeveralPreprocessor([])
    with pytest.raises(HierlearnError, match="read the same, not numbers and texts"):
        SeveralPreprocessor([NumericPreprocessor(), TextPreprocessor()])


def test_a_damaged_state():
    with pytest.raises(DataError, match="has no steps"):
        from_state({"name": "several", "steps": []}, {})
