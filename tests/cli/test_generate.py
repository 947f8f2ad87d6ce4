"""Options come from Settings: one field, and every front door has it; what --help shows."""

import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from inspect import Parameter

import pytest
import typer
from typer.testing import CliRunner

from hierlearn import HierarchicalClassifier
from hierlearn.cli import app, compare, noise, train
from hierlearn.cli.config import option_kinds, read_config
from hierlearn.cli.generate import add_command, described, given, given_fields, takes
from hierlearn.estimator.parameters import Own, make_plan, parameters_of, signature_of
from hierlearn.losses import LOSSES
from hierlearn.studies.protocol import Protocol
from hierlearn.training import Plan, Settings
from hierlearn.training.fields import setting, settings_of


def options_of(function):
    return {name for name in inspect.signature(function).parameters if name != "data"}


def test_every_front_door_has_every_setting():
    """The exceptions are those that the fields themselves declare."""
    fields = settings_of(Settings)
    every = set(fields)
    studies = {name for name, one in fields.items() if one.description.study}
    assert every - studies == {"seed", "ensemble_size", "checkpoint_every", "keep_checkpoints"}
    assert every <= options_of(train.train)
    assert every <= set(option_kinds(train.train, without=train.PER_RUN))
    assert studies <= options_of(compare.compare)
    assert studies <= options_of(noise.noise)
    estimator = set(HierarchicalClassifier().get_params())
    assert every - estimator == {"seed", "checkpoint_every", "keep_checkpoints"}
    assert {"loss_option", "network_option", "decoder_option"} <= options_of(train.train)
    plain = {name for name, one in settings_of(Plan).items() if one.kind is not dict}
    assert plain <= options_of(train.train)
    assert set(settings_of(Plan)) <= estimator
    assert set(settings_of(Protocol)) <= options_of(compare.compare)


@dataclass(frozen=True)
class Toy(Settings):
    """Settings with a field more, and nothing else."""

    momentum: float = setting(0.9, "Momentum of the toy.", at_least=0, below=1)
    hue: str = setting("bce", "Hue of the toy.", registry="hierlearn.losses:LOSSES")


def test_a_new_field_arrives_everywhere(tmp_path):
    seen = {}

    @takes(*described(Toy, "How to train", study=True))
    def toy(**options):
        """Play."""
        seen.update(given_fields(Toy, given(options)))

    small = typer.Typer()
    small.callback()(lambda: None)
    add_command(small, "toy", toy, "toy")
    done = CliRunner().invoke(small, ["toy", "--momentum", "0.5"])
    assert done.exit_code == 0, done.output
    assert seen == {"momentum": 0.5}
    shown = CliRunner().invoke(small, ["toy", "--help"], env={"COLUMNS": "160"}).output
    assert re.search(r"--momentum +<float> +Momentum of the toy\. +\[default: 0\.9\]", shown)
    (tmp_path / "run.yaml").write_text("momentum: 0.25\n")
    kinds = option_kinds(toy, without=())
    assert read_config(tmp_path / "run.yaml", kinds) == {"momentum": 0.25}
    parameters = {one.name: one for one in signature_of(parameters_of(Plan, Toy, Own))}
    assert parameters["momentum"].default is None
    assert parameters["momentum"].kind is Parameter.KEYWORD_ONLY
    assert Toy.from_dict({"momentum": 0.5}).momentum == 0.5


# ---------------------------------------------------------------------- help


def pages(command=None, words=()):
    """Give the words of every command."""
    command = typer.main.get_command(app) if command is None else command
    for name, one in command.commands.items():
        if hasattr(one, "commands"):
            yield from pages(one, (*words, name))
        else:
            yield (*words, name)


@pytest.mark.parametrize("words", list(pages()), ids=" ".join)
def test_help_of_every_command(words):
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "<bool>" not in done.output
    assert f"$ hierlearn {' '.join(words)}" in done.output


def test_the_examples_are_commands_that_parse(monkeypatch):
    """Every example names options that its command has."""
    for words in pages():
        command = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]
        for line in re.findall(r"hierlearn (.*)", command.epilog):
            arguments = line.split()[len(words) :]
            command.make_context(" ".join(words), arguments)


def test_defaults_and_choices_are_shown():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).output
    for name, one in settings_of(Settings).items():
        option = f"│ --{name.replace('_', '-')} "
        (line,) = (text for text in shown.splitlines() if text.startswith(option))
        assert one.description.help in line
        if one.default not in (None, True):
            assert f"[default: {one.default}]" in line, line
    assert f"One of {', '.join(LOSSES)}." in shown
    assert "One of mlp, token-bag, linear, package.module:factory." in shown
    assert "[cosine|linear|constant]" in shown
    assert "level-accuracy" not in shown  # no single number, so it cannot stop a training
    assert re.search(r"--standardize +--no-standardize", shown)
    shown = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "400"}).output
    assert re.search(r"--patience +<int\|none>.*\[default: 10\]", shown)
    assert re.search(r"--seeds +<int>.*\[default: 10\]", shown)
    shown = CliRunner().invoke(app, ["noise", "--help"], env={"COLUMNS": "400"}).output
    assert re.search(r"--seeds +<int>.*\[default: 2\]", shown)
    assert "--trials" not in shown


def test_the_list_of_commands_and_a_wrong_option_need_no_torch():
    for words in (["--help"], ["inspect", "--help"], ["train", "--epoch", "3"]):
        code = (
            f"import sys; sys.argv = ['hierlearn', *{words}]\n"
            "from hierlearn.cli import main\n"
            "try: main()\nexcept SystemExit: pass\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_none_is_a_value_of_an_optional_number():
    found = {}

    @takes(*described(Settings, "How"))
    def toy(**options):
        """Play."""
        found.update(given(options))

    small = typer.Typer()
    add_command(small, "toy", toy, "toy")
    line = ["--patience", "none", "--max-grad-norm", "2", "--no-prior-bias"]
    assert CliRunner().invoke(small, line).exit_code == 0
    assert found == {"patience": None, "max_grad_norm": 2.0, "prior_bias": False}
    done = CliRunner().invoke(small, ["--patience", "x"])
    assert "'x' is neither a number nor none" in done.output


def test_the_parameters_of_functions_are_few():
    """A command takes its options as one mapping."""
    for command in (train.train, compare.compare, noise.noise):
        assert command.__code__.co_argcount + command.__code__.co_kwonlyargcount <= 2
    assert make_plan(HierarchicalClassifier(random_state=0).get_params()).settings == {"seed": 0}
