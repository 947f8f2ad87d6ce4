"""Archives: where they are looked for, that they are verified, and that members are read safely."""

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from archive_files import pin, write_tgz, write_wheel, write_zip
from download_server import BODY, SHA256, SIZE, Server
from hierlearn.errors import DataError, DownloadError
from hierlearn.lab.corpora import download
from hierlearn.lab.corpora.download import (
    Archive,
    locate_archive,
    obtain,
    read_member,
    read_members,
)

NAME = "tiny_rows-1.0-py3-none-any.whl"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path):
    return write_wheel(tmp_path / "index" / NAME, {"tiny_rows/rows.csv": "a,b\n"})


@pytest.fixture
def archive(wheel):
    return pin(Archive(NAME, 0, "", "pip", "tiny-rows==1.0"), wheel)


@pytest.fixture
def index(monkeypatch, wheel):
    """Let pip see the folder of the wheel and nothing else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


def no_download(*arguments):
    raise AssertionError("nothing may be downloaded here")


# ---------------------------------------------------------------------- where it is looked for


def test_pip_downloads_the_wheel_into_the_cache_once(index, archive, cache, monkeypatch):
    pytest.importorskip("pip")
    seen = []
    path = obtain(archive, progress=lambda *report: seen.append(report))
    assert path == cache / NAME
    assert read_member(path, "tiny_rows/rows.csv") == b"a,b\n"
    assert seen == [(0, archive.size), (archive.size, archive.size)]
    assert [one.name for one in cache.iterdir()] == [NAME]  # neither a lock nor a folder is left
    monkeypatch.setattr(download, "download_package", no_download)
    assert obtain(archive) == path
    assert locate_archive(archive) == path


def test_what_a_killed_download_left_is_removed_by_the_next(index, archive, cache):
    code = (
        "import os, sys; from pathlib import Path; from hierlearn.files.writing import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('x'); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, cache])
    assert len(list(cache.iterdir())) == 1
    obtain(archive)
    assert [path.name for path in cache.iterdir()] == [NAME]


def test_another_file_of_the_index_is_refused(index, archive, wheel, cache):
    pytest.importorskip("pip")
    write_wheel(wheel, {"tiny_rows/rows.csv": "c,d\n"})
    with pytest.raises(DownloadError, match="from the configured package index has ") as caught:
        obtain(archive)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_an_address_is_fetched_and_verified(server, cache):
    archive = Archive("rows.zip", SIZE, SHA256, "http", server.url)
    assert obtain(archive).read_bytes() == BODY
    assert locate_archive(archive) == cache / "rows.zip"
    with pytest.raises(DownloadError, match=r"has SHA-256 \w{64}, expected 0{64}"):
        obtain(Archive("other.zip", SIZE, "0" * 64, "http", server.url))


def test_a_damaged_file_in_the_cache_is_fetched_again(index, archive, cache):
    pytest.importorskip("pip")
    cache.mkdir()
    (cache / NAME).write_bytes(b"\0" * archive.size)
    assert locate_archive(archive) is None
    assert hashlib.sha256(obtain(archive).read_bytes()).hexdigest() == archive.sha256


@pytest.mark.parametrize("named_by", ["data_dir", "HIERLEARN_DATA"])
def test_own_folders_come_first_and_are_verified(named_by, archive, wheel, monkeypatch):
    monkeypatch.setattr(download, "download_package", no_download)
    options = {}
    if named_by == "data_dir":
        options["data_dir"] = wheel.parent
    else:
        monkeypatch.setenv("HIERLEARN_DATA", str(wheel.parent))
    assert obtain(archive, **options) == wheel
    assert locate_archive(archive, **options) == wheel
    content = bytearray(wheel.read_bytes())
    content[-1] ^= 1
    wheel.write_bytes(content)
    assert locate_archive(archive, **options) is None
    with pytest.raises(DataError, match=r"has SHA-256 \w{64}, expected \w{64}; replace it by"):
        obtain(archive, **options)
    wheel.write_bytes(content[:-1])
    with pytest.raises(DataError, match=rf"has {archive.size - 1} bytes, expected {archive.size}"):
        obtain(archive, **options)


def test_a_folder_that_does_not_exist_starts_no_download(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "download_package", no_download)
    with pytest.raises(DataError, match=r"data_dir names .*onw, which is no folder"):
        obtain(archive, data_dir=tmp_path / "onw")


def test_without_a_download_the_message_names_file_and_folders(archive, tmp_path, cache):
    (tmp_path / "own").mkdir()
    with pytest.raises(DataError) as caught:
        obtain(archive, data_dir=tmp_path / "own", download=False)
    assert str(caught.value) == (
        f"{NAME} of tiny-rows==1.0 (pip) is in none of these folders: {tmp_path / 'own'}, {cache}; "
        f"name the right folder with data_dir= or HIERLEARN_DATA, or allow the download with "
        f"download=True"
    )


def test_a_cache_that_cannot_be_written(archive, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(DownloadError, match=r"cannot write tiny_rows.* set HIERLEARN_CACHE"):
        obtain(archive)


# ---------------------------------------------------------------------- what is read


@pytest.mark.parametrize("write", [write_zip, write_tgz])
def test_members_are_read_by_name(write, tmp_path):
    path = write(
        tmp_path / ("a.tgz" if write is write_tgz else "a.zip"),
        {"x/one.txt": "1", "x/two.txt": "22", "../evil.txt": "3"},
    )
    assert read_member(path, "x/two.txt") == b"22"
    found = read_members(path, lambda name: name.startswith("x/"), "texts")
    assert found == {"x/one.txt": b"1", "x/two.txt": b"22"}
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name]  # nothing is unpacked
    with pytest.raises(DataError, match=r"holds no x/three.txt; use the release"):
        read_member(path, "x/three.txt")


@pytest.mark.parametrize("write", [write_zip, write_tgz])
def test_a_member_has_a_largest_size(write, tmp_path):
    path = write(tmp_path / ("a.tgz" if write is write_tgz else "a.zip"), {"a": b"\0" * 100_000})
    assert path.stat().st_size < 2000
    assert len(read_member(path, "a", most=100_000)) == 100_000
    with pytest.raises(DataError, match="holds more than 99,999 bytes in a, which is no file"):
        read_member(path, "a", most=99_999)


def test_the_largest_size_counts_all_members_together(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a": b"12345", "b": b"67890"})
    assert len(read_members(path, lambda name: True, "any", most=10)) == 2
    with pytest.raises(DataError, match="holds more than 4 bytes in b"):
        read_members(path, lambda name: True, "any", most=9)


def test_links_of_a_tarball_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("data")
        info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        archive.addfile(info)
    with pytest.raises(DataError, match="holds no data"):
        read_member(tmp_path / "a.tgz", "data")


@pytest.mark.parametrize("name", ["a.zip", "a.tgz"])
@pytest.mark.parametrize("content", [b"", b"no archive", "cut"])
def test_what_is_no_archive(name, content, tmp_path):
    path = tmp_path / name
    if content == "cut":
        write = write_tgz if name == "a.tgz" else write_zip
        noise = hashlib.shake_256(b"").digest(5000)
        content = write(path, {"x": noise}).read_bytes()[:3000]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read as an archive .*; delete it and fetch"):
        read_member(path, "x")


def test_a_member_that_does_not_fit_its_checksum(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", "some text that is stored")
    content = buffer.getvalue().replace(b"some text", b"some next")
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read as an archive \(Bad CRC-32"):
        read_member(tmp_path / "a.zip", "x")
