"""Titles on the command line: a taxonomy with them, trained, saved, predicted and explained."""

import csv
import json
import re

import pytest

from hierlearn.hierarchy import Hierarchy
from hierlearn.pipeline import Pipeline

LONG = "A rose by any other name, which is a title that no terminal can show in a single line"
TAXONOMY = f"""parent,child,what
,animal,Animals
animal,dog,
dog,pug,"Pug; small"
dog,lab,Labrador
animal,cat,Cat
,plant,Plants
plant,oak,Oak
plant,rose,"{LONG}"
"""


def written(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def titled(memories, call):
    """The folder of models with a memory, one of which has titles now."""
    (memories / "tree.csv").write_text(TAXONOMY)
    call("remap texts --hierarchy tree.csv --title-column what --out titled")
    return memories


def test_inspect_shows_titles_and_writes_them(tmp_path, call):
    (tmp_path / "tree.csv").write_text(TAXONOMY)
    said = call("inspect tree.csv --title-column what --depth 0 --json tree.json")
    assert "├── animal  Animals  4\n" in said
    assert "pug  Pug; small\n" in said
    assert f"rose  {LONG[:59].rstrip()}…\n" in said
    assert Hierarchy.read(tmp_path / "tree.json").title("rose") == LONG
    said = call("inspect tree.csv --title-column wat", 2)
    assert said == "hierlearn: tree.csv: no column 'wat'; the columns are 'parent', 'child', 'what'"


def test_a_model_keeps_titles_and_gives_the_same_answers(titled, call):
    before, after = Pipeline.load(titled / "texts"), Pipeline.load(titled / "titled")
    assert before.hierarchy == after.hierarchy
    assert not before.hierarchy.has_titles
    assert after.hierarchy.title("lab") == "Labrador"
    assert after.label_space == before.label_space
    call("predict texts texts.csv --out before.csv")
    call("predict titled texts.csv --out after.csv")
    plain, rows = written(titled / "before.csv"), written(titled / "after.csv")
    assert list(plain[0]) == ["id", "path", "class", "probability", "level", "stopped"]
    assert list(rows[0]) == ["id", "path", "class", "title", "probability", "level", "stopped"]
    assert [row.pop("title") for row in rows] == [
        after.hierarchy.title(row["path"]) or "" for row in plain
    ]
    assert rows == plain
    assert any(row["class"] == "lab" for row in rows)


def test_neighbors_have_titles(titled, call):
    call("predict titled texts.csv --explain 2 --out neighbors.csv")
    hierarchy = Pipeline.load(titled / "titled").hierarchy
    for row in written(titled / "neighbors.csv"):
        for rank in (1, 2):
            label = row[f"neighbor_{rank}_labels"]
            assert row[f"neighbor_{rank}_titles"] == (hierarchy.title(label) or "")
    call("predict texts texts.csv --explain 1 --out plain.csv")
    assert "neighbor_1_titles" not in written(titled / "plain.csv")[0]


def test_explain_shows_titles(titled, call):
    said = call("explain titled texts.csv --limit 5 --out why.csv")
    assert "T1: animal/dog/lab (Labrador), probability" in said
    assert f"plant/rose ({LONG[:39].rstrip()}…)" in said
    rows = written(titled / "why.csv")
    assert list(rows[0])[:4] == ["row", "answer", "title", "probability"]
    hierarchy = Pipeline.load(titled / "titled").hierarchy
    for row in rows:
        assert row["title"] == (hierarchy.title(row["answer"]) or "")
        assert row["titles"] == (hierarchy.title(row["labels"]) or "")
    call("explain texts texts.csv --limit 1 --out plain.csv")
    assert "title" not in written(titled / "plain.csv")[0]
    assert "titles" not in written(titled / "plain.csv")[0]


def test_remembered_rows_keep_titles_and_new_classes_bring_theirs(titled, call):
    (titled / "more.csv").write_text("key,words,class\nM1,tulip spring bulb,plant/tulip\n")
    call("remember titled more.csv --out grown")
    assert Pipeline.load(titled / "grown").hierarchy.title("lab") == "Labrador"
    (titled / "wider.csv").write_text("parent,child,title\n" + TAXONOMY.split("\n", 1)[1])
    with (titled / "wider.csv").open("a") as file:
        file.write("plant,tulip,Tulip\n")
    said = call("remember texts more.csv --hierarchy wider.csv --out wider")
    assert "1 new class: plant/tulip (Tulip)" in said
    loaded = Pipeline.load(titled / "wider")
    assert loaded.hierarchy.title("plant/tulip") == "Tulip"
    assert loaded.hierarchy.title("lab") == "Labrador"
    (titled / "same.csv").write_text("key,words,class\nM1,tall acorn,plant/oak\n")
    (titled / "tree2.csv").write_text(TAXONOMY.replace("what", "title"))
    call("remember texts same.csv --hierarchy tree2.csv --out same")  # no class is new
    assert Pipeline.load(titled / "same").hierarchy.title("lab") == "Labrador"


def test_the_page_of_a_model_shows_titles(tmp_path, call):
    """As in the first tutorial: codes in the table, their titles in the hierarchy alone."""
    titles = {
        "E": "Endocrine",
        "E10": "Type 1",
        "E11": "Type 2 & other",
        "G": "Nerves",
        "G43": "Migraine",
    }
    tree = Hierarchy.from_paths(["E/E10", "E/E11", "G/G43"])
    named = {name: titles[name.rpartition("/")[2]] for name in tree.names}
    (tmp_path / "codes.json").write_text(tree.with_titles(named).to_json())
    words = {"E/E10": "sugar young", "E/E11": "sugar old", "G/G43": "head ache"}
    lines = ["note,code,part"]
    for row in range(60):
        code = list(words)[row % 3]
        lines.append(
            f"{words[code].split()[row % 2]} {row % 5},{code},{'train' if row < 40 else 'test'}"
        )
    (tmp_path / "notes.csv").write_text("\n".join(lines))
    call("train notes.csv --label code --text note --split part --hierarchy codes.json --out model")
    call("report model --data notes.csv --rows test --out page.html")
    page = (tmp_path / "page.html").read_text()
    assert json.loads(re.search(r'"titles": ?(\[[^]]*\])', page)[1]) == [
        named[one] for one in tree.names
    ]
    confused = page[page.index("What is confused?") :]
    assert "Type 1</span>" in confused
    assert "Type 2 &amp; other</span>" in confused
