"""The first five minutes of a new user: the README and the tutorials, typed as they are printed."""

import csv
import random
import re
import subprocess
from pathlib import Path

import pytest

import walk

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
# Pages whose commands run too, on what the page itself writes.
WALKED = [
    "tutorials/texts",
    "tutorials/images",
    "tutorials/training-loop",
    "tutorials/how-sure",
    "tutorials/new-taxonomy",
    "howto/onnx",
]
CLASSES = ["animal/dog/bulldog", "animal/dog/pug", "animal/cat", "plant/oak"]
SLOW = re.compile(r"--effort best|hierlearn compare")  # what a reader waits for, too


@pytest.mark.parametrize("page", WALKED)
def test_a_page_does_what_it_says(page, tmp_path):
    text = (REPO / "docs" / f"{page}.md").read_text()
    walk.check(text, walk.walk(text, tmp_path))


def readme_commands():
    """Every command line of the README but those that install."""
    blocks = [body for language, _, body in walk.BLOCK.findall(README) if language == "sh"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    kept = [line.partition("  #")[0].strip() for line in lines if line.strip()]
    return [line for line in kept if not line.startswith(("make ", "pip "))]


def write_table(path, count, seed, columns):
    """Write rows of classes that can be told apart."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        kind = number % len(CLASSES)
        part = "train" if number % 5 < 3 else "valid" if number % 5 == 3 else "test"
        values = {"class": CLASSES[kind], "part": part}
        for one in range(4):
            values[f"x{one}"] = round(draw.gauss(3.0 * (kind == one), 1.0), 3)
        rows.append({name: values[name] for name in columns})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path):
    """What somebody with a table has: rows, new rows, fresh labeled rows, a taxonomy."""
    inputs = [f"x{one}" for one in range(4)]
    write_table(tmp_path / "rows.csv", 120, 0, [*inputs, "class", "part"])
    write_table(tmp_path / "fresh.csv", 80, 1, [*inputs, "class"])
    write_table(tmp_path / "new.csv", 8, 2, inputs)
    lines = ["parent,child", ",animal", "animal,dog", "animal,cat", "dog,pug", "dog,bulldog"]
    (tmp_path / "taxonomy.csv").write_text("\n".join([*lines, ",plant", "plant,oak"]) + "\n")
    return tmp_path


def type_in(line, folder):
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=walk.environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_commands_of_the_readme_run_in_order(folder):
    lines = [line for line in readme_commands() if not SLOW.search(line)]
    assert {line.split()[1] for line in lines} >= {
        "inspect",
        "data",
        "train",
        "evaluate",
        "predict",
    }
    for line in lines:
        assert type_in(line, folder)
    answers = list(csv.DictReader((folder / "answers.csv").read_text().splitlines()))
    assert len(answers) == 8
    assert sum(one["path"] == CLASSES[n % 4] for n, one in enumerate(answers)) >= 6
    sure = list(csv.DictReader((folder / "sure.csv").read_text().splitlines()))
    known = {"", *CLASSES, "animal", "animal/dog", "plant"}
    assert {one["path"] for one in sure} <= known


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in readme_commands() if SLOW.search(line)])
def test_the_commands_of_the_readme_that_take_longer(line, folder):
    type_in(line.replace("--time-limit 1800", "--time-limit 5"), folder)  # half an hour is too long
    out = re.search(r"--out (\S+)", line)[1]
    names = {path.name for path in (folder / out).iterdir()}
    assert "model.safetensors" in names or "summary.json" in names


def test_the_readme_says_how_to_install_and_what_to_try():
    assert "pip install ." in README
    assert "make demo" in README
    assert readme_commands()


def test_the_walk_notices_what_is_not_true(tmp_path):
    """A page that prints something else, or whose command fails, does not pass."""
    page = "```python\nprint(1 + 1)  # 3\n```\n"
    with pytest.raises(AssertionError, match="'3' was not printed"):
        walk.check(page, walk.walk(page, tmp_path))
    with pytest.raises(AssertionError):
        walk.walk("```sh\nhierlearn frobnicate\n```\n", tmp_path)
    shown = "```python\nprint('rows 17')\n```\n\n```text\nrows 18\n```\n"
    walk.check(shown, walk.walk(shown, tmp_path))
    with pytest.raises(AssertionError, match="'lines 17' was not printed"):
        walk.check(shown.replace("rows 18", "lines 17"), "rows 17\n")
