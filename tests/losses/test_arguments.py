"""Arguments of losses, links and decoders: unknown ones raise with a suggestion, and are typed."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding import DECODERS
from hierlearn.errors import HierlearnError
from hierlearn.links import LINKS
from hierlearn.losses import LOSSES, BCELoss, HCLLoss, Variant

REPO = Path(__file__).parents[2]
TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
ENTRIES = {**LOSSES, **{f"link {k}": v for k, v in LINKS.items()}}
ENTRIES |= {f"decoder {k}": v for k, v in DECODERS.items() if k != "subset"}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_unknown_argument_raises(name):
    entry = ENTRIES[name]
    with pytest.raises(HierlearnError, match=rf"unknown argument 'florr' of {entry.__name__}"):
        entry(TREE, florr=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HCLLoss(TREE, florr=1), "argument 'florr' of HCLLoss; did you mean 'floor'?"),
        (lambda: LOSSES["hcl-hier"](TREE, scop=None), "'scop' of HCLLoss; did you mean 'scope'?"),
        (lambda: LOSSES["hxe"](TREE, alhpa=1), "'alhpa' of HXELoss; did you mean 'alpha'?"),
        (lambda: LOSSES["mcloss"](TREE, reducton="sum"), "of MCLoss; did you mean 'reduction'?"),
        (lambda: BCELoss(TREE, logbase=2), "of BCELoss; did you mean 'log_base'?"),
        (lambda: BCELoss(TREE, base="focal"), "unknown argument 'base' of BCELoss"),
        (lambda: LINKS["awx"](TREE, ordr=2), "'ordr' of AWXLink; did you mean 'order'?"),
        (lambda: DECODERS["cost"](TREE, kost=1), "'kost' of Cost; did you mean 'cost'?"),
        (lambda: DECODERS["subset"](TREE, ["a"], "stop", tresh=1), "did you mean 'threshold'"),
    ],
)  # fmt: skip
def test_the_nearest_is_named(make, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("entry", [one for one in LOSSES.values() if isinstance(one, type)])
def test_options_have_names(entry):
    with pytest.raises(
        HierlearnError,
        match=rf"{entry.__name__} takes label_space by position, and 0.1 needs a name",
    ):
        entry(TREE, 0.1)


def test_a_loss_of_your_own_passes_its_options_on():
    class Named(BCELoss):
        def __init__(self, label_space, *, power=1.0, **options):
            super().__init__(label_space, **options)
            self.power = power

    assert Named(LabelSpace(TREE), power=2.0, log_base=2.0, reduction="sum").power == 2.0
    with pytest.raises(HierlearnError, match="'powr' of Named; did you mean 'power'"):
        Named(TREE, powr=2.0)


@pytest.mark.parametrize("name", LOSSES)
def test_type_checkers_know_the_arguments(name):
    """Nothing is passed on as ``**options: Any``, which any name fits."""
    entry = LOSSES[name]
    kind = entry.loss if isinstance(entry, Variant) else entry
    for one in kind.__mro__:
        if one.__module__.startswith("hierlearn.losses") and "__init__" in vars(one):
            for parameter in inspect.signature(vars(one)["__init__"]).parameters.values():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    assert re.fullmatch(r"Unpack\[\w+Options\]", parameter.annotation), one


@pytest.mark.slow  # mypy reads torch
def test_an_entry_takes_its_own_options_under_a_strict_type_checker(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from hierlearn import Hierarchy, HCLLoss\n"
        "from hierlearn.losses import LOSSES\n"
        'h = Hierarchy.from_paths(["a/x", "b"])\n'
        'LOSSES["hxe"](h, alpha=0.3)\n'
        'LOSSES["hcl-hier"](h, reduction="sum")\n'
        "HCLLoss(h, florr=0.1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", REPO / ".mypy_cache", "mine.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(REPO / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    (error, _, total) = done.stdout.splitlines()
    assert error.startswith('mine.py:6: error: Unexpected keyword argument "florr"')
    assert total.startswith("Found 1 error")
