"""ICD-10-CM against the functions of the package it comes from, which we do not call ourselves."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from hierlearn.errors import DataError
from hierlearn.lab.corpora.icd10cm import load_icd10cm

pytestmark = pytest.mark.slow  # the whole table of codes is read
SPLITS = ("train", "valid", "test")


class Official(NamedTuple):
    """What the package says about one code."""

    code: str
    path: str
    description: str
    terms: list[str]


@pytest.fixture(scope="module")
def package():
    with warnings.catch_warnings():
        # The package reads its data by functions that some versions of Python deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("simple_icd_10_cm")


@pytest.fixture(scope="module")
def official(package):
    """All codes below the blocks; going down from the chapters, a name can mean one node only."""
    return [
        Official(
            code,
            f"{chapter}/{block}/{category}",
            " ".join(package.get_description(code).split()),
            [" ".join(term.split()) for term in package.get_inclusion_term(code)],
        )
        for chapter in filter(package.is_chapter, package.get_all_codes())
        for block in package.get_children(chapter)
        for category in package.get_children(block, prioritize_blocks=True)
        for code in [category, *package.get_descendants(category)]
    ]


@pytest.fixture(scope="module")
def full():
    return load_icd10cm()


@pytest.fixture(scope="module")
def other():
    return load_icd10cm(seed=7)


@pytest.fixture(scope="module")
def small():
    return load_icd10cm("small")


def rows_of(dataset, split):
    return [(dataset.inputs[row], dataset.labels[row][0]) for row in dataset.splits[split]]


def described(dataset):
    """How many rows are descriptions; they come first."""
    return len(dataset) - len(dataset.splits["test"])


# --- what it holds ---


def test_titles_are_the_official_descriptions(full, small, package):
    for chapter in filter(package.is_chapter, package.get_all_codes()):
        assert full.hierarchy.title(chapter) == package.get_description(chapter)
        for block in package.get_children(chapter):
            for category in package.get_children(block, prioritize_blocks=True):
                title = full.hierarchy.title(f"{chapter}/{block}/{category}")
                assert title == " ".join(package.get_description(category).split())
    blocks = [name for name in full.hierarchy.names if name.count("/") == 1]
    for name in blocks:
        span = name.rpartition("/")[2]
        said = package.get_description(span, prioritize_blocks=True)
        assert said.split() == [*full.hierarchy.title(name).split(), f"({span})"]
    assert full.hierarchy.title("1/A00-A09/A00") == "Cholera"
    assert None not in full.hierarchy.titles
    assert small.hierarchy.titles == tuple(full.hierarchy.title(c) for c in small.hierarchy.names)


def test_every_code_has_its_official_description_and_category(full, official):
    count = described(full)
    assert full.inputs[:count] == [code.description for code in official]
    assert full.labels[:count] == [[code.path] for code in official]


def test_every_inclusion_term_that_is_no_description_is_a_test_row(full, official):
    descriptions = {code.description for code in official}
    expected = [(t, code.path) for code in official for t in code.terms if t not in descriptions]
    assert rows_of(full, "test") == expected
    assert len(expected) == sum(len(code.terms) for code in official) - 5


def test_the_documented_counts(full, small, package, official):
    assert Counter(full.hierarchy.levels.tolist()) == {1: 22, 2: 285, 3: 1918}
    assert Counter(small.hierarchy.levels.tolist()) == {1: 5, 2: 52, 3: 365}
    assert [len(full.splits[split]) for split in SPLITS] == [88_377, 9_809, 12_564]
    assert [len(small.splits[split]) for split in SPLITS] == [5_599, 619, 3_271]
    chapters = [name for name in package.get_all_codes() if package.is_chapter(name)]
    blocks = [block for chapter in chapters for block in package.get_children(chapter)]
    empty = [block for block in blocks if package.is_leaf(block, prioritize_blocks=True)]
    assert (len(chapters), len(blocks), len(empty)) == (22, 297, 12)
    assert len(official) + len(chapters) + len(blocks) == len(package.get_all_codes())
    of_blocks = [package.get_inclusion_term(block, prioritize_blocks=True) for block in blocks]
    assert sum(map(len, of_blocks)) == 5
    texts = Counter(text.casefold() for text, _ in rows_of(full, "test"))
    assert sum(times > 1 for times in texts.values()) == 28


def test_the_classes_are_the_paths_and_what_lies_above_them(full, official):
    paths = {code.path for code in official}
    blocks = {path.rpartition("/")[0] for path in paths}
    chapters = {path.partition("/")[0] for path in paths}
    assert set(full.hierarchy.names) == paths | blocks | chapters


def test_a_block_and_its_category_of_the_same_name_are_two_classes(full):
    names = set(full.hierarchy.names)
    same = [name for name in names if name.count("/") == 2 and len(set(name.split("/")[1:])) == 1]
    assert len(same) == 39
    assert {name.rpartition("/")[0] for name in same} < names
    assert "2/C50/C50" in same


@pytest.mark.parametrize(
    ("split", "text", "label"),
    [
        ("test", "Classical cholera", "1/A00-A09/A00"),
        ("train", "Cholera", "1/A00-A09/A00"),
        ("train", "Malignant neoplasm of breast", "2/C50/C50"),
        ("train", "Unspecified multiple injuries, initial encounter", "19/T07/T07"),
    ],
)
def test_known_rows(full, split, text, label):
    assert (text, label) in rows_of(full, split)


def test_every_row_has_one_label_a_category_and_a_text_on_one_line(full, small):
    for dataset in (full, small):
        leaves = {name for name in dataset.hierarchy.names if name.count("/") == 2}
        assert all(len(labels) == 1 and labels[0] in leaves for labels in dataset.labels)
        assert all(text and text == " ".join(text.split()) for text in dataset.inputs)


def test_it_says_what_it_is(full, small):
    assert (full.name, small.name) == ("icd10cm", "icd10cm-small")
    assert "simple-icd-10-cm" in full.source
    assert full.is_text


# --- the splits ---


def test_the_splits_part_the_rows(full, small):
    for dataset in (full, small):
        together = np.concatenate([dataset.splits[split] for split in SPLITS])
        assert sorted(together.tolist()) == list(range(len(dataset)))
        assert all(dataset.splits[split].dtype == np.int64 for split in SPLITS)


def test_no_subcategory_is_on_both_sides(full, other, official):
    group = [code.code[:5] for code in official]
    for dataset in (full, other):
        sides = [{group[row] for row in dataset.splits[split]} for split in ("train", "valid")]
        assert not sides[0] & sides[1]


def test_no_text_is_in_two_splits(full, small):
    for dataset in (full, small):
        train, valid, test = (
            {text.casefold() for text, _ in rows_of(dataset, split)} for split in SPLITS
        )
        assert not train & valid
        assert not (train | valid) & test


def test_about_a_tenth_of_each_chapter_validates(full):
    rows = Counter(label[0].partition("/")[0] for label in full.labels[: described(full)])
    valid = Counter(label.partition("/")[0] for _, label in rows_of(full, "valid"))
    for chapter, count in rows.items():
        assert valid[chapter] <= 0.1 * count
        # The last chapter has 5 rows, of which none can be spared.
        assert valid[chapter] >= 0.09 * count or count < 10


def test_every_category_trains_with_its_own_description_and_a_subcategory(full, official):
    train = set(full.splits["train"].tolist())
    subcategories = {code.path for code in official if "." in code.code}
    training = {code.path for row, code in enumerate(official) if row in train and "." in code.code}
    assert training == subcategories
    assert all(row in train for row, code in enumerate(official) if "." not in code.code)


def test_the_seed_decides_and_nothing_else_does(full, other, small):
    again = load_icd10cm("small", seed=0)
    assert (small.inputs, small.labels) == (again.inputs, again.labels)
    for split in SPLITS:
        np.testing.assert_array_equal(small.splits[split], again.splits[split])
    assert (full.inputs, full.labels) == (other.inputs, other.labels)
    assert set(full.splits["valid"].tolist()) != set(other.splits["valid"].tolist())


def test_neither_the_hash_seed_nor_the_import_matters(small):
    """A fresh interpreter with another hash seed draws the same rows and imports no package."""
    program = (
        "import sys; from hierlearn.lab.corpora.icd10cm import load_icd10cm; "
        "rows = load_icd10cm('small').splits['valid'].tolist(); "
        "assert 'simple_icd_10_cm' not in sys.modules; print(rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(small.splits["valid"].tolist())


# --- the small size ---


def test_small_is_a_part_of_full(full, small):
    for split in SPLITS:
        chapters = {name for name in small.hierarchy.names if "/" not in name}
        expected = [row for row in rows_of(full, split) if row[1].partition("/")[0] in chapters]
        assert rows_of(small, split) == expected
    assert set(small.hierarchy.names) < set(full.hierarchy.names)


def test_the_classes_of_small_all_occur(small):
    used = {labels[0] for labels in small.labels}
    used |= {path.rpartition("/")[0] for path in used} | {path.partition("/")[0] for path in used}
    assert set(small.hierarchy.names) == used


# --- what it refuses ---


def test_an_unknown_size_is_refused():
    with pytest.raises(DataError, match=r"unknown size of icd10cm 'smal'; did you mean 'small'"):
        load_icd10cm("smal")


def test_a_missing_package_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="needs simple-icd-10-cm; install it with: pip install"):
        load_icd10cm()


def install(folder, monkeypatch, files):
    """Put a package with other data files in front of the real one."""
    data = folder / "simple_icd_10_cm" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    for name, text in files.items():
        (data / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "simple_icd_10_cm", raising=False)


def test_the_nearest_definition_of_seventh_characters_holds(tmp_path, monkeypatch):
    """The real list has no code that could take the characters of two definitions."""
    tabular = """<t><chapter><name>1</name><section id="A00-A09"><diag>
      <name>A00</name><desc>Cholera</desc>
      <sevenChrDef><extension char="A">first</extension></sevenChrDef>
      <diag><name>A00.0</name><desc>mild</desc></diag>
      <diag><name>A00.1</name><desc>severe</desc>
        <sevenChrDef><extension char="D">later</extension><note>or last</note></sevenChrDef></diag>
    </diag></section></chapter></t>"""
    listed = "A000XXA\nA000XXD\nA001XXA\nA001XXD listed\n"
    install(tmp_path, monkeypatch, {"a.xml": tabular, "a.txt": listed})
    texts = ["Cholera", "mild", "mild, first", "severe", "severe, later/or last"]
    assert load_icd10cm().inputs == texts


CATEGORY = "<diag><name>A00</name><desc>Cholera</desc></diag>"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, r"holds 0 files \*\.xml"),
        ({"a.xml": "<t/>", "b.xml": "<t/>"}, r"holds 2 files \*\.xml"),
        ({"a.xml": "<t/>"}, r"holds 0 files \*\.txt"),
        ({"a.xml": "<t>", "a.txt": ""}, "the tabular list is not XML: no element found"),
        ({"a.xml": "<t/>", "a.txt": ""}, "it lists no codes"),
        (
            {"a.xml": f"<t><chapter><name>1</name>{CATEGORY}</chapter></t>", "a.txt": ""},
            "chapter 1 does not hold its categories in one level of blocks",
        ),
        (
            {
                "a.xml": "<t><chapter><name>1</name><section id='A'><section id='B'>"
                f"{CATEGORY}</section></section></chapter></t>",
                "a.txt": "",
            },
            "chapter 1 does not hold its categories in one level of blocks",
        ),
        (
            {
                "a.xml": "<t><chapter><name>1</name><section id='A'>"
                "<diag><name>A00</name></diag></section></chapter></t>",
                "a.txt": "",
            },
            "a <diag> of the tabular list has no <desc>",
        ),
    ],
)
def test_another_layout_of_the_package_is_refused(tmp_path, monkeypatch, files, reason):
    install(tmp_path, monkeypatch, files)
    with pytest.raises(DataError, match=rf"simple-icd-10-cm .* is not laid out .*{reason}"):
        load_icd10cm()
