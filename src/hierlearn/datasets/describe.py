"""A summary of a dataset: what decides how to learn from it, ready for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.label_checks import near_duplicates, single_row_classes
from hierlearn.hierarchy.labels import Labels

if TYPE_CHECKING:
    from hierlearn.datasets.dataset import Dataset


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return a summary of a dataset, ready for JSON."""
    hierarchy = dataset.hierarchy
    labels = Labels(dataset.labels, hierarchy)
    terminals = np.diff(labels.terminal[0])  # (N,) terminal labels per row
    inner = np.setdiff1d(labels.terminal_classes, hierarchy.leaves)
    summary: dict[str, Any] = {
        "name": dataset.name,
        "source": dataset.source,
        "rows": len(dataset),
        "splits": {name: len(rows) for name, rows in dataset.splits.items()},
        "inputs": describe_inputs(dataset),
        "hierarchy": {
            "classes": len(hierarchy),
            "kind": "tree" if hierarchy.is_tree else "DAG",
            "edges": len(hierarchy.structure.parent_ids),
            "levels": hierarchy.depth,
            "classes_by_level": list(hierarchy.level_sizes),
            "leaves": len(hierarchy.leaves),
            "inner_terminal_classes": len(inner),
            "fingerprint": hierarchy.fingerprint,
        },
        "labels": {
            "terminal_per_row": {
                "min": int(terminals.min()) if len(terminals) else 0,
                "mean": float(terminals.mean()) if len(terminals) else 0.0,
                "max": int(terminals.max()) if len(terminals) else 0,
            },
            "single_path": labels.single_path,
            "rows_without_label": int(np.sum(terminals == 0)),
            "rows_ending_above_a_leaf": rows_above_leaf(labels),
            **suspicious_labels(labels),
        },
        "rows_per_class": spread_by_level(labels),
    }
    if "train" in dataset.splits:
        train = Labels([dataset.labels[row] for row in dataset.splits["train"]], hierarchy)
        summary["labels"]["classes_without_training_row"] = int(np.sum(train.counts == 0))
    return summary


def suspicious_labels(labels: Labels) -> dict[str, Any]:
    """Return the labels that look misspelled, and the classes with a single row."""
    hierarchy = labels.hierarchy
    single = single_row_classes(labels)
    return {
        "near_duplicates": [asdict(one) for one in near_duplicates(hierarchy, labels.counts)],
        "classes_with_one_row": [hierarchy.names[number] for number in single],
    }


def describe_inputs(dataset: Dataset) -> dict[str, Any]:
    """Return what the inputs are."""
    inputs: Any = dataset.inputs
    if dataset.kind == "texts":
        words = sum(len(text.split()) for part in dataset.input_parts() for text in part)
        return {"kind": "texts", "words_per_row": words / max(1, len(dataset))}
    if dataset.kind == "images":
        return {"kind": "images"}
    cells = max(1, inputs.shape[0] * inputs.shape[1])
    if dataset.kind == "table":
        missing = sum(int(inputs.missing(name).sum()) for name in inputs.names)
        return {
            "kind": "table",
            "features": inputs.shape[1],
            "columns": inputs.summary(),
            "kinds": dict(inputs.kinds),
            "missing_fraction": missing / cells,
        }
    summary: dict[str, Any] = {"kind": dataset.kind, "features": inputs.shape[1]}
    if dataset.kind == "sparse":
        return {**summary, "density": int(inputs.count_nonzero()) / cells}
    missing = sum(int(np.isnan(part).sum()) for part in dataset.input_parts())
    return {**summary, "missing_fraction": missing / cells}


def rows_above_leaf(labels: Labels) -> int:
    """Count the rows with a terminal label that is an inner class."""
    offsets, numbers = labels.terminal
    rows = np.repeat(np.arange(len(labels)), np.diff(offsets))
    return len(np.unique(rows[labels.hierarchy.heights[numbers] > 0]))


def spread_by_level(labels: Labels) -> list[dict[str, Any]]:
    """Return the spread of rows over the classes of each level."""
    found = []
    for level, columns in enumerate(labels.hierarchy.level_slices, start=1):
        counts = labels.counts[columns]
        found.append(
            {
                "level": level,
                "classes": len(counts),
                "fewest": int(counts.min()),
                "median": float(np.median(counts)),
                "most": int(counts.max()),
                "empty": int(np.sum(counts == 0)),
            }
        )
    return found
