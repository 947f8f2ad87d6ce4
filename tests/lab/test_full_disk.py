"""A study on a disk that is full, or that was killed at its beginning: the same command goes on."""

import errno
import os

import pytest

from files.stray_files import stray_name
from hierlearn.files import writing
from hierlearn.files.writing import WriteError
from hierlearn.lab.noise import check_folder as check_noise_folder
from hierlearn.lab.study import StudyError, check_collection, check_folder
from lab.small_studies import run

WORDS = ["bce", "leaf-ce"]


def full_after(monkeypatch, writes):
    """Let the disk be full after some files."""
    count, real = 0, writing.create

    def create(path):
        nonlocal count
        count += 1
        if count > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path)

    monkeypatch.setattr(writing, "create", create)


@pytest.mark.parametrize("writes", [0, 2, 4, 7])  # at its beginning, its data, its first runs
def test_a_full_disk_is_said_and_the_same_command_goes_on(tmp_path, monkeypatch, writes):
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        with pytest.raises(WriteError) as caught:
            run(tmp_path / "s", WORDS, seeds=1, settings={"epochs": 1})
    said = str(caught.value)
    assert said.startswith("cannot write ")
    assert said.endswith(
        "No space left on device; what is finished is kept: free disk space and run the same "
        "command again, which continues with what is missing"
    )
    study = run(tmp_path / "s", WORDS, seeds=1, settings={"epochs": 1})
    assert [one["candidate"] for one in study.runs()] == WORDS


def test_a_full_disk_leaves_the_runs_of_a_study_that_is_replaced(tmp_path, monkeypatch):
    before = run(tmp_path / "s", ["bce"], seeds=1, settings={"epochs": 1}).runs()

    def flush(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("hierlearn.lab.study.flush", flush)
        with pytest.raises(WriteError, match="No space left on device"):
            run(tmp_path / "s", ["bce"], seeds=2, settings={"epochs": 1}, force=True)
    again = run(tmp_path / "s", ["bce"], seeds=1, settings={"epochs": 1})
    assert again.runs() == before


def test_where_a_study_was_about_to_begin_it_may(tmp_path):
    (tmp_path / "s" / "cells" / "clean").mkdir(parents=True)
    (tmp_path / "s" / "cells" / "clean" / stray_name("part")).write_text("half")
    check_noise_folder(tmp_path / "s")
    check_collection(tmp_path / "s" / "cells")
    check_folder(tmp_path / "s" / "cells" / "clean")
    (tmp_path / "s" / "cells" / "clean" / "thesis.tex").write_text("years")
    for check, folder in (
        (check_noise_folder, "s"),
        (check_collection, "s/cells"),
        (check_folder, "s/cells/clean"),
    ):
        with pytest.raises(StudyError, match=r"exists and holds no .*; name another folder"):
            check(tmp_path / folder)
