"""The server to download from, and the path to download to."""

from __future__ import annotations

import threading

import pytest

from download_server import Server
from hierlearn.lab.corpora import download


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _direct_and_quick(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSE", 0.01)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "rows.arff"
