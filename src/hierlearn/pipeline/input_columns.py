"""The columns that a model reads, as it knows them from its training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.datasets.vectors import is_vector_file

if TYPE_CHECKING:
    from hierlearn.pipeline.pipeline import Pipeline


def known_columns(pipeline: Pipeline) -> dict[str, Any]:
    """Return the one kind of inputs that a model reads, with the columns as far as it knows them.

    kinds       of a mixed table: the kind of every column by name
    features    the columns of numbers, None where they have no names
    text        the column of texts, or None
    image       the column of images, or None
    embeddings  the column of vectors, None where training read them from a file
    """
    known = pipeline.config.get("columns", {})
    names = pipeline.config.get("feature_names")
    step: Any = pipeline.preprocessor
    reads = "numbers" if step is None else step.reads
    if reads == "table":
        return {"kinds": step.kinds}
    if known.get("embeddings"):
        named = known["embeddings"]
        return {"embeddings": None if is_vector_file(named) else named}
    if reads == "images":
        return {"image": known.get("image")}
    if reads == "texts":  # a table with one column of texts knows it as its feature
        return {"text": known.get("text") or (names[0] if names else None)}
    return {"features": list(names) if names else None}
