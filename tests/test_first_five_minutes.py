"""The first five minutes of a new user: the README and the tutorials, typed as they are printed."""

import csv
import importlib.util
import random
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
    "tutorials/gene-ontology",
    "howto/onnx",
]
CLASSES = ["animal/dog/bulldog", "animal/dog/pug", "animal/cat", "plant/oak"]


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
        values = {"class": CLASSES[kind]}
        for one in range(4):
            values[f"x{one}"] = round(draw.gauss(3.0 * (kind == one), 1.0), 3)
        rows.append({name: values[name] for name in columns})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path):
    """What somebody with a table has: rows, new rows, fresh labeled rows."""
    inputs = [f"x{one}" for one in range(4)]
    write_table(tmp_path / "rows.csv", 120, 0, [*inputs, "class"])
    write_table(tmp_path / "fresh.csv", 80, 1, [*inputs, "class"])
    write_table(tmp_path / "new.csv", 8, 2, inputs)
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
    lines = readme_commands()
    assert [line.split()[1] for line in lines] == [
        "train",
        "evaluate",
        "predict",
        "explain",
        "report",
        "serve",  # runs until it is stopped; see tests/service
    ]
    lines = [line for line in lines if line.split()[1] != "serve"]
    said = {line.split()[1]: type_in(line, folder) for line in lines}
    assert "model on 24 rows of rows (valid)" in said["evaluate"], "one fifth was held out"
    answers = list(csv.DictReader((folder / "answers.csv").read_text().splitlines()))
    assert len(answers) == 8
    assert sum(one["path"] == CLASSES[n % 4] for n, one in enumerate(answers)) >= 6
    assert "probability" in said["explain"]
    assert (folder / "model" / "report.html").stat().st_size > 10_000


def test_what_the_readme_says_about_risk(folder):
    assert "`predict --risk 0.05 --calibrate fresh.csv`" in README
    type_in("hierlearn train rows.csv --label class --out model", folder)
    type_in(
        "hierlearn predict model new.csv --out sure.csv --risk 0.05 --calibrate fresh.csv", folder
    )
    sure = list(csv.DictReader((folder / "sure.csv").read_text().splitlines()))
    known = {"", *CLASSES, "animal", "animal/dog", "plant"}
    assert {one["path"] for one in sure} <= known


@pytest.mark.slow
def test_what_the_readme_says_about_effort(folder):
    assert "`train --effort best`" in README
    line = "hierlearn train rows.csv --label class --out best --effort best --time-limit 5"
    type_in(line, folder)
    assert (folder / "best" / "model.safetensors").is_file()


def test_the_picture_shows_the_figures_of_the_benchmarks():
    spec = importlib.util.spec_from_file_location("plot", REPO / "benchmarks" / "plot_results.py")
    plot = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plot)
    assert plot.PICTURE.read_text() == plot.draw()
    assert "docs/assets/results.svg" in README


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
