"""OBO files: terms, is_a and part_of, obsolete terms, other stanzas, comments and modifiers."""

import re

import pytest

from hierlearn.errors import HierarchyError
from hierlearn.hierarchy import Hierarchy

ONTOLOGY = """format-version: 1.2
! a comment of the header
default-namespace: test

[Term]
id: T:1
name: whole
def: "The top [of all] is_a: nothing" []

[Term]
id: T:2 ! the second
name: part
is_a: T:1 ! whole

[Term]
id: T:3 {source="x"}
is_a: T:1 {source="T:9", note="is_a: T:4"} ! whole
relationship: part_of T:2 {all_only="true"} ! part
relationship: regulates T:4 ! no edge
relationship: part_of_nothing T:4 ! no edge
relationship: has_part T:4

[Term]
id: T:4
is_a: T:2
relationship: part_of T:2
is_a: T:3
is_obsolete: false
xref: is_a T:9

[Term]
id: T:9
is_a: T:77 ! nobody asks
is_obsolete: true

[Typedef]
id: part_of
name: part of
is_a: overlaps
is_transitive: true

[Instance]
id: i1
is_a: T:1

[Term]
id: T:10
is_a: T:1
"""


def read(folder, text, name="h.obo", **options):
    path = folder / name
    path.write_bytes(text.encode())
    return Hierarchy.read(path, **options)


def test_an_ontology(tmp_path):
    h = read(tmp_path, ONTOLOGY)
    assert h.names == ("T:1", "T:2", "T:10", "T:3", "T:4")
    assert h.named_by == "id"
    assert not h.is_tree
    assert h.parents("T:2") == h.parents("T:10") == ("T:1",)
    assert h.parents("T:3") == ("T:1", "T:2")
    assert h.parents("T:4") == ("T:2", "T:3")
    assert h.levels.tolist() == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("line_ending", ["\r\n", "\r"])
def test_line_endings_and_byte_order_marks(tmp_path, line_ending):
    text = "\ufeff" + ONTOLOGY.replace("\n", line_ending)
    assert read(tmp_path, text, "h.OBO") == read(tmp_path, ONTOLOGY)


def test_the_order_of_the_stanzas_does_not_matter(tmp_path):
    header, *stanzas = re.split(r"(?m)^(?=\[)", ONTOLOGY)
    assert read(tmp_path, header + "\n".join(stanzas[::-1])) == read(tmp_path, ONTOLOGY)


def test_a_tree_of_terms_goes_by_ids(tmp_path):
    h = read(tmp_path, "[Term]\nid: A\n[Term]\nid: B\nis_a: A")
    assert h.is_tree
    assert h.names == ("A", "B")
    assert h.index("A/B") == h.index("B")


def test_the_root_term_may_be_dropped(tmp_path):
    h = read(tmp_path, ONTOLOGY, root="T:1")
    assert h.names == ("T:2", "T:10", "T:3", "T:4")
    assert h.parents("T:3") == ("T:2",)
    assert h.root == "T:1"


def test_ids_with_the_separator(tmp_path):
    text = "[Term]\nid: http://x/A\n\n[Term]\nid: http://x/B\nis_a: http://x/A\n"
    with pytest.raises(HierarchyError, match="class name 'http://x/A' holds the separator '/'"):
        read(tmp_path, text)
    assert read(tmp_path, text, sep="|").names == ("http://x/A", "http://x/B")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[Term]\nid: A\nis_a: B ! b\n", "line 3: term 'A' has the unknown or obsolete parent 'B'"),
        ("[Term]\n\nid: A\nis_a: B\n", "line 4: term 'A' has the unknown or obsolete parent 'B'"),
        (
            "\n[Term]\nid: A\nis_obsolete: true\n\n[Term]\nid: B\nrelationship: part_of A\n",
            "line 8: term 'B' has the unknown or obsolete parent 'A'",
        ),
        ("x: y\n\n[Term]\nname: a\nis_a: B\n", "line 3: a [Term] without an id"),
        ("[Term]\nid:\n", "line 1: a [Term] without an id"),
        ("[Term]\nid: A\n\n[Term]\nid: A\n", "line 4: duplicate term 'A'"),
    ],
)
def test_bad_terms(tmp_path, text, message):
    with pytest.raises(HierarchyError, match=re.escape(f"h.obo, {message}")):
        read(tmp_path, text)


def test_cycles_and_empty_files_name_the_file(tmp_path):
    cycle = "[Term]\nid: A\nis_a: B\n\n[Term]\nid: B\nis_a: A\n"
    with pytest.raises(HierarchyError, match=re.escape("h.obo: cycle: 'A' -> 'B' -> 'A'")):
        read(tmp_path, cycle)
    with pytest.raises(HierarchyError, match=r"h\.obo: a hierarchy needs at least one class"):
        read(tmp_path, "format-version: 1.2\n\n[Typedef]\nid: part_of\n")
