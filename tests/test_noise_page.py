"""The figures of docs/noise.md are those of benchmarks/results/noise.json."""

import json
from pathlib import Path

import pytest

from hierlearn.studies.noise_figures import MAIN, table
from hierlearn.studies.noise_verdict import noise_verdict

REPO = Path(__file__).parents[1]
STUDIES = json.loads((REPO / "benchmarks" / "results" / "noise.json").read_text())["studies"]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study["dataset"]["name"])
def test_tables_and_verdict_are_made_from_the_results(study):
    page = (REPO / "docs" / "noise.md").read_text()
    for kind in study["kinds"]:
        assert "\n".join(table(study, kind, MAIN, range(len(study["rates"])))) in page
    said = " ".join(page.split())
    for paragraph in noise_verdict(study).split("\n\n"):
        assert paragraph in said
