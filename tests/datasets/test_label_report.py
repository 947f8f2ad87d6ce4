"""Labels that are no class: replaced, pruned, skipped or refused, and joined annotations."""

import re
import warnings

import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import read_table
from hierlearn.datasets.dataset import map_labels, prune, training_counts, without_rows
from hierlearn.datasets.labels import LabelWarning
from hierlearn.errors import DataError, LabelError

TREE = Hierarchy.from_edges(
    [("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("C", "E")], named_by="id"
).with_aliases(aliases={"old": ["B"]}, obsolete={"gone": ["E"]})
ROWS = "x,gene,part,terms\n1,g1,train,D\n2,g2,train,old;D\n3,g3,valid,zzz;E\n4,g4,train,gone;zzz\n"


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "rows.csv"
    found.write_text(ROWS)
    return found


def read(path, **options):
    given = {"label": "terms", "hierarchy": TREE, "split": "part", "id_column": "gene"}
    return read_table(path, **{**given, **options})


def test_unknown_labels_are_an_error_that_counts_them(path):
    message = (
        "rows.csv, line 4: unknown label 'zzz' (of 5 classes); 1 more unknown label, 3 occurrences "
        "in all; correct them, or pass unknown='skip'"
    )
    with pytest.raises(LabelError, match=re.escape(message)):
        read(path)
    with pytest.raises(DataError, match="unknown value of unknown 'drop'"):
        read(path, unknown="drop")


def test_unknown_labels_are_skipped_and_said(tmp_path, path):
    with pytest.warns(LabelWarning) as caught:
        found = read(path, unknown="skip")
    said = [str(one.message).removeprefix(f"{path}: ") for one in caught]
    assert said == [
        "1 old id (1 occurrence) was replaced by the classes that took their place, such as 'old' "
        "by 'B'",
        "2 unknown labels (3 occurrences) were skipped, such as 'zzz', 'gone'",
        "1 row without a label of the hierarchy is left out",
    ]
    assert found.labels == [["D"], ["B", "D"], ["E"]]
    assert found.ids == ["g1", "g2", "g3"]
    assert {name: rows.tolist() for name, rows in found.splits.items()} == {
        "train": [0, 1],
        "valid": [2],
    }
    found.label_report.write(tmp_path / "skipped.csv")
    assert (tmp_path / "skipped.csv").read_text() == (
        "label,rows,occurrences,first_line,reason\n"
        "zzz,2,2,4,unknown label 'zzz' (of 5 classes)\n"
        "gone,1,1,5,label 'gone' is an obsolete term; consider 'E'\n"
    )


def test_nothing_is_said_where_all_labels_are_classes(path):
    path.write_text("x,terms\n1,D\n2,\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_table(path, label="terms", hierarchy=TREE)
    assert found.labels == [["D"], []]  # a row that never had a label stays
    assert found.label_report.messages() == []


def test_pruned_labels_count_for_their_ancestors(path):
    path.write_text("x,terms\n1,D\n2,E\n3,B\n")
    with pytest.warns(LabelWarning, match="1 pruned label .1 occurrence. was counted for the near"):
        found = read_table(path, label="terms", hierarchy=TREE.restrict(["B", "E"]))
    assert found.labels == [["B", "C"], ["E"], ["B"]]


def test_labels_joined_by_id(path):
    path.write_text("x,gene\n1,g1\n2,g2\n3,g3\n")
    terms = {"g3": ["E"], "g1": ["B", "C"], "other": ["D"]}
    with pytest.warns(LabelWarning, match="1 row without a label of the hierarchy is left"):
        found = read_table(path, id_column="gene", hierarchy=TREE, labels_by_id=terms)
    assert found.labels == [["B", "C"], ["E"]]
    assert found.inputs.tolist() == [[1.0], [3.0]]
    with pytest.raises(DataError, match=r"none of the ids in column 'gene' is annotated: the rows"):
        read_table(path, id_column="gene", hierarchy=TREE, labels_by_id={"p": ["D"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hierarchy": TREE}, "annotations are joined by the id of each row; name id_column"),
        ({"id_column": "gene"}, "annotations need the taxonomy of their terms"),
        (
            {"hierarchy": TREE, "id_column": "gene", "label": "terms"},
            "the labels come from annotations, by id; leave out the column of labels",
        ),
    ],
)
def test_joins_that_cannot_be(path, options, message):
    with pytest.raises(DataError, match=message):
        read_table(path, labels_by_id={"g1": ["D"]}, **options)


def test_prune_by_training_rows(path):
    path.write_text("x,part,terms\n1,train,D\n2,train,D\n3,train,C\n4,valid,E\n5,train,B\n")
    dataset = read_table(path, label="terms", hierarchy=TREE, split="part")
    counts = dict(zip(TREE.names, training_counts(dataset).tolist(), strict=True))
    assert counts == {"A": 4, "B": 3, "C": 3, "D": 2, "E": 0}
    assert without_rows(dataset) == (
        "1 of 5 classes has no training row and cannot be learned; min_rows=1 leaves them out"
    )
    found = prune(dataset, 1)
    assert found.hierarchy.names == ("A", "B", "C", "D")
    assert found.labels == [["D"], ["D"], ["C"], ["C"], ["B"]]
    assert without_rows(found) == ""
    assert prune(dataset, 3).labels == [["B", "C"], ["B", "C"], ["C"], ["C"], ["B"]]
    with pytest.raises(DataError, match="no class has min_rows=9 training rows; the most frequ"):
        prune(dataset, 9)
    with pytest.raises(DataError, match="min_rows must be at least 1"):
        prune(dataset, 0)


def test_mapped_labels_name_the_most_specific_only():
    small = TREE.restrict(["B", "E"])
    assert map_labels([["D", "E"], ["D", "B"], [], ["A", "old"]], small) == [
        ["B", "E"],
        ["B", "C"],
        [],
        ["B"],
    ]
