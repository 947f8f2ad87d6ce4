"""The columns that a model reads, and what it calls its levels, as it knows from its training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.datasets.tables.stream import is_vector_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.pipeline.pipeline import Pipeline

ANSWER = ("id", "path", "class", "title", "probability", "level", "stopped")


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


def named_levels(config: Mapping[str, Any], depth: int) -> list[str]:
    """Return the columns of the levels in training, if there was one per level; otherwise none."""
    named = config.get("columns", {}).get("levels") or []
    if isinstance(named, str):
        named = [name.strip() for name in named.split(",") if name.strip()]
    return list(named) if len(named) == depth else []


def level_names(config: Mapping[str, Any], depth: int) -> list[str]:
    """Return the levels from the top as they are shown: numbers, and names where they have any."""
    named = named_levels(config, depth)
    numbers = range(1, depth + 1)
    return [f"{one} ({named[one - 1]})" if named else str(one) for one in numbers]


def level_column_names(pipeline: Pipeline) -> list[str]:
    """Return how the column of every level is called in answers: as in training, or by number."""
    depth = pipeline.hierarchy.depth
    named = named_levels(pipeline.config, depth)
    if named and not {*named} & {*ANSWER}:
        return named
    return [f"level_{level}" for level in range(1, depth + 1)]
