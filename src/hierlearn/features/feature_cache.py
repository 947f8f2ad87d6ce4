"""FeatureCache: the features of a frozen backbone on disk, so that no row is encoded twice.

    CACHE/features/BACKBONE/NAME.keys       SHA-256 of each prepared row
    CACHE/features/BACKBONE/NAME.values     their features

BACKBONE is a digest of the weights and of what they compute; a row is what the encoder reads, its
token ids or its pixels. Rows are hashed, never stored. Files that cannot be read or written are
passed over: a cache can only make things faster. Above 4 GB those not used for longest are removed.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.download import cache_dir
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.files.writing import remove

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Floats = NDArray[np.float32]

OFF = "HIERLEARN_NO_CACHE"  # environment variable: nothing is cached where it is set
MOST = 4 << 30  # bytes of all features in the cache
SMALLEST = 1 << 20  # bytes that a file counts at least, so that there are not too many
PART = 1 << 14  # rows per file
FEWEST = 16  # rows that are worth a file
OPEN = 4  # files whose features are held in memory
KEYS, VALUES = ".keys", ".values"
FORMAT = "hierlearn.features"


class FeatureCache:
    """The features of one backbone.

    Args:
        digest: of the backbone.
        width: F, of the features.
    """

    def __init__(self, digest: str, width: int) -> None:
        self.folder = cache_dir() / "features" / digest
        self.width = width
        self._places: dict[bytes, tuple[str, int]] = {}
        self._known: set[str] = set()
        self._open: OrderedDict[str, Floats] = OrderedDict()

    def find(self, keys: Sequence[bytes]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return (N, F) features and which of them were found; the others are 0."""
        self._look()
        values = np.zeros((len(keys), self.width), dtype=np.float32)
        found = np.zeros(len(keys), dtype=bool)
        by_file: dict[str, list[int]] = {}
        for number, key in enumerate(keys):
            if key in self._places:
                by_file.setdefault(self._places[key][0], []).append(number)
        for name, numbers in by_file.items():
            held = self._values(name)
            if held is None:
                continue
            values[numbers] = held[[self._places[keys[number]][1] for number in numbers]]
            found[numbers] = True
        return values, found

    def add(self, keys: Sequence[bytes], values: Floats) -> None:
        """Store the features of different rows; a few rows are not worth a file."""
        if len(keys) < FEWEST:
            return
        for begin in range(0, len(keys), PART):
            part = slice(begin, begin + PART)
            joined = b"".join(keys[part])
            name = hashlib.sha256(joined).hexdigest()[:32]
            packed = np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32).copy()
            with suppress(HierlearnError, OSError):
                self._write(name + VALUES, values[part])
                self._write(name + KEYS, packed)  # last: what has keys has values
        with suppress(OSError):
            trim(self.folder.parent, MOST)

    def _write(self, name: str, array: NDArray[np.float32] | Bytes) -> None:
        tensors = {"rows": torch.from_numpy(np.ascontiguousarray(array))}
        write_tensors(self.folder / name, tensors, {"format": FORMAT})

    def _look(self) -> None:
        """Read the keys of files that are new."""
        with suppress(OSError):
            there = {path.name for path in self.folder.glob(f"*{KEYS}")}
            for name in sorted(there - self._known):
                keys = self._read(name, torch.uint8, 32)
                if keys is None:
                    there.remove(name)
                    continue
                for row, key in enumerate(keys):
                    self._places[key.tobytes()] = (name.removesuffix(KEYS), row)
            self._known = there

    def _values(self, name: str) -> Floats | None:
        """Return the features in a file; None where it is damaged or gone."""
        if name not in self._open:
            values = self._read(name + VALUES, torch.float32, self.width)
            if values is None:
                self._places = {k: v for k, v in self._places.items() if v[0] != name}
                return None
            self._open[name] = values
            with suppress(OSError):
                os.utime(self.folder / (name + VALUES))  # it was used now
        self._open.move_to_end(name)
        while len(self._open) > OPEN:
            self._open.popitem(last=False)
        return self._open[name]

    def _read(self, name: str, dtype: torch.dtype, width: int) -> NDArray[Any] | None:
        """Return the rows of a file; None where it is none of ours, and it is removed then."""
        try:
            rows = read_tensors(self.folder / name)[0]["rows"]
            if rows.dtype == dtype and rows.dim() == 2 and rows.shape[1] == width:
                found: NDArray[Any] = rows.numpy()
                return found
        except (HierlearnError, KeyError, OSError):
            pass
        stem = name.removesuffix(KEYS).removesuffix(VALUES)
        self._known.discard(stem + KEYS)
        for ending in (KEYS, VALUES):
            with suppress(OSError):
                remove(self.folder / (stem + ending))
        return None


def trim(folder: Path, most: int) -> None:
    """Remove the features that were not used for longest until at most some bytes are left."""
    files = [(path.stat(), path) for path in folder.glob(f"*/*{VALUES}")]
    left = sum(max(stat.st_size, SMALLEST) for stat, _ in files)
    for stat, path in sorted(files, key=lambda one: one[0].st_mtime):
        if left <= most:
            return
        remove(path.with_suffix(KEYS))
        remove(path)
        left -= max(stat.st_size, SMALLEST)


def is_on() -> bool:
    """Whether features may be cached."""
    return not os.environ.get(OFF)


def row_key(row: NDArray[Any]) -> bytes:
    """Return the SHA-256 of a prepared row, with its type and shape."""
    head = f"{row.dtype.str} {row.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(row).tobytes()).digest()
