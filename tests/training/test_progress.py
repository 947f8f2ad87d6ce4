"""The progress bar: on a terminal alone, with the main metric in it."""

import pytest

from hierlearn.pipeline import train
from hierlearn.training.progress import Overall, Progress, mean, progress_bar
from training.datasets import plan, problem

RECORD = {"epoch": 2, "loss": [0.5, 0.7, None], "valid": {"au-prc": [0.2, 0.4, None]}}


def test_nothing_is_shown_without_a_terminal(capsys):
    train(problem(), plan())
    with progress_bar("training", 10) as progress:
        progress.step(3)
        progress.epoch(RECORD)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("show", [True, False])
def test_a_terminal_sees_steps_and_figures(capsys, monkeypatch, show):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bar("training", 10, 2, show=show) as progress:
        progress.step(3)
        progress.epoch(RECORD)
        if show:
            progress._bar.refresh()
    out, err = capsys.readouterr()
    assert out == ""
    assert ("epoch 2: loss 0.6000, au-prc 0.3000" in err) == show
    assert ("training" in err) == show


def test_a_training_reports_its_figures(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    train(problem(), plan(metric="hit@1"))
    assert "hit@1" in capsys.readouterr().err


def test_the_mean_is_over_the_models_that_run():
    assert mean([1.0, None, 2.0]) == 1.5
    Progress().epoch(RECORD)  # nobody looks


def test_one_bar_over_several_trainings():
    seen, totals = [], []

    class Bar(Progress):
        def step(self, done):
            seen.append(done)

        def total(self, steps):
            totals.append(steps)

    overall = Overall(Bar())
    overall.within(1000, 5, 10)
    overall.end(1000)
    overall.within(4000, 1, 4)
    overall.left(4000)
    overall.end(4000)
    assert seen == [500, 1000, 2000, 5000]
    assert totals == [5000]
