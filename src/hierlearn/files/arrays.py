"""One matrix of numbers from a ``.npy`` or ``.safetensors`` file, checked before it is read.

Nothing is ever unpickled: an array of Python objects is refused by its header alone.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError, quoted
from hierlearn.files.reading import check_regular, guarded, open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

NPY, SAFETENSORS = ".npy", ".safetensors"
ENDINGS = (NPY, SAFETENSORS)
TENSOR = "embeddings"  # the name of the matrix where a file has several
HEADER = 1 << 16  # bytes of the header of an .npy file, at most
AGAIN = "write it again"


def read_matrix(path: Path | str) -> NDArray[np.float32]:
    """Return the (N, D) float32 matrix of a file; its ending tells the format.

    Raises:
        DataError: naming the file, for another shape, for values that are no floats, and for the
            first row that is not finite.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: vectors are read from files that end in {' or '.join(ENDINGS)}")
    found = read_npy(path) if path.suffix.lower() == NPY else read_safetensors(path)
    if found.ndim != 2 or not found.shape[1]:
        raise DataError(f"{path} holds {found.shape}, but vectors are (N, D), one row per row")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(found, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{path}: row {wrong[0]} (counted from 0) holds a value that is not a finite float32; "
            f"leave that row out of the table and of the vectors"
        )
    return rows


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file of floats."""
    with open_regular(path) as file, guarded(path, "is no .npy file", DataError, AGAIN):
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise DataError(f"{path} has version {version} of .npy files; save it by np.save")
        shape, by_column, dtype = read(file, max_header_size=HEADER)
        check_floats(path, dtype)
        size = math.prod(shape) * dtype.itemsize
        there = os.fstat(file.fileno()).st_size - file.tell()
        if size != there:
            raise DataError(f"{path} holds {there:,} bytes of values, but {shape} needs {size:,}")
        values = np.frombuffer(file.read(size), dtype=dtype)
        return values.reshape(shape, order="F" if by_column else "C")


def read_safetensors(path: Path) -> NDArray[Any]:
    """Return the only tensor of a file, or that named "embeddings"."""
    from safetensors import SafetensorError, safe_open

    check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            chosen = TENSOR if TENSOR in names else names[0] if len(names) == 1 else None
            if chosen is None:
                raise DataError(
                    f"{path} holds {len(names)} tensors, {quoted(names, most=5)}; call the one of "
                    f"the vectors {TENSOR!r}"
                )
            tensor = file.get_tensor(chosen)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is no .safetensors file ({str(error)[:160]}); {AGAIN}") from None
    if not tensor.is_floating_point():
        raise DataError(f"{path} holds {tensor.dtype}, but vectors are floats; {AGAIN}")
    found: NDArray[Any] = tensor.float().numpy()
    return found


def check_floats(path: Path, dtype: Any) -> None:
    """Raise on another type than floats."""
    if dtype.hasobject:
        raise DataError(
            f"{path} holds Python objects, which are never unpickled; save an array of floats"
        )
    if dtype.kind != "f":
        raise DataError(f"{path} holds {dtype}, but vectors are floats; {AGAIN}")
