"""AnswerFormatter: the probabilities of rows as the columns of their answers.

path         the class, or the classes joined by ``label_sep`` where a set is answered
class        the same by bare name
title        of the class, where the hierarchy has titles
probability  of the class
level        of the class; 0 for the root, the answer where not even a top class is sure
stopped      whether the answer is above the terminal classes

and, where asked for, in the same row:

level_1, level_1_title, level_1_probability, ...  the answer at every level
top_1, top_1_title, top_1_probability, ...        the most probable terminal classes
p:PATH                                            the probability of every class
neighbor_1_id, _weight, _labels, _titles, _text   the remembered rows that it was taken from, the
                                                  weightiest first

or instead of it, one row per input row and class:

row, rank, path, class, title, level, probability

Answers go to a file of any table format; formulas are escaped where asked for. A spreadsheet runs a
cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, whoever wrote it.
Escaping puts ``'`` in front of such a text. Numbers stay, and Parquet files and JSON lines need
nothing of it.
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
from hierlearn.hierarchy.names import joined_titles
from hierlearn.networks.memories import memory_heads
from hierlearn.pipeline.explain import explain, rows_of, shares_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, Any]

NAMES = ("path", "class", "probability", "level", "stopped")
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


ANSWER_ONLY = Layout()


def neighbor_names(pipeline: Pipeline, count: int) -> tuple[str, ...]:
    """Return the columns of remembered rows; raise where an answer rests on fewer of them."""
    rows = rows_of(pipeline)
    heads = memory_heads(pipeline.network)
    most = min(len(rows), *(heads[name][0].neighbors for name in shares_of(pipeline)))
    if not 1 <= count <= most:
        raise HierlearnError(
            f"{arg('explain')} must lie between 1 and {most:,}, the remembered rows that an answer "
            f"is taken from, not {count:,}"
        )
    titles = ("titles",) if pipeline.hierarchy.has_titles else ()
    kinds = ("id", "weight", "labels", *titles, *(() if rows.texts is None else ("text",)))
    return tuple(f"neighbor_{rank}_{kind}" for rank in range(1, count + 1) for kind in kinds)


class AnswerFormatter:
    """Makes the columns of answers; several threads may call it at once.

    Args:
        pipeline: the trained pipeline.
        decoder: how it decides; by default its own.
        label_sep: what joins the classes of a set.
        layout: what else is written of each row.
        neighbors: of how many remembered rows to add columns.

    Attributes:
        names: the columns, in order.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        decoder: Decoder | None = None,
        label_sep: str = ";",
        layout: Layout = ANSWER_ONLY,
        neighbors: int = 0,
    ) -> None:
        self.pipeline, self.decoder = pipeline, decoder or pipeline.make_decoder()
        self.label_sep, self.layout, self.neighbors = label_sep, layout, neighbors
        hierarchy, space = pipeline.hierarchy, pipeline.label_space
        # What is written of each class; the root, which has no name, is the last one.
        self.paths = (*hierarchy.names, "")
        self.bare = (*hierarchy.bare_names, "")
        self.titles = (*(title or "" for title in hierarchy.titles), "")
        self.levels = (*hierarchy.levels.tolist(), 0)
        self.stopped = (*(~space.is_terminal).tolist(), True)
        if layout.long:
            names = ["row", *(["rank"] if layout.top else [])]
            names += ["path", "class", "title", "level", "probability"]
        else:
            names = ["path", "class", "title", "probability", "level", "stopped"]
            for begin in (*layout.levels, *(f"top_{rank + 1}" for rank in range(layout.top))):
                names += [begin, f"{begin}_title", f"{begin}_probability"]
            names += [f"p:{name}" for name in hierarchy.names] if layout.scores else []
        if not hierarchy.has_titles:
            titles = {"title", *(f"{name}_title" for name in names)}
            names = [name for name in names if name not in titles]
        self.names = (*names, *(neighbor_names(pipeline, neighbors) if neighbors else ()))

    @property
    def rows_at_once(self) -> int | None:
        """How many rows may be written at a time; None for any number."""
        return max(1, CELLS // len(self.pipeline.hierarchy)) if self.layout.scores else None

    def __call__(self, p: Tensor, inputs: Any = None) -> Columns:
        """Return the columns of rows by name, n values each.

        Args:
            p: (n, C) their probabilities.
            inputs: the raw rows, where remembered rows are shown.
        """
        layout = self.layout
        if self.decoder.answers == "class":
            columns = self.class_columns(p, self.decoder(p))
        else:
            columns = self.set_columns(p, self.decoder.representatives(p))
        if layout.levels:
            columns |= self.level_columns(p)
        if layout.top:
            numbers, values = self.best_terminals(p)
            for rank in range(layout.top):
                codes = self.codes(numbers[:, rank])
                columns[f"top_{rank + 1}"] = CodedColumn(self.paths, codes)
                columns[f"top_{rank + 1}_title"] = CodedColumn(self.titles, codes)
                columns[f"top_{rank + 1}_probability"] = as_doubles(values[:, rank])
        if layout.scores:
            scores = zip(self.paths[:-1], as_doubles(p.T), strict=True)
            columns |= {f"p:{name}": row for name, row in scores}
        if self.neighbors and inputs is not None:
            columns |= self.neighbor_columns(inputs)
        return {name: columns[name] for name in self.names if name in columns}

    def codes(self, classes: Tensor) -> NDArray[np.int64]:
        """Return class numbers, -1 for the root, as codes of a column."""
        found: NDArray[np.int64] = classes.remainder(len(self.paths)).cpu().numpy()
        return found

    def class_columns(self, p: Tensor, classes: Tensor) -> Columns:
        """Return the columns of one class per row; the root has no name and probability 1."""
        chosen = p.gather(1, classes.clamp_min(0)[:, None]).squeeze(1)
        codes = self.codes(classes)
        return {
            "path": CodedColumn(self.paths, codes),
            "class": CodedColumn(self.bare, codes),
            "title": CodedColumn(self.titles, codes),
            "probability": as_doubles(chosen.masked_fill(classes < 0, 1.0)),
            "level": CodedColumn(self.levels, codes),
            "stopped": CodedColumn(self.stopped, codes),
        }

    def set_columns(self, p: Tensor, chosen: Tensor) -> Columns:
        """Return the columns of a set of classes per row, joined."""
        rows = classes_by_row(p, chosen)
        join = self.label_sep.join
        return {
            "path": [join(self.paths[one] for one, _ in row) for row in rows],
            "class": [join(self.bare[one] for one, _ in row) for row in rows],
            "title": [join(self.titles[one] for one, _ in row) for row in rows],
            "probability": [join(f"{value:.6g}" for _, value in row) for row in rows],
            "level": [join(str(self.levels[one]) for one, _ in row) for row in rows],
            "stopped": [not row or any(self.stopped[one] for one, _ in row) for row in rows],
        }

    def level_columns(self, p: Tensor) -> Columns:
        """Return the classes of the answers at every level, joined where there are several."""
        decoder, hierarchy = self.decoder, self.decoder.hierarchy
        columns: Columns = {}
        if decoder.answers == "class" and hierarchy.is_tree:
            # The one class per level that lies above the answer, or is the answer: walking up.
            above = torch.tensor([*hierarchy.structure.first_parents.tolist(), ROOT]).to(p.device)
            level = torch.tensor(self.levels, device=p.device)
            here = decoder(p)
            for place, name in reversed([*enumerate(self.layout.levels, 1)]):
                found = torch.where(level[here] == place, here, ROOT)
                codes = self.codes(found)
                values = as_doubles(p.gather(1, found.clamp_min(0)[:, None]).squeeze(1))
                absent = (found == ROOT).cpu().numpy()
                columns[name] = CodedColumn(self.bare, codes)
                columns[f"{name}_title"] = CodedColumn(self.titles, codes)
                columns[f"{name}_probability"] = np.ma.masked_array(values, absent)
                here = torch.where(found == ROOT, here, above[here])
            return columns
        closed = decoder.sets(p) if decoder.answers == "class" else decoder(p)
        rows, join = classes_by_row(p, closed), self.label_sep.join
        for place, name in enumerate(self.layout.levels, 1):
            cells = [[one for one in row if self.levels[one[0]] == place] for row in rows]
            columns[name] = [join(self.bare[c] for c, _ in row) for row in cells]
            columns[f"{name}_title"] = [join(self.titles[c] for c, _ in row) for row in cells]
            columns[f"{name}_probability"] = [join(f"{v:.6g}" for _, v in row) for row in cells]
        return columns

    def best_terminals(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n, top) numbers and scores of the most probable terminal classes."""
        space = self.pipeline.label_space
        scores = terminal_scores(p, space).clamp_min(0) if space.has_inner_terminals else p
        numbers = space.terminal_ids().to(p.device)
        values, order = scores.index_select(1, numbers).topk(self.layout.top, dim=1)
        return numbers[order], values

    def long_columns(self, p: Tensor, first: int) -> Columns:
        """Return one row per input row and class.

        Args:
            p: (n, C) node probabilities.
            first: the number of the first input row, from 1.
        """
        each = self.layout.top or p.shape[1]
        if self.layout.top:
            numbers, values = self.best_terminals(p)
            codes = self.codes(numbers.flatten())
        else:
            values, codes = p, np.tile(np.arange(each), len(p))
        return {
            "row": np.arange(first, first + len(p)).repeat(each),
            "rank": np.tile(np.arange(1, each + 1), len(p)),
            "path": CodedColumn(self.paths, codes),
            "class": CodedColumn(self.bare, codes),
            "title": CodedColumn(self.titles, codes),
            "level": CodedColumn(self.levels, codes),
            "probability": as_doubles(values.flatten()),
        }

    def neighbor_columns(self, inputs: Any) -> Columns:
        """Return the columns of the remembered rows behind every answer."""
        found, hierarchy = explain(self.pipeline, inputs, self.neighbors), self.pipeline.hierarchy
        columns: Columns = {}
        for rank in range(self.neighbors):
            name, some = f"neighbor_{rank + 1}", [row[rank] for row in found]
            columns[f"{name}_id"] = [one.id for one in some]
            columns[f"{name}_weight"] = [one.weight for one in some]
            columns[f"{name}_labels"] = [self.label_sep.join(one.labels) for one in some]
            columns[f"{name}_titles"] = [
                joined_titles(hierarchy, one.labels, self.label_sep) for one in some
            ]
            columns[f"{name}_text"] = [one.text for one in some]
        return columns


def as_doubles(p: Tensor) -> NDArray[np.float64]:
    """Return a column of probabilities."""
    found: NDArray[np.float64] = p.double().cpu().numpy()
    return found


def classes_by_row(p: Tensor, chosen: Tensor) -> list[list[tuple[int, float]]]:
    """Return the classes of (n, C) booleans row by row, with their probabilities."""
    rows: list[list[tuple[int, float]]] = [[] for _ in range(len(chosen))]
    places = chosen.nonzero()
    values = p[places[:, 0], places[:, 1]].tolist()
    for (row, number), value in zip(places.tolist(), values, strict=True):
        rows[row].append((number, value))
    return rows


def first_classes(p: Tensor, decoder: Decoder) -> list[str | None]:
    """Return the class of each answer, of a set the first one; None where there is none."""
    names = decoder.hierarchy.names
    if decoder.answers == "class":
        return [names[one] if one >= 0 else None for one in decoder(p).tolist()]
    rows = classes_by_row(p, decoder.representatives(p))
    return [names[row[0][0]] if row else None for row in rows]


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
        # By identity of the values of coded columns: these, which are formulas, and all escaped.
        self._values: dict[int, tuple[Any, NDArray[np.bool_], list[Any]]] = {}
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
            paths = columns["path"]
            if isinstance(paths, CodedColumn):  # the root is the last of the values
                self.unanswered += int(np.count_nonzero(paths.codes == len(paths.values) - 1))
            else:
                self.unanswered += sum(not path for path in paths)
        elif "row" in columns:  # several rows per row of the input
            self.rows += int(columns["row"][-1] - columns["row"][0]) + 1

    def _checked(self, cells: Sequence[Any]) -> Sequence[Any]:
        """Count the formulas of a column, and escape them where that is asked for."""
        if isinstance(cells, CodedColumn):  # whose values are checked only once
            if id(cells.values) not in self._values:
                values = [escaped(value) for value in cells.values]
                wrong = np.array([is_formula(value) for value in cells.values], dtype=bool)
                self._values[id(cells.values)] = cells.values, wrong, values
            _, wrong, values = self._values[id(cells.values)]
            if not wrong.any():
                return cells
            self.formulas += int(np.count_nonzero(wrong[cells.codes]))
            return CodedColumn(values, cells.codes) if self._escape else cells
        if not len(cells) or not isinstance(cells[0], str):
            return cells
        count = sum(map(is_formula, cells))
        self.formulas += count
        return [escaped(cell) for cell in cells] if self._escape and count else cells


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
    """Return the cells of an input column as texts from which they can be read back."""
    values = cells.to_pylist() if hasattr(cells, "to_pylist") else cells
    words = {None: "", False: "false", True: "true"}
    return [words[one] if one is None or isinstance(one, bool) else str(one) for one in values]


# ---------------------------------------- input columns

RESERVED = {"id", "title", *NAMES}  # columns of an answer


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
    if named and not {*named} & RESERVED:
        return named
    return [f"level_{level}" for level in range(1, depth + 1)]


def label_sep_of(pipeline: Pipeline, given: str | None = None) -> str:
    """Return what joins several labels: given, or as in training."""
    known: str | None = pipeline.config.get("columns", {}).get("label_sep", ";")
    found = given or known
    return ";" if found in ("none", None) else found
