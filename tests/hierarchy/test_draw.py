"""Drawing: the exact text of small hierarchies, folding, counts, and well-formed SVG."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from strategies import dags, taxonomies, trees

SVG = "{http://www.w3.org/2000/svg}"


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


@pytest.mark.parametrize("method", ["draw", "to_svg"])
def test_invalid_arguments_raise(small_tree, method):
    draw = getattr(small_tree, method)
    with pytest.raises(HierlearnError, match="depth must be at least 1, not 0"):
        draw(depth=0)
    with pytest.raises(HierlearnError, match="breadth must be at least 1, not -2"):
        draw(breadth=-2)


def parts_of(svg):
    """Return the labels, notes, circles, solid and dashed lines of a drawing."""
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    labels, notes = [], []
    for text in root.iter(f"{SVG}text"):
        note = text.find(f"{SVG}tspan")
        notes.append("" if note is None else note.text)
        labels.append(text.text if note is None else text.text.removesuffix(" "))
    paths = list(root.iter(f"{SVG}path"))
    dashed = [path for path in paths if path.get("class") == "d"]
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")]
    return labels, notes, circles, len(paths) - len(dashed), len(dashed)


@given(taxonomies())
def test_svg_is_well_formed_and_holds_every_label(taxonomy):
    h, _ = taxonomy.build()
    labels, _, circles, solid, dashed = parts_of(h.to_svg(breadth=None))
    assert sorted(labels) == sorted([h.root, *h.bare_names])
    assert len(circles) == solid + 1 == len(h) + 1
    assert dashed == sum(max(len(h.parents(c)) - 1, 0) for c in range(len(h)))
    assert len(set(circles)) == len(circles)


@given(trees())
def test_svg_has_one_column_per_level(taxonomy):
    h, _ = taxonomy.build()
    labels, _, circles, _, dashed = parts_of(h.to_svg(breadth=None))
    columns = sorted({x for x, _ in circles})
    assert len(columns) == h.depth + 1
    sizes = [sum(x == column for x, _ in circles) for column in columns]
    assert sizes == [1, *h.level_sizes]
    assert labels[0] == h.root
    assert circles[0][0] == columns[0]
    assert dashed == 0


@given(dags())
def test_svg_lies_within_its_frame(taxonomy):
    h, _ = taxonomy.build()
    svg = h.to_svg(breadth=None)
    root = ET.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    assert all(0 < x < width and 0 < y < height for x, y in parts_of(svg)[2])


def test_svg_of_a_small_tree(small_tree, diamond):
    labels, notes, _, solid, dashed = parts_of(small_tree.to_svg())
    assert labels == ["root", "animal", "cat", "dog", "bulldog", "pug", "plant", "oak"]
    assert notes == ["7 classes, 3 levels, tree", "4", "", "2", "", "", "1", ""]
    assert (solid, dashed) == (7, 0)
    assert 'aria-label="hierarchy of 7 classes"' in small_tree.to_svg()
    assert parts_of(diamond.to_svg())[3:] == (4, 1)
    assert parts_of(diamond.to_svg(depth=2))[3:] == (3, 0)  # d is folded, with both its edges


def test_svg_folds_and_counts(small_tree):
    labels, notes, *_ = parts_of(small_tree.to_svg(depth=2, breadth=1))
    assert labels == ["root", "animal", "cat", "…", "…"]
    assert notes == [
        "7 classes, 3 levels, tree",
        "4",
        "",
        "1 more (3 classes)",
        "1 more (2 classes)",
    ]


@pytest.mark.parametrize(
    "name", ["a<b&c", "<script>alert('x')</script>", 'a "quoted" name', "&amp;", "漢字", "]]>", "𝛼"]
)
def test_svg_escapes_names(name):
    h = Hierarchy.from_edges([(None, name)], sep="\t")
    assert parts_of(h.to_svg())[0] == ["root", name]
    assert "<script>" not in h.to_svg()
    under = Hierarchy.from_edges([(name, "child")], sep="\t", root=name)
    assert parts_of(under.to_svg())[0] == [name, "child"]


@pytest.mark.parametrize("name", ["a\x01b", "\x0b", "a\x00", "\ufffe"])
def test_svg_is_well_formed_whatever_the_name(name):
    ET.fromstring(Hierarchy.from_paths(["x" + name]).to_svg())


def test_svg_is_written_to_a_file(small_tree, tmp_path):
    path = tmp_path / "new" / "tree.svg"
    svg = small_tree.to_svg(path)
    assert path.read_text(encoding="utf-8") == svg + "\n"
    assert [one.name for one in path.parent.iterdir()] == ["tree.svg"]
    assert small_tree.to_svg(str(path), depth=1) != svg
    assert path.read_text(encoding="utf-8") != svg + "\n"
