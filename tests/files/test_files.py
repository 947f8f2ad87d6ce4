import errno
import os

import pytest

from hierlearn.errors import DataError
from hierlearn.files import read_rows, read_text, stream_rows
from hierlearn.files.writing import WriteError, atomic_write, check_output, check_writable


def test_line_ends_and_byte_order_mark_are_normalized(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_text(path) == "one\ntwo\nthree\n"


@pytest.mark.parametrize("content", [b"", b" \n\t\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.txt is empty"):
        read_text(path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("eins\nzwei\nfünf\n".encode("latin1"))
    with pytest.raises(DataError, match=r"a\.txt, line 3: byte 0xfc is not UTF-8; convert"):
        read_text(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_text(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a folder, not a file"):
        read_text(tmp_path)


def test_rows_keep_their_line_numbers_over_quoted_breaks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"x\ny",1\n\n2,3\n')
    assert read_rows(path) == (["a", "b"], [(3, ["x\ny", "1"]), (5, ["2", "3"])])


def test_empty_rows_are_skipped_unless_streamed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n,\n\n ,\n")
    assert read_rows(path)[1] == [(2, ["1", "2"])]
    assert list(stream_rows(path)[1]) == [(2, ["1", "2"]), (3, ["", ""]), (5, [" ", ""])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2,3\n", r"a\.csv, line 2: 3 cells, but the header has 2"),
        ("a,b\n1\n", r"a\.csv, line 2: 1 cell, but the header has 2"),
        ("a,a\n1,2\n", r"line 1: two columns have the name 'a'"),
        ('a,b\n"1,2\n', r"a\.csv, line 2: unexpected end of data"),
    ],
)
def test_malformed_tables_name_the_line(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_rows(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_write(path) as file:
        file.writelines(["half", 1])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_error_names_the_file_the_folder_and_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    for action in (lambda path: atomic_write(path).__enter__(), check_writable):
        with pytest.raises(WriteError) as caught:
            action(tmp_path / "file" / "a.txt")
        assert str(caught.value) == (
            f"cannot write a.txt into {tmp_path}/file: that is no folder; "
            f"name a file in a folder that you can write to"
        )
        for folder in (tmp_path, "", "."):
            with pytest.raises(WriteError, match="which is a folder; name a file in it"):
                action(folder)
    with pytest.raises(WriteError, match=r"cannot write a\.txt into .*: No space left"):  # noqa: SIM117
        with atomic_write(tmp_path / "a.txt"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_check_of_targets_leaves_no_trace(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    check_writable(tmp_path / "old.txt", tmp_path / "deep" / "er" / "a.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_a_write_makes_folders_and_honours_the_umask(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with atomic_write(path) as file:
        file.write("new")
    assert path.read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_streamed_rows_are_the_rows_as_written(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b'\xef\xbb\xbfa\t b\r\n"x\ty"\t1 \r\n\t\r\n\r\n2\t3')
    header, rows = stream_rows(path)
    assert header == ["a", "b"]
    assert list(rows) == [(2, ["x\ty", "1 "]), (3, ["", ""]), (5, ["2", "3"])]
    assert read_rows(path) == (header, [(2, ["x\ty", "1"]), (5, ["2", "3"])])


def test_a_streamed_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv: no such file"):
        stream_rows(tmp_path / "a.csv")
    with pytest.raises(DataError, match="is a folder, not a file"):
        stream_rows(tmp_path)
    for content in ("", "\n", " \n\n"):
        (tmp_path / "a.csv").write_text(content)
        with pytest.raises(DataError, match=r"a\.csv is empty"):
            stream_rows(tmp_path / "a.csv")


def test_a_file_is_replaced_on_request_only_and_never_what_is_read(tmp_path):
    old = tmp_path / "old.csv"
    old.write_text("old")
    with pytest.raises(WriteError, match=r"old\.csv exists; pass force=True to replace it"):
        check_output(old, force=False)
    check_output(old, force=True)
    check_output(tmp_path / "new.csv", force=False, inputs=[old, tmp_path / "absent"])
    (tmp_path / "link.csv").symlink_to(old)
    with pytest.raises(WriteError, match=r"link\.csv is an input; write to another file"):
        check_output(tmp_path / "link.csv", force=True, inputs=[old])
    with pytest.raises(WriteError, match="which is a folder; name a file in it"):
        check_output(tmp_path, force=True)
    assert old.read_text() == "old"
