"""DeViSE: features become a vector, and the similar label vectors are the answer.

    v = M f(x),    s_t = t . v for every terminal class,    q = softmax(s / temperature)

Frome et al., "DeViSE: a deep visual-semantic embedding model" (2013). The label vectors t have
length 1 and are not trained: they come from the taxonomy, see hierarchy/embedding.py, or from a
file. Trained by the loss ``devise``, as the recipe of this name does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.embedding import read_vectors, taxonomy_vectors, unit_rows
from hierlearn.links import Head, HeadOutput
from hierlearn.links.scaled_softmax import TEMPERATURE, ScaledSoftmaxLink
from hierlearn.networks.layers import Dense, check_size
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy

TAXONOMY, SAVED = "taxonomy", "saved"  # where label vectors come from, if not from a file


class LabelVectors(nn.Module):
    """The vector of every class, 0 for one that is not terminal; a buffer that is saved.

    Args:
        vectors: (C, D).
    """

    vectors: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors)

    @classmethod
    def stack(cls, parts: Sequence[LabelVectors]) -> LabelVectors:
        """Return the vectors of all members, (M, C, D)."""
        return cls(torch.stack([one.vectors for one in parts]))

    def forward(self, v: Tensor) -> Tensor:
        """Return (..., N, C) the inner products with the vectors."""
        return v @ self.vectors.to(v.dtype).transpose(-1, -2)


class DeViSEHead(Head):
    """A linear map into the space of label vectors, and a softmax of the similarities.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        vectors: "taxonomy", or the path of a file as ``read_vectors`` takes it, or (T, D) numbers,
            one row per terminal class; "saved" leaves room for those of a saved model.
        size: D, the dimensions of vectors from the taxonomy; by default one per terminal class, at
            most 1,024.
        temperature: what similarities are divided by when they are read as probabilities.
    """

    stackable = True

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        vectors: str | Path | Tensor = TAXONOMY,
        size: int | None = None,
        temperature: float = TEMPERATURE,
    ) -> None:
        super().__init__()
        space = LabelSpace.of(label_space)
        self.link = ScaledSoftmaxLink(space, temperature)
        self.label_vectors = LabelVectors(find_vectors(space, vectors, size))
        self.projection = Dense(features, self.label_vectors.vectors.shape[-1], bias=False)

    @property
    def saved_options(self) -> dict[str, Any]:
        """What builds the head again to hold the saved vectors, without a file or a taxonomy."""
        return {"vectors": SAVED, "size": int(self.label_vectors.vectors.shape[-1])}

    def forward(self, features: Tensor | SparseRows) -> HeadOutput:
        """Return the similarities, with their link."""
        if isinstance(features, SparseRows):
            v = features.times(self.projection)
        else:
            v = self.projection(features)
        return HeadOutput.from_logits(self.label_vectors(v), self.link)


def find_vectors(space: LabelSpace, vectors: str | Path | Tensor, size: int | None) -> Tensor:
    """Return (C, D) the vector of every class, 0 for one that is not terminal; see DeViSEHead."""
    if size is not None:
        check_size(size=size)
    if isinstance(vectors, Tensor):
        found = unit_rows(vectors.detach().cpu().double().numpy(), space)
    elif vectors == TAXONOMY:
        found = taxonomy_vectors(space, size)
    elif vectors == SAVED:
        if size is None:
            raise HierlearnError(f"label vectors that are {SAVED!r} need their size")
        return torch.zeros(len(space), size)
    elif isinstance(vectors, (str, Path)):
        found = read_vectors(vectors, space)
    else:
        raise HierlearnError(
            f"vectors must be {TAXONOMY!r}, a file or a tensor, not {type(vectors).__name__}"
        )
    if size not in (None, found.shape[1]) and not vectors == TAXONOMY:
        raise HierlearnError(
            f"label vectors have {found.shape[1]} dimensions, not {size}; size is for those of the "
            f"taxonomy"
        )
    every = torch.zeros(len(space), found.shape[1])
    every[space.terminal_ids()] = torch.from_numpy(found).float()
    return every
