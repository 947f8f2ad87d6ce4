"""An approximate index for memories of millions of rows, through faiss.

Rows are projected to ``WIDTH`` principal components, stored in one byte each, and sorted into
about 4 sqrt(N) lists by their nearest centroid. A search compares a query with the rows of its
nearest lists only and computes the exact distances of the best candidates from the embeddings
themselves. How many lists are probed is measured when the index is built, so that a wanted recall
is met on a sample of the rows.

    pip install faiss-cpu
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.files.reading import check_regular
from hierlearn.files.structured import Range, check
from hierlearn.memory.search import best_of, distances_of, find_distance, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

WIDTH = 64  # principal components
SAMPLE = 256  # rows on which the recall is measured
CHUNK = 65536  # rows that are converted at once
CANDIDATES = (1.5, 3.0)  # for each neighbor; more only if fewer do not meet the recall


def _faiss() -> Any:
    """Import faiss, with the threads of torch."""
    try:
        import faiss
    except ImportError:
        raise HierlearnError(
            "an approximate index needs faiss; install it with: pip install faiss-cpu"
        ) from None
    # On macOS torch and faiss bring one OpenMP runtime each, which may crash with several threads.
    faiss.omp_set_num_threads(1 if sys.platform == "darwin" else torch.get_num_threads())
    return faiss


@dataclass
class Facts:
    """The header of a stored index."""

    distance: Literal["squared", "euclidean", "cosine"]
    probes: Annotated[int, Range(1)]
    candidates: Annotated[float, Range(1, 1000)]
    recall: float


class ApproximateIndex:
    """Finds most of the nearest rows in a fraction of the time of ``nearest``.

    Attributes:
        embeddings: (N, D) the rows of the memory, which are not copied.
        distance: A name of ``DISTANCES``.
        probes: How many lists a search looks at.
        candidates: How many rows are compared exactly, for each neighbor asked for.
        recall: The recall that was measured when the index was built.
    """

    def __init__(self, index: Any, embeddings: Tensor, distance: str) -> None:
        self._index = index
        self.embeddings = embeddings
        self.distance = distance
        self.probes = 1
        self.candidates = CANDIDATES[0]
        self.recall = math.nan

    def __len__(self) -> int:
        return len(self.embeddings)

    @classmethod
    def build(
        cls,
        embeddings: Tensor,
        distance: str = "squared",
        *,
        k: int = 256,
        recall: float = 0.99,
    ) -> ApproximateIndex:
        """Build an index of a memory.

        Args:
            embeddings: (N, D), of any floating-point dtype; held, not copied.
            distance: A name of ``DISTANCES``.
            k: For how many neighbors the recall is to be met.
            recall: The fraction of the k nearest rows that a search is to find.
        """
        find_distance(distance)
        if embeddings.dim() != 2 or not len(embeddings):
            raise HierlearnError(
                f"embeddings {tuple(embeddings.shape)} must be (N, D) with at least one row; "
                "build one index for each member of an ensemble"
            )
        if not 0 < recall <= 1:
            raise HierlearnError(f"recall is {recall}, but must be above 0 and at most 1")
        faiss = _faiss()
        total, width = embeddings.shape
        lists = max(1, min(int(4 * math.sqrt(total)), total // 40))
        projects = width > WIDTH and total >= 40 * WIDTH
        spec = f"PCA{WIDTH}," if projects else ""
        index = faiss.index_factory(width, f"{spec}IVF{lists},SQ8")
        sample = _sample(total, 64 * lists, embeddings.device)
        index.train(_as_numpy(embeddings[sample], distance))
        for begin in range(0, total, CHUNK):
            index.add(_as_numpy(embeddings[begin : begin + CHUNK], distance))
        built = cls(index, embeddings, distance)
        built._calibrate(min(k, total), recall, lists)
        return built

    @torch.no_grad()
    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return (n, k) distances, ascending, and (n, k) row numbers, as ``nearest`` does.

        The distances are exact; some of the nearest rows may be missing. A query whose lists hold
        fewer than k rows is searched exactly.
        """
        if queries.dim() != 2 or queries.shape[1] != self.embeddings.shape[1] or k < 1:
            raise HierlearnError(
                f"queries {tuple(queries.shape)} and k = {k} must be (n, "
                f"{self.embeddings.shape[1]}) and at least 1"
            )
        k = min(k, len(self))
        if not k or not len(queries):
            return nearest(queries, self.embeddings, max(k, 1), self.distance)
        dtype = torch.float64 if queries.dtype == torch.float64 else torch.float32
        queries = queries.to(dtype)
        faiss = _faiss()
        faiss.extract_index_ivf(self._index).nprobe = self.probes
        count = min(len(self), math.ceil(k * self.candidates))
        _, found = self._index.search(_as_numpy(queries, self.distance), count)
        missing = torch.from_numpy((found[:, k - 1] < 0).nonzero()[0]).to(queries.device)
        found = np.where(found < 0, found[:, :1], found)  # a candidate twice, sorted out below
        rows = torch.from_numpy(found).to(queries.device)
        repeated = torch.from_numpy(found == found[:, :1]).to(queries.device)
        repeated[:, 0] = False
        rows[missing] = 0
        values = distances_of(queries, self.embeddings, rows, self.distance)
        values, rows = best_of(values.masked_fill_(repeated, torch.inf), rows, k)
        if len(missing):
            exact = nearest(queries[missing], self.embeddings, k, self.distance)
            values[missing], rows[missing] = exact
        return values, rows

    def save(self, path: Path | str) -> None:
        """Write the index, without the embeddings, as one safetensors file."""
        from safetensors.numpy import save

        from hierlearn.files.writing import atomic_write

        facts = {
            "distance": self.distance,
            "probes": self.probes,
            "candidates": self.candidates,
            "recall": self.recall,
        }
        rows = np.arange(len(self))  # of the identifiers of the index
        arrays = {"index": _faiss().serialize_index(self._index), "rows": rows}
        with atomic_write(path, "wb") as file:
            file.write(save(arrays, {"index": json.dumps(facts)}))

    @classmethod
    def load(cls, path: Path | str, embeddings: Tensor) -> ApproximateIndex:
        """Read what ``save`` wrote, for the embeddings that it was built of."""
        from safetensors import safe_open

        faiss = _faiss()
        check_regular(path)
        try:
            with safe_open(path, framework="numpy") as file:
                facts = json.loads((file.metadata() or {})["index"])
                check(path, facts, Facts)
                rows = file.get_tensor("rows")
                index = faiss.deserialize_index(file.get_tensor("index"))
        except HierlearnError:
            raise
        except Exception as error:  # of safetensors, JSON and faiss, which has no class of its own
            raise HierlearnError(f"{path} is not an index; build it again") from error
        if not np.array_equal(rows, np.arange(int(index.ntotal))):
            raise HierlearnError(f"{path} is a damaged index; build it again")
        if embeddings.shape != (int(index.ntotal), int(index.d)):
            raise HierlearnError(
                f"{path} is an index of ({index.ntotal}, {index.d}) embeddings, not of "
                f"{tuple(embeddings.shape)}; build it again"
            )
        loaded = cls(index, embeddings, facts["distance"])
        loaded.probes, loaded.candidates = facts["probes"], facts["candidates"]
        loaded.recall = facts["recall"]
        return loaded

    def _calibrate(self, k: int, recall: float, lists: int) -> None:
        """Probe as many lists as the recall needs, measured on a sample of the rows."""
        sample = _sample(len(self), SAMPLE, self.embeddings.device)
        queries = self.embeddings[sample].float()
        expected = nearest(queries, self.embeddings, k, self.distance)[0]
        bound = expected[:, -1:] * (1 + 1e-5) + 1e-6  # equally near rows are as good
        for self.candidates in CANDIDATES:
            self.probes = min(4, lists)
            while True:
                found = self.search(queries, k)[0]
                self.recall = float((found <= bound).float().mean())
                if self.recall >= recall:
                    return
                if self.probes == lists:
                    break
                self.probes = min(lists, math.ceil(1.3 * self.probes))


def _sample(total: int, most: int, device: torch.device) -> Tensor:
    """Return up to ``most`` row numbers, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(total, generator=generator)[:most].to(device)


def _as_numpy(rows: Tensor, distance: str) -> NDArray[np.float32]:
    """Return rows as faiss wants them; cosine orders rows of norm 1 as their distance does."""
    rows = rows.detach().float()
    if distance == "cosine":
        rows = normalize(rows, dim=-1)
    array: NDArray[np.float32] = rows.cpu().contiguous().numpy()
    return array
