"""Tensors with JSON metadata as one safetensors file, written completely or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


class CheckpointError(HierlearnError):
    """A file of tensors that cannot be read, or that belongs to another training run."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata to a file, completely or not at all."""
    from safetensors.torch import save

    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data = save(stored, {"hierlearn": json.dumps(metadata, ensure_ascii=False)})
    with atomic_write(path, "wb") as file:
        file.write(data)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata of a file.

    Raises:
        CheckpointError: if the file is missing, truncated, or was not written by hierlearn.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(json.loads((file.metadata() or {})["hierlearn"]))
            # Copies, because the tensors are memory-mapped: if the file were overwritten, a process
            # that still used them would crash. The file has keys() but is not a mapping.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not there") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is damaged or truncated ({error}); use an earlier one or train again"
        ) from None
    except (KeyError, TypeError, ValueError):  # no metadata of ours, or no JSON object in it
        raise CheckpointError(f"{path} was not written by hierlearn") from None
    return tensors, metadata
