"""Small trained models of every kind of input, each with a table of rows to predict on."""

from dataclasses import replace
from functools import cache

import numpy as np

from hierlearn.datasets import read_table
from hierlearn.pipeline import train
from hierlearn.training import Plan
from mixed_rows import make_rows, write_csv

CLASSES = ["animal/dog/pug", "animal/dog/lab", "animal/cat", "plant/oak", "plant/rose"]
WORDS = ["pug snores nose", "labrador fetch water", "cat purrs", "oak acorn trunk", "rose thorn"]
KINDS = ("numbers", "neighbors", "texts", "mixed")


def number_lines(count, seed):
    """Rows of id, three numbers and a class, with a cell that is missing now and then."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 5, count)
    values = np.stack([kinds, kinds**2 % 3, kinds % 2], axis=1) + draw.normal(0, 0.6, (count, 3))
    yield "id,a,b,c,class"
    for row, (kind, cells) in enumerate(zip(kinds, values, strict=True)):
        third = "" if row % 6 == 0 else f"{cells[2]:.5f}"
        yield f"r{row},{cells[0]:.5f},{cells[1]:.5f},{third},{CLASSES[kind]}"


def text_lines(count, seed):
    """Rows of id, words and a class."""
    draw = np.random.default_rng(seed)
    yield "id,words,class"
    for row in range(count):
        kind = int(draw.integers(5))
        words = " ".join(draw.permutation([*WORDS[kind].split(), f"x{row % 17}"]))
        yield f'r{row},"{words}, ""{row}""",{CLASSES[kind]}'


def write_rows(kind, path, count, seed):
    """Write a table for a kind of model."""
    if kind == "mixed":
        write_csv(path, make_rows(count, seed))
    else:
        lines = text_lines if kind == "texts" else number_lines
        path.write_text("\n".join(lines(count, seed)) + "\n")
    return path


PLANS = {
    "numbers": Plan(recipe="hcl", network_options={"width": 24}),
    "neighbors": Plan(loss="bce", head="neighbors", head_options={"scale": 1.0}),
    "texts": Plan(recipe="hcl", network_options={"width": 16}),
    "mixed": Plan(recipe="hcl", network_options={"width": 16}),
}


def make_model(kind, folder, count=200):
    """Train a model in ``folder/kind``; return its folder."""
    out = folder / kind
    known = {"label": "class"} | ({"text": "words"} if kind == "texts" else {})
    known |= {"ignore": ["sku", "shop"]} if kind == "mixed" else {"id_column": "id"}
    dataset = read_table(write_rows(kind, folder / f"{kind}-train.csv", count, 0), **known)
    plan = replace(PLANS[kind], settings={"epochs": 2, "batch_size": 32, "learning_rate": 0.02})
    train(dataset, plan, out=out, metadata={"columns": known})
    return out


@cache
def made_model(kind, folder):
    """Return what ``make_model`` makes, once per process and folder."""
    return make_model(kind, folder)
