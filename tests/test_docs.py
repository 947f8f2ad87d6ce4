"""README and docs are true: their Python runs, their links lead somewhere, their commands exist."""

import importlib.util
import re
import shlex
import subprocess
from inspect import signature
from pathlib import Path

import pytest
import yaml

import warm
from hierlearn.losses import LOSSES, HCLLoss, functional
from test_first_five_minutes import WALKED
from test_flow import STAGES

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
ROWS = "width,height,class\n0.5,2.0,animal/dog/pug\n1.5,,animal/cat;plant\n0.9,1.0,\n"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPO)))
each_loss = pytest.mark.parametrize("name", LOSSES)
YES = {True: "yes", False: "no"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page):
    """A page without its code, in which a bracket may look like a link."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


# ---------------------------------------------------------------------- code and commands


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=[pytest.mark.slow] * (p.stem == "engines"))  # it starts Ray and Dask
        for p in PAGES
        if blocks(p, "python") and p not in {DOCS / f"{w}.md" for w in WALKED}
    ],
    ids=lambda p: str(p.relative_to(REPO)),
)
def test_python_blocks_run_in_order_and_print_what_their_comments_say(page, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [*warm.python(), "-W", "error::UserWarning", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for expected in re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE):
        assert expected in printed


@each_page
def test_commands_exist_with_their_options(page):
    from hierlearn.cli import commands

    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    for line in re.findall(r"^(?:.venv/bin/|torchrun .* -m )?hierlearn (.*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        if not words:  # hierlearn alone prints the guide
            continue
        command, path = commands(), []
        while hasattr(command, "commands"):
            path.append(words.pop(0))
            assert path[-1] in command.commands, line
            command = command.commands[path[-1]]
        command.make_context(" ".join(path), words)  # raises on an unknown option


# ---------------------------------------------------------------------- links and navigation


def anchors(page):
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@each_page
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", prose(page)):
        if target.startswith("http"):
            continue
        found = page if not target else page.parent / target
        assert found.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation_once():
    nav = yaml.safe_load((REPO / "mkdocs.yml").read_text())["nav"]
    groups = [name for group in nav for name in group]
    assert groups == ["Home", "Tutorials", "How-to", "Reference", "Studies"]
    listed = []
    while nav:
        entry = nav.pop()
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            nav.extend(value) if isinstance(value, list) else listed.append(value)
    assert sorted(listed) == sorted(
        str(p.relative_to(DOCS)) for p in PAGES if p.is_relative_to(DOCS)
    )


# ---------------------------------------------------------------------- losses


def table_rows(text):
    """The cells of every row of the tables of a page."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_what_pages_say_of_losses_is_what_they_are():
    assert f"{len(LOSSES)} losses" in (DOCS.parent / "README.md").read_text()
    floor = signature(HCLLoss).parameters["floor"].default
    assert f"the weight `floor`, {floor:g} by default" in (DOCS / "theory.md").read_text()


def test_the_overview_of_losses_is_the_registry():
    rows = table_rows((DOCS / "losses" / "index.md").read_text())
    found = [row for row in rows if len(row) == 5 and row[0].startswith("[")]
    expected = [
        [
            f"[`{name}`]({name}.md)",
            f"`{entry.__name__}`",
            YES[entry.uses_hierarchy],
            YES[not entry.needs_tree],
        ]
        for name, entry in LOSSES.items()
    ]
    assert sorted([row[0], row[1], *row[3:]] for row in found) == sorted(expected)


@each_loss
def test_the_page_of_a_loss_says_what_the_entry_says(name):
    entry, page = LOSSES[name], DOCS / "losses" / f"{name}.md"
    text = page.read_text()
    assert text.startswith(f"# {name}: ")
    assert re.search(r"^\$\$\n.*=.*\n\$\$$", text, re.MULTILINE), "the formula"
    facts = {row[0]: row[1] for row in table_rows(text) if len(row) == 2}
    reading = "the same" if entry.reading_link is None else f"`{entry.reading_link}`"
    assert facts == {
        "": "",
        "---": "---",
        "class": f"`{entry.__name__}`",
        "pure function": f"`{entry.function.__name__}`",
        "uses the hierarchy": YES[entry.uses_hierarchy],
        "takes a DAG": YES[not entry.needs_tree],
        "link of plain logits": f"`{entry.default_link}`",
        "link when predicting": reading,
    }
    if name in LOSSES.entries:  # the others have it beside their class
        assert getattr(functional, entry.function.__name__) is entry.function
    assert "**When to use it.**" in text
    assert "**When not to.**" in text


@each_loss
def test_the_page_of_a_loss_lists_its_options(name):
    entry, text = LOSSES[name], (DOCS / "losses" / f"{name}.md").read_text()
    listed = {row[0].strip("`") for row in table_rows(text) if len(row) == 3} - {"option", "---"}
    if entry.__name__ == "HCLLoss" and name != "hcl":
        assert "The options are those of [`hcl`](hcl.md)" in text
        return
    common = {"class_weight", "pos_weight"}  # docs/losses/index.md tells of them, and of link
    common |= {"link"} - listed
    assert listed & {*LOSSES[name].option_names()} == {*LOSSES[name].option_names()} - common


# ---------------------------------------------------------------------- architecture


def flow():
    path = REPO / "benchmarks" / "plot_flow.py"
    spec = importlib.util.spec_from_file_location("plot_flow", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_flow_shows_every_stage_in_order():
    picture = (DOCS / "assets" / "flow.svg").read_text()
    shown = re.findall(r"class='stage'>([^<]*)<", picture)
    assert shown == [name for name in STAGES if not name.startswith("_")]
    assert list(STAGES.values()) == sorted(STAGES.values())
    assert picture == flow().draw(), "run python benchmarks/plot_flow.py"


def test_what_the_architecture_page_says_of_adding_things():
    rows = [row for row in table_rows((DOCS / "architecture.md").read_text()) if len(row) == 4]
    found = [row for row in rows if row[0].startswith("[")]
    assert len(found) == 11
    for _, where, line, test in found:
        assert (REPO / where.strip("`")).exists()
        registry, *files = re.findall(r"`([\w/.]+)`", line)
        home = REPO / "src" / "hierlearn" / files[-1]
        assert home.is_file()
        tested = (REPO / test.strip("`")).read_text()
        assert re.search(rf"\b{registry}\b", tested), f"{test} does not cover {registry}"
        if registry != "settings_of":
            assert re.search(rf"^{registry}\b", home.read_text(), re.MULTILINE)


# ---------------------------------------------------------------------- the words of the field

UNIT = (
    "row|level|class|run|line|seed|epoch|member|loss|batch|step|core|model|network|dataset|metric|"
    "figure|file|node|text|word|label|trial|tensor|kind"
)
DIALECT = re.compile(
    r"\b(?:graphics processors?|whole numbers?|truth values?|anew|betters|worsens|at hand|"
    r"products? of matrices|learnt|spoil(?:s|t|ed|ing)?|comes? out as printed|classes die|"
    rf"(?:a|one) (?!DAG)\w+ a (?:{UNIT})|(?:labels|copies|classes|seconds) a (?:row|seed|run)|"
    r"colours?|neighbours?|behaviours?|labell\w+|normalis\w+|summaris\w+|optimis(?:e|es|ed|ing)|"
    r"initialis\w+|centres?)\b"
)
COVERED = ("README.md", "CONTRIBUTING.md", "docs", "src/hierlearn")
EXCEPT: tuple[str, ...] = ()


def covered():
    for name in COVERED:
        path = REPO / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            own = str(file.relative_to(REPO))
            if file.suffix in (".py", ".md", ".html", ".js", ".css") and not any(
                own == other or own.startswith(f"{other}/") for other in EXCEPT
            ):
                yield pytest.param(file, id=own)


@pytest.mark.parametrize("path", list(covered()))
def test_the_words_are_those_of_the_field(path):
    text = " ".join(path.read_text().split())
    found = [text[max(0, one.start() - 20) : one.end() + 20] for one in DIALECT.finditer(text)]
    assert not found


def test_the_list_of_words_finds_them():
    for words in ("a column a level", "begin anew", "one path a row", "many labels a row"):
        assert DIALECT.search(words), words
    for words in ("one column per level", "in a DAG a class has", "gives every class a", "A loss"):
        assert not DIALECT.search(words), words
