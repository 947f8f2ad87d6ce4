"""Groups of rows that share a key, and splits that keep them together."""

import hashlib

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.lab.corpora.grouping import linked_groups, normalized, split_groups

ROWS = st.lists(st.lists(st.integers(0, 12), max_size=3), max_size=30)


@given(ROWS)
def test_groups_are_the_connected_components(keys):
    graph = nx.Graph()
    graph.add_nodes_from(("row", row) for row in range(len(keys)))
    graph.add_edges_from(
        (("row", row), ("key", key)) for row, own in enumerate(keys) for key in own
    )
    expected = {}
    for component in nx.connected_components(graph):
        rows = sorted(number for kind, number in component if kind == "row")
        expected |= dict.fromkeys(rows, rows[0])
    assert linked_groups(keys) == [expected[row] for row in range(len(keys))]


@given(ROWS, st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.3]))
def test_splits_keep_groups_together_and_classes_trained(keys, seed, fraction):
    groups = linked_groups(keys)
    labels = [[f"c{len(own) % 2}", "always"] for own in keys]
    names = [str(row) for row in range(len(keys))]
    splits = split_groups(groups, names, labels, seed=seed, fraction=fraction, training={0})
    assert list(splits) == ["train", "valid", "test"]
    assert sorted(np.concatenate(list(splits.values()))) == list(range(len(keys)))
    of = {groups[row]: set() for row in range(len(keys))}
    for name, rows in splits.items():
        for row in rows:
            of[groups[row]].add(name)
    assert all(len(own) == 1 for own in of.values())
    assert of.get(0, {"train"}) == {"train"}
    for split in ("valid", "test"):
        assert len(splits[split]) <= fraction * len(keys)
    trained = {label for row in splits["train"] for label in labels[row]}
    assert trained == {label for own in labels for label in own}


def test_a_tenth_each_by_default_and_another_seed_draws_others():
    groups = list(range(1000))
    names, labels = [str(row) for row in groups], [["a"]] * 1000
    first, second = (split_groups(groups, names, labels, seed=seed) for seed in (0, 1))
    assert {name: len(rows) for name, rows in first.items()} == {
        "train": 800,
        "valid": 100,
        "test": 100,
    }
    assert set(first["test"]) != set(second["test"])


def test_the_draw_is_the_same_on_every_machine():
    groups = list(range(20))
    splits = split_groups(groups, [f"g{row}" for row in groups], [["a"]] * 20, seed=0)
    order = sorted(groups, key=lambda row: hashlib.sha256(f"0/g{row}".encode()).digest())
    assert splits["test"].tolist() == sorted([order[0], order[2]]) == [11, 15]
    assert splits["valid"].tolist() == sorted([order[1], order[3]]) == [3, 12]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Spam  (e-mail)!", "spam e mail"), ("Straße_1", "strasse 1"), ("...", "")],
)
def test_texts_are_equal_up_to_case_and_punctuation(text, expected):
    assert normalized(text) == expected
