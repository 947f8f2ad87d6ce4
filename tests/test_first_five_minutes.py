"""The first five minutes of a new user: the README and the tutorials, typed as they are printed."""

import csv
import importlib.util
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import walk
from hierlearn import Hierarchy
from hierlearn.reports.markup import safe

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
    if page == "tutorials/texts":  # its report names no code without its title
        type_in("hierlearn report model --data notes.csv --rows test", tmp_path)
        shown = (tmp_path / "model" / "report.html").read_text()
        codes = Hierarchy.read(tmp_path / "codes.json")
        cells = {
            name.replace("/", "/<wbr>"): f' <span class="title">{safe(title)}</span>'
            for name, title in zip(codes.names, map(codes.title, range(len(codes))), strict=True)
        }
        found = re.findall(r">(\d/<wbr>[^ <]*(?:<wbr>[^ <]*)?)([^\n]{0,300})", shown)
        assert len({name for name, _ in found}) > 10
        assert not [name for name, after in found if not after.startswith(cells[name])]


# Reference pages whose commands are typed in order on small tables, and how many those are.
TYPED = {"memory": 14, "report": 2, "training": 16, "howto/vectors": 3, "own-data": 3}
# What needs another machine, a pretrained backbone, or files of its own.
UNTYPED = ("torchrun", "zcat", "--zero-shot", "study/")


def commands_of(page):
    """The command lines of a page that can be typed on the reader's small tables."""
    text = (REPO / "docs" / f"{page}.md").read_text()
    blocks = [body for language, _, body in walk.BLOCK.findall(text) if language == "sh"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    kept = [line.partition("  #")[0].strip() for line in lines if line.strip()]
    return [line for line in kept if not any(word in line for word in UNTYPED)]


def write_what_a_reader_has(here, page):
    """Write tables, vectors, a taxonomy, ids and a configuration."""
    draw, classes = np.random.default_rng(0), [*CLASSES, "animal/fox"]
    for begin, name in enumerate(("rows", "fresh", "more", "new")):
        kinds = np.arange(120 if name == "rows" else 80) % len(classes)
        numbers = 3 * np.eye(5)[kinds] + draw.normal(size=(len(kinds), 5))
        table = pd.DataFrame(numbers, columns=["a", "b", "c", "d", "e"])
        table["id"] = np.arange(len(kinds)) + 200 * begin
        table["name"], table["sku"] = "it", "S1"
        if name != "new":
            table["class"] = [classes[kind] for kind in kinds]
        vectors = {"vector": list(numbers)} if page == "howto/vectors" else {}
        streams = name == "rows" and page == "training"  # numbers alone can be streamed
        kept = table.drop(columns=["name", "sku"] if streams else [])
        kept.assign(**vectors).to_parquet(here / f"{name}.parquet")
        np.save(here / f"{name}.npy", numbers.astype("float32"))
        if name == "rows" and page in ("report", "training"):
            parts = ["valid", "test", "train", "train", "train"]
            table["part"] = [parts[one // 5 % 5] for one in range(len(kinds))]
        table.to_csv(here / f"{name}.csv", index=False)
    paths = [*classes, "animal/bird"]
    (here / "tree.csv").write_text("".join(f"{path}\n" for path in ["path", *paths]))
    (here / "map.csv").write_text("old,new\nplant/oak,plant/oak\n")
    (here / "ids.txt").write_text("19\n20\n")
    (here / "leavers.csv").write_text("person\n21\n")
    (here / "run.yaml").write_text("data: rows.csv\nlabel: class\nsplit: part\nout: first\n")


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED)
def test_the_commands_of_a_reference_page_run_in_order(page, tmp_path):
    lines = commands_of(page)
    assert len(lines) == TYPED[page]
    write_what_a_reader_has(tmp_path, page)
    if page == "report":
        type_in("hierlearn train rows.csv --label class --split part --out model", tmp_path)
    for line in lines:
        line = line.replace("model --stream", "streamed --stream")  # the others know splits
        written = re.search(r" (?:--out|-o) ([\w./]+)", line)
        named = Path(written[1]).parts[0] if written and "--resume" not in line else "none"
        out = tmp_path / named
        if out.is_dir():  # each command of a page writes what it names anew
            shutil.rmtree(out)
        out.unlink(missing_ok=True)
        type_in(line, tmp_path)
        assert not written or (tmp_path / written[1]).exists()


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
