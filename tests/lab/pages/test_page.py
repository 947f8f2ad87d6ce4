"""The page: one file, its figures those of the summary, nothing in it that acts but our script."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.lab.pages import page, write_report
from hierlearn.lab.study import StudyError
from hierlearn.lab.summary import cell, is_bold, study_verdict, summarize
from hierlearn.metrics import METRICS
from hierlearn.reports.markup import as_text, asset, embed, safe
from reports.handmade_study import study as study_by_hand
from reports.handmade_study import summary


class Elements(HTMLParser):
    """Every element with its attributes, the text of the page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.texts, self.scripts, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)


def table_of(text):
    """Return the cells of the main table: row name -> [(text, mean, is bold)]."""
    body = re.search(r'<table class="figures">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
    rows = {}
    for name, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', body, re.DOTALL):
        rows[name] = [
            (re.sub(r"<[^>]*>", "", inside), float(mean), "<b>" in inside)
            for mean, inside in re.findall(r'<td [^>]*data-mean="([^"]*)">(.*?)</td>', cells)
        ]
    return rows


def test_it_lies_beside_the_study_or_where_it_is_asked_for(study, page, tmp_path):
    assert page == study.folder / "report.html"
    assert write_report(study.folder, tmp_path / "new" / "page.html").is_file()
    assert (tmp_path / "new" / "page.html").read_bytes() == page.read_bytes()


def test_the_table_is_the_summary(study, page):
    told = summarize(study)
    rows = table_of(page.read_text(encoding="utf-8"))
    assert len(rows) == 3
    for number, cells in enumerate(rows.values()):
        names = [name for name in told["metrics"] if name != "terminal-accuracy"]
        assert names[0] == "exact"
        for metric, (text, mean, bold) in zip(names, cells, strict=True):
            figure = told["figures"][metric][number]
            assert mean == figure["mean"]  # to the last digit
            assert text == "{} ± {}".format(*cell(metric, figure))
            assert bold == is_bold(told, metric, number)


def test_only_what_is_significantly_better_is_bold():
    rows = table_of(page.figures_table(summary()))
    bold = {name: [one[2] for one in cells] for name, cells in rows.items()}
    assert bold == {"flat": [False, False], "better": [True, False], "worse": [False, False]}


def test_what_still_improved_has_a_star_and_a_note():
    told = summary(still_improving={"loss0": 0, "loss1": 2, "loss2": 0})
    text = page.figures_table(told)
    assert list(table_of(text)) == ["flat", "better&nbsp;*", "worse"]
    assert "<p>* some of its runs still improved" in text
    assert "still improved" not in page.figures_table(summary())


def test_differences_and_p_values_are_in_the_folded_table():
    text = re.sub(r"<[^>]*>", " ", page.tests_table(summary()))
    words = " ".join(text.split())
    assert "better hit@1 +10.00 0.010 76.00 to 83.00" in words
    assert "worse hit@1 −20.00 &lt; 0.001 45.00 to 55.00" in words
    assert "flat hit@1 66.00 to 74.00" in words


def test_the_answer_is_that_of_the_study(study, page):
    answer = re.search(r'<div class="answer">(.*?)</div>', page.read_text(), re.DOTALL)[1]
    words = re.sub(r"<[^>]*>", " ", answer.partition("</h3>")[2])
    told = safe(study_verdict(summarize(study)))
    assert " ".join(words.split()) == " ".join(told.split())
    assert answer.count("<li>") == 2


def test_one_loss_has_an_answer_too():
    told = summary(labels=("alone",))
    assert page.answer_section(told) == f"<p>{study_verdict(told)}</p>"


def test_every_section_is_there(study, page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)">', text) == [
        *("table", "intervals", "severity", "levels", "curriculum"),
        *("hierarchy", "mistakes", "settings"),
    ]
    told = summarize(study)
    for metric in told["metrics"]:
        for figure in told["figures"][metric]:
            assert f">{METRICS[metric].format(figure['mean'])}</text>" in text
    for version in study.config["metadata"]["versions"].values():
        assert version in text
    for fact in ("epochs 4", "learning rate 0.01", "alpha 0.3", "width 8", "0, 1"):
        assert fact in text


def test_no_curriculum_no_section(tmp_path):
    tree = Hierarchy.from_paths(["a/b", "a/c"])
    study = study_by_hand(tmp_path / "s", tree, [["b"]], {"one": [[1]]})
    assert 'id="curriculum"' not in write_report(study.folder).read_text()


def test_it_needs_nothing_from_elsewhere(page):
    text = page.read_text(encoding="utf-8")
    elements = Elements(text).found
    for tag, attributes in elements:
        assert tag not in ("iframe", "object", "embed", "form", "base")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:,", "data:image/png;"))
    assert not re.search(r"@import|url\(", asset("style.css"))
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}


def test_only_our_script_may_run(page):
    text = page.read_text(encoding="utf-8")
    policy = next(
        attributes["content"]
        for tag, attributes in Elements(text).found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = re.search(r"script-src '(sha256-[^']+)'", policy)[1]
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = hashlib.sha256(script.encode()).digest()
    assert allowed == f"sha256-{base64.b64encode(digest).decode()}"
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_the_script_is_small_and_makes_no_markup_of_data():
    script = asset("script.js")
    assert len(script.splitlines()) < 340
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert way not in script


def test_hostile_names_are_only_text(hostile, hostile_page):
    elements = Elements(hostile_page.read_text(encoding="utf-8"))
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "i" not in [tag for tag, attributes in elements.found if "onclick" in attributes]
    for _, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")]
    told = "".join(elements.texts)
    assert "<img src=x onerror=hit()>" in told  # the dataset's name
    assert '$\\hcl_2$ & "co"' in told
    data = json.loads(elements.scripts[0])
    assert data["candidates"][0]["label"] == "<i onclick=hit()>flat</i>"
    assert data["names"] == [
        name.replace("\u202e", "\ufffd") for name in hostile.hierarchy.bare_names
    ]


def test_data_cannot_end_its_element():
    text = embed({"a": "</script><!--<script>&\u2028\x00", "b": [1.5, None]})
    assert not set("<>&\x00") & set(text)
    assert json.loads(text) == {"a": "</script><!--<script>&\u2028\x00", "b": [1.5, None]}
    assert json.loads(embed("half \ud800 a letter")) == "half \ufffd a letter"
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed([float("nan")])


def test_the_browser_gets_the_texts_of_the_mistakes_alone(hostile, hostile_page):
    data = json.loads(Elements(hostile_page.read_text(encoding="utf-8")).scripts[0])
    rows = {str(one[0]) for candidate in data["candidates"] for one in candidate["worst"]}
    assert set(data["texts"]) == rows
    texts = hostile.texts()
    for row, text in data["texts"].items():
        assert text == texts[int(row)]


def test_trials_of_the_tuning_are_told(study, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(study.folder, folder)
    config = json.loads((folder / "study.json").read_text())
    config["metadata"]["trials"] = [{"for": "bce", "learning_rate": 0.003, "value": 0.75}]
    config["metadata"]["tune"] = "paper"
    (folder / "study.json").write_text(json.dumps(config))
    text = write_report(folder).read_text()
    assert "<summary>trials (1)</summary>" in text
    assert "<td>0.003</td><td>0.75</td>" in text
    assert '<th scope="row">tune</th><td>paper</td>' in text


def test_a_study_that_is_not_finished_shows_what_it_has(study, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(study.folder, folder)
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    (folder / "runs.jsonl").write_text("".join(lines[:4]))  # two losses of two seeds
    text = write_report(folder).read_text()
    assert list(table_of(text)) == [name for name in table_of(text) if "hcl" not in name]
    assert len(table_of(text)) == 2
    assert "Not finished: loss:hcl." in text
    assert "<td>not finished</td>" in text
    (folder / "runs.jsonl").write_text(lines[0])
    with pytest.raises(
        HierlearnError, match="has no finished loss to report on yet; run hierlearn"
    ):
        write_report(folder)


def test_what_is_no_study_is_refused(tmp_path):
    with pytest.raises(StudyError, match="holds no study: there is no study"):
        write_report(tmp_path)


def test_rows_without_labels_and_dags_are_reported(tmp_path):
    dag = Hierarchy.from_parents({"a": [], "b": [], "c": ["a", "b"], "d": ["b"]})
    decided = {"x": [[2, 3, 0]], "y": [[3, 3, 3]]}
    study = study_by_hand(tmp_path / "s", dag, [["c"], ["d"], []], decided)
    data = json.loads(Elements(write_report(study.folder).read_text()).scripts[0])
    assert data["support"] == [1, 2, 1, 1, 2]
    assert data["candidates"][0]["accuracy"] == [1000] * 5
    assert data["candidates"][1]["accuracy"] == [0, 1000, 0, 1000, 500]
    assert data["candidates"][1]["confused"] == [2, 3, 1]


def test_a_figure_that_is_not_defined_is_told(tmp_path):
    """A run without mistakes has no severity of mistakes."""
    tree = Hierarchy.from_paths(["a/b", "a/c"])
    study = study_by_hand(
        tmp_path / "s",
        tree,
        [["b"], ["c"]],
        {"one": [[1, 2]] * 2, "two": [[2, 2]] * 2},
        metrics=["mistake-severity"],
        values={"one": {"mistake-severity": None}, "two": {"mistake-severity": 1.0}},
        log=[{"epoch": 1, "valid": {"au-prc": [float("nan")]}}],
    )
    text = write_report(study.folder).read_text()
    assert '<td data-metric="mistake-severity">n/a' in text
    assert '<td data-metric="mistake-severity" data-mean="1.0">1.000' in text
    assert study.log(study.candidates[0])[0]["valid"] == {"au-prc": [None]}  # JSON knows no NaN


def test_the_pieces_are_in_the_package():
    packages = ("hierlearn.reports", "hierlearn.lab.pages")
    inside = {one.name for name in packages for one in files(name).iterdir()}
    assert {"template.html", "curriculum.html", "style.css", "script.js"} <= inside


def test_values_are_written_as_text():
    assert as_text({"a_b": None, "c": [1, 0, True, False], "d": {"e": 0.5}}) == (
        "a b none, c 1, 0, yes, no, d e 0.5"
    )


def test_thousands_of_classes_make_a_page_of_modest_size(tmp_path):
    leaves = [f"{c % 40}/{c % 800}/{c}" for c in range(4000)]
    hierarchy = Hierarchy.from_paths(leaves)
    draw = np.random.default_rng(0)
    truth = [[leaves[one]] for one in draw.integers(0, 4000, 300)]
    decided = {f"loss{n}": draw.choice(hierarchy.leaves, (3, 300)) for n in range(8)}
    study = study_by_hand(tmp_path / "s", hierarchy, truth, decided, texts=["x" * 500] * 300)
    assert write_report(study.folder).stat().st_size < 700_000


def data_of(page):
    scripts = Elements(page.read_text(encoding="utf-8")).scripts
    return json.loads(scripts[0])


def heads(text):
    return re.findall(r'<td data-metric="([^"]*)"', text)


def test_exact_answers_come_first_and_once(study, page):
    """Here terminal-accuracy is the same figure in every run."""
    found = heads(page.read_text(encoding="utf-8"))
    assert found[0] == "exact"
    assert "terminal-accuracy" not in found
    means = study.values(study.candidates[0], "terminal-accuracy")
    shown = next(iter(table_of(page.read_text(encoding="utf-8")).values()))[0][1]
    assert shown == pytest.approx(sum(means) / len(means))


def test_terminal_accuracy_is_shown_where_it_is_another_figure(tmp_path):
    values = {"hit@1": 0.75, "terminal-accuracy": 0.5, "exact": 0.25}
    study = study_by_hand(
        tmp_path / "s",
        Hierarchy.from_paths(["a/b", "a/c"]),
        [["b"], ["a"]],
        {"one": [[1, 2]] * 2, "two": [[2, 2]] * 2},
        metrics=["hit@1", "terminal-accuracy", "exact"],
        values={"one": values, "two": values},
    )
    text = write_report(study.folder).read_text()
    assert heads(text)[:3] == ["exact", "hit@1", "terminal-accuracy"]


def test_mistakes_are_named_by_id_or_line(tmp_path):
    tree = Hierarchy.from_paths(["a/b", "a/c"])
    study = study_by_hand(tmp_path / "s", tree, [["b"], ["b"]], {"one": [[1, 2]]})
    data = json.loads(Elements(write_report(study.folder).read_text()).scripts[0])
    assert data["rows"] == {"1": "row 2 of test"}
    (study.folder / "names.json").write_text('["line 2", "line 7"]')
    data = json.loads(Elements(write_report(study.folder).read_text()).scripts[0])
    assert data["rows"] == {"1": "line 7"}


def test_a_study_of_a_memory_knows_the_ids_of_its_test_rows(memory_study, memory_page):
    data = json.loads(Elements(memory_page.read_text(encoding="utf-8")).scripts[0])
    assert data["rows"]
    for row, name in data["rows"].items():
        assert name == f"id <b onclick=hit()>{40 + int(row)}</b>"


def test_the_curriculum_fills_its_row(page):
    """Lines and table stand side by side: no panel is left empty."""
    text = page.read_text(encoding="utf-8")
    course = text.split('<div class="course">')[1].split("</section>")[0]
    assert course.count('<figure class="panel">') == 1
    assert "least selected" in course or "Every class was selected" in course
    assert "<details" not in course
