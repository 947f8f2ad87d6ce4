"""Walk through a page as a reader does: its Python, its commands and its files, in order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import warm

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
PRELUDE = """\
import subprocess as _subprocess
def _sh(lines):
    done = _subprocess.run(["bash", "-euo", "pipefail", "-c", lines], stdout=-1, stderr=-2)
    print(done.stdout.decode(), flush=True)
    assert done.returncode == 0, lines
"""


def script(text):
    """Return a page as one Python program; a block with a title is a file to write."""
    parts = [PRELUDE]
    for language, title, body in BLOCK.findall(text):
        if title:
            parts.append(f"open({title!r}, 'w').write({body!r})\n")
        elif language == "python":
            parts.append(body)
        elif language == "sh":
            parts.append(f"_sh({body!r})\n")
    return "\n".join(parts)


def environment(folder):
    """Return the variables of a shell in which ``hierlearn`` is the one that is tested."""
    bin_folder = folder / ".bin"
    bin_folder.mkdir(exist_ok=True)
    command = bin_folder / "hierlearn"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(warm.python())} -m hierlearn "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "COLUMNS": "100", "MPLBACKEND": "agg"}


def walk(text, folder):
    """Run a page in a folder and return what it printed."""
    done = subprocess.run(
        [*warm.python(), "-W", "error::UserWarning", "-c", script(text)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def without_figures(line):
    """Return a line as one compares it on another machine: figures may differ a little."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", line).split())


def expected(text):
    """Return the lines that a page says it prints: exact ones, and ones up to their figures."""
    code = "\n".join(body for language, _, body in BLOCK.findall(text) if language == "python")
    exact = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
    shown = [
        line
        for language, _, body in BLOCK.findall(text)
        if language == "text"
        for line in body.splitlines()
        if line.strip() and line.strip() != "..."
    ]
    return exact, shown


def check(text, printed):
    """Assert that a page printed what it says, exact lines in their order."""
    exact, shown = expected(text)
    lines = printed.splitlines()
    rest = iter(lines)
    for line in exact:
        assert line in rest, f"{line!r} was not printed, or not in its place"
    loose = {without_figures(line) for line in lines}
    for line in shown:
        assert without_figures(line) in loose, f"{line!r} was not printed"
