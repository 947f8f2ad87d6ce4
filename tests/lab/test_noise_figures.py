"""The figures and tables of a noise study, by hand and by SciPy."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from hierlearn.lab.candidates import Candidate
from hierlearn.lab.noise_figures import (
    against_first,
    as_markdown,
    over_draws,
    summarize_noise,
)
from lab.handmade_noise import RATES, VALUES, summary, summary_of

# By candidate, rate, draw and seed.
NESTED = {
    "flat": [[[0.80, 0.84], [0.82, 0.80], [0.81, 0.83]], [[0.60, 0.64], [0.63, 0.67], [0.61, 0.6]]],
    "firm": [[[0.79, 0.80], [0.82, 0.85], [0.80, 0.78]], [[0.75, 0.77], [0.78, 0.80], [0.76, 0.7]]],
}


def test_figures_and_their_tests():
    found = summary()
    assert found["candidates"] == list(VALUES)
    assert found["labels"] == ["Flat", "Firm", "Weak", "Like"]
    assert (found["unit"], found["draws"], found["seeds"]) == ("draws", 3, 1)
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


def test_the_unit_is_the_draw_and_seeds_are_averaged():
    found = summary_of(NESTED)
    assert (found["unit"], found["draws"], found["seeds"]) == ("draws", 3, 2)
    means = {key: np.mean(column[1], axis=1) for key, column in NESTED.items()}
    flat, firm = found["figures"]["labels"]["terminal-accuracy"][1]
    assert firm["values"] == NESTED["firm"][1]
    assert firm["mean"] == pytest.approx(means["firm"].mean())
    assert firm["deviation"] == pytest.approx(means["firm"].std(ddof=1))
    assert firm["p"] == pytest.approx(stats.ttest_rel(means["firm"], means["flat"]).pvalue)
    for figure, key in ((flat, "flat"), (firm, "firm")):
        wanted = stats.t.interval(0.95, 2, means[key].mean(), stats.sem(means[key]))
        assert figure["interval"] == pytest.approx(wanted)
        within = np.var(NESTED[key][1], axis=1, ddof=1)
        assert figure["seed_deviation"] == pytest.approx(math.sqrt(within.mean()))


def test_more_seeds_of_two_draws_are_no_more_evidence():
    few = over_draws([[[0.5], [0.6]], [[0.6], [0.75]]])
    many = over_draws([[[0.5] * 9, [0.6] * 9], [[0.6] * 9, [0.75] * 9]])
    assert many[1]["p"] == pytest.approx(few[1]["p"])
    assert many[1]["interval"] == pytest.approx(few[1]["interval"])


def test_the_unit_of_a_single_draw_is_the_seed():
    draws, seeds = summary(), summary(unit="seeds")
    assert (seeds["unit"], seeds["draws"], seeds["seeds"]) == ("seeds", 1, 3)
    for one, other in zip(
        draws["figures"]["labels"]["level-1"][1],
        seeds["figures"]["labels"]["level-1"][1],
        strict=True,
    ):
        for name in ("mean", "deviation", "interval", "p"):
            assert one[name] == other[name]
        assert [[value] for value in other["values"][0]] == one["values"]
        assert one["seed_deviation"] is None
        assert other["seed_deviation"] == pytest.approx(other["deviation"])


def test_the_harm_is_the_change_draw_by_draw():
    column = summary()["harm"]["labels"]["terminal-accuracy"]
    for one, (before, after) in zip(column, VALUES.values(), strict=True):
        assert np.ravel(one["values"]) == pytest.approx(np.subtract(after, before))
        assert one["mean"] == pytest.approx(np.mean(after) - np.mean(before))
    assert column[1]["difference"] == pytest.approx(column[1]["mean"] - column[0]["mean"])
    harm = summary_of(NESTED)["harm"]["labels"]["terminal-accuracy"]
    for one, (before, after) in zip(harm, NESTED.values(), strict=True):
        assert np.array(one["values"]) == pytest.approx(np.subtract(after, before))
    changes = [np.subtract(after, before).mean(axis=1) for before, after in NESTED.values()]
    assert harm[1]["p"] == pytest.approx(stats.ttest_rel(*changes).pvalue)


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
    drawn = over_draws([[[0.5, math.nan], [0.4, 0.5]], [[0.5, 0.5], [0.6, 0.6]]])
    assert (drawn[0]["mean"], drawn[0]["interval"], drawn[0]["seed_deviation"]) == (None,) * 3
    assert drawn[0]["values"] == [[0.5, None], [0.4, 0.5]]
    assert drawn[1]["p"] is None
    json.dumps(drawn, allow_nan=False)


def test_a_score_is_left_out_where_a_rate_lacks_it():
    clean = {"a": {"terminal-accuracy": [0.9], "lca-height": [0.1], "au-prc": [0.8]}}
    wrong = {"a": {"terminal-accuracy": [0.8], "lca-height": [0.2]}}
    scored = {"a": {**wrong["a"], "au-prc": [0.7]}}
    by_kind = {"hierarchy": [[clean], [wrong]], "labels": [[clean], [scored]]}
    config = {
        "corrupted": {kind: [[0.0], [0.4]] for kind in by_kind},
        "still_improving": {kind: [[], []] for kind in by_kind},
    }
    found = summarize_noise(by_kind, RATES, [Candidate("a", loss="bce")], config)
    assert "au-prc" not in found["figures"]["hierarchy"]
    assert found["figures"]["labels"]["au-prc"][1][0]["mean"] == 0.7
    assert found["metrics"] == ["terminal-accuracy", "lca-height", "au-prc"]
    text = as_markdown(found)
    assert text.count("| au-prc ↑ |") == 1
    assert text.index("## Label noise") < text.index("| au-prc ↑ |")


def test_the_table_shows_what_the_figures_are_and_bold_what_is_better():
    text = as_markdown(summary(kinds=("labels", "hierarchy")))
    assert text.count("## ") == 2
    lines = text.splitlines()
    assert lines[0] == "## Label noise"
    assert lines[2] == "| terminal-accuracy ↑ | 0 % | 40 % |"
    assert lines[9] == "| lca-height ↓ | 0 % | 40 % |"
    accuracy = {line.split(" | ")[0].strip("| "): line for line in lines[4:8]}
    distance = {line.split(" | ")[0].strip("| "): line for line in lines[11:15]}
    half = stats.t.ppf(0.975, 2) * stats.sem(VALUES["firm"][1])
    assert f"| **76.7** ± {100 * half:.1f} |" in accuracy["Firm"]
    assert f"| **0.700** ± {3 * half:.3f} |" in distance["Firm"]
    for name in ("Flat", "Weak", "Like"):
        assert "**" not in accuracy[name] + distance[name]
    assert lines[-1] == (
        "Mean ± half the 95 % interval over 3 draws of 1 seed each, on clean test rows. Bold: "
        "better than Flat at that rate with p < 0.05 (paired t-test over draws, Holm)."
    )
    seeds = as_markdown(summary(unit="seeds"))
    assert "interval over 3 seeds under one draw of the noise, on clean test rows" in seeds
    assert "(paired t-test over seeds, Holm)" in seeds
    assert as_markdown(summary(count=1)).endswith("One draw, one seed: no interval, no test.\n")
    improving = {"labels": [[], ["weak", "like"]]}
    assert as_markdown(summary(still_improving=improving)).endswith(
        "A run of these still improved at its last epoch: weak, like (label noise, 40 %).\n"
    )
