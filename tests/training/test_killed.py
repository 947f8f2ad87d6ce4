"""Processes that are killed at any moment, and disks that fill up: the training goes on and ends in
the same weights, bit for bit."""

import json
import subprocess

import pytest

import warm
from hierlearn.files.writing import WriteError
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.checkpoint import Checkpoints
from training import killed_runs
from training.datasets import environment, largest_file, plan, problem, read_records

KILLED, TOO_LARGE, TERMINATED = -9, -25, 143

QUIET = Reporting(bar=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same training without interruption, in this process."""
    folder = tmp_path_factory.mktemp("whole")
    train(problem(), killed_runs.CHOSEN, out=folder, reporting=QUIET)
    return folder


@pytest.fixture(scope="module")
def nursed(tmp_path_factory):
    """What happened to the processes of the killed_runs, and where."""
    folder = tmp_path_factory.mktemp("killed_runs")
    run = subprocess.run(
        [*warm.python(), killed_runs.__file__, folder, *killed_runs.CASES],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return folder, json.loads(run.stdout)


@pytest.mark.parametrize("case", ["uninterrupted", "random", "writing", "midst", "full", "model"])
def test_it_ends_in_the_same_weights_bit_for_bit(whole, nursed, case):
    folder = nursed[0] / case
    for name in ("model.safetensors", "hierarchy.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert read_records(folder) == read_records(whole)
    last = [json.loads((one / "config.json").read_text())["metrics"] for one in (folder, whole)]
    assert last[0] == last[1]
    assert not [*folder.rglob(".hierlearn-*")]


def test_kills_at_random_moments(nursed):
    told = nursed[1]["random"]
    assert told["ends"].count(KILLED) >= 2, told
    assert set(told["ends"]) <= {KILLED, 0}
    assert told["last"] == 0
    assert told["reached"] == sorted(told["reached"])


def test_kills_while_a_checkpoint_is_written(nursed):
    told = nursed[1]["writing"]
    assert told["ends"] == [KILLED] * 4
    assert told["left"] >= 1  # half a file was there when the process was dead
    assert told["last"] == 0


def test_a_kill_in_the_midst_of_the_very_bytes(nursed):
    told = nursed[1]["midst"]
    assert told["ends"] == [TOO_LARGE]
    assert told["parts"] == [told["half"]]
    assert told["steps"] == [5, 6]
    assert told["last"] == 0


def test_a_kill_while_the_model_is_written(nursed):
    told = nursed[1]["model"]
    assert told["ends"] == [KILLED]
    assert told["last"] == 0


def test_a_file_that_does_not_fit_leaves_the_checkpoint_before_it(nursed):
    folder, told = nursed[0] / "full", nursed[1]["full"]
    assert told["ends"] == [2]
    assert told["said"] == (
        f"cannot write step-000000000008.safetensors into {folder / 'checkpoints'}: File too "
        f"large; step-000000000006.safetensors is intact; free disk space and resume with "
        f"resume=True"
    )
    assert told["left"] == ["step-000000000005.safetensors", "step-000000000006.safetensors"]
    assert told["last"] == 0


def test_a_process_that_is_told_to_stop_says_what_to_do(nursed):
    told = nursed[1]["told"]
    assert told["ends"] == [TERMINATED]
    assert told["said"] == (
        "process 1 was terminated, as torchrun does when another one is lost; resume from the last "
        "checkpoint (--resume, or resume=True in Python)\n"
    )


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 128 KiB, where the system lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder]
    try:
        allowed = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_really_full(tiny_disk, tmp_path):
    chosen = plan(
        "hcl", dropout=0.3, epochs=30, keep_checkpoints=1000
    )  # more than the disk can hold
    with pytest.raises(WriteError) as caught:
        train(problem(), chosen, out=tiny_disk / "m", reporting=QUIET)
    paths = Checkpoints(tiny_disk / "m" / "checkpoints").paths()
    assert 2 <= len(paths) < 30
    assert str(caught.value) == (
        f"cannot write step-{5 * len(paths) + 5:012d}.safetensors into "
        f"{tiny_disk / 'm' / 'checkpoints'}: No space left on device; {paths[-1].name} is intact; "
        f"free disk space and resume with resume=True"
    )
    assert not list(tiny_disk.rglob(".hierlearn-*"))
    for path in paths[:-1]:
        path.unlink()
    thrifty = plan("hcl", dropout=0.3, epochs=30, keep_checkpoints=1)
    train(problem(), thrifty, out=tiny_disk / "m", resume=True, reporting=QUIET)
    train(problem(), thrifty, out=tmp_path / "m", reporting=QUIET)
    weights = [(one / "m" / "model.safetensors").read_bytes() for one in (tiny_disk, tmp_path)]
    assert weights[0] == weights[1]


def test_the_first_checkpoint_does_not_fit(tmp_path):
    with largest_file(2000), pytest.raises(WriteError) as caught:
        train(problem(), plan("hcl"), out=tmp_path / "m", reporting=QUIET)
    assert str(caught.value) == (
        f"cannot write step-000000000005.safetensors into {tmp_path / 'm' / 'checkpoints'}: File "
        f"too large; free disk space and resume with resume=True"
    )
    train(problem(), plan("hcl"), out=tmp_path / "m", resume=True, reporting=QUIET)
    assert Pipeline.load(tmp_path / "m").config["training"]["steps"] == 15
