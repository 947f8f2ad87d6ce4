"""Matrices from .npy and .safetensors: what is read, and what is refused before it is."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hierlearn.errors import DataError
from hierlearn.files.tensors import read_matrix

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 7


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", np.asarray(X.astype(dtype), order=order))
    found = read_matrix(tmp_path / "x.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_safetensors(tmp_path, dtype):
    x = torch.tensor(X).to(dtype)
    save_file({"anything": x}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.safetensors"), x.float().numpy())
    save_file({"embeddings": x, "other": x + 1}, tmp_path / "y.safetensors")
    np.testing.assert_array_equal(read_matrix(tmp_path / "y.safetensors"), x.float().numpy())


class Trap:
    """Would write a file if it were unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[Trap(), 1.0]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        read_matrix(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3), dtype=np.int64), "holds int64, but vectors are floats"),
        (np.array([["a"]]), "holds <U1, but vectors are floats"),
        (np.zeros(3), r"holds \(3,\), but vectors are \(N, D\)"),
        (np.zeros((3, 0)), r"holds \(3, 0\), but vectors"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), r"row 1 \(counted from 0\) holds a value"),
        (np.array([[1e300]]), r"row 0 \(counted from 0\) holds a value"),
    ],
)
def test_what_is_no_matrix_of_floats(tmp_path, values, message):
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(DataError, match=message):
        read_matrix(tmp_path / "x.npy")


@pytest.mark.parametrize("cut", [0, 5, 20, 80, 150])
def test_damaged_files_are_named(tmp_path, cut):
    np.save(tmp_path / "x.npy", X)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"x\.npy"):
        read_matrix(tmp_path / "x.npy")
    save_file({"x": torch.tensor(X)}, tmp_path / "x.safetensors")
    whole = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(whole[: min(cut, len(whole) - 1)])
    with pytest.raises(DataError, match=r"x\.safetensors"):
        read_matrix(tmp_path / "x.safetensors")


def test_a_header_that_promises_more_takes_no_memory(tmp_path):
    np.save(tmp_path / "x.npy", X)
    data = (tmp_path / "x.npy").read_bytes().replace(b"(4, 3), ", b"(9999999999, 3), ", 1)
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(DataError, match=r"x\.npy"):
        read_matrix(tmp_path / "x.npy")


def test_other_files(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(DataError, match=r"end in \.npy or \.safetensors"):
        read_matrix(tmp_path / "x.csv")
    with pytest.raises(DataError, match="no such file"):
        read_matrix(tmp_path / "x.npy")
    with pytest.raises(DataError, match="no such file"):
        read_matrix(tmp_path / "x.safetensors")
    save_file({"a": torch.ones(1, 1), "b": torch.ones(1, 1)}, tmp_path / "x.safetensors")
    with pytest.raises(DataError, match="holds 2 tensors, 'a', 'b'; call the one"):
        read_matrix(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "header", ["{'descr': '<f4', (\n", "{'descr': \n", "((((", "\0", "import os"]
)
def test_a_header_that_is_no_python(tmp_path, header):
    np.save(tmp_path / "x.npy", X)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:10] + header.encode().ljust(118) + content[128:])
    with pytest.raises(DataError, match=r"x\.npy is no \.npy file"):
        read_matrix(tmp_path / "x.npy")
