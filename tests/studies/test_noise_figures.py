"""The figures and tables of a noise study, by hand and by SciPy."""

import csv
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from hierlearn.studies.noise_figures import against_first, as_csv, as_markdown
from studies.handmade_noise import VALUES, summary


def test_figures_and_their_tests():
    found = summary()
    assert found["candidates"] == list(VALUES)
    assert found["labels"] == ["Flat", "Firm", "Weak", "Like"]
    assert found["directions"] == {
        "terminal-accuracy": "up",
        "lca-height": "down",
        "level-1": "up",
    }
    column = found["figures"]["labels"]["terminal-accuracy"][1]
    assert column[1]["mean"] == pytest.approx(np.mean(VALUES["firm"][1]))
    assert column[1]["deviation"] == pytest.approx(np.std(VALUES["firm"][1], ddof=1))
    assert column[1]["difference"] == pytest.approx(0.46 / 3)
    raw = [stats.ttest_rel(VALUES[key][1], VALUES["flat"][1]).pvalue for key in VALUES][1:]
    smallest = min(raw)
    assert min(one["p"] for one in column[1:]) == pytest.approx(3 * smallest)  # Holm over three
    assert [one["significant"] for one in column] == [False, True, True, False]
    json.dumps(found)


def test_the_harm_is_the_change_seed_by_seed():
    column = summary()["harm"]["labels"]["terminal-accuracy"]
    for one, (before, after) in zip(column, VALUES.values(), strict=True):
        assert one["values"] == pytest.approx(np.subtract(after, before))
        assert one["mean"] == pytest.approx(np.mean(after) - np.mean(before))
    assert column[1]["difference"] == pytest.approx(column[1]["mean"] - column[0]["mean"])


def test_figures_that_are_not_defined():
    column = against_first([[0.5, math.nan], [0.5, 0.6]])
    assert column[0]["mean"] is None
    assert column[1] == {
        "mean": pytest.approx(0.55),
        "deviation": pytest.approx(0.0707, abs=1e-4),
        "values": [0.5, 0.6],
        "difference": None,
        "p": None,
        "significant": False,
    }


def test_the_table_shows_what_the_figures_are_and_bold_what_is_better():
    text = as_markdown(summary(kinds=("labels", "hierarchy")))
    assert text.count("## ") == 2
    lines = text.splitlines()
    assert lines[0] == "## Label noise"
    assert lines[2].startswith("| | terminal-accuracy ↑ at 0 % | terminal-accuracy ↑ at 40 % |")
    rows = {line.split(" | ")[0].strip("| "): line for line in lines[4:8]}
    assert "| **76.7** ± 1.6 |" in rows["Firm"]  # accuracy
    assert "| **0.700** ± 0.048 |" in rows["Firm"]  # distance
    assert "**" not in rows["Flat"] + rows["Weak"] + rows["Like"]
    assert "Bold: better than Flat at that rate with p < 0.05" in lines[-1]
    assert as_markdown(summary(seeds=1)).endswith("One seed: no spread, no test.\n")
    assert as_markdown(summary(improving=["weak", "like"])).endswith(
        "A run of these still improved at its last epoch: weak, like (label noise, 40 %).\n"
    )


def test_one_line_per_figure():
    found = summary()
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == 2 * 3 * 4  # rates, metrics, losses
    one = next(
        row
        for row in rows
        if (row["candidate"], row["metric"], row["rate"]) == ("weak", "level-1", "0.4")
    )
    figure = found["figures"]["labels"]["level-1"][1][2]
    assert float(one["mean"]) == figure["mean"]
    assert float(one["p"]) == figure["p"]
    assert (one["kind"], one["significant"], one["seeds"]) == ("labels", "True", "3")
