"""The columns that may stand beside an answer, or instead of it: levels, best classes, all scores.

wide, one row per input row:
    level_1, level_1_title, level_1_probability, ...  the answer at every level
    top_1, top_1_title, top_1_probability, ...        the most probable terminal classes
    p:PATH                                            the probability of every class

long, one row per input row and class:
    row, rank, path, class, title, level, probability

The file of answers: kept columns first and exact, formulas escaped where asked for.

A spreadsheet runs a cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` as a formula,
whoever wrote it. Escaping puts ``'`` in front of such a text. Numbers stay, and Parquet files and
JSON lines need nothing of it.

The columns that a model reads, and what it calls its levels, as it knows from its training.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.tables.stream import is_vector_file
from hierlearn.datasets.tables.write import CodedColumn, is_delimited, table_writer
from hierlearn.decoding.decoder import ROOT
from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.errors import HierlearnError, arg, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, Any]

CELLS = 1 << 20  # scores that become text at a time


@dataclass(frozen=True)
class Layout:
    """What is written of each row beside the answer.

    Attributes:
        levels: the names of the levels, to add columns for each of them; empty for none.
        top: how many of the most probable terminal classes to add.
        scores: whether to add the probability of every class.
        long: write these as one row per class, without an answer.
    """

    levels: Sequence[str] = ()
    top: int = 0
    scores: bool = False
    long: bool = False

    def check(self, pipeline: Pipeline) -> None:
        """Raise on what does not go together, or is not there."""
        if self.top and self.scores:
            raise HierlearnError("top and scores are given; leave one of them out")
        if self.long and not (self.top or self.scores):
            raise HierlearnError(
                "the long layout has one row per class; give top or scores with it"
            )
        if self.long and self.levels:
            raise HierlearnError(
                f"the long layout has no columns per level; leave {arg('by_level')} out"
            )
        most = len(pipeline.label_space.terminals)
        if self.top > most:
            classes = plural(most, "terminal class", "terminal classes")
            raise HierlearnError(f"{arg('top')} must be at most {most:,}: there are {classes}")

    def names(self, pipeline: Pipeline) -> list[str]:
        """Return the names of the columns that it adds, in order."""
        hierarchy = pipeline.hierarchy
        if self.long:
            rank = ["rank"] if self.top else []
            return ["row", *rank, "path", "class", *titled(hierarchy, "title"), *LONG]
        found = []
        for begin in (*self.levels, *(f"top_{rank}" for rank in range(1, self.top + 1))):
            found += [begin, *titled(hierarchy, f"{begin}_title"), f"{begin}_probability"]
        return found + ([f"p:{name}" for name in hierarchy.names] if self.scores else [])

    def rows_at_once(self, classes: int) -> int | None:
        """Return how many rows may be written at a time; None for any number."""
        return max(1, CELLS // classes) if self.scores else None


LONG = ("level", "probability")


def titled(hierarchy: Hierarchy, name: str) -> list[str]:
    """Return the name of a column of titles; none where the hierarchy has no titles."""
    return [name] if hierarchy.has_titles else []


class ClassNames:
    """What is written of each class; the root, which has no name, is the last one.

    Args:
        label_space: what can be predicted.
    """

    def __init__(self, label_space: LabelSpace) -> None:
        hierarchy = label_space.hierarchy
        self.paths = (*hierarchy.names, "")
        self.bare = (*hierarchy.bare_names, "")
        self.titles = (*(title or "" for title in hierarchy.titles), "")
        self.levels = (*hierarchy.levels.tolist(), 0)
        self.stopped = (*(~label_space.is_terminal).tolist(), True)

    def codes(self, classes: Tensor) -> NDArray[np.int64]:
        """Return class numbers, -1 for the root, as codes of a column."""
        found: NDArray[np.int64] = classes.remainder(len(self.paths)).cpu().numpy()
        return found


def as_doubles(p: Tensor) -> NDArray[np.float64]:
    """Return a column of probabilities."""
    found: NDArray[np.float64] = p.double().cpu().numpy()
    return found


def level_columns(
    p: Tensor, decoder: Decoder, names: ClassNames, levels: Sequence[str], label_sep: str
) -> Columns:
    """Return the classes of the answers at every level, joined where there are several."""
    hierarchy = decoder.hierarchy
    if decoder.answers == "class" and hierarchy.is_tree:
        return chain_columns(p, decoder(p), hierarchy, names, levels)
    closed = decoder.sets(p) if decoder.answers == "class" else decoder(p)
    depth = hierarchy.levels.tolist()
    cells: list[list[list[tuple[int, float]]]] = [[[] for _ in levels] for _ in range(len(p))]
    places = closed.nonzero()
    values = p[places[:, 0], places[:, 1]].tolist()
    for (row, number), value in zip(places.tolist(), values, strict=True):
        cells[row][depth[number] - 1].append((number, value))
    columns: Columns = {}
    for place, name in enumerate(levels):
        here = [row[place] for row in cells]
        columns[name] = [label_sep.join(names.bare[c] for c, _ in one) for one in here]
        columns[f"{name}_title"] = [label_sep.join(names.titles[c] for c, _ in one) for one in here]
        columns[f"{name}_probability"] = [
            label_sep.join(f"{v:.6g}" for _, v in one) for one in here
        ]
    return columns


def chain_columns(
    p: Tensor, classes: Tensor, hierarchy: Hierarchy, names: ClassNames, levels: Sequence[str]
) -> Columns:
    """Return the one class per level that lies above each answer in a tree, or is the answer.

    Args:
        p: (n, C) node probabilities.
        classes: (n,) the answers, -1 for the root.
        hierarchy: the tree.
        names: what is written of each class.
        levels: the names of the levels.
    """
    above = torch.tensor([*hierarchy.structure.first_parents.tolist(), ROOT], device=p.device)
    level = torch.tensor(names.levels, device=p.device)
    columns: Columns = {}
    here = classes
    for place, name in reversed([*enumerate(levels, 1)]):
        found = torch.where(level[here] == place, here, ROOT)
        codes = names.codes(found)
        values = as_doubles(p.gather(1, found.clamp_min(0)[:, None]).squeeze(1))
        columns[name] = CodedColumn(names.bare, codes)
        columns[f"{name}_title"] = CodedColumn(names.titles, codes)
        columns[f"{name}_probability"] = np.ma.masked_array(values, (found == ROOT).cpu().numpy())
        here = torch.where(found == ROOT, here, above[here])
    return columns


def best_terminals(p: Tensor, pipeline: Pipeline, count: int) -> tuple[Tensor, Tensor]:
    """Return (n, count) numbers and scores of the most probable terminal classes."""
    space = pipeline.label_space
    scores = terminal_scores(p, space).clamp_min(0) if space.has_inner_terminals else p
    numbers = space.terminal_ids().to(p.device)
    values, order = scores.index_select(1, numbers).topk(count, dim=1)
    return numbers[order], values


def top_columns(p: Tensor, pipeline: Pipeline, names: ClassNames, count: int) -> Columns:
    """Return the most probable terminal classes, the best first."""
    numbers, values = best_terminals(p, pipeline, count)
    columns: Columns = {}
    for rank in range(count):
        codes = names.codes(numbers[:, rank])
        columns[f"top_{rank + 1}"] = CodedColumn(names.paths, codes)
        columns[f"top_{rank + 1}_title"] = CodedColumn(names.titles, codes)
        columns[f"top_{rank + 1}_probability"] = as_doubles(values[:, rank])
    return columns


def score_columns(p: Tensor, hierarchy: Hierarchy) -> Columns:
    """Return the probabilities of every class."""
    return {f"p:{name}": row for name, row in zip(hierarchy.names, as_doubles(p.T), strict=True)}


def long_columns(
    p: Tensor, pipeline: Pipeline, names: ClassNames, layout: Layout, first: int
) -> Columns:
    """Return one row per input row and class.

    Args:
        p: (n, C) node probabilities.
        pipeline: the model.
        names: what is written of each class.
        layout: the best classes or all of them.
        first: the number of the first input row, from 1.
    """
    each = layout.top or len(pipeline.hierarchy)
    if layout.top:
        numbers, p = best_terminals(p, pipeline, layout.top)
        codes = names.codes(numbers.flatten())
    else:
        codes = np.tile(np.arange(each), len(p))
    return {
        "row": np.arange(first, first + len(p)).repeat(each),
        "rank": np.tile(np.arange(1, each + 1), len(p)),
        "path": CodedColumn(names.paths, codes),
        "class": CodedColumn(names.bare, codes),
        "title": CodedColumn(names.titles, codes),
        "level": CodedColumn(names.levels, codes),
        "probability": as_doubles(p.flatten()),
    }


# ---------------------------------------- answer file

FORMULA = {"=", "+", "-", "@", "\t", "\r"}
PREFIX = "input_"


class AnswerFile:
    """A file that columns are appended to.

    Args:
        append: what writes rows.
        kept: the names of the columns that come from the input, by their names in the file.
        escape: whether formulas are escaped; None where none can be.

    Attributes:
        rows: how many rows of the input were answered.
        stopped: how many of the answers are above the terminal classes.
        unanswered: how many of these are no class at all.
        formulas: how many cells a spreadsheet would run as a formula.
    """

    def __init__(self, append: Any, kept: Mapping[str, str], escape: bool | None) -> None:
        self._append = append
        self._kept = kept
        self._escape = escape
        self._values: dict[int, Checked] = {}
        self.rows = self.stopped = self.unanswered = self.formulas = 0

    def append(self, columns: Mapping[str, Sequence[Any]], kept: Mapping[str, Any]) -> None:
        """Write rows: the columns of the answers, and those of the input by their own names."""
        given = {name: kept[source] for name, source in self._kept.items()}
        if self._escape is not None:
            given = {name: as_texts(cells) for name, cells in given.items()}
        found: dict[str, Any] = {**columns, **given}
        if self._escape is not None:
            found = {name: self._checked(cells) for name, cells in found.items()}
        self._append(found)
        if "stopped" in columns:
            self.rows += len(columns["stopped"])
            self.stopped += int(np.sum(columns["stopped"]))
            self.unanswered += count_empty(columns["path"])
        elif "row" in columns:  # several rows per row of the input
            self.rows += int(columns["row"][-1] - columns["row"][0]) + 1

    def _checked(self, cells: Sequence[Any]) -> Sequence[Any]:
        if isinstance(cells, CodedColumn):
            return self._checked_codes(cells)
        if not len(cells) or not isinstance(cells[0], str):
            return cells
        places = [place for place, cell in enumerate(cells) if is_formula(cell)]
        self.formulas += len(places)
        if not self._escape or not places:
            return cells
        found = list(cells)
        for place in places:
            found[place] = escaped(found[place])
        return found

    def _checked_codes(self, cells: CodedColumn) -> CodedColumn:
        """Check the values of a column instead of its cells, and those only once."""
        known = self._values.setdefault(id(cells.values), Checked(cells.values))
        if known.formulas is None:
            return cells
        self.formulas += int(np.count_nonzero(known.formulas[cells.codes]))
        return CodedColumn(known.escaped, cells.codes) if self._escape else cells


def count_empty(paths: Sequence[str]) -> int:
    """Return how many answers are no class."""
    if isinstance(paths, CodedColumn):
        return int(np.count_nonzero(paths.codes == len(paths.values) - 1))  # the root is the last
    return sum(not path for path in paths)


class Checked:
    """The values of columns, and which of them are formulas.

    Args:
        values: the values.

    Attributes:
        formulas: a boolean for each value; None where none is a formula.
        escaped: the values as they are written.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values  # held, so that their identity stays theirs
        found = [is_formula(value) for value in values]
        self.formulas = np.array(found) if any(found) else None
        self.escaped = [escaped(value) for value in values]


@contextmanager
def answer_file(
    path: Path | str, names: Sequence[str], keep: Sequence[str] = (), *, escape: bool = False
) -> Iterator[AnswerFile]:
    """Open a file of answers; it appears when the context ends without an error.

    Args:
        path: the file, its format by its ending; ``-`` for CSV on standard output.
        names: the columns of the answers, in order.
        keep: the columns of the input that come before them.
        escape: whether texts that a spreadsheet would run as a formula are escaped.
    """
    kept = kept_names(keep, names)
    delimited = is_delimited(path)
    every = [*kept, *names]
    header = file_names(path, names, keep, escape=escape)
    with table_writer(path, header) as append:

        def write(columns: Mapping[str, Sequence[Any]]) -> None:
            append({shown: columns[name] for shown, name in zip(header, every, strict=True)})

        yield AnswerFile(write, kept, escape if delimited else None)


def file_names(
    path: Path | str, names: Sequence[str], keep: Sequence[str], *, escape: bool
) -> list[str]:
    """Return the columns of a file of answers as they are written; see ``answer_file``."""
    every = [*kept_names(keep, names), *names]
    return [escaped(name) for name in every] if escape and is_delimited(path) else every


def kept_names(keep: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the input columns by their names in the file: ``input_class`` where class is taken."""
    found: dict[str, str] = {}
    taken = {*names, *keep}
    for source in keep:
        name = source
        while name in names or (name != source and name in taken):
            name = PREFIX + name
        found[name] = source
        taken.add(name)
    return found


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a cell as a formula; numbers such as -3 it does not."""
    if not isinstance(cell, str) or cell[:1] not in FORMULA:
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


def escaped(cell: str) -> str:
    """Return a text that a spreadsheet shows and does not run."""
    return f"'{cell}" if is_formula(cell) else cell


def as_texts(cells: Any) -> list[str]:
    """Return the cells of an input column as exact texts."""
    values = cells.to_pylist() if hasattr(cells, "to_pylist") else cells
    return [exact(value) for value in values]


def exact(value: Any) -> str:
    """Return a value as text from which it can be read back; nothing where it is missing."""
    if value is None:
        return ""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


# ---------------------------------------- input columns

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
