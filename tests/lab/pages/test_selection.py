"""The map of what a curriculum selected: every pixel, its levels, and the classes it names."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.lab.pages import plots

TREE = Hierarchy.from_paths(["a/b", "a/c/d", "e/f", "<b>/g"])  # levels of 3, 4 and 1
SVG = "{http://www.w3.org/2000/svg}"


def pixels_of(uri):
    """Read an image with another library than the one that wrote it: percent of opacity."""
    image = pytest.importorskip("PIL.Image")
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    opened = image.open(io.BytesIO(data))
    opened.load()
    rgba = np.asarray(opened.convert("RGBA"))
    assert (rgba[..., :3] == plots.COLOR).all()
    return np.rint(rgba[..., 3] / 2.55).astype(int)


def shares_of(epochs, seed=0):
    draws = np.random.default_rng(seed)
    return draws.integers(0, 101, (epochs, len(TREE))).astype(np.uint8)


def root_of(text):
    return ElementTree.fromstring(text.replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))


@pytest.mark.parametrize("epochs", [1, 7])
def test_one_row_per_class_and_one_column_per_epoch(epochs):
    shares = shares_of(epochs)
    root = root_of(plots.selection_map(shares, TREE))
    found = pixels_of(root.find(f"{SVG}image").get("href"))
    assert found.shape == (len(TREE), epochs)
    assert (found == shares.T).all()
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["level 1", "level 2", "level 3", "1", str(epochs), "epoch"]


def test_many_classes_and_epochs_share_pixels_within_their_level():
    names = [f"{a}/{b}" for a in range(5) for b in range(300)]
    tree = Hierarchy.from_paths(names)
    shares = np.zeros((900, len(tree)), dtype=np.uint8)
    shares[:, :5] = 100  # the first level always, the second never
    found = pixels_of(re.search(r'href="([^"]+)"', plots.selection_map(shares, tree))[1])
    assert found.shape[1] == plots.MOST_COLUMNS
    assert found.shape[0] <= plots.MOST_ROWS + 2
    assert set(found[0]) == {100}
    assert set(found[1:].ravel()) == {0}


def test_neighbors_are_averaged_by_hand():
    values = np.array([[10, 0], [20, 0], [30, 99], [40, 99], [60, 0]], dtype=np.uint8)
    assert plots.gather(values, 2).tolist() == [[15, 0], [43, 66]]
    assert plots.gather(values, 5) is values


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
    text = page.read_text(encoding="utf-8")
    assert text.count('class="selection"') == 1
    uri = re.search(r'<svg class="selection".*?href="([^"]+)"', text, re.DOTALL)[1]
    assert (pixels_of(uri) == shares.T).all()
