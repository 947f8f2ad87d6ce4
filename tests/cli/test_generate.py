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
from hierlearn.cli import app, commands, train
from hierlearn.cli.generate import add_commands, described, given, given_fields, takes
from hierlearn.cli.train import option_kinds, read_config
from hierlearn.estimator.parameters import EstimatorOptions, make_plan, parameters_of, signature_of
from hierlearn.lab.commands import studies as study_commands
from hierlearn.lab.protocol import Protocol
from hierlearn.losses import LOSSES
from hierlearn.networks import NETWORKS
from hierlearn.training import Plan, Settings
from hierlearn.training.fields import setting, settings_of


def options_of(function):
    return {name for name in inspect.signature(function).parameters if name != "data"}


def test_every_front_door_has_every_setting():
    """The exceptions are those that the fields themselves declare."""
    fields = settings_of(Settings)
    every = set(fields)
    studies = {name for name, one in fields.items() if one.description.study}
    of_a_run = {"seed", "checkpoint_every", "keep_checkpoints"}
    assert every - studies == {"ensemble_size", *of_a_run}
    assert every <= options_of(train.train)
    assert every <= set(option_kinds(train.train, without=train.PER_RUN))
    assert studies <= options_of(study_commands.compare)
    assert studies <= options_of(study_commands.noise)
    estimator = set(HierarchicalClassifier().get_params())
    assert every - estimator == of_a_run
    assert {"loss_option", "network_option", "decoder_option"} <= options_of(train.train)
    plain = {name for name, one in settings_of(Plan).items() if one.kind is not dict}
    assert plain <= options_of(train.train)
    assert set(settings_of(Plan)) <= estimator
    assert set(settings_of(Protocol)) <= options_of(study_commands.compare)


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
    add_commands(small, toy)
    done = CliRunner().invoke(small, ["toy", "--momentum", "0.5"])
    assert done.exit_code == 0, done.output
    assert seen == {"momentum": 0.5}
    shown = options_shown(CliRunner().invoke(small, ["toy", "--help"]).output)
    assert shown["--momentum <float>"] == "Momentum of the toy. [default: 0.9]"
    (tmp_path / "run.yaml").write_text("momentum: 0.25\n")
    kinds = option_kinds(toy, without=())
    assert read_config(tmp_path / "run.yaml", kinds) == {"momentum": 0.25}
    parameters = {one.name: one for one in signature_of(parameters_of(Plan, Toy, EstimatorOptions))}
    assert parameters["momentum"].default is None
    assert parameters["momentum"].kind is Parameter.KEYWORD_ONLY
    assert Toy.from_dict({"momentum": 0.5}).momentum == 0.5


# ---------------------------------------------------------------------- help


def pages(command=None, words=()):
    """Give the words of every command."""
    command = commands() if command is None else command
    for name, one in command.commands.items():
        if hasattr(one, "commands"):
            yield from pages(one, (*words, name))
        else:
            yield (*words, name)


def find(words):
    command = commands()
    for word in words:
        command = command.commands[word]
    return command


def options_shown(output):
    """The options of a page with their text: a long one has its text on the next line."""
    found, name = {}, None
    for line in re.split(r"^\w.*:$", output, maxsplit=1, flags=re.MULTILINE)[1].splitlines():
        if match := re.match(r"  (-\S.*?)(?: {2,}(.*))?$", line):
            name = match[1]
            found[name] = match[2] or ""
        elif name and line.startswith(" " * 5):
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = None
    return found


def help_of(*words, columns=80):
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


each_command = pytest.mark.parametrize("words", list(pages()), ids=" ".join)


@each_command
@pytest.mark.parametrize("columns", [80, 200])
def test_help_fits_the_terminal(words, columns):
    output = help_of(*words, columns=columns)
    assert f"{' '.join(words)} [OPTIONS]" in output.splitlines()[0]
    assert max(map(len, output.splitlines())) <= min(columns, 100)


@each_command
def test_every_option_has_help_and_a_default(words):
    output, command = help_of(*words), find(words)
    shown = options_shown(output)
    assert "<bool>" not in output
    options = [one for one in command.params if one.param_type_name == "option"]
    assert len(shown) == len(options) + 1  # and --help
    for one in options:
        (name,) = (name for name in shown if max(one.opts, key=len) in re.split(r"[, ]", name))
        text = shown[name]
        assert one.help
        assert text.startswith(one.help.split(". ")[0]), text
        if one.is_flag and not one.secondary_opts:
            assert "<" not in name
            assert "default" not in text
        elif one.multiple:
            assert "Repeatable." in text
        else:
            limits = re.search(r"\[([^]]*)\]$", text)
            pattern = r"required|(default: .+)?(; )?([\d.]+<=)?(x[<>]=[\d.]+)?"
            assert limits is None or re.fullmatch(pattern, limits[1]), text
            assert one.default == "none" or "default: none" not in text
            if one.required or one.default not in (None, ""):
                assert limits, text
    for one in command.params:
        if one.param_type_name == "argument":
            assert one.help
            assert re.search(rf"^  {one.name.upper()}", output, re.MULTILINE)


@each_command
def test_two_examples_that_parse(words):
    """Every example names options that its command has, and is shown as it is typed."""
    command, output = find(words), help_of(*words)
    assert len(command.examples) >= 2
    assert len(set(command.examples)) == len(command.examples)
    shown = re.sub(r" \\\n +", " ", output)
    for line in command.examples:
        assert line.split()[: len(words)] == list(words)
        command.make_context(" ".join(words), line.split()[len(words) :])
        assert f"  $ hierlearn {line}\n" in shown


def test_the_main_commands_come_first():
    output = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    headings = re.findall(r"^(\w[\w ]*):$", output, re.MULTILINE)
    assert headings == ["Main commands", "Data", "A trained model", "Studies", "Options"]
    listed = re.findall(r"^  ([a-z]+) ", output.partition("Options:")[0], re.MULTILINE)
    assert listed[:6] == ["train", "evaluate", "predict", "explain", "report", "demo"]
    assert set(listed) == set(commands().commands)
    assert max(map(len, output.splitlines())) <= 80


def test_the_guide_is_short_and_its_commands_exist():
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) <= 80
    lines = [re.split(r" {2,}", line.strip())[0] for line in lines if "$ hierlearn" in line]
    assert [one.split()[2] for one in lines] == [
        "demo", "data", "train", "evaluate", "predict", "explain",
    ]  # fmt: skip
    for line in lines:
        words = line.split()[2:]
        path = words[: 2 if words[0] == "data" else 1]
        find(path).make_context(" ".join(path), words[len(path) :])
    assert "docs" in done.output


def test_help_has_no_codes():
    assert "\x1b" not in CliRunner().invoke(app, ["train", "--help"], color=True).output


def test_defaults_and_choices_are_shown():
    shown = options_shown(help_of("train"))
    by_name = {name.split()[0]: text for name, text in shown.items()}
    for name, one in settings_of(Settings).items():
        text = by_name[f"--{name.replace('_', '-')}"]
        assert one.description.help in text
        if one.default not in (None, True):
            assert f"[default: {one.default}]" in text, text
    names = ", ".join([*LOSSES, "package.module:name"])
    assert by_name["--loss"].endswith(f"One of {names}. [default: from the recipe]")
    known = ", ".join([*NETWORKS, "package.module:name"])
    assert f"One of {known}." in by_name["--network"]
    schedules = "One of cosine, linear, constant, cyclic, 1cycle, package.module:name."
    assert schedules in by_name["--schedule"]
    assert "--precision [float32|bf16]" in shown
    assert "level-accuracy" not in by_name["--metric"]  # no single number: it cannot stop anything
    assert shown["--standardize / --no-standardize"].endswith("[default: on]")
    assert "[default: that of the model]" in options_shown(help_of("predict"))["--decoder <text>"]
    shown = options_shown(help_of("compare"))
    assert shown["--patience <int|none>"].endswith("[default: 10]")
    assert shown["--seeds <int>"].endswith("[default: 10]")
    shown = options_shown(help_of("noise"))
    assert shown["--seeds <int>"].endswith("[default: 2]")


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
    add_commands(small, toy)
    line = ["--patience", "none", "--max-grad-norm", "2", "--no-prior-bias"]
    assert CliRunner().invoke(small, line).exit_code == 0
    assert found == {"patience": None, "max_grad_norm": 2.0, "prior_bias": False}
    done = CliRunner().invoke(small, ["--patience", "x"])
    assert "'x' is neither a number nor none" in done.output


def test_the_parameters_of_functions_are_few():
    """A command takes its options as one mapping."""
    for command in (train.train, study_commands.compare, study_commands.noise):
        assert command.__code__.co_argcount + command.__code__.co_kwonlyargcount <= 2
    assert make_plan(HierarchicalClassifier(random_state=0).get_params()).settings == {"seed": 0}
