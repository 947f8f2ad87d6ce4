"""The table of the Clus sets: names, files and checksums, and the real files where available."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from hierlearn.lab.corpora import download
from hierlearn.lab.corpora.clus import CLUS_SETS, find_clus, load_clus

REAL = Path(
    os.environ.get("HIERLEARN_DATA") or Path(__file__).parents[4] / "shared" / "data" / "hmc"
)
WITH_CHECKSUM = ["diatoms", "imclef07d", "cellcycle_fun", "cellcycle_go"]


def test_the_names_of_the_table():
    yeast = ["cellcycle", "derisi", "eisen", "expr", "gasch1", "gasch2", "seq", "spo"]
    others = ["diatoms", "imclef07a", "imclef07d", "enron"]
    assert sorted(CLUS_SETS) == sorted(others + [f"{y}_{o}" for y in yeast for o in ("fun", "go")])
    assert all(name == one.name for name, one in CLUS_SETS.items())


@pytest.mark.parametrize("name", sorted(CLUS_SETS))
def test_an_entry_of_the_table(name):
    one = CLUS_SETS[name]
    yeast = name.endswith(("_fun", "_go"))
    assert list(one.files) == (["train", "valid", "test"] if yeast else ["train", "test"])
    assert all(file.sha256 for file in one.files.values()) == (name in WITH_CHECKSUM)
    assert re.fullmatch(r"[^\n]{10,100}", one.description)
    for split, file in one.files.items():
        assert split in file.name.lower()
        assert file.source.endswith("/" + file.name)
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_no_file_or_checksum_occurs_twice():
    files = [file for one in CLUS_SETS.values() for file in one.files.values()]
    assert len({file.name for file in files}) == len(files) == 4 * 2 + 16 * 3
    checksums = [file.sha256 for file in files if file.sha256]
    assert len(set(checksums)) == len(checksums) == 10


def test_the_layout_of_the_repository():
    base = (
        "https://raw.githubusercontent.com/EGiunchiglia/C-HMCNN/"
        "06d35feab7067756e288c3b0f3e570a8fb7c99d5/HMC_data/"
    )
    assert CLUS_SETS["enron"].files["train"].source == base + "others/Enron_corr_trainvalid.arff"
    assert CLUS_SETS["seq_go"].files["valid"].source == (
        base + "datasets_GO/seq_GO/seq_GO.valid.arff"
    )


def real(name):
    if find_clus(name, REAL) is None:
        pytest.skip(f"the files of {name} are not available; set HIERLEARN_DATA to their folder")
    return load_clus(name, data_dir=REAL, download=False)


@pytest.mark.parametrize("name", WITH_CHECKSUM)
def test_the_real_files_are_those_of_the_table(name):
    paths = find_clus(name, REAL)
    if paths is None:
        pytest.skip(f"the files of {name} are not available; set HIERLEARN_DATA to their folder")
    for split, file in CLUS_SETS[name].files.items():
        assert download.mismatch(paths[split], size=file.size, sha256=file.sha256) is None


@pytest.mark.parametrize(
    ("name", "rows", "features", "levels"),
    [
        ("diatoms", {"train": 2065, "test": 1054}, 371, [85, 310, 3]),
        ("imclef07d", {"train": 10000, "test": 1006}, 80, [4, 16, 26]),
    ],
)
def test_the_facts_of_the_images(name, rows, features, levels):
    dataset = real(name)
    assert {split: len(numbers) for split, numbers in dataset.splits.items()} == rows
    assert dataset.inputs.shape == (sum(rows.values()), features)
    assert len(dataset.feature_names) == features
    assert np.bincount(dataset.hierarchy.levels)[1:].tolist() == levels
    assert dataset.hierarchy.is_tree
    assert dataset.source.endswith("SHA-256 verified.")


def test_the_facts_of_funcat():
    dataset = real("cellcycle_fun")
    assert list(dataset.splits) == ["train", "valid", "test"]
    assert dataset.inputs.shape[1] == 77
    assert len(dataset.hierarchy.names) == 499
    assert dataset.hierarchy.is_tree


def test_the_facts_of_the_gene_ontology():
    dataset = real("cellcycle_go")
    assert list(dataset.splits) == ["train", "valid", "test"]
    assert dataset.inputs.shape[1] == 77
    assert not dataset.hierarchy.is_tree
