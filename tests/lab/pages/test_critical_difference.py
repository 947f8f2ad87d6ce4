"""The critical-difference picture: names apart, bars and ranks where they belong."""

import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hierlearn.errors import HierlearnError
from hierlearn.lab.pages.figures import AXIS, critical_difference, rank_diagram
from lab.rank_studies import from_ranks

LONG = "hcl (link softmax, scope ancestors, floor 0.3)"


def found(count, critical=1.5, seed=0):
    ranks = np.sort(np.random.default_rng(seed).uniform(1, count, count)).tolist()
    return from_ranks(ranks, critical, labels=[LONG, *(f"loss {n}" for n in range(1, count))])


@pytest.mark.parametrize("count", [2, 3, 4, 13, 47])
@pytest.mark.parametrize("critical", [0.4, 3.0, 50.0])
def test_no_two_texts_overlap_and_all_are_inside(count, critical):
    figure = rank_diagram(found(count, critical))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    numbers = count if count <= 20 else 1 + count // 5
    assert len(boxes) == numbers + count + 1  # with the names and the ruler
    whole = figure.bbox
    for place, box in enumerate(boxes):
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_names_come_from_their_ranks_and_bars_join_groups():
    summary = from_ranks([1.0, 1.5, 3.5, 4.0], 1.0, labels=["a", "b", "c", "d"])
    axes = rank_diagram(summary).axes[0]
    ranks = zip("abcd", summary["mean_ranks"], strict=True)
    place = {key: (4 - rank) * AXIS / 3 for key, rank in ranks}
    bars = [line for line in axes.lines if line.get_linewidth() > 3]
    ends = [sorted(float(x) for x in line.get_xdata()) for line in bars]
    assert ends == [
        pytest.approx([place["b"] - 0.05, place["a"] + 0.05]),
        pytest.approx([place["d"] - 0.05, place["c"] + 0.05]),
    ]
    stems = {
        round(float(line.get_xdata()[0]), 6) for line in axes.lines if len(line.get_xdata()) == 3
    }
    assert stems == {round(x, 6) for x in place.values()}
    ruler = next(line for line in axes.lines if list(line.get_ydata()) == [0.5, 0.5])
    assert np.ptp(ruler.get_xdata()) == pytest.approx(AXIS / 3)  # one rank


def test_a_png_and_an_svg_that_are_the_same_again(tmp_path):
    written = critical_difference(found(4), tmp_path / "a")
    assert [path.name for path in written] == ["critical-difference.png", "critical-difference.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert ET.parse(written[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    again = critical_difference(found(4), tmp_path / "b")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_dollars_in_names_are_no_formulas(tmp_path):
    summary = from_ranks([1.0, 2.0], 1.0, labels=["$\\hcl_2$", "a$b"])
    written = critical_difference(summary, tmp_path)
    assert "<!-- $\\hcl_2$  1.00 " in written[1].read_text()


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HierlearnError, match=r"install it with: pip install matplotlib"):
        critical_difference(found(3), tmp_path)
