"""The figures of docs/noise.md are those of benchmarks/results/noise.json."""

import json
from pathlib import Path

import pytest

from hierlearn.lab.noise_figures import explain_tables, main_metrics, noise_verdict, rate_table

REPO = Path(__file__).parents[1]
STUDIES = json.loads((REPO / "benchmarks" / "results" / "noise.json").read_text())["studies"]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study["dataset"]["name"])
def test_tables_and_verdict_are_made_from_the_results(study):
    page = (REPO / "docs" / "noise.md").read_text()
    for kind in study["kinds"]:
        for metric in main_metrics(study, kind):
            assert "\n".join(rate_table(study, kind, metric)) in page
    said = " ".join(page.split())
    assert explain_tables(study) in said
    for paragraph in noise_verdict(study).split("\n\n"):
        assert paragraph in said
