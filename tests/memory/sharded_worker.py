"""Searches of a memory that two processes share: each writes what it found into a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory import Part, ShardedSearch
from hierlearn.memory.search import DISTANCES
from hierlearn.networks.memories import embeddings_of, memory_heads
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.remember import MemoryFolder
from hierlearn.pipeline.run import Reporting
from hierlearn.training.processes import processes
from training.datasets import neighbor_plan, problem


def random_rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def copies():
    """Ten rows, fifteen times each, sorted."""
    rows = torch.arange(10.0).repeat_interleave(15)[:, None].repeat(1, 3)
    return torch.tensor([[0.0, 0, 0], [4, 4, 5], [9, 9, 9]]), rows


def grid():
    """Many different rows at equal distances."""
    draw = torch.Generator().manual_seed(5)
    rows = torch.randint(-2, 3, (150, 4), generator=draw).float()
    return torch.randint(-2, 3, (6, 4), generator=draw).float(), rows


def equal():
    """All rows are equal."""
    return torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.ones(150, 2)


TIED = {"copies": copies, "grid": grid, "equal": equal}


def searched(make, k):
    def case():
        queries, rows = make()
        return queries, rows.half(), k

    return case


CASES = {
    "spread": lambda: (random_rows(9, 16), random_rows(3001, 16, seed=1).half(), 20),
    "near duplicates": lambda: (
        100 * random_rows(20, 8),
        (100 * random_rows(20, 8)).repeat(30, 1) + 1e-5 * random_rows(600, 8, seed=2),
        10,
    ),
    "members": lambda: (random_rows(2, 5, 6), random_rows(2, 101, 6, seed=1), 7),
    "fewer rows than asked for": lambda: (random_rows(4, 3), random_rows(5, 3, seed=1), 9),
    "one row": lambda: (random_rows(4, 3), random_rows(1, 3, seed=1), 2),
    "copies": searched(copies, 9),
    "grid": searched(grid, 30),
    "equal": searched(equal, 25),
}


def new_rows():
    return problem(seed=3).inputs


def save_model(folder):
    """Save a model with three shards and rows that were forgotten."""
    train(problem(rows=30), neighbor_plan(epochs=1), reporting=Reporting(bar=False)).save(folder)
    more = problem(seed=1)
    with MemoryFolder.open(folder) as memory:
        total = len(memory)
        memory.remember(more.inputs[:10], more.labels[:10], ids=[f"a{n}" for n in range(10)])
        rest = 34 - total - 10
        memory.remember(
            more.inputs[10 : 10 + rest],
            more.labels[10 : 10 + rest],
            ids=list("bcdefghijklmnopqrst")[:rest],
        )
        memory.forget(["a3", "a4", "b", "0"])


def main(folder):
    with processes("cpu") as here:
        part = Part(here.rank, here.world)
        found = {}
        for name, make in CASES.items():
            queries, rows, k = make()
            begin, end = part.bounds(rows.shape[-2])
            search = ShardedSearch(rows[..., begin:end, :], rows.shape[-2], part)
            for distance in DISTANCES:
                found[f"{name} {distance}"] = search(queries, k, distance)
        queries, rows, k = CASES["spread"]()
        queries[1] = torch.nan
        begin, end = part.bounds(len(rows))
        found["not finite"] = ShardedSearch(rows[begin:end], len(rows), part)(queries, k)
        model = Pipeline.load(folder / "model", part=part)
        found["probabilities"] = model.probabilities(new_rows())
        evidence = explain(model, new_rows(), 5)
        (head,) = memory_heads(model.network)["main"]
        said = {
            "explained": [[[one.id, one.weight] for one in row] for row in evidence],
            "held": len(head.memory.embeddings),
        }
        try:
            embeddings_of(model.network)
        except HierlearnError as error:
            said["refused"] = str(error)
        torch.save(found, folder / f"{here.rank}.pt")
        (folder / f"{here.rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
