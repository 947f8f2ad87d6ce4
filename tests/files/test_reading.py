import os

import pytest

from hierlearn.errors import DataError, DataWarning, HierlearnError, did_you_mean, shorten, shown
from hierlearn.files.reading import guarded, open_regular, parse_json, read_bytes, read_json


def refused(work, *given, kind=DataError):
    with pytest.raises(kind) as caught:
        work(*given)
    return str(caught.value)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    wrong = "is not a regular file; copy its content into one"
    assert refused(open_regular, tmp_path / "pipe") == f"{tmp_path / 'pipe'} {wrong}"
    assert refused(read_bytes, "/dev/zero") == f"/dev/zero {wrong}"
    assert refused(read_bytes, tmp_path) == f"{tmp_path} is a folder, not a file"
    assert refused(read_bytes, tmp_path / "a") == f"{tmp_path / 'a'}: no such file"
    assert refused(read_bytes, "a\0b") == "'a\\x00b' cannot be the name of a file"
    assert refused(read_bytes, "a" * 5000).endswith("aaa: File name too long")


def test_sizes_are_compared_before_memory_is_taken(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    assert refused(read_bytes, tmp_path / "a", 4) == (
        f"{tmp_path / 'a'} has 5 bytes, and at most 4 are read"
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ("1" * 5000, "cannot be read as JSON (Exceeds the limit"),
        ('{"a": 1,\n]', "line 2: not JSON: "),
    ],
)
def test_json(tmp_path, text, wrong):
    (tmp_path / "a.json").write_text(text)
    assert wrong in refused(read_json, tmp_path / "a.json")
    assert refused(parse_json, text)


def test_guarded_names_the_file_and_keeps_errors_that_do():
    for error, reason in [(KeyError("x"), "no 'x'"), (RuntimeError("a\nb"), "b"), (EOFError(), "")]:
        with pytest.raises(DataError) as caught, guarded("f.json", "is damaged"):
            raise error
        assert str(caught.value).startswith(f"f.json is damaged ({reason or 'EOFError'}")
    for own in (DataError("own"), HierlearnError("f.json, line 3: x")):
        with pytest.raises(HierlearnError, match=str(own)), guarded("f.json", "is damaged"):
            raise own
    with pytest.raises(KeyboardInterrupt), guarded("f.json", "is damaged"):
        raise KeyboardInterrupt


def test_messages_are_short_and_keep_the_remedy():
    for kind in (HierlearnError, DataError, DataWarning):
        message = str(kind("begins " + "x" * 400_000 + " do this"))
        assert len(message) == 600
        assert message.startswith("begins x")
        assert message.endswith("x do this")
        assert str(kind("short")) == "short"
    assert shorten("a" * 600) == "a" * 600


def test_values_are_shown_in_a_few_words():
    assert shown("a" * 100) == repr("a" * 60) + "..."
    assert shown([1, 2]) == "list of 2 entries"
    assert shown(10**5000) == "a huge integer"
    assert shown(None) == "None"
    assert len(shown(10**100)) <= 65


def test_long_names_are_not_compared():
    assert did_you_mean("a" * 10**6, ["a" * 10**6]) == ""
