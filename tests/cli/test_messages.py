"""A command-line user reads options, a Python user arguments; counts have their plural."""

import ast
import re
from pathlib import Path

import pytest

from hierlearn import HierarchicalClassifier
from hierlearn.cli import commands
from hierlearn.cli.errors import find_command, in_option_names, option_names
from hierlearn.errors import HierlearnError, plural
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
    ("command", "message", "shown"),
    [
        (
            "train",
            "m exists; pass force=True, or resume=True",
            "m exists; pass --force, or --resume",
        ),
        ("compare", "it was killed; try it with jobs=1", "it was killed; try it with --jobs 1"),
        ("train", "choose another with sep= or a file", "choose another with --sep or a file"),
        ("train", "patience needs validation rows", "--patience needs validation rows"),
        ("train", "run.yaml: unknown key 'batch_size'", "run.yaml: unknown key 'batch_size'"),
        # Nouns that happen to be options, options of a loss, files and columns stay.
        (
            "train",
            "unknown loss 'hcll'; did you mean 'hcl'?",
            "unknown loss 'hcll'; did you mean 'hcl'?",
        ),
        ("train", "loss hcl cannot be made with link='x'", "loss hcl cannot be made with link='x'"),
        ("train", "the link must be coherent", "the link must be coherent"),
        (
            "train",
            "data/batch_size.csv, column 'label_sep'",
            "data/batch_size.csv, column 'label_sep'",
        ),
        ("train", "loss hcl cannot be made with link=3", "loss hcl cannot be made with link=3"),
        ("train", "pass trust=True to accept it", "pass trust=True to accept it"),
        ("data fetch", "pass trust=True to accept it", "pass --trust to accept it"),
        ("export", "pass trust=True if you", "pass --trust if you"),
        ("evaluate", "(trust=True in Python)", "(trust=True in Python)"),
        ("train", "threshold must be a number", "threshold must be a number"),
        ("predict", "threshold must be a number", "--threshold must be a number"),
        ("predict", "choose the columns with features=", "choose the columns with --features"),
        ("train", "resume with resume=True", "resume with --resume"),
        ("train", "batch_size.csv exists; pass force=True", "batch_size.csv exists; pass --force"),
        (
            "inspect",
            "name the folder with data_dir= or HIERLEARN_DATA",
            "name the folder with --data-dir or HIERLEARN_DATA",
        ),
        ("data", "pass trust=True", "pass trust=True"),
    ],
)
def test_what_is_translated(command, message, shown):
    found = find_command(commands(), ["--debug", *command.split(), "rows.csv"])
    assert in_option_names(message, option_names(found)) == shown


SRC = Path(__file__).parents[2] / "src" / "hierlearn"
OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]+")
OF_OTHER_TOOLS = ("packages.py", "suite_page.py")  # options of pip and npm, names in CSS


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
