"""The page in a real browser: it loads, zooms by mouse and keyboard, and runs nothing foreign."""

import json
import shutil
import time
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.lab.pages import write_report
from hierlearn.lab.pages.page import exact_first
from hierlearn.lab.summary import cell, is_bold, summarize
from reports.handmade_study import study as study_by_hand

MILLISECONDS = 240_000  # on a slow machine
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(
    FOUND is None, reason="no Chromium is installed; on Debian: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=FOUND, args=["--no-sandbox"], timeout=MILLISECONDS
        )
        yield made
        made.close()


@contextmanager
def opened(browser, path, width=1280, **options):
    """Open a page; it must say nothing to the console, ask for no other file, open no dialog."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, **options)
    tab.set_default_timeout(MILLISECONDS)
    heard = []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("dialog", lambda dialog: heard.append(dialog.message))
    tab.on("request", lambda request: heard.append(request.url) if request.url != url else None)
    url = path.as_uri()
    tab.add_init_script("window.hits = 0; window.hit = () => { window.hits += 1; };")
    tab.goto(url)
    tab.wait_for_selector("#icicle g")
    yield tab
    assert tab.evaluate("window.hits") == 0
    tab.close()
    assert heard == []


def wait_until(tab, expression):
    """Wait until an expression of the page is true.

    ``wait_for_function`` evaluates it again inside of the page, which the page's own policy forbids
    unless the first look is late enough.
    """
    end = time.monotonic() + MILLISECONDS / 1000
    while not tab.evaluate(expression):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(20)


@pytest.fixture
def tab(browser, page):
    with opened(browser, page) as made:
        yield made


def view(tab):
    """Return the class in view: the block at the left edge."""
    return int(tab.locator("#icicle g").first.get_attribute("data-class"))


def chosen(tab):
    return int(tab.locator("#icicle g[aria-selected=true]").get_attribute("data-class"))


def trail(tab):
    return tab.locator("#trail button").all_text_contents()


def node(tab, c):
    return tab.locator(f"#icicle g[data-class='{c}']")


def inner_top(hierarchy):
    """Return a top class with inner children."""
    return next(
        c
        for c in range(hierarchy.level_sizes[0])
        if any(hierarchy.children(child) for child in hierarchy.children(c))
    )


def test_the_table_shows_the_figures_of_the_summary(tab, study):
    told = summarize(study)
    rows = tab.locator("table.figures tbody tr").all()
    assert len(rows) == len(told["candidates"])
    for number, row in enumerate(rows):
        boxes = row.locator("td").all()
        first = boxes[0]
        assert first.get_attribute("data-metric") == "exact"
        means = study.values(study.candidates[number], "exact")
        assert float(first.get_attribute("data-mean")) == pytest.approx(np.mean(means))
        for metric, box in zip(exact_first(study, told)["metrics"], boxes, strict=True):
            figure = told["figures"][metric][number]
            assert box.inner_text() == "{} ± {}".format(*cell(metric, figure))
            assert float(box.get_attribute("data-mean")) == figure["mean"]
            weight = box.evaluate("e => getComputedStyle(e.firstElementChild).fontWeight")
            assert (int(weight) > 500) == is_bold(told, metric, number)


def test_a_click_zooms_in_and_the_left_edge_zooms_out(tab, study):
    hierarchy = study.hierarchy
    root, top = len(hierarchy), inner_top(hierarchy)
    assert view(tab) == root
    assert trail(tab) == ["root"]
    node(tab, top).click()
    assert view(tab) == top
    assert trail(tab) == ["root", hierarchy.bare_names[top]]
    below = set(map(str, hierarchy.descendants(top)))
    shown = [one.get_attribute("data-class") for one in tab.locator("#icicle g").all()]
    assert set(shown) == {str(top), *below}
    middle = next(c for c in hierarchy.children(top) if hierarchy.children(c))
    node(tab, middle).click()
    assert trail(tab) == ["root", hierarchy.bare_names[top], hierarchy.bare_names[middle]]
    node(tab, middle).click()  # now the left edge
    assert view(tab) == top
    tab.locator("#trail button").first.click()
    assert view(tab) == root


def test_keys_move_zoom_in_and_zoom_out(tab, study):
    hierarchy = study.hierarchy
    root, top = len(hierarchy), inner_top(hierarchy)
    tab.locator("#find").focus()
    tab.keyboard.press("Tab")  # the trail
    tab.keyboard.press("Tab")  # the picture, at the class in view
    tab.keyboard.press("ArrowRight")
    while chosen(tab) != top:
        tab.keyboard.press("ArrowDown")
    focused = "document.activeElement.dataset.class"
    assert int(tab.evaluate(focused)) == top
    tab.keyboard.press("Enter")
    assert view(tab) == chosen(tab) == top
    assert int(tab.evaluate(focused)) == top  # the focus stays in the picture
    tab.keyboard.press("ArrowRight")
    first = chosen(tab)
    assert first in hierarchy.children(top)
    tab.keyboard.press("ArrowDown")
    assert chosen(tab) != first
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowLeft")
    assert chosen(tab) == top
    tab.keyboard.press("Escape")
    assert view(tab) == root
    assert chosen(tab) == top  # where one came from
    tab.keyboard.press(" ")
    assert view(tab) == top
    tab.keyboard.press("Backspace")
    assert view(tab) == root
    tab.keyboard.press("Escape")  # there is nothing above
    assert view(tab) == root


def test_a_leaf_shows_what_it_is_confused_with(tab, study):
    hierarchy, targets = study.hierarchy, study.truth().targets
    candidate = study.candidates[0]
    decided = study.rows(candidate)["terminal"]
    labels = [row.nonzero()[-1].item() for row in targets]  # one leaf a row, the deepest
    wrong = Counter(
        (truth, int(c))
        for member in decided
        for truth, c in zip(labels, member, strict=True)
        if truth != c
    )
    leaf = wrong.most_common(1)[0][0][0]
    tab.fill("#find", hierarchy.bare_names[leaf])
    tab.keyboard.press("Enter")
    assert chosen(tab) == leaf
    assert tab.locator("#class h3").inner_text() == hierarchy.names[leaf]
    right = sum(int((member[np.array(labels) == leaf] == leaf).sum()) for member in decided)
    rows = labels.count(leaf)
    assert f"{100 * right / (2 * rows):.1f} % right, {rows} test row" in tab.inner_text("#class")
    often = sorted((count for (truth, _), count in wrong.items() if truth == leaf), reverse=True)
    lines = tab.locator("#class table").first.locator("tr").all()[1:]
    shown = [float(line.locator("td").last.inner_text()) for line in lines]
    assert shown == [count / 2 for count in often[:6]]
    for line in lines:
        assert line.locator("td").first.inner_text() == hierarchy.bare_names[leaf]
    lines[0].locator("button").last.click()  # leads to the other class
    other = chosen(tab)
    assert wrong[leaf, other] == often[0]


def test_an_unknown_name_is_refused_where_it_was_typed(tab, study):
    tab.fill("#find", "no such class")
    tab.keyboard.press("Enter")
    assert view(tab) == len(study.hierarchy)
    message = tab.locator("#find").evaluate("e => e.validationMessage")
    assert message == "no class has this name"


def test_colors_follow_accuracy_or_support(tab, study):
    def fills():
        return tab.locator("#icicle rect:not(.frame)").evaluate_all(
            "all => all.map((e) => e.style.fill)"
        )

    by_accuracy = fills()
    assert any("--low" in one for one in by_accuracy)
    tab.select_option("#color", "support")
    by_support = fills()
    assert len(by_support) == len(by_accuracy)
    assert all("--many" in one or "--none" in one for one in by_support)
    assert len(set(by_support)) > 3
    assert "rows" in tab.inner_text("#most")


def test_one_loss_is_chosen_for_picture_and_mistakes(tab, study):
    before = tab.inner_text("#list")
    tab.locator("#mistakes select.candidate").select_option("2")
    assert tab.locator("#hierarchy select.candidate").input_value() == "2"
    assert tab.inner_text("#list") != before
    right = summarize(study)["severity"][study.candidates[2].key][0]
    assert f"{100 * right:.1f} % right" in tab.inner_text("#class")


def test_mistakes_come_worst_first_with_both_paths(tab, study):
    hierarchy = study.hierarchy
    cards = tab.locator(".mistake")
    assert cards.count() == 8
    assert f"height {hierarchy.root_height}" in cards.first.inner_text()
    row = int(cards.first.locator(".details").inner_text().split()[1]) - 1  # "row 7 of test"
    truth = [hierarchy.bare_names[c] for c in study.truth().targets[row].nonzero()[:, 0].tolist()]
    assert cards.first.locator(".true").all_text_contents()[: len(truth)] == truth
    assert cards.first.locator(".both").count() == 0  # wrong from the top on
    tab.select_option("#height", "1")
    shared = cards.first.locator(".both").all_text_contents()
    true, decided = (
        cards.first.locator(kind).all_text_contents() for kind in (".true", ".decided")
    )
    assert shared
    assert len(true) == len(decided) == 1
    assert true != decided


def test_mistakes_are_turned_page_by_page(tab):
    first = tab.inner_text("#list")
    assert tab.locator("#before").is_disabled()
    tab.click("#after")
    second = tab.inner_text("#list")
    assert second != first
    assert tab.inner_text("#place").startswith("2 of ")
    tab.click("#before")
    assert tab.inner_text("#list") == first


def test_hostile_names_and_texts_do_nothing_but_show(browser, hostile, hostile_page):
    with opened(browser, hostile_page) as tab:
        assert tab.locator("h1").inner_text() == "<img src=x onerror=hit()>"
        for c in range(len(hostile.hierarchy)):
            if node(tab, c).count():
                node(tab, c).first.click(force=True)
                node(tab, view(tab)).click()
        shown = "".join(tab.locator("#mistakes blockquote").all_text_contents())
        assert "<img src=x onerror=hit()>" in shown
        names = tab.locator("#icicle title").all_text_contents()
        assert any("<script>hit()</script>|</script><script>hit()</script>" in one for one in names)
        assert tab.locator("main img, main b[onclick], main i[onclick]").count() == 0


def test_hostile_remembered_rows_do_nothing_but_show(browser, hostile_model_html):
    with opened(browser, hostile_model_html) as tab:
        assert tab.locator(".evidence").count() == tab.locator(".mistake").count() > 0
        shown = tab.locator(".evidence").first.inner_text()
        assert "<img src=x onerror=hit()>" in shown
        assert "<b onclick=hit()>" in shown
        assert tab.locator(".evidence img, .evidence b[onclick]").count() == 0


@pytest.mark.parametrize("width", [320, 390, 800, 1600])
def test_the_evidence_fits_a_phone(browser, hostile_model_html, width):
    with opened(browser, hostile_model_html, width) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        inside = tab.locator(".mistake").first.bounding_box()
        for cell in tab.locator(".mistake").first.locator(".evidence td").all():
            box = cell.bounding_box()
            assert box["x"] + box["width"] <= inside["x"] + inside["width"]
            assert box["width"] > 40


@pytest.mark.parametrize("width", [320, 390, 800, 1600])
def test_nothing_sticks_out_sideways(browser, page, width):
    with opened(browser, page, width) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        letters = tab.locator("svg.dots text").first.evaluate(
            "e => e.getBoundingClientRect().height"
        )
        assert letters > 9  # pixels: read without a lens


def lightness(tab):
    return tab.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )


def test_light_and_dark_follow_the_system_and_the_button(browser, page):
    with opened(browser, page, color_scheme="dark") as tab:
        assert lightness(tab) < 60
        tab.click("#theme")
        assert tab.inner_text("#theme") == "Theme: light"
        assert lightness(tab) > 200
        tab.click("#theme")
        assert lightness(tab) < 60
        tab.emulate_media(color_scheme="light")
        assert lightness(tab) < 60  # dark was asked for
        tab.click("#theme")
        assert tab.inner_text("#theme") == "Theme: system"
        assert lightness(tab) > 200


def test_paper_is_light_and_without_buttons(browser, page):
    with opened(browser, page, color_scheme="dark") as tab:
        tab.emulate_media(media="print", color_scheme="dark")
        ink = tab.evaluate("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]")
        assert ink < 60
        assert not tab.locator("#theme").is_visible()
        assert not tab.locator("#after").is_visible()
        assert tab.locator("table.tests").first.is_visible()  # folded on the screen
        assert len(tab.pdf(format="A4")) > 20_000


def test_thousands_of_classes_draw_only_what_is_visible(browser, tmp_path):
    leaves = [f"{c % 40}/{c % 800}/{c}" for c in range(8000)]
    hierarchy = Hierarchy.from_paths(leaves)
    draw = np.random.default_rng(0)
    truth = [[leaves[one]] for one in draw.integers(0, 8000, 200)]
    decided = {"one": draw.choice(hierarchy.leaves, (2, 200))}
    study = study_by_hand(tmp_path / "s", hierarchy, truth, decided)
    with opened(browser, write_report(study.folder)) as tab:
        assert tab.locator("#icicle g").count() < 1500
        folded = tab.locator("#icicle g:not([data-class])")
        said = folded.first.get_attribute("aria-label")
        assert "classes: " in said
        node(tab, 0).click()  # 20 classes, 200 leaves below
        middle = hierarchy.children(0)[3]
        node(tab, middle).click()
        shown = {one.get_attribute("data-class") for one in tab.locator("#icicle g").all()}
        assert shown == {str(middle), *map(str, hierarchy.children(middle))}
        took = tab.evaluate(
            "() => { const t = performance.now(); document.querySelector('#trail button').click();"
            " return performance.now() - t; }"
        )
        assert took < 1000  # milliseconds, on a busy machine; some 30 are usual


def test_the_data_in_the_page_is_what_the_script_read(tab, study):
    data = json.loads(tab.locator("#data").text_content())
    assert data["names"] == list(study.hierarchy.bare_names)
    assert [candidate["label"] for candidate in data["candidates"]] == [
        one.label for one in study.candidates
    ]


def test_titles_stand_beside_the_names_of_classes(browser, tmp_path):
    lip = "Lip <img src=x onerror=hit()>"
    hierarchy = Hierarchy.from_paths(["1/A00", "1/A01", "2/C00"]).with_titles(
        {"1": "Infections", "A00": "Cholera", "C00": lip}
    )
    one, two, three = (hierarchy.index(name) for name in ("A00", "A01", "C00"))
    study = study_by_hand(
        tmp_path / "s",
        hierarchy,
        [["A00"], ["A01"]],
        {"memory": [[three, one]]},
    )
    with opened(browser, write_report(study.folder)) as tab:
        card = tab.locator(".mistake").first
        shown = card.locator(".paths span.true").all_inner_texts()
        assert [text.split("\n") for text in shown] == [["1", "Infections"], ["A00", "Cholera"]]
        titles = tab.locator("#icicle title").all_text_contents()
        assert "1/A00 (Cholera): 0.0 % right, 1 test row" in titles
        assert "1/A01: 0.0 % right, 1 test row" in titles
        tab.fill("#find", "choler")
        tab.locator("#find").press("Enter")
        assert chosen(tab) == one
        assert tab.locator("#class p.title").inner_text() == "Cholera"
        tab.fill("#find", "A01")
        tab.locator("#find").press("Enter")
        assert chosen(tab) == two
        assert tab.locator("#class p.title").count() == 0
        assert tab.locator("main img").count() == 0
