"""Tensors with JSON metadata as one safetensors file, written whole or not at all.

The header holds a checksum of names, types, shapes, values and metadata: a file in which one bit
has changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError
from hierlearn.files.reading import check_regular, guarded, open_regular
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

# What safetensors calls the types of tensors.
DTYPES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
DTYPES |= {"int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
HEADER = 1 << 27  # bytes of a header, at most
KEY = "hierlearn"  # of the header: the checksum, a space, the metadata as JSON


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
        raise CheckpointError(str(error)) from None
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
    sums = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        kind, shape = tensors[name].dtype, tuple(tensors[name].shape)
        sums.update(f"\n{name} {kind} {shape}\n".encode())
        sums.update(as_bytes(tensors[name]))
    return sums.hexdigest()


def as_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor on the CPU."""
    import torch

    flat = tensor.contiguous().reshape(-1)
    if len(flat) < 2:  # its stride may be 0, which a view as bytes refuses
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().data
