"""hierlearn remap: classes renamed, moved, merged, split and removed; the dry run says it all."""

import json
from collections import Counter

import pytest

from hierlearn.networks.memories import remembered
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.folder import write_config

TREE = """life/animal/canine
life/animal/cat
plant/tree
plant/rose/red
plant/rose/white
"""
MAP = """Old,NEW,why
animal,life/animal,moved
animal/dog,canine,renamed
pug,canine,merged
lab,canine,merged
cat,life/animal/cat,moved
plant/oak,plant/tree,renamed
plant/rose,red,split
plant/rose,white,split
"""
LINE = "remap texts --hierarchy tree.txt --map map.csv"
COUNTS = ("renamed or moved", "merged", "split", "removed", "new", "rows whose label changes")


@pytest.fixture
def files(memories):
    (memories / "tree.txt").write_text(TREE)
    (memories / "map.csv").write_text(MAP)
    return memories


def labels(folder):
    """The labels of every remembered row by id."""
    rows = remembered(Pipeline.load(folder).network)
    return dict(zip(rows.ids, map(tuple, rows.labels.names(range(len(rows)))), strict=True))


def table(said):
    """The counts in a printed table."""
    cells = [line.strip("│ ").split("│") for line in said.splitlines() if line.startswith("│")]
    return {name.strip(): int(count.replace(",", "")) for name, count in cells}


def test_the_dry_run_is_what_happens(files, call):
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    dry = call(f"{LINE} --dry-run")
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before
    assert dry.endswith("nothing was written: --dry-run\n")
    said = call(f"{LINE} --out moved")
    assert said.splitlines()[-1] == "wrote moved"
    assert said.splitlines()[:-1] == dry.splitlines()[:-1]
    old, new = Pipeline.load(files / "texts"), Pipeline.load(files / "moved")
    fingerprints = [one.hierarchy.fingerprint[:16] for one in (old, new)]
    assert f"fingerprint {fingerprints[0]} -> {fingerprints[1]}" in said
    found = table(said)
    assert [found[name] for name in COUNTS] == [3, 3, 1, 0, 2, 50]
    assert (found["classes before"], found["classes after"], found["rows"]) == (8, 9, 50)
    goes = {
        "animal/dog/pug": "life/animal/canine",
        "animal/dog/lab": "life/animal/canine",
        "animal/cat": "life/animal/cat",
        "plant/oak": "plant/tree",
        "plant/rose": "plant/rose",  # the common parent of its parts
    }
    assert labels(files / "moved") == {
        row: (goes[one],) for row, (one,) in labels(files / "texts").items()
    }
    old.scaling = new.scaling = None  # which depends on how many classes there are
    old_p, new_p = (one.probabilities(["rose thorn red"])[0] for one in (old, new))
    cat = old_p[old.hierarchy.index("animal/cat")], new_p[new.hierarchy.index("life/animal/cat")]
    assert float(cat[0]) == float(cat[1])


def test_the_dry_run_counts_classes_without_a_place(files, call):
    lines = MAP.splitlines(keepends=True)
    (files / "map.csv").write_text("".join(line for line in lines if "canine" not in line))
    dry = call(f"{LINE} --dry-run")
    counts = table(dry)
    assert counts["without a place"] == 3
    assert counts["removed"] == 0
    assert counts["rows whose label changes"] == table_of_full(files, call)
    message = (
        "3 classes have no place in the new taxonomy: 'animal/dog', 'animal/dog/lab', "
        "'animal/dog/pug'; before anything is moved, give each a line in --map"
    )
    assert message in dry
    assert dry.endswith("nothing was written: --dry-run\n")
    refused = call(f"{LINE} --out moved", code=2)
    assert "3 classes have no place in the new hierarchy: 'animal/dog'" in refused


def table_of_full(files, call):
    """How many rows change where every class has a place; a class without one loses its rows."""
    (files / "whole.csv").write_text(MAP)
    return table(call("remap texts --hierarchy tree.txt --map whole.csv --dry-run"))[
        "rows whose label changes"
    ]


def test_rows_of_a_split_class_have_labels_of_their_own(files, call):
    roses = [row for row, own in labels(files / "texts").items() if own == ("plant/rose",)]
    lines = [f"{row},{'red' if n % 2 else 'white'}" for n, row in enumerate(roses[:6])]
    (files / "labels.csv").write_text(
        "\n".join(["id,label", *lines, f"{roses[6]},red;white"]) + "\n"
    )
    said = call(f"{LINE} --labels labels.csv --in-place")
    assert table(said)["rows with labels of their own"] == 7
    found = labels(files / "texts")
    assert Counter(found[row] for row in roses) == {
        ("plant/rose/red",): 3,
        ("plant/rose/white",): 3,
        ("plant/rose/red", "plant/rose/white"): 1,
        ("plant/rose",): len(roses) - 7,
    }


def test_removed_classes_go_to_their_parent_or_lose_their_label(files, call):
    (files / "tree.txt").write_text("animal/dog/pug\nanimal/cat\n")
    (files / "map.csv").write_text("old,new\nanimal/dog/lab,\nplant,\nplant/oak,\nplant/rose,\n")
    said = call(f"{LINE} --out moved")
    found = table(said)
    assert found["removed"] == 4
    assert found["rows whose label changes"] == 30
    assert found["rows without a label"] == 20
    counts = Counter(labels(files / "moved").values())
    assert counts == {("animal/dog/pug",): 10, ("animal/dog",): 10, ("animal/cat",): 10, (): 20}


def test_decoder_columns_and_history_follow(files, call):
    path = files / "texts" / "config.json"
    config = json.loads(path.read_text())
    config["decoder"] = {"name": "stop", "options": {"threshold": 0.7}}
    write_config(path, config)
    call(f"{LINE} --out moved")
    after = json.loads((files / "moved" / "config.json").read_text())
    assert after["decoder"] == config["decoder"]
    assert after["columns"] == config["columns"]
    assert after["preprocessing"] == config["preprocessing"]
    assert after["history"][0]["change"] == "remap"
    assert after["history"][0]["fingerprint_before"] == config["fingerprint"]
    said = call("predict moved texts.csv -o out.csv")
    assert "decoder stop at threshold 0.7" in said


def test_no_map_is_needed_where_names_stay(files, call):
    (files / "tree.txt").write_text("\n".join([*labels_in_order(files), "plant/moss"]) + "\n")
    said = call("remap texts --hierarchy tree.txt --out moved")
    assert [table(said)[name] for name in COUNTS] == [0, 0, 0, 0, 1, 0]
    assert labels(files / "moved") == labels(files / "texts")


def labels_in_order(files):
    return Pipeline.load(files / "texts").hierarchy.names


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "map.csv",
            MAP + "fungus,plant,new\n",
            "map.csv, line 10, column 'old': no class of the model: unknown label 'fungus'",
        ),
        (
            "map.csv",
            MAP.replace("plant/tree", "plant/treee"),
            "map.csv, line 7, column 'new': no class of the new hierarchy: unknown label",
        ),
        (
            "map.csv",
            "from,to\na,b\n",
            "map.csv needs the columns old and new, such as 'old,new'; its first line has 'from'",
        ),
        ("map.csv", "old,new\n,plant\n", "map.csv, line 2, column 'old': the class is missing"),
        (
            "map.csv",
            "old,new\nplant/rose,\nplant/rose,red\n",
            "map.csv, line 3: 'plant/rose' is removed and has a new name in lines 2 and 3",
        ),
        (
            "map.csv",
            "old,new\nplant/rose,red\nplant/rose,\n",
            "map.csv, line 3: 'plant/rose' is removed and has a new name in lines 2 and 3",
        ),
        (
            "labels.csv",
            "id,label\nT4,blue\n",
            "labels.csv, line 2, column 'label': no class of the",
        ),
        ("labels.csv", "id,label\nT99,red\n", "the memory has no row with id 'T99'"),
        ("labels.csv", "id,label\nT4,\n", "labels.csv, line 2, column 'label': the cell is empty"),
        ("labels.csv", "id,class\nT4,red\n", "labels.csv needs the columns id and label"),
        ("tree.txt", "", "tree.txt is empty"),
    ],
)
def test_each_refusal_names_its_place(files, call, name, text, message):
    (files / "labels.csv").write_text("id,label\n")
    (files / name).write_text(text)
    line = f"{LINE} --labels labels.csv" if name == "labels.csv" else LINE
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    for where in ("--dry-run", "--in-place"):
        assert message in call(f"{line} {where}", code=2)
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before


def test_where_to_write_must_be_said(files, call):
    assert "say where the changed model goes: --out FOLDER" in call(LINE, code=2)
    assert "texts is the model itself; give --in-place" in call(f"{LINE} --out texts", code=2)
    assert "Missing option '--hierarchy'" in call("remap texts --dry-run", code=2)
    for option in ("--out moved", "--in-place", "--force"):
        said = call(f"{LINE} --dry-run {option}", code=2)
        assert (
            f"--dry-run is a count that writes nothing and does not take {option.split()[0]};"
            in said
        )


def test_a_head_that_is_no_memory_cannot_answer_afterwards(files, call):
    line = "train texts.csv --label class --text words --loss bce --head neighbors --epochs 1"
    call(f"{line} --joint soft-labels=1 --answer average -o joint")
    for where in ("--dry-run", "--out moved"):
        message = call(f"remap joint --hierarchy tree.txt --map map.csv {where}", code=2)
        assert "this model answers by average of 'main', 'soft-labels'" in message
        assert "another taxonomy; train with --answer main (answer='main' in Python)" in message
