"""Reading takes a small constant times the file, and hostile files are refused in time.

Each case runs in a process of its own, whose address space may grow by a limit only.
"""

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MB = 1 << 20
CODE = """
import resource, sys
from hierlearn import Hierarchy
from hierlearn.cli import train
from hierlearn.cli.train import option_kinds, read_config
from hierlearn.cli.train import PER_RUN
from hierlearn.datasets.tables.arff import read_arff
from hierlearn.datasets.tables.read import read_table
from hierlearn.errors import HierlearnError
import pyarrow.parquet, yaml
kinds = option_kinds(train.train, without=PER_RUN)
path, limit = sys.argv[1], int(sys.argv[2])
used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
readers = {
    'csv': lambda: read_table(path, label='class'),
    'parquet': lambda: read_table(path, label='class'),
    'arff': lambda: read_arff(path), 'yaml': lambda: read_config(path, kinds),
}
try:
    made = readers.get(path.rsplit('.', 1)[1], lambda: Hierarchy.read(path))()
    print('read', len(made))
except HierlearnError as error:
    assert len(str(error)) <= 600, len(str(error))
    print('refused', error)
"""


def outcome(path, limit):
    line = [sys.executable, "-c", CODE, str(path), str(limit)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.strip().replace(str(path), "FILE")


def test_one_long_cell_pads_no_other(tmp_path):
    note = "x" * (4 * MB)
    lines = [f"{n},word{n % 7},a/{n % 3}" for n in range(20_000)]
    lines[5] = f"1,{note},a/1"
    (tmp_path / "x.csv").write_text("n,note,class\n" + "\n".join(lines))
    assert outcome(tmp_path / "x.csv", 700 * MB) == "read 20000"


def test_a_number_of_many_digits(tmp_path):
    lines = [f"{n},a/{n % 3}" for n in range(20_000)]
    lines[5] = "9" * 100_000 + ",a/1"
    (tmp_path / "x.csv").write_text("n,class\n" + "\n".join(lines))
    assert "refused FILE, line 7, column 'n'" in outcome(tmp_path / "x.csv", 500 * MB)


def test_a_long_value_of_an_arff_file(tmp_path):
    head = "@relation r\n@attribute a numeric\n@attribute class hierarchical 1,2\n@data\n"
    rows = [f"{n},1" for n in range(20_000)]
    rows[7] = "9" * 100_000 + ",2"
    (tmp_path / "x.arff").write_text(head + "\n".join(rows))
    assert "refused FILE, line 12, column 'a'" in outcome(tmp_path / "x.arff", 500 * MB)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [20_000, 1_000_000])
def test_a_chain_of_classes(tmp_path, depth):
    edges = "\n".join(f"{n},{n + 1}" for n in range(depth))
    (tmp_path / "x.tsv").write_text("parent\tchild\n" + edges.replace(",", "\t"))
    said = outcome(tmp_path / "x.tsv", 1500 * MB)
    assert "more than 4,000 levels, which are not supported" in said


def test_a_deep_path(tmp_path):
    (tmp_path / "x.txt").write_text("/".join(["a"] * 20_000))
    assert "more than 4,000 levels" in outcome(tmp_path / "x.txt", 300 * MB)


def test_long_paths_of_many_classes(tmp_path):
    chain = [f"{n},{n + 1}" for n in range(3000)]
    (tmp_path / "x.tsv").write_text(
        "parent\tchild\n"
        + "\n".join([*chain, *(f"3000,leaf{n}" for n in range(60_000))]).replace(",", "\t")
    )
    assert "characters in the paths of its classes" in outcome(tmp_path / "x.tsv", 800 * MB)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" + "1" * 1_000_000 + "]"])
def test_json_of_strangers(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    assert outcome(tmp_path / "x.json", 300 * MB).startswith("refused FILE")


def test_json_with_a_long_name(tmp_path):
    (tmp_path / "x.json").write_text('{"a": "' + "b" * MB + '"}')
    assert outcome(tmp_path / "x.json", 300 * MB).startswith("refused FILE: class 'a' has the unk")


def bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (bomb(), "line 2: aliases (&name, *name) are not read"),
        ("epochs: !!int x", "line 1: tags such as 'tag:yaml.org,2002:int' are not read"),
        ("a: !!python/object/apply:os.system [ls]", "tags such as"),
        ("epochs: 2020-13-45", "epochs must be an integer, not '2020-13-45'"),
        ("epochs: 2020-01-02", "epochs must be an integer, not '2020-01-02'"),
        ("epochs: " + "9" * 5000, "is not valid YAML"),
        ("epochs: " + "[" * 100_000, "nested more than 20 deep"),
        ("epochs: 1\nepochs: 2", "the key 'epochs' occurs twice"),
        ("? [a, b]\n: 1", "is not valid YAML"),
        ("loss: " + "x" * (2 * MB), "has 2,097,158 bytes, and at most 1,048,576 are read"),
        ('loss: "a\\0b"', "loss holds a NUL character"),
    ],
)
def test_yaml_of_strangers(tmp_path, text, wrong):
    (tmp_path / "x.yaml").write_text(text)
    said = outcome(tmp_path / "x.yaml", 300 * MB)
    assert said.startswith("refused FILE")
    assert wrong in said


def test_an_obo_file_takes_a_constant_times_its_size(tmp_path):
    terms = [f"[Term]\nid: T:{n}\nis_a: T:{n // 2}\n" for n in range(1, 40_000)]
    (tmp_path / "x.obo").write_text("\n".join(["[Term]\nid: T:0\n", *terms]))
    assert outcome(tmp_path / "x.obo", 600 * MB) == "read 40000"


def test_a_gzip_bomb(tmp_path):
    (tmp_path / "x.obo.gz").write_bytes(gzip.compress(b"\n" * (200 * MB)))
    assert "bytes once decompressed" in outcome(tmp_path / "x.obo.gz", 500 * MB)


def test_parquet_with_equal_names_lists_and_broken_texts(tmp_path):
    path = tmp_path / "x.parquet"
    number, label = pa.array([1.0, 2.0]), pa.array(["a", "b"])
    pq.write_table(pa.Table.from_arrays([number, number, label], names=["n", "n", "class"]), path)
    assert (
        outcome(path, 500 * MB) == "refused FILE: two columns have the name 'n'; rename one of them"
    )
    offsets = pa.py_buffer(np.array([0, 1, 3], dtype=np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    pq.write_table(pa.table({"n": number, "class": broken}), path)
    assert outcome(path, 500 * MB) == "refused FILE, line 2, column 'class': the text is not UTF-8"
    pq.write_table(pa.table({"n": pa.array([[1], [2]]), "class": label}), path)
    assert outcome(path, 500 * MB).startswith("refused column 'n' holds [1] (list), not a")
