"""Benchmarks are run by hand and rarely: what they import must be there all the same."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_what_benchmarks_import_is_there():
    missing, checked = [], 0
    for path in sorted(BENCHMARKS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("hierl"):
                continue
            for alias in node.names:
                checked += 1
                inside = find_spec(node.module) and hasattr(import_module(node.module), alias.name)
                try:
                    inside = inside or find_spec(f"{node.module}.{alias.name}")
                except ModuleNotFoundError:  # of a module that is no package
                    inside = False
                if not inside:
                    missing.append(f"{path.name}: {node.module}.{alias.name}")
    assert missing == []
    assert checked > 100
