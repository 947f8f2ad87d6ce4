"""``hierlearn data fetch`` against a server on this machine, and what it shows meanwhile."""

import hashlib
import io
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from hierlearn.cli import app
from hierlearn.cli.rows import reading
from hierlearn.datasets.registry import DATASETS, DatasetEntry
from hierlearn.lab.corpora.clus import CLUS_SETS, ClusSet, load_clus
from hierlearn.lab.corpora.download import Archive

TEXT = "@attribute x numeric\n@attribute c hierarchical a,a/b\n@data\n" + "1,a/b\n" * 5000


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Keep the test output quiet."""


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The verified set ``tiny``, served from this machine and not at hand."""
    (tmp_path / "server").mkdir()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "server"))
    )
    files = {}
    for split in ("train", "test"):
        (tmp_path / "server" / f"{split}.arff").write_text(TEXT)
        digest = hashlib.sha256(TEXT.encode()).hexdigest()
        address = f"http://127.0.0.1:{server.server_port}/{split}.arff"
        files[split] = Archive(f"{split}.arff", len(TEXT), digest, "http", address)
    monkeypatch.setitem(CLUS_SETS, "tiny", ClusSet("tiny", "two small files", files))
    entry = DatasetEntry("tiny", "two small files", "files", partial(load_clus, "tiny"))
    monkeypatch.setitem(DATASETS, "tiny", entry)
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("terminal", [False, True])
def test_fetch_downloads_verifies_and_says_so(tiny, tmp_path, monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "100")
    done = CliRunner().invoke(app, ["data", "fetch", "tiny"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "tiny: 10,000 rows are ready" in done.stdout
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [
        "test.arff",
        "train.arff",
    ]
    if terminal:
        assert "reading tiny" in done.stderr
        assert "60.1/60.1" in done.stderr
    else:
        assert done.stderr == ""
    again = CliRunner().invoke(app, ["data", "describe", "tiny"], catch_exceptions=False)
    assert "SHA-256 verified" in again.stdout.replace("\n", " ")


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    with reading("rows.csv") as report:
        report(1, 2)
    assert shown.getvalue() == ""
