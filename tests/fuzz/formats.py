"""Single files: examples of each format, how they are mutated and how they are read."""

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st

from fuzz import media
from fuzz.mutations import apply_edits, edit_json, several_byte_edits, several_value_edits
from hierlearn import Hierarchy
from hierlearn.cli import train
from hierlearn.cli.train import PER_RUN, option_kinds, read_config
from hierlearn.datasets.gaf import read_gaf
from hierlearn.datasets.tables.arff import read_arff
from hierlearn.datasets.tables.read import read_table
from hierlearn.files.tensors import read_tensors, write_tensors

TABLE = """id,a,b,note,when,class,l1,l2,part
1,0.5,2,some words,2020-01-02,animal/dog,animal,dog,train
2,,3,"quoted, cell",2020-02-03,animal/cat,animal,cat,train
3,1e3,4,"two ""quotes"" here",2021-12-31,plant/oak;animal/dog,plant,oak,valid
4,-7,5,,2019-06-01,plant,plant,,test
5,8,6,größer,2020-01-01,plant/oak,plant,oak,train
"""
ARFF = """@relation toy
@attribute a numeric
@attribute 'b c' {x,'y z',w}
@attribute class hierarchical 1,1/1,1/2,2,2/1
@data
0.5,x,1/1@2
?,'y z',1/2
{0 2.5, 2 2/1}
"""
OBO = """format-version: 1.2
default-namespace: toy

[Term]
id: T:1
name: root thing
namespace: toy

[Term]
id: T:2
name: a \\"part\\" ! remark
is_a: T:1 {source="x"} ! root thing
alt_id: T:9

[Term]
id: T:3
is_a: T:1
relationship: part_of T:2

[Term]
id: T:4
is_obsolete: true
replaced_by: T:3
"""
GAF = "!gaf-version: 2.2\n" + "".join(
    f"DB\tP{n}\tsym\tinvolved_in\tGO:{n}\tREF\tIDA\t\tP\tname\tsyn\tprotein\ttaxon:1\t2020\tDB\t\t\n"
    for n in range(3)
)
YAML = """# options
epochs: 3
batch-size: 32
learning_rate: 1e-3
loss: hcl
loss_option: {floor: 0.3}
ignore: [id, when]
patience: null
joint:
  - soft-labels=3
"""
NESTED = (
    b'{"animal": {"dog": ["pug", "lab"], "cat": {}}, '
    b'"plant": ["oak", {"name": "rose", "title": "Rose"}]}'
)
EDGES = b'[["", "a"], ["a", "b"], {"parent": "a", "child": "c", "title": "C"}]'
PARENTS = b'{"a": null, "b": "a", "c": ["a", "b"]}'
PATHS = "animal/dog\nanimal/cat\n# comment\nplant/oak\n"


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://example.org/pets#> .
:s a skos:ConceptScheme ; skos:hasTopConcept :animal .
:animal a skos:Concept ; skos:prefLabel "animal"@en , "Tier"@de ; skos:notation "1" .
:dog a skos:Concept ; skos:broader :animal ; skos:notation "1.1" ; skos:altLabel "hound" .
:cat a skos:Concept ; skos:broader :animal ; skos:notation "1.2" .
:dog skos:narrower :pug . :pug a skos:Concept ; skos:notation "1.1.1" .
"""
CLASSES = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<a> a owl:Class ; rdfs:subClassOf owl:Thing ; rdfs:label "first" .
<b> rdfs:subClassOf <a> , [ a owl:Restriction ] .
"""
RDF_XML = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [<!ENTITY skos "http://www.w3.org/2004/02/skos/core#">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="&skos;">
<skos:Concept rdf:about="http://x.org/a"><skos:prefLabel xml:lang="en">first</skos:prefLabel>
  <skos:narrower><skos:Concept rdf:about="http://x.org/b"/></skos:narrower></skos:Concept>
</rdf:RDF>
"""
JSON_LD = """{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#"},
 "@graph": [{"@id": "http://x.org/a", "@type": "skos:Concept", "skos:prefLabel": "first"},
  {"@id": "http://x.org/b", "@type": "skos:Concept", "skos:broader": {"@id": "http://x.org/a"}}]}
"""
N_TRIPLES = """<a> <http://www.w3.org/2004/02/skos/core#prefLabel> "first"@en .
<b> <http://www.w3.org/2004/02/skos/core#broader> <a> .
<a> <http://www.w3.org/2004/02/skos/core#notation> "1" .
""".replace("<a>", "<http://x.org/a>").replace("<b>", "<http://x.org/b>")
OWL = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#">
<owl:Class rdf:about="http://x.org/a"/>
<owl:Class rdf:about="http://x.org/b"><rdfs:subClassOf rdf:resource="http://x.org/a"/></owl:Class>
</rdf:RDF>
"""
ODD_SEPS = [*({} for _ in range(5)), {"sep": ""}, {"sep": 3}]


@dataclass
class Format:
    """A format: examples, how they are mutated and how a file is read.

    What is drawn is the number of an example, its edits and the number of a way to read it.
    """

    ending: str
    examples: Any
    read: Any
    edits: Any = several_byte_edits
    apply: Any = apply_edits

    @property
    def strategy(self):
        return st.tuples(st.integers(0, 99), self.edits, st.integers(0, 99))

    def prepare(self, drawn, folder, _):
        """Write a mutated example; return what reads it, and its size."""
        number, edits, way = drawn
        examples = self.examples()
        path = Path(folder) / f"x{self.ending}"
        content = self.apply(examples[number % len(examples)], edits)
        path.write_bytes(content)
        return lambda: self.read(path, way), len(content)


def wide_table(columns=2000):
    """A table with many columns, one of them twice in a row of names that is cut."""
    header = ",".join([*(f"c{number}" for number in range(columns)), "class"])
    rows = (",".join([*map(str, range(row, row + columns)), f"a/{row % 2}"]) for row in range(4))
    return "\n".join([header, *rows]).encode()


def arff_examples():
    """A small file, and two whose columns would take gigabytes."""
    values = ",".join(f"v{number}" for number in range(60_000))
    head = f"@attribute a numeric\n@attribute b {{{values}}}\n@attribute c hierarchical 1,1/1\n"
    nominal = head + "@data\n" + "".join(f"1,v{row},1/1\n" for row in range(6_000))
    head = "".join(f"@attribute a{number} numeric\n" for number in range(20_000))
    sparse = f"{head}@attribute c hierarchical 1,1/1\n@data\n" + "{20000 1}\n" * 10_000
    return [ARFF.encode(), ARFF.encode(), nominal.encode(), sparse.encode()]


def read_rows(path, way):
    if way % 5 == 4:
        return Hierarchy.read(path, form=None if way < 50 else "levels", **ODD_SEPS[way % 7])
    roles = [
        {"label": "class"},
        {"label": "class", "text": "note"},
        {"levels": ["l1", "l2"], "features": ["a", "b"]},
        {"label": "class", "split": "part", "id_column": "id", "ignore": ["l1", "l2"]},
        {"label": "class", "column_kinds": {"when": "date", "a": "number"}},
        {"label": "class", "label_sep": None, "sep": "::"},
        {"label": "class", "label_sep": "", "ignore": ["id"]},
        {"label": "class", "sep": ""},
        {"label": "class", "delimiter": 3},
    ]
    return read_table(path, **roles[way % len(roles)])


def parquet(**columns):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="zstd", store_schema=False)
    return out.getvalue()


def packed_examples():
    """Files of some kilobytes whose columns would take gigabytes."""
    zeros, out = np.zeros(1_000_000), io.BytesIO()
    part = pa.table({"a": zeros, "b": zeros, "class": pa.nulls(len(zeros), pa.string())})
    with pq.ParquetWriter(out, part.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(40):
            writer.write_table(part)
    codes = pa.array(np.zeros(100_000, dtype=np.int32))
    text = pa.DictionaryArray.from_arrays(codes, pa.array(["long " * 20_000]))
    classes = ["a/x", "a/y"] * 50_000
    return [
        out.getvalue(),
        parquet(note=text, **{"class": classes}),
        parquet(a=np.arange(100_000.0), **{"class": text}),
    ]


def parquet_examples():
    classes = ["animal/dog", "animal/cat", None, "plant"]
    numbers = pa.array([1.5, None, float("nan"), 2.0])
    odd = [
        pa.array([[1], [2, 3], None, []]),
        pa.array([{"x": 1}, None, {"x": 2}, {}]),
        pa.array([b"\xff", b"a", None, b""]),
        pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[{"x": 1}], None, [], [{}]]),
        pa.array([1, 2, 3, 4]).dictionary_encode(),
        pa.array([2**63 - 1, 0, -1, 5]),
        pa.array([True, None, False, True]),
        pa.array([1, 2, 3, 4], pa.timestamp("ns")),
        pa.array([1, 2, 3, 4], pa.decimal128(20, 3)),
        pa.array([None] * 4, pa.null()),
    ]
    notes = ["x", "y z", "", None]
    found = [parquet(**{"a": numbers, "b": one, "class": classes, "note": notes}) for one in odd]
    twice = pa.Table.from_arrays([numbers, numbers, pa.array(classes)], names=["a", "a", "class"])
    out = io.BytesIO()
    pq.write_table(twice, out)
    offsets = pa.py_buffer(np.array([0, 1, 3], dtype=np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    found.append(parquet(a=broken, **{"class": ["x", "y"]}))
    found += [out.getvalue(), parquet(a=[1.0, 2.0], **{"class": broken})]
    # The odd columns twice, so that they are drawn often in every role.
    return [*found, *found, *packed_examples()]


def read_parquet(path, way):
    roles = [
        {"label": "class"},
        {"label": "class", "text": "note"},
        {"label": "b", "features": ["a"]},
        {"label": "class", "split": "b"},
        {"label": "class", "id_column": "b"},
        {"levels": ["class", "b"], "features": ["a"], "sep": "|"},
        {"label": "class", "text": "b"},
    ]
    return read_table(path, **roles[way % len(roles)])


def tensors_example():
    values = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2, dtype=torch.int64)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        write_tensors(path, values, {"step": 1})
        return [path.read_bytes()]


def cached(make):
    held = []

    def examples():
        if not held:
            held.extend(make())
        return held

    return examples


def apply_to_json(content, edits):
    how, edits = edits
    if how == "deep":
        return b'{"a":' * edits + b"1" + b"}" * edits
    return edit_json(content, edits) if how == "value" else apply_edits(content, edits)


def apply_to_lines(content, edits):
    """Change the bytes of JSON lines, or the value of the first one."""
    first, end, rest = content.partition(b"\n")
    if edits[0] == "bytes":
        return apply_edits(content, edits[1])
    return apply_to_json(first, edits) + end + rest


json_edits = st.one_of(
    st.tuples(st.just("value"), several_value_edits),
    st.tuples(st.just("bytes"), several_byte_edits),
    st.tuples(st.just("deep"), st.sampled_from([100, 1000, 100_000])),
)


def hierarchy_json():
    h = Hierarchy.from_paths(["animal/dog/pug", "animal/cat", "plant/oak"])
    dag = Hierarchy.from_edges([("", "a"), ("a", "b"), ("", "c"), ("c", "b")])
    return [NESTED, EDGES, PARENTS, h.to_json().encode(), dag.to_json().encode()]


def read_options(path, _):
    return read_config(path, option_kinds(train.train, without=PER_RUN))


def read_hierarchy(path, _):
    h = Hierarchy.read(path)
    h.to_json()
    return h.names[:5]


def apply_to_gzip(content, edits):
    inside, edits = edits
    if not inside:
        return apply_edits(content, edits)
    return gzip.compress(apply_edits(gzip.decompress(content), edits), mtime=0)


def gzip_examples():
    return [gzip.compress(OBO.encode(), mtime=0)]


def json_lines():
    rows = list(csv.DictReader(io.StringIO(TABLE)))
    rows[1] |= {"a": None, "b": 3, "class": ["animal/cat", "plant"], "part": True}
    rows[2] |= {"a": 1e3, "when": 7, "more": [1, {"x": "é"}]}
    return ["".join(json.dumps(row) + "\n" for row in rows).encode()]


def workbooks():
    book = openpyxl.Workbook()
    for row in csv.reader(io.StringIO(TABLE)):
        book.active.append([datetime.date(2020, 1, 2) if "-0" in cell else cell for cell in row])
    book.create_sheet("other")
    out = io.BytesIO()
    book.save(out)
    return [out.getvalue()]


def apply_to_workbook(content, edits):
    """Change the bytes of the workbook, or of one of the files in it."""
    inside, edits = edits
    if inside is None:
        return apply_edits(content, edits)
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    name = sorted(files)[inside % len(files)]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for one, data in files.items():
            new.writestr(one, apply_edits(data, edits) if one == name else data)
    return out.getvalue()


def databases():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with closing(sqlite3.connect(path)) as database, database:
            header, *rows = csv.reader(io.StringIO(TABLE))
            database.execute(f"CREATE TABLE pets ({', '.join(map(repr, header))})")
            marks = ", ".join("?" for _ in header)
            database.executemany(f"INSERT INTO pets VALUES ({marks})", rows)
        return [path.read_bytes()]


def arrow_files():
    table = pa.Table.from_pylist(list(csv.DictReader(io.StringIO(TABLE))))
    coded = table.set_column(5, "class", table["class"].dictionary_encode())
    ends = pa.array([2, 5], pa.int32())
    notes = pa.RunEndEncodedArray.from_arrays(ends, pa.array(["some words", None]))
    codes = pa.array(np.zeros(100_000, dtype=np.int32))
    long = pa.DictionaryArray.from_arrays(codes, pa.array(["long " * 20_000]))
    packed = pa.table({"note": long, "a": pa.nulls(100_000), "class": ["a/x", "a/y"] * 50_000})
    found = []
    for one in (table, coded, table.set_column(3, "note", notes), packed):
        for write in (pa.ipc.new_file, pa.ipc.new_stream):
            out = io.BytesIO()
            with write(out, one.schema) as file:
                file.write_table(one, max_chunksize=2 if len(one) < 100 else None)
            found.append(out.getvalue())
    return found


def read_tensor_file(path, _):
    return read_tensors(path)


FORMATS = {
    "csv": Format(".csv", lambda: [TABLE.encode()] * 3 + [wide_table()], read_rows),
    "tsv": Format(".tsv", lambda: [TABLE.replace(",", "\t").encode()], read_rows),
    "txt": Format(".txt", lambda: [TABLE.replace(",", "\t").encode()], read_rows),
    "csv.gz": Format(
        *(".csv.gz", lambda: [gzip.compress(TABLE.encode(), mtime=0)], read_rows),
        st.tuples(st.booleans(), several_byte_edits),
        apply_to_gzip,
    ),
    "csv.bz2": Format(".csv.bz2", lambda: [bz2.compress(TABLE.encode())], read_rows),
    "csv.xz": Format(".csv.xz", lambda: [lzma.compress(TABLE.encode())], read_rows),
    "jsonl": Format(".jsonl", cached(json_lines), read_rows, json_edits, apply_to_lines),
    "xlsx": Format(
        *(".xlsx", cached(workbooks), read_rows),
        st.tuples(st.none() | st.integers(0, 99), several_byte_edits),
        apply_to_workbook,
    ),
    "db": Format(".db", cached(databases), read_rows),
    "arrow": Format(*(".arrow", cached(arrow_files), read_rows), st.just([]) | several_byte_edits),
    "ttl": Format(".ttl", lambda: [SKOS.encode(), CLASSES.encode()], read_hierarchy),
    "rdf": Format(".rdf", lambda: [RDF_XML.encode()], read_hierarchy),
    "nt": Format(".nt", lambda: [N_TRIPLES.encode()], read_hierarchy),
    "owl": Format(".owl", lambda: [OWL.encode()], read_hierarchy),
    "jsonld": Format(
        *(".jsonld", lambda: [JSON_LD.encode()], read_hierarchy), json_edits, apply_to_json
    ),
    "json": Format(".json", cached(hierarchy_json), read_hierarchy, json_edits, apply_to_json),
    "paths": Format(".txt", lambda: [PATHS.encode()], read_hierarchy),
    "yaml": Format(".yaml", lambda: [YAML.encode()], read_options),
    "arff": Format(".arff", cached(arff_examples), lambda path, _: read_arff(path)),
    "obo": Format(".obo", lambda: [OBO.encode()], read_hierarchy),
    "obo.gz": Format(
        *(".obo.gz", cached(gzip_examples), read_hierarchy),
        st.tuples(st.booleans(), several_byte_edits),
        apply_to_gzip,
    ),
    "gaf": Format(".gaf", lambda: [GAF.encode()], lambda path, _: read_gaf(path)),
    "parquet": Format(
        *(".parquet", cached(parquet_examples), read_parquet), st.just([]) | several_byte_edits
    ),
    "safetensors": Format(".safetensors", cached(tensors_example), read_tensor_file),
    "image": Format(".image", cached(media.image_examples), media.read_image),
    "tar": Format(".tar", cached(media.shard_examples), media.read_shard),
    "npy": Format(".npy", cached(media.npy_examples), media.read_vectors),
    "vectors": Format(".safetensors", cached(media.vector_examples), media.read_vectors),
}
