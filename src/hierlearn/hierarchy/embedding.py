"""Embedding: a vector of length 1 for each terminal class, from the taxonomy or from a file.

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

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError, HierlearnError, LabelError, plural
from hierlearn.files.arrays import ENDINGS, read_matrix
from hierlearn.files.rows import read_rows
from hierlearn.hierarchy.label_space import LabelSpace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.hierarchy.hierarchy import Hierarchy

    Floats = NDArray[np.float64]

LARGEST = 1024  # dimensions, unless more are asked for
DENSE = 2048  # terminal classes up to which all eigenvectors are computed
ITERATIONS = 8  # of the randomized decomposition beyond
SMALLEST = 1e-6  # the length of a vector that its class has lost
TABLES = (".csv", ".tsv")


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
            order of the hierarchy; or a .csv or .tsv file with a header, the name of a class in the
            first column and one column per dimension.
        label_space: what can be predicted, or a Hierarchy.

    Raises:
        DataError: naming the file, and the class that has no vector, or one that is 0.
    """
    path, space = Path(path), LabelSpace.of(label_space)
    if path.suffix.lower() in TABLES:
        found = table_vectors(path, space)
    elif path.suffix.lower() in ENDINGS:
        found = read_matrix(path).astype(np.float64)
        if len(found) == len(space):
            found = found[space.terminals]
    else:
        raise DataError(
            f"{path}: label vectors are read from files that end in "
            f"{', '.join((*ENDINGS, TABLES[0]))} or {TABLES[1]}"
        )
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


def table_vectors(path: Path, space: LabelSpace) -> Floats:
    """Return (T, D) the vectors of a table of names and numbers."""
    header, rows = read_rows(path)
    if len(header) < 2:
        raise DataError(
            f"{path} has {plural(len(header), 'column')}, but label vectors are the name of a "
            f"class and one column per dimension"
        )
    found = np.full((len(space), len(header) - 1), np.nan)
    for line, (name, *cells) in rows:
        try:
            number = space.hierarchy.index(name)
        except LabelError as error:
            raise DataError(f"{path}, line {line}: {error}; remove the row") from None
        if not np.isnan(found[number, 0]):
            raise DataError(f"{path}, line {line}: a second vector of {name!r}; keep one")
        try:
            found[number] = [float(cell) for cell in cells]
        except ValueError:
            raise DataError(
                f"{path}, line {line}: the vector of {name!r} holds something else than "
                f"{plural(len(header) - 1, 'number')}"
            ) from None
    missing = np.flatnonzero(np.isnan(found[space.terminals]).any(axis=1))
    if len(missing):
        raise DataError(
            f"{path} has no vector of the terminal class {space.terminal_names[missing[0]]!r}; "
            f"write one row for each"
        )
    kept: Floats = found[space.terminals]
    return kept
