"""The titles of a taxonomy that changes: kept where the class is the same, or alone renamed."""

from hierlearn.hierarchy import Hierarchy
from hierlearn.memory.taxonomy import Remap, grown

OLD = Hierarchy.from_paths(["a/x", "a/y", "a/z", "b"]).with_titles(
    {"a": "Top", "a/x": "X", "a/y": "Y", "a/z": "Z", "b": "B"}
)


def test_a_grown_taxonomy_keeps_titles():
    new = grown(OLD, ["a/x", "b/new"])
    assert {name: new.title(name) for name in new.names} == {
        **{name: OLD.title(name) for name in OLD.names},
        "b/new": None,
    }


def test_a_remapped_taxonomy_keeps_titles():
    new = Hierarchy.from_paths(["a/x", "a/renamed", "a/merged", "a/left", "a/right", "c"])
    new = new.with_titles({"a": "New top"})
    mapping = {"a/y": ["a/renamed"], "a/z": ["a/left", "a/right"], "b": ["c"]}
    found = Remap(OLD, new, mapping).new
    assert found == new
    assert {name: found.title(name) for name in new.names} == {
        "a": "New top",  # its own
        "a/x": "X",  # the same class
        "a/renamed": "Y",
        "c": "B",
        "a/merged": None,
        "a/left": None,  # part of a split class
        "a/right": None,
    }


def test_merged_classes_leave_no_title_of_one_of_them():
    new = Hierarchy.from_paths(["a/both", "a/z", "b"])
    found = Remap(OLD, new, {"a/x": ["a/both"], "a/y": ["a/both"]}).new
    assert found.title("a/both") is None
    kept = Remap(OLD, OLD.restrict(["a/x", "a/z", "b"]), {"a/y": ["a/x"]}).new
    assert kept.title("a/x") == "X"


def test_without_titles_the_new_taxonomy_stays_as_it_is():
    plain, new = Hierarchy.from_paths(OLD.names), OLD.restrict(["a/x", "b"])
    assert Remap(plain, new, {"a/y": [], "a/z": []}).new is new
