"""Finding a class by number, path, bare name; and what is refused, with its hint."""

import re

import numpy as np
import pytest
from hypothesis import given

from hierlearn.errors import LabelError
from hierlearn.hierarchy import Hierarchy
from strategies import dags, taxonomies, trees


@given(taxonomies())
def test_names_and_numbers_find_their_class(taxonomy):
    h, _ = taxonomy.build()
    assert list(h) == list(h.names)
    for number, name in enumerate(h.names):
        assert h.index(number) == h.index(np.int64(number)) == h.index(np.uint8(number)) == number
        assert h.index(name) == h.index(np.str_(name)) == number
        assert name in h
        assert number in h
        assert type(h.index(np.int64(number))) is int


@given(trees())
def test_a_bare_name_finds_its_class_where_only_one_has_it(taxonomy):
    h, _ = taxonomy.build()
    for number, bare in enumerate(h.bare_names):
        if bare in h.names:  # a top class goes by its bare name, even if others have it too
            assert h.index(bare) == h.names.index(bare)
        elif h.bare_names.count(bare) == 1:
            assert h.index(bare) == number
            assert h.parents(bare) == h.parents(h.names[number])
        else:
            with pytest.raises(LabelError, match="is ambiguous"):
                h.index(bare)
            assert bare not in h


def test_an_ambiguous_bare_name_lists_its_paths(twins):
    message = (
        "label 'Other' is ambiguous: it could be 'Clothing/Other', 'Electronics/Other'; "
        "give the path"
    )
    with pytest.raises(LabelError, match=re.escape(message)):
        twins.index("Other")
    assert twins.index("Clothing/Other") != twins.index("Electronics/Other")
    assert twins.index("Shoes") == twins.index("Clothing/Shoes")


def test_exact_names_only(twins, diamond):
    assert twins.index("Clothing/Shoes", exact=True) == twins.index("Shoes")
    assert twins.index("Clothing", exact=True) == 0
    assert twins.index(2, exact=True) == 2
    assert diamond.index("d", exact=True) == 3
    for h, label in ((twins, "Shoes"), (twins, "Other"), (diamond, "a/b"), (diamond, "x")):
        with pytest.raises(LabelError, match=f"unknown label {label!r}"):
            h.index(label, exact=True)


def test_many_paths_are_cut_short():
    h = Hierarchy.from_paths([f"{letter}/Other" for letter in "abcdefgh"])
    message = "'a/Other', 'b/Other', 'c/Other', 'd/Other', 'e/Other' and 3 more; give the path"
    with pytest.raises(LabelError, match=re.escape(message)):
        h.index("Other")


def test_a_top_class_wins_over_deeper_namesakes():
    h = Hierarchy.from_paths(["b", "a/b"])
    assert h.index("b") == 1
    assert h.index("a/b") == 2


@given(dags())
def test_paths_in_a_dag(taxonomy):
    h, _ = taxonomy.build()
    for c in range(len(h)):
        for p in h.parents(c):
            assert h.index(f"{h.names[p]}/{h.names[c]}") == c
            for g in h.parents(p):
                assert h.index(f"{h.names[g]}/{h.names[p]}/{h.names[c]}") == c


def test_a_path_in_a_dag_must_follow_edges(diamond):
    assert diamond.index("a/b/d") == diamond.index("a/c/d") == diamond.index("d")
    for wrong in ("a/d", "b/a", "b/c/d", "d/b", "a//b", "a/x", "/a", "a/"):
        with pytest.raises(LabelError, match=re.escape(f"unknown label {wrong!r}")):
            diamond.index(wrong)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("dgo", "unknown label 'dgo'; did you mean 'dog'?"),
        ("bulldo", "unknown label 'bulldo'; did you mean 'bulldog'?"),
        ("animal/cta", "unknown label 'animal/cta'; did you mean 'animal/cat'"),
        ("zzz", "unknown label 'zzz' (of 7 classes)"),
        ("dog/pug", "unknown label 'dog/pug'; did you mean 'animal/dog/pug'"),
        ("Dog", "unknown label 'Dog'; did you mean 'dog'"),
        (" dog", "unknown label ' dog'; did you mean 'dog'"),
    ],
)
def test_unknown_names_show_the_nearest(small_tree, label, message):
    with pytest.raises(LabelError, match=re.escape(message)):
        small_tree.index(label)
    assert label not in small_tree


def test_nearest_names_among_very_many():
    parents = np.concatenate([[-1], np.zeros(20_500, dtype=int)])
    h = Hierarchy.from_parents(parents, ["top", *(f"class{n}" for n in range(20_500))])
    with pytest.raises(LabelError, match=re.escape("did you mean 'class2049")):
        h.index("clas2049")


@pytest.mark.parametrize("label", ["", "/", "root"])
def test_the_root_is_no_class(small_tree, diamond, label):
    message = (
        f"label {label!r} is the implicit root, which is no class; "
        "leave the row's labels empty instead"
    )
    for h in (small_tree, diamond):
        with pytest.raises(LabelError, match=re.escape(message)):
            h.index(label)
        assert label not in h


def test_a_root_and_a_separator_of_ones_own():
    h = Hierarchy.from_edges([("all", "a"), ("a", "b")], sep=".", root="all")
    for label in ("", ".", "all"):
        with pytest.raises(LabelError, match="is the implicit root"):
            h.index(label)
    for label in ("/", "root"):
        with pytest.raises(LabelError, match="unknown label"):
            h.index(label)
    assert h.index("a.b") == 1


def test_a_class_may_be_called_root():
    h = Hierarchy.from_paths(["root/a", "b"])
    assert h.index("root") == 1
    assert h.children("root") == ("root/a",)


@pytest.mark.parametrize("number", [-1, 7, 10**9, np.int64(-3)])
def test_numbers_out_of_range(small_tree, number):
    message = f"class number {number} is outside 0..6 of this hierarchy"
    with pytest.raises(LabelError, match=re.escape(message)):
        small_tree.index(number)
    assert number not in small_tree


@pytest.mark.parametrize("label", [True, np.True_, None, 1.0, b"cat", ["cat"], ("cat",)])
def test_labels_of_other_types(small_tree, label):
    message = f"a label is a class name or number, not {label!r} ({type(label).__name__})"
    with pytest.raises(LabelError, match=re.escape(message)):
        small_tree.index(label)
    assert label not in small_tree


@pytest.mark.parametrize("method", ["parents", "children", "ancestors", "descendants", "index"])
def test_every_lookup_raises_the_same_error(small_tree, method):
    with pytest.raises(LabelError, match="unknown label 'dgo'; did you mean 'dog'"):
        getattr(small_tree, method)("dgo")
    with pytest.raises(LabelError, match=re.escape("class number 7 is outside 0..6")):
        getattr(small_tree, method)(7)


def test_repr_and_sizes(small_tree, diamond):
    assert repr(small_tree) == "Hierarchy(7 classes, tree, levels 2/3/2)"
    assert repr(diamond) == "Hierarchy(4 classes, DAG, levels 1/2/1)"
    assert len(small_tree) == 7
    assert small_tree.names[:3] == ("animal", "plant", "animal/cat")
    assert small_tree.bare_names[:3] == ("animal", "plant", "cat")
    assert small_tree.level_slices == (slice(0, 2), slice(2, 5), slice(5, 7))
    assert small_tree.depth == 3
