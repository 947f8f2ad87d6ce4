"""The rows and taxonomies that a command reads, also for a model, which knows its columns."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import dashed
from hierlearn.cli.shared import COLUMN_NAMES
from hierlearn.errors import HierlearnError, plural, unknown_name
from hierlearn.files.locations import without_secrets
from hierlearn.registry import parse_pairs, split_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hierlearn.datasets import Dataset, Images
    from hierlearn.datasets.tables.stream import Chunk, TableStream
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.seen_rows import Overlap


RANGE = re.compile(r"(?P<name>.*\D|)(?P<first>\d+)\.\.(?P<again>.*\D|)(?P<last>\d+)")
MOST_COLUMNS = 1 << 16  # of a range


def is_given(value: Any) -> bool:
    """Whether an option was given; one that may be repeated is an empty list otherwise."""
    return value is not None and value is not False and value not in ((), [])


def check_not_given(source: str, what: str, options: Mapping[str, Any], *names: str) -> None:
    """Raise on given options that a source does not take, rather than ignore them.

    Args:
        source: what does not take them.
        what: it is.
        options: by name.
        names: those that it does not take; all of them if none.
    """
    wrong = [name for name in names or options if is_given(options.get(name))]
    if wrong:
        shown = ", ".join(map(dashed, wrong))
        source = without_secrets(source)
        raise HierlearnError(f"{source} is {what} and does not take {shown}; leave that out")


def check_goes_with(options: Mapping[str, Any], names: Iterable[str], other: str) -> None:
    """Raise on options that only matter with another one, which was not given."""
    for name in names:
        if is_given(options[name]):
            raise HierlearnError(f"{dashed(name)} goes with {other}; leave it out")


@contextmanager
def reading(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show on a terminal what is read; yield a callback that shows a bar for downloads."""
    from hierlearn.errors import printable
    from hierlearn.terminal import Console, Text, progress

    name = without_secrets(name)
    console = Console(stderr=True)
    bar = progress(console, "bytes", "speed")
    with ExitStack() as shown:
        if console.is_terminal:
            shown.enter_context(console.status(Text(f"reading {name}")))

        def report(received: int, total: int | None) -> None:
            if not console.is_terminal:
                return
            if not bar.tasks:
                shown.close()  # one display at a time
                shown.enter_context(bar)
                bar.add_task(printable(name))
            bar.update(bar.task_ids[0], completed=received, total=total)

        yield report


def open_named(
    name: str,
    options: Sequence[str] = (),
    *,
    data_dir: Path | None = None,
    trust: bool = False,
) -> Dataset:
    """Load a dataset of the registry with the options of the command line."""
    from hierlearn.datasets import DATASETS

    entry = DATASETS[name]
    passed: dict[str, Any] = {"data_dir": data_dir, "trust": trust}
    refused = {one: value for one, value in passed.items() if one not in entry.options}
    check_not_given(name, "no set of benchmark files", refused)
    texts = split_pairs(options, "--dataset-option")
    settings = {one: entry.parse(one, text) for one, text in texts.items()}
    for one in (*passed, "progress"):
        if one in settings:
            raise HierlearnError(
                f"--dataset-option does not take {one}; use --data-dir for the folder of the files"
            )
    check_data_dir(data_dir)
    with reading(name) as report:
        passed["progress"] = report
        known = {one: value for one, value in passed.items() if one in entry.options and value}
        return entry(**settings, **known)


def check_data_dir(data_dir: Path | None) -> None:
    """Raise on a folder that does not exist."""
    from hierlearn.files.locations import no_folder

    if data_dir is not None and not data_dir.expanduser().is_dir():
        raise HierlearnError(no_folder("--data-dir", data_dir))


def open_dataset(
    source: str,
    options: Mapping[str, Any],
    *,
    stream: bool = False,
    window: int | None = None,
) -> Dataset:
    """Open a named dataset, a Clus ARFF file or a table.

    Args:
        source: the name, or the file, folder, pattern or address.
        options: those of ``shared.SOURCE``; others are left alone, and None is not given.
        stream: leave the inputs of Parquet files in the files.
        window: how many rows are then shuffled together.
    """
    from hierlearn.datasets import (
        DATASETS,
        read_arff,
        read_image_table,
        read_table,
        stream_table,
    )
    from hierlearn.datasets.images import is_images
    from hierlearn.datasets.tables import known_endings, table_ending

    columns = {name: options[name] for name in COLUMN_NAMES if is_given(options.get(name))}
    words = options.get("dataset_option") or ()
    data_dir = None if options.get("data_dir") is None else Path(options["data_dir"])
    table = table_ending(source)
    ending = table or Path(source).suffix.lower()
    if source not in DATASETS and is_images(source):
        check_not_given(
            source, "of images", {"dataset_option": words, "data_dir": data_dir, "stream": stream}
        )
        return open_images(source, columns, skip_broken=bool(options.get("skip_broken")))
    if "image" not in columns:
        check_goes_with({"skip_broken": None, **options}, ("skip_broken",), "images")
    if source in DATASETS or not (ending or Path(source).exists()):
        DATASETS[source]  # raises on an unknown name
        check_not_given(source, "a named dataset", {**columns, "stream": stream})
        return open_named(source, words, data_dir=data_dir)
    if table is None and ending != ".arff":
        raise HierlearnError(
            f"{source} is neither a dataset nor a file that can be read; files end in .arff, .tar, "
            f"{known_endings()}"
        )
    check_not_given(source, "a file", {"dataset_option": words, "data_dir": data_dir})
    if ending == ".arff":
        others = {name: 1 for name in columns if name != "sep"}
        check_not_given(source, "an ARFF file", {**others, "stream": stream})
        with reading(source):
            return read_arff(source, **columns)
    if "levels" in columns and "label_sep" in columns:
        raise HierlearnError("--label-sep goes with --label, not with --levels; leave it out")
    columns = as_arguments(columns)
    with reading(source):
        if "image" in columns:
            names = ("features", "text", "ignore", "column_kinds")
            inputs = {name: columns.get(name) for name in names}
            check_not_given(source, "read by --image", {"stream": stream, **inputs})
            skip = bool(options.get("skip_broken"))
            return readable(read_image_table(source, **columns), skip_broken=skip)
        if stream:
            return stream_table(source, window=window, **columns)
        return read_table(source, **columns)


def open_images(source: str, columns: Mapping[str, Any], *, skip_broken: bool) -> Dataset:
    """Open a folder of images, or tar shards.

    Args:
        source: the folder, the tar file, or a pattern of them.
        columns: the options about columns, of which only the taxonomy matters.
        skip_broken: leave out images that cannot be read.
    """
    from hierlearn.datasets import read_images

    used = ("hierarchy", "unknown")
    others = {name: value for name, value in columns.items() if name not in used}
    check_not_given(source, "a source of images", others)
    with reading(source):
        dataset = read_images(source, **{name: columns[name] for name in used if name in columns})
    return readable(dataset, skip_broken=skip_broken)


def readable(dataset: Dataset, *, skip_broken: bool) -> Dataset:
    """Return a dataset of images, where asked for without those that cannot be read."""
    from hierlearn.datasets.images import without_broken
    from hierlearn.terminal import complain

    if not skip_broken:
        return dataset
    kept, broken = without_broken(dataset)
    if broken:
        complain(skipped_note(broken, len(dataset)))
    return kept


def skipped_note(broken: Mapping[str, str], count: int) -> str:
    """Say which images were left out, and why the first of them was."""
    from hierlearn.errors import plural

    names = [*broken]
    first = f"{names[0]} ({broken[names[0]]})"
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return (
        f"left out {len(names):,} of {plural(count, 'image')} that cannot be read: "
        f"{', '.join([first, *names[1:10]])}{more}"
    )


def as_arguments(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return options about columns as ``read_table`` takes them; a GAF file becomes its labels."""
    from hierlearn.datasets import read_gaf
    from hierlearn.terminal import complain

    arguments = dict(columns)
    for name in ("levels", "features", "evidence", "aspect"):
        if isinstance(arguments.get(name), str):
            arguments[name] = split_names(arguments[name])
    if arguments.get("label_sep") == "none":
        arguments["label_sep"] = None
    kinds = arguments.pop("column_kind", None)
    if isinstance(kinds, (list, tuple)):
        kinds = parse_pairs(kinds, "--column-kind", as_typed=True)
    if kinds is not None:
        arguments["column_kinds"] = kinds
    path = arguments.pop("annotations", None)
    filters = {name: arguments.pop(name, None) for name in ("evidence", "aspect", "annotation_key")}
    if path is None:
        check_goes_with(filters, filters, "--annotations")
        return arguments
    evidence, aspects, key = filters.values()
    labels = read_gaf(path, evidence=evidence, aspects=aspects, key=key or "id")
    complain(labels.summary())
    arguments.pop("label_sep", None)
    return {**arguments, "labels_by_id": labels}


def open_hierarchy(source: str, *, data_dir: Path | None = None, **options: Any) -> Hierarchy:
    """Open the hierarchy of a named dataset, or of a file.

    Args:
        source: the name or the file.
        data_dir: the folder of a set of files.
        options: those of ``Hierarchy.read``, None where they were not given.
    """
    from hierlearn.datasets import DATASETS
    from hierlearn.datasets.images import is_images
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import checked_sep

    options = {name: value for name, value in options.items() if value is not None}
    if source not in DATASETS and is_images(source):
        check_not_given(source, "a source of images", {"data_dir": data_dir, **options})
        return open_images(source, {}, skip_broken=False).hierarchy
    if source in DATASETS or not (Path(source).suffix or Path(source).exists()):
        DATASETS[source]  # raises on an unknown name
        check_not_given(source, "a named dataset", options)
        return open_named(source, data_dir=data_dir).hierarchy
    check_not_given(source, "a file", {"data_dir": data_dir})
    checked_sep(options.get("sep", "/"))
    with reading(source):
        return Hierarchy.read(source, **options)


def split_names(text: str) -> list[str]:
    """Split a comma-separated list of names, e0..e767 among them; raise on commas without one."""
    names: list[str] = []
    for word in filter(None, map(str.strip, text.split(","))):
        span = RANGE.fullmatch(word)
        if span is not None and span["name"] == span["again"]:
            first, last = int(span["first"]), int(span["last"])
            if first <= last <= first + MOST_COLUMNS:
                names += [f"{span['name']}{number}" for number in range(first, last + 1)]
                continue
        names.append(word)
    if text and not names:
        raise HierlearnError(f"{text!r} names nothing; write names with commas, such as a,b")
    return names


# ---------------------------------------------------------------------- rows for a trained model

HELD_OUT = "valid"
NEAREST = "nearest"  # a label that the model does not know counts for the class above

UNNAMED = {  # by the option that names the inputs
    "features": "the model does not know its columns by name; give --features a,b,c",
    "text": "the model reads texts; name their column with --text",
    "image": "the model reads images; name their column with --image",
    "embeddings": "the model reads embeddings; name the file of those of the new rows with "
    "--embeddings FILE.npy",
}
ANNOTATIONS = ("annotations", "evidence", "aspect", "annotation_key")


def load_model(folder: Path, options: Mapping[str, Any]) -> Pipeline:
    """Read a model folder, with the options of ``shared.LOADING``."""
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.training.processes import find_device

    device = find_device(options["device"])
    model = Pipeline.load(folder, device=device, trust=options["trust"])
    if "missing" in options:
        model.missing = checked_missing(options["missing"])
    return model


def is_table(source: str) -> bool:
    """Whether a source is a table in files, rather than a dataset's name, images or ARFF."""
    from hierlearn.datasets import DATASETS
    from hierlearn.datasets.tables import table_ending

    return source not in DATASETS and table_ending(source) is not None


def reads_images(model: Pipeline) -> bool:
    return model.preprocessor is not None and model.preprocessor.reads == "images"


def input_columns(model: Pipeline, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return which columns the model reads, given or as in training.

    These are ``features``, ``text``, ``image`` or ``embeddings``, or ``features`` with their
    ``kinds`` for a mixed table. Options of other inputs raise.
    """
    from hierlearn.pipeline.answers import known_columns

    known = known_columns(model)
    what: str = "numbers" if model.preprocessor is None else model.preprocessor.reads
    if "kinds" in known:
        what, own = "a table, whose columns it knows,", "ignore"
    elif what == "numbers" and ("embeddings" in known or options.get("embeddings")):
        what = own = "embeddings"
    else:
        own = {"images": "image", "texts": "text"}.get(what, "features")
    for name in ("features", "text", "image", "embeddings", "column_kind", "ignore"):
        if name != own and is_given(options.get(name)):
            raise HierlearnError(
                f"the model reads {what} and does not take {dashed(name)}; leave it out"
            )
    if "kinds" in known:
        wrong = [name for name in options.get("ignore") or () if name in known["kinds"]]
        if wrong:
            raise HierlearnError(f"the model reads the column {wrong[0]!r}; leave --ignore out")
        return {"features": list(known["kinds"]), "kinds": known["kinds"]}
    value = options.get(own)
    if own == "features" and value is not None:
        value = split_names(value)
    value = value or known.get(own)
    if value is None:
        raise HierlearnError(UNNAMED[own])
    return {own: value}


def open_stream(model: Pipeline, source: str, options: Mapping[str, Any]) -> TableStream:
    """Open a table to predict on; its rows have ids where a column of them is given or known."""
    from hierlearn.datasets.tables.stream import TableStream

    check_goes_with({"skip_broken": None, **options}, ("skip_broken",), "images")
    inputs = input_columns(model, options)
    named = options.get("id_column")
    known = model.config.get("columns", {}).get("id_column")
    delimiter = options.get("delimiter")
    columns = header(source, delimiter)
    if named is None and known in columns:
        named = known
    keep = columns if options.get("keep") == "all" else split_names(options.get("keep") or "")
    if named in keep and options.get("id_column") is None:
        named = None  # kept under its own name
    inputs = {"features": inputs["kinds"]} if "kinds" in inputs else inputs
    return TableStream(source, id_column=named, keep=keep, delimiter=delimiter, **inputs)


def open_labeled(model: Pipeline, source: str, options: Mapping[str, Any]) -> Dataset:
    """Open labeled rows; options for the columns of a table add to what the model knows."""
    from hierlearn.datasets.images import is_images

    if is_images(source) and reads_images(model):
        given = {name: value for name, value in options.items() if value is not None}
        return open_dataset(source, {"hierarchy": model.hierarchy, "unknown": NEAREST, **given})
    if not is_table(source):
        return open_dataset(source, options)
    return open_labeled_table(model, source, options, model.hierarchy)


def open_labeled_table(
    model: Pipeline, source: str, options: Mapping[str, Any], hierarchy: Hierarchy | None
) -> Dataset:
    """Open a table of labeled rows.

    Args:
        model: the model, which knows the columns of its training.
        source: the file.
        options: those of the command.
        hierarchy: what the labels belong to; None for any paths, as the model writes them.
    """
    from hierlearn.datasets.tables import open_table

    check_not_given(source, "a file", options, "dataset_option", "data_dir")
    given = {name: options[name] for name in COLUMN_NAMES if is_given(options.get(name))}
    check_sep(model, given.pop("sep", None))
    replaced = {
        "label": ("levels", *ANNOTATIONS),
        "levels": ("label", "label_sep", *ANNOTATIONS),
        "annotations": ("label", "levels", "label_sep"),
    }
    dropped = {one for name in replaced if name in given for one in replaced[name]}
    names = header(source, options.get("delimiter"))
    known = {
        name: value
        for name, value in model.config.get("columns", {}).items()
        # New rows may have neither splits nor ids nor groups.
        if name not in dropped and (name not in ("split", "id_column", "group") or value in names)
    }
    columns = {**known, **given}
    for name in ("features", "text", "image", "ignore", "column_kind", "embeddings"):
        columns.pop(name, None)
    inputs = input_columns(model, options)
    named = [inputs[name] for name in ("text", "image") if name in inputs]
    table = open_table(source, options.get("delimiter"))
    table.check_inputs([*named, *inputs.get("features", ())])
    for name, value in inputs.items():
        columns["column_kind" if name == "kinds" else name] = value
    if not {"label", "levels", "annotations"} & set(columns):
        raise HierlearnError(f"{source}: name the column of labels with --label, or --levels")
    columns["skip_broken"] = options.get("skip_broken")
    if hierarchy is None:
        return open_dataset(source, {**columns, "sep": model.hierarchy.sep})
    columns["unknown"] = given.get("unknown", NEAREST)
    return open_dataset(source, {"hierarchy": hierarchy, **columns})


def label_notes(model: Pipeline, dataset: Dataset) -> list[str]:
    """Return what to say of the labels of rows before they are evaluated, one sentence each."""
    from hierlearn.datasets.labels import unseen_note
    from hierlearn.pipeline.evaluate import policy_of

    lost = [row for row in dataset.unseen if not dataset.labels[row]]
    notes = [unseen_note(dataset.unseen, lost)]
    count = sum(not labels for labels in dataset.labels) - len(lost)
    if count:
        has, them = ("row has", "it") if count == 1 else ("rows have", "them")
        notes.append(
            f"{count:,} {has} no label, so nothing is known of {them}"
            if policy_of(model) == "ignore"
            else f"{count:,} {has} no label: right is only to answer none"
        )
    return [note for note in notes if note]


def check_sep(model: Pipeline, sep: str | None) -> None:
    """Raise on another separator of paths than that of the model's hierarchy."""
    own = model.hierarchy.sep
    if sep is not None and sep != own:
        raise HierlearnError(
            f"the model joins the names of a path by {own!r}, not by {sep!r}; leave --sep out"
        )


def header(source: str, delimiter: str | None = None) -> list[str]:
    """Return the columns of a table."""
    from hierlearn.datasets import open_table

    return list(open_table(source, delimiter).columns)


def pick_rows(
    dataset: Dataset, rows: str | None, option: str = "--rows", model: Pipeline | None = None
) -> tuple[Dataset, str]:
    """Return one split of a dataset and its name; without splits, all rows.

    Args:
        dataset: all rows.
        rows: the name of a split, or "all"; None where there are no splits.
        option: where the name was given, for errors.
        model: the model, whose held-out rows are "valid" where the dataset has no such split.
    """
    if rows is None and not dataset.splits:
        return dataset, "all"
    if rows is None:
        raise HierlearnError(
            f"{dataset.name} has the splits {', '.join(dataset.splits)}; say which with {option}"
        )
    if rows == "all":
        return dataset, "all"
    if rows in dataset.splits:
        return dataset.split(rows), rows
    if rows == HELD_OUT and model is not None:
        held_out = 0 if model.seen is None else len(model.seen.held_out)
        if not held_out:
            raise HierlearnError(
                f"{dataset.name} has no split {HELD_OUT!r}, and the model remembers no rows that "
                f"were held out in its training; train with --valid-fraction, or use --rows all"
            )
        held = find_held_out(model, dataset)
        if held is None:
            raise HierlearnError(
                f"{dataset.name} lacks some of the {plural(held_out, 'row')} that were held out in "
                f"training; name the file that the model was trained on"
            )
        return held, rows
    raise HierlearnError(unknown_name("split", rows, ["all", *dataset.splits]))


def rows_to_evaluate(model: Pipeline, dataset: Dataset, rows: str | None) -> tuple[Dataset, str]:
    """Return the rows to evaluate a model on, and their name.

    Args:
        model: the model.
        dataset: all rows.
        rows: the name of a split, or "all"; None for the test rows, else for those that were held
            out when the model was trained, else for all.
    """
    if rows is None and "test" in dataset.splits:
        rows = "test"
    if rows is None and not dataset.splits:
        held_out = find_held_out(model, dataset)
        if held_out is not None:
            return held_out, HELD_OUT
    return pick_rows(dataset, rows, model=model)


def find_held_out(model: Pipeline, dataset: Dataset) -> Dataset | None:
    """Return the rows that were held out when the model was trained; None unless all are there."""
    from hierlearn.pipeline.seen_rows import row_digests

    if model.seen is None or not len(model.seen.held_out):
        return None
    rows = model.seen.find_held_out(row_digests(model, dataset.inputs))
    return dataset.take(rows) if len(rows) >= len(model.seen.held_out) else None


def seen_rows(model: Pipeline, dataset: Dataset, *, selecting: bool = False) -> Overlap | None:
    """Return how many of some rows the model has seen; None where it does not know.

    Args:
        model: the model.
        dataset: the rows.
        selecting: whether rows that chose the weights count as well.
    """
    from hierlearn.pipeline.seen_rows import row_digests

    if model.seen is None:
        return None
    return model.seen.overlap(row_digests(model, dataset.inputs), selecting=selecting)


CHUNK = 1024  # images that are read at a time


class ImageStream:
    """Images, some at a time, named by their paths.

    Args:
        images: all of them.
        ids: of each image; by default its path.
        skip_broken: leave out images that cannot be read, and say so.

    Attributes:
        rows: how many there are.
        id_column: where the ids come from.
        keep: columns that are copied; none.
    """

    id_column = "path"
    keep: tuple[str, ...] = ()

    def __init__(
        self, images: Images, ids: Sequence[str] | None = None, *, skip_broken: bool = False
    ) -> None:
        self.images, self.ids = images, images.names if ids is None else ids
        self.rows = len(images)
        self.skip_broken = skip_broken

    def __iter__(self) -> Iterator[Chunk]:
        import numpy as np

        from hierlearn.datasets.images import find_broken
        from hierlearn.datasets.tables.stream import Chunk
        from hierlearn.terminal import complain

        reasons: dict[str, str] = {}
        done = 0
        for begin in range(0, len(self.images), CHUNK):
            rows = np.arange(begin, min(begin + CHUNK, len(self.images)))
            if self.skip_broken:
                broken = find_broken(self.images[rows])
                reasons |= {self.images.names[begin + row]: why for row, why in broken.items()}
                rows = np.delete(rows, list(broken))
            if len(rows):
                done += len(rows)
                lines = [int(row) + 1 for row in rows]
                yield Chunk(self.images[rows], lines, [self.ids[line - 1] for line in lines])
        if reasons:
            complain(skipped_note(reasons, len(self.images)))
        if not done:
            raise HierlearnError("no image could be read, so there is nothing to predict")


def open_image_stream(model: Pipeline, source: str, options: Mapping[str, Any]) -> ImageStream:
    """Open a folder, tar shards or a table of images."""
    from hierlearn.datasets.images import Images, find_images, is_images, table_images
    from hierlearn.datasets.labels import row_ids
    from hierlearn.datasets.tables import open_table

    wrong = ("dataset_option", "rows", "data_dir", "keep")
    check_not_given(source, "a source of images", options, *wrong)
    skip = bool(options.get("skip_broken"))
    if is_images(source):
        check_not_given(source, "a source of images", options, "id_column", "image", "delimiter")
        return ImageStream(Images(find_images(source).references), skip_broken=skip)
    file = open_table(source, options.get("delimiter"))
    images = table_images(file, input_columns(model, options)["image"])
    named = options.get("id_column")
    ids = None if named is None else row_ids(file.read([named]), named)
    return ImageStream(images, ids, skip_broken=skip)
