"""No command overwrites what it reads, or a file that exists.

The commands, what they write and what they read are taken from the declarations of their options,
so an option that is added is tried here, too.
"""

import ast
import itertools
import shutil
from pathlib import Path

import pytest

from cli.conftest import HEADER, table_lines
from hierlearn.cli import commands
from hierlearn.cli.generate import FILE, FOLDER, SOURCES, TABLE, check_outputs
from hierlearn.files.writing import WriteError

SRC = Path(__file__).parents[2] / "src" / "hierlearn"


def leaves(command, words=()):
    """Yield the words and the command of every command."""
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


COMMANDS = dict(leaves(commands()))
WRITTEN = [
    pytest.param(words, param, id=f"{' '.join(words)} --{param.name}")
    for words, command in COMMANDS.items()
    for param in command.params
    if param.metavar in (FILE, FOLDER, TABLE)
]


def is_read(param):
    """Whether an option or an argument is a path that is read, or may be one."""
    named = param.name in SOURCES or param.metavar == "<path>"
    is_folder = param.param_type_name == "argument" and param.name in ("model", "studies")
    return named or is_folder


READ = [
    pytest.param(words, written, read, id=f"{' '.join(words)} --{written.name} = {read.name}")
    for words, command in COMMANDS.items()
    for written, read in itertools.product(command.params, command.params)
    if written.metavar in (FILE, FOLDER, TABLE) and is_read(read)
    if not (read.name == "model" and any(one.name == "in_place" for one in command.params))
]


def value_of(param, path):
    return [path] if param.name == "studies" else str(path) if param.name in SOURCES else path


def test_the_walk_finds_what_is_written():
    found = {f"{' '.join(one.values[0])} {one.values[1].name}" for one in WRITTEN}
    expected = "train out, evaluate out, predict out, inspect json, data describe out"
    expected += (
        ", report out, export out, compare out, noise out, rank out, paper out, demo out, demo svg"
    )
    expected += ", explain out, remap out, remember out, forget out, index out"
    assert found >= set(expected.split(", "))
    assert len(READ) > 40


def test_every_path_that_a_command_takes_is_read_or_written():
    """An option of type Path that is neither would be written without a check."""
    for words, command in COMMANDS.items():
        hints = command.callback.__annotations__
        for param in command.params:
            if "pathlib" in str(hints.get(param.name, "")) and param.name != "folder":
                assert is_read(param) or param.metavar in (FILE, FOLDER, TABLE), (words, param.name)


@pytest.mark.parametrize(("words", "written", "read"), READ)
@pytest.mark.parametrize("by", ["path", "symbolic link", "hard link"])
@pytest.mark.parametrize("force", [False, True])
def test_what_is_read_is_not_overwritten(tmp_path, words, written, read, by, force):
    command = COMMANDS[words]
    if force and not any(one.name == "force" for one in command.params):
        pytest.skip("it has no --force")
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_text("precious")
    if by == "path":
        out = source
    elif by == "hard link":
        out.hardlink_to(source)
    else:
        out.symlink_to(source)
    values = {written.name: out, read.name: value_of(read, source), "force": force}
    with pytest.raises(WriteError, match=r"is an input; write to another|is a file; name a folder"):
        check_outputs(command.params, values)
    assert source.read_text() == "precious"


@pytest.mark.parametrize(("words", "written"), WRITTEN)
def test_a_file_that_exists_is_replaced_by_force_only(tmp_path, words, written):
    out = tmp_path / "out"
    out.write_text("precious")
    command = COMMANDS[words]
    assert any(one.name == "force" for one in command.params)
    message = "exists; pass force=True" if written.metavar != FOLDER else "is a file; name a folder"
    with pytest.raises(WriteError, match=message):
        check_outputs(command.params, {written.name: out})
    if written.metavar != FOLDER:
        check_outputs(command.params, {written.name: out, "force": True})


@pytest.mark.parametrize(("words", "written"), WRITTEN)
def test_the_command_itself_checks_before_it_begins(tmp_path, call, words, written):
    """A FIFO would block a command that opened it: refused before anything is read."""
    import os

    os.mkfifo(tmp_path / "fifo")
    command = COMMANDS[words]
    for name in ("model", "rows.csv"):
        (tmp_path / name).write_text("")
    filled = {"model": "model", "folder": "model"}
    arguments = [
        filled.get(one.name, "rows.csv")
        for one in command.params
        if one.param_type_name == "argument" and one.required
    ]
    for one in command.params:
        if one.param_type_name != "argument" and one.required and one is not written:
            arguments += [f"--{one.name.replace('_', '-')}", "rows.csv"]
    line = " ".join([*words, *arguments, f"--{written.name} fifo"])
    said = call(line, code=2)
    assert "which is a FIFO; name a regular file" in said or "is a file; name a folder" in said


FOREIGN = {
    "train": "train rows.csv --label class --epochs 1 --force --out mine",
    "compare": "compare rows.csv --label class --methods bce --epochs 1 --force --out mine",
    "compare --suite": "compare --suite clus --data-dir . --force --out mine",
    "paper": "paper --data-dir . --force --out mine",
    "noise": "noise rows.csv --label class --methods bce --epochs 1 --force --out mine",
    "remember": "remember model rows.csv --label class --force --out mine",
    "forget": "forget model --id 1 --force --out mine",
    "index": "index model --force --out mine",
    "demo": "demo --force --out parent",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_folder_is_refused_even_with_force(tmp_path, call, name):
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, *table_lines(30)]) + "\n")
    for folder in ("mine", "parent/model", "model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text('{"mine": true}')
        (tmp_path / folder / "thesis.tex").write_text("years")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    said = call(FOREIGN[name], code=2)
    assert any(word in said for word in ("so it is not replaced", "exists and holds no"))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_two_outputs_are_two_files(tmp_path):
    params = COMMANDS["demo",].params
    with pytest.raises(WriteError, match="two options write to"):
        check_outputs(params, {"out": tmp_path / "a", "svg": tmp_path / "a"})


@pytest.mark.parametrize("name", ["run.yaml", "rows.csv"])
def test_train_does_not_replace_its_configuration_or_its_rows(rows, call, trained, name):
    shutil.copytree(trained, rows / "model")
    shutil.copy(rows / "rows.csv", rows / "model" / "rows.csv")
    (rows / "model" / "run.yaml").write_text("data: model/rows.csv\nlabel: class\nout: model\n")
    before = (rows / "model" / name).read_bytes()
    line = {
        "run.yaml": "train --config model/run.yaml --force",
        "rows.csv": "train model/rows.csv --label class --out model --force",
    }[name]
    assert "is an input and lies in model, where files are replaced" in call(line, code=2)
    assert (rows / "model" / name).read_bytes() == before


def test_calibration_rows_are_not_overwritten(rows, call, trained):
    """The answers would have replaced the labels that they were calibrated on."""
    before = (rows / "fresh.csv").read_bytes()
    for force in ("", " --force"):
        line = f"predict {trained} new.csv --risk 0.1 --calibrate fresh.csv -o fresh.csv{force}"
        assert "fresh.csv is an input; write to another file" in call(line, code=2)
    assert (rows / "fresh.csv").read_bytes() == before


# ---------------------------------------------------------------------- one door

ALLOWED = {  # the door
    "files/writing.py",
}
WRITING = {"write_text", "write_bytes", "unlink", "rmdir", "touch", "hardlink_to", "symlink_to"}
FOLDERS = {
    "pipeline/folder.py",
    "lab/study.py",
    "service/parts.py",
}  # where whole folders are removed


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_nothing_is_written_past_the_door(path):
    name = str(path.relative_to(SRC))
    if name in ALLOWED:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        attribute = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        where = f"{name}, line {node.lineno}: {attribute}"
        if attribute in WRITING - {"rmdir"} or attribute in ("save_file", "NamedTemporaryFile"):
            pytest.fail(where)
        if attribute in ("rmtree", "rmdir", "mkdir") and name not in FOLDERS:
            pytest.fail(where)
        if attribute == "open":
            modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
            modes += [one.value.value for one in node.keywords if one.arg == "mode"]
            texts = [one for one in modes if isinstance(one, str) and len(one) <= 3]
            assert not any(letter in text for text in texts for letter in "wax+"), where


@pytest.mark.parametrize(("words", "written"), WRITTEN)
def test_a_folder_that_is_read_only_is_noticed_before_the_work(
    tmp_path, monkeypatch, words, written
):
    def refuse(*args, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(WriteError, match="Read-only file system; name a"):
        check_outputs(COMMANDS[words].params, {written.name: tmp_path / "new" / "out"})
