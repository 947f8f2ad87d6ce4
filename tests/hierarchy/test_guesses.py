"""Input that could mean two things raises and is never guessed."""

import re

import pytest
import torch

from hierlearn.errors import HierarchyError, HierlearnError, LabelError
from hierlearn.hierarchy import Hierarchy


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "h.csv",
            "id,parent\nanimal,\ndog,animal\n",
            "edges need both columns, 'parent' and 'child'",
        ),
        ("h.csv", ",level\n0,a\n", "h.csv, line 1: column 1 has no name; name it or drop it"),
        ("h.csv", "parent,child\n,dog\nanimal,dog\n", "class 'dog' stands at the top and below"),
        ("h.json", '[["animal", "dog", "pug"]]', "a list inside a list"),
        (
            "h.json",
            '{"name": "flare", "children": [{"name": "a", "id": "x"}]}',
            "the object of 'a' has keys other than name, title, children: 'id'",
        ),
        ("h.json", '{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
    ],
)
def test_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(HierarchyError, match=re.escape(message)):
        Hierarchy.read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.json", '{"a": {"b": {}}}'),
        ("h.json", '["a/b"]'),
        ("h.csv", "x,y\na,b\n"),
        ("h.txt", "a/b\n"),
        ("h.arff", "@attribute c hierarchical a,a/b\n@data\n"),
    ],
)
def test_a_root_is_refused_where_no_node_can_be_it(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(HierarchyError, match="root= names a node of edges"):
        Hierarchy.read(tmp_path / name, root="a")


def test_what_to_json_wrote_needs_no_form_and_no_root(tmp_path):
    path = tmp_path / "h.json"
    path.write_text(Hierarchy.from_paths(["a/b"]).to_json())
    for options in ({"root": "a"}, {"form": "nested"}):
        with pytest.raises(HierarchyError, match="needs no form and no root"):
            Hierarchy.read(path, **options)


def test_a_string_is_not_a_list_of_classes():
    h = Hierarchy.from_paths(["a", "b", "ab"])
    for ask in (h.closure, h.restrict):
        with pytest.raises(LabelError, match="pass a list of classes, not the string 'ab'"):
            ask("ab")
        assert ask(["ab"])


def test_nan_propagates_to_the_top():
    h = Hierarchy.from_paths(["a/b/c", "d"])
    nan = float("nan")
    for way, at in ((h.max_up, "a/b/c"), (h.max_down, "a")):
        x = torch.zeros(len(h))
        x[h.index(at)] = nan
        assert way(x).isnan().tolist() == [name.startswith("a") for name in h.names]


def test_arguments_that_do_not_match():
    h = Hierarchy.from_paths(["a/b"])
    with pytest.raises(
        LabelError, match=re.escape("pairs (2,) and (3,) cannot be broadcast together")
    ):
        h.lca_heights([0, 1], [0, 1, 1])
    with pytest.raises(HierarchyError, match="parents must be one row of integers"):
        Hierarchy.from_parents([[-1], [0, 1]])
    with pytest.raises(HierlearnError, match="values must be floating point"):
        h.logsumexp_up(torch.tensor([1, 2]))


def test_membership_asks_without_a_search_for_near_names(monkeypatch):
    h = Hierarchy.from_paths(["a/x", "b/x"])
    monkeypatch.setattr(
        "hierlearn.hierarchy.hierarchy.did_you_mean", lambda *_: pytest.fail("slow")
    )
    assert "a/x" in h
    assert "a" in h
    assert "x" not in h  # ambiguous
    assert "y" not in h
    assert 3 in h
    assert 4 not in h
    assert None not in h


def test_deep_hierarchies_are_drawn():
    depth = 3000
    h = Hierarchy.from_parents([node - 1 for node in range(depth)])
    assert len(h.draw().split("\n")) == depth + 1


def test_propagation_does_not_import_the_compiler():
    import subprocess
    import sys

    code = (
        "import sys, torch; from hierlearn import Hierarchy;"
        "Hierarchy.from_paths(['a/b']).max_up(torch.zeros(2));"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
