"""Writing: whole or not at all, never through a link, and nothing is left behind."""

import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from files.stray_files import stray_name
from hierlearn.errors import HierlearnError
from hierlearn.files import writing
from hierlearn.files.writing import (
    WriteError,
    append_text,
    atomic_write,
    check_output,
    check_output_folder,
    check_writable,
    hidden_name,
    is_empty,
    new_folder,
)


def write(path, text="new"):
    with atomic_write(path) as file:
        file.write(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------- links


def test_a_link_at_the_path_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for target in ("secret", "absent"):
        link = tmp_path / "out.txt"
        link.symlink_to(tmp_path / target)
        write(link)
        assert not link.is_symlink()
        assert link.read_text() == "new"
        link.unlink()
    assert (tmp_path / "secret").read_text() == "secret"
    assert names(tmp_path) == ["secret"]


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_planted_temporary_name_is_refused(tmp_path, monkeypatch, planted):
    """Even if the name were guessed: it is created, never opened."""
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(writing, "hidden_name", lambda ending: f"guessed.{ending}")
    if planted == "link":
        (tmp_path / "guessed.part").symlink_to(tmp_path / "secret")
    else:
        (tmp_path / "guessed.part").hardlink_to(tmp_path / "secret")
    with pytest.raises(WriteError, match=r"cannot write out\.txt"):
        write(tmp_path / "out.txt")
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "out.txt").exists()


def test_two_names_are_never_the_same():
    assert len({hidden_name("part") for _ in range(1000)}) == 1000


def test_nothing_is_appended_through_a_link(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(WriteError, match="cannot write log"):
        append_text(tmp_path / "log", "more")
    assert (tmp_path / "secret").read_text() == "secret"


# ---------------------------------------------------------------------- no regular files


def test_a_fifo_a_socket_and_a_device_are_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        Path("link").symlink_to("/dev/null")
        kinds = {
            "fifo": "a FIFO",
            "socket": "a socket",
            "/dev/null": "a device",
            "link": "a device",
        }
        for path, kind in kinds.items():
            for action in (
                lambda path: write(path),
                lambda path: append_text(Path(path), "more"),
                lambda path: check_writable(path),
                lambda path: check_output(path, force=True),
            ):
                with pytest.raises(WriteError, match=f"which is {kind}; name a regular file"):
                    action(path)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    for path in ("fifo", "/dev/null"):
        with pytest.raises(WriteError, match="is a file; name a folder"):
            check_output_folder(path, force=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", "holds a NUL character; name another file"),
        ("a\udcff", "is not UTF-8; name another file"),
        ("x" * 256, "File name too long; name a f"),
        ("x/" * 3000 + "x", "File name too long; name a f"),
    ],
)
def test_a_name_that_no_file_can_have(tmp_path, name, message):
    for action in (
        lambda path: write(path),
        lambda path: check_output(path, force=False),
        lambda path: check_output_folder(path, force=False),
    ):
        with pytest.raises(WriteError, match=message) as caught:
            action(str(tmp_path / name))
        assert len(str(caught.value)) < 1000
    assert names(tmp_path) == []


def test_the_longest_name_can_be_written(tmp_path):
    write(tmp_path / ("x" * 255))
    assert names(tmp_path) == ["x" * 255]


# ---------------------------------------------------------------------- what killed processes left


def test_what_a_dead_process_left_goes_and_nothing_else(tmp_path):
    (tmp_path / stray_name("part")).write_text("half")
    (tmp_path / stray_name("new")).mkdir()
    (tmp_path / stray_name("new") / "model.safetensors").write_text("half")
    kept = [".hidden.part", ".hierlearn-notes.part", "a.part", stray_name("part") + "x"]
    for name in kept:
        (tmp_path / name).write_text("mine")
    with atomic_write(tmp_path / "b.txt"), new_folder(tmp_path) as alive:
        (tmp_path / stray_name("part")).write_text("half")
        write(tmp_path / "a.txt")
        left = [name for name in names(tmp_path) if name not in kept]
        assert len(left) == 3
        assert {"a.txt", alive.name} < {*left}
    assert names(tmp_path) == sorted([*kept, "a.txt", "b.txt"])


def test_a_link_or_a_folder_by_the_name_of_a_file_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("mine")
    (tmp_path / stray_name("new")).symlink_to(tmp_path / "mine")
    (tmp_path / stray_name("part")).mkdir()
    write(tmp_path / "a.txt")
    assert names(tmp_path) == sorted(["a.txt", "mine", stray_name("new"), stray_name("part")])
    assert names(tmp_path / "mine") == ["a"]


def test_a_process_that_was_really_killed(tmp_path):
    code = (
        "import os, sys; from hierlearn.files.writing import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    path = tmp_path / "a.txt"
    path.write_text("old")
    child = subprocess.Popen([sys.executable, "-c", code, path])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still to be waited for
    assert not is_empty(tmp_path)
    write(tmp_path / "b.txt")  # while the dead child is not waited for
    assert child.wait() == -9
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert path.read_text() == "old"


def test_a_folder_with_nothing_but_strays_is_empty(tmp_path):
    assert is_empty(tmp_path)
    assert is_empty(tmp_path / "absent")
    (tmp_path / stray_name("part")).write_text("half")
    assert is_empty(tmp_path)
    (tmp_path / "a").write_text("mine")
    assert not is_empty(tmp_path)
    assert not is_empty(tmp_path / "a")


def test_a_hidden_folder_goes_unless_it_gets_a_name(tmp_path):
    with pytest.raises(TypeError), new_folder(tmp_path) as folder:
        (folder / "a").write_text(3)
    assert names(tmp_path) == []
    with new_folder(tmp_path) as folder:
        (folder / "a").write_text("whole")
        writing.rename(folder, tmp_path / "b")
    assert names(tmp_path) == ["b"]


# ---------------------------------------------------------------------- inputs


@pytest.mark.parametrize("name", ["same", "symbolic", "hard", "dotted", "folder"])
def test_an_input_is_known_by_every_name(tmp_path, name):
    source = tmp_path / "rows.csv"
    source.write_text("rows")
    (tmp_path / "symbolic.csv").symlink_to(source)
    (tmp_path / "hard.csv").hardlink_to(source)
    (tmp_path / "folder").symlink_to(tmp_path)
    path = {
        "same": source,
        "symbolic": tmp_path / "symbolic.csv",
        "hard": tmp_path / "hard.csv",
        "dotted": tmp_path / "folder" / ".." / tmp_path.name / "rows.csv",
        "folder": tmp_path / "folder" / "rows.csv",
    }[name]
    with pytest.raises(WriteError, match="is an input; write to another file"):
        check_output(path, force=True, inputs=[source])
    with pytest.raises(WriteError, match="is an input; write to another file"):
        check_output(source, force=True, inputs=[path])


def test_files_of_a_folder_that_is_read_are_not_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(WriteError, match=r"config\.json is a file of the input .*model; write"):
        check_output(tmp_path / "model" / "config.json", force=True, inputs=[tmp_path / "model"])
    check_output(tmp_path / "model" / "metrics.json", force=False, inputs=[tmp_path / "model"])


def test_a_folder_whose_files_are_replaced_holds_no_input(tmp_path):
    (tmp_path / "rows.csv").write_text("rows")
    check_output_folder(tmp_path, force=False, inputs=[tmp_path / "rows.csv", "icd10cm"])
    with pytest.raises(WriteError, match=r"rows\.csv is an input and lies in .*; move it, or"):
        check_output_folder(tmp_path, force=True, inputs=[tmp_path / "rows.csv"])
    with pytest.raises(WriteError, match="is an input; write to another folder"):
        check_output_folder(tmp_path, force=False, inputs=[tmp_path])


def test_what_is_in_a_folder_does_not_matter(tmp_path):
    for name in ("output", "a"):
        (tmp_path / name).mkdir()
    check_output_folder(tmp_path, force=False)
    check_output_folder(tmp_path / "a" / "new", force=False)


def test_a_dangling_link_is_a_file_that_exists(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "absent")
    with pytest.raises(WriteError, match="out exists; pass force=True"):
        check_output(tmp_path / "out", force=False)


def test_a_folder_that_cannot_be_written_is_noticed_first(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(HierlearnError, match=r"cannot write into .*new: Read-only file sys"):
        check_output_folder(tmp_path / "new", force=False)


def test_an_error_within_the_block_keeps_its_own_words(tmp_path):
    with pytest.raises(WriteError, match=r"^already worded$"), atomic_write(tmp_path / "a"):
        raise WriteError("already worded")
    assert names(tmp_path) == []


def test_who_writes_into_a_folder_at_the_same_time_takes_nothing_for_left_behind(tmp_path):
    def write(number):
        for time in range(60):
            if number % 2:
                with atomic_write(tmp_path / f"{number}-{time}") as file:
                    file.write("whole")
            else:
                with new_folder(tmp_path) as folder:
                    (folder / "file").write_text("whole")
                    folder.rename(tmp_path / f"{number}-{time}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len(list(tmp_path.iterdir())) == 8 * 60
