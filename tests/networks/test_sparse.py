"""SparseRows against SciPy: taking rows, multiplying, making dense."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from hierlearn.errors import HierlearnError
from hierlearn.networks import SparseRows
from hierlearn.networks.layers import Dense


def matrix(rows=7, columns=5, density=0.4, seed=0, form="csr"):
    return sparse.random_array(
        (rows, columns), density=density, format=form, rng=seed, dtype="float32"
    )


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_scipy_matrix_is_taken_over(form):
    found = SparseRows.from_scipy(matrix(form=form))
    assert found.shape == (7, 5)
    assert len(found) == 7
    np.testing.assert_array_equal(found.dense(), matrix().toarray())


@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 5),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 50),
    data=st.data(),
)
def test_rows_are_taken_in_any_order_and_more_than_once(rows, columns, density, seed, data):
    one = matrix(rows, columns, density, seed)
    index = data.draw(st.lists(st.integers(0, rows - 1), max_size=8))
    found = SparseRows.from_scipy(one).take(torch.tensor(index, dtype=torch.int64))
    assert found.members is None
    np.testing.assert_array_equal(found.dense(), one.toarray()[index])


def test_rows_of_members_lie_one_after_another():
    one = matrix()
    index = torch.tensor([[0, 3, 3], [6, 1, 0]])
    found = SparseRows.from_scipy(one).take(index)
    assert found.members == 2
    np.testing.assert_array_equal(found.dense(), one.toarray()[index.numpy()])


@given(density=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 50))
def test_times_is_the_product_with_the_dense_matrix(density, seed):
    rows = SparseRows.from_scipy(matrix(density=density, seed=seed))
    layer = Dense(5, 3)
    torch.testing.assert_close(rows.times(layer), layer(rows.dense()))
    stacked = Dense.stack([Dense(5, 3) for _ in range(2)])
    torch.testing.assert_close(rows.times(stacked), stacked(rows.dense()))
    apart = rows.take(torch.tensor([[0, 1, 2], [4, 4, 0]]))
    torch.testing.assert_close(apart.times(stacked), stacked(apart.dense()))


@pytest.mark.parametrize("members", [None, 2])
def test_the_gradient_of_times_is_that_of_the_product(members):
    rows = SparseRows.from_scipy(matrix())
    if members:
        rows = rows.take(torch.tensor([[0, 1, 2], [4, 4, 0]]))
    layer = Dense.stack([Dense(5, 3) for _ in range(members)]) if members else Dense(5, 3)
    torch.manual_seed(0)
    upstream = torch.randn_like(rows.times(layer))
    found = torch.autograd.grad(rows.times(layer), (layer.weight, layer.bias), upstream)
    expected = torch.autograd.grad(layer(rows.dense()), (layer.weight, layer.bias), upstream)
    torch.testing.assert_close(found, expected)


def test_entries_that_occur_twice_are_added():
    rows = SparseRows(
        torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0]), torch.tensor([1.0, 2.0, 5.0]), width=2
    )
    assert rows.dense().tolist() == [[0, 3], [5, 0]]
    layer = Dense(2, 4)
    torch.testing.assert_close(rows.times(layer), layer(rows.dense()))


def test_rows_without_entries_and_no_rows():
    layer = Dense(5, 3)
    empty = SparseRows.from_scipy(matrix(density=0.0))
    torch.testing.assert_close(empty.times(layer), layer.bias.expand(7, 3))
    none = empty.take(torch.zeros(0, dtype=torch.int64))
    assert none.dense().shape == (0, 5)
    assert none.times(layer).shape == (0, 3)


def test_rows_of_other_members_are_refused():
    rows = SparseRows.from_scipy(matrix()).take(torch.tensor([[0, 1], [2, 3]]))
    with pytest.raises(HierlearnError, match="rows of 2 members meet weights of 3"):
        rows.times(Dense.stack([Dense(5, 4) for _ in range(3)]))


def test_to_a_device_keeps_the_members():
    rows = SparseRows.from_scipy(matrix()).take(torch.tensor([[0, 1], [2, 3]]))
    moved = rows.to(torch.device("cpu"))
    assert moved.members == 2
    assert torch.equal(moved.dense(), rows.dense())
