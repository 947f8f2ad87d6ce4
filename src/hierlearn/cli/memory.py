"""Commands that change a model without training: remember, forget, remap, index and others."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, FOLDER, options, takes
from hierlearn.errors import DataError, HierlearnError, LabelError, place, plural, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.remember import MemoryFolder

MOST_NAMED = 20  # new classes
WRITING = options(
    out=(FOLDER, "Folder of the changed model."),
    in_place=(bool, "Replace the files of the model itself."),
    force=(bool, "Replace a model in --out."),
)


def load_with_memory(folder: Path, options: Mapping[str, Any]) -> Pipeline:
    """Read a model folder; raise on a model without a memory."""
    from hierlearn.cli.output import advise
    from hierlearn.cli.rows import load_model

    advise(f"{folder} is unchanged; run the same command again")
    loaded = load_model(folder, options)
    check_memory(loaded, folder)
    return loaded


def locked_in_place(folder: Path, options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Let no other process change a model that is read and then replaced in place."""
    from hierlearn.files.writing import locked

    return locked(folder) if options["in_place"] and folder.is_dir() else nullcontext()


@contextmanager
def change_in_place(folder: Path, options: Mapping[str, Any]) -> Iterator[MemoryFolder]:
    """Open a model folder whose memory is changed without reading it."""
    from hierlearn.cli.output import advise
    from hierlearn.pipeline.remember import MemoryFolder
    from hierlearn.training.processes import find_device

    advise(f"{folder} is unchanged; run the same command again")
    device = find_device(options["device"])
    with MemoryFolder.open(folder, device=device, trust=options["trust"]) as memory:
        yield memory


def check_memory(model: Pipeline, folder: Path) -> None:
    """Raise on a model without a memory, and say how to train one that has it."""
    from hierlearn.networks.memories import memory_heads

    if not memory_heads(model.network):
        raise HierlearnError(
            f"{folder} has no memory: its answers come from weights, not from rows; train it again "
            f"with what is new, or train a model that remembers rows and classes without training, "
            f"with --recipe neighbors, or --head neighbors"
        )


def evidence_note(model: Pipeline) -> str:
    """Say whose evidence is shown where a memory answers together with other heads.

    A model whose answers come from another kind of head alone raises.
    """
    from hierlearn.networks.ensemble import head_names
    from hierlearn.pipeline.explain import shares_of

    shares = shares_of(model)
    if model.network_spec is not None and model.network_spec.parts:
        total = sum(shares.values())
        if total > 1 - 1e-9:
            return ""
        return (
            f"the answers are a blend: {total:.0%} of each comes from remembered rows, whose "
            f"weights sum to that"
        )
    names, (shown, *_) = head_names(model.network), shares
    if len(names) < 2 or model.answer == shown:
        return ""
    return (
        f"the answers are the {model.answer} of the heads {', '.join(names)}; the rows are the "
        f"evidence of the memory {shown} alone"
    )


def check_destination(folder: Path, options: Mapping[str, Any]) -> None:
    """Raise where the changed model cannot be written, before any work is done.

    Args:
        folder: of the model.
        options: those of ``WRITING``.
    """
    from hierlearn.files.writing import check_writable
    from hierlearn.pipeline.folder import FILES, check_free

    out = options["out"]
    if out is not None and options["in_place"]:
        raise HierlearnError("--out and --in-place are given; leave one of them out")
    if options["in_place"]:
        if options["force"]:
            raise HierlearnError("--force goes with --out; leave it out")
        check_writable(folder / FILES[2])
    elif out is not None:
        if out.exists() and folder.exists() and out.samefile(folder):
            raise HierlearnError(f"{out} is the model itself; give --in-place to replace it")
        try:
            check_free(out, options["force"])
        except HierlearnError as error:
            if options["force"] or not out.is_dir():
                raise
            raise HierlearnError(
                f"{out} exists; give --force to replace the model in it, or name another folder"
            ) from error
        check_writable(out / FILES[2])
    else:
        raise HierlearnError(
            "say where the changed model goes: --out FOLDER for a new one, or --in-place"
        )


def write_changed(model: Pipeline, folder: Path, options: Mapping[str, Any]) -> Path:
    """Write a changed model where the options say, and return its folder.

    In place all files are written beside the old ones first; these are replaced afterwards.
    """
    from hierlearn.pipeline.train import save_into

    if options["in_place"]:
        save_into(model, folder)
        return folder
    out: Path = options["out"]
    model.save(out, force=options["force"])
    return out


def read_columns(
    path: Path, names: Sequence[str], example: str
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the cells of some columns of a CSV or TSV file.

    Upper and lower case of the header mean the same.

    Args:
        path: the file.
        names: the columns, which it must have.
        example: the header and a line of such a file, for the error.
    """
    from hierlearn.files import read_rows

    header, rows = read_rows(path)
    lower = [name.lower() for name in header]
    missing = [name for name in names if lower.count(name) != 1]
    if missing:
        raise DataError(
            f"{path} needs the columns {' and '.join(names)}, such as {example!r}; its first line "
            f"has {quoted(header)}"
        )
    places = [lower.index(name) for name in names]
    for line, cells in rows:
        yield line, tuple(cells[place] for place in places)


@takes(
    *options(
        recall=(float, "Fraction of the nearest rows that a search must find.", {"default": 0.99})
    ),
    *WRITING,
    shared.TRUST,
    shared.DEVICE,
)
def index(model: shared.ModelFolder, **options: Any) -> None:
    """Build an approximate index of the memory of a model; answers come faster.

    It needs faiss. Remembering or forgetting rows drops the index.

    Examples:
        index model --in-place
        index model --recall 0.999 --out indexed
    """
    from hierlearn.cli.output import working
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import build_index
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    with locked_in_place(model, options):
        loaded = load_with_memory(model, options)
        with working("building the index"):
            measured = build_index(loaded, options["recall"])
        folder = write_changed(loaded, model, options)
    console = Console()
    asked = "" if measured >= options["recall"] else f", not the {options['recall']:.4g} asked for"
    print_plain(
        console,
        f"indexed {plural(len(rows_of(loaded)), 'row')}; a search finds {measured:.4f} of the "
        f"nearest ones, measured on the rows themselves{asked}",
    )
    print_plain(console, f"wrote {folder}")


@takes(
    *options(
        id=(list[str], "Id of a row to forget. Repeatable.", {"metavar": "ID"}),
        ids=(Path, "Text file of ids, one per line."),
    ),
    *WRITING,
    shared.TRUST,
    shared.DEVICE,
)
def forget(model: shared.ModelFolder, **options: Any) -> None:
    """Remove rows from the memory of a model; explain shows their ids.

    Weights and vocabulary stay as training learned them. Nothing is trained.

    Examples:
        forget model --id 17 --id 18 --out smaller
        forget model --ids ids.txt --in-place
    """
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import forget as remove
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    wanted = ids_to_forget(options)
    if options["in_place"]:
        with change_in_place(model, options) as memory:
            gone, left = memory.forget(wanted), len(memory)
        folder = model
    else:
        loaded = load_with_memory(model, options)
        gone = remove(loaded, wanted)
        folder, left = write_changed(loaded, model, options), len(rows_of(loaded))
    them = "it" if gone == 1 else "them"
    lines = [
        f"forgot {plural(gone, 'row')}; the memory has {left:,} now",
        f"the memory in {folder} holds no embedding, label, id or text of {them}; weights and "
        f"vocabulary stay as training learned them",
    ]
    if not options["in_place"]:
        lines.append(f"{model} still remembers {them}; delete it if nobody may")
    print_plain(Console(), *lines, f"wrote {folder}")


def ids_to_forget(options: Mapping[str, Any]) -> list[str]:
    """Return the ids of --id and --ids."""
    from hierlearn.files import read_text

    ids = list(options["id"] or ())
    if options["ids"] is not None:
        ids += filter(None, map(str.strip, read_text(options["ids"]).splitlines()))
    if not ids:
        raise HierlearnError("name the rows to forget by --id, or in a file by --ids")
    return list(dict.fromkeys(ids))


@takes(
    *options(rows=(str, "Split to remember, or all.")),
    *WRITING,
    shared.TRUST,
    shared.DEVICE,
    *shared.SOURCE,
)
def remember(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    **options: Any,
) -> None:
    """Add labeled rows to the memory of a model, and the classes that they bring.

    A label whose path is new becomes a class below its parent. Nothing is trained. With --in-place
    the rows are written beside those of before, in as little time as they need alone.

    Examples:
        remember model more.csv --label class --out bigger
        remember model more.csv --label class --id-column id --in-place
    """
    from hierlearn.cli.output import working
    from hierlearn.hierarchy.names import with_title
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import remember as add
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    if options["in_place"]:
        with change_in_place(model, options) as memory:
            picked, hierarchy, name = pick_new_rows(memory.pipeline, data, options)
            ids = picked.ids
            known = memory.find(ids or ())[1]
            again = int(known.sum()) if ids else 0
            with working("remembering"):
                growth = memory.remember(picked.inputs, picked.labels, hierarchy=hierarchy, ids=ids)
            now = memory.pipeline.hierarchy
        folder = model
    else:
        loaded = load_with_memory(model, options)
        picked, hierarchy, name = pick_new_rows(loaded, data, options)
        remembered = {str(one) for one in rows_of(loaded).ids}
        again = sum(one in remembered for one in picked.ids or ())
        with working("remembering"):
            growth = add(loaded, picked.inputs, picked.labels, hierarchy=hierarchy, ids=picked.ids)
        folder, now = write_changed(loaded, model, options), loaded.hierarchy
    lines = [f"remembered {plural(growth.rows, 'row')} of {name}"]
    new = growth.classes
    if new:
        shown = ", ".join(with_title(now, one) for one in new[:MOST_NAMED])
        more = "" if len(new) <= MOST_NAMED else f" and {len(new) - MOST_NAMED:,} more"
        lines.append(f"{plural(len(new), 'new class', 'new classes')}: {shown}{more}")
    else:
        lines.append("no new class")
    unlabeled = sum(not labels for labels in picked.labels)
    if unlabeled:
        lines.append(f"{plural(unlabeled, 'row')} without a label: examples of no class")
    if growth.known:
        lines.append(
            f"{plural(growth.known, 'row')} remembered already, with the same id, label and "
            f"values: left out"
        )
    if again > growth.known:
        lines.append(
            f"{plural(again - growth.known, 'row')} with the id of another row that was "
            f"remembered already; both are kept, and forget removes both"
        )
    total = plural(growth.total, "row")
    print_plain(Console(), *lines, f"wrote {folder}, which remembers {total} now")


def pick_new_rows(
    model: Pipeline, source: str, options: Mapping[str, Any]
) -> tuple[Dataset, Hierarchy | None, str]:
    """Return the rows to remember, the hierarchy of --hierarchy, and what the rows are called.

    The hierarchy of the model may lack their labels. A missing value in a column that had none in
    training raises.
    """
    from hierlearn.cli.rows import check_sep, is_table, open_dataset, open_labeled_table, pick_rows
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.missing import MissingCells

    check_sep(model, options.get("sep"))
    hierarchy = None
    if options["hierarchy"] is not None:
        hierarchy = Hierarchy.read(options["hierarchy"], sep=model.hierarchy.sep)
    rest = {name: value for name, value in options.items() if name not in ("hierarchy", "sep")}
    if is_table(source):
        dataset = open_labeled_table(model, source, rest, hierarchy)
    else:
        dataset = open_dataset(source, rest)
    picked, which = pick_rows(dataset, options["rows"])
    name = source if which == "all" else f"the split {which} of {source}"
    cells = MissingCells(model, learns=True)
    cells.add(picked.inputs, lambda row, column: f"{name}, row {row + 1}, column {column!r}")
    return picked, hierarchy, source if which == "all" else f"{source} of the split {which}"


@takes(
    *options(
        hierarchy=(str, "File of the new taxonomy, or the name of a dataset.", {"default": ...}),
        map=(
            Path,
            "CSV or TSV with the columns old and new: several lines split a class, an empty new "
            "removes it. Classes that keep their name need no line.",
        ),
        labels=(
            Path,
            "CSV or TSV with the columns id and label: new labels of single rows, such as those of "
            "a class that is split.",
        ),
        dry_run=(bool, "Only count, also classes without a place; write nothing."),
        label_sep=(str, "Separator of several labels in a cell; ; if none."),
        form=(str, "What an ambiguous --hierarchy holds: nested, parents, ..."),
        sep=(str, "Separator of the names of a path; that of the model if none."),
        root=(str, "The id that stands for the implicit root."),
        title_column=(str, "Column of titles of a CSV or TSV file; title if none."),
        language=(str, "Language of the titles in an RDF file, such as de."),
    ),
    *WRITING,
    shared.TRUST,
    shared.DEVICE,
    shared.DATA_DIR,
)
def remap(model: shared.ModelFolder, **options: Any) -> None:
    """Move a model to another taxonomy: classes renamed, moved, merged, split, removed, new.

    The labels of the remembered rows follow. Nothing is trained.

    Examples:
        remap model --hierarchy new.csv --map map.csv --dry-run
        remap model --hierarchy new.csv --map map.csv --out moved
    """
    from hierlearn.cli.rows import check_goes_with, check_not_given, open_hierarchy
    from hierlearn.memory.taxonomy import unplaced
    from hierlearn.pipeline.answers import label_sep_of
    from hierlearn.pipeline.remember import remap as move
    from hierlearn.terminal import Console, Table, print_plain

    if options["labels"] is None:
        check_goes_with(options, ("label_sep",), "--labels")
    if options["dry_run"]:
        what = "a count that writes nothing"
        check_not_given("--dry-run", what, options, "out", "in_place", "force")
    else:
        check_destination(model, options)
    dry_run, console = options["dry_run"], Console()
    with locked_in_place(model, options):
        loaded = load_with_memory(model, options)
        old = loaded.hierarchy
        names = ("data_dir", "form", "sep", "root", "title_column", "language")
        reading = {name: options[name] for name in names}
        if reading["sep"] is None and old.sep != "/":
            reading["sep"] = old.sep
        new = open_hierarchy(options["hierarchy"], **reading)
        mapping = {} if options["map"] is None else read_map(options["map"], old, new)
        join = label_sep_of(loaded, options.get("label_sep"))
        labels = {} if options["labels"] is None else read_labels(options["labels"], new, join)
        counts = move(loaded, new, mapping, labels, dry_run=dry_run)
        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, count in counts.items():
            if name == "rows":
                table.add_section()
            table.add_row(name, f"{count:,}")
        console.print(table)
        lost = unplaced(old, new, mapping) if dry_run else []
        if lost:
            print_plain(
                console,
                f"{plural(len(lost), 'class has', 'classes have')} no place in the new taxonomy: "
                f"{quoted(lost, most=10)}; before anything is moved, give each a line in --map, "
                f"with an empty new name to send its rows to the parent",
            )
        print_plain(console, f"fingerprint {old.fingerprint[:16]} -> {new.fingerprint[:16]}")
        if dry_run:
            print_plain(console, "nothing was written: --dry-run")
        else:
            print_plain(console, f"wrote {write_changed(loaded, model, options)}")


def read_map(path: Path, old: Hierarchy, new: Hierarchy) -> dict[str, list[str]]:
    """Return where classes go, by full names; none where a class is removed.

    Args:
        path: the file.
        old: the hierarchy of the model.
        new: the hierarchy that replaces it.
    """
    mapping: dict[str, list[str]] = {}
    first: dict[str, int] = {}  # where each class is named first
    for line, (before, after) in read_columns(path, ("old", "new"), "old,new"):
        if not before:
            raise DataError(f"{place(path, line, 'old')}: the class is missing; write its name")
        name = named(old, before, path, line, "old")
        ends = mapping.setdefault(name, [])
        if name in first and not (after and ends):
            raise DataError(
                f"{place(path, line)}: {name!r} is removed and has a new name in lines "
                f"{first[name]} and {line}; keep one of them"
                if after or ends
                else f"{place(path, line)}: {name!r} is removed in line {first[name]} already"
            )
        first.setdefault(name, line)
        if after:
            ends.append(named(new, after, path, line, "new"))
    return mapping


def read_labels(path: Path, new: Hierarchy, label_sep: str) -> dict[str, list[str]]:
    """Return the new labels of single rows by id; several lines of an id are several labels."""
    labels_by_id: dict[str, list[str]] = {}
    for line, (one, cell) in read_columns(path, ("id", "label"), "id,label"):
        labels = [part.strip() for part in cell.split(label_sep) if part.strip()]
        if not one or not labels:
            missing = "label" if one else "id"
            raise DataError(f"{place(path, line, missing)}: the cell is empty; write the {missing}")
        labels_by_id.setdefault(one, []).extend(
            named(new, label, path, line, "label") for label in labels
        )
    return labels_by_id


def named(hierarchy: Hierarchy, label: str, path: Path, line: int, column: str) -> str:
    """Return the full name of a class; raise with the place of an unknown one."""
    try:
        return hierarchy.names[hierarchy.index(label)]
    except LabelError as error:
        which = "the model" if column == "old" else "the new hierarchy"
        raise LabelError(
            f"{place(path, line, column)}: no class of {which}: {error.message}"
        ) from None


@takes(
    *options(out=(FILE, "The .onnx file to write.", {"default": ...})), shared.FORCE, shared.TRUST
)
def export(model: shared.ModelFolder, **options: Any) -> None:
    """Write a model as ONNX, with hierarchy.json and preprocessing.json beside it.

    Examples:
        export model --out onnx/model.onnx
        export model --out onnx/model.onnx --force
    """
    from hierlearn.cli.output import working
    from hierlearn.features.embed import TokenPreprocessor
    from hierlearn.files.writing import check_output
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.export import BESIDE, TOKENIZER, find_reader
    from hierlearn.pipeline.export import export as write
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    if out.suffix.lower() != ".onnx":
        raise HierlearnError(f"{out}: the file to write must end in .onnx")
    if out.parent.resolve() == model.resolve():
        raise HierlearnError(f"{out.parent} holds the model; export to another folder")
    for path in (out, *(out.parent / name for name in BESIDE)):
        check_output(path, options["force"])
    loaded = Pipeline.load(model, trust=options["trust"])
    reads = "(N, D) float32"
    if find_reader(loaded.preprocessor, TokenPreprocessor) is not None:
        reads = "(N, T) int64"
        check_output(out.parent / TOKENIZER, options["force"])
    with working("exporting"):
        written = write(loaded, out)
    console = Console()
    classes = len(loaded.hierarchy)
    print_plain(console, f"inputs {reads} -> probabilities (N, {classes}) float32")
    print_plain(console, f"wrote {', '.join(map(str, written))}")
