"""Progress without a terminal: a line now and then, and none of a short training."""

import pytest

from hierlearn import terminal
from hierlearn.cli.output import working
from hierlearn.terminal import ProgressLines
from hierlearn.training.progress import progress_bar


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_rarely(clock, capsys):
    with progress_bar("training", 1000) as progress:
        for step in range(1, 1001):
            clock[0] += 1.0
            progress.step(step)
            if step % 100 == 0:
                progress.epoch({"epoch": step // 100, "loss": [0.5], "valid": {"hit@1": [0.25]}})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hierlearn: training: 30 of 1,000 (3 %) after 30 s"
    assert lines[1] == (
        "hierlearn: training: 130 of 1,000 (13 %) after 130 s; epoch 1: loss 0.5000, hit@1 0.2500"
    )
    assert len(lines) == 10  # one for every tenth


def test_a_short_training_says_nothing(clock, capsys):
    with progress_bar("training", 1000) as progress:
        for step in range(1, 1001):
            clock[0] += 0.029
            progress.step(step)
    assert capsys.readouterr().err == ""


def test_lines_are_apart_and_silence_ends(clock, capsys):
    lines = ProgressLines("reading", None)
    for done in range(100):
        clock[0] += 10.0
        lines.update(completed=done)
    found = capsys.readouterr().err.splitlines()
    assert found[0] == "hierlearn: reading: 2 after 30 s"
    assert len(found) == 33  # where the end is not known, every half minute
    lines = ProgressLines("training", 10**9)
    for done in range(200):
        clock[0] += 10.0
        lines.update(completed=done)
    assert len(capsys.readouterr().err.splitlines()) == 1 + 3  # the first, then every ten minutes


def test_rows_that_are_predicted_are_counted(clock, capsys):
    with working("predicting", 10_000) as advance:
        for rows in range(0, 10_000, 100):
            clock[0] += 2.0
            advance(rows)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hierlearn: predicting: 1,400 of 10,000 (14 %) after 30 s"
    assert 5 <= len(lines) <= 10
