"""Small models that are served, and what starts a server in a process of its own."""

import numpy as np
import pytest

from hierlearn.datasets import read_table
from hierlearn.pipeline import train
from hierlearn.training import Plan
from service.client import Running

CLASSES = ["animal/dog/pug", "animal/dog/lab", "animal/cat", "plant/oak", "plant/rose"]
WORDS = [
    "wrinkled snores small",
    "retrieves water fetch",
    "purrs meow whiskers",
    "acorn trunk tall",
    "thorn red garden",
]
SETTINGS = {"epochs": 4, "batch_size": 16, "learning_rate": 0.02}


def write_rows(path, count=80, seed=0):
    """A table of numbers, some missing, a category, a text and a date."""
    draw = np.random.default_rng(seed)
    lines = ["key,a,b,kind,note,day,class"]
    for row in range(count):
        number = int(draw.integers(0, 5))
        a, b = number + draw.normal(0, 0.3), number**2 % 3 + draw.normal(0, 0.3)
        words = " ".join(draw.permutation(WORDS[number].split())[:2])
        missing = "" if row % 6 == 0 else f"{b:.4f}"
        day = f"2024-0{number + 1}-1{row % 10}"
        kind = "xyz"[number % 3]
        lines.append(f"N{row},{a:.4f},{missing},{kind},{words} n{row},{day},{CLASSES[number]}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder that no test changes: ``table`` reads all columns, ``texts`` has a memory."""
    folder = tmp_path_factory.mktemp("models")
    write_rows(folder / "rows.csv")
    known = {"label": "class", "id_column": "key"}
    plan = Plan(recipe="hcl", network_options={"width": 8}, settings=SETTINGS)
    columns = {**known, "ignore": ["day"]}
    train(
        read_table(folder / "rows.csv", **known),
        plan,
        out=folder / "table",
        metadata={"columns": known},
    )
    columns = {**known, "text": "note"}
    plan = Plan(loss="bce", head="neighbors", head_options={"scale": 1.0}, settings=SETTINGS)
    train(
        read_table(folder / "rows.csv", **columns),
        plan,
        out=folder / "texts",
        metadata={"columns": columns},
    )
    columns = {**known, "features": ["a", "b"]}
    train(
        read_table(folder / "rows.csv", **columns),
        plan,
        out=folder / "numbers",
        metadata={"columns": columns},
    )
    return folder


@pytest.fixture
def started(tmp_path):
    """Start servers that end with the test: ``started(folder, *words)``."""
    running = []

    def start(folder, *words, **more):
        running.append(Running(folder, *words, cwd=tmp_path, **more))
        return running[-1]

    yield start
    for one in running:
        one.end()
