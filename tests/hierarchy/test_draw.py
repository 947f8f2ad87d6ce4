"""Drawing: the exact text of small hierarchies, foldingand counts."""

import re

import pytest
from hypothesis import given

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from strategies import taxonomies


def text_of(*lines):
    return "\n".join(lines)


def test_a_small_tree(small_tree):
    assert small_tree.draw() == text_of(
        "root  7 classes, 3 levels, tree",
        "├── animal  4",
        "│   ├── cat",
        "│   └── dog  2",
        "│       ├── bulldog",
        "│       └── pug",
        "└── plant  1",
        "    └── oak",
    )


def test_a_dag_below_first_parents(diamond):
    assert diamond.draw() == text_of(
        "root  4 classes, 3 levels, DAG",
        "└── a  3",
        "    ├── b  1",
        "    │   └── d",
        "    └── c  1",
    )


def test_a_single_class_and_a_root_of_ones_own():
    h = Hierarchy.from_edges([("everything", "a")], root="everything")
    assert h.draw() == "everything  1 class, 1 level, tree\n└── a"


@pytest.mark.parametrize(
    ("depth", "lines"),
    [
        (1, ["├── animal  4 …", "└── plant  1 …"]),
        (
            2,
            [
                "├── animal  4",
                "│   ├── cat",
                "│   └── dog  2 …",
                "└── plant  1",
                "    └── oak",
            ],
        ),
    ],
)
def test_folding_by_depth(small_tree, depth, lines):
    assert small_tree.draw(depth=depth) == text_of("root  7 classes, 3 levels, tree", *lines)
    assert small_tree.draw(depth=3) == small_tree.draw(depth=99) == small_tree.draw()


def test_folding_by_breadth(small_tree):
    assert small_tree.draw(breadth=1) == text_of(
        "root  7 classes, 3 levels, tree",
        "├── animal  4",
        "│   ├── cat",
        "│   └── …  1 more (3 classes)",
        "└── …  1 more (2 classes)",
    )
    flat = Hierarchy.from_paths([str(n) for n in range(1500)])
    lines = flat.draw(breadth=2).split("\n")
    assert lines == ["root  1,500 classes, 1 level, tree", "├── 0", "├── 1", "└── …  1,498 more"]
    assert flat.draw().split("\n")[-1] == "└── …  1,488 more"  # twelve by default
    assert len(flat.draw(breadth=None).split("\n")) == 1501


def test_folding_by_both(small_tree):
    assert small_tree.draw(depth=1, breadth=1) == text_of(
        "root  7 classes, 3 levels, tree", "├── animal  4 …", "└── …  1 more (2 classes)"
    )


def test_shared_descendants_count_once_in_a_fold():
    h = Hierarchy.from_edges([("t", "a"), ("t", "b"), ("t", "c"), ("b", "d"), ("c", "d")])
    assert h.draw(breadth=1) == text_of(
        "root  5 classes, 3 levels, DAG", "└── t  4", "    ├── a", "    └── …  2 more (3 classes)"
    )


@given(taxonomies())
def test_every_class_is_drawn_once(taxonomy):
    h, _ = taxonomy.build()
    lines = h.draw(breadth=None).split("\n")
    assert len(lines) == len(h) + 1
    found = []
    for line in lines[1:]:
        indent, label = re.fullmatch(r"((?:│   |    )*)(?:├── |└── )(.*)", line).groups()
        found.append((len(indent) // 4 + 1, label))
    below = [len(h.descendants(c)) for c in range(len(h))]
    expected = [
        f"{bare}  {count}" if count else bare
        for bare, count in zip(h.bare_names, below, strict=True)
    ]
    assert sorted(label for _, label in found) == sorted(expected)
    if h.is_tree:
        assert sorted(level for level, _ in found) == h.levels.tolist()


def test_invalid_arguments_raise(small_tree):
    draw = small_tree.draw
    with pytest.raises(HierlearnError, match="depth must be at least 1, not 0"):
        draw(depth=0)
    with pytest.raises(HierlearnError, match="breadth must be at least 1, not -2"):
        draw(breadth=-2)
