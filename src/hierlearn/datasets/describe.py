"""A summary of a dataset, and labels that look like mistakes: misspelled, or names split in two."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.hierarchy.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

RARE = 2  # rows of a class that may be a misspelled one
OFTEN = 3  # how many times as many rows the class has that may be meant
SHORTEST = 5  # letters of a name that one typing error leaves recognizable
FEW = 0.1  # of the cells that are split, the fraction whose parts occur nowhere else
BLANKS = re.compile(r"[\s_-]+")
NEGATIVE = re.compile(r"\s*[-\u2212]\d")


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return a summary of a dataset, ready for JSON."""
    hierarchy = dataset.hierarchy
    labels = Labels(dataset.labels, hierarchy)
    offsets, numbers = labels.terminal
    terminals = np.diff(offsets)  # (N,) terminal labels per row
    above_leaf = np.repeat(np.arange(len(labels)), terminals)[hierarchy.heights[numbers] > 0]
    spread = [(level, labels.counts[own]) for level, own in enumerate(hierarchy.level_slices, 1)]
    summary: dict[str, Any] = {
        "name": dataset.name,
        "source": dataset.source,
        "rows": len(dataset),
        "splits": {name: len(rows) for name, rows in dataset.splits.items()},
        "inputs": _describe_inputs(dataset),
        "hierarchy": {
            "classes": len(hierarchy),
            "kind": "tree" if hierarchy.is_tree else "DAG",
            "edges": len(hierarchy.structure.parent_ids),
            "levels": hierarchy.depth,
            "classes_by_level": list(hierarchy.level_sizes),
            "leaves": len(hierarchy.leaves),
            "inner_terminal_classes": len(np.setdiff1d(labels.terminal_classes, hierarchy.leaves)),
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
            "rows_ending_above_a_leaf": len(np.unique(above_leaf)),
            "near_duplicates": [asdict(one) for one in near_duplicates(hierarchy, labels.counts)],
            "classes_with_one_row": [hierarchy.names[one] for one in single_row_classes(labels)],
        },
        "rows_per_class": [
            {
                "level": level,
                "classes": len(counts),
                "fewest": int(counts.min()),
                "median": float(np.median(counts)),
                "most": int(counts.max()),
                "empty": int(np.sum(counts == 0)),
            }
            for level, counts in spread
        ],
    }
    if "train" in dataset.splits:
        train = Labels([dataset.labels[row] for row in dataset.splits["train"]], hierarchy)
        summary["labels"]["classes_without_training_row"] = int(np.sum(train.counts == 0))
    return summary


def _describe_inputs(dataset: Dataset) -> dict[str, Any]:
    inputs: Any = dataset.inputs
    if dataset.kind == "texts":
        words = sum(len(text.split()) for part in dataset.input_parts() for text in part)
        return {"kind": "texts", "words_per_row": words / max(1, len(dataset))}
    if dataset.kind == "images":
        return {"kind": "images"}
    summary: dict[str, Any] = {"kind": dataset.kind, "features": inputs.shape[1]}
    cells = max(1, inputs.shape[0] * inputs.shape[1])
    if dataset.kind == "sparse":
        return {**summary, "density": int(inputs.count_nonzero()) / cells}
    if dataset.kind == "table":
        summary |= {"columns": inputs.summary(), "kinds": dict(inputs.kinds)}
        missing = sum(int(inputs.missing(name).sum()) for name in inputs.names)
    else:
        missing = sum(int(np.isnan(part).sum()) for part in dataset.input_parts())
    return {**summary, "missing_fraction": missing / cells}


@dataclass(frozen=True)
class NearDuplicate:
    """A class that may be a misspelled one.

    Attributes:
        name: its name.
        rows: how many rows it has.
        meant: the name of its sibling that may be meant.
        meant_rows: how many rows that one has.
    """

    name: str
    rows: int
    meant: str
    meant_rows: int

    def __str__(self) -> str:
        return f"{self.name!r} ({self.rows:,}) for {self.meant!r} ({self.meant_rows:,} rows)"


def listed(found: Sequence[NearDuplicate], most: int) -> str:
    """Return the first of some near-duplicates as one line."""
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(map(str, found[:most])) + more


def class_counts(sets: Sequence[Sequence[str]], rows: Ints, hierarchy: Hierarchy) -> Ints:
    """Return (C,) the rows of each class, descendants' rows included.

    Args:
        sets: some sets of labels.
        rows: how many rows have each of them.
        hierarchy: the taxonomy.
    """
    closed, _ = Labels(sets, hierarchy).weighted_counts(rows.astype(np.float64))
    return closed.astype(np.int64)


def single_row_classes(labels: Labels) -> Ints:
    """Return the terminal classes that have exactly one row."""
    found: Ints = labels.terminal_classes[labels.counts[labels.terminal_classes] == 1]
    return found


# ---------------------------------------- misspelled names


def near_duplicates(hierarchy: Hierarchy, counts: Ints) -> list[NearDuplicate]:
    """Return the classes that differ from a sibling by case, blanks or one typing error.

    A typing error is suspected in a class of one or two rows whose sibling has three times as many;
    names that hold digits are codes, which may be alike.

    Args:
        hierarchy: the taxonomy.
        counts: (C,) the rows of each class.
    """
    siblings: dict[int, list[int]] = defaultdict(list)
    for number, parent in enumerate(hierarchy.structure.first_parents.tolist()):
        if counts[number]:
            siblings[parent].append(number)
    rows = counts.tolist()
    pairs: dict[int, int] = {}
    for group in siblings.values():
        folded = {number: fold(hierarchy.bare_names[number]) for number in group}
        pairs.update(typing_errors(folded, rows))
        first: dict[str, int] = {}  # of each folded name, the class with the most rows
        for number in sorted(group, key=lambda one: -rows[one]):
            if (most := first.setdefault(folded[number], number)) != number:
                pairs[number] = most
    return [
        NearDuplicate(hierarchy.names[one], rows[one], hierarchy.names[other], rows[other])
        for one, other in sorted(pairs.items())
    ]


def fold(name: str) -> str:
    """Return a name without case, and with one blank for blanks, underscores and hyphens."""
    if NEGATIVE.match(name):  # -1 is not 1
        return name.strip()
    return BLANKS.sub(" ", unicodedata.normalize("NFKC", name).casefold()).strip()


def typing_errors(folded: Mapping[int, str], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the rare classes that one typing error tells from a frequent one."""
    names = {
        number: name
        for number, name in folded.items()
        if len(name) >= SHORTEST - 1 and not any(map(str.isdigit, name))
    }
    rare = {number: name for number, name in names.items() if rows[number] <= RARE}
    if not rare or len(rare) == len(names):
        return
    shortened: dict[str, list[int]] = defaultdict(list)
    for number, name in rare.items():
        for variant in shortenings(name):
            shortened[variant].append(number)
    best: dict[int, int] = {}
    for number, name in names.items():
        if number in rare or len(name) < SHORTEST:
            continue
        for variant in shortenings(name) & shortened.keys():
            for one in shortened[variant]:
                often = max(OFTEN * rows[one], rows[best[one]] + 1 if one in best else 0)
                if rows[number] >= often and is_one_error(rare[one], name):
                    best[one] = number
    yield from best.items()


def shortenings(name: str) -> set[str]:
    """Return a name and all names with one character less."""
    return {name, *(name[:place] + name[place + 1 :] for place in range(len(name)))}


def is_one_error(one: str, other: str) -> bool:
    """Whether names differ by a character too many, too few or wrong, or by two swapped ones."""
    begin = 0
    while begin < min(len(one), len(other)) and one[begin] == other[begin]:
        begin += 1
    a, b = one[begin:], other[begin:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


# ---------------------------------------- names split in two


def one_name_cells(
    cells: Mapping[str, tuple[str, ...]], rows: Mapping[str, int], sep: str
) -> list[str]:
    """Return the cells of several labels that look like one name which holds the separator.

    Such a cell occurs in several rows, and one of these holds: its parts occur in no other cell;
    one of them occurs in no other cell and none ever alone, while most rows have one label; a part
    would be a top class that occurs nowhere else, beside a path.

    Args:
        cells: the labels of each distinct cell.
        rows: how many rows have each cell.
        sep: what joins the names of a path.
    """
    split = [cell for cell, parts in cells.items() if len(parts) > 1]
    if not split:
        return []
    uses = Counter(part for parts in cells.values() for part in set(parts))
    tops = Counter(part.split(sep)[0] for parts in cells.values() for part in set(parts))
    alone = {parts[0] for parts in cells.values() if len(parts) == 1}
    mostly_one = 2 * sum(rows[cell] for cell in split) < sum(rows.values())

    def is_suspicious(parts: tuple[str, ...]) -> bool:
        new = [part for part in parts if uses[part] == 1]
        if len(new) == len(parts) or (new and mostly_one and not alone.intersection(parts)):
            return True
        return sep in parts[0] and any(sep not in part and tops[part] == 1 for part in new)

    found = [cell for cell in split if rows[cell] > 1 and is_suspicious(cells[cell])]
    return found if len(found) >= FEW * len(split) else []
