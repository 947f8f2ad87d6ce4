"""A command-line user reads options, a Python user arguments; counts have their plural."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from hierlearn import HierarchicalClassifier
from hierlearn.cli import format_error
from hierlearn.errors import DataWarning, HierlearnError, arg, plural
from hierlearn.losses import LOSSES, BCELoss
from hierlearn.training import Plan, Settings

LINE = "train rows.csv --label class --split part --out m"
BOTH = [
    (
        "--epochs 0",
        lambda: Settings(epochs=0),
        "epochs must be at least 1, not 0",
        "--epochs must be at least 1, not 0",
    ),
    (
        "--valid-fraction 2",
        lambda: Plan(valid_fraction=2.0),
        "valid_fraction must be in [0, 1), not 2.0",
        "--valid-fraction must be in [0, 1), not 2.0",
    ),
    (
        "--loss-option floor=1",
        lambda: Plan(loss_options={"floor": 1}),
        "loss_options needs a loss; name it with loss=",
        "--loss-option needs a loss; name it with --loss",
    ),
    (
        "--unlabeled-descendants positive",
        lambda: Plan(unlabeled_descendants="positive"),
        "unknown unlabeled_descendants 'positive'; known: ignore, negative",
        "unknown --unlabeled-descendants 'positive'; known: ignore, negative",
    ),
]


@pytest.mark.parametrize(("words", "call_python", "argument", "option"), BOTH)
def test_each_reads_their_own_names(rows, call, words, call_python, argument, option):
    with pytest.raises(HierlearnError) as caught:
        call_python()
    assert str(caught.value) == argument
    assert call(f"{LINE} {words}", code=2) == f"hierlearn: {option}"


def test_the_estimator_names_its_own_parameter():
    with pytest.raises(HierlearnError, match=r"^random_state must be at least 0, not -1$"):
        HierarchicalClassifier(random_state=-1).fit([[0.0], [1.0]], ["a", "b"])


@pytest.mark.parametrize(
    ("command", "message", "python", "shown"),
    [
        (
            "train",
            f"m exists; pass {arg('force', True)}, or {arg('resume', True)}",
            "m exists; pass force=True, or resume=True",
            "m exists; pass --force, or --resume",
        ),
        (
            "compare",
            f"it was killed; try it with {arg('jobs', 1)}",
            "it was killed; try it with jobs=1",
            "it was killed; try it with --jobs 1",
        ),
        (
            "train",
            f"choose another with {arg('sep=')} or a file",
            "choose another with sep= or a file",
            "choose another with --sep or a file",
        ),
        (
            "train",
            f"{arg('patience')} needs validation rows",
            "patience needs validation rows",
            "--patience needs validation rows",
        ),
        ("train", f"set {arg('label_sep', None)}", "set label_sep=None", "set --label-sep none"),
        (
            "train",
            f"use {arg('optimizer', 'adamw')}",
            "use optimizer='adamw'",
            "use --optimizer adamw",
        ),
        # An argument that the command does not take, and words that are not marked, stay.
        ("train", f"pass {arg('trust', True)}", "pass trust=True", "pass trust=True"),
        ("data fetch", f"pass {arg('trust', True)}", "pass trust=True", "pass --trust"),
        ("export", f"pass {arg('trust', True)} if", "pass trust=True if", "pass --trust if"),
        ("data", f"pass {arg('trust', True)}", "pass trust=True", "pass trust=True"),
        (
            "train",
            f"{arg('threshold')} must be a number",
            "threshold must be a number",
            "threshold must be a number",
        ),
        (
            "predict",
            f"{arg('threshold')} must be a number",
            "threshold must be a number",
            "--threshold must be a number",
        ),
        (
            "train",
            "data/batch_size.csv, column 'label_sep'",
            "data/batch_size.csv, column 'label_sep'",
            "data/batch_size.csv, column 'label_sep'",
        ),
        (
            "train",
            "loss hcl cannot be made with link='x'",
            "loss hcl cannot be made with link='x'",
            "loss hcl cannot be made with link='x'",
        ),
        (
            "train",
            "batch_size.csv: the link must be coherent",
            "batch_size.csv: the link must be coherent",
            "batch_size.csv: the link must be coherent",
        ),
    ],
)
def test_who_reads_arguments_and_who_options(command, message, python, shown):
    words = ["--debug", *command.split(), "rows.csv"]
    assert format_error(HierlearnError(message), words) == shown
    assert format_error(HierlearnError(f"a: {HierlearnError(message).message}"), words)[3:] == shown
    assert str(HierlearnError(message)) == python
    assert f"{HierlearnError(message)}" == python
    assert str(pickle.loads(pickle.dumps(DataWarning(message)))) == python


SRC = Path(__file__).parents[2] / "src" / "hierlearn"
OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]+")
OF_OTHER_TOOLS = (
    "download.py",
    "packages.py",
)  # options of pip and npm


def messages(tree):
    """Every string of a module but docstrings, an f-string as one."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
            inside.update(parts)
            yield "".join(str(part.value) for part in parts)
        elif isinstance(node, ast.Constant) and node not in inside and isinstance(node.value, str):
            yield node.value


def test_the_library_names_arguments_not_options():
    """A message may name an option only beside its argument, where it is another command's."""
    for path in sorted(SRC.rglob("*.py")):
        # The server is started by its command, whose options the answer to a request may name.
        folders = {"cli", "service", "commands"}
        if folders & {*path.relative_to(SRC).parts} or path.name in OF_OTHER_TOOLS:
            continue
        for text in messages(ast.parse(path.read_text())):
            named = OPTION.search(text)
            assert named is None or "in Python" in text, f"{path.name}: {text}"


def test_a_file_that_exists_is_told_in_python(tmp_path):
    from hierlearn.files.writing import WriteError, check_output

    old = tmp_path / "old.csv"
    old.write_text("")
    with pytest.raises(WriteError, match=r"old\.csv exists; pass force=True to replace it$"):
        check_output(old, force=False)


def test_an_option_of_a_loss_is_not_one_of_another_command(rows, call, monkeypatch):
    class Strict(BCELoss):
        def __init__(self, label_space, *, threshold=None, link=None):
            super().__init__(label_space, link=link)
            if threshold is not None:
                raise TypeError

    monkeypatch.setitem(LOSSES, "strict", Strict)
    said = call(f"{LINE} --loss strict --loss-option threshold=3", code=2)
    assert said == "hierlearn: loss strict cannot be made with threshold=3"


def test_plural():
    assert [plural(count, "epoch") for count in (0, 1, 2, 1000)] == [
        "0 epochs",
        "1 epoch",
        "2 epochs",
        "1,000 epochs",
    ]
    assert plural(2, "loss", "losses") == "2 losses"
