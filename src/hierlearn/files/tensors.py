"""Tensors with JSON metadata as one safetensors file, written whole or not at all.

The header holds a checksum of names, types, shapes, values and metadata: a file in which one bit
has changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError, HierlearnError, quoted
from hierlearn.files.reading import check_regular, guarded, open_regular
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor


# What safetensors calls the types of tensors.
DTYPES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
DTYPES |= {"int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
HEADER = 1 << 27  # bytes of a header, at most
KEY = "hierlearn"  # of the header: the checksum, a space, the metadata as JSON
NPY, SAFETENSORS = ".npy", ".safetensors"
ENDINGS = (NPY, SAFETENSORS)
TENSOR = "embeddings"  # the name of the matrix where a file has several
NPY_HEADER = 1 << 16  # bytes of the header of an .npy file, at most
AGAIN = "write it again"


class CheckpointError(HierlearnError):
    """A file of tensors that cannot be read, or belongs to another training."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata to a file, whole or not at all."""
    from safetensors.torch import save

    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(metadata, ensure_ascii=False)
    # One entry, since safetensors writes several in any order: equal content, equal files.
    data = save(stored, {KEY: f"{checksum(stored, text)} {text}"})
    with atomic_write(path, "wb") as file:
        file.write(data)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata of a file.

    Raises:
        CheckpointError: where the file is missing, truncated, or no such file at all.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if path.exists():
            check_regular(path)
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            expected, _, text = header[KEY].partition(" ")
            metadata = dict(json.loads(text))
            # Copies, since what is read is a map of the file: were the file written over, a process
            # that still used it would be killed. keys() is a method of a file, which is no mapping.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not there") from None
    except DataError as error:
        raise CheckpointError(error.message) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is damaged or truncated ({str(error)[:160]}); use an earlier one or train "
            f"again"
        ) from None
    except (
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        AttributeError,
    ):  # no metadata of ours, or no JSON
        raise CheckpointError(
            f"{path} was not written by hierlearn, or by an older version"
        ) from None
    if checksum(tensors, text) != expected:
        raise CheckpointError(
            f"{path} is damaged: its checksum does not match; use an earlier one or train again"
        )
    return tensors, metadata


def map_tensor(path: Path, name: str) -> NDArray[np.int64]:
    """Return a tensor of int64 of a file as a map of it: only what is looked at is read.

    The checksum of the file is not looked at.
    """
    import numpy as np

    with guarded(path, "is damaged", CheckpointError, "copy the whole folder again"):
        with open_regular(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if size > HEADER:
                raise ValueError("its header is too long")
            entry = json.loads(file.read(size))[name]
        if entry["dtype"] != "I64":
            raise ValueError(f"{name} is not of integers")
        shape = tuple(entry["shape"])
        if not math.prod(shape):  # which cannot be mapped
            return np.zeros(shape, dtype=np.int64)
        begin = 8 + size + int(entry["data_offsets"][0])
        return np.memmap(path, dtype="<i8", mode="r", offset=begin, shape=shape)


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Return the SHA-256 of tensors on the CPU, with names, types and shapes, and of a text."""
    import torch

    sums = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        kind, shape = tensors[name].dtype, tuple(tensors[name].shape)
        sums.update(f"\n{name} {kind} {shape}\n".encode())
        flat = tensors[name].contiguous().reshape(-1)
        if len(flat) < 2:  # its stride may be 0, which a view as bytes refuses
            flat = flat.clone(memory_format=torch.contiguous_format)
        sums.update(flat.view(torch.uint8).numpy().data)
    return sums.hexdigest()


# ----------------------------------------------------------------------
# One matrix of numbers from a ``.npy`` or ``.safetensors`` file, checked before it is read.
#
# Nothing is ever unpickled: an array of Python objects is refused by its header alone.


def read_matrix(path: Path | str) -> NDArray[np.float32]:
    """Return the (N, D) float32 matrix of a file; its ending tells the format.

    Raises:
        DataError: naming the file, for another shape, for values that are no floats, and for the
            first row that is not finite.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: vectors are read from files that end in {' or '.join(ENDINGS)}")
    matrix = read_npy(path) if path.suffix.lower() == NPY else read_safetensors(path)
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise DataError(f"{path} holds {matrix.shape}, but vectors are (N, D), one row per row")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(matrix, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{path}: row {wrong[0]} (counted from 0) holds a value that is not a finite float32; "
            f"leave that row out of the table and of the vectors"
        )
    return rows


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file of floats; what the header claims is there, or it raises."""
    with guarded(check_regular(path), "is no .npy file", DataError, AGAIN):
        found: NDArray[Any] = np.load(path, mmap_mode="r", max_header_size=NPY_HEADER)
        if found.dtype.kind != "f":
            raise DataError(f"{path} holds {found.dtype}, but vectors are floats; {AGAIN}")
        return np.array(found)


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
    values: NDArray[Any] = tensor.float().numpy()
    return values
