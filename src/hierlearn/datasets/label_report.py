"""Labels of a file as classes of a hierarchy, and what became of those that are none.

replaced   an old id stands for another class (``alt_id``, ``replaced_by``)
pruned     a class that was removed counts for its nearest ancestors
skipped    a label that the hierarchy does not have, left out with ``unknown="skip"``
unseen     one that counts for the nearest class above it, with ``unknown="nearest"``
"""

from __future__ import annotations

import csv
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from hierlearn.errors import DataError, LabelError, place, plural, quoted, unknown_name
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hierlearn.files.locations import Location
    from hierlearn.hierarchy import Hierarchy

Unknown = Literal["error", "skip", "nearest"]
HEADER = ("label", "rows", "occurrences", "first_line", "reason")


class LabelWarning(UserWarning):
    """Labels were replaced, mapped up or left out."""


@dataclass
class Found:
    """Where a label occurs.

    Attributes:
        line: of the first row that has it.
        rows: how many rows have it.
        occurrences: how often it occurs.
        reason: why it is no class.
        classes: the classes that it stands for.
    """

    line: int
    rows: int = 0
    occurrences: int = 0
    reason: str = ""
    classes: tuple[str, ...] = ()


@dataclass
class LabelReport:
    """What became of the labels that are no class.

    Attributes:
        replaced: old ids.
        pruned: classes that were removed.
        skipped: labels that the hierarchy does not have.
        unseen: labels that it does not have, and the class above that each counts for, if any.
        rows_left_out: rows without any label that is left.
    """

    replaced: dict[str, Found] = field(default_factory=dict)
    pruned: dict[str, Found] = field(default_factory=dict)
    skipped: dict[str, Found] = field(default_factory=dict)
    unseen: dict[str, Found] = field(default_factory=dict)
    rows_left_out: int = 0

    def messages(self) -> list[str]:
        """Return what to say about them, one sentence each."""
        said = []
        if self.replaced:
            old, one = next(iter(self.replaced.items()))
            said.append(
                f"{count(self.replaced, 'old id')} replaced by the classes that took their place, "
                f"such as {old!r} by {quoted(one.classes)}"
            )
        if self.pruned:
            old, one = next(iter(self.pruned.items()))
            above = quoted(one.classes) if one.classes else "no class"
            said.append(
                f"{count(self.pruned, 'pruned label')} counted for the nearest ancestors that were "
                f"kept, such as {old!r} for {above}"
            )
        if self.skipped:
            said.append(
                f"{count(self.skipped, 'unknown label')} skipped, such as "
                f"{quoted(self.skipped, most=3)}"
            )
        if self.rows_left_out:
            rows, verb = (
                plural(self.rows_left_out, "row"),
                "is" if self.rows_left_out == 1 else "are",
            )
            said.append(f"{rows} without a label of the hierarchy {verb} left out")
        return said

    def warn(self, path: Location) -> None:
        """Warn about them."""
        for message in self.messages():
            warnings.warn(f"{path}: {message}", LabelWarning, stacklevel=4)

    def write(self, path: Path) -> None:
        """Write the skipped labels as CSV, the most frequent first."""
        with atomic_write(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            ordered = sorted(self.skipped.items(), key=lambda item: (-item[1].rows, item[0]))
            for label, one in ordered:
                writer.writerow((label, one.rows, one.occurrences, one.line, one.reason))


def count(found: dict[str, Found], what: str) -> str:
    """Return ``3 old ids (7 occurrences) were``."""
    total = sum(one.occurrences for one in found.values())
    verb = "was" if len(found) == 1 else "were"
    return f"{plural(len(found), what)} ({plural(total, 'occurrence')}) {verb}"


def check_unknown(unknown: str) -> None:
    """Raise on what is no way to treat unknown labels."""
    if unknown not in get_args(Unknown):
        raise DataError(unknown_name("value of unknown", str(unknown), get_args(Unknown)))


def class_labels(
    raw: Sequence[Sequence[str]],
    rows: Sequence[int],
    hierarchy: Hierarchy,
    *,
    unknown: Unknown = "error",
    path: Location,
    lines: Sequence[int],
) -> tuple[list[list[str]], LabelReport]:
    """Return each set of labels as names of classes, and a report of those that are none.

    Args:
        raw: distinct sets of labels.
        rows: how many rows have each set.
        hierarchy: the taxonomy.
        unknown: "error" to raise on a label that it does not have, "skip" to leave it out,
            "nearest" to let it count for the nearest class above it, if there is any.
        path: the file, for errors.
        lines: the first line of each set.

    Raises:
        LabelError: naming the line of the first unknown label, and how many there are.
    """
    report = LabelReport()
    known: dict[str, tuple[str, ...]] = {}
    named = []
    for labels, line, times in zip(raw, lines, rows, strict=True):
        found: dict[str, None] = {}
        for label in labels:
            if label not in known:
                known[label] = stand_for(label, hierarchy, report, line)
                if unknown == "nearest" and label in report.skipped:
                    known[label] = counted_above(label, hierarchy, report)
            found |= dict.fromkeys(known[label])
        for label in dict.fromkeys(labels):
            for part in (report.replaced, report.pruned, report.skipped, report.unseen):
                if label in part:
                    part[label].rows += times
                    part[label].occurrences += times * list(labels).count(label)
        named.append(list(found))
    if report.skipped and unknown != "skip":
        raise unknown_labels(report.skipped, path)
    if report.unseen and not any(named):
        raise unknown_labels(report.unseen, path)
    return named, report


def unseen_rows(
    sets: Sequence[Sequence[str]], codes: Iterable[int], report: LabelReport
) -> dict[int, tuple[str, ...]]:
    """Return by row number the labels that count for the nearest class above them.

    Args:
        sets: distinct sets of labels.
        codes: the set of each row.
        report: what became of them.
    """
    if not report.unseen:
        return {}
    held = [tuple(label for label in labels if label in report.unseen) for labels in sets]
    return {row: held[code] for row, code in enumerate(codes) if held[code]}


def unseen_note(unseen: Mapping[int, Sequence[str]], lost: Sequence[int]) -> str:
    """Say how many rows have labels that the taxonomy lacks; nothing where none has.

    Args:
        unseen: these labels by row.
        lost: the rows of them that have no class above these labels either.
    """
    if not unseen:
        return ""
    labels = dict.fromkeys(label for own in unseen.values() for label in own)
    note = (
        f"{plural(len(unseen), 'row')} {'have' if len(unseen) > 1 else 'has'} "
        f"{plural(len(labels), 'label')} that training never saw: scored at the nearest known "
        f"class above"
    )
    if not lost:
        return note
    names = dict.fromkeys(label for row in lost for label in unseen[row])
    has = "has" if len(lost) == 1 else "have"
    return (
        f"{note}; {plural(len(lost), 'row')} of them {has} none above, so any class is wrong "
        f"there: {quoted(names, most=3)}"
    )


def stand_for(label: str, hierarchy: Hierarchy, report: LabelReport, line: int) -> tuple[str, ...]:
    """Return the classes that a label stands for, and note it where it is no class."""
    others = report.skipped or report.unseen  # looking for similar names takes long
    if others and is_unknown(label, hierarchy):
        report.skipped[label] = Found(line, reason=f"unknown label {label!r}")
        return ()
    try:
        classes = tuple(hierarchy.names[number] for number in hierarchy.resolve(label))
    except LabelError as error:
        report.skipped[label] = Found(line, reason=str(error))
        return ()
    if label in hierarchy.aliases:
        report.replaced[label] = Found(line, classes=classes)
    elif label in hierarchy.pruned or label not in hierarchy:
        report.pruned[label] = Found(line, classes=classes)
    return classes


def counted_above(label: str, hierarchy: Hierarchy, report: LabelReport) -> tuple[str, ...]:
    """Return the classes that an unknown label counts for; one that is ambiguous stays an error."""
    if not is_unknown(label, hierarchy):
        return ()
    found = report.unseen[label] = report.skipped.pop(label)
    found.classes = hierarchy.nearest_known(label)
    return found.classes


def is_unknown(label: str, hierarchy: Hierarchy) -> bool:
    """Whether a hierarchy has never heard of a label."""
    return hierarchy.explain_label(label) is None and hierarchy._find(label) is None


def unknown_labels(skipped: dict[str, Found], path: Location) -> LabelError:
    """Return the error of the first unknown label, with how many there are and the remedy."""
    first = next(iter(skipped.values()))
    many = ""
    if len(skipped) > 1:
        total = sum(one.occurrences for one in skipped.values())
        more = plural(len(skipped) - 1, "more unknown label")
        many = f"; {more}, {total:,} occurrences in all"
    end = "" if first.reason.endswith("?") and not many else ";"
    return LabelError(
        f"{place(path, first.line)}: {first.reason}{many}{end} correct "
        f"{'it' if len(skipped) == 1 else 'them'}, or pass unknown='skip'"
    )
