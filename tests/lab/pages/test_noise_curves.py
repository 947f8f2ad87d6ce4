"""Noise curves as files: every panel and loss is there, and they are the same again."""

import sys
import xml.etree.ElementTree as ET

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hierlearn.errors import HierlearnError
from hierlearn.lab.noise_figures import DECIDED
from hierlearn.lab.pages.figures import PALETTE, noise_curves, noise_figure
from lab.handmade_noise import VALUES, summary


def test_pngs_and_svgs_that_are_the_same_again(tmp_path):
    found = summary(kinds=("labels", "hierarchy"))
    written = noise_curves(found, tmp_path / "a")
    assert [path.name for path in written] == [
        "curves.png",
        "curves.svg",
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
    figure = noise_figure(found, DECIDED)
    assert len(figure.axes) == 4
    accuracy, distance = figure.axes[:2]
    assert accuracy.get_title("left") == "Label noise: terminal accuracy in % ↑"
    for axes, metric, scale in ((accuracy, DECIDED[0], 100), (distance, DECIDED[1], 1)):
        for number, line in enumerate(axes.lines):
            assert list(line.get_xdata()) == pytest.approx([0, 40], abs=0.7)
            means = [column[number]["mean"] for column in found["figures"]["labels"][metric]]
            assert list(line.get_ydata()) == pytest.approx([scale * mean for mean in means])
        assert len(axes.collections) == len(VALUES)  # the bars
    assert [text.get_text() for text in figure.legends[0].get_texts()] == found["labels"]


def test_a_bar_is_the_interval_over_draws():
    found = summary()
    accuracy = noise_figure(found, DECIDED).axes[0]
    for number, (bars, line) in enumerate(zip(accuracy.collections, accuracy.lines, strict=True)):
        for place, bar in enumerate(bars.get_segments()):
            low, high = found["figures"]["labels"]["terminal-accuracy"][place][number]["interval"]
            assert bar[:, 1] == pytest.approx([100 * low, 100 * high])
            assert bar[:, 0] == pytest.approx([line.get_xdata()[place]] * 2)
    (alone, *_) = noise_figure(summary(count=1), DECIDED).axes[0].collections
    assert all(bar[0, 1] == bar[1, 1] for bar in alone.get_segments())


def test_candidates_stand_beside_one_another_and_near_their_rate():
    values = {f"loss{number}": VALUES["flat"] for number in range(30)}
    lines = noise_figure(summary(values), DECIDED).axes[0].lines
    for place, rate in enumerate((0, 40)):
        beside = [line.get_xdata()[place] for line in lines]
        assert beside == sorted(set(beside))
        assert beside[0] > rate - 10
        assert beside[-1] < rate + 10
        assert sum(beside) / len(beside) == pytest.approx(rate, abs=1e-9)


def test_a_metric_that_a_kind_lacks_has_no_panel():
    found = summary(kinds=("labels", "hierarchy"))
    del found["figures"]["hierarchy"]["lca-height"]
    shown, missing = noise_figure(found, ["lca-height"]).axes
    assert shown.axison
    assert len(shown.lines) == len(VALUES)
    assert not missing.axison
    assert not missing.lines


def test_thirteen_losses_are_told_apart_and_the_legend_hides_none():
    values = {f"loss{number}": VALUES["flat"] for number in range(13)}
    figure = noise_figure(summary(values), DECIDED)
    lines = figure.axes[0].lines
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == 13 > len(PALETTE)
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    assert all(not legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert legend.y0 >= 0


def test_dollars_in_names_are_no_formulas(tmp_path):
    written = noise_curves(summary(labels={"flat": "$\\hcl_2$", "firm": "a$b"}), tmp_path)
    assert "<!-- $\\hcl_2$ " in written[1].read_text()


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HierlearnError, match=r"install it with: pip install matplotlib"):
        noise_curves(summary(), tmp_path)
