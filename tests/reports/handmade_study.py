"""Studies and summaries without training: what they say is chosen, so tests know every figure."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.candidates import Candidate
from hierlearn.lab.runner import Result
from hierlearn.lab.study import Study
from hierlearn.metrics import METRICS as ALL
from hierlearn.reports.decisions import Truth

METRICS = ("hit@1", "hier-dist")


def figure(mean, *, deviation=0.01, difference=None, p=None, significant=False, interval=None):
    found = {
        "mean": mean,
        "deviation": deviation,
        "interval": interval,
        "values": [] if mean is None else [mean - 0.01, mean + 0.01],
        "p": p,
        "significant": significant,
        "best": False,
    }
    return {**found, "difference": difference}


def summary(labels=("flat", "better", "worse"), **changes):
    """Three losses: the second significantly better than the first, the third worse."""
    keys = [f"loss{number}" for number in range(len(labels))]
    hits = [
        figure(0.7, interval=[0.66, 0.74]),
        figure(0.8, difference=0.1, p=0.01, significant=True, interval=[0.76, 0.83]),
        figure(0.5, difference=-0.2, p=0.0004, significant=True, interval=[0.45, 0.55]),
    ]
    far = [
        figure(1.0),
        figure(1.1, difference=0.1, p=0.3),
        figure(1.9, difference=0.9, p=0.02, significant=True),
    ]
    return {
        "candidates": keys,
        "labels": list(labels),
        "uses_hierarchy": dict.fromkeys(keys, True),
        "missing": [],
        "metrics": list(METRICS),
        "directions": {"hit@1": "up", "hier-dist": "down"},
        "level": 0.05,
        "seeds": 2,
        "figures": {"hit@1": hits[: len(keys)], "hier-dist": far[: len(keys)]},
        "by_level": {key: [0.9, 0.4] for key in keys},
        "severity": {key: [0.5, 0.2, 0.3] for key in keys},
        "still_improving": dict.fromkeys(keys, 0),
        **changes,
    }


def stored_rows(truth, decided):
    """Return what a study stores of (seeds, N) decided classes, without metrics of the table."""
    decided = np.asarray(decided, dtype=np.int32)
    h = truth.hierarchy
    levels = np.full(decided.shape, np.nan, dtype=np.float32)
    labels = [
        {int(c) for c in truth.closed[begin:end]}
        for begin, end in zip(truth.offsets[:-1], truth.offsets[1:], strict=True)
    ]
    for own, classes in zip(levels, decided.tolist(), strict=True):
        for row, c in enumerate(classes):
            odd = labels[row] ^ set(h.closure([c]))
            if odd:
                own[row] = len({int(h.levels[one]) for one in odd})
    probability = np.random.default_rng(0).random(decided.shape).astype(np.float32)
    return {
        "argmax": decided,
        "terminal": decided.copy(),
        "probability": probability,
        "exact": np.isnan(levels).astype(np.float32),
        "severity": levels,
    }


def study(
    folder,
    hierarchy,
    truth,
    decided,
    *,
    texts=None,
    log=(),
    metrics=METRICS,
    values=None,
):
    """Write a study of given decisions.

    Args:
        folder: where.
        hierarchy: the taxonomy.
        truth: the labels of each test row.
        decided: by loss, (seeds, N) decided classes.
        texts: of the rows.
        log: the epochs of every loss.
        metrics: of the table.
        values: by loss, figures that are not drawn at random.
    """
    candidates = [Candidate(key, loss="bce", label=key) for key in decided]
    seeds = len(next(iter(decided.values())))
    config = {
        "candidates": [asdict(candidate) for candidate in candidates],
        "uses_hierarchy": {candidate.key: False for candidate in candidates},
        "seeds": list(range(seeds)),
        "metrics": list(metrics),
        "settings": {"epochs": 5, "patience": None},
        "by_candidate": {},
        "network": {"name": "mlp", "options": {"width": 8}},
        "valid_fraction": 0.1,
        "dataset": {
            "name": "by hand",
            "source": "",
            "rows": len(truth),
            "splits": {"test": len(truth)},
            "hierarchy": {
                "classes": len(hierarchy),
                "kind": "tree" if hierarchy.is_tree else "DAG",
                "levels": hierarchy.depth,
                "leaves": len(hierarchy.leaves),
                "fingerprint": hierarchy.fingerprint,
            },
        },
        "metadata": {"versions": {"hierlearn": "0"}},
    }
    made = Study.begin(folder, config)
    labels = Labels(truth, hierarchy)
    made.set_data(hierarchy, labels, texts)
    draw = np.random.default_rng(0)
    for candidate in candidates:
        rows = stored_rows(Truth(hierarchy, *labels.closed), decided[candidate.key])
        for name in metrics:
            if ALL[name].per_row:
                rows.setdefault(name, draw.random(rows["exact"].shape).astype(np.float32))
        runs = [
            {
                "candidate": candidate.key,
                "seed": seed,
                "test": {
                    **dict.fromkeys(metrics, float(draw.random())),
                    **(values or {}).get(candidate.key, {}),
                    "accuracy": draw.random(hierarchy.depth).tolist(),
                },
                "best_epoch": 3,
                "still_improving": False,
                "settings": config["settings"],
                "loss_options": {},
                "seconds": 1.0,
            }
            for seed in range(seeds)
        ]
        made.add(candidate, Result(runs, rows, list(log)))
    return made
