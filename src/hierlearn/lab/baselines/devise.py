"""DeViSE: features become a vector, and the similar label vectors are the answer.

    v = M f(x),    s_t = t . v for every terminal class,    q = softmax(s / temperature)

Frome et al., "DeViSE: a deep visual-semantic embedding model" (2013). The label vectors t have
length 1 and are not trained: they come from the taxonomy or from a file. Trained by the loss
``devise``, as the recipe of this name does.

Its ranking loss: the similarity to the label exceeds that to other classes.

    l(i) = sum over labels y, sum over other terminal classes j of max(0, margin - s_y + s_j)

with margin 0.1; s are the similarities of a row to the vectors of the terminal classes.

- Several labels: the sum over them; none is another's negative. A row without a label: 0, and it
  does not count.
- A class that is unknown (mask) is no negative.
- A label that is not terminal, or whose children are unknown: the most similar class at or below it
  counts as the label, and nothing below it is a negative.

The sums over pairs are computed by sorting, in O(C log C) per row: a pair costs where the label,
less the margin, comes after the negative, and then its cost is linear in the two.

The scaled softmax link: a softmax over the terminal classes whose logits are similarities.

    q = softmax(x / temperature over the terminal classes),    p(c) = sum of q at or below c

The default temperature is half the margin by which the loss of DeViSE separates similarities. On
validation rows of Diatoms the likelihood is best at 0.085, and AU(PRC) between 0.04 and 0.08.

The vectors of the taxonomy have similarities s as inner products.

    s(a, b) = 1 - height(lca(a, b)) / height(root),    s(a, a) = 1

In a tree s is the sum, over the common ancestors c of a and b, of how far c lies below its parent,

    w(c) = (height(parent(c)) - height(c)) / height(root),

so the closures of the classes, with sqrt(w) as entries, have s as inner products; an inner terminal
class has one more entry of its own, which makes its length 1. A DAG keeps that form: its common
ancestors are summed, each weighted by its lowest parent, and the sum is divided by the lengths of
the two vectors. The eigenvectors of s, times the roots of the eigenvalues, are the same vectors in
at most T dimensions; with fewer of them, the inner products are those of the best approximation.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import DataError, HierlearnError, plural, shown
from hierlearn.files.tensors import ENDINGS, read_matrix
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links import Head, HeadOutput
from hierlearn.links.link import Link, log_terminal_masses
from hierlearn.links.softmax import SoftmaxLink
from hierlearn.losses.loss import RowLoss
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, check_size
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.losses.loss import WeightedOptions

    Floats = NDArray[np.float64]


TAXONOMY, SAVED = "taxonomy", "saved"  # where label vectors come from, if not from a file
MARGIN = 0.1  # of the paper
TEMPERATURE = 0.05
LARGEST = 1024  # dimensions, unless more are asked for
DENSE = 2048  # terminal classes up to which all eigenvectors are computed
ITERATIONS = 8  # of the randomized decomposition beyond
SMALLEST = 1e-6  # the length of a vector that its class has lost


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

    @classmethod
    def check_saved(cls, options: Mapping[str, Any]) -> None:
        """Raise where label vectors would be read from elsewhere than the saved tensors."""
        if options.get("vectors") != SAVED:
            raise HierlearnError(
                f"the label vectors of a saved head devise are {SAVED!r}, not "
                f"{shown(options.get('vectors'))}; train it again"
            )

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


def pairwise_hinge(
    scores: Tensor, positive: Tensor, negative: Tensor, margin: float = MARGIN
) -> Tensor:
    """Return (N,) the sum over positives y and negatives j of w_y max(0, margin - s_y + s_j).

    Args:
        scores: (N, C) s.
        positive: (N, C) w, the weight of each positive, 0 for other entries.
        negative: (N, C) bool; no entry is both.
        margin: by which a positive should exceed a negative.
    """
    keys = torch.where(negative, scores, scores - margin)
    with torch.no_grad():  # the loss is linear in the scores as long as their order stays
        order = keys.argsort(dim=-1, descending=True)
        weights, others = (one.to(scores.dtype).gather(-1, order) for one in (positive, negative))
        before = others.cumsum(dim=-1)  # negatives that come before, and exceed
        after = weights.sum(dim=-1, keepdim=True) - weights.cumsum(dim=-1)
        found = others * after - weights * before
        slopes = torch.zeros_like(scores).scatter(-1, order, found)
    return (slopes * keys).sum(dim=-1)


def devise_loss(
    scores: Tensor,
    labels: Tensor,
    negative: Tensor,
    hierarchy: Hierarchy,
    is_exact: Tensor,
    margin: float = MARGIN,
) -> Tensor:
    """Return (N,) the ranking loss.

    Args:
        scores: (N, C) the similarity to each terminal class, LOG_ZERO for the others.
        labels: (N, C) the most specific labels, with weights.
        negative: (N, C) bool, the terminal classes that are known not to apply.
        hierarchy: the taxonomy.
        is_exact: (N, C) or (C,) bool, where only the class itself fits, not what lies below.
        margin: by which the label should exceed a negative.
    """
    inexact = labels * ~is_exact
    fits = torch.where(inexact > 0, hierarchy.max_up(scores), scores)
    negative = negative & (hierarchy.sum_down(inexact) == 0)
    used = (labels > 0) | negative  # others are 0, since 0 times LOG_ZERO would not be exact
    return pairwise_hinge(torch.where(used, fits, 0.0), labels, negative, margin)


class DeViSELoss(RowLoss):
    """The sum of hinges between labels and other terminal classes; trees and DAGs.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        margin: by which the similarity to the label should exceed others, above 0.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(devise_loss)
    default_link = "scaled-softmax"
    reads = "scores"
    uses_hierarchy = False
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no pair
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"margin": (0.1, 0.3)}
    is_terminal: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        margin: float = MARGIN,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not 0 < margin < math.inf:
            raise HierlearnError(f"margin must be a number above 0, not {margin!r}")
        self.margin = float(margin)
        flags = torch.from_numpy(self.label_space.is_terminal.copy())
        self.register_buffer("is_terminal", flags, persistent=False)

    def scores(self, output: HeadOutput) -> Tensor:
        """Return (N, C) the logits, or what they are up to a constant of the row."""
        if output.logits is not None and isinstance(output.link, ScaledSoftmaxLink):
            return output.float_logits
        scale = self.link.temperature if isinstance(self.link, ScaledSoftmaxLink) else 1.0
        return scale * log_terminal_masses(output.log_p, self.label_space)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the summed hinges of each row."""
        scores = torch.where(self.is_terminal, self.scores(output), LOG_ZERO)
        positive = targets.to(scores.dtype)
        negative, exact = (targets == 0) & self.is_terminal, self.is_terminal
        if mask is not None:
            positive, negative = torch.where(mask, positive, 0.0), negative & mask
            exact = exact & (self.sum_of_children((~mask).to(scores.dtype)) == 0)
        labels = positive * (self.sum_of_children(positive) == 0)
        return devise_loss(scores, labels, negative, self.hierarchy, exact, self.margin)


class ScaledSoftmaxLink(Link):
    """A softmax of similarities, summed upward; coherent.

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.
        temperature: what similarities are divided by, above 0.
    """

    coherent = True
    normalized = True

    def __init__(
        self, label_space: LabelSpace | Hierarchy, temperature: float = TEMPERATURE
    ) -> None:
        super().__init__(label_space)
        self.softmax = SoftmaxLink(self.label_space)
        number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
        if not number or not 0 < temperature < math.inf:
            raise HierlearnError(f"temperature must be a number above 0, not {temperature!r}")
        self.temperature = float(temperature)

    @property
    def options(self) -> dict[str, float]:
        return {"temperature": self.temperature}

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class."""
        return self.softmax.log_probabilities(logits / self.temperature)

    def plain_log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same by operations that can be compiled, and differentiated repeatedly."""
        return self.softmax.plain_log_probabilities(logits / self.temperature)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return the log of the mass inside every class."""
        return self.softmax.log_p(logits / self.temperature)

    def log_masses(self, logits: Tensor) -> Tensor:
        """Return the log mass of each terminal class alone, LOG_ZERO for the others."""
        return self.softmax.log_masses(logits / self.temperature)

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the logits under which every terminal class has its fraction of the rows."""
        return self.temperature * self.softmax.prior_logits(counts, terminal_counts, rows)

    def extra_repr(self) -> str:
        """Name the hierarchy and the temperature when the module is printed."""
        return f"{super().extra_repr()}, temperature={self.temperature:g}"


def closure_vectors(label_space: LabelSpace | Hierarchy) -> Any:
    """Return (T, C + T) sparse vectors of length 1, whose inner products are similarities."""
    from scipy import sparse

    space = LabelSpace.of(label_space)
    hierarchy, terminals = space.hierarchy, np.asarray(space.terminals)
    root, heights = float(max(hierarchy.root_height, 1)), np.asarray(hierarchy.heights)
    above = np.full(len(hierarchy), root)
    structure = hierarchy.structure
    np.minimum.at(above, structure.edge_children, heights[structure.parent_ids])
    rise = (above - heights) / root
    offsets, closed = hierarchy.close(np.arange(len(terminals) + 1), terminals)
    shape = (len(terminals), len(hierarchy))
    found = sparse.csr_array((np.sqrt(rise[closed]), closed, offsets), shape=shape)
    own = sparse.diags_array(np.sqrt(heights[terminals] / root))
    found = sparse.hstack([found, own], format="csr")
    lengths = np.sqrt(found.multiply(found).sum(axis=1))
    return sparse.diags_array(1 / lengths) @ found


def similarities(label_space: LabelSpace | Hierarchy) -> Floats:
    """Return (T, T) the similarity of the terminal classes; see above."""
    vectors = closure_vectors(label_space)
    found: Floats = (vectors @ vectors.T).toarray()
    return found


def taxonomy_vectors(label_space: LabelSpace | Hierarchy, size: int | None = None) -> Floats:
    """Return (T, D) vectors of length 1 of the terminal classes.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        size: D; by default T, at most 1,024. Below T the vectors are approximations, and classes
            that few others resemble may come out alike.

    Raises:
        HierlearnError: where a class has no part in so few dimensions.
    """
    space = LabelSpace.of(label_space)
    count = len(space.terminals)
    size = min(LARGEST if size is None else size, count)
    if count <= DENSE:
        values, basis = np.linalg.eigh(similarities(space))
        values, basis = values[::-1][:size], basis[:, ::-1][:, :size]
        found = basis * np.sqrt(values.clip(min=0))
    else:
        from sklearn.utils.extmath import randomized_svd

        basis, roots, _ = randomized_svd(
            closure_vectors(space), size, n_iter=ITERATIONS, random_state=0
        )
        found = basis * roots
    largest = np.abs(found).argmax(axis=0)
    found = found * np.where(found[largest, np.arange(size)] < 0, -1.0, 1.0)
    lengths = np.linalg.norm(found, axis=1)
    lost = np.flatnonzero(lengths < SMALLEST)
    if len(lost):
        raise HierlearnError(
            f"{plural(size, 'dimension')} of the label vectors leave none for the class "
            f"{space.terminal_names[lost[0]]!r}; use a larger size, at most {count}"
        )
    vectors: Floats = found / lengths[:, None]
    return vectors


def read_vectors(path: Path | str, label_space: LabelSpace | Hierarchy) -> Floats:
    """Return (T, D) vectors of length 1 of the terminal classes, from a file.

    Args:
        path: a .npy or .safetensors file with one row per class, or per terminal class, in the
            order of the hierarchy.
        label_space: what can be predicted, or a Hierarchy.

    Raises:
        DataError: naming the file, and the class that has no vector, or one that is 0.
    """
    path, space = Path(path), LabelSpace.of(label_space)
    if path.suffix.lower() not in ENDINGS:
        raise DataError(
            f"{path}: label vectors are read from files that end in {' or '.join(ENDINGS)}"
        )
    found = read_matrix(path).astype(np.float64)
    if len(found) == len(space):
        found = found[space.terminals]
    return unit_rows(found, space, f"{path} has")


def unit_rows(found: Floats, space: LabelSpace, where: str = "there are") -> Floats:
    """Return vectors of the terminal classes divided by their lengths.

    Args:
        found: (T, D) numbers.
        space: what can be predicted.
        where: the beginning of a message: "there are" or "vectors.npy has".
    """
    count, classes = len(space.terminals), len(space)
    if found.ndim != 2 or len(found) != count:
        wanted = f"{count}" if count == classes else f"{classes}, or {count} of terminal classes"
        raise DataError(
            f"{where} {plural(len(found), 'label vector')}, but the classes are {wanted}; give one "
            f"row per class"
        )
    lengths = np.linalg.norm(found, axis=1)
    wrong = np.flatnonzero(~((lengths > 0) & np.isfinite(lengths)))
    if len(wrong):
        raise DataError(
            f"{where} no direction for the class {space.terminal_names[wrong[0]]!r}: its vector is "
            f"0 or not finite; give it another one"
        )
    divided: Floats = found / lengths[:, None]
    return divided


DEVISE = Recipe(
    "devise",
    "DeViSE: the nearest of label vectors from the taxonomy or a file (Frome 2013)",
    head="devise",
    rule=lambda facts: {  # as ``plain``, with more dropout for numbers
        **plain(facts),
        "network_options": {"dropout": 0.5} if facts.kind == "numbers" else {},
    },
)
