"""--trust: a model whose network is code outside of hierlearn is read only with consent."""

import os
import subprocess
import sys

import pandas as pd
import pytest

import warm
from hierlearn import HierarchicalClassifier
from hierlearn.errors import HierlearnError

FACTORY = """
from torch import nn

def make(label_space, inputs):
    return nn.Linear(inputs.width, len(label_space.hierarchy))
"""
COMMANDS = [
    "evaluate m rows.csv",
    "predict m new.csv -o answers.csv",
    "export m -o onnx/model.onnx",
]


@pytest.fixture
def foreign(rows, call, monkeypatch):
    """The folder of a model whose factory is a module on PYTHONPATH."""
    (rows / "code").mkdir()
    (rows / "code" / "foreign_factory.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(rows / "code")
    columns = "--label class --split part"
    call(f"train rows.csv {columns} --epochs 1 --out m --network foreign_factory:make")
    yield rows / "m"
    sys.modules.pop("foreign_factory", None)


@pytest.mark.parametrize("line", COMMANDS)
def test_only_with_consent(foreign, call, line):
    message = "m names the network 'foreign_factory:make', which is code outside of hierlearn; pass"
    assert f"{message} --trust if you trust it to run" in call(line, code=2)
    call(f"{line} --trust")


def test_in_another_process(foreign):
    places = [str(foreign.parent / "code"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", "evaluate", "m", "rows.csv", "--trust"],
        cwd=foreign.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "m on 20 rows of rows (test)" in done.stdout


def test_the_estimator_passes_trust_on(foreign):
    with pytest.raises(HierlearnError, match="pass trust=True if you trust it to run"):
        HierarchicalClassifier.load(foreign)
    loaded = HierarchicalClassifier.load(foreign, trust=True)
    assert loaded.predict_proba(pd.DataFrame({"a": [0.0], "b": [1.0], "c": [0.0]})).shape == (1, 5)
