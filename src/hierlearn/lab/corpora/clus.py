"""The benchmark sets of hierarchical multi-label classification in Clus ARFF files.

Diatom and X-ray images, e-mails, and the genes of yeast under FunCat (a tree) and under the Gene
Ontology (a DAG), as collected in the repository of C-HMCNN (Giunchiglia and Lukasiewicz, 2020) and
read from there at one pinned commit.

The SHA-256 is known for four sets only: diatoms, imclef07d, cellcycle_fun and cellcycle_go. Their
downloads are verified. The other sets are downloaded only with ``trust=True``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.datasets.tables.arff import read_arff
from hierlearn.errors import DataError, DownloadError, arg, quoted, unknown_name
from hierlearn.files.locations import cache_dir, existing_folders, own_folders
from hierlearn.lab.corpora.download import BY_HAND, Archive, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    Progress = Callable[[int, int | None], None]

REPOSITORY = "EGiunchiglia/C-HMCNN"
COMMIT = "06d35feab7067756e288c3b0f3e570a8fb7c99d5"
ROOT = "HMC_data"  # of the files in the repository
ADDRESS = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/"

_SHA256 = {
    "Diatoms_train.arff": "19baf9a53db0d3e636481c3b80d0f6532ddb9586f829e22c9cb326effc917e36",
    "Diatoms_test.arff": "04c4ae6e90297e3da1771615f0ac2a535a0ea5bd4c0625d43052b5130e2f6a09",
    "ImCLEF07D_Train.arff": "ca6eaafd72bfdf4c78d8cee708d589e3139da206ae07e9ff9b74e67fe4900a09",
    "ImCLEF07D_Test.arff": "404870af634965a267609e1139a844bf984ad886ced7a928826a85475ba4e595",
    "cellcycle_FUN.train.arff": "4c97ccf6f15b49392b3bda7fec1f601ed921746ef0b78d6fcd4c85a0424dfd66",
    "cellcycle_FUN.valid.arff": "8914f37522a484ce1790625e4993d89eed73ce4f6d667711c691a389e3a4f982",
    "cellcycle_FUN.test.arff": "2dd7798e23375743b2e31e0236d9a6cb7a73351a777efe381946105417fd1299",
    "cellcycle_GO.train.arff": "84b1e37e1b8db8361d77808fcd2fd565ea42fc1f4a26401a314f9d28d48a56be",
    "cellcycle_GO.valid.arff": "d0a95ce316e388231a3dd4261a39a0765aa27e7c232fe2cc302415798cd77dec",
    "cellcycle_GO.test.arff": "7fc5630e627e18b77f6531f7f4c8072813f6099872039e85091ba1ca4a9161ef",
}

_OTHERS = {  # those without a validation file
    "diatoms": ("Diatoms_train.arff", "Diatoms_test.arff"),
    "imclef07a": ("ImCLEF07A_Train.arff", "ImCLEF07A_Test.arff"),
    "imclef07d": ("ImCLEF07D_Train.arff", "ImCLEF07D_Test.arff"),
    "enron": ("Enron_corr_trainvalid.arff", "Enron_corr_test.arff"),
}
_YEAST = ("cellcycle", "derisi", "eisen", "expr", "gasch1", "gasch2", "seq", "spo")
_DESCRIPTIONS = {
    "diatoms": "microscope images of diatoms, by taxon",
    "imclef07a": "X-ray images, by the part of the body",
    "imclef07d": "X-ray images, by the direction of the view",
    "enron": "e-mails of Enron, by topic",
    "cellcycle": "yeast genes: expression in the cell cycle",
    "derisi": "yeast genes: expression in the diauxic shift",
    "eisen": "yeast genes: expression in eight experiments",
    "expr": "yeast genes: all the expression data together",
    "gasch1": "yeast genes: expression under environmental stress",
    "gasch2": "yeast genes: expression under DNA damage",
    "seq": "yeast genes: statistics of the sequence",
    "spo": "yeast genes: expression in sporulation",
    "FUN": "FunCat classes (a tree)",
    "GO": "Gene Ontology classes (a DAG)",
}


@dataclass(frozen=True)
class ClusSet:
    """A named set: its files by split."""

    name: str
    description: str
    files: Mapping[str, Archive]


def _file(path: str) -> Archive:
    name = path.rpartition("/")[2]
    return Archive(name, None, _SHA256.get(name), "http", ADDRESS + path)


def _make_sets() -> Iterator[ClusSet]:
    for name, files in _OTHERS.items():
        splits = zip(
            ("train", "test"), (_file(f"{ROOT}/others/{one}") for one in files), strict=True
        )
        yield ClusSet(name, _DESCRIPTIONS[name], dict(splits))
    for data in _YEAST:
        for ontology in ("FUN", "GO"):
            stem = f"{data}_{ontology}"
            place = f"{ROOT}/datasets_{ontology}/{stem}/{stem}"
            files_of = {one: _file(f"{place}.{one}.arff") for one in ("train", "valid", "test")}
            about = f"{_DESCRIPTIONS[data]}; {_DESCRIPTIONS[ontology]}"
            yield ClusSet(stem.lower(), about, files_of)


CLUS_SETS: dict[str, ClusSet] = {one.name: one for one in _make_sets()}


def load_clus(
    name: str,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    trust: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load a named set with its official splits.

    The files are looked for in ``data_dir``, then in the folder that HIERLEARN_DATA names, then in
    the cache (HIERLEARN_CACHE, else ``hierlearn`` in the user's cache folder). A folder counts when
    it holds all files of the set, by name or as laid out in the source repository. Files in the
    first two are the user's own and taken as they are; those in the cache are checked, and
    downloaded where they are missing or damaged.

    Args:
        name: a key of ``CLUS_SETS``.
        data_dir: a folder with the files, searched first.
        download: whether missing files may be downloaded into the cache.
        trust: whether files without a known SHA-256 may be downloaded; once in the cache, they are
            taken as they are.
        progress: called with the bytes received and their total over all files of the set.

    Returns:
        The rows of all splits, in the order "train", "valid" (the yeast sets only) and "test".

    Raises:
        DataError: if the name is unknown, files are absent, or they do not fit together.
        DownloadError: if a download fails or would need ``trust``.
    """
    clus_set = find_set(name)
    folders = existing_folders(data_dir)
    paths = locate_clus(name, data_dir)
    if paths is None and download:
        paths = _download(clus_set, trust, progress)
    if paths is None:
        looked = ", ".join(str(folder) for folder in (*folders.values(), cache_dir()))
        missing = quoted(file.name for file in clus_set.files.values())
        raise DataError(
            f"{name} needs the files {missing}, and none of these folders holds all of them "
            f"undamaged: {looked}; name the right folder with {arg('data_dir=')} or "
            "HIERLEARN_DATA, or "
            f"allow the download with download=True"
        )
    parts = {split: read_arff(path) for split, path in paths.items()}
    first = parts["train"]
    splits: dict[str, NDArray[np.int64]] = {}
    begin = 0
    for split, part in parts.items():
        for what, same in (
            ("hierarchy", part.hierarchy == first.hierarchy),
            ("attributes", list(part.feature_names) == list(first.feature_names)),
        ):
            if not same:
                raise DataError(
                    f"{paths[split]} and {paths['train']} differ in the {what} of their headers; "
                    f"take all files of {name} from one source"
                )
        splits[split] = np.arange(begin, begin + len(part), dtype=np.int64)
        begin += len(part)
    is_verified = all(
        file.sha256 is not None and file.mismatch(paths[split]) is None
        for split, file in clus_set.files.items()
    )
    return Dataset(
        inputs=np.concatenate([part.inputs for part in parts.values()]),
        labels=[labels for part in parts.values() for labels in part.labels],
        hierarchy=first.hierarchy,
        splits=splits,
        name=name,
        feature_names=first.feature_names,
        source=(
            f"Clus ARFF files as in https://github.com/{REPOSITORY} at commit {COMMIT[:7]}, "
            f"SHA-256 {'verified' if is_verified else 'not verified'}."
        ),
    )


def find_set(name: str) -> ClusSet:
    if name not in CLUS_SETS:
        raise DataError(unknown_name("Clus set", name, CLUS_SETS))
    return CLUS_SETS[name]


def locate_clus(name: str, data_dir: Path | str | None = None) -> dict[str, Path] | None:
    """Return the files of a set by split where ``load_clus`` would find them, else None."""
    for folder in own_folders(data_dir).values():
        paths = find_clus(name, folder)
        if paths is not None:
            return paths
    paths = find_clus(name, cache_dir())
    files = find_set(name).files
    if paths and any(file.mismatch(paths[split]) for split, file in files.items()):
        return None
    return paths


def find_clus(name: str, data_dir: Path | str) -> dict[str, Path] | None:
    """Return the files of a set by split where a folder holds all of them, else None."""
    found: dict[str, Path] = {}
    for split, file in find_set(name).files.items():
        # HMC_data/others/x, others/x and x: the repository, its data folder, or a flat folder.
        inner = file.source.partition(f"{ROOT}/")[2]
        candidates = [Path(data_dir, part) for part in (file.name, inner, f"{ROOT}/{inner}")]
        path = next(filter(Path.is_file, candidates), None)
        if path is None:
            return None
        found[split] = path
    return found


def _download(clus_set: ClusSet, trust: bool, progress: Progress | None) -> dict[str, Path]:
    """Fetch the files into the cache, with one progress over all of them."""
    files = clus_set.files.values()
    for file in files:
        if file.sha256 is None and not trust and not (cache_dir() / file.name).is_file():
            raise DownloadError(
                f"no SHA-256 is known for {file.name}, so what is downloaded cannot be checked; "
                f"accept it once with: hierlearn data fetch {clus_set.name} --trust "
                f"(trust=True in Python), or {BY_HAND}"
            )
    whole = None if any(one.size is None for one in files) else sum(one.size or 0 for one in files)
    paths: dict[str, Path] = {}
    done = 0

    def report(received: int, _: int | None) -> None:
        if progress is not None:
            progress(done + received, whole)

    for split, file in clus_set.files.items():
        path = paths[split] = cache_dir() / file.name
        fetch(file.source, path, size=file.size, sha256=file.sha256, progress=report)
        done += path.stat().st_size
    return paths


ENTRIES = SimpleNamespace(
    **{
        one.name: DatasetEntry(
            one.name,
            one.description,
            "files",
            partial(load_clus, one.name),
            "see source",
            f"As collected in https://github.com/{REPOSITORY} (Giunchiglia and Lukasiewicz, "
            f"2020), which says where each set comes from.",
            files=tuple(one.files.values()),
            locate=partial(locate_clus, one.name),
        )
        for one in CLUS_SETS.values()
    }
)
