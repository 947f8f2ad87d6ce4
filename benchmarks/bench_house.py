"""How large the code is, and how far a row travels through it.

    python benchmarks/bench_house.py

Code lines leave out docstrings, comments, blank lines and imports. A small module has fewer than
120 lines and exactly one importer. Files and functions are those of the package that the main
thread calls on a table of twelve rows, imports left out.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

from machine import write

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hierlearn"
ANNEXES = ("kernels", "lab", "service")

FIT = """
import numpy as np
from hierlearn import HierarchicalClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
y = ["a/x", "a/y", "b"] * 4
model = HierarchicalClassifier()
"""
JOBS = {
    "fit": FIT + "\nwith traced(): model.fit(X, y)",
    "estimator predict": FIT + "\nmodel.fit(X, y)\nwith traced(): model.predict(X)",
    **{
        name: "from hierlearn.cli import main\n"
        f"sys.argv[1:] = {line!r}.split()\n"
        "with traced(): main()"
        for name, line in {
            "train": "train rows.csv --label class --epochs 2 --out model",
            "predict": "predict model rows.csv --out answers.csv",
            "explain": "explain model rows.csv",
            "report": "report model --data rows.csv --out report.html",
        }.items()
    },
}
TRACER = """
import contextlib, json, sys
SOURCE = sys.argv[1]
seen, files = set(), set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name != "<module>":
        above, depth = frame.f_back, 0
        while above is not None:  # what a module runs while it is imported is not counted
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(SOURCE):
                return
            above = above.f_back
        files.add(code.co_filename)
        if not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_firstlineno))
@contextlib.contextmanager
def traced():
    sys.setprofile(note)
    try:
        yield
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        sys.setprofile(None)
"""


def code_lines(text: str) -> int:
    """Count the lines of a module that hold code other than imports and docstrings."""
    skipped: set[int] = set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        holds_text = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if holds_text and body and isinstance(body[0], ast.Expr):
            first = body[0]
            if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                skipped.update(range(first.lineno, (first.end_lineno or 0) + 1))
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines: set[int] = set()
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in nothing and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - skipped)


def module_name(path: Path) -> str:
    """Return the dotted name of a source file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers(trees: dict[Path, ast.Module]) -> Counter[str]:
    """Count how many other files import each module."""
    names = {module_name(path) for path in trees}
    found: Counter[str] = Counter()
    for path, tree in trees.items():
        taken: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                taken.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                taken.add(node.module)
                taken.update(f"{node.module}.{alias.name}" for alias in node.names)
        found.update((taken & names) - {module_name(path)})
    return found


def short_functions_used_once(trees: dict[Path, ast.Module], texts: dict[Path, str]) -> int:
    """Count module-level functions of at most six lines of code that one place in src names."""
    words: Counter[str] = Counter()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                words[node.id] += 1
            elif isinstance(node, ast.Attribute):
                words[node.attr] += 1
    count = 0
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and words[node.name] == 1:
                text = ast.get_source_segment(texts[path], node)
                count += text is not None and code_lines(text) - 1 <= 6
    return count


def travels() -> dict[str, dict[str, int]]:
    """Count files and functions of each job, in a process of its own."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = "class,a,b\n" + "".join(
            f"{label},{number},{number % 3}\n"
            for number, label in enumerate(["a/x", "a/y", "b"] * 4)
        )
        (Path(folder) / "rows.csv").write_text(rows, encoding="utf-8")
        ends = "\nprint(json.dumps([len(files), len(seen)]), file=sys.stderr)"
        for name, job in JOBS.items():
            done = subprocess.run(
                [sys.executable, "-c", TRACER + job + ends, str(SOURCE)],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=True,
                capture_output=True,
                text=True,
            )
            files, functions = json.loads(done.stderr.splitlines()[-1])
            found[name] = {"files": files, "functions": functions}
    return found


def house() -> dict[str, Any]:
    """Return every figure."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: code_lines(text) for path, text in texts.items()}
    core = [path for path in lines if path.relative_to(SOURCE).parts[0] not in ANNEXES]
    used = importers(trees)
    small = [
        path
        for path, text in texts.items()
        if path.name != "__init__.py" and text.count("\n") < 120 and used[module_name(path)] == 1
    ]
    return {
        "code_lines": sum(lines.values()),
        "code_lines_core": sum(lines[path] for path in core),
        "lines": sum(text.count("\n") for text in texts.values()),
        "files": len(texts),
        "files_core": len(core),
        "small_modules_with_one_importer": len(small),
        "short_functions_used_once": short_functions_used_once(trees, texts),
        "travels": travels(),
    }


if __name__ == "__main__":
    figures = house()
    print(json.dumps(figures, indent=2))
    write("house", figures, "python benchmarks/bench_house.py")
