"""Noise curves as files: every panel and loss is there, and they are the same again."""

import sys
import xml.etree.ElementTree as ET

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hierlearn.errors import HierlearnError
from hierlearn.reports.noise_curves import COLORS, draw, noise_curves
from hierlearn.studies.noise_figures import DECIDED
from studies.handmade_noise import VALUES, summary


def test_pngs_and_svgs_that_are_the_same_again(tmp_path):
    found = summary(kinds=("labels", "hierarchy"))
    written = noise_curves(found, tmp_path / "a")
    assert [path.name for path in written] == [
        "curves.png",
        "curves.svg",
        "levels.png",
        "levels.svg",
    ]
    for path in written:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
    again = noise_curves(found, tmp_path / "b")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_a_line_is_the_figures_of_its_loss():
    found = summary(kinds=("labels", "hierarchy"))
    figure = draw(found, DECIDED)
    assert len(figure.axes) == 4
    accuracy, distance = figure.axes[:2]
    assert accuracy.get_title("left") == "Label noise: terminal accuracy in % ↑"
    for axes, metric, scale in ((accuracy, DECIDED[0], 100), (distance, DECIDED[1], 1)):
        for number, line in enumerate(axes.lines):
            assert list(line.get_xdata()) == [0, 40]
            means = [column[number]["mean"] for column in found["figures"]["labels"][metric]]
            assert list(line.get_ydata()) == pytest.approx([scale * mean for mean in means])
        assert len(axes.collections) == len(VALUES)  # the bands
    assert [text.get_text() for text in figure.legends[0].get_texts()] == found["labels"]


def test_a_band_is_the_interval_over_draws():
    found = summary()
    for number, band in enumerate(draw(found, DECIDED).axes[0].collections):
        heights = band.get_paths()[0].vertices
        for place, rate in enumerate((0, 40)):
            low, high = found["figures"]["labels"]["terminal-accuracy"][place][number]["interval"]
            there = heights[heights[:, 0] == rate][:, 1]
            assert [there.min(), there.max()] == pytest.approx([100 * low, 100 * high])
    alone = draw(summary(count=1), DECIDED).axes[0].collections[0].get_paths()[0].vertices
    assert len(set(alone[alone[:, 0] == 40][:, 1])) == 1


def test_a_metric_that_a_kind_lacks_has_no_panel():
    found = summary(kinds=("labels", "hierarchy"))
    del found["figures"]["hierarchy"]["level-1"]
    shown, missing = draw(found, ["level-1"]).axes
    assert shown.axison
    assert len(shown.lines) == len(VALUES)
    assert not missing.axison
    assert not missing.lines


def test_thirteen_losses_are_told_apart_and_the_legend_hides_none():
    values = {f"loss{number}": VALUES["flat"] for number in range(13)}
    figure = draw(summary(values), DECIDED)
    lines = figure.axes[0].lines
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == 13 > len(COLORS)
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    assert all(not legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert legend.y0 >= 0


def test_dollars_in_names_are_no_formulas(tmp_path):
    written = noise_curves(summary(labels={"flat": "$\\hcl_2$", "firm": "a$b"}), tmp_path)
    assert "<!-- $\\hcl_2$ " in written[1].read_text()


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HierlearnError, match=r"install it with: pip install 'hierlearn\[report\]'"):
        noise_curves(summary(), tmp_path)
