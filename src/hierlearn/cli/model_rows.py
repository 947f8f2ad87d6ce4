"""Rows for a trained model: it knows its hierarchy and the columns that it was trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import dashed
from hierlearn.cli.shared import COLUMN_NAMES
from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hierlearn.datasets import Dataset, Images
    from hierlearn.datasets.tables.stream import Chunk, TableStream
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.seen_rows import Overlap


HELD_OUT = "valid"
NEAREST = "nearest"  # a label that the model does not know counts for the class above

ANNOTATIONS = ("annotations", "evidence", "aspect", "annotation_key")


def load_model(folder: Path, options: Mapping[str, Any]) -> Pipeline:
    """Read a model folder, with the options of ``shared.LOADING``."""
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.training.processes import find_device

    device = find_device(options["device"])
    found = Pipeline.load(folder, device=device, trust=options["trust"])
    if "missing" in options:
        found.missing = checked_missing(options["missing"])
    return found


def is_table(source: str) -> bool:
    """Whether a source is a table in files, rather than a dataset's name, images or ARFF."""
    from hierlearn.datasets import DATASETS
    from hierlearn.datasets.tables import table_ending

    return source not in DATASETS and table_ending(source) is not None


def input_columns(model: Pipeline, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return which columns the model reads, given or as in training.

    These are ``features`` or ``text``, or ``features`` with their ``kinds`` for a mixed table.
    """
    from hierlearn.cli.sources import split_names
    from hierlearn.pipeline.answers import known_columns

    known = known_columns(model)
    if "kinds" in known:
        return table_columns(known["kinds"], options)
    if "embeddings" in known or options.get("embeddings"):
        return {"embeddings": vectors_of(model, options)}
    for name in ("column_kind", "ignore"):
        if options.get(name):
            raise HierlearnError(f"the model does not read a mixed table; leave {dashed(name)} out")
    if reads_images(model):
        if options.get("features") is not None or options.get("text") is not None:
            raise HierlearnError("the model reads images; name their column with --image")
        image = options.get("image") or known["image"]
        if image is None:
            raise HierlearnError("the model reads images; name their column with --image")
        return {"image": image}
    if options.get("image") is not None:
        raise HierlearnError("the model does not read images; leave --image out")
    if model.preprocessor is not None and model.preprocessor.reads == "texts":
        if options.get("features") is not None:
            raise HierlearnError("the model reads texts and does not take --features; leave it out")
        text = options.get("text") or known["text"]
        if text is None:
            raise HierlearnError("the model reads texts; name their column with --text")
        return {"text": text}
    if options.get("text") is not None:
        raise HierlearnError("the model reads numbers and does not take --text; leave it out")
    if options.get("features") is not None:
        return {"features": split_names(options["features"])}
    if known["features"] is None:
        raise HierlearnError("the model does not know its columns by name; give --features a,b,c")
    return known


def vectors_of(model: Pipeline, options: Mapping[str, Any]) -> str:
    """Return the file or the column of the vectors that a model reads."""
    from hierlearn.pipeline.answers import known_columns

    if model.preprocessor is not None and model.preprocessor.reads != "numbers":
        raise HierlearnError(
            f"the model reads {model.preprocessor.reads} and does not take --embeddings; leave it "
            f"out"
        )
    for name in ("features", "text", "column_kind", "ignore"):
        if options.get(name):
            raise HierlearnError(f"embeddings are the only inputs; leave {dashed(name)} out")
    found: str | None = options.get("embeddings") or known_columns(model).get("embeddings")
    if found is None:
        raise HierlearnError(
            "the model reads embeddings; name the file of those of the new rows with --embeddings "
            "FILE.npy"
        )
    return found


def reads_images(model: Pipeline) -> bool:
    """Whether the inputs of a model are images."""
    return model.preprocessor is not None and model.preprocessor.reads == "images"


def table_columns(kinds: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a mixed table; raise on options that would change them."""
    for name in ("features", "text", "column_kind", "embeddings"):
        if options.get(name):
            raise HierlearnError(
                f"the model knows the columns of its table and does not take {dashed(name)}; "
                f"leave it out"
            )
    wrong = [name for name in options.get("ignore") or () if name in kinds]
    if wrong:
        raise HierlearnError(f"the model reads the column {wrong[0]!r}; leave --ignore out")
    return {"features": list(kinds), "kinds": kinds}


def open_stream(model: Pipeline, source: str, options: Mapping[str, Any]) -> TableStream:
    """Open a table to predict on; its rows have ids where a column of them is given or known."""
    from hierlearn.cli.sources import check_goes_with, split_names
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
    from hierlearn.cli.sources import open_dataset
    from hierlearn.datasets.images import is_images

    if is_images(source) and reads_images(model):
        given = {"unknown": NEAREST, **given_options(options)}
        return open_dataset(source, {"hierarchy": model.hierarchy, **given})
    if not is_table(source):
        return open_dataset(source, options)
    return open_labeled_table(model, source, options, model.hierarchy)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


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
    from hierlearn.cli.sources import check_not_given, is_given, open_dataset

    check_not_given(source, "a file", options, "dataset_option", "data_dir")
    given = {name: options[name] for name in COLUMN_NAMES if is_given(options.get(name))}
    check_sep(model, given.pop("sep", None))
    known = {**model.config.get("columns", {})}
    if "label" in given:
        known.pop("levels", None)
    if "levels" in given:
        for name in ("label", "label_sep"):
            known.pop(name, None)
    if "label" in given or "levels" in given:
        for name in ANNOTATIONS:
            known.pop(name, None)
    if "annotations" in given:
        for name in ("label", "levels", "label_sep"):
            known.pop(name, None)
    for name in ("split", "id_column"):  # new rows may have neither
        if known.get(name) not in header(source, options.get("delimiter")):
            known.pop(name, None)
    columns = {**known, **given}
    for name in ("features", "text", "image", "ignore", "column_kind", "embeddings"):
        columns.pop(name, None)
    inputs = input_columns(model, options)
    check_inputs(source, inputs, options.get("delimiter"))
    for name, value in inputs.items():
        columns["column_kind" if name == "kinds" else name] = value
    if not {"label", "levels", "annotations"} & set(columns):
        raise HierlearnError(f"{source}: name the column of labels with --label, or --levels")
    columns["skip_broken"] = options.get("skip_broken")
    if hierarchy is None:
        return open_dataset(source, {**columns, "sep": model.hierarchy.sep})
    columns["unknown"] = given.get("unknown", NEAREST)
    return open_dataset(source, {"hierarchy": hierarchy, **columns})


def check_inputs(source: str, inputs: Mapping[str, Any], delimiter: str | None) -> None:
    """Raise on a table that lacks a column which the model reads."""
    from hierlearn.datasets import open_table

    named = [inputs[name] for name in ("text", "image") if name in inputs]
    open_table(source, delimiter).check_inputs([*named, *inputs.get("features", ())])


def label_notes(model: Pipeline, dataset: Dataset) -> list[str]:
    """Return what to say of the labels of rows before they are evaluated, one sentence each."""
    from hierlearn.datasets.labels import unseen_note

    lost = [row for row in dataset.unseen if not dataset.labels[row]]
    notes = [unseen_note(dataset.unseen, lost), unlabeled_note(model, dataset)]
    return [note for note in notes if note]


def unlabeled_note(model: Pipeline, dataset: Dataset) -> str:
    """Say how many rows have no label at all; nothing where all have one."""
    from hierlearn.pipeline.evaluate import policy_of

    count = sum(not labels for labels in dataset.labels) - sum(
        not dataset.labels[row] for row in dataset.unseen
    )
    if not count:
        return ""
    has = "row has" if count == 1 else "rows have"
    if policy_of(model) == "ignore":
        return f"{count:,} {has} no label, so nothing is known of {'it' if count == 1 else 'them'}"
    return f"{count:,} {has} no label: right is only to answer none"


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
        return held_out_rows(model, dataset), rows
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
        found = find_held_out(model, dataset)
        if found is not None:
            return found, HELD_OUT
    return pick_rows(dataset, rows, model=model)


def held_out_rows(model: Pipeline, dataset: Dataset) -> Dataset:
    """Return the rows that were held out when the model was trained."""
    from hierlearn.errors import plural

    if model.seen is None or not len(model.seen.held_out):
        raise HierlearnError(
            f"{dataset.name} has no split {HELD_OUT!r}, and the model remembers no rows that were "
            f"held out in its training; train with --valid-fraction, or use --rows all"
        )
    found = find_held_out(model, dataset)
    if found is None:
        raise HierlearnError(
            f"{dataset.name} lacks some of the {plural(len(model.seen.held_out), 'row')} that were "
            f"held out in training; name the file that the model was trained on"
        )
    return found


def find_held_out(model: Pipeline, dataset: Dataset) -> Dataset | None:
    """Return the rows that were held out when the model was trained; None unless all are there."""
    from hierlearn.pipeline.seen_rows import row_digests

    if model.seen is None or not len(model.seen.held_out):
        return None
    found = model.seen.find_held_out(row_digests(model, dataset.inputs))
    return dataset.take(found) if len(found) >= len(model.seen.held_out) else None


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

        from hierlearn.cli.sources import skipped_note
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
    from hierlearn.cli.sources import check_not_given
    from hierlearn.datasets.images import is_images, read_unlabeled_images, table_images
    from hierlearn.datasets.labels import row_ids
    from hierlearn.datasets.tables import open_table

    wrong = ("dataset_option", "rows", "data_dir", "keep")
    check_not_given(source, "a source of images", options, *wrong)
    skip = bool(options.get("skip_broken"))
    if is_images(source):
        check_not_given(source, "a source of images", options, "id_column", "image", "delimiter")
        return ImageStream(read_unlabeled_images(source), skip_broken=skip)
    file = open_table(source, options.get("delimiter"))
    images = table_images(file, input_columns(model, options)["image"])
    named = options.get("id_column")
    ids = None if named is None else row_ids(file.read([named]), named)
    return ImageStream(images, ids, skip_broken=skip)
