"""The base of the decoders: sets of ancestors, chunks, and custom decoders."""

import re

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.decoding import (
    Argmax,
    Coherent,
    Decoder,
    Leaf,
    TopDown,
    ancestor_sets,
    make_decoder,
)
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace, structure

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def test_ancestor_sets_refuse_what_is_no_class():
    assert ancestor_sets(TREE, torch.zeros(0, dtype=torch.long)).shape == (0, 8)
    assert ancestor_sets(TREE, torch.tensor([-1, 7], dtype=torch.int32)).sum(dim=1).tolist() == [
        0,
        3,
    ]
    for wrong, message in (
        (torch.tensor([[1]]), "classes must be (N,) class numbers, not (1, 1) torch.int64"),
        (torch.tensor([1.0]), "classes must be (N,) class numbers, not (1,) torch.float32"),
        (torch.tensor([True]), "classes must be (N,) class numbers, not (1,) torch.bool"),
        (torch.tensor([0, 8]), "class numbers 0..8 are outside -1..7"),
        (torch.tensor([-2, 3]), "class numbers -2..3 are outside -1..7"),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            ancestor_sets(TREE, wrong)


def test_chunks_cover_every_row_once(monkeypatch):
    monkeypatch.setattr(structure, "CHUNK", 100)
    for count, width, sizes in (
        (10, 30, [3, 3, 3, 1]),
        (2, 1000, [1, 1]),
        (5, 0, [5]),
        (0, 7, [0]),
    ):
        found = list(structure.row_chunks(count, width))
        assert [rows.stop - rows.start for rows in found] == sizes
        assert [i for rows in found for i in range(count)[rows]] == list(range(count))


def test_the_width_of_a_dag_is_its_closure():
    dag = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    assert structure.row_width(TREE) == 8
    assert structure.row_width(dag) == 1 + 2 + 2 + 4


def test_a_custom_decoder():
    class Deepest(Decoder):
        answers = "class"

        def decide(self, p, allowed=None):
            return torch.full((len(p),), p.shape[1] - 1)

    p = torch.rand(3, 8)
    assert Deepest(TREE)(p).tolist() == [7, 7, 7]
    assert TREE.decode(Deepest(TREE).sets(p)) == [["a/b/d"]] * 3


def test_ties_go_to_the_first():
    p = torch.full((1, 8), 0.5)
    assert Argmax(TREE)(p).tolist() == [0]
    assert Leaf(TREE)(p).tolist() == [TREE.index("h")]  # the shallowest leaf
    assert TopDown(TREE)(p).tolist() == [TREE.index("a/b/c")]


def test_an_inner_terminal_class_competes_with_what_ends_there():
    p = TREE.sum_up(torch.tensor([[0.0, 0.0, 0.25, 0.2, 0.0, 0.0, 0.3, 0.25]]))  # h, b, c, d
    inner = LabelSpace(TREE, ["a/b"])
    assert Leaf(inner)(p).tolist() == [TREE.index("a/b/c")]
    q = torch.tensor([[0.0, 0.0, 0.25, 0.4, 0.0, 0.0, 0.2, 0.15]])
    assert Leaf(inner)(TREE.sum_up(q)).tolist() == [TREE.index("a/b")]
    assert Leaf(TREE)(TREE.sum_up(q)).tolist() == [TREE.index("h")]


def test_a_wide_fan_out_is_padded_rightly():
    """Rows that stand at classes of 1, 2 and 300 children take the same step."""
    paths = [f"wide/{i}" for i in range(300)] + ["two/x", "two/y", "one/z", "leaf"]
    h = Hierarchy.from_paths(paths)
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(200, len(h), generator=generator)
    p[:, h.children(h.index("wide"))[-1]] = 0.999  # the last child, which padding repeats
    for row, answer in zip(p, TopDown(h)(p).tolist(), strict=True):
        top = int(row[:4].argmax())
        below = h.children(top)
        assert answer == (max(below, key=lambda c: row[c]) if below else top)


def test_options_out_of_range():
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(
            HierlearnError, match=re.escape(f"threshold must lie in [0, 1], not {value}")
        ):
            Coherent(TREE, value)


def test_coherent_closes_any_probabilities():
    p = torch.zeros(1, 8)
    p[0, TREE.index("a/b/d")] = 0.5
    assert TREE.decode(Coherent(TREE)(p)) == [["a/b/d"]]
    assert not Coherent(TREE, 0.6)(p).any()
    assert Coherent(TREE, 0.0)(p).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("leaf", {"treshold": 1}, "decoder leaf takes no options, but treshold was given"),
        ("stop", {"treshold": 1}, "unknown option of decoder stop 'treshold'; did you mean 'thr"),
        ("argmax", {"threshold": 1}, "decoder argmax takes no options, but threshold was given"),
        ("stop", {"threshold": "x"}, "decoder stop does not take threshold='x': "),
        ("subset", {}, "decoder subset needs the option allowed"),
        ("subset", {"allowed": [0], "decoder": "argmax", "x": 1}, "decoder argmax takes no opt"),
    ],
)
def test_options_that_a_decoder_does_not_take_are_named(name, options, message):
    with pytest.raises(HierlearnError, match=message):
        make_decoder(Hierarchy.from_paths(["a/b", "c"]), name, **options)
