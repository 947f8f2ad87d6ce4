"""The digest of a dataset: equal for equal data, however it is stored; different otherwise."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import read_table, stream_table

H = Hierarchy.from_paths(["a", "b"])
LABELS = [["a"], [], ["b"]]
DENSE = np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, -1]], dtype=np.float32)


def dataset(inputs, **more):
    return Dataset(inputs, LABELS, H, **more)


def unsorted():
    rows = csr_array(DENSE)
    rows.indices[1:], rows.data[1:] = rows.indices[[2, 1]], rows.data[[2, 1]]
    rows.has_sorted_indices = False
    return rows


def with_stored_zeros():
    places = ([0, 1, 2, 2], [1, 0, 0, 2])
    return csr_array((np.float32([1.5, 0, 2, -1]), places), shape=(3, 3))


def with_wide_indices():
    rows = csr_array(DENSE)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


def with_duplicates():
    places = ([0, 0, 2, 2], [1, 1, 0, 2])
    return coo_array((np.float32([1, 0.5, 2, -1]), places), shape=(3, 3))


@pytest.mark.parametrize(
    "stored",
    [
        unsorted(),
        with_stored_zeros(),
        with_wide_indices(),
        with_duplicates(),
        csr_matrix(DENSE),
        csc_array(DENSE),
        coo_array(DENSE),
    ],
    ids=["unsorted", "zeros", "wide", "duplicates", "matrix", "csc", "coo"],
)
def test_sparse_rows_have_one_digest_however_they_are_stored(stored):
    data = dataset(stored)
    assert data.kind == "sparse"
    np.testing.assert_array_equal(data.inputs.toarray(), DENSE)
    assert data.digest() == dataset(csr_array(DENSE)).digest()
    np.testing.assert_array_equal(data.inputs.toarray(), DENSE)  # and stay as they were


def test_different_data_has_different_digests():
    moved, wider, longer = DENSE.copy(), np.pad(DENSE, ((0, 0), (0, 1))), DENSE[[0, 0, 2]]
    moved[0, [1, 2]] = moved[0, [2, 1]]
    train = {"train": np.array([0, 1])}
    found = [
        *(dataset(form(one)).digest() for form in (np.array, csr_array) for one in (DENSE, moved)),
        *(dataset(csr_array(one)).digest() for one in (wider, longer)),
        dataset(DENSE, splits=train).digest(),
        dataset(DENSE, splits={"valid": np.array([0, 1])}).digest(),
        dataset(DENSE, splits={"train": np.array([1, 0])}).digest(),
        replace(dataset(DENSE), labels=[["a"], ["b"], []]).digest(),
        dataset(["x", "y", "z"]).digest(),
        dataset(["x", "y, z", ""]).digest(),
    ]
    assert len(set(found)) == len(found)


def test_names_and_ids_are_no_part_of_it():
    named = dataset(DENSE, name="one", feature_names=("p", "q", "r"), ids=["1", "2", "3"])
    assert named.digest() == dataset(DENSE).digest()


@pytest.mark.parametrize("inputs", [DENSE, np.asfortranarray(DENSE), ["é", 'a "b"', ""]])
def test_it_is_the_sha256_of_bytes_anyone_can_compute(inputs):
    text = isinstance(inputs, list)
    given = json.dumps(inputs).encode() if text else DENSE.tobytes()
    wanted = hashlib.sha256(given + b'[["a"], [], ["b"]]')
    wanted.update(b"test" + np.array([2]).astype("<i8").tobytes())
    wanted.update(b"train" + np.array([1, 0]).astype("<i8").tobytes())
    splits = {"train": np.array([1, 0]), "test": np.array([2])}
    assert dataset(inputs, splits=splits).digest() == wanted.hexdigest()


@pytest.mark.parametrize("columns", [{"features": ["x", "z"]}, {"text": "t"}])
def test_rows_in_a_file_have_the_digest_of_the_same_rows_in_memory(tmp_path, columns):
    path = tmp_path / "rows.parquet"
    cells = {
        "x": [1.0, None, 3.0, 4.0, 5.0],
        "z": [5, 4, 3, 2, 1],
        "t": ["one", "", "three", "four", None],
        "y": ["a", "b", "a", None, "b"],
    }
    pq.write_table(pa.table(cells), path, row_group_size=2)
    held, streamed = (read(path, label="y", **columns) for read in (read_table, stream_table))
    assert held.digest() == streamed.digest()
    for rows in ([0, 3, 4], [4, 0, 0]):
        assert held.take(rows).digest() == streamed.take(rows).digest()
    assert held.take([0, 1]).digest() != held.take([1, 0]).digest()
