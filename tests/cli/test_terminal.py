"""Nothing from outside acts on a terminal: not through a pipe, and not on a real one."""

import ast
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import warm
from cli import hostile_names as hostile
from hierlearn.errors import printable, printable_lines
from training.datasets import environment

SRC = Path(__file__).parents[2] / "src" / "hierlearn"
CODES = (
    "\x00\x07\x08\r\x1b\x7f\x80\x85\x9b\x9d\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2066\u2067\u2068\u2069\ud800"
)
SCRIPTS = ["ключ", "日本語", "naïve café", "a\u200db", "نمی\u200cخواهم", "🐶 [red] :smile:"]


def walk(folder, *, terminal):
    """Run every command in a folder; return what they printed, as one text."""
    command = [*warm.python(), hostile.__file__]
    env = {**environment(), "TERM": "xterm-256color", "COLUMNS": "100"}
    if not terminal:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
        return (done.stdout + done.stderr).decode()
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=folder, env=env, stdout=theirs, stderr=theirs):
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux raises where the other end is closed
                break
            if not part:
                break
            found += part
    os.close(ours)
    return found.decode()


@pytest.fixture(scope="module", params=[False, True], ids=["pipe", "terminal"])
def walked(request, tmp_path_factory):
    """The folder of all commands, what they printed, and whether it was to a terminal."""
    folder = tmp_path_factory.mktemp("hostile")
    return folder, walk(folder, terminal=request.param), request.param


def test_no_command_prints_a_code_from_outside(walked):
    _, said, terminal = walked
    for code in (hostile.ESCAPE, hostile.TITLE, "\x07", "\x9b", "\u202e"):
        assert code not in said
    if not terminal:
        assert "\x1b" not in said
    before_crash = said.split("Traceback")[0]
    assert not re.search(rf"^{hostile.FORGED}", before_crash, re.MULTILINE)


def test_the_names_are_shown_all_the_same(walked):
    said = re.sub(r"\s+", "", walked[1])
    assert "[red]" in said
    assert printable(hostile.ESCAPE) in said
    assert r"RuntimeError:afaultof\x1b[31m" in said
    assert r"RuntimeWarning:againof\x1b[31m" in said


def test_every_command_was_walked(walked):
    from hierlearn.cli import commands

    codes = json.loads((walked[0] / "codes.json").read_text())
    assert len(codes) == len(hostile.COMMANDS)
    worked = {words[0] for words, code in zip(hostile.COMMANDS, codes, strict=True) if not code}
    names = set(commands().commands)
    only_refused = {
        "rank",
        "noise",
        "paper",
        "prune",
        "serve",
        "demo",
    }  # demo takes no names but its folder
    assert worked | only_refused >= names
    assert {words[0] for words in hostile.COMMANDS} >= names - {"demo"}


def test_the_card_has_the_front_matter_that_was_meant(walked):
    card = (walked[0] / hostile.FOLDER / "README.md").read_text()
    _, front, body = re.split(r"^---\n", card, maxsplit=2, flags=re.MULTILINE)
    found = yaml.safe_load(front)
    assert found == {"license": f"mit{hostile.EVIL}", "library_name": "hierlearn"}
    assert not re.search(rf"^{hostile.FORGED}", body, re.MULTILINE)
    assert "\x1b" not in card


def test_the_page_shows_no_code(walked):
    page = (walked[0] / hostile.FOLDER / "report.html").read_text()
    assert "EVIL" in page
    for code in ("\x1b", "\x07", "\u202e"):
        assert code not in page


@pytest.mark.parametrize("text", SCRIPTS)
def test_letters_of_every_script_stay(text):
    assert printable(text) == text


def test_codes_are_written_as_python_writes_them():
    for code in CODES:
        shown = printable(f"a{code}b")
        assert shown.isprintable()
        assert ast.literal_eval(f'"{shown}"') == f"a{code}b"
    assert printable("a\nb") == r"a\nb"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"


def test_there_is_one_way_to_the_terminal():
    """Rich, print and the standard streams are used in one module, but for typer's help."""
    allowed = {"terminal.py", "cli/__init__.py"}
    for path in SRC.rglob("*.py"):
        name = str(path.relative_to(SRC))
        if name in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
            module = getattr(node, "module", None) or ""
            for one in [module, *names] if isinstance(node, ast.Import | ast.ImportFrom) else ():
                assert one == "rich.box" or not one.startswith("rich"), f"{name}: import {one}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{name}, line {node.lineno}: print"
