"""Evidence: the remembered training rows that each run of a study took its answers from.

    evidence/<candidate>.safetensors
        rows       (seeds, N, k) which of the stored rows, the weightiest first
        weights    (seeds, N, k) their shares of the answer
        offsets, classes   the most specific labels of the stored rows, as CSR
    evidence/<candidate>.json
        ids        of the stored rows
        texts      of the stored rows; null where inputs are not texts

A remembered row is stored once per candidate, and only where it is among the weightiest of a test
row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import DataError
from hierlearn.files.reading import LARGE, guarded, read_json
from hierlearn.files.structured import check
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.files.writing import atomic_write, remove
from hierlearn.memory.store import take_rows
from hierlearn.networks.memories import embed, neighbors_of, remembered
from hierlearn.pipeline.explain import answering_memories
from hierlearn.reports.decisions import neighbor
from hierlearn.training.inference import batches_of, run_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from typing_extensions import Self

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.reports.decisions import Decisions
    from hierlearn.training.rows import Rows

FORMAT = "hierlearn.evidence"
ARRAYS = ("rows", "weights", "offsets", "classes")
COUNT = 3  # remembered rows per answer
BATCH = 4096


@dataclass
class EvidenceJson:
    """What evidence/<candidate>.json holds."""

    ids: list[str]
    texts: list[str] | None


@dataclass(frozen=True)
class StoredEvidence:
    """The weightiest remembered rows of every answer of a candidate.

    Attributes:
        rows: (S, N, k) which of the R stored rows, S seeds.
        weights: (S, N, k) their shares of the answer, falling.
        offsets: (R + 1,) where the labels of each stored row begin in ``classes``.
        classes: their most specific labels.
        ids: by which the stored rows are named.
        texts: what to show of them; None where inputs are not texts.
    """

    rows: NDArray[np.int32]
    weights: NDArray[np.float32]
    offsets: NDArray[np.int64]
    classes: NDArray[np.int64]
    ids: Sequence[str]
    texts: Sequence[str] | None = None

    def repeated(self, seeds: int) -> Self:
        """Return the evidence of one network as that of some seeds, which are all equal."""
        return replace(
            self,
            rows=np.repeat(self.rows, seeds, axis=0),
            weights=np.repeat(self.weights, seeds, axis=0),
        )

    def write(self, folder: Path, name: str) -> None:
        """Write the files of a candidate."""
        parts = {key: torch.from_numpy(getattr(self, key)) for key in ARRAYS}
        write_tensors(folder / f"{name}.safetensors", parts, {"format": FORMAT})
        with atomic_write(folder / f"{name}.json") as file:
            file.write(json.dumps({"ids": self.ids, "texts": self.texts}, ensure_ascii=False))

    @classmethod
    def read(cls, folder: Path, name: str) -> Self | None:
        """Read the files of a candidate; None where there are none."""
        if not (folder / f"{name}.json").is_file():
            return None
        path = folder / f"{name}.safetensors"
        tensors, _ = read_tensors(path)
        named = read_json(folder / f"{name}.json", LARGE)
        check(folder / f"{name}.json", named, EvidenceJson)
        with guarded(path, "is damaged"):
            found: dict[str, Any] = {key: tensors[key].numpy() for key in ARRAYS}
            stored = len(found["offsets"]) - 1
            rows, offsets = found["rows"], found["offsets"]
            fits = (
                rows.ndim == 3 and rows.shape == found["weights"].shape,
                not rows.size or 0 <= rows.min() <= rows.max() < stored,
                len(named["ids"]) == stored == len(named["texts"] or named["ids"]),
                offsets[0] == 0 and offsets[-1] == len(found["classes"]),
                bool((offsets[1:] >= offsets[:-1]).all()),
            )
            if not all(fits):
                raise DataError(f"{path} is damaged: its rows do not fit each other")
        return cls(**found, **named)

    @staticmethod
    def remove(folder: Path, name: str) -> None:
        """Remove the files of a candidate."""
        for ending in ("json", "safetensors"):
            remove(folder / f"{name}.{ending}")


def find_evidence(network: nn.Module, answer: str, test: Rows) -> StoredEvidence | None:
    """Return the remembered rows of every answer; None where no memory answers.

    Args:
        network: a network, or an ensemble with one member per seed.
        answer: the head that answers, or "average"; then weights are those within the first head
            with a memory.
        test: the rows to answer.
    """
    memory, shares = remembered(network), answering_memories(network, answer)
    if memory is None or not shares:
        return None
    name = max(shares, key=lambda one: shares[one])  # of a blend, the memory that counts most
    network.eval()

    def neighbors(x: Any) -> tuple[Tensor, Tensor]:
        weights, rows = neighbors_of(network, name, embed(network, x)[name])
        weights, order = weights.topk(min(COUNT, weights.shape[-1]))
        return weights.float().cpu(), rows.gather(-1, order).cpu()

    parts = [*run_network(network, neighbors, batches_of(test, BATCH))]
    weights, rows = (torch.cat([part[side] for part in parts], dim=1) for side in (0, 1))
    occurring, place = np.unique(rows.numpy(), return_inverse=True)
    held = memory.take(occurring)
    offsets, classes = take_rows(*held.labels.sets.terminal, held.labels.of_row)
    return StoredEvidence(
        rows=place.reshape(rows.shape).astype(np.int32),
        weights=weights.numpy(),
        offsets=offsets,
        classes=classes,
        ids=[str(one) for one in held.ids],
        texts=held.texts,
    )


def evidence_of(
    worst: Iterable[Sequence[int]],
    decisions: Decisions,
    stored: StoredEvidence,
    hierarchy: Hierarchy,
) -> list[list[dict[str, Any]]]:
    """Return the remembered rows behind each mistake, the weightiest first.

    Rows of less than half a thousandth are left out.

        weight    in thousandths of the answer
        id, text  of the row; no text where inputs are not texts
        decided   whether the row has the decided class, or one below it
        true      whether it has the true class, or one below it
        labels    its most specific labels, those first that have either; at most MOST_LABELS
        more      how many labels are left out
    """
    found: list[list[dict[str, Any]]] = []
    for row, truth, decided, *_ in worst:
        agree = decisions.decided[:, row] == decided
        seed = int(np.argmax(np.where(agree, decisions.probability[:, row], -1.0)))
        weights = np.rint(1000 * stored.weights[seed, row]).astype(int).tolist()
        found.append([])
        for number, weight in zip(stored.rows[seed, row].tolist(), weights, strict=True):
            if weight:
                begin, end = stored.offsets[number : number + 2]
                labels = stored.classes[begin:end].tolist()
                text = None if stored.texts is None else stored.texts[number]
                shown = neighbor(stored.ids[number], text, labels, (truth, decided), hierarchy)
                found[-1].append({**shown, "weight": weight})
    return found
