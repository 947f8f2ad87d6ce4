"""``hierlearn noise`` on a small table: what it prints and writes, how it goes on."""

import json

import pytest

FAST = (
    "--draws 2 --seeds 2 --epochs 2 --patience 2 --batch-size 32 --network-option width=8 --jobs 1"
)
LINE = (
    f"noise rows.csv --label class --split part --methods bce,leaf-ce --rates 0,0.5 --out n {FAST}"
)
FILES = "noise.json, noise.md, curves.png, curves.svg"


def test_tables_files_and_an_answer(call, rows):
    said = call(LINE)
    assert "rows: 100 rows, 8 classes; 2 draws, 12 trainings of 2 seeds each" in said
    assert "Hierarchy noise. From 0 % to 50 %" in said
    assert f"wrote {FILES} to n" in said
    found = json.loads((rows / "n" / "noise.json").read_text())
    assert found["candidates"] == ["bce", "leaf-ce"]
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["torch"]
    figure = found["figures"]["labels"]["terminal-accuracy"][1][0]
    shown = f"{100 * figure['mean']:.1f}"
    assert f"{shown} ±" in said
    table = (rows / "n" / "noise.md").read_text()
    low, high = figure["interval"]
    assert f"{shown} ± {50 * (high - low):.1f}" in table
    assert f"{shown} ±{50 * (high - low):.1f}" in said
    assert [len(draw) for draw in figure["values"]] == [2, 2]
    assert "over 2 draws of 2 seeds each" in table
    assert found["verdict"] in table
    for name in FILES.split(", "):
        assert (rows / "n" / name).stat().st_size > 300, name


def test_the_same_command_trains_nothing_and_says_the_same(call, rows):
    said = call(LINE)
    kept = {path: path.stat().st_mtime_ns for path in (rows / "n").glob("cells/*/runs.jsonl")}
    assert len(kept) == 6
    assert call(LINE) == said
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    refused = call(LINE.replace("--seeds 2", "--seeds 3"), code=2, begun=True)
    assert "holds another study (its seeds, settings differ)" in refused


def test_losses_and_recipes_by_default(call, rows):
    words = "noise rows.csv --label class --split part --kinds labels --rates 0,0.5 --out n"
    said = call(f"{words} --draws 1 --seeds 1 --epochs 1 --jobs 1")
    assert "1 draw, 26 trainings of 1 seed each" in said
    found = json.loads((rows / "n" / "noise.json").read_text())
    assert found["candidates"][-5:] == ["auto", "quick", "max", "flat", "hcl"]
    assert "With one draw and one seed no difference can be told from noise." in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rates 0,2", "a rate of noise must lie in [0, 1], not 2.0"),
        ("--rates 0,half", "--rates takes numbers with commas, not 'half'"),
        ("--kinds lables", "unknown kind of noise 'lables'; did you mean 'labels'"),
        ("--draws 0", "--draws"),
        ("--methods hlc", "unknown loss or recipe 'hlc'; did you mean 'hcl'"),
    ],
)
def test_what_is_refused(call, rows, words, message):
    line = f"noise rows.csv --label class --split part --out n {words}"
    assert message in call(line, code=2)
    assert not (rows / "n").exists()


def test_a_negative_seed_is_refused_before_any_work(call, rows):
    said = call(f"{LINE} --noise-seed -1", code=2)
    assert "--noise-seed" in said
    assert "--seed'" not in said
    assert not (rows / "n").exists()
