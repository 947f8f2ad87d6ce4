"""The header of a Clus ARFF file: attributes, quoting, both forms of hierarchy, and refusals."""

import re

import pytest
from hypothesis import given

from hierlearn.errors import DataError, HierarchyError
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.formats.read import (
    Attribute,
    class_position,
    hierarchy_of,
    read_header,
    split_quoted,
    unquote,
)
from strategies import Taxonomy, taxonomies

HEADER = r"""% a comment
@RELATION 'a relation'

@ATTRIBUTE plain numeric
@attribute	tabbed	REAL
@Attribute 'single quoted' Integer
@ATTRIBUTE "double quoted" numeric [0, 1]
@ATTRIBUTE 'it\'s' {yes, no,'may, be', "or }"}
   @ATTRIBUTE class hierarchical 1,1/1,1/2,2
@DATA
1,2,3,4,yes,1/1
"""


def header(text):
    attributes, data_line = read_header("h.arff", text.split("\n"))
    return tuple(attributes), data_line


def arff(*lines, data="@data"):
    return "\n".join(["@relation r", *lines, data, "1,2"])


def read(folder, text, **options):
    path = folder / "h.arff"
    path.write_bytes(text.encode())
    return Hierarchy.read(path, **options)


def test_a_header():
    attributes, data_line = header(HEADER)
    assert data_line == 10
    assert attributes == (
        Attribute("plain", "numeric", (), 4),
        Attribute("tabbed", "numeric", (), 5),
        Attribute("single quoted", "numeric", (), 6),
        Attribute("double quoted", "numeric", (), 7),
        Attribute("it's", "nominal", ("yes", "no", "may, be", "or }"), 8),
        Attribute("class", "hierarchical", ("1", "1/1", "1/2", "2"), 9),
    )
    assert class_position(attributes, "h.arff") == 5


def test_what_follows_data_is_not_read():
    text = arff("@attribute class hierarchical a", data="@DATA  ") + "\n@attribute x nonsense\n{"
    assert len(header(text)[0]) == 1


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ("1,1/1,1/1/0,2", ("1", "2", "1/1", "1/1/0")),
        ("1/1/0, 2 ,1", ("1", "2", "1/1", "1/1/0")),  # prefixes need not be listed
        ("01,01/10,01/2,01/2,01", ("01", "01/2", "01/10")),  # Clus repeats inner classes
        ("'a b', 'a b/c, d', \"e\"", ("a b", "e", "a b/c, d")),
        (r"'it\'s','it\'s/x'", ("it's", "it's/x")),
        ("a,,b,", ("a", "b")),
        ("a/b,c/d", ("a", "c", "a/b", "c/d")),  # two parts each, but none below root
        ("a/b,b/c", ("a", "b", "a/b", "b/c")),  # as edges these would be a chain
        ("root/a/b,root/c", ("root", "root/a", "root/c", "root/a/b")),
    ],
)
def test_tree_form(tmp_path, entries, names):
    h = read(tmp_path, arff(f"@attribute class hierarchical {entries}"))
    assert h.names == names
    assert h.named_by == "path"


def test_dag_form(tmp_path):
    h = read(tmp_path, arff("@ATTRIBUTE Class HIERARCHICAL root/a,a/b,a/c,b/d,c/d,root/a,root/e"))
    assert h.names == ("a", "e", "b", "c", "d")
    assert h.parents("d") == ("b", "c")
    assert not h.is_tree
    assert h.root == "root"


def test_dag_form_of_a_tree(tmp_path):
    h = read(tmp_path, arff("@attribute class hierarchical root/a,a/b,b/c"))
    assert h == Hierarchy.from_edges([("a", "b"), ("b", "c")])


@given(taxonomies())
def test_any_taxonomy_in_both_forms(taxonomy):
    plain = Taxonomy(tuple(f"n{node}" for node in range(len(taxonomy))), taxonomy.parents)
    h = Hierarchy.from_edges([(a and a.split("/")[-1], b.split("/")[-1]) for a, b in plain.edges])
    edges = [
        f"{'root' if above < 0 else plain.names[above]}/{plain.names[node]}"
        for node, parents in enumerate(plain.parents)
        for above in parents or (-1,)
    ]
    forms = [",".join(edges)] + ([",".join(plain.ids)] if plain.is_tree else [])
    for entries in forms:
        attribute = header(arff(f"@attribute class hierarchical {entries}"))[0][0]
        assert hierarchy_of(attribute, "h.arff") == h


@pytest.mark.parametrize("line_ending", ["\r\n", "\r"])
def test_line_endings_and_byte_order_marks(tmp_path, line_ending):
    h = read(tmp_path, "\ufeff" + HEADER.replace("\n", line_ending))
    assert h.names == ("1", "2", "1/1", "1/2")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["@attribute x string"], "line 2: attribute 'x' has the type 'string'; known: numeric, "),
        (["@attribute x date yyyy"], "line 2: attribute 'x' has the type 'date yyyy'"),
        (["@attribute x"], "line 2: attribute 'x' has the type ''"),
        (["@attribute"], "line 2: expected @attribute or @data, got '@attribute'"),
        (["", "nonsense"], "line 3: expected @attribute or @data, got 'nonsense'"),
        (["@attributes x numeric"], "line 2: expected @attribute or @data"),
        (["@attribute x {a,b"], "line 2: the values of 'x' are not closed with }"),
        (["@attribute x {a,b} c"], "line 2: the values of 'x' are not closed with }"),
        (["@attribute x {a,'b}"], "line 2: a quotation mark ' is never closed"),
        (["@attribute x {a,b,a}"], "line 2: 'x' lists a value twice"),
        (["@attribute c hierarchical 'a,a/b"], "line 2: a quotation mark ' is never closed"),
        (['@attribute c hierarchical a,"a/b'], 'line 2: a quotation mark " is never closed'),
        (["@attribute 'x numeric"], "line 2: "),
        (['@attribute "x numeric'], "line 2: "),
    ],
)
def test_bad_attributes(lines, message):
    with pytest.raises(DataError, match=re.escape(f"h.arff, {message}")):
        header(arff(*lines))


def test_a_header_without_data(tmp_path):
    text = "@relation r\n@attribute class hierarchical a,b\n"
    with pytest.raises(DataError, match=r"h\.arff has no @data line; is the file cut off\?"):
        header(text)
    with pytest.raises(DataError, match=r"h\.arff has no @data line; is the file cut off\?"):
        read(tmp_path, text)


def test_exactly_one_hierarchical_attribute(tmp_path):
    message = "h.arff has no class: a Clus file needs '@attribute class hierarchical ...'"
    with pytest.raises(DataError, match=re.escape(message)):
        read(tmp_path, arff("@attribute x numeric"))
    one = "@attribute c hierarchical a,b"
    with pytest.raises(DataError, match=r"line 4: a second hierarchical attribute; one is allowed"):
        read(tmp_path, arff(one, "@attribute x numeric", "@attribute d hierarchical a"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("", "a hierarchy needs at least one class"),
        ("a//b", "'a//b' has an empty part"),
        ("root/a,a/b,b/a", "cycle: 'a' -> 'b' -> 'a'"),
        ("root/a,a/root", "makes the root 'root' a child of 'a'"),
        ("root/a,b/b", "class is its own parent: 'b' -> 'b'"),
    ],
)
def test_bad_hierarchies_name_the_line(tmp_path, entries, message):
    with pytest.raises(HierarchyError) as error:
        read(tmp_path, arff("@attribute x numeric", f"@attribute c hierarchical {entries}"))
    assert str(error.value).startswith(f"{tmp_path / 'h.arff'}, line 3: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("a'b,c'd", ["a'b", "c'd"]),  # a quote inside a word is a letter
        ('"a\\",b",c', ['"a\\",b"', "c"]),
        (" 'a' ,b", [" 'a' ", "b"]),
        ("", [""]),
        (",", ["", ""]),
        ("'a',,", ["'a'", "", ""]),
        ("a\\,'b'", ["a\\,'b'"]),
    ],
)
def test_splitting_at_commas(text, parts):
    assert split_quoted(text) == parts


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (" a ", "a"),
        ("'a b'", "a b"),
        ('"a"', "a"),
        ("'a\"", "'a\""),
        (r"'it\'s'", "it's"),
        (r"'a\\b'", r"a\b"),
        ("'", "'"),
        ("''", ""),
        ("", ""),
    ],
)
def test_unquoting(text, bare):
    assert unquote(text) == bare
