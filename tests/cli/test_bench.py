"""``hierlearn bench``: a table of the losses on this machine."""

import re

import pytest

from hierlearn.cli.bench import spread


def test_it_times_the_losses_beside_cross_entropy(call):
    said = call("bench --rows 8 --classes 30 --levels 3 --rounds 2 --device cpu")
    assert re.match(r"8 rows, 30 classes \(\d+, \d+, \d+\) on the CPU, \d+ threads?\n", said)
    rows = re.findall(r"│ (\S[^│]*?) +│ +([\d.]+) │ +([\d.]+) │", said)
    assert [name for name, _, _ in rows] == ["bce of torch", "hcl", "hcl-hier", "hcl-cl"]
    assert rows[0][2] == "1.00"
    for _, milliseconds, ratio in rows:
        assert float(ratio) == pytest.approx(
            float(milliseconds) / float(rows[0][1]), rel=0.05, abs=0.06
        )


def test_it_takes_a_taxonomy_and_names_of_losses(call, tmp_path):
    (tmp_path / "tree.txt").write_text("a/b\na/c\nd\n")
    said = call("bench tree.txt --rows 3 --rounds 1 --losses mcloss,hxe,hcl-plain --device cpu")
    assert said.startswith("3 rows, 4 classes (2, 2) on ")
    assert all(f"│ {name} " in said for name in ("mcloss", "hxe", "hcl-plain"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench --classes 3 --levels 5", "3 classes cannot fill 5 levels; ask for fewer levels"),
        ("bench --classes 1000000000", "Invalid value for '--classes'"),
        ("bench --rows 999999999", "a batch of 999,999,999 rows of 4,000 classes takes 16,000 GB"),
        ("bench --losses hcll", "unknown loss 'hcll'; did you mean 'hcl'"),
        ("bench icd10cm --levels 2", "icd10cm is a taxonomy of its own and does not take --levels"),
    ],
)
def test_what_it_refuses(call, line, message):
    assert message in call(line, code=2)


def test_the_tree_has_the_size_that_was_asked_for():
    for classes in (1, 2, 7, 12, 100, 1000):
        for levels in range(1, min(classes, 12) + 1):
            tree = spread(classes, levels)
            assert len(tree) == classes
            assert len(tree.level_sizes) == levels
