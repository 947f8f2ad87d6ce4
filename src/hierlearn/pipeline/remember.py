"""Remember, forget, remap: a model that changes without training.

Only what the memory holds changes: rows are added with their labels, even those of new classes;
rows are removed; and the labels of all rows move to another taxonomy. Heads that are not a memory
have learned the old classes, so they are dropped where the classes change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.dataset import count_rows, shown_texts
from hierlearn.errors import HierlearnError, LabelError, quoted
from hierlearn.features.images import as_images
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.titles import inherit_titles
from hierlearn.links import link_name, make_link
from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.taxonomy import Remap, grown
from hierlearn.networks.blend import is_blend, memories_alone, memory_shares
from hierlearn.networks.ensemble import drop_heads, head_names
from hierlearn.networks.memories import embeddings_of, memory_heads, set_memory
from hierlearn.pipeline.explain import rows_of
from hierlearn.pipeline.row_digests import row_digests
from hierlearn.training.memorize import BATCH, encode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Growth:
    """What ``remember`` added.

    Attributes:
        rows: how many rows were added.
        classes: the names of the new classes.
        total: how many rows are remembered now.
    """

    rows: int
    classes: tuple[str, ...]
    total: int


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

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows.
        labels: the labels of each row, by path. A path that is new becomes a class below its
            parent, a label without one only where the hierarchy is flat.
        hierarchy: a hierarchy with the new classes, where their paths do not tell it; it must have
            all old classes as they are.
        ids: of the rows; by default numbers that no remembered row has or had.
        weights: (n,) how much each row counts; by default 1.
    """
    rows = rows_of(pipeline)
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
    texts = None if rows.texts is None else texts_to_show(pipeline, inputs)
    policy = rows.labels.sets.unlabeled_descendants
    found = LabelSets.from_labels(Labels(labels, wanted, unlabeled_descendants=policy))
    if ids is None:
        ids = next_ids(rows.ids, total, pipeline.config.get("next_id", 0))
    names = [str(one) for one in ids]
    counts = None if weights is None else np.asarray(weights, dtype=np.float64)
    added = Remembered(found, names, counts, texts)
    starts = range(0, total, BATCH)
    batches = (pipeline.rows(inputs[begin : begin + BATCH]) for begin in starts)
    new = encode_batches(pipeline.network, batches)
    plan = Remap(old, wanted, {})
    if wanted != old or wanted.titles != old.titles:
        rows = rows.with_labels(plan.labels(rows.labels))
    kept = embeddings_of(pipeline.network)
    # Not in the precision of the old rows: what overflows half precision came in another.
    joined = {name: torch.cat([kept[name], new[name]], dim=-2) for name in kept}
    before = pipeline.hierarchy.fingerprint
    replace_memory(pipeline, joined, rows.join(added), plan)
    if pipeline.seen is not None:
        pipeline.seen = pipeline.seen.with_rows(row_digests(pipeline, inputs))
    known = set(old.names)
    classes = tuple(name for name in wanted.names if name not in known)
    keep_next_id(pipeline, [*rows.ids, *names])
    record(pipeline, "remember", before, rows=total, classes=len(classes))
    return Growth(total, classes, len(rows) + total)


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
        raise HierlearnError(
            f"the memory has no row with id {quoted(unknown, most=5)}; it has "
            f"{quoted([str(one) for one in rows.ids], most=3)}"
        )
    keep = np.flatnonzero([str(one) not in wanted for one in rows.ids])
    if not len(keep):
        raise HierlearnError(
            f"these are all {len(rows):,} rows of the memory; a model that remembers nothing "
            f"cannot answer"
        )
    index = torch.from_numpy(keep)
    kept = {
        name: held.index_select(-2, index.to(held.device))
        for name, held in embeddings_of(pipeline.network).items()
    }
    keep_next_id(pipeline, rows.ids)
    set_memory(pipeline.network, kept, rows.take(keep))
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
    plan = Remap(pipeline.hierarchy, hierarchy, {k: as_list(v) for k, v in (mapping or {}).items()})
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
        return found
    before = pipeline.hierarchy.fingerprint
    replace_memory(pipeline, embeddings_of(pipeline.network), rows.with_labels(moved), plan)
    record(pipeline, "remap", before, rows=found["rows whose label changes"])
    return found


# ---------------------------------------------------------------------- the parts


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
            f"the new label of the row with id {row!r} is no class of the new hierarchy: {error}; "
            f"correct the label, or add the class to the hierarchy"
        ) from None


def check_superset(old: Hierarchy, new: Hierarchy) -> None:
    """Raise on a hierarchy in which an old class is missing or has other parents."""
    known = set(new.names)
    for number, name in enumerate(old.names):
        if name not in known:
            raise HierlearnError(
                f"the new hierarchy lacks {name!r}; use remap to rename or remove classes"
            )
        above = {old.names[one] for one in old.parents(number)}
        if above != {new.names[one] for one in new.parents(new.index(name))}:
            raise HierlearnError(
                f"{name!r} has other parents in the new hierarchy; use remap to move classes"
            )


def check_answers_from_memory(pipeline: Pipeline, what: str) -> None:
    """Raise where a head that has learned the old classes answers."""
    if is_blend(pipeline.network) and memory_shares(pipeline.network):
        return  # which goes on by its memories alone
    names, heads = head_names(pipeline.network), memory_heads(pipeline.network)
    if len(names) > 1 and pipeline.answer not in heads:
        memory = next(iter(heads))
        raise HierlearnError(
            f"this model answers by {pipeline.answer} of {quoted(names)}, and heads that are no "
            f"memory cannot take {what}; train with --answer {memory} (answer={memory!r} in "
            f"Python), so that the memory answers alone"
        )


def next_ids(ids: Sequence[str], count: int, least: int = 0) -> list[str]:
    """Return new ids: the integers after the largest id that is one.

    Args:
        ids: of the remembered rows.
        count: how many.
        least: the smallest integer to return; ``config["next_id"]`` of a pipeline lies above the
            ids of rows that it has forgotten.
    """
    first = max(next_id(ids), least)
    return [str(first + number) for number in range(count)]


def next_id(ids: Sequence[str]) -> int:
    """Return the integer after the largest id that is one."""
    return max((int(one) for one in ids if str(one).isdecimal()), default=len(ids) - 1) + 1


def keep_next_id(pipeline: Pipeline, ids: Sequence[str]) -> None:
    """Note which integer comes after some ids, so that none of them is used again."""
    pipeline.config["next_id"] = max(next_id(ids), pipeline.config.get("next_id", 0))


def replace_memory(
    pipeline: Pipeline, embeddings: dict[str, Tensor], rows: Remembered, plan: Remap
) -> None:
    """Set what a pipeline remembers, and its label space.

    Args:
        pipeline: changed in place.
        embeddings: of all rows by head.
        rows: in the new hierarchy.
        plan: where the old classes went; a terminal class stays one under its new name.
    """
    old, new = pipeline.label_space, rows.hierarchy
    if old.hierarchy != new and is_blend(pipeline.network):
        pipeline.network, names = memories_alone(pipeline.network, old)
        embeddings = {names[name]: found for name, found in embeddings.items() if name in names}
        spec = pipeline.network_spec
        if spec is not None:
            pipeline.network_spec = replace(spec, parts=pipeline.network.specs)
    elif old.hierarchy != new:
        heads = memory_heads(pipeline.network)
        others = [name for name in head_names(pipeline.network) if name not in heads]
        drop_heads(pipeline.network, others)
        spec = pipeline.network_spec
        if spec is not None:
            kept = {name: one for name, one in spec.heads.items() if name not in others}
            pipeline.network_spec = replace(spec, heads=kept)
    set_memory(pipeline.network, embeddings, rows)
    also = plan.single_destinations(old.terminals)
    policy = rows.labels.sets.unlabeled_descendants
    pipeline.label_space = LabelSpace.from_labels(
        rows.labels.sets, () if policy == "ignore" else also
    )
    for several in memory_heads(pipeline.network).values():
        for head in several:
            head.label_space = pipeline.label_space
    device = pipeline.device
    if is_blend(pipeline.network):  # its links are of the old classes
        pipeline.network = pipeline.network.moved_to(pipeline.label_space).to(device)
    pipeline.link = make_link(pipeline.label_space, link_name(pipeline.link)).to(device)


def record(pipeline: Pipeline, change: str, before: str, **counts: int) -> None:
    """Note a change in the configuration, for the model card.

    Metrics become those of before. Thresholds that were calibrated for other rows are dropped; they
    stay where the answers only have other names.
    """
    config = pipeline.config
    entry = {"change": change, "fingerprint_before": before, **counts}
    config["history"] = [*config.get("history", ()), entry]
    if config.get("metrics"):
        config["metrics_before"], config["metrics"] = config["metrics"], {}
    if change != "remap" and "estimator" in config:
        own = config["estimator"]
        config["estimator"] = {key: own[key] for key in own if key != "thresholds"}


def build_index(pipeline: Pipeline, recall: float = 0.99) -> float:
    """Build an approximate index of the memory, in place, and return the recall it measured.

    It is saved with the model, and used where faiss is installed. A memory that changes drops it.

    Args:
        pipeline: a pipeline with a memory.
        recall: the fraction of the nearest rows that a search must find.
    """
    rows_of(pipeline)
    return min(
        head.memory.build_index(head.distance, k=head.neighbors, recall=recall)
        for heads in memory_heads(pipeline.network).values()
        for head in heads
    )
