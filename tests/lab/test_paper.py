"""The paper's rows, its layout, and what of it holds: from made-up summaries."""

import pytest

from hierlearn.lab import paper
from lab.test_tables import figure

OURS = ("HCL", "HCL, class losses averaged")


def test_the_papers_rows_and_its_printed_figures():
    names = [row.candidate.label for row in paper.ROWS if 2 in row.tables]
    assert names == ["CrossEntropy", "FocalLoss", "Hier-CE", "SoftLabels", *OURS]
    ablation = [row.candidate.label for row in paper.ROWS if 1 in row.tables]
    assert ablation == ["CrossEntropy", "HCL-Hier", "HCL-CL", *OURS]
    assert paper.ROWS[0].printed == {
        "diatoms": (74.45, 81.00, 1.26),
        "imclef07d": (90.45, 93.33, 0.35),
    }
    literal = {row.candidate.label: row.candidate for row in paper.ROWS}
    assert literal["HCL"].options == literal["HCL-CL"].options == {}
    assert literal[OURS[1]].options == {"normalize": "losses"}
    figures = {m: [figure(0.5), figure(0.6)] for m in paper.COLUMNS}
    summary = {"candidates": ["bce", "focal"], "figures": figures}
    text = paper.as_markdown({"diatoms": summary}, 2)
    assert "| CrossEntropy | 50.00 ± 1.00 | 74.45 |" in text
    assert len(text.splitlines()) == 2 + 6


def summary_of(by_key, selected=None, seeds=10):
    """Return a summary: Hit@1, whether it is significant, and HierDist, by candidate."""
    first = next(iter(by_key.values()))[0]
    hits = [figure(hit, hit - first, 0.5, real) for hit, real, _ in by_key.values()]
    far = [figure(distance) for *_, distance in by_key.values()]
    figures = {"hit@1": hits, "hier-dist": far}
    return {
        "candidates": list(by_key),
        "figures": figures,
        "selected": selected or {},
        "seeds": seeds,
    }


FOUND = {
    "bce": (0.7450, False, 1.25),
    "hxe": (0.7400, False, 1.3),
    "soft-labels": (0.7700, True, 1.3),
    "hcl-hier": (0.7600, True, 1.3),
    "hcl-paper": (0.6000, True, 1.8),
    "hcl-paper:normalize=losses": (0.7550, True, 1.3),
}
AS_PRINTED = {
    "bce": (0.9045, False, 0.41),
    "hxe": (0.9085, True, 0.3),
    "soft-labels": (0.9060, False, 0.3),
    "hcl-hier": (0.8940, True, 0.3),
    "hcl-paper": (0.8850, True, 0.3),
    "hcl-paper:normalize=losses": (0.8936, True, 0.3),
}


def test_what_holds_is_told_from_the_figures():
    kept = {"hcl-paper": 0.7, "hcl-paper:normalize=losses": 0.994}
    said = paper.verdict(
        {"diatoms": summary_of(FOUND, kept), "imclef07d": summary_of(AS_PRINTED)}
    ).splitlines()
    assert said[0].startswith("Hit@1 of 10 seeds and its difference from CrossEntropy")
    assert said[1:] == [
        "holds     CrossEntropy: Diatoms 74.50 (74.45); IMCLEF 90.45 (90.45)",
        "holds     HierDist of CrossEntropy: Diatoms 1.25 (1.26); IMCLEF 0.41 (0.35)",
        # A gain that is not significant is none.
        "in part   Hier-CE: Diatoms 74.00, -0.50 (75.12, +0.67); "
        "IMCLEF 90.85, +0.40* (90.85, +0.40) holds",
        # A gain where a loss is printed; no difference where none is.
        "in part   SoftLabels: Diatoms 77.00, +2.50* (72.36, -2.09); "
        "IMCLEF 90.60, +0.15 (90.45, +0.00) holds",
        "in part   HCL-Hier: Diatoms 76.00, +1.50* (75.12, +0.67) holds; "
        "IMCLEF 89.40, -1.05* (90.45, +0.00)",
        "in part   HCL, class losses averaged: Diatoms 75.50, +1.00* (75.21, +0.76) holds, "
        "99.4 % of classes selected; IMCLEF 89.36, -1.09* (90.95, +0.50)",
        "does not  HCL: Diatoms 60.00, -14.50* (75.21, +0.76), 70.0 % of classes selected; "
        "IMCLEF 88.50, -1.95* (90.95, +0.50)",
    ]


@pytest.mark.parametrize(("hit", "state"), [(0.7544, "holds"), (0.7546, "does not")])
def test_a_row_is_reached_within_a_point(hit, state):
    said = paper.verdict({"diatoms": summary_of({"bce": (hit, False, 1.26)}, seeds=1)})
    assert said.splitlines()[0].startswith("Hit@1 of 1 seed ")
    (line,) = (one for one in said.splitlines() if " CrossEntropy: " in one and "Hier" not in one)
    assert line.startswith(f"{state:<8}  CrossEntropy")


@pytest.mark.parametrize(
    ("seeds", "hit", "state"),
    [
        (1, 0.9205, "does not"),
        (1, 0.9054, "holds"),
        (3, 0.9205, "holds"),
    ],
)
def test_of_one_seed_a_printed_tie_holds_only_within_itself(seeds, hit, state):
    """SoftLabels and CrossEntropy are printed with the same figure; one seed tests nothing."""
    found = {"bce": (0.9045, False, 0.4), "soft-labels": (hit, False, 0.4)}
    said = paper.verdict({"imclef07d": summary_of(found, seeds=seeds)}).splitlines()
    (line,) = (one for one in said if " SoftLabels: " in one)
    assert line.startswith(f"{state:<8}  SoftLabels")


def test_the_whole_of_it_is_ten_lines():
    keys = [row.candidate.key for row in paper.ROWS]
    every = dict.fromkeys(keys, (0.74, False, 1.25))
    assert len(paper.verdict({"diatoms": summary_of(every)}).splitlines()) == 10


def test_the_protocol_is_the_papers():
    found = paper.protocol("imclef07d", seeds=3, settings={"device": "cpu"})
    assert found.seeds == 3
    assert found.settings["epochs"] == 60
    assert found.settings["device"] == "cpu"
    assert found.settings["learning_rate"] == 1e-3
    assert found.network["options"] == {"width": 800, "depth": 1, "dropout": 0.25}
    shorter = paper.protocol("diatoms", settings={"epochs": 2})
    assert shorter.settings["epochs"] == 2
