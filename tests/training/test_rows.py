"""Rows give batches of inputs, targets and masks, whether those live on the device or not."""

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Labels
from hierlearn.errors import DataError
from hierlearn.networks import SparseRows
from hierlearn.training.rows import Rows, as_rows
from hierlearn.training.seeding import epoch_order
from training.datasets import CPU, TREE

ANNOTATED = [["a/b/d"], ["a"], [], ["f/g", "a/c"], ["a/b"]]
INPUTS = np.arange(15, dtype=np.float64).reshape(5, 3)
INDEX = torch.tensor([[4, 0, 0], [2, 3, 1]])


def some_rows(below="negative", inputs=INPUTS, **options):
    return Rows(inputs, Labels(ANNOTATED, TREE, unlabeled_descendants=below), CPU, **options)


@pytest.mark.parametrize("below", ["negative", "ignore"])
@pytest.mark.parametrize("index", [INDEX[0], INDEX], ids=["one batch", "a batch a member"])
@pytest.mark.parametrize("dense", [40, 39], ids=["on the device", "made a batch"])
def test_a_batch_is_what_the_labels_say(below, index, dense):
    rows = some_rows(below, dense=dense)
    assert (rows._targets is None) == (dense == 39)
    x, targets, mask = rows.batch(index)
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.tensor(INPUTS, dtype=torch.float32)[index])
    labels = Labels(ANNOTATED, TREE, unlabeled_descendants=below)
    assert targets.dtype == torch.bool
    assert torch.equal(targets, labels.targets()[index])
    if below == "negative":
        assert mask is None
    else:
        assert torch.equal(mask, labels.mask()[index])
        assert not mask.all()


def test_sparse_inputs_stay_sparse():
    matrix = sparse.csr_array(INPUTS)
    x, targets, _ = some_rows(inputs=matrix).batch(INDEX)
    assert isinstance(x, SparseRows)
    assert torch.equal(x.dense(), torch.tensor(INPUTS, dtype=torch.float32)[INDEX])
    assert targets.shape == (2, 3, 8)


def test_weights_are_on_the_device():
    rows = some_rows(weights=np.array([1, 0, 2, 1, 1.5]))
    assert rows.weights.dtype == torch.float32
    assert rows.weights.tolist() == [1, 0, 2, 1, 1.5]
    assert some_rows().weights is None


def test_the_order_is_that_of_the_seeds():
    assert torch.equal(some_rows().order([3, 4], 2), epoch_order([3, 4], 5, 2))


def test_rows_and_labels_must_match():
    with pytest.raises(DataError, match="inputs have 4 rows but labels have 5"):
        some_rows(inputs=INPUTS[:4])


def test_the_checksum_sees_values_places_and_labels():
    dense = some_rows()
    assert dense.digest() == some_rows().digest()
    moved = INPUTS.copy()
    moved[2, 1] += 1
    assert dense.digest() != some_rows(inputs=moved).digest()
    matrix = sparse.csr_array(([1.0, 2.0], ([0, 3], [1, 2])), shape=(5, 3))
    elsewhere = sparse.csr_array(([1.0, 2.0], ([0, 4], [1, 2])), shape=(5, 3))
    other_column = sparse.csr_array(([1.0, 2.0], ([0, 3], [0, 2])), shape=(5, 3))
    sums = {some_rows(inputs=one).digest() for one in (matrix, elsewhere, other_column)}
    assert len(sums) == 3
    relabeled = Rows(INPUTS, Labels([["a"], *ANNOTATED[1:]], TREE), CPU)
    assert relabeled.digest() != dense.digest()


def test_inputs_become_rows():
    assert as_rows([[1, 2]], CPU).dtype == torch.float32
    rows = SparseRows.from_scipy(sparse.csr_array(INPUTS))
    assert torch.equal(as_rows(rows, CPU).dense(), rows.dense())
    assert as_rows(INPUTS, CPU, torch.float64).dtype == torch.float64
