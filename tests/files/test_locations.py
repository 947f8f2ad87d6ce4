"""Where tables are: folders, patterns and addresses, in order, without secrets in messages."""

import importlib
import sys

import fsspec
import pytest

from hierlearn.errors import DataError
from hierlearn.files.locations import RemotePath, as_location, find_files, is_address

fsspec_registry = importlib.import_module("fsspec.registry")  # fsspec.registry is its mapping


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("s3://bucket/rows", True),
        ("memory://a.parquet", True),
        ("simplecache::s3://bucket/a.parquet", True),
        ("rows/a.parquet", False),
        ("C:\\rows", False),
        ("a:b.csv", False),
    ],
)
def test_addresses_are_told_from_paths(source, expected):
    assert is_address(source) is expected
    assert isinstance(as_location(source), RemotePath) is expected


@pytest.fixture(params=["local", "memory"])
def root(request, tmp_path):
    """A folder with tables and notes beside them, as engines write them."""
    names = ["b.parquet", "a.parquet", "_done.parquet", ".a.parquet.crc", ".x.parquet", "n.txt"]
    names += ["deep/c.parquet"]
    base = str(tmp_path) if request.param == "local" else "memory://locations"
    filesystem, path = fsspec.core.url_to_fs(base)
    for name in names:
        filesystem.pipe_file(f"{path}/{name}", b"x") if "/" not in name else (
            filesystem.makedirs(f"{path}/deep", exist_ok=True),
            filesystem.pipe_file(f"{path}/{name}", b"x"),
        )
    yield base
    if request.param == "memory":
        filesystem.rm(path, recursive=True)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["a.parquet", "b.parquet"]),
        ("/", ["a.parquet", "b.parquet"]),
        ("/[ab].parquet", ["a.parquet", "b.parquet"]),
        ("/b*", ["b.parquet"]),
        ("/**/c.parquet", ["c.parquet"]),
        ("/b.parquet", ["b.parquet"]),
    ],
)
def test_folders_and_patterns_stand_for_files_in_the_order_of_their_names(root, pattern, expected):
    found = find_files(as_location(root + pattern), ".parquet")
    assert [one.name for one in found] == expected
    assert all(str(one).replace(":///", "://").startswith(root) for one in found)


def test_a_folder_without_tables_is_refused(tmp_path):
    (tmp_path / "n.txt").write_text("x")
    with pytest.raises(DataError, match=r"no file in it ends in \.parquet"):
        find_files(tmp_path, ".parquet")
    with pytest.raises(DataError, match=r"no file in it ends in \.parquet"):
        find_files(tmp_path / "*.parquet", ".parquet")
    with pytest.raises(DataError, match="memory://nowhere: no such file or folder"):
        find_files(RemotePath("memory://nowhere"), ".parquet")


def test_secrets_are_never_shown():
    signed = RemotePath("https://host/a.parquet?key=SECRET&sig=SECRET")
    assert str(signed) == "https://host/a.parquet"
    assert "SECRET" not in repr(signed)
    assert signed.suffix == ".parquet"
    with pytest.raises(DataError, match="holds a password") as error:
        RemotePath("ftp://me:SECRET@host/a.parquet")
    assert "SECRET" not in str(error.value)


def test_what_a_store_says_is_shown_without_secrets(monkeypatch):
    def open(self, path, *given, **options):
        raise ValueError(f"403 of {path}?sig=SECRET, retry")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.open", open)
    with pytest.raises(
        DataError, match=r"memory://a\.parquet cannot be read: 403 of /a\.parquet"
    ) as error:
        RemotePath("memory://a.parquet").open()
    assert "SECRET" not in str(error.value)
    assert error.value.__suppress_context__


@pytest.mark.parametrize(
    ("address", "package"), [("s3://bucket/rows", "s3fs"), ("gs://bucket/rows", "gcsfs")]
)
def test_a_missing_package_is_named(monkeypatch, address, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(fsspec_registry._registry, address.partition(":")[0], raising=False)
    with pytest.raises(DataError, match=f"needs `pip install {package}`"):
        RemotePath(address).filesystem()


def test_an_unknown_protocol_is_refused():
    with pytest.raises(DataError, match="nosuch://x cannot be read: Protocol not known: nosuch"):
        RemotePath("nosuch://x").filesystem()
