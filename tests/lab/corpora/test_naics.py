"""NAICS out of a small tarball of the same layout, and out of the real one where it is there."""

import json

import pytest

from archive_files import check_splits, needs, pin, write_tgz
from hierlearn import DATASETS, load_dataset
from hierlearn.errors import DataError
from hierlearn.lab.corpora import naics

BAKING = (
    "This industry comprises  bakeries.\r\n\r\nIllustrative Examples:\r\n\r\nBread shops\r\n"
    "Pie shops\r\n\r\n\r\nCross-References. Establishments primarily engaged in--\r\nFarming"
)


def table():
    industries = {
        "31-33": {"Title": "ManufacturingT", "Description": "All of it"},
        "11": {"Title": "FarmingT", "Description": "All of it"},
        "311": {"Title": "Food ManufacturingT ", "Description": ""},
        "111": {"Title": "Crops", "Description": ""},
        "3118": {"Title": "BakeriesT", "Description": ""},
        "1111": {"Title": "Oilseed", "Description": ""},
        "31181": {"Title": "Bread", "Description": "See industry description for 311811."},
        "311811": {"Title": "Retail Bakeries", "Description": BAKING},
        "111110": {"Title": "Soybean FarmingT", "Description": None},
    }
    for number in range(20):
        text = f"Makes goods number {number}.\r\n\r\nCross-References."
        industries[f"3118{number + 20}"] = {"Title": f"Goods (of {number})T", "Description": text}
    industries["311830"]["Title"] = "GOODS, of 5"
    return industries


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = write_tgz(tmp_path / naics.ARCHIVE.name, {naics.MEMBER: json.dumps(table())})
    monkeypatch.setattr(naics, "ARCHIVE", pin(naics.ARCHIVE, path))
    return tmp_path


def test_title_definition_and_examples_are_rows(folder):
    dataset = load_dataset("naics", data_dir=folder)
    rows = list(zip(dataset.ids, dataset.inputs, dataset.labels, strict=True))
    assert rows[:5] == [
        ("111110:0", "Soybean Farming", ["11/111/1111"]),
        ("311811:0", "Retail Bakeries", ["31-33/311/3118"]),
        ("311811:1", "This industry comprises bakeries.", ["31-33/311/3118"]),
        ("311811:2", "Bread shops", ["31-33/311/3118"]),
        ("311811:3", "Pie shops", ["31-33/311/3118"]),
    ]
    assert dataset.inputs[5:7] == ["Goods (of 0)", "Makes goods number 0."]
    assert dataset.hierarchy.level_sizes == (2, 2, 2)


def test_industries_and_equal_texts_stay_together(folder):
    for seed in range(4):
        dataset = load_dataset("naics", data_dir=folder, seed=seed)
        industries = [name.partition(":")[0] for name in dataset.ids]
        assert industries.count("311830") == 2
        # The title of 311830 is that of 311825, but for capitals and punctuation.
        check_splits(dataset, [(one.replace("311830", "311825"),) for one in industries])
        assert len(dataset.splits["test"]) == len(dataset.splits["valid"]) == 4


def test_titles_of_the_classes(folder):
    names = load_dataset("naics", data_dir=folder).hierarchy.names
    titles = naics.read_titles(table(), names)
    assert titles.keys() == set(names)
    assert titles["31-33"] == "Manufacturing"
    assert titles["31-33/311"] == "Food Manufacturing"


def test_another_table(tmp_path, monkeypatch):
    path = write_tgz(tmp_path / naics.ARCHIVE.name, {naics.MEMBER: "[1]"})
    monkeypatch.setattr(naics, "ARCHIVE", pin(naics.ARCHIVE, path))
    with pytest.raises(DataError, match="holds no table of industries"):
        load_dataset("naics", data_dir=tmp_path)


def test_the_facts_of_the_real_file():
    needs(naics.ARCHIVE)
    dataset = DATASETS["naics"](download=False)
    assert dataset.hierarchy.level_sizes == (20, 99, 311)
    assert {name: len(own) for name, own in dataset.splits.items()} == {
        "train": 3_302,
        "valid": 411,
        "test": 411,
    }
    industries = [name.partition(":")[0] for name in dataset.ids]
    assert len(set(industries)) == 1_057
    check_splits(
        dataset, list(zip(industries, (text.lower() for text in dataset.inputs), strict=True))
    )
    assert not [text for text in dataset.inputs if "Cross-References" in text]
