"""What a command is pointed at: a named dataset, a data file or a hierarchy file."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy

TABLES = (".csv", ".tsv", ".parquet")


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Turn ``key=value`` words into options; numbers and truth values are recognised."""
    import yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise HierlearnError(f"an option is written key=value, not {pair!r}")
        found[key.replace("-", "_")] = yaml.safe_load(value)
    return found


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on standard error while files arrive; nothing if none do."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task: list[Any] = []

        def report(received: int, total: int | None) -> None:
            if not task:
                task.append(progress.add_task(name, total=total))
            progress.update(task[0], completed=received, total=total)

        yield report


def open_named(
    name: str,
    options: Sequence[str] = (),
    *,
    data_dir: Path | None = None,
    download: bool = True,
    trust: bool = False,
) -> Dataset:
    """Load a dataset of the registry with the options of the command line."""
    from rich.console import Console

    from hierlearn.datasets import DATASETS

    if name not in DATASETS:
        raise HierlearnError(unknown_name("dataset", name, DATASETS))
    entry = DATASETS[name]
    given = parse_options(options)
    if entry.origin == "files":
        given |= {"data_dir": data_dir, "download": download, "trust": trust}
        with download_bar(name) as report:
            return entry(progress=report, **given)
    with Console(stderr=True).status(f"loading {name}"):
        return entry(**given)


def open_dataset(
    source: str,
    options: Sequence[str] = (),
    *,
    data_dir: Path | None = None,
    label: str | None = None,
    levels: str | None = None,
    features: str | None = None,
    text: str | None = None,
    split: str | None = None,
    hierarchy: Path | None = None,
    label_sep: str = ";",
    sep: str = "/",
) -> Dataset:
    """Open a named dataset, a Clus ARFF file or a table."""
    from hierlearn.datasets import DATASETS, read_arff, read_table

    path = Path(source)
    ending = path.suffix.lower()
    if ending == ".arff":
        return read_arff(path, sep=sep)
    if ending in TABLES:
        return read_table(
            path,
            label=label,
            levels=None if levels is None else split_names(levels),
            features=None if features is None else split_names(features),
            text=text,
            split=split,
            hierarchy=hierarchy,
            label_sep=label_sep,
            sep=sep,
        )
    if source not in DATASETS and (ending or path.exists()):
        raise HierlearnError(
            f"{source} is neither a dataset nor a file that can be read; "
            f"files end in .arff, {', '.join(TABLES)}"
        )
    return open_named(source, options, data_dir=data_dir)


def open_hierarchy(
    source: str,
    *,
    data_dir: Path | None = None,
    form: str | None = None,
    sep: str = "/",
    root: str | None = None,
) -> Hierarchy:
    """Open the hierarchy of a named dataset, or of a file."""
    from hierlearn.datasets import DATASETS
    from hierlearn.hierarchy import Hierarchy

    if source in DATASETS:
        return open_named(source, data_dir=data_dir).hierarchy
    if not Path(source).suffix and not Path(source).exists():
        raise HierlearnError(unknown_name("dataset", source, DATASETS))
    return Hierarchy.read(source, form=form, sep=sep, root=root)


def split_names(text: str) -> list[str]:
    """Split a comma-separated list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]
