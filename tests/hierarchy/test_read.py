"""Every file format that the reader knows, and the shapes that one format may take."""

import csv
import io
import json

import pytest
from hypothesis import given, settings

from hierlearn.hierarchy import Hierarchy
from strategies import NAMES, dags, trees

PATHS = ["animal/dog/pug", "animal/dog/bulldog", "animal/cat", "plant/oak"]
NAMED = {
    "name": "animal",
    "children": [{"name": "dog", "children": [{"name": "pug"}, "bulldog"]}, {"name": "cat"}],
}
PARENTS = {
    "animal": None,
    "plant": None,
    "dog": "animal",
    "cat": "animal",
    "pug": "dog",
    "bulldog": "dog",
    "oak": "plant",
}
EDGES = [[above, below] for below, above in PARENTS.items()]

# Each text spells out the small tree of the fixtures.
FILES = {
    "nested.json": json.dumps(
        {"animal": {"dog": ["pug", "bulldog"], "cat": {}}, "plant": {"oak": None}}
    ),
    "list.json": json.dumps([{"animal": [{"dog": ["pug", "bulldog"]}, "cat"]}, {"plant": "oak"}]),
    "named.json": json.dumps([NAMED, {"name": "plant", "children": ["oak"]}]),
    "parents.json": json.dumps(PARENTS),
    "edges.json": json.dumps(EDGES),
    "records.json": json.dumps([{"parent": a, "child": b, "weight": 1} for a, b in EDGES]),
    "paths.json": json.dumps(PATHS),
    "indented.JSON": json.dumps(PARENTS, indent=2) + "\n\n",
    "edges.csv": "parent,child\n" + "".join(f"{a or ''},{b}\n" for a, b in EDGES),
    "swapped.csv": "note,Child,PARENT\n" + "".join(f"x,{b},{a or ''}\n" for a, b in EDGES),
    "paths.csv": "path\n" + "\n".join(PATHS) + "\n",
    "levels.csv": (
        "kingdom,species,breed\nanimal,dog,pug\nanimal,dog,bulldog\n"
        "animal,cat,\nanimal,dog,pug\n\n,,\nplant,oak,\n"
    ),
    "quoted.csv": '"kingdom","species","breed"\n"animal","dog","pug"\n'
    'animal,"dog",bulldog\n"animal", cat ,""\nplant,oak,\n',
    "edges.tsv": "parent\tchild\n" + "".join(f"{a or ''}\t{b}\n" for a, b in EDGES),
    "levels.TSV": "a\tb\tc\nanimal\tdog\tpug\nanimal\tdog\tbulldog\nanimal\tcat\t\nplant\toak\t\n",
    "paths.txt": "# the kingdoms\n\n" + "\n".join(PATHS) + "\n   \n  # done\n",
    "list.paths": "  " + "  \n\t".join(PATHS),
    "clus.arff": (
        "@RELATION r\n@ATTRIBUTE x numeric\n@ATTRIBUTE class hierarchical "
        "animal,animal/dog,animal/cat,animal/dog/pug,animal/dog/bulldog,plant,plant/oak\n"
        "@DATA\n1,animal/cat\n"
    ),
}


def read(folder, name, text, **options):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Hierarchy.read(path, **options)


@pytest.mark.parametrize("name", FILES)
def test_every_format_spells_one_tree(tmp_path, small_tree, name):
    assert read(tmp_path, name, FILES[name]) == small_tree
    assert Hierarchy.read(str(tmp_path / name)) == small_tree


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("line_ending", ["\r\n", "\r"])
def test_line_endings_and_byte_order_marks(tmp_path, small_tree, name, line_ending):
    text = FILES[name].replace("\n", line_ending)
    assert read(tmp_path, name, text) == small_tree
    assert read(tmp_path, name, "\ufeff" + text) == small_tree


def test_what_to_json_writes(tmp_path, small_tree, diamond):
    for h in (small_tree, diamond, Hierarchy.from_paths(["ä.漢"], sep=".")):
        again = read(tmp_path, "h.json", h.to_json())
        assert again == h
        assert (again.sep, again.root, again.named_by) == (h.sep, h.root, h.named_by)


PLAIN = NAMES.filter(lambda name: name == name.strip())


def as_csv(rows):
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


@settings(max_examples=30)
@given(taxonomy=trees(names=PLAIN))
def test_any_tree_through_files(tmp_path_factory, taxonomy):
    folder = tmp_path_factory.mktemp("files")
    ids = taxonomy.ids
    h = Hierarchy.from_paths(ids)
    width = h.depth
    rows = [path.split("/") for path in ids]
    levels = as_csv(
        [[f"level {n}" for n in range(width)], *(r + [""] * (width - len(r)) for r in rows)]
    )
    assert read(folder, "h.csv", levels, form="levels") == h
    assert read(folder, "h.csv", as_csv([["parent", "child"], *taxonomy.edges])) == h
    assert read(folder, "h.csv", as_csv([["path"], *([path] for path in ids)])) == h
    assert read(folder, "h.json", json.dumps(ids)) == h
    assert read(folder, "h.json", json.dumps(taxonomy.edges, ensure_ascii=False)) == h
    assert read(folder, "h.txt", "\n".join(ids)) == h


@settings(max_examples=30)
@given(taxonomy=dags(names=PLAIN))
def test_any_dag_through_files(tmp_path_factory, taxonomy):
    folder = tmp_path_factory.mktemp("files")
    h, _ = taxonomy.build()
    parents = {name: [] for name in taxonomy.names}
    for above, below in taxonomy.edges:
        if above is not None:
            parents[below].append(above)
    assert read(folder, "h.csv", as_csv([["parent", "child"], *taxonomy.edges])) == h
    assert read(folder, "h.json", json.dumps(taxonomy.edges)) == h
    assert read(folder, "h.json", json.dumps(parents), form="parents") == h
    assert read(folder, "h.json", h.to_json()) == h


def test_one_named_node_at_the_top_of_json(tmp_path):
    h = read(tmp_path, "h.json", json.dumps(NAMED))
    assert h == Hierarchy.from_paths(PATHS[:3])
    assert read(tmp_path, "h.json", '{"name": "alone"}').names == ("alone",)


def test_form_settles_what_the_extension_leaves_open(tmp_path):
    lists = json.dumps({"a": ["b"], "b": ["c"], "c": []})
    assert read(tmp_path, "h.json", lists, form="parents").names == ("c", "c/b", "c/b/a")
    children = json.dumps({"a": ["b", "c"], "d": []})
    assert read(tmp_path, "h.json", children, form="nested").names == ("a", "d", "a/b", "a/c")
    pairs = json.dumps([["a", "b"], ["c", "d"]])
    assert read(tmp_path, "h.json", pairs).names == ("a", "c", "a/b", "c/d")
    table = "parent,child\nx,y\nx,z\n"
    assert read(tmp_path, "h.csv", table).names == ("x", "x/y", "x/z")
    assert read(tmp_path, "h.csv", table, form="edges") == read(tmp_path, "h.csv", table)
    assert read(tmp_path, "h.csv", table, form="parents") == read(tmp_path, "h.csv", table)
    assert read(tmp_path, "h.csv", table, form="levels") == read(tmp_path, "h.csv", table)
    column = "path\na/b\nc\n"
    assert read(tmp_path, "h.csv", column, form="paths").names == ("a", "c", "a/b")
    assert read(tmp_path, "h.csv", "label\na/b\n", form="paths").names == ("a", "a/b")
    assert read(tmp_path, "h.csv", "label\na\nb\n").names == ("a", "b")


def test_dags_in_tables_and_json(tmp_path, diamond):
    edges = [["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"]]
    table = "parent,child\n" + "\n".join(map(",".join, edges))
    assert read(tmp_path, "h.csv", table) == diamond
    assert read(tmp_path, "h.tsv", table.replace(",", "\t")) == diamond
    assert read(tmp_path, "h.json", json.dumps(edges)) == diamond
    parents = {"a": None, "b": "a", "c": ["a"], "d": ["b", "c"]}
    assert read(tmp_path, "h.json", json.dumps(parents)) == diamond


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.csv", "parent,child\ntop,a\na,b\n"),
        ("h.csv", "parent,child\ntop,a\ntop,c\na,b\n"),
        ("h.tsv", "parent\tchild\ntop\ta\na\tb\n"),
        ("h.json", '[["top", "a"], ["a", "b"]]'),
        ("h.json", '[{"parent": "top", "child": "a"}, {"parent": "a", "child": "b"}]'),
        ("h.json", '{"a": "top", "b": "a"}'),
        ("h.json", '{"top": null, "a": "top", "b": "a"}'),
        ("h.obo", "[Term]\nid: top\n\n[Term]\nid: a\nis_a: top\n\n[Term]\nid: b\nis_a: a\n"),
        ("h.obo", "[Term]\nid: a\nis_a: top\n\n[Term]\nid: b\nis_a: a\n"),
    ],
)
def test_root(tmp_path, name, text):
    h = read(tmp_path, name, text, root="top")
    assert "top" not in h.names
    assert h.ancestors("b") == ("a",)
    assert h.root == "top"
    assert h.draw().startswith("top  ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.txt", "a/1.b\na/1.c.d\n"),
        ("h.csv", "path\na/1.b\na/1.c.d\n"),
        ("h.csv", "x,y,z\na/1,b,\na/1,c,d\n"),
        ("h.csv", "parent,child\na/1,b\na/1,c\nc,d\n"),
        ("h.csv", "parent,child\na/1,a/1.b\na/1,a/1.c\na/1.c,a/1.c.d\n"),
        ("h.json", '["a/1.b", "a/1.c.d"]'),
        ("h.json", '{"a/1": {"b": {}, "c": ["d"]}}'),
        ("h.json", '{"a/1": null, "b": "a/1", "c": "a/1", "d": "c"}'),
        ("h.json", '[["a/1", "b"], ["a/1", "c"], ["c", "d"]]'),
        ("h.arff", "@attribute class hierarchical a/1.b,a/1.c.d\n@data\n"),
    ],
)
def test_other_separators(tmp_path, name, text):
    h = read(tmp_path, name, text, sep=".")
    assert h.names == ("a/1", "a/1.b", "a/1.c", "a/1.c.d")
    assert h.sep == "."


def test_cells_with_commas_quotes_and_line_breaks(tmp_path):
    text = 'a,b\n"x, y","say ""hi"""\n"x, y",z\n'
    assert read(tmp_path, "h.csv", text).names == ("x, y", 'x, y/say "hi"', "x, y/z")
