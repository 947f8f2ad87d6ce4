"""fetch verifies size and SHA-256, or records the SHA-256 of a trusted file."""

from __future__ import annotations

import hashlib

import pytest

from download_server import (
    BODY,
    BY_HAND,
    HALF,
    SHA256,
    SIZE,
    corrupt,
    get,
    leave_part,
    names,
    of_length,
    refusal,
    without_length,
)
from hierlearn.lab.corpora.download import mismatch, recorded_sha256


def test_a_wrong_hash_deletes_what_arrived(server, target):
    server.script = [corrupt]
    wrong = hashlib.sha256(BODY[:-1] + bytes([BODY[-1] ^ 1])).hexdigest()
    assert refusal(server, target) == (
        f"{server.url} has SHA-256 {wrong}, expected {SHA256}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []
    assert len(server.ranges) == 1


def test_a_wrong_hash_leaves_the_old_file(server, target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    server.script = [corrupt]
    refusal(server, target)
    assert target.read_bytes() == b"old"
    assert names(target.parent) == ["rows.arff"]


@pytest.mark.parametrize("count", [SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_refused_before_its_body(server, target, count):
    server.script = [of_length(count)]
    assert refusal(server, target) == (
        f"{server.url} has {count} bytes, expected {SIZE}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_a_resumed_file_of_another_size_is_refused(server, target):
    leave_part(target, BODY[:HALF])
    assert "has 204800 bytes, expected 204801" in refusal(server, target, size=SIZE + 1)
    assert names(target.parent) == []


def test_a_body_that_does_not_end_is_refused(server, target):
    server.script = [without_length(2 * SIZE)]
    assert refusal(server, target) == (
        f"{server.url} has more than {SIZE} bytes, expected {SIZE}; what had arrived was deleted: "
        f"run again to start over, or {BY_HAND}"
    )
    assert names(target.parent) == []


def test_without_a_hash_trust_must_be_given(server, target):
    assert refusal(server, target, sha256=None) == (
        f"no SHA-256 is known for rows.arff, so what {server.url} sends cannot be checked; pass "
        f"trust=True to accept it and record its hash, or {BY_HAND}"
    )
    assert server.ranges == []
    assert not target.parent.exists()


def test_trust_records_the_hash_and_later_calls_need_no_trust(server, target):
    get(server, target, sha256=None, trust=True)
    record = target.with_name("rows.arff.sha256")
    assert record.read_text() == f"{SHA256}  rows.arff\n"
    assert recorded_sha256(target) == SHA256
    get(server, target, sha256=None)
    assert len(server.ranges) == 1


def test_a_known_hash_writes_no_record(server, target):
    get(server, target, trust=True)
    assert names(target.parent) == ["rows.arff"]


def test_a_file_that_differs_from_its_record_is_fetched_again(server, target):
    get(server, target, sha256=None, trust=True)
    target.write_bytes(b"x" * SIZE)
    get(server, target, sha256=None)
    assert target.read_bytes() == BODY


def test_a_source_that_differs_from_the_record_is_refused(server, target):
    get(server, target, sha256=None, trust=True)
    target.unlink()
    server.script = [corrupt]
    message = refusal(server, target, sha256=None, trust=True)
    assert f"expected {SHA256}; what had arrived was deleted: delete " in message
    assert message.endswith(f"{target}.sha256 to trust the file again, or {BY_HAND}")
    assert names(target.parent) == ["rows.arff.sha256"]


def test_a_trusted_file_already_in_place_is_recorded(server, target):
    target.parent.mkdir()
    target.write_bytes(BODY)
    get(server, target, sha256=None, trust=True)
    assert server.ranges == []
    assert recorded_sha256(target) == SHA256


def test_a_damaged_record_is_an_error(server, target):
    target.parent.mkdir()
    target.with_name("rows.arff.sha256").write_text("hello\n")
    assert refusal(server, target, sha256=None, trust=True) == (
        f"{target}.sha256 does not begin with a SHA-256; delete it"
    )


def test_mismatch_shows_both_sides(tmp_path):
    path = tmp_path / "x"
    assert mismatch(path, size=None, sha256=None) == "cannot be read (No such file or directory)"
    path.write_bytes(b"abc")
    found = hashlib.sha256(b"abc").hexdigest()
    assert mismatch(path, size=3, sha256=found) is None
    assert mismatch(path, size=None, sha256=None) is None
    assert mismatch(path, size=4, sha256=found) == "has 3 bytes, expected 4"
    assert mismatch(path, size=3, sha256=SHA256) == f"has SHA-256 {found}, expected {SHA256}"
