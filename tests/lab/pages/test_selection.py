"""What a curriculum selected: the classes that were left out most, by name."""

import re

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.lab.pages import plots

TREE = Hierarchy.from_paths(["a/b", "a/c/d", "e/f", "<b>/g"])  # levels of 3, 4 and 1


def test_the_least_selected_are_named_with_the_epochs_they_had():
    shares = np.full((4, len(TREE)), 100, dtype=np.uint8)
    number = TREE.names.index("<b>/g")
    shares[:, number] = 0
    shares[:, 1] = [0, 50, 0, 10]
    told = plots.least_selected(shares, TREE)
    assert "2 of 8 classes were left out at times; the 2 least selected" in told
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', told)
    assert rows == [
        ("&lt;b&gt;/g", "2", "0.0", "never"),
        (TREE.names[1], "1", "15.0", "2 to 4"),
    ]
    told = plots.least_selected(shares, TREE.with_titles({number: "<i>"}))
    assert '&lt;b&gt;/g <span class="title">&lt;i&gt;</span></th>' in told
    assert told.count('class="title"') == 1


def test_nothing_left_out_is_said():
    shares = np.full((4, len(TREE)), 100, dtype=np.uint8)
    assert plots.least_selected(shares, TREE) == "<p>Every class was selected in every batch.</p>"


def test_a_study_keeps_what_was_selected(study, page):
    candidate = study.candidates[2]
    shares, log = study.selected(candidate), study.log(candidate)
    assert shares.shape == (len(log), len(study.hierarchy))
    for epoch, record in zip(shares, log, strict=True):
        levels = [epoch[level].mean() / 100 for level in study.hierarchy.level_slices]
        assert levels == pytest.approx(record["selected_by_level"], abs=0.006)
    assert study.selected(study.candidates[0]) is None
    assert plots.least_selected(shares, study.hierarchy) in page.read_text(encoding="utf-8")
