"""What a change of the memory does to the rest of a pipeline: classes, heads and configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, quoted
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import link_name, make_link
from hierlearn.networks.blend import is_blend, memories_alone, memory_shares
from hierlearn.networks.ensemble import drop_heads, head_names
from hierlearn.networks.memories import memory_heads, set_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.memory import Remembered
    from hierlearn.memory.taxonomy import Remap
    from hierlearn.pipeline.pipeline import Pipeline


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
    names = drop_other_heads(pipeline, rows.hierarchy)
    if names is not None:
        embeddings = {names[name]: found for name, found in embeddings.items() if name in names}
    set_memory(pipeline.network, embeddings, rows)
    set_label_space(pipeline, rows.labels.sets, plan)


def drop_other_heads(pipeline: Pipeline, new: Hierarchy) -> dict[str, str] | None:
    """Drop the heads that have learned the old classes, where the classes change.

    Args:
        pipeline: changed in place.
        new: the new taxonomy.

    Returns:
        The new names of the heads of a blend, whose parts are numbered again; None otherwise.
    """
    old, spec = pipeline.label_space, pipeline.network_spec
    if old.hierarchy == new:
        return None
    if is_blend(pipeline.network):
        pipeline.network, names = memories_alone(pipeline.network, old)
        if spec is not None:
            pipeline.network_spec = replace(spec, parts=pipeline.network.specs)
        return names
    heads = memory_heads(pipeline.network)
    others = [name for name in head_names(pipeline.network) if name not in heads]
    drop_heads(pipeline.network, others)
    if spec is not None:
        kept = {name: one for name, one in spec.heads.items() if name not in others}
        pipeline.network_spec = replace(spec, heads=kept)
    return None


def set_label_space(pipeline: Pipeline, labels: Labels, plan: Remap) -> None:
    """Set what a pipeline can predict.

    Args:
        pipeline: changed in place.
        labels: in the new taxonomy; those of rows whose classes were terminal before may be left
            out.
        plan: where the old classes went; a terminal class stays one under its new name.
    """
    also = plan.single_destinations(pipeline.label_space.terminals)
    pipeline.label_space = LabelSpace.from_labels(labels, also)
    for several in memory_heads(pipeline.network).values():
        for head in several:
            head.move_to(pipeline.label_space, plan.destinations)
    device = pipeline.device
    if is_blend(pipeline.network):  # its links are of the old classes
        pipeline.network = pipeline.network.moved_to(pipeline.label_space).to(device)
    pipeline.link = make_link(pipeline.label_space, link_name(pipeline.link)).to(device)


def record(pipeline: Pipeline, change: str, before: str, **counts: int) -> None:
    """Note a change in the configuration, for the model card.

    Changes of one kind that follow each other are one entry. Metrics become those of before.
    Thresholds that were calibrated for other rows are dropped; they stay where the answers only
    have other names.
    """
    config = pipeline.config
    entry = {"change": change, "fingerprint_before": before, **counts}
    *earlier, last = config.get("history") or [{}]
    alike = ("change", "fingerprint_before", "classes")  # a thousand of them are one entry
    if (
        change != "remap"
        and not counts.get("classes")
        and all(last.get(key) == entry.get(key) for key in alike)
    ):
        total = last["rows"] + counts["rows"]
        entry = {**entry, "rows": total, "times": last.get("times", 1) + 1}
    elif last:
        earlier.append(last)
    config["history"] = [*earlier, entry]
    if config.get("metrics"):
        config["metrics_before"], config["metrics"] = config["metrics"], {}
    if change != "remap" and "estimator" in config:
        own = config["estimator"]
        config["estimator"] = {key: own[key] for key in own if key != "thresholds"}


def unknown_ids(unknown: Sequence[str], ids: Sequence[Any]) -> HierlearnError:
    """Return the error of ids that no row has.

    Args:
        unknown: the ids.
        ids: of the rows, or of the first of them.
    """
    return HierlearnError(
        f"the memory has no row with id {quoted(unknown, most=5)}; it has "
        f"{quoted([str(one) for one in ids], most=3)}"
    )


def nothing_left(rows: int) -> HierlearnError:
    """Return the error of a memory that would lose all its rows."""
    return HierlearnError(
        f"these are all {rows:,} rows of the memory; a model that remembers nothing cannot answer"
    )
