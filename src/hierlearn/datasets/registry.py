"""The named datasets: one registry for the library, the command line and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.clus import CLUS_SETS, load_clus
from hierlearn.errors import DataError, quoted, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.datasets.dataset import Dataset

DEFAULT = "icd10cm"


@dataclass(frozen=True)
class DatasetEntry:
    """A named dataset: call it to load it."""

    name: str
    about: str
    origin: str  # "embedded", "files" or "generated"
    load: Callable[..., Dataset]
    options: tuple[str, ...]  # what ``load`` takes

    def __call__(self, **options: Any) -> Dataset:
        """Load the dataset; refuse an option that it does not take."""
        unknown = [option for option in options if option not in self.options]
        if unknown:
            raise DataError(
                f"dataset {self.name!r} has no option {quoted(unknown)}; "
                f"it takes {', '.join(self.options)}"
            )
        return self.load(**options)


def _load_icd10cm(**options: Any) -> Dataset:
    from hierlearn.datasets.icd10cm import load_icd10cm

    return load_icd10cm(**options)


def _load_synthetic(**options: Any) -> Dataset:
    from hierlearn.datasets.synthetic import make_synthetic

    return make_synthetic(**options)


SYNTHETIC_OPTIONS = (
    "rows",
    "features",
    "depth",
    "fan_out",
    "ragged",
    "dag",
    "labels_per_row",
    "decay",
    "spread",
    "label_noise",
    "hierarchy_noise",
    "seed",
)

DATASETS: dict[str, DatasetEntry] = {
    entry.name: entry
    for entry in (
        DatasetEntry(
            "icd10cm",
            "diagnoses: texts of ICD-10-CM, by chapter, block and category",
            "embedded",
            _load_icd10cm,
            ("size", "seed"),
        ),
        *(
            DatasetEntry(
                one.name,
                one.about,
                "files",
                partial(load_clus, one.name),
                ("data_dir", "download", "trust", "progress"),
            )
            for one in CLUS_SETS.values()
        ),
        DatasetEntry(
            "synthetic",
            "rows drawn around the classes of a random tree or DAG",
            "generated",
            _load_synthetic,
            SYNTHETIC_OPTIONS,
        ),
    )
}


def load_dataset(name: str = DEFAULT, **options: Any) -> Dataset:
    """Load a named dataset; ``hierlearn data list`` shows them.

    Args:
        name: a key of ``DATASETS``.
        options: passed on, such as ``size="small"`` for icd10cm or ``data_dir=`` for the
            benchmark files.
    """
    if name not in DATASETS:
        raise DataError(unknown_name("dataset", name, DATASETS))
    return DATASETS[name](**options)
