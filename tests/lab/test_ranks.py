"""Ranks over datasets, against SciPy, by hand, and against Demsar's example."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from hierlearn.errors import HierlearnError
from hierlearn.lab.ranks import as_markdown, publish_ranks, rank_studies, rank_verdict
from hierlearn.lab.study import Study, StudyError
from lab.rank_studies import from_ranks, studies, study

LOSSES = ("bce", "hxe", "hcl")
# hcl first, hxe second, bce last on every one of eight datasets.
CLEAR = [[0.1 + 0.01 * row, 0.5 - 0.01 * row, 0.9] for row in range(8)]


# Demsar (2006), section 3.2.2: C4.5 with m and cf tuned, 14 datasets, Friedman's chi square 9.28.
DEMSAR = [3.143, 2.000, 2.893, 1.964]
NAMES = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]


def test_demsars_example():
    chi = 12 * 14 / 20 * (sum(rank**2 for rank in DEMSAR) - 4 * 25 / 4)
    assert chi == pytest.approx(9.28, abs=0.01)  # the figures are his
    p = float(stats.chi2.sf(chi, 3))
    at_5 = from_ranks(DEMSAR, 1.25, p=p, labels=NAMES)  # q = 2.569
    assert at_5["differing"] == []
    assert at_5["groups"] == [["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]]
    at_10 = from_ranks(DEMSAR, 1.12, p=p, labels=NAMES)  # q = 2.291
    assert at_10["differing"] == [["C4.5+m+cf", "C4.5"], ["C4.5+m", "C4.5"]]
    assert at_10["groups"] == [["C4.5+m+cf", "C4.5+m", "C4.5+cf"], ["C4.5+cf", "C4.5"]]


def test_of_many_methods_only_the_pairs_of_the_best_are_told():
    ranks = [float(number) for number in range(1, 13)]
    words = rank_verdict(from_ranks(ranks, 4.5))
    assert "28 pairs of mean ranks differ by more than the critical difference 4.50" in words
    assert "; m0 is before m5, m6, m7, m8, m9, m10, m11." in words
    assert "Not significantly behind it: m1, m2, m3, m4." in words
    assert "m1 before" not in words
    assert "m1 before" in rank_verdict(from_ranks(ranks[:8], 4.5))


def test_ranks_tests_and_verdict_of_a_clear_case(tmp_path):
    found = rank_studies(studies(tmp_path, CLEAR, LOSSES))
    assert found["mean_ranks"] == [3.0, 2.0, 1.0]
    assert found["friedman_p"] == pytest.approx(
        stats.friedmanchisquare(*np.transpose(CLEAR)).pvalue
    )
    # Demsar's table of q at 0.05: 2.343 for three methods.
    assert found["critical_difference"] == pytest.approx(2.343 * math.sqrt(12 / 48), rel=1e-3)
    assert found["values"] == pytest.approx(np.array(CLEAR))
    assert found["datasets"] == [f"data{row}" for row in range(8)]
    assert found["differing"] == [["hcl", "bce"]]
    assert found["groups"] == [["hcl", "hxe"], ["hxe", "bce"]]
    assert found["verdict"] == (
        "By au-prc on 8 datasets hcl has the best mean rank (1.00 of 3). Friedman's test finds "
        "that not all rank alike (p < 0.001). Mean ranks differ by more than the critical "
        "difference 1.17: hcl before bce. Not significantly different: hcl and hxe; hxe and bce."
    )
    json.dumps(found)


def test_less_may_be_better(tmp_path):
    folders = [
        study(
            tmp_path / str(row),
            str(row),
            dict(zip(LOSSES, values, strict=True)),
            metric="lca-height",
        ).folder
        for row, values in enumerate(CLEAR)
    ]
    assert rank_studies(folders, "lca-height")["mean_ranks"] == [1.0, 2.0, 3.0]


def test_friedman_comes_first(tmp_path):
    found = from_ranks([1.0, 3.0, 3.0], 1.5, p=0.2)
    assert found["differing"] == []
    assert found["groups"] == [["m0", "m1", "m2"]]
    assert "(p = 0.200), so no pair is claimed to differ." in rank_verdict(found)


def test_few_datasets_and_two_losses(tmp_path):
    words = rank_studies(studies(tmp_path, [[0.2, 0.8], [0.3, 0.4]], ("bce", "hcl")))["verdict"]
    assert "Friedman's test needs three losses; for two there is only Nemenyi's." in words
    assert "No two mean ranks differ by more than the critical difference 1.39." in words
    assert "With 2 datasets these tests have little power" in words
    assert "little power" not in rank_verdict(from_ranks([1.0, 2.0, 3.0], 1.0, datasets=5))
    assert "With 4 datasets" in rank_verdict(from_ranks([1.0, 2.0, 3.0], 1.0, datasets=4))


def test_losses_that_some_study_lacks_are_left_out_and_named(tmp_path):
    one = study(tmp_path / "a", "a", {"bce": 0.1, "hxe": 0.2, "hcl": 0.3}).folder
    two = study(tmp_path / "b", "b", {"hcl": 0.3, "focal": 0.9, "bce": 0.2}).folder
    found = rank_studies([one, two])
    assert found["candidates"] == ["bce", "hcl"]
    assert found["left_out"] == ["hxe", "focal"]
    text = as_markdown(found)
    assert "Left out, not being finished in every study: hxe, focal." in text


def test_unfinished_losses_do_not_count(tmp_path):
    folders = studies(tmp_path, [[0.1, 0.2, 0.3]] * 2, LOSSES)
    runs = (folders[1] / "runs.jsonl").read_text().splitlines()
    (folders[1] / "runs.jsonl").write_text("\n".join(runs[:-1]) + "\n")  # hcl lacks a seed
    assert rank_studies(folders)["left_out"] == ["hcl"]


def test_the_table_is_best_first(tmp_path):
    lines = as_markdown(rank_studies(studies(tmp_path, CLEAR[:2], LOSSES))).splitlines()
    assert lines[0] == "| | mean rank ↓ | data0: au-prc ↑ | data1: au-prc ↑ |"
    assert lines[2:5] == [
        "| hcl | 1.00 | 0.900 | 0.900 |",
        "| hxe | 2.00 | 0.500 | 0.490 |",
        "| bce | 3.00 | 0.100 | 0.110 |",
    ]


def test_datasets_of_one_name_are_called_by_their_folder(tmp_path):
    values = {"bce": 0.1, "hcl": 0.2}
    one = study(tmp_path / "a", "rows", values, changes={"source": "x"}).folder
    two = study(tmp_path / "b", "rows", values, changes={"source": "y"}).folder
    assert rank_studies([one, two])["datasets"] == [str(one), str(two)]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("au-pcr", "unknown metric 'au-pcr'; did you mean 'au-prc'"),
        (
            "mean-level",
            "metric 'mean-level' is not a single number of which more or less is better",
        ),
        ("level-accuracy", "metric 'level-accuracy' is not a single number"),
        ("mrr", r"s0 has no mrr; it has au-prc, hier-dist, mean-level"),
    ],
)
def test_metrics_that_cannot_rank(metric, message, tmp_path):
    with pytest.raises(HierlearnError, match=message):
        rank_studies(studies(tmp_path, CLEAR[:2], LOSSES), metric)


def test_studies_that_cannot_be_ranked(tmp_path):
    one = study(tmp_path / "a", "a", {"bce": 0.1, "hcl": 0.2}).folder
    with pytest.raises(HierlearnError, match="ranks need at least two studies, not 1"):
        rank_studies([one])
    with pytest.raises(HierlearnError, match=r"a and .*a are studies of the same dataset \(a, 2"):
        rank_studies([one, one])
    other = study(tmp_path / "b", "b", {"hxe": 0.1, "sample-curriculum": 0.2}).folder
    with pytest.raises(HierlearnError, match=r"no finished loss in common: .*a has 'bce', 'hcl'; "):
        rank_studies([one, other])
    partly = study(tmp_path / "c", "c", {"hxe": 0.1, "hcl": 0.2}).folder
    with pytest.raises(HierlearnError, match="only 'hcl' is finished in every study"):
        rank_studies([one, partly])
    unknown = study(tmp_path / "d", "d", {"bce": None, "hcl": 0.2}).folder
    with pytest.raises(HierlearnError, match=r"au-prc of 'bce' is not defined in .*d; rank by"):
        rank_studies([one, unknown])
    with pytest.raises(StudyError, match="holds no study"):
        rank_studies([one, tmp_path])


def test_a_corrupted_dataset_is_still_the_same(tmp_path):
    values = {"bce": 0.1, "hcl": 0.2}
    clean = study(tmp_path / "a", "rows", values, changes={"source": "x"})
    noisy = study(tmp_path / "b", "rows", values, changes={"source": "x; 10 % wrong"})
    config = {**noisy.config, "metadata": {"noise": {"source": "x"}}}
    (noisy.folder / "study.json").write_text(json.dumps(config))
    assert Study.open(noisy.folder).config["metadata"]["noise"] == {"source": "x"}
    with pytest.raises(HierlearnError, match="studies of the same dataset"):
        rank_studies([clean.folder, noisy.folder])


def test_groups_by_trying_every_set():
    """A group is a set of neighbors of which no two differ and that no neighbor can join."""
    draws = np.random.default_rng(0)
    for _ in range(200):
        count = int(draws.integers(2, 8))
        mean_ranks = draws.uniform(1, count, count).round(2).tolist()
        critical = float(draws.uniform(0.2, count))
        found = from_ranks(mean_ranks, critical)
        order = sorted(range(count), key=lambda one: mean_ranks[one])
        spans = [
            (a, b)
            for a in range(count)
            for b in range(a + 1, count)
            if mean_ranks[order[b]] - mean_ranks[order[a]] <= critical
        ]
        largest = [
            (a, b)
            for a, b in spans
            if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in spans)
        ]
        wanted = [[f"m{order[one]}" for one in range(a, b + 1)] for a, b in sorted(largest)]
        assert found["groups"] == wanted


def test_files(tmp_path):
    found = rank_studies(studies(tmp_path, CLEAR, LOSSES))
    written = publish_ranks(found, tmp_path / "out")
    assert [path.name for path in written] == ["ranks.json", "ranks.md"]
    assert json.loads(written[0].read_text()) == found
    assert found["verdict"] in written[1].read_text()
