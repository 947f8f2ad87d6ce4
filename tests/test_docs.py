"""README and docs are true: their Python runs, their links lead somewhere, their commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
ROWS = "width,height,class\n0.5,2.0,animal/dog/pug\n1.5,,animal/cat;plant\n0.9,1.0,\n"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run_in_order(page, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`]*`", "", page.read_text())  # code may look like a link
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_printed_comments_of_the_readme_are_what_it_prints():
    from hierlearn import Hierarchy

    h = Hierarchy.from_paths(["animal/dog/bulldog", "animal/dog/pug", "animal/cat", "plant/oak"])
    text = (REPO / "README.md").read_text()
    assert f"# {h.ancestors('pug')}" in text
    assert f"# {h.lca('pug', 'cat')}\n" in text
    assert f"(3, {len(h)}) bool" in text


def test_every_loss_has_a_page():
    from hierlearn.losses import LOSSES

    overview = (DOCS / "losses" / "index.md").read_text()
    for name in LOSSES:
        page = DOCS / "losses" / f"{'hcl' if name.startswith('hcl') else name}.md"
        assert f"`{name}`" in overview
        assert page.exists()


def test_every_page_is_in_the_navigation():
    import yaml

    nav = yaml.safe_load((REPO / "mkdocs.yml").read_text())["nav"]
    listed = set()
    while nav:
        for value in nav.pop().values():
            nav.extend(value) if isinstance(value, list) else listed.add(value)
    assert listed == {
        str(p.relative_to(REPO / "docs")) for p in PAGES if p.is_relative_to(REPO / "docs")
    }
