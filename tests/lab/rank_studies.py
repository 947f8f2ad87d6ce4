"""Studies of several datasets without training: what they say is chosen."""

import json

from hierlearn import Hierarchy
from hierlearn.lab.ranks import differing, groups
from hierlearn.lab.study import Study
from reports.handmade_study import study as study_by_hand

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])


def study(folder, name, values, *, metric="au-prc", changes=None):
    """Write a study of a named dataset: a figure a loss, the same with every seed."""
    study_by_hand(
        folder,
        TREE,
        [["d"], ["a/b"]],
        {key: [[1, 2], [1, 3]] for key in values},
        metrics=(metric, "hier-dist", "mean-level"),
        values={key: {metric: value} for key, value in values.items()},
    )
    path = folder / "study.json"
    config = json.loads(path.read_text())
    config["dataset"] = {**config["dataset"], "name": name, **(changes or {})}
    path.write_text(json.dumps(config))
    return Study.open(folder)


def studies(folder, table, losses):
    """Write a study a row of a table, a column a loss; return the folders."""
    return [
        study(folder / f"s{row}", f"data{row}", dict(zip(losses, values, strict=True))).folder
        for row, values in enumerate(table)
    ]


def from_ranks(mean_ranks, critical, *, p=0.01, datasets=14, labels=None):
    """Return what is found of mean ranks that are given."""
    labels = labels or [f"m{number}" for number in range(len(mean_ranks))]
    found = {
        "metric": "au-prc",
        "level": 0.05,
        "datasets": ["d"] * datasets,
        "candidates": labels,
        "labels": labels,
        "mean_ranks": mean_ranks,
        "friedman_p": p,
        "critical_difference": critical,
    }
    found["differing"] = differing(found)
    found["groups"] = groups(found)
    return found
