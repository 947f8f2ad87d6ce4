"""Labels that look like mistakes: misspelled, split in two, or with one row."""

import random
import time

import numpy as np
import pytest

from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import describe, read_table
from hierlearn.datasets.describe import (
    is_one_error,
    near_duplicates,
    one_name_cells,
    single_row_classes,
)
from hierlearn.errors import DataError, DataWarning, HierarchyError, LabelError
from hierlearn.hierarchy.labels import Labels


def table(tmp_path, labels, header="x,class"):
    path = tmp_path / "rows.csv"
    path.write_text(header + "\n" + "".join(f'{n},"{one}"\n' for n, one in enumerate(labels)))
    return path


# ---------------------------------------------------------------------- misspelled names


def distance(a, b):
    """Damerau's distance with swaps of neighbors, by the textbook's table."""
    rows = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = a[i - 1] != b[j - 1]
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + cost)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def test_one_error_is_a_distance_of_at_most_one():
    rng = random.Random(0)
    words = ["".join(rng.choices("abc", k=rng.randint(0, 6))) for _ in range(300)]
    for one, other in zip(words, reversed(words), strict=True):
        assert is_one_error(one, other) == (distance(one, other) <= 1), (one, other)


def found_in(counts):
    names = [name for name in counts if counts[name]]
    hierarchy = Hierarchy.from_paths(names)
    rows = [[name] for name in names for _ in range(counts[name])]
    found = near_duplicates(hierarchy, Labels(rows, hierarchy).counts)
    return {(one.name, one.meant) for one in found}


@pytest.mark.parametrize(
    ("counts", "pairs"),
    [
        ({"cat/Siam": 9, "cat/siam": 1}, {("cat/siam", "cat/Siam")}),
        ({"Siam": 9, "siam": 9}, {("siam", "Siam")}),  # case is never meant
        ({"guinea pig": 5, "guinea  pig": 1, "guinea_pig": 1}, 2),
        ({"bengal": 9, "begnal": 1, "bengall": 2, "benal": 1, "bongal": 1}, 4),
        ({"bengal": 9, "beagle": 1}, set()),
        ({"bengal": 2, "bengel": 2}, set()),  # neither is rare beside the other
        ({"bengal": 9, "bengel": 3}, set()),  # not rare
        ({"dog": 9, "dig": 1}, set()),  # too short to tell
        ({"type 1": 9, "type 2": 1, "A10.3": 9, "A10.4": 1}, set()),  # codes
        ({"cat/bengal": 9, "dog/bengel": 1}, set()),  # no siblings
        ({"Dog/pug": 9, "dog/pug": 1}, {("dog", "Dog")}),
    ],
)
def test_near_duplicates(counts, pairs):
    found = found_in(counts)
    assert (len(found) if isinstance(pairs, int) else found) == pairs


def test_near_duplicates_of_many_classes_are_found_fast():
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = sorted({"".join(rng.choices(letters, k=20)) for _ in range(50_000)})
    hierarchy = Hierarchy.from_paths(names)
    counts = np.random.default_rng(0).integers(1, 10, len(hierarchy))
    began = time.process_time()
    near_duplicates(hierarchy, counts)
    assert time.process_time() - began < 60  # about 1 s


def test_a_misspelled_label_is_pointed_out(tmp_path):
    path = table(tmp_path, ["cat/Siam"] * 4 + ["cat/siam"] + ["dog"] * 3)
    message = r"rows\.csv: 1 label may be misspelled: 'cat/siam' \(1\) for 'cat/Siam' \(4 rows\);"
    with pytest.warns(DataWarning, match=message):
        data = read_table(path, label="class")
    described = describe(data)["labels"]
    assert described["classes_with_one_row"] == ["cat/siam"]
    assert described["near_duplicates"] == [
        {"name": "cat/siam", "rows": 1, "meant": "cat/Siam", "meant_rows": 4}
    ]


def test_a_given_taxonomy_means_what_it_says(tmp_path):
    path = table(tmp_path, ["Siam"] * 4 + ["siam"])
    hierarchy = Hierarchy.from_paths(["Siam", "siam"])
    assert read_table(path, label="class", hierarchy=hierarchy).hierarchy == hierarchy


def test_many_are_named_by_their_first_three(tmp_path):
    names = ["bengal", "persian", "siamese", "burmese"]
    path = table(tmp_path, [*(names * 5), *(f"{name}x" for name in names)])
    with pytest.warns(
        DataWarning, match="4 labels may be misspelled: .* and 1 more; correct the t"
    ):
        read_table(path, label="class")


def test_classes_with_one_row():
    h = Hierarchy.from_paths(["a/b", "a/c", "d"])
    labels = Labels([["a/b"], ["a/c"], ["a/c"], ["a"]], h)
    assert [h.names[c] for c in single_row_classes(labels)] == ["a/b"]
    data = Dataset(np.zeros((4, 1), np.float32), h.decode(labels.targets()), h)
    assert describe(data)["labels"]["classes_with_one_row"] == ["a/b"]


# ---------------------------------------------------------------------- ; within a name


def test_a_name_that_holds_the_separator_is_named(tmp_path):
    path = table(tmp_path, ["Grain", "Oils; fats", "Oils; fats", "Nuts; seeds", "Nuts; seeds"])
    message = (
        r"line 3, column 'class': 'Oils; fats' looks like one name \(like 1 other cell\), but "
        r"is split at ';' into 'Oils', 'fats'; set label_sep=None if every cell holds one label"
    )
    with pytest.warns(DataWarning, match=message):
        data = read_table(path, label="class")
    assert data.labels[1] == ["Oils", "fats"]
    whole = read_table(path, label="class", label_sep=None)
    assert whole.labels[1] == ["Oils; fats"]
    assert whole.hierarchy.names == ("Grain", "Nuts; seeds", "Oils; fats")


@pytest.mark.parametrize(
    ("rows", "suspicious"),
    [
        ({"a": 3, "b": 2, "a;b": 4}, []),  # several labels
        ({"a;b": 1, "c": 3}, []),  # one row proves nothing
        ({"a;b": 2, "c": 3}, ["a;b"]),
        ({"food;drinks": 2, "food;tobacco": 2, "tools": 9}, ["food;drinks", "food;tobacco"]),
        ({"food;drinks": 2, "food": 2, "tools": 9}, []),  # food is a class of its own
        ({"shop/food;drinks": 2, "shop/food": 5, "shop/tools": 9}, ["shop/food;drinks"]),
        ({"shop/food;plant": 2, "plant/oak": 5, "shop/food": 9}, []),  # plant is a class
        ({"a;b": 5, "a;c": 5, "b;c": 5, "a;b;c": 2}, []),
    ],
)
def test_cells_that_look_like_one_name(rows, suspicious):
    cells = {cell: tuple(cell.split(";")) for cell in rows}
    assert one_name_cells(cells, rows, "/") == suspicious


def test_few_among_many_split_cells_are_no_suspicion():
    cells = {f"{a};{b}": (a, b) for a in "abcdefg" for b in "abcdefg" if a != b}
    cells["x;y"] = ("x", "y")
    assert one_name_cells(cells, dict.fromkeys(cells, 2), "/") == []


def test_a_class_of_a_given_taxonomy_is_not_split_silently(tmp_path):
    hierarchy = Hierarchy.from_paths(["food/oils; fats", "tools"])
    path = table(tmp_path, ["tools", "food/oils; fats"])
    message = (
        r"line 3, column 'class': 'food/oils; fats' is a class, but the cell is split at ';'; set "
        r"label_sep=None if"
    )
    with pytest.raises(LabelError, match=message):
        read_table(path, label="class", hierarchy=hierarchy)
    data = read_table(path, label="class", hierarchy=hierarchy, label_sep=None)
    assert data.labels == [["tools"], ["food/oils; fats"]]


def test_a_forgotten_sep_is_named(tmp_path):
    labels = ["A > B > C", "A > B > D", "A > E"]
    path = table(tmp_path, labels)
    with pytest.warns(DataWarning, match="'A > B > C' look like paths joined by ' > ', but sep is"):
        assert read_table(path, label="class").hierarchy.depth == 1
    assert read_table(path, label="class", sep=" > ").hierarchy.depth == 3


# ---------------------------------------------------------------------- splits and levels


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["steel", "food", "wood"],
            r"column 'part' holds values such as 'steel', 'food', 'wood', ",
        ),
        (
            ["train", *map(str, range(30))],
            r"holds more than 20 values such as 'train', '0', '1', wh",
        ),
        (["0", "1", "2"], "which name no splits; a split is called train, valid or test"),
        (["train", "Test", "Test"], r"column 'part': write 'test' instead of 'Test'"),
        (["train", "val", "test"], r"write 'valid' instead of 'val'"),
        (["Training", "test"], r"write 'train' instead of 'Training'"),
    ],
)
def test_a_column_that_is_no_split_is_refused(tmp_path, values, message):
    path = tmp_path / "rows.csv"
    path.write_text("x,class,part\n" + "".join(f"{n},a,{one}\n" for n, one in enumerate(values)))
    with pytest.raises(DataError, match=message):
        read_table(path, label="class", split="part")


def test_splits_of_other_names_beside_known_ones(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,class,part\n1,a,train\n2,a,extra\n3,a,test\n4,a,train\n")
    data = read_table(path, label="class", split="part")
    found = {name: rows.tolist() for name, rows in data.splits.items()}
    assert found == {"train": [0, 3], "extra": [1], "test": [2]}


def test_levels_whose_names_hold_a_slash(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,k,s\n1,food/drinks,tea\n2,food/drinks,coffee\n3,tools,\n")
    message = "'food/drinks' holds a '/', so paths are joined by ' > '; choose another with sep="
    with pytest.warns(DataWarning, match=message):
        data = read_table(path, levels=["k", "s"])
    assert data.labels == [["food/drinks > tea"], ["food/drinks > coffee"], ["tools"]]
    assert data.hierarchy.sep == " > "
    with pytest.raises(DataError, match="'food/drinks' holds the separator '/'; choose another"):
        read_table(path, levels=["k", "s"], sep="/")
    again = read_table(path, levels=["k", "s"], hierarchy=data.hierarchy)
    assert again.labels == data.labels


def test_levels_whose_names_hold_every_separator(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('x,k\n1,"a/b > c | d::e >> f -> g"\n')
    with pytest.raises(DataError, match="and other names hold other ones; choose one with sep="):
        read_table(path, levels=["k"])


def test_blanks_around_the_names_of_levels_mean_nothing(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"x": [1.0, 2.0], "k": ["cat", "cat "], "s": [" siam", "siam"]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    data = read_table(tmp_path / "rows.parquet", levels=["k", "s"])
    assert data.labels == [["cat/siam"]] * 2


def test_a_bad_path_still_names_the_file(tmp_path):
    with pytest.raises(HierarchyError, match="path 'a//b' has an empty part"):
        read_table(table(tmp_path, ["a//b"]), label="class")


def test_a_negative_number_is_not_its_opposite():
    hierarchy = Hierarchy.from_paths(["-1", "1", "a-b", "a b", "0.1", "-0.1"])
    found = near_duplicates(hierarchy, np.full(len(hierarchy), 9))
    assert [{pair.name, pair.meant} for pair in found] == [{"a-b", "a b"}]
