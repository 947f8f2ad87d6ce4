"""Commands that are interrupted, killed, or started by torchrun: real processes on real files."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm
from cli.conftest import HEADER, table_lines
from hierlearn.cli.output import resume_line
from hierlearn.files.structured import read_log
from hierlearn.files.writing import uninterrupted
from hierlearn.pipeline.folder import TRAINING
from hierlearn.training.checkpoint import Checkpoints
from training.datasets import environment

HIERLEARN = [sys.executable, "-m", "hierlearn"]
SECONDS = 240  # for a slow machine
LONG = ["--epochs", "100000", "--batch-size", "8", "--loss", "bce"]  # nobody waits for its end

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")


def start(folder, *words, **more):
    """Start a command as the leader of a group of processes, Ctrl-C not ignored."""
    return subprocess.Popen(
        [*HIERLEARN, *words],
        cwd=folder,
        env={**environment(), "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **more,
    )


def wait_for(condition, job=None):
    """Wait until a condition holds; fail where the job ends or time runs out."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert job is None or job.poll() is None, job.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def members(group):
    """Return the processes of a group that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(number) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


def stop(job):
    """End what a failed test may have left."""
    if members(job.pid):
        os.killpg(job.pid, signal.SIGKILL)
    job.communicate()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, *table_lines()]) + "\n")
    return tmp_path


COMPARE = ["compare", "rows.csv", "--label", "class", "--split", "part", "--methods", "bce,hxe"]
# Neither ends by itself: on a quick machine early stopping would end both before the signal.
ENDLESS = ["--jobs", "2", "--seeds", "2", "--epochs", "100000", "--patience", "100000"]
ALL = 5  # the command, two workers, and multiprocessing's server and tracker
SIGNALS = [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]


def test_a_killed_study_leaves_no_process(folder):
    job = start(folder, *COMPARE, *ENDLESS)
    try:
        wait_for(lambda: len(members(job.pid)) >= ALL, job)
        time.sleep(1)
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        wait_for(lambda: not members(job.pid))
    finally:
        stop(job)


@pytest.mark.parametrize(("number", "word", "code"), SIGNALS, ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_training_says_how_to_resume(folder, number, word, code):
    line = ["train", "rows.csv", "--label", "class", "--split", "part", "--out", "my model", *LONG]
    job = start(folder, *line, "--force")
    try:
        checkpoints = folder / "my model" / "checkpoints"
        wait_for(lambda: list(checkpoints.glob("step-*.safetensors")), job)
        os.kill(job.pid, number)
        err = job.communicate(timeout=SECONDS)[1]
    finally:
        stop(job)
    assert job.returncode == code
    resume = "hierlearn train rows.csv --label class --split part --out 'my model' "
    assert err == f"hierlearn: {word}; resume with: {resume}{' '.join(LONG)} --resume\n"
    assert not list(folder.rglob("*.part"))
    saved = Checkpoints(checkpoints).latest()  # raises on a damaged one
    records = read_log(folder / "my model" / "log.jsonl")
    assert saved.metadata["epoch"] in (records[-1]["epoch"], records[-1]["epoch"] - 1)


def test_only_what_can_be_resumed_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hierlearn", "train", "a b.csv", "--out", "m", "--force"])
    folder = tmp_path / "m"
    again = "there is no checkpoint yet to resume from; start again with: "
    resume = "resume with: hierlearn train 'a b.csv' --out m --resume"
    assert resume_line(folder) == "nothing was written; run the same command again"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "run.yaml").write_text("# hierlearn")
    (folder / "checkpoints" / ".hierlearn-1.safetensors").touch()  # half of one
    assert resume_line(folder) == f"{again}hierlearn train 'a b.csv' --out m --force"
    (folder / "checkpoints" / "step-000000000005.safetensors").touch()
    assert resume_line(folder) == resume
    (folder / "checkpoints").rename(tmp_path / "elsewhere")
    (folder / "config.json").touch()
    assert resume_line(folder) == f"{folder} is unchanged; run the same command again"
    (folder / TRAINING).mkdir()
    (tmp_path / "elsewhere").rename(folder / TRAINING / "checkpoints")
    assert resume_line(folder) == resume  # of the training that would replace it
    (folder / TRAINING / "checkpoints").rename(tmp_path / "elsewhere")
    (folder / TRAINING / "blend").mkdir()
    (folder / TRAINING / "blend" / "run.json").touch()
    assert resume_line(folder) == f"{folder} is unchanged; run the same command again"
    (folder / TRAINING / "blend" / "hcl.safetensors").touch()
    assert resume_line(folder) == resume


def test_a_training_that_was_interrupted_at_once_starts_again_as_it_is_told(folder):
    line = ["train", "rows.csv", "--label", "class", "--split", "part", "--out", "m"]
    few = ["--epochs", "1", "--batch-size", "8", "--loss", "bce"]
    (folder / "m").mkdir()
    (folder / "m" / "run.yaml").write_text("# hierlearn\n")
    done = subprocess.run(
        [*HIERLEARN, *line, *few, "--force"], cwd=folder, env=environment(), capture_output=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "word", "code"), SIGNALS, ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_study_says_that_it_continues(folder, number, word, code):
    job = start(folder, *COMPARE, *ENDLESS)
    try:
        wait_for(lambda: len(members(job.pid)) >= ALL, job)
        time.sleep(1)
        os.kill(job.pid, number)
        err = job.communicate(timeout=SECONDS)[1]
        wait_for(lambda: not members(job.pid))  # the server ends when nobody needs it
    finally:
        stop(job)
    assert job.returncode == code
    assert err == f"hierlearn: {word}; the same command continues with what is missing\n"


SLOW = """
import os, signal, sys
import hierlearn.cli as cli, hierlearn.{module} as module
real = module.{name}
def interrupted(*words, **more):
    os.kill(os.getpid(), signal.{number})
    return real(*words, **more)
module.{name} = interrupted
sys.argv = ["hierlearn", *sys.argv[1:]]
cli.main()
"""


def interrupt(folder, module, name, number, *words):
    """Run a command that is interrupted where it calls a function."""
    code = SLOW.format(module=module, name=name, number=number)
    return subprocess.run(
        [*warm.python(), "-c", code, *map(str, words)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_an_interrupted_prediction_leaves_the_old_answers(folder, trained):
    (folder / "answers.csv").write_text("old")
    words = ("predict", trained, "rows.csv", "--out", "answers.csv", "--force")
    done = interrupt(folder, "pipeline.predict", "predict_chunks", "SIGTERM", *words)
    advice = "answers.csv was not written; run the same command again"
    assert (done.returncode, done.stderr) == (143, f"hierlearn: terminated; {advice}\n")
    assert (folder / "answers.csv").read_text() == "old"
    assert not list(folder.glob(".*"))


def contents(folder):
    """Return the bytes of every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_interrupted_memory_is_as_it_was(memories):
    before = contents(memories / "model")
    words = ("remember", "model", "rows.csv", "--rows", "test", "--in-place")
    done = interrupt(memories, "pipeline.remember", "new_rows", "SIGINT", *words)
    advice = "model is unchanged; run the same command again"
    assert (done.returncode, done.stderr) == (130, f"hierlearn: interrupted; {advice}\n")
    assert contents(memories / "model") == before


def test_renames_that_belong_together_are_not_interrupted():
    done = []

    def rename():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("after")

    with pytest.raises(KeyboardInterrupt):
        rename()
    assert done == ["after"]
    with pytest.raises(KeyboardInterrupt):  # the handler is back
        signal.raise_signal(signal.SIGINT)


def torchrun(folder, *words):
    """Run a command in two processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*warm.python(), *launcher, "--no-python", *warm.python(), "-m", "hierlearn", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "rows.csv", "--label", "klass", "--out", "m"], "unknown column 'klass'"),
        (["train", "rows.csv", "--no-such"], "No such option: --no-such"),
        (
            [
                *["train", "rows.csv", "--label", "class", "--out", "m", "--loss", "bce"],
                *["--learning-rate", "1e30", "--split", "part", "--epochs", "2"],
            ],
            "became nan in epoch 1, batch 1 of 1, with BCELoss at learning rate 1e+30",
        ),
    ],
    ids=["data", "usage", "diverged"],
)
def test_torchrun_says_an_error_of_the_user_once(folder, words, sentence):
    done = torchrun(folder, *words)
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("hierlearn: ")]
    assert len(ours) == 1, done.stderr
    assert sentence in ours[0]
    assert re.search(r"exitcode *: 2 ", done.stderr)
