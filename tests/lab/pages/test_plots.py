"""The pictures: positions, colors by test, and names that are only ever text."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from hierlearn.lab.pages import plots as study_plots
from hierlearn.reports import plots
from reports.handmade_study import figure, summary

SVG = "{http://www.w3.org/2000/svg}"


def parse(picture):
    """Return the picture as XML; inline SVG needs no namespace, so give it one."""
    return ET.fromstring(picture.replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))


def groups(root, kind):
    return [one for one in root.iter(f"{SVG}g") if one.get("class") == kind]


def x_of(group, kind):
    return [float(c.get("cx")) for c in group.iter(f"{SVG}circle") if c.get("class") == kind]


def test_dots_stand_in_the_order_of_their_means_and_show_the_tables_figures():
    root = parse(study_plots.dot_plot(study_plots.metric_dots(summary(), "hit@1"), "hit@1"))
    first, better, worse = (groups(root, kind)[0] for kind in ("first", "better", "worse"))
    [a], [b], [c] = (x_of(group, "mean") for group in (first, better, worse))
    assert c < a < b
    assert (b - a) / (a - c) == pytest.approx(0.5, abs=0.02)  # 10 points against 20
    texts = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "value"]
    assert texts == ["70.00", "80.00", "50.00"]
    assert len(x_of(first, "seed")) == 2
    lines = {one.get("class"): one for one in better.iter(f"{SVG}line")}
    spread, rows = lines["spread"], lines["rows"]
    assert float(spread.get("x1")) < b < float(spread.get("x2"))
    assert float(rows.get("x1")) < float(spread.get("x1"))


def test_a_smaller_distance_is_better_and_what_is_not_significant_is_the_same():
    kinds = [dot.kind for dot in study_plots.metric_dots(summary(), "hier-dist")]
    assert kinds == ["first", "same", "worse"]


def test_everything_lies_inside_the_panel():
    for metric in ("hit@1", "hier-dist"):
        root = parse(study_plots.dot_plot(study_plots.metric_dots(summary(), metric), metric))
        width, height = map(float, root.get("viewBox").split()[2:])
        for circle in root.iter(f"{SVG}circle"):
            assert 0 < float(circle.get("cx")) < width
            assert 0 < float(circle.get("cy")) < height


def test_a_figure_that_is_not_defined_has_no_dot():
    told = summary()
    told["figures"]["hit@1"][1] = figure(None, deviation=None)
    root = parse(study_plots.dot_plot(study_plots.metric_dots(told, "hit@1"), "hit@1"))
    assert x_of(groups(root, "same")[0], "mean") == []
    assert "n/a" in [text.text for text in root.iter(f"{SVG}text")]


def test_equal_figures_are_drawn_too():
    dots = [study_plots.Dot("a", 1.0, "1.000"), study_plots.Dot("b", 1.0, "1.000")]
    assert len(parse(study_plots.dot_plot(dots, "x")).findall(f"{SVG}g")) == 2
    none = [study_plots.Dot("a", None, "n/a")]
    assert parse(study_plots.dot_plot(none, "x")).findall(f"{SVG}g")


def test_names_are_text_whatever_they_hold_and_long_ones_are_cut():
    name = "<b onclick='x'>&\"" + "long" * 20
    told = summary(labels=(name, "b", "c"))
    for picture in (
        study_plots.dot_plot(study_plots.metric_dots(told, "hit@1"), name),
        plots.severity_bars(told),
    ):
        root = parse(picture)
        assert not list(root.iter(f"{SVG}b"))
        texts = [one.text for one in root.iter(f"{SVG}text")]
        assert any(text.startswith("<b onclick") for text in texts)
    root = parse(study_plots.dot_plot(study_plots.metric_dots(told, "hit@1"), name))
    shown = next(text.text for text in root.iter(f"{SVG}text") if text.text.startswith("<b"))
    assert shown.endswith("…")
    assert len(shown) * study_plots.CHARACTER <= study_plots.LABEL_SHARE * plots.WIDTH


def test_the_bars_of_a_candidate_fill_the_width():
    told = summary(
        severity={"loss0": [0.5, 0.2, 0.3], "loss1": [1.0, 0, 0], "loss2": [0, 0.02, 0.98]}
    )
    root = parse(plots.severity_bars(told))
    by_row = {}
    for rect in root.iter(f"{SVG}rect"):
        share = float(rect.get("width").rstrip("%"))
        begin = float(rect.get("x").rstrip("%"))
        by_row.setdefault(rect.get("y"), []).append((begin, share))
    assert [len(row) for row in by_row.values()] == [3, 1, 2]
    for row in by_row.values():
        assert sum(share for _, share in row) == pytest.approx(100)
        for (begin, share), (after, _) in pairwise(row):
            assert begin + share == pytest.approx(after)
    inside = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "inside"]
    assert inside == ["50.0", "20.0", "30.0", "100.0", "98.0"]
    wrong = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "value"]
    assert wrong == ["50.0 % wrong", "0.0 % wrong", "100.0 % wrong"]


def test_the_legend_names_every_number_of_levels():
    words = re.findall(r"</i>([^<]+)", plots.severity_legend(3))
    assert words == ["exact", "wrong at 1 level", "wrong at 2 levels", "wrong at 3 levels"]
    assert re.findall(r"</i>([^<]+)", plots.severity_legend(1))[1] == "wrong at 1 level"


def test_levels_show_mean_and_seeds():
    told = summary()
    seeds = {key: [[0.8, None], [1.0, 0.4]] for key in told["candidates"]}
    first, second = study_plots.level_panels(told, seeds).split("</figure>")[:2]
    assert first.count(">90.00</text>") == 3
    assert first.count('class="seed"') == 2 * 3
    assert second.count('class="seed"') == 3


def test_the_curriculum_has_one_line_per_level_and_one_point_per_epoch():
    log = [{"epoch": e, "selected_by_level": [1.0, e / 4]} for e in range(1, 5)]
    root = parse(study_plots.curriculum_plot(log))
    top, deep = (line.get("points").split() for line in root.iter(f"{SVG}polyline"))
    assert len(top) == len(deep) == 4
    heights = [float(point.split(",")[1]) for point in deep]
    assert heights == sorted(heights, reverse=True)  # more selected is higher up
    assert {point.split(",")[1] for point in top} == {deep[-1].split(",")[1]}
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == ["level 1", "level 2"]


@pytest.mark.parametrize("epochs", [1, 2, 300])
def test_the_curriculum_of_few_and_many_epochs_and_levels(epochs):
    log = [{"epoch": e, "selected_by_level": [0.5] * 20} for e in range(1, epochs + 1)]
    root = parse(study_plots.curriculum_plot(log))
    names = [text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert 1 < len(names) < 20
    assert len(list(root.iter(f"{SVG}polyline"))) == 20


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3, 12), (0.7001, 0.7003), (55, 80), (1, 300), (1e-9, 2e-9)]
)
def test_ticks_are_round_and_inside(low, high):
    marks = plots.ticks(low, high, 5)
    assert 2 <= len(marks) <= 6
    assert low <= marks[0] + 1e-12
    assert marks[-1] <= high + 1e-12
    texts = plots.tick_texts(marks)
    assert len(set(texts)) == len(texts)
    for text, mark in zip(texts, marks, strict=True):
        assert float(text) == pytest.approx(mark)


def test_names_beside_lines_are_moved_apart():
    found = study_plots.spread_out([10, 10, 11, 90], 12, 0, 100)
    ordered = sorted(found)
    assert all(b - a >= 12 - 1e-9 for a, b in pairwise(ordered))
    assert study_plots.spread_out([99, 99, 100], 12, 0, 100) == pytest.approx([76, 88, 100])
    assert max(study_plots.spread_out([5] * 50, 12, 0, 100)) <= 100
