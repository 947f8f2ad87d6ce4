"""A command-line user reads options, a Python user arguments; counts have their plural."""

import pytest
import typer

from hierlearn import HierarchicalClassifier
from hierlearn.cli import app
from hierlearn.cli.messages import in_option_names, option_names
from hierlearn.errors import HierlearnError, plural
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
    ("message", "shown"),
    [
        ("m exists; pass force=True, or resume=True", "m exists; pass --force, or --resume"),
        ("it was killed; try it with jobs=1", "it was killed; try it with --jobs 1"),
        ("choose another with sep= or a file", "choose another with --sep or a file"),
        ("patience needs validation rows", "--patience needs validation rows"),
        ("run.yaml: unknown key 'batch_size'", "run.yaml: unknown key 'batch_size'"),
        # Nouns that happen to be options, options of a loss, files and columns stay.
        ("unknown loss 'hcll'; did you mean 'hcl'?", "unknown loss 'hcll'; did you mean 'hcl'?"),
        ("loss hcl cannot be made with link='x'", "loss hcl cannot be made with link='x'"),
        ("the link must be coherent", "the link must be coherent"),
        ("data/batch_size.csv, column 'label_sep'", "data/batch_size.csv, column 'label_sep'"),
    ],
)
def test_what_is_translated(message, shown):
    assert in_option_names(message, option_names(typer.main.get_command(app))) == shown


def test_plural():
    assert [plural(count, "epoch") for count in (0, 1, 2, 1000)] == [
        "0 epochs",
        "1 epoch",
        "2 epochs",
        "1,000 epochs",
    ]
    assert plural(2, "loss", "losses") == "2 losses"
