"""hierlearn remember and forget: what a model knows changes, and its weights do not."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import warm
from hierlearn import HierarchicalClassifier
from hierlearn.networks.memories import memory_heads
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.memory_files import INDEX
from hierlearn.pipeline.remember import forget
from hierlearn.pipeline.train import save_into
from shards import memory

NEW = """key,a,b,c,class
M1,9.0,9.0,0.5,animal/bird/owl
M2,9.1,9.0,0.4,animal/bird/owl
M3,9.0,9.1,0.6,animal/bird
M4,0.1,0.0,0.1,pug
"""


@pytest.fixture
def more(memories):
    (memories / "more.csv").write_text(NEW)
    (memories / "new.csv").write_text("a,b,c\n9.05,9.0,0.5\n")
    return memories


def weights(folder):
    return {
        name: value.tobytes() for name, value in load_file(folder / "model.safetensors").items()
    }


def test_the_real_command_remembers_new_classes_and_predicts_them(more):
    def run(*words):
        done = subprocess.run(
            [*warm.python(), "-m", "hierlearn", *words],
            cwd=more,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "120"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = {path.name: path.read_bytes() for path in (more / "model").iterdir() if path.is_file()}
    said = run("remember", "model", "more.csv", "--out", "bigger")
    assert said.splitlines() == [
        "remembered 4 rows of more.csv",
        "2 new classes: animal/bird, animal/bird/owl",
        "wrote bigger, which remembers 46 rows now",
    ]
    after = {path.name: path.read_bytes() for path in (more / "model").iterdir() if path.is_file()}
    assert after == before
    assert memory(more / "bigger")["ids"] == [
        *memory(more / "model")["ids"],
        "M1",
        "M2",
        "M3",
        "M4",
    ]
    assert weights(more / "bigger") == weights(more / "model")
    run("predict", "bigger", "new.csv", "-o", "out.csv", "--explain", "3")
    row = (more / "out.csv").read_text().splitlines()[1].split(",")
    assert row[0] == "animal/bird/owl"
    assert {row[5], row[8], row[11]} == {"M1", "M2", "M3"}
    model = Pipeline.load(more / "bigger")
    assert model.hierarchy.parents("animal/bird/owl") == ("animal/bird",)
    assert model.config["history"][0]["change"] == "remember"


def test_in_place_the_training_stays_beside_the_model(more, call):
    said = call("remember model more.csv --in-place")
    assert said.endswith("wrote model, which remembers 46 rows now\n")
    assert {"log.jsonl", "checkpoints"} <= {path.name for path in (more / "model").iterdir()}
    assert "animal/bird/owl" in Pipeline.load(more / "model").hierarchy
    assert not list((more / "model").glob(".*"))
    again = call("remember model more.csv --in-place")
    assert "no new class" in again
    assert "remembered 0 rows of more.csv" in again
    assert "4 rows remembered already, with the same id, label and values: left out" in again
    assert "remembers 46 rows now" in again
    assert "remembers 46 rows now" in call("remember model more.csv --out again")
    lines = (more / "more.csv").read_text().splitlines()
    cells = lines[1].split(",")
    place = lines[0].split(",").index("class")
    lines[1] = ",".join([*cells[:place], "plant/oak", *cells[place + 1 :]])
    (more / "more.csv").write_text("\n".join(lines) + "\n")
    for line in ("--in-place", "--out other"):
        said = call(f"remember model more.csv {line}")
        if line == "--in-place":
            assert "remembered 1 row of more.csv" in said
            assert "3 rows remembered already" in said
            assert "1 row with the id of another row that was remembered already" in said
        assert "remembers 47 rows now" in said


def test_rows_without_ids_are_numbered_and_texts_are_kept(more, call):
    (more / "words.csv").write_text(
        "words,class\nacorn trunk oak,plant/oak\nred thorn,plant/rose/red\n,\n"
    )
    said = call("remember texts words.csv --out bigger")
    assert "1 new class: plant/rose/red" in said
    assert "1 row without a label: examples of no class" in said
    found = memory(more / "bigger")
    assert found["texts"][-3:] == ["acorn trunk oak", "red thorn", ""]
    assert len(set(found["ids"])) == 53


PARTS = ["extra", "extra", "test", "test"]


def test_a_split_and_a_hierarchy_may_be_given(more, call):
    (more / "tree.txt").write_text(
        "animal/dog/pug\nanimal/dog/lab\nanimal/cat\nplant/oak\nplant/rose\nfungus/yeast\nfungus/mold\n"
    )
    lines = [f"{line},{part}" for line, part in zip(NEW.splitlines()[1:], PARTS, strict=True)]
    lines = [
        line.replace("animal/bird/owl", "yeast").replace("animal/bird", "mold") for line in lines
    ]
    (more / "split.csv").write_text("\n".join(["key,a,b,c,class,part", *lines]) + "\n")
    message = call("remember model split.csv --hierarchy tree.txt --out m", code=2)
    assert "split has the splits extra, test; say which with --rows" in message
    said = call("remember model split.csv --hierarchy tree.txt --out m --rows extra")
    assert "remembered 2 rows of split.csv of the split extra" in said
    assert "3 new classes: fungus, fungus/mold, fungus/yeast" in said
    call("predict m new.csv -o out.csv")
    assert (more / "out.csv").read_text().splitlines()[1].startswith("fungus/yeast,")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("more.csv", "say where the changed model goes: --out FOLDER for a new one, or --in-place"),
        ("more.csv --out m --in-place", "--out and --in-place are given; leave one of them out"),
        ("more.csv --in-place --force", "--force goes with --out; leave it out"),
        ("more.csv --out texts", "texts exists; give --force to replace the model in it, or name"),
        ("more.csv --out full --force", "full holds no model, so it is not replaced; name another"),
        ("more.csv --out model", "model is the model itself; give --in-place to replace it"),
        ("more.csv --out more.csv", "more.csv is a file; name a folder"),
        (
            "orphan.csv --out m",
            "the hierarchy has neither 'reptile/frog' nor a parent for it; correct the label, or "
            "pass the hierarchy that has it as --hierarchy",
        ),
        (
            "more.csv --out m --hierarchy less.txt",
            "the new hierarchy lacks 'animal/cat'; use remap",
        ),
        ("one.csv --out m --hierarchy less.txt", "the new hierarchy lacks 'animal/cat'; use remap"),
        ("gap.csv --out m", "gap.csv, row 2, column 'a': the value is missing, but none was"),
        ("noid.csv --out m", "noid.csv, line 3, column 'key': the row has no id; write one, or"),
        ("more.csv --out m --sep :", "the model joins the names of a path by '/', not by ':'"),
        ("more.csv --out m --label clas", "unknown column 'clas'; did you mean 'class'?"),
        ("more.csv --out m --text class", "the model reads numbers and does not take --text"),
    ],
)
def test_each_refusal_is_one_line_and_leaves_nothing(more, call, line, message):
    (more / "full").mkdir()
    (more / "full" / "notes.txt").write_text("mine")
    (more / "orphan.csv").write_text("key,a,b,c,class\nM1,1,1,1,reptile/frog\n")
    (more / "one.csv").write_text("key,a,b,c,class\nM1,1,1,1,animal/dog\n")
    (more / "less.txt").write_text("animal/dog/pug\nplant/oak\n")
    (more / "gap.csv").write_text("key,a,b,c,class\nM1,1,1,1,plant\nM2,,1,1,plant\n")
    (more / "noid.csv").write_text("key,a,b,c,class\nM1,1,1,1,plant\n,1,1,1,plant\n")
    before = {path: path.stat().st_mtime_ns for path in more.rglob("*")}
    assert message in call(f"remember model {line}", code=2)
    assert {path: path.stat().st_mtime_ns for path in more.rglob("*")} == before


def test_flat_models_take_new_top_classes(more, call):
    lines = (more / "rows.csv").read_text().splitlines()
    flat = [line.rsplit(",", 2)[0] + "," + line.rsplit(",", 2)[1].split("/")[0] for line in lines]
    (more / "flat.csv").write_text("\n".join(flat) + "\n")
    line = "train flat.csv --label class --id-column key --loss bce --head neighbors --epochs 1"
    call(f"{line} --valid-fraction 0 -o flat")
    fungus = "key,a,b,c,class\nM1,9,9,0.5,fungus\nM2,9,9,0.5,fungus\n"
    (more / "fungus.csv").write_text(fungus)
    assert "1 new class: fungus" in call("remember flat fungus.csv --out bigger")
    call("predict bigger new.csv -o out.csv")
    assert (more / "out.csv").read_text().splitlines()[1].startswith("fungus,")
    message = call("remember model fungus.csv --out m", code=2)
    assert "has no class 'fungus', and a new top class is not taken from a label" in message
    assert "pass the hierarchy that has it as --hierarchy" in message


def test_the_card_says_that_metrics_are_of_before(more, call):
    assert "## On the valid rows\n" in (more / "model" / "README.md").read_text()
    call("remember model more.csv --out bigger")
    card = (more / "bigger" / "README.md").read_text()
    assert "## On the valid rows, measured before the changes\n" in card
    assert "## On the valid rows\n" not in card


def test_a_calibrated_threshold_is_of_the_rows_of_before(memories, call):
    """An estimator's folder that the command line changes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)) + 3 * np.eye(3)[np.arange(60) % 3]
    clf = HierarchicalClassifier("neighbors", epochs=1, decoder="stop", random_state=0).fit(
        x, ["a/b", "a/c", "d"] * 20
    )
    clf.calibrate(x, ["a/b", "a/c", "d"] * 20, risk=0.2)
    clf.save(memories / "clf")
    call("forget clf --id 3 --out smaller")
    assert not hasattr(HierarchicalClassifier.load(memories / "smaller"), "thresholds_")
    (memories / "tree.txt").write_text("a/b\na/c\nz/d\n")
    (memories / "map.csv").write_text("old,new\nd,z/d\n")
    call("remap clf --hierarchy tree.txt --map map.csv --out moved")
    assert HierarchicalClassifier.load(memories / "moved").thresholds_ == clf.thresholds_


# ---------------------------------------------------------------------- index


def test_an_index_is_built_and_used(memories, call):
    pytest.importorskip("faiss")
    said = call("index model --recall 0.9 --out indexed").splitlines()
    assert re.fullmatch(
        r"indexed 42 rows; a search finds [01]\.\d{4} of the nearest ones, measured on the rows "
        r"themselves",
        " ".join(said[:-1]),
    )
    assert said[-1] == "wrote indexed"
    name = INDEX.format(head="main", member=0)
    assert (memories / "indexed" / name).is_file()
    assert not (memories / "model" / name).exists()
    (head,) = memory_heads(Pipeline.load(memories / "indexed").network)["main"]
    assert head.memory.indexes[0].recall >= 0.9
    call("index model --in-place")
    assert (memories / "model" / name).is_file()
    call("forget model --id N3 --in-place")  # what changes drops it
    assert not (memories / "model" / name).exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("model", "say where the changed model goes: --out FOLDER for a new one, or --in-place"),
        ("model --recall 2 --out m", "recall is 2.0, but must be above 0 and at most 1"),
        ("model --out m", "an approximate index needs faiss; install it with: pip install"),
    ],
)
def test_each_refusal_to_index_is_one_line(memories, call, line, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert message in call(f"index {line}", code=2)
    assert not (memories / "m").exists()


# ---------------------------------------------------------------------- forget


def test_nothing_of_forgotten_rows_is_left_in_the_folder(memories, call):
    held = memory(memories / "texts")
    gone = {row: held["ids"].index(row) for row in ("T7", "T31")}
    said = call("forget texts --id T7 --id T31 --in-place")
    assert said.splitlines() == [
        "forgot 2 rows; the memory has 48 now",
        "the memory in texts holds no embedding, label, id or text of them; weights and vocabulary "
        "stay as training learned them",
        "wrote texts",
    ]
    kept = memory(memories / "texts")
    assert kept["ids"] == [one for one in held["ids"] if one not in gone]
    assert len(kept["texts"]) == 48
    for path in (memories / "texts").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for row in gone.values():
            assert held["texts"][row].encode() not in data, path
        assert b'"T7"' not in data
    arrays = load_file(memories / "texts" / "memory-00002.safetensors")
    assert {len(value) for name, value in arrays.items() if name.startswith("embeddings")} == {48}
    call("explain texts texts.csv --count 48 --out evidence.csv")
    found = {line.split(",")[5] for line in (memories / "evidence.csv").read_text().splitlines()}
    assert found == {"id", *kept["ids"]}


@pytest.mark.parametrize(("text", "more"), [("N0\n\n  N1 \nN0\n", ""), ("N0\n", "--id N1")])
def test_ids_in_files(memories, call, text, more):
    (memories / "ids.txt").write_text(text)
    said = call(f"forget model --ids ids.txt {more} --out smaller")
    assert "forgot 2 rows; the memory has 40 now" in said
    assert "model still remembers them; delete it if nobody may" in said
    assert {"N0", "N1"}.isdisjoint(memory(memories / "smaller")["ids"])
    assert {"N0", "N1"} <= set(memory(memories / "model")["ids"])
    assert len(memory(memories / "smaller")["ids"]) == 40


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--in-place", "name the rows to forget by --id, or in a file by --ids"),
        ("--id N0", "say where the changed model goes: --out FOLDER for a new one, or --in-place"),
        ("--id N0 --id Q --in-place", "the memory has no row with id 'Q'; it has 'N0', 'N1', 'N2'"),
        ("--ids none.txt --in-place", "none.txt"),
        ("--ids all.txt --in-place", "these are all 42 rows of the memory; a model that remembers"),
        ("--id N0 --out texts", "texts exists; give --force to replace the model in it"),
    ],
)
def test_each_refusal_to_forget_leaves_the_model(memories, call, line, message):
    (memories / "all.txt").write_text("\n".join(memory(memories / "model")["ids"]))
    before = {path: path.stat().st_mtime_ns for path in memories.rglob("*")}
    assert message in call(f"forget model {line}", code=2)
    assert {path: path.stat().st_mtime_ns for path in memories.rglob("*")} == before


def test_an_index_of_the_old_memory_is_removed(memories):
    """It holds embeddings of forgotten rows, and its row numbers are wrong."""
    model = Pipeline.load(memories / "model")
    assert forget(model, ["N3"]) == 1
    old = memories / "model" / INDEX.format(head="main", member=0)
    old.write_bytes(b"embeddings")
    save_into(model, memories / "model")
    assert not old.exists()
    assert "N3" not in memory(memories / "model")["ids"]


def test_a_model_without_a_memory_says_what_to_train(more, trained, call):
    shutil.copytree(trained, more / "linear")
    for line in (
        "remember linear more.csv --out m",
        "forget linear --id 3 --in-place",
        "remap linear --hierarchy tree.txt --dry-run",
        "index linear --in-place",
    ):
        message = call(line, code=2)
        assert (
            "linear has no memory: its answers come from weights, not from rows; train" in message
        )


def test_force_replaces_a_model(more, call):
    call("remember model more.csv --out texts --force")
    assert len(memory(more / "texts")["ids"]) == 46
    assert memory(more / "texts")["texts"] is None
