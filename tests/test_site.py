"""The docs site: it builds without a warning, has every public name, and needs no other site."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import hierlearn
from hierlearn.cli import commands

REPO = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site: the one of ``make docs`` where that has just run."""
    if built := os.environ.get("HIERLEARN_SITE"):
        return Path(built)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPO,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    found = {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html")}
    assert len(found) > 50
    return found


def public_names():
    """Every module of hierlearn that says what is public, with its names."""
    listed = pkgutil.iter_modules(hierlearn.__path__, "hierlearn.")
    modules = [hierlearn, *(importlib.import_module(one.name) for one in listed if one.ispkg)]
    return {one.__name__: one.__all__ for one in modules if getattr(one, "__all__", None)}


def test_every_public_name_is_in_the_reference(pages):
    reference = "".join(text for name, text in pages.items() if name.startswith("reference"))
    anchors = set(re.findall(r'id="(hierlearn[\w.]*)"', reference))
    names = public_names()
    assert {"hierlearn", "hierlearn.losses", "hierlearn.metrics"} <= set(names)
    missing = [
        f"{module}.{name}"
        for module, listed in names.items()
        for name in listed
        if not any(re.fullmatch(rf"{module}\.(\w+\.)*{name}", one) for one in anchors)
    ]
    assert not missing, "add them to docs/reference"


def test_parameters_that_are_made_when_a_class_is_made_are_there(pages):
    text = pages["reference/training/index.html"]
    assert "{parameters}" not in text
    for name in ("learning_rate", "ensemble_size", "effort", "unlabeled_descendants"):
        assert name in text


def test_every_command_is_on_its_page(pages):
    text = pages["reference/command-line/index.html"]
    for name, one in commands().commands.items():
        for words in [(name, below) for below in getattr(one, "commands", ())] or [(name,)]:
            assert f'id="hierlearn-{"-".join(words)}"' in text


def test_formulas_are_mathml(pages):
    """None is left as TeX, and none needs a script."""
    assert "<math" in pages["losses/hcl/index.html"]
    assert "<munder>" in pages["losses/hcl/index.html"] or "<munder" in pages["theory/index.html"]
    for name, text in pages.items():
        assert "arithmatex" not in text, name
        assert "$$" not in re.sub(r"<(code|script)\b.*?</\1>", "", text, flags=re.DOTALL), name
    formulas = sum(
        len(re.findall(r"^\$\$$", page.read_text(), re.MULTILINE)) // 2
        for page in (REPO / "docs").rglob("*.md")
    )
    assert sum(text.count('class="formula"') for text in pages.values()) == formulas


class Requests(HTMLParser):
    """What a browser would load by itself."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.found.append(values.get("href"))
        elif tag in ("script", "img", "iframe", "source"):
            self.found.append(values.get("src"))


def test_a_page_loads_nothing_from_elsewhere(pages, site):
    for name, text in pages.items():
        parser = Requests()
        parser.feed(text)
        assert not [one for one in parser.found if one and re.match(r"(https?:)?//", one)], name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:", style.read_text()), style


def test_the_home_page_fits_on_a_screen_and_shows_a_result(pages):
    text = (REPO / "docs" / "index.md").read_text()
    before = text.split("## Where to begin")[0]
    assert len(before.splitlines()) < 30
    assert before.count("![") == 1
    assert "hierlearn demo" in before
    assert "best figure in print" in before
    assert "assets/results.svg" in pages["index.html"]
