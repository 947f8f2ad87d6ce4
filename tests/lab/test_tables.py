"""Tables and verdict are made from the numbers: a made-up summary with known answers."""

import copy
import csv
import io

from hierlearn.lab.summary import as_csv, as_latex, as_markdown, cell, signed, study_verdict, tex
from hierlearn.metrics import METRICS


def figure(mean, difference=None, p=None, significant=False):
    return {
        "mean": mean,
        "deviation": 0.01,
        "interval": [mean - 0.1, mean + 0.1],
        "values": [mean],
        "p": p,
        "difference": difference,
        "significant": significant,
        "best": False,
    }


SUMMARY = {
    "candidates": ["bce", "hxe", "hcl"],
    "labels": ["bce", "hxe", "hcl"],
    "uses_hierarchy": {"bce": False, "hxe": True, "hcl": True},
    "missing": [],
    "metrics": ["hit@1", "hier-dist"],
    "directions": {"hit@1": "up", "hier-dist": "down"},
    "level": 0.05,
    "seeds": 5,
    "figures": {
        "hit@1": [figure(0.7), figure(0.75, 0.05, 0.2), figure(0.76, 0.06, 0.01, True)],
        "hier-dist": [figure(1.2), figure(1.1, -0.1, 0.01, True), figure(1.4, 0.2, 0.02, True)],
    },
    "by_level": {"bce": [0.9, 0.5], "hxe": [0.9, 0.5], "hcl": [0.88, 0.6]},
    "still_improving": {"bce": 0, "hxe": 2, "hcl": 0},
}


def test_bold_is_significantly_better_and_nothing_else():
    text = as_markdown(SUMMARY)
    assert "| bce | 70.00 ± 1.00 | 1.200 ± 0.010 |" in text
    assert "| hxe * | 75.00 ± 1.00 | **1.100** ± 0.010 |" in text  # hit@1 is noise
    assert "| hcl | **76.00** ± 1.00 | 1.400 ± 0.010 |" in text  # hier-dist is worse
    assert "some of its runs still improved" in text
    latex = as_latex(SUMMARY)
    assert latex.count(r"\textbf") == 2
    assert r"\toprule" in latex


def test_one_seed_has_no_spread_and_no_test():
    single = copy.deepcopy(SUMMARY)
    single["seeds"] = 1
    for column in single["figures"].values():
        for one in column:
            one.update(deviation=None, significant=False)
    text = as_markdown(single)
    assert "±" not in text
    assert "One seed: no spread, no test." in text
    assert "With one seed no difference can be told from seed noise." in study_verdict(single)


def test_one_csv_line_per_figure():
    rows = list(csv.DictReader(io.StringIO(as_csv(SUMMARY))))
    assert len(rows) == 6
    assert rows[2] == {
        "candidate": "hcl",
        "metric": "hit@1",
        "mean": "0.76",
        "deviation": "0.01",
        "low": "0.66",
        "high": "0.86",
        "p": "0.01",
        "significant": "True",
        "seeds": "5",
    }


def test_the_verdict():
    text = study_verdict(SUMMARY)
    assert text.startswith("The hierarchy helps here: hxe beats bce beyond seed noise.")
    assert "hxe improves hier-dist by 0.100." in text
    assert (
        "hcl improves hit@1 by 6.00 points and degrades hier-dist by 0.200; its accuracy changes "
        "most at level 2 (+10.0 points)." in text
    )
    noise = copy.deepcopy(SUMMARY)
    for column in noise["figures"].values():
        for one in column:
            one["significant"] = False
    assert study_verdict(noise).startswith("No loss beats bce here beyond seed noise.")
    torn = copy.deepcopy(SUMMARY)
    torn["figures"]["hier-dist"][1]["significant"] = False
    assert study_verdict(torn).startswith("No loss beats bce in every respect; hcl gains on some")
    flat = copy.deepcopy(SUMMARY)
    flat["candidates"] = flat["labels"] = ["bce", "focal", "hcl"]
    flat["uses_hierarchy"]["focal"] = False
    flat["by_level"]["focal"] = [0.9, 0.5]
    assert study_verdict(flat).startswith("No hierarchical loss beats bce beyond seed noise, but")


def test_special_characters_and_missing_figures():
    assert tex("a_b & 5 %") == r"a\_b \& 5 \%"
    assert cell("hit@1", {"mean": None, "deviation": None}) == ("n/a", None)
    assert cell("au-prc", {"mean": 0.1234, "deviation": 0.01}) == ("0.123", "0.010")
    assert signed(METRICS["hit@1"], -0.1234) == "-12.34"
    assert signed(METRICS["hit@1"], 0.0, 1) == "+0.0"
