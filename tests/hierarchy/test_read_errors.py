"""Files that cannot be read: each error is one sentence that names the file and the place."""

import json
import re

import pytest

from hierlearn.errors import DataError, HierarchyError, HierlearnError
from hierlearn.hierarchy import Hierarchy

FORMATS = ["json", "csv", "tsv", "txt", "paths", "arff", "obo"]


def refused(folder, name, text, message, error=HierarchyError, **options):
    """The reader refuses the file in one line that begins with its path."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error) as caught:
        Hierarchy.read(path, **options)
    said = str(caught.value)
    assert type(caught.value) is error
    assert said.startswith(str(path))
    assert said.count(str(path)) == 1
    assert "\n" not in said
    assert message in said


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("content", ["", "\n \n\t", "\ufeff", "\ufeff\r\n"])
def test_empty_files(tmp_path, extension, content):
    refused(tmp_path, f"h.{extension}", content, "is empty", DataError)


@pytest.mark.parametrize("extension", FORMATS)
def test_missing_files_and_folders(tmp_path, extension):
    path = tmp_path / f"h.{extension}"
    with pytest.raises(DataError, match=re.escape(f"{path}: no such file")):
        Hierarchy.read(path)
    path.mkdir()
    with pytest.raises(DataError, match=re.escape(f"{path} is a folder, not a file")):
        Hierarchy.read(path)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize(
    ("raw", "line", "byte"),
    [(b"a\nb\xe4\n", 2, "0xe4"), (b"\xffa", 1, "0xff"), (b"a\r\n\r\nb\x80", 3, "0x80")],
)
def test_bytes_that_are_not_utf8(tmp_path, extension, raw, line, byte):
    message = f"h.{extension}, line {line}: byte {byte} is not UTF-8; convert the file"
    refused(tmp_path, f"h.{extension}", raw, message, DataError)


@pytest.mark.parametrize("extension", FORMATS)
def test_utf_16_is_named(tmp_path, extension):
    message = f"h.{extension} is not UTF-8: it looks like UTF-16; convert it"
    refused(tmp_path, f"h.{extension}", "a/b\n".encode("utf-16"), message, DataError)


@pytest.mark.parametrize(
    ("name", "ending"), [("h", ""), ("h.xml", ".xml"), ("h.xml.gz", ".gz"), ("json", "")]
)
def test_unknown_extensions(tmp_path, name, ending):
    message = (
        f"the extension {ending!r} names no known format; "
        "use one of .json, .csv, .tsv, .txt, .paths, .arff, .obo, .ttl"
    )
    refused(tmp_path, name, "a/b", message)


def test_unknown_forms(tmp_path):
    path = tmp_path / "h.json"
    path.write_text("[]")
    message = (
        "unknown form 'edge'; did you mean 'edges'? known: edges, levels, nested, parents, paths"
    )
    with pytest.raises(HierarchyError, match=re.escape(message)):
        Hierarchy.read(path, form="edge")
    with pytest.raises(HierarchyError, match="unknown form 'x'; known: edges, levels"):
        Hierarchy.read(path, form="x")


@pytest.mark.parametrize(
    ("extension", "form"),
    [("txt", "edges"), ("paths", "nested"), ("arff", "levels"), ("obo", "edges")],
)
def test_forms_that_an_extension_rules_out(tmp_path, extension, form):
    texts = {"arff": "@attribute c hierarchical a,b\n@data\n", "obo": "[Term]\nid: a\n"}
    refused(tmp_path, f"h.{extension}", texts.get(extension, "a\nb\n"), f"{form!r}", form=form)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": [\n"b",,]}', "h.json, line 2: not JSON: "),
        ('{"format": "hierlearn.hierarchy", "na', "h.json, line 1: not JSON: "),
        ("animal/dog", "h.json, line 1: not JSON: "),
        ("5", "the JSON is 5, not an object or a list"),
        ('"a/b"', "the JSON is 'a/b', not an object or a list"),
        ("null", "the JSON is None, not an object or a list"),
        ("[]", "a hierarchy needs at least one class"),
        ("{}", "a hierarchy needs at least one class"),
        ('{"a": {"b": {}, "b": {}}}', "duplicate path: the key 'b' occurs twice in one object"),
        ('["a", "a"]', "duplicate path 'a': entries 0 and 1"),
        ('[["a", "b"], ["a", "b"]]', "duplicate edge 'a' -> 'b': entries 0 and 1"),
        ('{"a": "b", "b": "a"}', "cycle: 'a' -> 'b' -> 'a'; remove one of these edges"),
        ('{"a": "z"}', "class 'a' has the unknown parent 'z'"),
        ('{"a": {"b": 5}}', "under 'a/b': 5 (int) is neither a name nor a dict or list"),
        ('[["a", 1.5]]', "a class name is text, not 1.5 (float)"),
        ('{"format": "hierlearn.hierarchy"}', "hierarchy version None is not 1"),
        (
            '{"format": "hierlearn.hierarchy", "version": 1}',
            "the JSON of a hierarchy is damaged: 'names'",
        ),
    ],
)
def test_json(tmp_path, text, message):
    if "damaged" in message:  # whichever part is missed first
        message = "the JSON of a hierarchy is damaged: "
    refused(tmp_path, "h.json", text, message)


@pytest.mark.parametrize("text", ['{"a": ["b"], "b": []}', '{"a": ["b"], "c": null}'])
def test_an_object_of_lists_could_be_two_things(tmp_path, text):
    message = (
        "an object of lists could list children or parents; "
        "say which with form='nested' or form='parents'"
    )
    refused(tmp_path, "h.json", text, message)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('["a"]', "parents"),
        ('{"a": "b"}', "edges"),
        ('{"a/b": null}', "paths"),
        ('"a"', "parents"),
        ("5", "edges"),
        ("5", "paths"),
    ],
)
def test_json_of_another_form(tmp_path, text, form):
    kind = type(json.loads(text)).__name__
    message = f"the JSON is a {kind}, which is not of the form {form!r}"
    refused(tmp_path, "h.json", text, message, form=form)


@pytest.mark.parametrize("text", ["[1, 2]", '["ab"]', '[["a"]]', "[null]"])
def test_json_edges_that_are_no_pairs(tmp_path, text):
    refused(tmp_path, "h.json", text, "an edge is (parent, child)", form="edges")


@pytest.mark.parametrize(
    ("text", "message", "error"),
    [
        ("a,b\nx,y\nx\n", "h.csv, line 3: 1 cell, but the header has 2", DataError),
        ("a,b\nx,y,z\n", "h.csv, line 2: 3 cells, but the header has 2", DataError),
        ('a,b\nx,"y\n', "h.csv, line 2: unexpected end of data", DataError),
        ('a,b\n"x"y,z\n', "h.csv, line 2: ',' expected after '\"'", DataError),
        ("a,b\n", "a hierarchy needs at least one class", HierarchyError),
        ("path\n", "a hierarchy needs at least one class", HierarchyError),
        ("parent,child\n", "a hierarchy needs at least one class", HierarchyError),
        ("a,b\nx,y/z\n", "line 2: class name 'y/z' holds the separator '/'", HierarchyError),
        ("path\na//b\n", "has an empty part; write a/b/c", HierarchyError),
        ("path\na\nb\na\n", "duplicate path 'a'", HierarchyError),
        ("parent,child\na,b\na,b\n", "duplicate edge 'a' -> 'b'", HierarchyError),
        ("parent,child\na,\n", "its child is empty", HierarchyError),
        ("parent,child\nx,a\na,b\nb,a\n", "cycle: 'a' -> 'b' -> 'a'", HierarchyError),
        ("parent,child\na,a\n", "class is its own parent: 'a' -> 'a'", HierarchyError),
    ],
)
def test_tables(tmp_path, text, message, error):
    refused(tmp_path, "h.csv", text, message, error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("path\n\na\nb//c\n", 4),
        ("path\na\nb\na\n", 4),
        ("parent,child\na,b\nb,c\na,b\n", 4),
        ("parent,child\na,b\nb,\n", 3),
    ],
)
def test_tables_name_the_line(tmp_path, text, line):
    refused(tmp_path, "h.csv", text, f"h.csv, line {line}: ")


def test_blank_rows_of_a_table_are_skipped(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text("a,b\nx,y\n , \n\n,\n")
    assert Hierarchy.read(path).names == ("x", "x/y")


def test_tables_of_another_form(tmp_path):
    message = "a .csv file cannot have the form 'nested'; use edges, parents, paths, levels"
    refused(tmp_path, "h.csv", "a,b\nx,y\n", message, form="nested")
    message = "edges need the columns 'parent' and 'child'; found ['a', 'b']"
    refused(tmp_path, "h.csv", "a,b\nx,y\n", message, form="edges")
    refused(tmp_path, "h.csv", "a,b\nx,y\n", message, form="parents")


def test_paths(tmp_path):
    text = "# one\na/b\n\nc\n a/b \n"
    message = "h.txt, line 5: duplicate path 'a/b': lines 2 and 5; list it once"
    refused(tmp_path, "h.txt", text, message)
    refused(tmp_path, "h.txt", "a\nb//c\n", "has an empty part; write a/b/c")
    refused(tmp_path, "h.paths", "# nothing\n#\n", "a hierarchy needs at least one class")


def test_a_line_number_for_a_bad_path(tmp_path):
    refused(tmp_path, "h.txt", "# one\n\na/b\na//c\n", "h.txt, line 4: ")


def test_every_error_is_of_the_library():
    for error in (DataError, HierarchyError):
        assert issubclass(error, HierlearnError)
        assert issubclass(error, ValueError)
