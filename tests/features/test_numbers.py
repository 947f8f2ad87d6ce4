"""Preprocessing of numbers against scikit-learn's own imputer and scaler."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from features.example_rows import INF, NAN, random_numbers
from features.saved_state import save_and_load
from hierlearn.errors import DataError
from hierlearn.features import NumericPreprocessor, from_state, numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk", [1, 64, 2**20])
def test_numbers_are_those_of_simple_imputer_and_standard_scaler(dtype, chunk, monkeypatch):
    monkeypatch.setattr(numbers, "CHUNK", chunk)
    train, other = random_numbers(200).astype(dtype), random_numbers(50, seed=1).astype(dtype)
    # The oracle computes in float64 too, or its float32 means would be the less exact ones.
    oracle = make_pipeline(SimpleImputer(), StandardScaler()).fit(train.astype(np.float64))
    ours = NumericPreprocessor().fit(train)
    for rows in (train, other):
        result = ours.transform(rows)
        assert result.dtype == np.float32
        # Relative to a deviation of 1; float32 holds 7 digits, and column 1 loses none in float64.
        np.testing.assert_allclose(
            result, oracle.transform(rows.astype(np.float64)), rtol=1e-6, atol=1e-6
        )


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.just(NAN) | st.integers(-1000, 1000).map(float),
    )
)
def test_numbers_agree_with_the_oracle_whatever_is_missing(values):
    imputer = SimpleImputer(keep_empty_features=True)
    oracle = make_pipeline(imputer, StandardScaler()).fit(values.astype(np.float64))
    result = NumericPreprocessor().fit_transform(values)
    np.testing.assert_allclose(result, oracle.transform(values), rtol=1e-5, atol=1e-6)


def test_without_standardizing_only_the_missing_change():
    train = np.array([[1.0, NAN], [NAN, 4.0], [2.0, 8.0]])
    result = NumericPreprocessor(standardize=False).fit_transform(train)
    np.testing.assert_array_equal(result, [[1.0, 6.0], [1.5, 4.0], [2.0, 8.0]])


def test_the_statistics_come_from_the_training_rows_alone():
    train, other = random_numbers(100), random_numbers(30, seed=1)
    ours = NumericPreprocessor().fit(train)
    before = ours.transform(train)
    alone = ours.transform(other[:1])
    ours.transform(other * 1000)
    np.testing.assert_array_equal(ours.transform(train), before)
    np.testing.assert_array_equal(ours.transform(other)[:1], alone)
    missing = ours.transform(np.full((1, 5), NAN))
    np.testing.assert_array_equal(missing, np.zeros((1, 5)))


def test_fitting_again_forgets():
    ours = NumericPreprocessor().fit(random_numbers(100))
    ours.fit([[0.0], [2.0]])
    np.testing.assert_array_equal(ours.transform([[3.0]]), [[2.0]])


def test_a_constant_column_keeps_scale_1_and_becomes_exactly_0():
    # 0.1 has no exact mean in binary; a scale made of rounding errors would blow this up.
    train = np.full((1000, 1), 0.1)
    ours = NumericPreprocessor().fit(train)
    np.testing.assert_array_equal(ours.transform(train), np.zeros((1000, 1)))
    np.testing.assert_allclose(ours.transform([[1.1]]), [[1.0]], rtol=1e-6)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_column_never_seen_becomes_0_even_when_it_has_a_value_later(standardize):
    ours = NumericPreprocessor(standardize=standardize).fit([[NAN, 1.0], [NAN, 3.0]])
    np.testing.assert_array_equal(ours.transform([[5.0, 2.0], [NAN, 2.0]])[:, 0], [0.0, 0.0])


def test_a_column_constant_in_one_chunk_only_is_not_constant(monkeypatch):
    monkeypatch.setattr(numbers, "CHUNK", 1)
    for train in ([[0.0], [2.0], [2.0], [0.0]], [[0.0], [0.0], [2.0], [2.0]]):
        result = NumericPreprocessor().fit_transform(train)
        np.testing.assert_array_equal(result, np.array(train) - 1)
        result = NumericPreprocessor().fit_transform(np.array(train) * 10)
        np.testing.assert_array_equal(result, np.array(train) - 1)


def test_a_large_mean_keeps_the_deviation_precise():
    train = (16_777_200 + np.arange(10)).astype(np.float32)[:, None]
    result = NumericPreprocessor().fit_transform(train)
    np.testing.assert_allclose(result.std(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("values", [[[1, 2], [3, 5]], [[True, False], [False, False]]])
def test_integers_and_booleans_are_numbers(values):
    assert NumericPreprocessor().fit_transform(values).dtype == np.float32


def test_the_inputs_are_left_alone():
    train = random_numbers(20).astype(np.float32)
    copy = train.copy()
    NumericPreprocessor().fit_transform(train)
    np.testing.assert_array_equal(train, copy)


def test_no_rows_transform_to_no_rows():
    assert NumericPreprocessor().fit(random_numbers(5)).transform(np.zeros((0, 5))).shape == (0, 5)


@pytest.mark.parametrize("standardize", [True, False])
def test_numbers_restored_are_equal_bit_for_bit(standardize):
    train = np.hstack([random_numbers(100), np.full((100, 1), NAN)])
    ours = NumericPreprocessor(standardize=standardize).fit(train)
    theirs = save_and_load(ours)
    assert theirs.standardize == standardize
    assert theirs.columns == ours.columns == 6
    rows = random_numbers(50, seed=2)
    rows = np.hstack([rows, rows[:, :1]])
    assert ours.transform(rows).tobytes() == theirs.transform(rows).tobytes()


def test_the_state_is_a_copy():
    ours = NumericPreprocessor().fit([[0.0], [2.0]])
    ours.state()[1]["mean"][:] = 100
    np.testing.assert_array_equal(ours.transform([[3.0]]), [[2.0]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0, 2.0], "inputs (2,) must be (N, D)"),
        ([["a", "b"]], "inputs are of dtype <U1, not numbers; mark missing values with NaN"),
        ([[1.0, None]], "inputs are of dtype object, not numbers"),
        ([[1.0, 2.0], [3.0, INF]], "row 1, column 1 (counted from 0): inf is not a finite number"),
        ([[-INF, 2.0]], "row 0, column 0 (counted from 0): -inf is not a finite number"),
    ],
)
def test_bad_numbers_are_refused_in_fit_and_transform(inputs, message):
    fitted = NumericPreprocessor().fit([[0.0, 1.0]])
    for call in (NumericPreprocessor().fit, fitted.transform):
        with pytest.raises(DataError, match=re.escape(message)):
            call(inputs)


def test_another_number_of_columns_is_refused_showing_both():
    fitted = NumericPreprocessor().fit(np.zeros((2, 3)))
    with pytest.raises(DataError, match="inputs have 4 columns but 3 were fitted"):
        fitted.transform(np.zeros((2, 4)))


def test_fitting_on_no_rows_is_refused():
    with pytest.raises(DataError, match="cannot fit on 0 rows"):
        NumericPreprocessor().fit(np.zeros((0, 3)))


def test_numbers_that_overflow_are_refused_rather_than_made_infinite():
    with pytest.raises(DataError, match=r"column 1 .* too large to square"):
        NumericPreprocessor().fit([[0.0, 1e300], [0.0, -1e300]])
    fitted = NumericPreprocessor().fit([[0.0], [1e-30]])
    with pytest.raises(DataError, match=r"row 1, column 0 .*: 1e\+30 does not fit float32"):
        fitted.transform([[0.0], [1e30]])


def test_arrays_of_different_length_are_refused():
    state, arrays = NumericPreprocessor().fit([[1.0, 2.0]]).state()
    with pytest.raises(DataError, match=r"damaged: scale \(1,\) must have shape \(2,\)"):
        from_state(state, {**arrays, "scale": np.ones(1)})


@pytest.mark.parametrize("sizes", [[50], [1, 49], [7, 0, 20, 23]])
def test_numbers_in_parts_give_what_they_give_at_once(sizes, monkeypatch):
    monkeypatch.setattr("hierlearn.features.numbers.CHUNK", 60)  # 12 rows a block
    values = random_numbers(50)
    whole = NumericPreprocessor().fit(values)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    ours = NumericPreprocessor().fit_parts(lambda: iter(parts))
    for name, array in whole.state()[1].items():
        np.testing.assert_array_equal(ours.state()[1][name], array)


def test_values_missing_as_never_in_training_are_found():
    fitted = NumericPreprocessor().fit([[1.0, NAN, 2.0], [2.0, 3.0, 4.0]])
    for rows, found in (
        ([[1.0, NAN, 2.0]], {}),
        ([[1.0, NAN, 2.0], [3.0, 1.0, NAN]], {2: [1]}),
        ([[0.0, NAN, NAN], [NAN, 1.0, 2.0], [NAN, 1.0, 2.0]], {0: [1, 2], 2: [0]}),
        ([[1, 2, 3]], {}),
        ([[NAN, NAN]], {}),  # transform refuses the width
    ):
        given = fitted.newly_missing(np.array(rows))
        assert {column: where.tolist() for column, where in given.items()} == found
    with pytest.raises(DataError, match="is not fitted yet"):
        NumericPreprocessor().newly_missing(np.zeros((1, 3)))


@pytest.mark.parametrize("standardize", [True, False])
def test_the_module_computes_what_transform_does(standardize):
    train, other = (random_numbers(*size).astype(np.float32) for size in ((200, 0), (50, 1)))
    train[:, 3] = NAN  # never observed
    fitted = NumericPreprocessor(standardize=standardize).fit(train)
    module = fitted.as_module()
    found = module(torch.from_numpy(other))
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), fitted.transform(other))
    if standardize:
        noise = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
        back = fitted.transform(module.examples(torch.from_numpy(noise)).numpy())
        known = [0, 2, 4]  # column 1 has a mean of 1e6, so float32 keeps few digits of it
        np.testing.assert_allclose(back[:, known], noise[:, known], atol=1e-3)
    fitted.fit(other)
    assert not np.array_equal(module.mean.numpy(), fitted.state()[1]["mean"])  # a copy
    with pytest.raises(DataError, match="is not fitted yet"):
        NumericPreprocessor().as_module()


def test_what_was_missing_in_training_is_known_and_kept():
    values = np.array([[1.0, NAN, NAN], [2.0, 3.0, NAN], [3.0, NAN, NAN]])
    ours = save_and_load(NumericPreprocessor().fit(values))
    assert ours.missing.tolist() == [0, 2, 3]
    ours.missing[:] = 9
    assert ours.missing.tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="is not fitted yet"):
        _ = NumericPreprocessor().missing
