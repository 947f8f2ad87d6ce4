"""Many Parquet files are one table, on this machine or behind a filesystem of fsspec."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import counted_files
from hierlearn.datasets import open_table, read_table, stream_table
from hierlearn.datasets.tables.arrow import ArrowChunk
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.datasets.tables.table import TableChunk
from hierlearn.errors import DataError, HierlearnError

SIZES = {"b": 9, "a": 13, "c": 0, "d": 4}  # rows of each file, not written in their order


def table(begin, rows, **changes):
    """Return rows of a table whose numbers tell their place."""
    numbers = range(begin, begin + rows)
    columns = {
        "x": pa.array([float(n) for n in numbers], pa.float64()),
        "z": pa.array([None if n == 5 else n / 7 for n in numbers], pa.float64()),
        "y": pa.array([["a/b", "c", None][n % 3] for n in numbers], pa.string()),
        "t": pa.array([f"text {n}" for n in numbers], pa.string()),
    }
    return pa.table({**columns, **changes})


@pytest.fixture
def folder(tmp_path):
    """Four files, and the same rows in one file beside the folder."""
    folder = tmp_path / "rows"
    folder.mkdir()
    begin = 0
    for name in sorted(SIZES):
        pq.write_table(table(begin, SIZES[name]), folder / f"{name}.parquet", row_group_size=5)
        begin += SIZES[name]
    pq.write_table(table(0, begin), tmp_path / "all.parquet", row_group_size=5)
    return folder


def sources(folder):
    counted_files.begin()
    yield folder
    yield str(folder / "*.parquet")
    yield f"file://{folder}"
    yield counted_files.address(folder)
    yield counted_files.address(folder / "[abcd].parquet")


def test_many_files_are_the_table_of_their_rows(folder):
    roles = {"label": "y", "features": ["x", "z"]}
    held = read_table(folder.parent / "all.parquet", **roles)
    for source in sources(folder):
        assert read_table(source, **roles).digest() == held.digest(), source
        assert stream_table(source, **roles).digest() == held.digest(), source
        assert list(stream_table(source, label="y", text="t").inputs) == [
            f"text {n}" for n in range(len(held))
        ]
        for size in (3, 4, 100):
            chunks = list(TableStream(source, features=["x", "z"], cells=2 * size, keep=["t"]))
            found = np.concatenate([chunk.inputs for chunk in chunks])
            np.testing.assert_array_equal(found, held.inputs)
            assert max(len(chunk.inputs) for chunk in chunks) <= size
            assert [int(line) for chunk in chunks for line in chunk.lines] == list(range(1, 27))
    assert held.lines == range(1, 27)
    assert read_table(folder, **roles).lines is None
    assert read_table(folder, **roles).name == "rows"
    assert read_table(str(folder / "*.parquet"), **roles).name == "rows"


def test_groups_follow_each_other_in_the_order_of_the_files(folder):
    file = open_table(folder)
    assert file.num_rows == 26
    assert file.group_offsets.tolist() == [0, 5, 10, 13, 18, 22, 22, 26]
    assert [file.place_of(group)[0].name[0] for group in range(7)] == list("aaabbcd")
    for group in range(7):
        begin, end = file.group_offsets[group : group + 2]
        assert file.read_group(group, ["x"]).cells("x") == list(map(float, range(begin, end)))


@pytest.mark.parametrize("read", [read_table, stream_table])
def test_errors_name_the_file_and_its_line(folder, read):
    for name, rows in SIZES.items():
        words = ["red" if (name, n) == ("b", 7) else "1.5" for n in range(rows)]
        changed = table(0, rows, x=pa.array(words, pa.string()))
        pq.write_table(changed, folder / f"{name}.parquet")
    message = r"rows, line 8 of b\.parquet, column 'x': 'red' is not a finite number"
    with pytest.raises(HierlearnError, match=message):
        np.asarray(read(folder, label="y", features=["x"]).inputs)


def test_an_unknown_label_is_found_in_its_file(folder):
    from hierlearn import Hierarchy

    labels = pa.array(["a/b", "c", None, "dgo"])
    pq.write_table(table(22, 4, y=labels), folder / "d.parquet")
    with pytest.raises(HierlearnError, match=r"rows, line 4 of d\.parquet: unknown label 'dgo'"):
        read_table(folder, label="y", features=["x"], hierarchy=Hierarchy.from_paths(["a/b", "c"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["z"]), r"b\.parquet lacks the column 'z' of .*a\.parquet"),
        (
            lambda t: t.append_column("w", t["x"]),
            r"b\.parquet has the column 'w', but .*a\.parquet",
        ),
        (
            lambda t: t.set_column(0, "x", t["x"].cast(pa.float32())),
            r"b\.parquet: column 'x' holds float, but double in .*a\.parquet; write all files with",
        ),
    ],
)
def test_schemas_must_agree(folder, change, message):
    pq.write_table(change(pq.read_table(folder / "b.parquet")), folder / "b.parquet")
    with pytest.raises(DataError, match=message):
        open_table(folder)


def test_columns_may_stand_in_another_order(folder):
    path = folder / "b.parquet"
    before = read_table(folder, label="y", features=["x", "z"]).digest()
    pq.write_table(pq.read_table(path).select(["t", "y", "z", "x"]), path, row_group_size=5)
    assert read_table(folder, label="y", features=["x", "z"]).digest() == before


def wide(path, rows=4000, columns=8, group=1000):
    """Write random numbers, so that the bytes of a column are known."""
    draw = np.random.default_rng(0)
    cells = {f"x{k}": draw.standard_normal(rows) for k in range(columns)}
    pq.write_table(
        pa.table({**cells, "y": ["a", "b"] * (rows // 2)}), path, group, compression="none"
    )


def test_only_the_columns_and_row_groups_that_are_asked_for_are_fetched(tmp_path):
    wide(tmp_path / "rows.parquet")
    counted_files.begin()
    file = open_table(counted_files.address(tmp_path / "rows.parquet"))
    assert counted_files.count() <= 64 << 10  # the footer
    assert len(counted_files.READS) <= 2
    metadata = pq.ParquetFile(tmp_path / "rows.parquet").metadata

    def ranges(group, names):
        chunks = [metadata.row_group(group).column(k) for k in range(metadata.num_columns)]
        return [
            (one.dictionary_page_offset or one.data_page_offset, one.total_compressed_size)
            for one in chunks
            if one.path_in_schema in names
        ]

    counted_files.begin()
    file.read_group(2, ["x1", "x2", "x6"])
    wanted = ranges(2, {"x1", "x2", "x6"})
    assert counted_files.count() == sum(size for _, size in wanted)
    assert len(counted_files.READS) <= 2, "columns side by side are one request"
    for _, begin, end in counted_files.READS:
        assert any(start <= begin for start, _ in wanted)
        assert any(end <= start + size for start, size in wanted)
    counted_files.begin()
    for _ in file.chunks(["y"], 300):
        pass
    labels = [size for group in range(4) for _, size in ranges(group, {"y"})]
    assert counted_files.count() == sum(labels)


def test_addresses_of_other_formats_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n")
    with pytest.raises(DataError, match=r"rows\.csv: only Parquet files are read from an address"):
        open_table(f"file://{tmp_path}/rows.csv")


def test_a_damaged_file_of_a_store_is_one_sentence(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 not at all")
    for source in (f"file://{tmp_path}/rows.parquet", tmp_path / "rows.parquet"):
        with pytest.raises(
            DataError, match=r"rows\.parquet is not a Parquet file that can be read"
        ):
            open_table(source)


@pytest.mark.parametrize("values", [["b", None, "a", "b", None, ""], [3, None, -1, 3, 3, 0], []])
@pytest.mark.parametrize("chunks", [1, 3])
def test_distinct_cells_are_those_that_python_finds(values, chunks):
    kind = pa.string() if not values or isinstance(values[0], str) else pa.int32()
    step = max(1, len(values) // chunks)
    parts = [pa.array(values[k : k + step], kind) for k in range(0, len(values), step)]
    column = pa.chunked_array(parts, kind)
    found, codes = ArrowChunk("f", {"y": column}, range(len(values))).distinct("y")
    plain, wanted = TableChunk("f", {"y": values}, range(len(values))).distinct("y")
    assert found == plain
    assert codes.tolist() == wanted.tolist()


# ---------------------------------------------------------------------- what is declared


def repeated(value, rows):
    """A column of one value, which a file stores once."""
    codes = pa.array(np.zeros(rows, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([value]))


def packed(path, **columns):
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    return path


def test_numbers_beyond_memory_are_refused_by_the_footer_alone(tmp_path, monkeypatch):
    path, rows = tmp_path / "x.parquet", 1_000_000
    part = pa.table({"a": np.zeros(rows), "b": np.zeros(rows), "y": repeated("p", rows)})
    with pq.ParquetWriter(path, part.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(30):
            writer.write_table(part)
    assert path.stat().st_size < 1 << 19
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(DataError, match=r"column 'a' takes 0\.2 GB in memory, and all 0\.6 GB"):
        read_table(path, label="y")
    monkeypatch.undo()
    assert next(iter(open_table(path).chunks(["a"], 10))).cells("a") == [0.0] * 10  # in chunks


@pytest.mark.parametrize("role", ["inputs", "label"])
def test_texts_that_repeat_are_counted_before_they_are_made(tmp_path, monkeypatch, role):
    rows = 60_000
    text = repeated("long " * 20_000, rows)
    classes = ["p/q", "p/r"] * (rows // 2)
    columns = {"t": text, "y": classes} if role == "inputs" else {"t": classes, "y": text}
    path = packed(tmp_path / "x.parquet", **columns)
    assert path.stat().st_size < 1 << 19
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(DataError, match=r"takes 6\.0 GB in memory"):
        read_table(path, label="y")


def test_many_short_texts_of_a_small_file_are_read(tmp_path):
    words = [f"word {number % 900}" for number in range(300_000)]
    path = packed(tmp_path / "x.parquet", t=words, y=["p/q", "p/r"] * 150_000)
    assert path.stat().st_size < 1 << 20
    assert len(read_table(path, label="y", text="t")) == 300_000


NESTED = {
    "struct": [{"a": 1}, {"a": 2}],
    "list": [["a"], ["b"]],
    "list of structs": [[{"a": 1}], [{"a": 2}]],
    "map": pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "binary": [b"a", b"b"],
    "list of binaries": [[b"a"], [b"b"]],
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("role", ["label", "split", "id_column", "levels", "text", "stream"])
def test_a_column_of_another_type_has_no_role(tmp_path, kind, role):
    path = tmp_path / "x.parquet"
    odd = NESTED[kind]
    plain = {"x": [1.0, 2.0], "y": ["p/q", "p/r"]}
    pq.write_table(pa.table({**plain, "odd": odd}), path)
    given = {"label": "y"}
    if role in ("label", "stream"):
        given = {"label": "odd", "features": ["x"]}
    elif role == "levels":
        given = {"levels": ["y", "odd"], "features": ["x"], "sep": "|"}
    else:
        given |= {role: "odd"}
    if role in ("label", "stream") and kind == "list":  # several labels
        assert read_table(path, **given).labels == [["a"], ["b"]]
        return
    with pytest.raises(DataError) as caught:
        (stream_table if role == "stream" else read_table)(path, **given)
    message = str(caught.value)
    assert "line 1" in message
    assert "column 'odd'" in message
    assert "text" in message
