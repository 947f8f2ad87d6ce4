"""Piecewise-linear encoding of numbers against plain loops, and what every encoding must obey."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from features.example_rows import INF, NAN, random_numbers
from features.saved_state import save_and_load
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import PiecewiseLinearPreprocessor, from_state, numbers
from reference.piecewise import edges_of, encode, encode_rows

few_numbers = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.just(NAN) | st.integers(-6, 6).map(float) | st.floats(-1e6, 1e6, width=32),
)


def assert_oracle(result, train, rows, bins):
    expected = np.array(encode_rows(train.tolist(), rows.tolist(), bins))
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    # Encoded numbers are of order sqrt(N) at most; float32 holds 7 digits.
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk", [1, 64, 2**20])
@pytest.mark.parametrize("bins", [1, 3, 8, 50])
def test_the_encoding_is_that_of_plain_loops(dtype, chunk, bins, monkeypatch):
    monkeypatch.setattr(numbers, "CHUNK", chunk)
    train, other = random_numbers(120).astype(dtype), random_numbers(50, seed=1).astype(dtype)
    other[:5] *= 3  # outside of the training range
    ours = PiecewiseLinearPreprocessor(bins=bins).fit(train)
    assert ours.input_columns == 5
    for rows in (train, other):
        result = ours.transform(rows)
        assert ours.columns == result.shape[1]
        assert_oracle(result, train, rows, bins)


@settings(max_examples=100, deadline=None)
@given(few_numbers, st.integers(1, 9), st.data())
def test_the_encoding_is_that_of_plain_loops_whatever_the_numbers_are(train, bins, data):
    shape = (3, train.shape[1])
    rows = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e7, 1e7, width=32)))
    ours = PiecewiseLinearPreprocessor(bins=bins).fit(train)
    for found, column in zip(ours.edges, train.T.tolist(), strict=True):
        assert found.tolist() == edges_of(column, bins)
    assert_oracle(ours.transform(rows), train, rows, bins)
    assert_oracle(ours.transform(train), train, train, bins)


@settings(max_examples=100, deadline=None)
@given(few_numbers, st.integers(1, 9), st.floats(), st.floats(min_value=0))
def test_more_never_lowers_any_encoded_number(train, bins, x, more):
    x = float(np.nan_to_num(x))
    y = float(np.nan_to_num(x + more, nan=x))
    ours = PiecewiseLinearPreprocessor(bins=bins).fit(train)
    low, high = (ours.transform(np.full((1, train.shape[1]), value)) for value in (x, y))
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low <= high).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-50, 50), min_size=2, max_size=30, unique=True),
    st.integers(1, 9),
    st.floats(-120, 120),
)
def test_the_sum_of_the_numbers_recovers_the_value(values, bins, x):
    """Before they are standardized, the widths of the bins times the numbers lead from b_0 to x."""
    train = np.array(values, dtype=np.float64)[:, None]
    ours = PiecewiseLinearPreprocessor(bins=bins).fit(train)
    (edges,) = ours.edges
    arrays = ours.state()[1]
    encoded = ours.transform([[x]])[0] * arrays["scale"] + arrays["mean"]
    width = np.diff(edges)
    x = np.clip(x, edges[0] - width[0], edges[-1] + width[-1])  # the margins
    assert edges[0] + encoded @ width == pytest.approx(x, abs=1e-3)


def test_training_rows_have_mean_0_and_deviation_1():
    result = PiecewiseLinearPreprocessor().fit_transform(random_numbers(400))
    np.testing.assert_allclose(result.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(result.std(axis=0)[:-1], 1, rtol=1e-5)
    assert not result[:, -1].any()  # the constant column


def test_a_column_of_few_values_has_few_bins():
    values = np.array([[0, 0, 5, 7], [1, 0, 5, 7], [0, 1, 5, NAN], [1, 2, 5, 7.0]])
    ours = PiecewiseLinearPreprocessor(bins=8).fit(values)
    assert [one.tolist() for one in ours.edges] == [[0, 1], [0, 1, 2], [], []]
    assert ours.columns == 1 + 2 + 1 + 1
    np.testing.assert_allclose(ours.transform(values)[:, 0], [-1, 1, -1, 1])
    # Half of the values are 0: edges are values that occur, never a number between two of them.
    half = np.repeat([0.0, 1.0], 5)[:, None]
    assert PiecewiseLinearPreprocessor().fit(half).edges[0].tolist() == [0, 1]


@pytest.mark.parametrize("values", [[[3.0]], [[3.0], [3.0]], [[NAN], [3.0]], [[NAN], [NAN]]])
def test_a_column_without_two_values_becomes_one_0(values):
    ours = PiecewiseLinearPreprocessor().fit(values)
    found = save_and_load(ours).transform([[3.0], [4.0], [-1e30], [NAN]])
    np.testing.assert_array_equal(found, np.zeros((4, 1)))


def test_missing_values_become_the_mean_of_every_output():
    values = np.array([[0.0], [1.0], [NAN], [2.0], [5.0]])
    result = PiecewiseLinearPreprocessor(bins=3).fit_transform(values)
    assert result.shape == (5, 3)
    np.testing.assert_array_equal(result[2], np.zeros(3))
    np.testing.assert_allclose(result.sum(axis=0), 0, atol=1e-6)


def test_outliers_go_on_for_the_width_of_one_bin():
    train = np.arange(9.0)[:, None]
    ours = PiecewiseLinearPreprocessor(bins=4).fit(train)
    arrays = ours.state()[1]

    def encoded(x):
        return (ours.transform([[x]])[0] * arrays["scale"] + arrays["mean"]).tolist()

    assert encoded(9.0) == pytest.approx(encode(9.0, [0, 2, 4, 6, 8]), abs=1e-6)
    assert encoded(9.0) == pytest.approx([1, 1, 1, 1.5], abs=1e-6)
    assert encoded(1e308) == encoded(10.0) == pytest.approx([1, 1, 1, 2], abs=1e-6)
    assert encoded(-1e308) == encoded(-2.0) == pytest.approx([-1, 0, 0, 0], abs=1e-6)


def test_fitting_again_forgets_and_other_rows_change_nothing():
    ours = PiecewiseLinearPreprocessor().fit(random_numbers(100))
    ours.fit([[0.0], [2.0]])
    np.testing.assert_allclose(ours.transform([[0.0], [1.0], [3.0]]), [[-1], [0], [2]])
    before = ours.transform([[0.3]])
    ours.transform([[1e9]])
    np.testing.assert_array_equal(ours.transform([[0.3], [NAN]])[:1], before)


@pytest.mark.parametrize("values", [[[1, 2], [3, 5]], [[True, False], [False, False]]])
def test_integers_and_booleans_are_numbers(values):
    assert PiecewiseLinearPreprocessor().fit_transform(values).dtype == np.float32


def test_the_inputs_and_the_edges_are_left_alone():
    train = random_numbers(20)
    copy = train.copy()
    ours = PiecewiseLinearPreprocessor().fit(train)
    before = ours.transform(train)
    np.testing.assert_array_equal(train, copy)
    ours.edges[0][:] = 7
    ours.missing[:] = 7
    for array in ours.state()[1].values():
        array[:] = 7
    np.testing.assert_array_equal(ours.transform(train), before)
    assert ours.transform(np.zeros((0, 5))).shape == (0, ours.columns)


def test_encodings_restored_are_equal_bit_for_bit():
    train = np.hstack([random_numbers(100), np.full((100, 1), NAN)])
    ours = PiecewiseLinearPreprocessor(bins=5).fit(train)
    theirs = save_and_load(ours)
    assert (theirs.bins, theirs.columns, theirs.input_columns) == (5, ours.columns, 6)
    assert theirs.missing.tolist() == ours.missing.tolist()
    rows = random_numbers(50, seed=2)
    rows = np.hstack([rows, rows[:, :1]])
    assert ours.transform(rows).tobytes() == theirs.transform(rows).tobytes()


@pytest.mark.parametrize("sample", [2**26, 100], ids=["all rows", "a sample"])
@pytest.mark.parametrize("sizes", [[90], [1, 89], [7, 0, 40, 43]])
def test_rows_in_parts_give_what_they_give_at_once(sizes, sample, monkeypatch):
    monkeypatch.setattr("hierlearn.features.numbers.CHUNK", 60)  # 12 rows a block
    monkeypatch.setattr(numbers, "SAMPLE", sample)
    monkeypatch.setattr(numbers, "FEWEST", 1)
    values = random_numbers(90)
    whole = PiecewiseLinearPreprocessor().fit(values)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    ours = PiecewiseLinearPreprocessor().fit_parts(lambda: iter(parts))
    for name, array in whole.state()[1].items():
        np.testing.assert_array_equal(ours.state()[1][name], array)


def test_a_sample_is_bounded_and_drawn_evenly(monkeypatch):
    monkeypatch.setattr(numbers, "SAMPLE", 4000)
    rows = np.arange(40_000.0).reshape(20_000, 2)
    known, sample = numbers.draw_sample(lambda: np.array_split(rows, 7))
    assert sample.shape == (2000, 2)
    assert known.rows == 20_000
    assert (np.diff(sample[:, 0]) > 0).all()  # every row at most once, in order
    assert (known.low.tolist(), known.high.tolist()) == ([0, 1], [39_998, 39_999])
    counts = np.histogram(sample[:, 0], bins=10, range=(0, 40_000))[0]
    assert (abs(counts - 200) < 5 * np.sqrt(200)).all()
    ours = PiecewiseLinearPreprocessor(bins=4).fit(rows)
    np.testing.assert_allclose(ours.edges[0], [0, 1e4, 2e4, 3e4, 4e4], atol=2000)
    assert ours.edges[0][[0, -1]].tolist() == [0, 39_998]
    result = ours.transform(rows).astype(np.float64)  # standardized over all rows
    np.testing.assert_allclose(result.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(result.std(axis=0), 1, rtol=1e-6)


def test_values_that_the_sample_lacks_still_make_a_bin(monkeypatch):
    monkeypatch.setattr(numbers, "SAMPLE", 1)
    monkeypatch.setattr(numbers, "FEWEST", 10)
    rows = np.full((1000, 1), NAN)
    chosen = numbers.draw_sample(lambda: [np.arange(1000.0)[:, None]])[1][:, 0]
    places = np.setdiff1d(np.arange(1000), chosen)
    rows[places[0]], rows[places[1]] = 4.0, 6.0
    assert PiecewiseLinearPreprocessor().fit(rows).edges[0].tolist() == [4, 6]


def test_values_missing_as_never_in_training_are_found():
    fitted = PiecewiseLinearPreprocessor().fit([[1.0, NAN, 2.0], [2.0, 3.0, 4.0]])
    assert fitted.missing.tolist() == [0, 1, 0]
    assert fitted.newly_missing(np.array([[1.0, NAN, 2.0], [3.0, 1.0, NAN]])) == {2: [1]}
    assert fitted.newly_missing(np.array([[1.0, NAN, 2.0]])) == {}


@pytest.mark.parametrize("missing", [False, True])
def test_the_module_computes_what_transform_does(missing):
    train, other = (random_numbers(*size).astype(np.float32) for size in ((200, 0), (50, 1)))
    train[:, 3] = NAN  # never observed
    other[:5] *= 3
    if not missing:
        other = np.nan_to_num(other)
    fitted = PiecewiseLinearPreprocessor().fit(train)
    module = fitted.as_module()
    found = module(torch.from_numpy(other))
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), fitted.transform(other))
    noise = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    drawn = module.examples(noise).numpy()
    for column, edges in enumerate(fitted.edges):
        if not len(edges):
            continue
        assert (drawn[:, column] < edges[0]).any()  # every bin has examples, and so have both sides
        assert (drawn[:, column] > edges[-1]).any()
        assert np.histogram(drawn[:, column], edges)[0].min() > 100


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0, 2.0], "inputs (2,) must be (N, D)"),
        ([["a", "b"]], "inputs are of dtype <U1, not numbers; mark missing values with NaN"),
        ([[1.0, 2.0], [3.0, INF]], "row 1, column 1 (counted from 0): inf is not a finite number"),
    ],
)
def test_bad_numbers_are_refused_in_fit_and_transform(inputs, message):
    fitted = PiecewiseLinearPreprocessor().fit([[0.0, 1.0]])
    for call in (PiecewiseLinearPreprocessor().fit, fitted.transform):
        with pytest.raises(DataError, match=re.escape(message)):
            call(inputs)


def test_what_cannot_be_fitted_or_transformed_is_refused():
    fitted = PiecewiseLinearPreprocessor().fit(np.zeros((2, 3)))
    with pytest.raises(DataError, match="inputs have 4 columns but 3 were fitted"):
        fitted.transform(np.zeros((2, 4)))
    with pytest.raises(DataError, match="cannot fit on 0 rows"):
        PiecewiseLinearPreprocessor().fit(np.zeros((0, 3)))
    with pytest.raises(DataError, match=r"column 1 .* too far apart to subtract; scale it"):
        PiecewiseLinearPreprocessor().fit([[0.0, 1.7e308], [0.0, -1.7e308]])
    for bins in (0, 1001, 2.5, True):
        with pytest.raises(HierlearnError, match="bins must be an integer from 1 to 1000, not"):
            PiecewiseLinearPreprocessor(bins=bins)


@pytest.mark.parametrize("name", ["edges", "sizes", "missing", "mean", "scale"])
def test_arrays_of_the_wrong_length_are_refused(name):
    state, arrays = PiecewiseLinearPreprocessor(bins=2).fit(np.arange(8.0).reshape(4, 2)).state()
    with pytest.raises(DataError, match=r"damaged: \w+ \(\d+,\) must have shape \(\d+,\)$"):
        from_state(state, {**arrays, name: arrays[name][:-1]})
    del arrays[name]
    with pytest.raises(DataError, match=f"it lacks '{name}'"):
        from_state(state, arrays)


def test_chunks_shrink_with_the_width_of_the_result(monkeypatch):
    monkeypatch.setattr(numbers, "CHUNK", 12)
    values = np.zeros((10, 2))
    assert [len(rows) for _, rows in numbers.chunks(values)] == [6, 4]
    assert [len(rows) for _, rows in numbers.chunks(values, 4)] == [3, 3, 3, 1]
