"""What a command is pointed at: a named dataset, a data file or a hierarchy file."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import dashed
from hierlearn.cli.shared import COLUMN_NAMES
from hierlearn.errors import HierlearnError
from hierlearn.files.locations import without_secrets
from hierlearn.options import parse_pairs, split_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.datasets.registry import DatasetEntry
    from hierlearn.hierarchy import Hierarchy


RANGE = re.compile(r"(?P<name>.*\D|)(?P<first>\d+)\.\.(?P<again>.*\D|)(?P<last>\d+)")
MOST_COLUMNS = 1 << 16  # of a range
PASSED = ("data_dir", "trust", "progress")  # what a loader gets from options of their own


def parse_options(entry: DatasetEntry, words: Sequence[str]) -> dict[str, Any]:
    """Turn ``key=value`` words into options of a dataset."""
    texts = split_pairs(words, "--dataset-option")
    return {name: entry.parse(name, text) for name, text in texts.items()}


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


def find_entry(name: str) -> DatasetEntry:
    """Return a dataset of the registry, or name the nearest."""
    from hierlearn.datasets import DATASETS

    return DATASETS[name]


def open_named(
    name: str,
    options: Sequence[str] = (),
    *,
    data_dir: Path | None = None,
    trust: bool = False,
) -> Dataset:
    """Load a dataset of the registry with the options of the command line."""
    entry = find_entry(name)
    asked: dict[str, Any] = {"data_dir": data_dir, "trust": trust}
    refused = {one: value for one, value in asked.items() if one not in entry.options}
    check_not_given(name, "no set of benchmark files", refused)
    settings = parse_options(entry, options)
    for one in PASSED:
        if one in settings:
            raise HierlearnError(
                f"--dataset-option does not take {one}; use --data-dir for the folder of the files"
            )
    check_data_dir(data_dir)
    with reading(name) as report:
        asked["progress"] = report
        passed = {one: value for one, value in asked.items() if one in entry.options and value}
        return entry(**settings, **passed)


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
        find_entry(source)
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
        found = read_images(source, **{name: columns[name] for name in used if name in columns})
    return readable(found, skip_broken=skip_broken)


def readable(dataset: Dataset, *, skip_broken: bool) -> Dataset:
    """Return a dataset of images, where asked for without those that cannot be read."""
    from hierlearn.datasets.images import without_broken
    from hierlearn.terminal import complain

    if not skip_broken:
        return dataset
    found, broken = without_broken(dataset)
    if broken:
        complain(skipped_note(broken, len(dataset)))
    return found


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
    """Return options about columns as ``read_table`` takes them."""
    found = dict(columns)
    for name in ("levels", "features"):
        if name in found:
            named = found[name]
            found[name] = split_names(named) if isinstance(named, str) else list(named)
    if found.get("label_sep") == "none":
        found["label_sep"] = None
    kinds = found.pop("column_kind", None)
    if kinds is not None:
        if isinstance(kinds, (list, tuple)):
            kinds = parse_pairs(kinds, "--column-kind", as_typed=True)
        found["column_kinds"] = kinds
    return with_annotations(found)


def with_annotations(columns: dict[str, Any]) -> dict[str, Any]:
    """Replace the options of a GAF file by the labels that it holds."""
    path = columns.pop("annotations", None)
    filters = {name: columns.pop(name, None) for name in ("evidence", "aspect", "annotation_key")}
    if path is None:
        check_goes_with(filters, filters, "--annotations")
        return columns
    from hierlearn.datasets import read_gaf
    from hierlearn.terminal import complain

    evidence, aspects = filters["evidence"], filters["aspect"]
    found = read_gaf(
        path,
        evidence=None if evidence is None else split_names(evidence),
        aspects=None if aspects is None else split_names(aspects),
        key=filters["annotation_key"] or "id",
    )
    complain(found.summary())
    columns.pop("label_sep", None)
    return {**columns, "labels_by_id": found}


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
        find_entry(source)
        check_not_given(source, "a named dataset", options)
        return open_named(source, data_dir=data_dir).hierarchy
    check_not_given(source, "a file", {"data_dir": data_dir})
    checked_sep(options.get("sep", "/"))
    with reading(source):
        return Hierarchy.read(source, **options)


def split_names(text: str) -> list[str]:
    """Split a comma-separated list of names, e0..e767 among them; raise on commas without one."""
    words = [name.strip() for name in text.split(",") if name.strip()]
    names = [name for word in words for name in expanded(word)]
    if text and not names:
        raise HierlearnError(f"{text!r} names nothing; write names with commas, such as a,b")
    return names


def expanded(word: str) -> list[str]:
    """Return the columns that ``e0..e767`` stands for; any other name as it is."""
    found = RANGE.fullmatch(word)
    if found is None or found["name"] != found["again"]:
        return [word]
    first, last = int(found["first"]), int(found["last"])
    if not first <= last <= first + MOST_COLUMNS:
        return [word]
    return [f"{found['name']}{number}" for number in range(first, last + 1)]
