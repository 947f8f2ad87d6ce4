"""The page of a model in a real browser: the table of classes sorts, searches and stays small."""

import pytest

from reports.test_browser import (
    browser,  # noqa: F401  (a fixture)
    opened,
    pytestmark,  # noqa: F401
    wait_until,
)


@pytest.fixture
def tab(browser, model_html):  # noqa: F811
    with opened(browser, model_html) as made:
        yield made


def column(tab, number):
    return tab.locator(f"#class-rows tr > :nth-child({number})").all_inner_texts()


def shares(tab, number):
    return [float(text) for text in column(tab, number) if text != "n/a"]


def test_classes_are_sorted_by_a_click(tab, model):
    rows = [int(text) for text in column(tab, 3)]
    assert rows == sorted(rows, reverse=True)
    for number, falls in ((4, True), (5, True), (6, True), (6, False), (3, True), (2, True)):
        tab.locator("#class-heads button").nth(number - 1).click()
        found = shares(tab, number)
        assert found == sorted(found, reverse=falls)
        head = tab.locator("#class-heads th").nth(number - 1)
        assert head.get_attribute("aria-sort") == ("descending" if falls else "ascending")
    tab.locator("#class-heads button").first.click()
    names = [text.split("\n")[0] for text in column(tab, 1)]
    assert names == sorted(model.hierarchy.names)[: len(names)]


def test_what_is_not_defined_comes_last_either_way(tab):
    for _ in range(2):
        tab.locator("#class-heads button").nth(3).click()
        cells = column(tab, 4)
        known = [text != "n/a" for text in cells]
        assert known == sorted(known, reverse=True)


def test_classes_are_searched_and_narrowed_to_a_level(tab, model):
    hierarchy = model.hierarchy
    name = hierarchy.names[hierarchy.leaves[0]]
    tab.fill("#search", name.upper())
    assert {text.split("\n")[0] for text in column(tab, 1)} == {
        one for one in hierarchy.names if name in one
    }
    tab.fill("#search", "no such class")
    assert tab.inner_text("#class-rows") == "No class has this name."
    tab.fill("#search", "")
    tab.select_option("#which", "1")
    assert len(column(tab, 1)) == hierarchy.level_sizes[0]
    tab.select_option("#which", "leaves")
    assert len(column(tab, 1)) == len(hierarchy.leaves)


def test_a_class_leads_to_its_place_in_the_hierarchy(tab, model):
    leaf = model.hierarchy.names[model.hierarchy.leaves[0]]
    tab.fill("#search", leaf)
    tab.locator("#class-rows button").first.click()
    assert leaf in tab.inner_text("#class")


def test_only_one_page_of_thousands_of_classes_is_drawn(browser, tmp_path):  # noqa: F811
    from hierlearn import Hierarchy
    from reports.models import page_of_random_decisions

    paths = [f"{a}/{b}/{c}" for a in range(10) for b in range(15) for c in range(20)]
    path = page_of_random_decisions(Hierarchy.from_paths(paths), 500, tmp_path / "page.html")
    assert path.stat().st_size < 500_000
    with opened(browser, path) as made:
        assert len(column(made, 1)) == 25
        assert made.inner_text("#class-place") == "1 of 127"
        made.locator("#class-after").click()
        assert made.inner_text("#class-place") == "2 of 127"
        made.fill("#search", "9/14/19")
        assert column(made, 1) == ["9/14/19"]


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("kind", ["model_html", "set_html", "hostile_model_html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_sideways(browser, request, kind, width, scheme):  # noqa: F811
    path = request.getfixturevalue(kind)
    with opened(browser, path, width, color_scheme=scheme) as made:
        assert made.evaluate("document.documentElement.scrollWidth") <= width
        assert made.locator("section").count() >= 5
        for section in made.locator("main > section").all():
            assert section.inner_text().strip()
        outside = made.evaluate(
            """() => [...document.querySelectorAll("svg:not(#icicle) text")].filter((one) => {
              const [own, all] = [one, one.closest("svg")].map((it) => it.getBoundingClientRect());
              return own.left < all.left - 2 || own.right > all.right + 2;
            }).map((one) => one.textContent)"""
        )
        assert outside == []  # no label of a plot is cut off


def test_a_wide_table_fades_where_there_is_more(browser, page):  # noqa: F811
    """On a phone the table of a study is wider than the page; its edge shows that."""
    with opened(browser, page, 390) as made:
        wide = made.locator(".wide:has(table.figures)")
        fade = "one => getComputedStyle(one).getPropertyValue('--fade')"
        assert wide.evaluate("one => one.scrollWidth > one.clientWidth")
        assert float(wide.evaluate(fade).removesuffix("px")) > 20
        wide.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
        wait_until(
            made,
            "getComputedStyle(document.querySelector('.wide:has(table.figures)'))"
            ".getPropertyValue('--fade') === '0px'",
        )
    with opened(browser, page, 1280) as made:
        wide = made.locator(".wide:has(table.figures)")
        assert wide.evaluate(fade) == "0px"
