"""A folder of parts: what is complete stays, what is not ours stays, and nothing appears twice."""

import hashlib
import json

import pytest

from hierlearn.files.writing import WriteError
from hierlearn.service.parts import MANIFEST, SUCCESS, WORK, PartFolder

PLAN = {"parts": 3, "model": "abc"}


def begun(folder, *parts, plan=PLAN):
    """A folder in which some parts are complete."""
    made = PartFolder(folder, ".csv")
    made.begin(plan, force=False)
    for part in parts:
        made.path(part).write_text(f"x\n{part}\n")
        made.complete(part, 1, 0, 0, 0)
    return made


def test_a_finished_folder_lists_its_parts(tmp_path):
    made = begun(tmp_path / "out")
    records = []
    for part in range(3):
        made.path(part).write_text(f"x\n{part}\n")
        records.append(made.complete(part, 1, part, 0, 0))
    made.finish(records)
    names = {path.name for path in made.folder.iterdir()}
    assert names == {f"part-0000{part}.csv" for part in range(3)} | {MANIFEST, SUCCESS}
    listed = json.loads((made.folder / MANIFEST).read_text())
    assert listed["rows"] == 3
    for one in listed["parts"]:
        content = (made.folder / one["file"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(content).hexdigest()
        assert one["bytes"] == len(content)
    with pytest.raises(WriteError, match="out exists; pass force=True to replace it"):
        made.begin(PLAN, force=False)
    assert made.begin(PLAN, force=True) == {}
    assert {path.name for path in made.folder.iterdir()} == {WORK}


@pytest.mark.parametrize("force", [False, True])
def test_the_same_plan_goes_on_where_it_stopped(tmp_path, force):
    made = begun(tmp_path / "out", 0, 2)
    assert list(made.begin(PLAN, force)) == [0, 2]


def test_a_part_without_its_record_or_its_bytes_is_not_complete(tmp_path):
    made = begun(tmp_path / "out", 0, 1, 2)
    made.record_path(0).unlink()
    made.path(1).write_text("x\n")
    assert list(made.begin(PLAN, force=False)) == [2]
    made.record_path(2).write_text('{"part": 2}')
    assert made.begin(PLAN, force=False) == {}


def test_another_plan_is_refused_or_replaced(tmp_path):
    made = begun(tmp_path / "out", 0)
    other = {**PLAN, "model": "def"}
    with pytest.raises(WriteError, match="parts of another run, whose model, rows or options dif"):
        made.begin(other, force=False)
    assert made.path(0).exists()
    assert made.begin(other, force=True) == {}
    assert not made.path(0).exists()


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_part_is_never_removed(tmp_path, force):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(WriteError, match=r"holds thesis.txt, which is no part of answers"):
        PartFolder(tmp_path, ".csv").begin(PLAN, force)
    made = begun(tmp_path / "out", 0)
    (made.folder / WORK / "note.txt").write_text("mine")
    made.begin({**PLAN, "model": "def"}, force=True)
    assert (made.folder / WORK / "note.txt").exists()


def test_parts_are_joined_in_order_and_removed(tmp_path):
    out = tmp_path / "out.csv"
    made = begun(out.with_name(f"{out.name}.parts"), 1, 0, 2)
    made.join(out, list(made.begin(PLAN, force=False).values()), "x\n")
    assert out.read_text() == "x\n0\n1\n2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
