"""The flow: a stage imports only from the stages above it, and the core stays light."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "hierlearn"
STAGES = {
    "errors": 0,
    "registry": 0,
    "terminal": 0,
    "kernels": 0,  # imports no stage
    "files": 0,
    "backbones": 0,  # imports no stage
    "hierarchy": 1,
    "datasets": 2,
    "features": 3,
    "links": 4,
    "losses": 5,
    "memory": 6,
    "networks": 7,
    "decoding": 8,
    "metrics": 9,
    "training": 10,
    "pipeline": 11,
    "estimator": 12,
    "integrations": 13,
    "reports": 13,
    "cli": 14,
    "service": 15,  # an annex: the core never imports it
    "lab": 16,  # an annex, too
    "__main__": 17,
}
ANNEXES = {"service", "lab"}


def modules():
    return sorted(path for path in SRC.rglob("*.py") if path != SRC / "__init__.py")


def stage_of(dotted: str) -> str:
    return dotted.split(".")[1]


@cache
def tree(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path):
    for node in tree(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the stage"
            if node.module == "hierlearn":  # from hierlearn import labels
                yield from (f"hierlearn.{alias.name}" for alias in node.names)
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_stage_imports_only_from_stages_above():
    for path in modules():
        stage = path.relative_to(SRC).parts[0].removesuffix(".py")
        assert stage in STAGES, f"give {stage} a place in the flow"
        for name in imports(path):
            if name.startswith("hierlearn.") and stage_of(name) != "__version__":
                other = stage_of(name)
                assert other in STAGES, f"{path}: import {name} from its own module"
                assert STAGES[other] <= STAGES[stage], f"{path}: {stage} must not import {name}"


def test_the_core_never_imports_an_annex():
    """What annexes add comes in through entry points, as from a package of somebody else."""
    for path in modules():
        if path.relative_to(SRC).parts[0] in ANNEXES:
            continue
        for name in imports(path):
            other = stage_of(name) if name.startswith("hierlearn.") else ""
            assert other not in ANNEXES, f"{path} imports {name}"


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def loaded_after(statement: str) -> set[str]:
    return {name.split(".")[0] for name in modules_after(statement)}


def test_help_needs_no_torch():
    heavy = {"torch", "numpy", "scipy", "sklearn", "pandas", "networkx"}
    assert not loaded_after("import hierlearn.cli") & heavy


def test_few_modules_are_imported_before_they_are_needed():
    """Counted, as seconds depend on the machine: each costs about half a millisecond."""
    python = len(modules_after("pass"))
    assert len(modules_after("import hierlearn")) - python < 60
    show = "import hierlearn.cli as c; sys.argv[1:] = ['--help']; c.app(standalone_mode=False)"
    assert len(modules_after(show)) - python < 300  # importlib.metadata, which finds annexes, is 40


def test_predicting_needs_nothing_of_training_in_several_processes():
    heavy = {"sympy", "sklearn", "scipy", "pandas"}  # sympy comes with torch.distributed.tensor
    found = modules_after("import hierlearn.pipeline, hierlearn.pipeline.predict")
    assert not {name.split(".")[0] for name in found} & heavy
    assert "torch.distributed.tensor" not in found


def test_the_hierarchy_needs_numpy_alone():
    heavy = {"scipy", "sklearn", "pandas", "networkx", "torchmetrics", "typer", "yaml"}
    assert not loaded_after("from hierlearn import Hierarchy") & heavy


def test_nothing_but_its_integration_needs_another_library():
    others = {"accelerate", "lightning", "peft", "timm", "transformers"}
    names = "HCLLoss, HierarchicalClassifier, METRICS, train; import hierlearn.integrations"
    assert not loaded_after(f"from hierlearn import {names}") & others
    assert not loaded_after("import hierlearn.integrations.timm") & others


def test_public_names_resolve():
    import hierlearn

    for name in hierlearn.__all__:
        assert getattr(hierlearn, name) is not None
    assert set(hierlearn.__all__) <= set(dir(hierlearn))
    with pytest.raises(AttributeError, match="no attribute 'Heirarchy'"):
        hierlearn.Heirarchy  # noqa: B018
