"""The folder of a model: what may be replaced, and that the old model or the new one is there."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

import warm
from files.stray_files import stray_name
from hierlearn.errors import HierlearnError
from hierlearn.files import writing
from hierlearn.files.writing import WriteError, locked
from hierlearn.pipeline import Pipeline, folder, train
from hierlearn.pipeline.folder import NEXT, TRAINING, check_free, complete_swap, training_folder
from hierlearn.pipeline.run import Reporting
from training.datasets import assert_identical, plan, problem, read_records, state

QUIET = Reporting(bar=False)
OTHER = plan("hcl", epochs=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "m"
    train(problem(), plan("bce", epochs=1), out=out, reporting=QUIET)
    return out


@pytest.fixture
def old(trained, tmp_path):
    """A model that was trained into a folder."""
    return shutil.copytree(trained, tmp_path / "m")


def names(path):
    return sorted(one.name for one in path.iterdir())


def content(path):
    return {str(one): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


# ---------------------------------------------------------------------- what may be replaced


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": '{"architectures": ["BertModel"]}', "vocab.txt": "a"},
        {"config.json": "{}", "model.safetensors": "x", "README.md": "mine"},
        {"config.json": "not JSON"},
        {"config.json": '["hierlearn.model"]'},
        {"log.jsonl": '{"message": "my own log"}\n'},
        {"log.jsonl": "my own log\n"},
        {"log.jsonl": "", "thesis.tex": "years"},
        {"checkpoints/epoch-1.pt": "weights"},
        {"run.yaml": "command: mine\n"},
        {"blend/scene.blend": "picture"},
        {"skipped-labels.csv": "mine"},
        {"rows.safetensors": "mine"},
    ],
    ids=lambda files: ", ".join(files),
)
def test_a_foreign_folder_is_never_replaced(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = content(tmp_path)
    with pytest.raises(HierlearnError, match="mine holds no model, so it is not replaced"):
        train(problem(), OTHER, out=tmp_path / "mine", force=True, reporting=QUIET)
    with pytest.raises(HierlearnError, match="mine holds no model, so it is not replaced"):
        check_free(tmp_path / "mine", force=True)
    assert content(tmp_path) == before


def test_files_that_are_not_of_the_model_stay(old):
    for name in ("notes.txt", "checkpoints/mine.pt", "index.html"):
        (old / name).write_text("mine")
    train(problem(), OTHER, out=old, force=True, reporting=QUIET)
    for name in ("notes.txt", "checkpoints/mine.pt", "index.html"):
        assert (old / name).read_text() == "mine"
    assert len(read_records(old)) == 2


def test_what_a_killed_process_left_does_not_make_a_folder_full(tmp_path):
    (tmp_path / stray_name("part")).write_text("half")
    train(problem(), OTHER, out=tmp_path, reporting=QUIET)
    assert stray_name("part") not in names(tmp_path)


# ---------------------------------------------------------------------- the old one stays


def interrupt(monkeypatch, step):
    """Let a step of the training raise, as Ctrl-C does."""

    def on_step(number, of):
        if number == step:
            raise KeyboardInterrupt

    return Reporting(bar=False, on_step=on_step)


def test_the_old_model_answers_until_the_new_one_is_complete(old, monkeypatch, tmp_path):
    before = state(Pipeline.load(old).network)
    checkpoints = names(old / "checkpoints")
    with pytest.raises(KeyboardInterrupt):
        train(problem(), OTHER, out=old, force=True, reporting=interrupt(monkeypatch, 7))
    assert_identical(state(Pipeline.load(old).network), before)
    assert names(old / "checkpoints") == checkpoints
    assert training_folder(old) == old / TRAINING
    with pytest.raises(HierlearnError, match="exists; pass force=True"):
        train(problem(), OTHER, out=old, reporting=QUIET)
    resumed = train(problem(), OTHER, out=old, resume=True, reporting=QUIET)
    whole = train(problem(), OTHER, out=tmp_path / "whole", reporting=QUIET)
    assert_identical(state(resumed.network), state(whole.network))
    assert_identical(state(Pipeline.load(old).network), state(whole.network))
    assert names(old) == names(tmp_path / "whole")
    assert names(old / "checkpoints") == names(tmp_path / "whole" / "checkpoints")
    assert read_records(old) == read_records(tmp_path / "whole")


def test_force_begins_again_where_a_replacement_was_interrupted(old, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        train(problem(), OTHER, out=old, force=True, reporting=interrupt(monkeypatch, 7))
    train(problem(), plan("hcl", epochs=1), out=old, force=True, reporting=QUIET)
    assert len(read_records(old)) == 1
    assert TRAINING not in names(old)


def test_a_full_disk_leaves_the_old_model_and_says_so(old, monkeypatch):
    before = state(Pipeline.load(old).network)

    def write(self, folder):
        raise writing.cannot_write(folder / "model.safetensors", OSError(errno.ENOSPC, "No space"))

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "write", write)
        with pytest.raises(WriteError) as caught:
            train(problem(), OTHER, out=old, force=True, reporting=QUIET)
    assert str(caught.value) == (
        f"cannot write the model into {old}: No space; the model that was there is intact; free "
        f"disk space and resume with resume=True"
    )
    assert_identical(state(Pipeline.load(old).network), before)
    resumed = train(problem(), OTHER, out=old, resume=True, reporting=QUIET)
    assert_identical(state(Pipeline.load(old).network), state(resumed.network))


# ---------------------------------------------------------------------- the swap


@pytest.mark.parametrize("moved", range(6))
def test_a_swap_is_completed_by_whoever_reads_the_folder(old, monkeypatch, moved):
    new = train(problem(), OTHER, reporting=QUIET)
    count, rename = 0, folder.rename

    def stop(source, target):
        nonlocal count
        if target.parent == old and target.name != NEXT:
            count += 1
            if count > moved:
                raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "rename", stop)
        if moved < 5:  # as many files as a model has
            with pytest.raises(KeyboardInterrupt):
                new.save(old, force=True)
            assert (old / NEXT).is_dir()
        else:
            new.save(old, force=True)
    assert_identical(state(Pipeline.load(old).network), state(new.network))
    assert NEXT not in names(old)
    assert "log.jsonl" not in names(old)  # of the model that was replaced


def test_a_swap_that_cannot_be_completed_says_who_can(old, monkeypatch):
    (old / NEXT).mkdir()
    (old / NEXT / "swap.json").write_text('{"of_training": [], "keep_log": true}')
    shutil.copy(old / "config.json", old / NEXT)

    def refuse(source, target):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(folder, "rename", refuse)
    with pytest.raises(WriteError, match=r"was interrupted, and cannot be completed \(Permission"):
        Pipeline.load(old)


def test_a_swap_moves_nothing_but_files_of_a_model(old, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (old / NEXT).mkdir()
    swap = {"of_training": ["../precious", "/etc/passwd", "notes.txt"], "keep_log": True}
    (old / NEXT / "swap.json").write_text(json.dumps(swap))
    (old / NEXT / "thesis.tex").write_text("foreign")
    (old / TRAINING).mkdir()
    (old / "notes.txt").write_text("mine")
    complete_swap(old)
    assert (tmp_path / "precious").read_text() == "mine"
    assert (old / "notes.txt").read_text() == "mine"
    assert not (old / "thesis.tex").exists()
    Pipeline.load(old)


# ---------------------------------------------------------------------- two at once

TRAIN = """
import sys
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from training.datasets import plan, problem

def on_epoch(record):
    if record["epoch"] == 1:
        print("begun", flush=True)
        sys.stdin.readline()

reporting = Reporting(on_epoch=on_epoch, bar=False)
train(problem(), plan("hcl", epochs=2), out=sys.argv[1], force=True, reporting=reporting)
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_two_trainings_do_not_share_a_folder(old, tmp_path, is_new):
    out = tmp_path / "new" / "m" if is_new else old
    before = None if is_new else content(old)
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*warm.python(), "-c", TRAIN, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    ) as other:
        assert other.stdout.readline() == "begun\n"
        for options in ({"force": True}, {"resume": True}):
            with pytest.raises(HierlearnError, match="another process trains into"):
                train(problem(), OTHER, out=out, reporting=QUIET, **options)
        if before is not None:
            kept = {name: text for name, text in content(out).items() if TRAINING not in name}
            assert kept == before  # and a model that is there can be used and changed
            with locked(out, 0.0):
                assert len(Pipeline.load(out).hierarchy)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.wait(240) == 0
    assert Pipeline.load(out).config["training"]["steps"] > 0
    assert not any(name.startswith(".") for name in names(out))
    train(problem(), plan("bce", epochs=1), out=out, force=True, reporting=QUIET)  # free again


def test_a_training_that_fails_early_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["hierlearn.pipeline.train"].SingleTraining, "run", None)
    with pytest.raises(TypeError):
        train(problem(), OTHER, out=tmp_path / "m", reporting=QUIET)
    assert names(tmp_path) == []
