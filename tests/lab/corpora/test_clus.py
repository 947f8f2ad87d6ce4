"""Loading a Clus set: its splits, the folders that are searched, and the download."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import numpy as np
import pytest

from hierlearn.errors import DataError, DownloadError
from hierlearn.lab.corpora import clus, download
from hierlearn.lab.corpora.clus import (
    CLUS_SETS,
    ClusSet,
    find_clus,
    load_clus,
    locate_clus,
)
from hierlearn.lab.corpora.download import Archive

HEADER = """@RELATION tiny
@ATTRIBUTE width numeric
@ATTRIBUTE color {red,green}
@ATTRIBUTE class hierarchical 1,1/1,1/2,2
@DATA
"""
TRAIN = HEADER + "1.5,red,1/1\n?,green,1/2@2\n2,red,2\n"
VALID = HEADER + "5,red,1/2\n"
TEST = HEADER + "4,green,1\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.01)
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def asked(monkeypatch, tmp_path):
    """Serve ``tmp_path/server`` in place of the repository; return the paths asked for."""
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            """Keep the test output quiet."""

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "server"))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(clus, "ADDRESS", address)
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def tiny_set(name="tiny", *, checksum=True, size=True):
    texts = {"train": TRAIN, "valid": VALID, "test": TEST}
    files = {
        split: Archive(
            f"{name}.{split}.arff",
            len(text) if size else None,
            hashlib.sha256(text.encode()).hexdigest() if checksum else None,
            "http",
            f"{clus.ADDRESS}HMC_data/datasets_FUN/{name}/{name}.{split}.arff",
        )
        for split, text in texts.items()
    }
    return ClusSet(name, "three small files", files)


@pytest.fixture
def tiny(monkeypatch, tmp_path, asked):
    """A verified set ``tiny`` and an unverified set ``loose``, both on the server."""
    monkeypatch.setitem(CLUS_SETS, "tiny", tiny_set())
    monkeypatch.setitem(CLUS_SETS, "loose", tiny_set("loose", checksum=False, size=False))
    for name in ("tiny", "loose"):
        for split, text in {"train": TRAIN, "valid": VALID, "test": TEST}.items():
            write(tmp_path / "server" / path_of(name, split), text)


def path_of(name, split):
    return CLUS_SETS[name].files[split].source.removeprefix(clus.ADDRESS)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_diatoms(folder, train=TRAIN, test=TEST, below=""):
    write(folder / below / "Diatoms_train.arff", train)
    write(folder / below / "Diatoms_test.arff", test)
    return folder


def row_count(split, dataset):
    return len(dataset.split(split))


# ---------------------------------------------------------------- joining the splits


def test_splits_are_joined_in_order(tmp_path):
    dataset = load_clus("diatoms", data_dir=write_diatoms(tmp_path / "own"))
    assert dataset.name == "diatoms"
    assert {name: list(rows) for name, rows in dataset.splits.items()} == {
        "train": [0, 1, 2],
        "test": [3],
    }
    assert dataset.inputs.dtype == np.float32
    assert dataset.inputs[:, 0].tolist() == pytest.approx([1.5, np.nan, 2, 4], nan_ok=True)
    assert dataset.inputs.shape == (4, 3)
    assert len(dataset.feature_names) == 3
    assert dataset.labels == [["1/1"], ["1/2", "2"], ["2"], ["1"]]
    assert len(dataset.hierarchy.names) == 4


def test_the_yeast_sets_have_a_valid_split(tmp_path):
    for split, text in {"train": TRAIN, "valid": VALID, "test": TEST}.items():
        write(tmp_path / "own" / f"derisi_GO.{split}.arff", text)
    dataset = load_clus("derisi_go", data_dir=tmp_path / "own")
    assert {name: list(rows) for name, rows in dataset.splits.items()} == {
        "train": [0, 1, 2],
        "valid": [3],
        "test": [4],
    }
    assert dataset.labels[3] == ["1/2"]


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("hierarchy", "1/2,2", "1/2,2,3"),
        ("attributes", "width", "height"),
        ("attributes", "red,green", "green,red"),
    ],
)
def test_headers_must_agree(tmp_path, what, old, new):
    folder = write_diatoms(tmp_path / "own", test=TEST.replace(old, new))
    with pytest.raises(DataError) as caught:
        load_clus("diatoms", data_dir=folder)
    assert str(caught.value) == (
        f"{folder}/Diatoms_test.arff and {folder}/Diatoms_train.arff differ in the {what} of "
        f"their headers; take all files of diatoms from one source"
    )


def test_the_source_says_whether_the_files_are_verified(tmp_path, tiny):
    assert load_clus("tiny").source == (
        "Clus ARFF files as in https://github.com/EGiunchiglia/C-HMCNN at commit 06d35fe, "
        "SHA-256 verified."
    )
    for name, options in (("loose", {"trust": True}), ("diatoms", {"data_dir": tmp_path / "own"})):
        write_diatoms(tmp_path / "own")
        assert load_clus(name, **options).source.endswith("SHA-256 not verified.")


# ---------------------------------------------------------------- where files are looked for


def rows_file(count):
    return HEADER + "1,red,2\n" * count


def test_the_search_order(tmp_path, monkeypatch, cache, tiny, asked):
    monkeypatch.setenv("HIERLEARN_DATA", str(tmp_path / "env"))
    for split, text in {"train": TRAIN, "valid": VALID, "test": TEST}.items():
        name = CLUS_SETS["tiny"].files[split].name
        write(cache / name, text)
        write(tmp_path / "env" / name, rows_file(7))
        write(tmp_path / "own" / name, rows_file(9))
    assert row_count("train", load_clus("tiny", data_dir=tmp_path / "own")) == 9
    assert row_count("train", load_clus("tiny")) == 7
    (tmp_path / "own" / "tiny.valid.arff").unlink()  # an incomplete folder does not count
    assert row_count("train", load_clus("tiny", data_dir=tmp_path / "own")) == 7
    monkeypatch.setenv("HIERLEARN_DATA", "")
    assert row_count("train", load_clus("tiny", data_dir=tmp_path / "own")) == 3
    assert asked == []


@pytest.mark.parametrize("below", ["", "others", "HMC_data/others"])
def test_files_are_found_as_the_repository_lays_them_out(tmp_path, below):
    write_diatoms(tmp_path / "own", below=below)
    assert find_clus("diatoms", tmp_path / "own") == {
        "train": tmp_path / "own" / below / "Diatoms_train.arff",
        "test": tmp_path / "own" / below / "Diatoms_test.arff",
    }


def test_find_says_none_for_an_incomplete_folder(tmp_path):
    assert find_clus("diatoms", tmp_path / "nowhere") is None
    (write_diatoms(tmp_path / "own") / "Diatoms_test.arff").unlink()
    assert find_clus("diatoms", str(tmp_path / "own")) is None


def test_an_unknown_name(tmp_path):
    for call in (partial(load_clus, "diatom"), partial(find_clus, "diatom", tmp_path)):
        with pytest.raises(DataError) as caught:
            call()
        assert str(caught.value).startswith(
            "unknown Clus set 'diatom'; did you mean 'diatoms'? known: cellcycle_fun, cellcycle_go,"
        )


def test_absent_files_without_download(tmp_path, monkeypatch, cache):
    for name in ("own", "env"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HIERLEARN_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError) as caught:
        load_clus("diatoms", data_dir=tmp_path / "own", download=False)
    assert str(caught.value) == (
        f"diatoms needs the files 'Diatoms_train.arff', 'Diatoms_test.arff', and none of these "
        f"folders holds all of them undamaged: {tmp_path}/own, {tmp_path}/env, {cache}; name the "
        f"right folder with data_dir= or HIERLEARN_DATA, or allow the download with download=True"
    )


def test_a_misspelled_folder_is_an_error(tmp_path, monkeypatch, asked):
    with pytest.raises(DataError) as caught:
        load_clus("diatoms", data_dir=tmp_path / "onw")
    assert str(caught.value) == (
        f"data_dir names {tmp_path}/onw, which is no folder; correct it or leave it out"
    )
    monkeypatch.setenv("HIERLEARN_DATA", str(tmp_path / "evn"))
    with pytest.raises(DataError, match=r"^HIERLEARN_DATA names .*/evn, which is no folder; "):
        load_clus("diatoms")
    assert asked == []
    assert locate_clus("diatoms") is None


# ---------------------------------------------------------------- downloading


def test_absent_files_are_downloaded_once_into_the_cache(cache, tiny, asked):
    dataset = load_clus("tiny")
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {
        "train": 3,
        "valid": 1,
        "test": 1,
    }
    assert asked == [
        f"/HMC_data/datasets_FUN/tiny/tiny.{split}.arff" for split in ("train", "valid", "test")
    ]
    assert find_clus("tiny", cache) is not None
    load_clus("tiny")
    load_clus("tiny", download=False)
    assert len(asked) == 3


def test_a_damaged_file_in_the_cache_is_replaced(cache, tiny, asked):
    load_clus("tiny")
    (cache / "tiny.test.arff").write_text(TEST.replace("4", "5"))
    with pytest.raises(DataError, match="none of these folders holds all of them undamaged"):
        load_clus("tiny", download=False)
    assert load_clus("tiny").inputs[-1, 0] == 4
    assert asked[3:] == ["/HMC_data/datasets_FUN/tiny/tiny.test.arff"]


def test_a_set_without_checksum_needs_trust(cache, tiny, asked):
    with pytest.raises(DownloadError) as caught:
        load_clus("loose")
    assert str(caught.value) == (
        "no SHA-256 is known for loose.train.arff, so what is downloaded cannot be checked; "
        "accept it once with: hierlearn data fetch loose --trust (trust=True in Python), or put "
        "the file by hand into a folder named by data_dir= or HIERLEARN_DATA"
    )
    assert asked == []
    assert not cache.exists()


def test_a_trusted_set_in_the_cache_is_taken_as_it_is(cache, tiny, asked):
    load_clus("loose", trust=True)
    load_clus("loose")
    (cache / "loose.train.arff").write_text(rows_file(2))
    assert row_count("train", load_clus("loose")) == 2
    assert len(asked) == 3


def test_a_missing_file_on_the_server(tiny, tmp_path):
    (tmp_path / "server" / path_of("tiny", "valid")).unlink()
    with pytest.raises(
        DownloadError, match=r"tiny\.valid\.arff: the server answered 404 File not found; check"
    ):
        load_clus("tiny")


def test_progress_runs_over_all_files_of_a_set(cache, tiny):
    write(cache / "tiny.train.arff", TRAIN)  # counts as received
    seen = []
    load_clus("tiny", progress=lambda *report: seen.append(report))
    size = len(TRAIN) + len(VALID) + len(TEST)
    assert seen[0] == (len(TRAIN), size)
    assert seen[-1] == (size, size)
    assert all(a[0] <= b[0] for a, b in pairwise(seen))


def test_progress_of_a_set_of_unknown_size(tiny):
    seen = []
    load_clus("loose", trust=True, progress=lambda *report: seen.append(report))
    assert seen[-1] == (len(TRAIN) + len(VALID) + len(TEST), None)
