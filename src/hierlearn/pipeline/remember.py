"""Remember, forget, remap: a model that changes without training.

Only what the memory holds changes: rows are added with their labels, even those of new classes;
rows are removed; and the labels of all rows move to another taxonomy. Heads that are not a memory
have learned the old classes, so they are dropped where the classes change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.dataset import count_rows, shown_texts
from hierlearn.errors import HierlearnError, LabelError
from hierlearn.features.images import as_images
from hierlearn.hierarchy.labels import Labels, UnlabeledDescendants
from hierlearn.hierarchy.names import inherit_titles
from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.taxonomy import Remap, grown, unplaced
from hierlearn.networks.memories import embeddings_of, memory_heads, set_memory
from hierlearn.pipeline.changes import (
    check_answers_from_memory,
    check_superset,
    keep_next_id,
    next_id,
    nothing_left,
    record,
    replace_memory,
    unknown_ids,
)
from hierlearn.pipeline.explain import rows_of
from hierlearn.pipeline.memory_shards import Shard
from hierlearn.pipeline.row_digests import row_digests
from hierlearn.training.memorize import BATCH, encode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Growth:
    """What ``remember`` added.

    Attributes:
        rows: how many rows were added.
        classes: the names of the new classes.
        total: how many rows are remembered now.
        known: how many rows were remembered already, and were left out.
    """

    rows: int
    classes: tuple[str, ...]
    total: int
    known: int = 0


def texts_to_show(pipeline: Pipeline, inputs: Any) -> list[str]:
    """Return what to show of new rows, where the remembered rows have texts."""
    step: Any = pipeline.preprocessor
    if step is not None and step.reads == "images":
        return as_images(inputs).names
    inputs = step.read(inputs) if step is not None and step.reads == "table" else list(inputs)
    return [str(text) for text in shown_texts(inputs) or ()]


def remember(
    pipeline: Pipeline,
    inputs: Any,
    labels: Sequence[Sequence[str]],
    *,
    hierarchy: Hierarchy | None = None,
    ids: Sequence[str] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Growth:
    """Add labeled rows to the memory of a pipeline, in place, and the classes that they bring.

    However few rows a new class has, they count as much as those of a class of the usual size, see
    ``memory/class_sizes.py``.

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows.
        labels: the labels of each row, by path. A path that is new becomes a class below its
            parent, a label without one only where the hierarchy is flat.
        hierarchy: a hierarchy with the new classes, where their paths do not tell it; it must have
            all old classes as they are.
        ids: of the rows; by default numbers that no remembered row has or had. A row that is
            remembered already with this id and the same labels and embedding is left out, so that
            a call can be repeated.
        weights: (n,) how much each row counts; by default 1.
    """
    rows = rows_of(pipeline)
    old, before = pipeline.hierarchy, pipeline.hierarchy.fingerprint
    known = Known(
        rows.labels.sets.unlabeled_descendants,
        rows.texts is not None,
        max(next_id(rows.ids), pipeline.config.get("next_id", 0)),
    )
    added = new_rows(pipeline, inputs, labels, known, hierarchy=hierarchy, ids=ids, weights=weights)
    given = len(added)
    if ids is not None:
        held = Shard(embeddings_of(pipeline.network), rows)
        own = {*added.rows.ids}
        again = np.flatnonzero([str(one) in own for one in rows.ids])
        added = without_held(added, [held.take(again)])
        if not len(added):
            return Growth(0, (), len(rows), given)
    plan = Remap(old, added.rows.hierarchy, {})
    if plan.new != old or plan.new.titles != old.titles:
        rows = rows.with_labels(plan.labels(rows.labels))
    joined = Shard.join([Shard(embeddings_of(pipeline.network), rows), added])
    replace_memory(pipeline, dict(joined.embeddings), joined.rows, plan)
    if pipeline.seen is not None:
        pipeline.seen = pipeline.seen.with_rows(added.seen)
    keep_next_id(pipeline, joined.rows.ids)
    growth = note_growth(pipeline, old, before, len(added), len(joined))
    return replace(growth, known=given - len(added))


def without_held(new: Shard, held: Iterable[Shard]) -> Shard:
    """Return the rows that are not held already: by id, labels and embedding.

    Ids alone do not tell: rows may share one, and those of training may be numbers that stand for
    nothing. Equal inputs have equal embeddings up to rounding.
    """
    found = np.zeros(len(new), dtype=bool)
    places: dict[str, list[int]] = {}
    for row, one in enumerate(new.rows.ids):
        places.setdefault(str(one), []).append(row)
    own = label_names(new.rows)
    for shard in held:
        names = label_names(shard.rows)
        for row, one in enumerate(shard.rows.ids):
            for place in places.get(str(one), ()):
                if not found[place] and names[row] == own[place]:
                    found[place] = all(
                        torch.allclose(
                            shard.embeddings[name][..., row, :].float(),
                            mine[..., place, :].float().to(shard.embeddings[name].device),
                            rtol=1e-2,
                            atol=1e-3 * float(mine[..., place, :].abs().max()),
                        )
                        for name, mine in new.embeddings.items()
                    )
    kept = np.flatnonzero(~found)
    return replace(new.take(kept), seen=new.seen[kept] if len(new.seen) else new.seen)


def label_names(rows: Remembered) -> list[tuple[str, ...]]:
    """Return the names of the most specific labels of each row."""
    offsets, numbers = rows.labels.sets.terminal
    names = rows.hierarchy.names
    sets = [
        tuple(sorted(names[number] for number in numbers[begin:end].tolist()))
        for begin, end in pairwise(offsets.tolist())
    ]
    return [sets[one] for one in rows.labels.of_row.tolist()]


@dataclass(frozen=True)
class Known:
    """What new rows must fit of the memory that they are added to.

    Attributes:
        policy: how classes below a label count.
        texts: whether rows have a text to show.
        next_id: the first integer that no row has or had as id.
    """

    policy: UnlabeledDescendants
    texts: bool
    next_id: int


def new_rows(
    pipeline: Pipeline,
    inputs: Any,
    labels: Sequence[Sequence[str]],
    known: Known,
    *,
    hierarchy: Hierarchy | None = None,
    ids: Sequence[str] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Shard:
    """Return new rows as they are remembered, in the taxonomy that they need.

    Args:
        pipeline: whose memory they are for; it need not be filled.
        inputs: the raw rows.
        labels: as in ``remember``, like the others.
        known: what they must fit.
        hierarchy: that of the new classes.
        ids: of the rows.
        weights: (n,) how much each row counts.
    """
    labels = [[one] if isinstance(one, str) else list(one) for one in labels]
    total = count_rows(inputs)
    if total != len(labels):
        raise HierlearnError(f"inputs have {total} rows but labels have {len(labels)}")
    if not total:
        raise HierlearnError("there are no rows to remember; pass at least one")
    old = pipeline.hierarchy
    wanted = hierarchy or grown(old, (one for row in labels for one in row))
    wanted = inherit_titles(wanted, old)
    if wanted != old:
        check_superset(old, wanted)
        check_answers_from_memory(pipeline, "new classes")
    texts = texts_to_show(pipeline, inputs) if known.texts else None
    found = LabelSets.from_labels(Labels(labels, wanted, unlabeled_descendants=known.policy))
    names = ids if ids is not None else range(known.next_id, known.next_id + total)
    counts = None if weights is None else np.asarray(weights, dtype=np.float64)
    later = np.ones(total, dtype=bool)
    rows = Remembered(found, [str(one) for one in names], counts, texts, later)
    starts = range(0, total, BATCH)
    batches = (pipeline.rows(inputs[begin : begin + BATCH]) for begin in starts)
    embeddings = encode_batches(pipeline.network, batches)
    return Shard(embeddings, rows, row_digests(pipeline, inputs))


def note_growth(pipeline: Pipeline, old: Hierarchy, before: str, rows: int, total: int) -> Growth:
    """Note new rows in the configuration of a pipeline, and return what was added.

    Args:
        pipeline: in its new taxonomy.
        old: the taxonomy of before.
        before: its fingerprint.
        rows: how many rows are new.
        total: how many there are now.
    """
    known = set(old.names)
    classes = tuple(name for name in pipeline.hierarchy.names if name not in known)
    record(pipeline, "remember", before, rows=rows, classes=len(classes))
    return Growth(rows, classes, total)


def forget(pipeline: Pipeline, ids: Iterable[str]) -> int:
    """Remove the rows with some ids from the memory of a pipeline, in place; return how many.

    Nothing of a row is left in the memory then; what training learned from it stays in the weights.
    Classes stay, also those without any row.

    Args:
        pipeline: a pipeline with a memory.
        ids: of the rows; an id that no row has raises.
    """
    rows = rows_of(pipeline)
    wanted = {str(one) for one in ([ids] if isinstance(ids, str) else ids)}
    unknown = sorted(wanted.difference(map(str, rows.ids)))
    if unknown:
        raise unknown_ids(unknown, rows.ids)
    keep = np.flatnonzero([str(one) not in wanted for one in rows.ids])
    if not len(keep):
        raise nothing_left(len(rows))
    kept = Shard(embeddings_of(pipeline.network), rows).take(keep)
    keep_next_id(pipeline, rows.ids)
    set_memory(pipeline.network, dict(kept.embeddings), kept.rows)
    gone = len(rows) - len(keep)
    record(pipeline, "forget", pipeline.hierarchy.fingerprint, rows=gone)
    return gone


def remap(
    pipeline: Pipeline,
    hierarchy: Hierarchy,
    mapping: Mapping[str, str | Sequence[str] | None] | None = None,
    labels: Mapping[str, str | Sequence[str]] | None = None,
    *,
    dry_run: bool = False,
) -> dict[str, int]:
    """Move a pipeline to another taxonomy, in place; return how many classes and rows change.

    Where classes have no place in the new taxonomy it raises; a dry run counts them, as
    "without a place", and counts their rows as if the mapping removed them.

    Args:
        pipeline: a pipeline with a memory.
        hierarchy: the new taxonomy.
        mapping: old name -> new name, several of them where a class is split, None where it is
            removed. Classes that keep their name need not be named.
        labels: the new labels of single rows by id, for those of a class that is split; other
            rows of it go to the parent of its parts.
        dry_run: only count.
    """
    rows = rows_of(pipeline)
    asked = {k: as_list(v) for k, v in (mapping or {}).items()}
    lost = unplaced(pipeline.hierarchy, hierarchy, asked) if dry_run else []
    plan = Remap(pipeline.hierarchy, hierarchy, {**asked, **{name: [] for name in lost}})
    own: dict[int, Sequence[str]] = {}
    if labels:
        places: dict[str, list[int]] = {}
        for row, one in enumerate(rows.ids):
            places.setdefault(str(one), []).append(row)
        for one, ends in labels.items():
            if str(one) not in places:
                raise HierlearnError(f"the memory has no row with id {one!r}")
            own |= dict.fromkeys(places[str(one)], new_labels(hierarchy, str(one), ends))
    moved = plan.labels(rows.labels, own)
    unlabeled = np.diff(moved.sets.terminal[0]) == 0
    found = {
        **plan.summary(rows.labels),
        "rows with labels of their own": len(own),
        "rows without a label": int(unlabeled[moved.of_row].sum()),
    }
    check_answers_from_memory(pipeline, "another taxonomy")
    if dry_run:
        if lost:
            found["removed"] -= len(lost)
            found = {"without a place": len(lost), **found}
        return found
    before = pipeline.hierarchy.fingerprint
    replace_memory(pipeline, embeddings_of(pipeline.network), rows.with_labels(moved), plan)
    record(pipeline, "remap", before, rows=found["rows whose label changes"])
    return found


# ---------------------------------------- the parts


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """Return one name, several or none as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def new_labels(hierarchy: Hierarchy, row: str, labels: str | Sequence[str]) -> list[str]:
    """Return the new labels of a row by full names; raise on one that the hierarchy lacks.

    Args:
        hierarchy: the new taxonomy.
        row: the id of the row, for the error.
        labels: one label or several.
    """
    try:
        return [hierarchy.names[hierarchy.index(one)] for one in as_list(labels)]
    except LabelError as error:
        raise LabelError(
            f"the new label of the row with id {row!r} is no class of the new hierarchy: "
            f"{error.message}; "
            f"correct the label, or add the class to the hierarchy"
        ) from None


def build_index(pipeline: Pipeline, recall: float = 0.99) -> float:
    """Build an approximate index of the memory, in place, and return the recall it measured.

    It is saved with the model, and used where faiss is installed. A memory that changes drops it.

    Args:
        pipeline: a pipeline with a memory.
        recall: the fraction of the nearest rows that a search must find.
    """
    rows_of(pipeline)
    return min(
        head.build_index(recall)
        for heads in memory_heads(pipeline.network).values()
        for head in heads
    )
