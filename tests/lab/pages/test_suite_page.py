"""The page of a suite: what a cell shows, what it is colored by, and where figures come from."""

import re

import pytest

from hierlearn.lab.pages import suite_page
from hierlearn.lab.pages.suite_page import PAGE, page, write_suite
from hierlearn.lab.ranks import rank_studies
from lab.rank_studies import study

EVIL = "<script>alert(1)</script>"


def figure(mean, *, deviation=0.004, seconds=2.0, recipe=None):
    return {
        "mean": mean,
        "deviation": deviation,
        "seeds": 5,
        "seconds": seconds,
        "recipe": recipe,
    }


def printed(value, note="", protocol=""):
    return {
        "method": "DHN",
        "value": value,
        "source": "a repository",
        "note": note,
        "protocol": protocol,
    }


def one_set(name, figures, best=None):
    return {
        "name": name,
        "report": f"{name}/report.html",
        "rows": 10,
        "figures": figures,
        "published": [best] if best else [],
        "best_published": best,
    }


def summary(sets, *, metric="au-prc", **changes):
    return {
        "suite": "tiny",
        "description": "two sets",
        "protocol": "Trained on the training rows.",
        "metric": metric,
        "candidates": ["flat", "auto"],
        "labels": ["flat", "auto"],
        "sets": sets,
        "absent": {},
        "ranks": None,
        "no_ranks": "ranks need at least two studies, not 1",
        **changes,
    }


def cells(text):
    """Return background, title and shown text of every colored cell."""
    found = re.findall(
        r'<td class="number" style="background:([^"]*)" title="([^"]*)">(.*?)</td>', text
    )
    return [(color, title, re.sub("<.*?>", "", value)) for color, title, value in found]


def test_a_cell_tells_value_spread_difference_and_seconds():
    best = printed(0.768, protocol="top classes not evaluated")
    figures = {"flat": figure(0.75), "auto": figure(0.8125, seconds=12.25, recipe="hcl")}
    text = page(summary([one_set("diatoms", figures, best)]))
    (flat, auto) = cells(text)
    assert (flat[2], auto[2]) == ("0.750", "0.812")
    assert auto[1] == (
        "0.812 ± 0.004 over 5 seeds; +0.0445 to the best published figure; 12.2 s per run; "
        "recipe hcl"
    )
    assert "recipe" not in flat[1]
    assert "--high) 89%" in auto[0]
    assert "--low) 36%" in flat[0]
    assert "<b>0.812</b>" in text
    assert "<b>0.750</b>" not in text
    assert '<a href="diatoms/report.html">diatoms</a>' in text
    assert "DHN, a repository" in text
    assert '0.768<sup title="top classes not evaluated">†</sup>' in text
    assert "† in print: top classes not evaluated (diatoms)." in text
    assert "auto is ahead of the best published figure on 1 of 1." in text
    assert "flat is ahead of the best published figure on 0 of 1." in text


def test_without_figures_in_print_the_best_method_is_the_reference():
    text = page(summary([one_set("a", {"flat": figure(0.70), "auto": figure(0.72)})]))
    (flat, auto) = cells(text)
    assert "-0.0200 to the best method" in flat[1]
    assert "--high) 0%" in auto[0]
    assert "best in print" not in text
    assert "no figures in print" in text


def test_less_is_better_where_the_metric_says_so():
    figures = {"flat": figure(0.9), "auto": figure(0.5)}
    text = page(summary([one_set("a", figures, printed(0.7))], metric="lca-height"))
    (flat, auto) = cells(text)
    assert "--low) 100%" in flat[0]
    assert "--high) 100%" in auto[0]
    assert "<b>0.500</b>" in text


def test_what_is_missing_is_said():
    one = one_set("a", {"flat": figure(0.7, deviation=None), "auto": figure(None)})
    text = page(
        summary([one], absent={"b": "its files are not in D", "c": "its files are not in D"})
    )
    assert 'title="not finished, or not defined here">–</td>' in text
    assert "0.700 with one seed" in text
    assert "<p>b, c: its files are not in D.</p>" in text
    assert "No ranks: ranks need at least two studies, not 1." in text


def many(**changes):
    keys = [f"m{number}" for number in range(10)]
    sets = []
    for name in ("a", "b"):
        figures = {
            key: figure(0.5 + n / 100) for n, key in enumerate(keys) if (name, n) != ("a", 9)
        }
        for one in figures.values():
            one |= {"cpu_seconds": 1.5, "parameters": 12_345, "stored": 0}
        best = {**printed(0.55), "source": EVIL}
        sets.append({**one_set(name, figures, best), "left_out": {}})
    sets[0]["left_out"] = {"m9": "m9 needs a tree"}
    ranks = {"candidates": keys[:9], "mean_ranks": [9.0 - n for n in range(9)], "verdict": "V."}
    return summary(sets, candidates=keys, labels=keys, ranks=ranks, **changes)


def test_many_methods_are_rows_the_best_first(monkeypatch):
    monkeypatch.setattr(suite_page, "diagram", lambda found: "")
    monkeypatch.setattr(suite_page, "notes", lambda found: [])
    text = page(many(ranks_of_all=None))
    table = text[text.index('<table class="heat">') :]
    found = re.findall('<th scope="row">(.*?)</th>', table[: table.index("</table>")])
    best_first = [f"m{n}" for n in range(8, -1, -1)]
    assert found == [*best_first, "m9", "best in print", "its method and source"]
    assert '<th scope="col"><a href="a/report.html">a</a></th>' in table
    assert 'title="m9 needs a tree">–</td>' in table
    assert "<p>m9 on a: m9 needs a tree.</p>" in text
    assert "12,345" in text
    assert EVIL not in text
    assert text.count("is ahead of the best published figure") == 8


def test_ranks_of_the_sets_that_take_all_methods_are_shown_too(monkeypatch):
    monkeypatch.setattr(suite_page, "diagram", lambda found: f"[{found['verdict']}]")
    monkeypatch.setattr(suite_page, "notes", lambda found: [])
    whole = {"datasets": ["b"], "verdict": "W."}
    text = page(many(ranks_of_all=whole))
    assert "On the 1 sets on which all methods can be trained: W." in text
    assert text.index("[V.]") < text.index("[W.]")
    text = page({**many(ranks_of_all=whole), "ranks": None, "no_ranks": "too few"})
    assert text.index("No ranks: too few.") < text.index("[W.]")


@pytest.mark.parametrize("where", ["name", "label", "absent", "source"])
def test_names_are_text_and_never_markup(where):
    best = {**printed(0.5), **({"source": EVIL} if where == "source" else {})}
    one = one_set(EVIL if where == "name" else "a", {"flat": figure(0.6)}, best)
    changes = {"labels": [EVIL, "auto"]} if where == "label" else {}
    changes |= {"absent": {EVIL: EVIL}} if where == "absent" else {}
    text = page(summary([one], **changes))
    assert EVIL not in text
    assert "&lt;script&gt;" in text


def test_the_page_stands_alone_with_ranks_and_reports(tmp_path):
    names = ("a", "b", "c")
    values = [{"flat": 0.5 + n / 100, "auto": 0.6 + n / 100} for n in range(3)]
    folders = [study(tmp_path / n, n, v).folder for n, v in zip(names, values, strict=True)]
    sets = [
        one_set(name, {key: figure(value) for key, value in found.items()}, printed(0.55))
        for name, found in zip(names, values, strict=True)
    ]
    path = write_suite(summary(sets, ranks=rank_studies(folders)), tmp_path)
    assert path == tmp_path / PAGE
    text = path.read_text()
    assert "By au-prc on 3 datasets auto has the best mean rank (1.00 of 2)." in text
    assert "<svg" in text
    assert "critical difference" in text
    assert not re.search(r"<(script|link(?! rel=\"icon\" href=\"data:,\")|img|iframe)", text)
    for name in names:
        assert (tmp_path / name / "report.html").is_file()
    before = (tmp_path / "a" / "report.html").stat().st_mtime_ns
    write_suite(summary(sets), tmp_path)
    assert (tmp_path / "a" / "report.html").stat().st_mtime_ns == before  # it was not made again
