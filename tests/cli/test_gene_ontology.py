"""From an OBO file and GAF annotations to figures and predictions, on the command line."""

import gzip
import json

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("default::hierlearn.datasets.labels.LabelWarning")
TERMS = {  # id -> namespace, parents
    "GO:1": ("process", []),
    "GO:2": ("process", ["GO:1"]),
    "GO:3": ("process", ["GO:1"]),
    "GO:4": ("process", ["GO:2", "GO:3"]),
    "GO:5": ("process", ["GO:2"]),
    "GO:6": ("function", []),
    "GO:7": ("function", ["GO:6"]),
    "GO:8": ("function", ["GO:6"]),
    "GO:9": ("function", ["GO:7"]),
}
KINDS = [["GO:4"], ["GO:5", "GO:7"], ["GO:3", "GO:8"], ["GO:2", "GO:80"]]  # GO:80 is GO:8


@pytest.fixture
def files(tmp_path):
    """go.obo.gz, genes.csv and genes.gaf; gene 0 also has a term that the ontology lacks."""
    text = "format-version: 1.2\n"
    for one, (namespace, parents) in TERMS.items():
        text += f"\n[Term]\nid: {one}\nname: term {one[3:]}\nnamespace: {namespace}\n"
        text += "alt_id: GO:80\n" if one == "GO:8" else ""
        text += "".join(f"is_a: {parent}\n" for parent in parents)
    text += "\n[Term]\nid: GO:99\nis_obsolete: true\nconsider: GO:9\n"
    (tmp_path / "go.obo.gz").write_bytes(gzip.compress(text.encode()))
    draw = np.random.default_rng(0)
    table, gaf = ["gene,part,x,y"], ["!gaf-version: 2.2"]
    for row in range(80):
        kind = row % 4
        part = "train" if row < 50 else "valid" if row < 65 else "test"
        x, y = np.array([kind % 2, kind // 2]) + draw.normal(0, 0.2, 2)
        table.append(f"g{row},{part},{x:.3f},{y:.3f}")
        for term in [*KINDS[kind], *(["GO:99"] if row == 0 else [])]:
            cells = ["DB", f"g{row}", f"s{row}", "", term, "R", "IDA" if row else "IEA", ""]
            aspect = "F" if term in ("GO:7", "GO:8", "GO:80") else "P"
            gaf.append("\t".join([*cells, aspect, "", "", "", "", "", "", "", ""]))
    (tmp_path / "genes.csv").write_text("\n".join(table) + "\n")
    (tmp_path / "genes.gaf").write_text("\n".join(gaf) + "\n")
    return tmp_path


JOIN = "--id-column gene --split part --annotations genes.gaf"
TRAIN = f"train genes.csv --hierarchy go.obo.gz {JOIN} --epochs 2"


def test_old_ids_are_replaced_and_obsolete_ones_skipped(files, call):
    said = call(f"{TRAIN} --unknown skip --out model")
    assert "1 of 9 classes has no training row" in said
    assert "--min-rows 1 leaves them out" in said
    assert "skipped-labels.csv" in said
    assert "1 old id (20 occurrences) was replaced" in call.warned
    assert "'GO:80' by 'GO:8'" in call.warned
    assert "1 unknown label (1 occurrence) was skipped, such as 'GO:99'" in call.warned
    assert (files / "model" / "skipped-labels.csv").read_text().splitlines() == [
        "label,rows,occurrences,first_line,reason",
        "GO:99,1,1,2,label 'GO:99' is an obsolete term; consider 'GO:9'",
    ]


def test_an_unknown_term_is_refused_with_the_remedy(files, call):
    (files / "rows.csv").write_text("x,terms\n1,GO:2\n2,GO:99;GO:98\n")
    said = call("train rows.csv --label terms --hierarchy go.obo.gz --out model", code=2)
    assert said == (
        "hierlearn: rows.csv, line 3: label 'GO:99' is an obsolete term; consider 'GO:9'; 1 more "
        "unknown label, 2 occurrences in all; correct them, or pass --unknown skip"
    )


def test_train_evaluate_predict(files, call):
    said = call(f"{TRAIN} --evidence experimental --min-rows 1 --out model")
    assert "1 of 9 classes have fewer than 1 training row and are left out" in said
    assert "genes.gaf: 139 annotations of 79 genes; left out: 2 have other evidence" in call.warned
    assert "1 row without a label of the hierarchy is left out" in call.warned
    assert not (files / "model" / "skipped-labels.csv").exists()

    said = call("cafa evaluate model genes.csv --threshold-from valid --out figures.json")
    assert "information content of 49 rows (train)" in said
    figures = json.loads((files / "figures.json").read_text())["figures"]
    assert set(figures) == {"process", "function"}
    assert figures["process"]["rows"] == 15
    assert figures["function"]["rows"] == sum(row % 4 > 0 for row in range(65, 80))
    assert 0.8 < figures["process"]["fmax"] <= 1
    assert figures["process"]["f1"] <= figures["process"]["fmax"]

    assert "decoder coherent at threshold 0.3" in call(
        "predict model genes.csv --decoder coherent --threshold 0.3 --out answers.csv"
    )

    said = call("cafa predict model genes.csv --min-score 0.2 --max-terms 3 --out scores.tsv")
    lines = [line.split("\t") for line in (files / "scores.tsv").read_text().splitlines()]
    assert f"80 genes, {len(lines)} lines" in said
    assert {gene for gene, _, _ in lines} == {f"g{row}" for row in range(80)}
    assert max(sum(gene == f"g{row}" for gene, _, _ in lines) for row in range(80)) == 3
    assert min(float(score) for _, _, score in lines) >= 0.2
    assert {term for _, term, _ in lines} <= set(TERMS)


def test_prune(files, call):
    said = call(
        f"prune go.obo.gz --data genes.csv {JOIN} --unknown skip --min-rows 20 --out s.json"
    )
    assert "kept 5 classes of 9, 2 of 3 levels" in said
    assert "1 of 9 classes had no training row" in said
    small = json.loads((files / "s.json").read_text())
    assert set(small["names"]) == {"GO:1", "GO:2", "GO:3", "GO:6", "GO:8"}
    assert small["pruned"]["GO:4"] == ["GO:2", "GO:3"]
    said = call(f"{TRAIN} --unknown skip --out model".replace("go.obo.gz", "s.json"))
    assert "5 classes in 2 levels" in said
    assert "pruned labels" in call.warned

    call("prune go.obo.gz --namespace function --depth 2 --out f.json")
    assert set(json.loads((files / "f.json").read_text())["names"]) == {"GO:6", "GO:7", "GO:8"}
    call("prune go.obo.gz --below GO:2 --relationships is_a --out b.json")
    part = set(json.loads((files / "b.json").read_text())["names"])
    assert part == {"GO:1", "GO:2", "GO:3", "GO:4", "GO:5"}  # GO:4 needs its parents


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prune go.obo.gz --namespace proces --out x.json", "unknown namespace 'proces'"),
        ("prune go.obo.gz --below GO:77 --out x.json", "unknown label 'GO:77'"),
        (
            "prune go.obo.gz --namespace function --below GO:2 --out x.json",
            "no class is left; choose other values of --namespace, --below and --depth",
        ),
        ("prune go.obo.gz --out go.obo.gz", "go.obo.gz is an input; write to another file"),
        (
            "prune go.obo.gz --relationships part_of --out x.json",
            "no term has the relationship 'part_of'; the file has 'is_a'",
        ),
        (
            "prune go.obo.gz --data rows.csv --label terms --min-rows 9 --out x.json",
            "no class has --min-rows 9; the most frequent has 2",
        ),
        (
            "train rows.csv --label terms --evidence IDA --hierarchy go.obo.gz --out m",
            "--evidence goes with --annotations; leave it out",
        ),
        (
            "train rows.csv --label terms --unknown drop --hierarchy go.obo.gz --out m",
            "unknown value of unknown 'drop'",
        ),
    ],
)
def test_refusals(files, call, line, message):
    (files / "rows.csv").write_text("x,terms\n1,GO:2\n2,GO:4\n")
    assert message in call(line, code=2)
