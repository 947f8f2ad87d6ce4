"""hierlearn train, end to end: what it prints, writes, reproduces and refuses."""

import json
import os
import re
import shutil
import subprocess

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import warm
from hierlearn.pipeline import Pipeline
from shards import memory

QUICK = "--epochs 4 --batch-size 16 --learning-rate 0.05 --network-option width=8"
BASE = f"train rows.csv --label class --split part {QUICK}"


def weights(folder):
    return Pipeline.load(folder).network.state_dict()


def same_weights(a, b):
    one, other = weights(a), weights(b)
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_real_command_trains_and_says_so(rows):
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", *BASE.split(), "--out", "model", "--license", "MIT"],
        cwd=rows,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows: 100 rows of 3 numbers (train 70, valid 10, test 20), 8 classes" in done.stdout
    assert "because inputs are numbers, and every training row has one path" in done.stdout
    assert "│ exact " in done.stdout
    assert "wrote model: model.safetensors, hierarchy.json" in done.stdout
    assert done.stderr == ""
    names = {path.name for path in (rows / "model").iterdir()}
    assert names == {
        *("model.safetensors", "hierarchy.json", "config.json", "README.md", "run.yaml"),
        *(
            "log.jsonl",
            "checkpoints",
            "memory-00001.safetensors",
            "memory.json",
            "rows.safetensors",
        ),
    }
    log = [json.loads(line) for line in (rows / "model" / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert "license: MIT" in (rows / "model" / "README.md").read_text()
    config = json.loads((rows / "model" / "config.json").read_text())
    assert config["columns"] == {"label": "class", "split": "part"}
    assert set(config["metrics"]) == {"valid", "test"}


def test_the_stored_configuration_gives_the_same_model(rows, call):
    call(f"{BASE} --out one --seed 3 --loss hcl --loss-option floor=0.3 --max-grad-norm 1")
    stored = yaml.safe_load((rows / "one" / "run.yaml").read_text())
    assert stored["data"] == "rows.csv"
    assert stored["loss_option"] == {"floor": 0.3}
    assert (stored["seed"], stored["max_grad_norm"], stored["schedule"]) == (3, 1.0, "cosine")
    call("train --config one/run.yaml --out two")
    assert same_weights("one", "two")
    assert yaml.safe_load((rows / "two" / "run.yaml").read_text()) == {**stored, "out": "two"}
    call("train --config one/run.yaml --out three --seed 4")
    assert not same_weights("one", "three")
    assert yaml.safe_load((rows / "three" / "run.yaml").read_text())["seed"] == 4


def test_names_in_a_file_may_have_dashes_lists_and_mappings(rows, call):
    (rows / "run.yaml").write_text(
        "data: rows.csv\nlabel: class\nfeatures: [a, b]\nout: model\nepochs: 1\n"
        "learning-rate: 1e-3\nnetwork-option: [width=4]\nloss: hcl\nloss_option: {floor: 1e-1}\n"
        "patience:\n"
    )
    said = call("train --config run.yaml")
    assert "no rows were held out" in said
    config = json.loads((rows / "model" / "config.json").read_text())
    assert config["feature_names"] == ["a", "b"]
    assert config["plan"]["loss_options"] == {"floor": 0.1}
    assert config["settings"]["learning_rate"] == 0.001


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epoch: 3", "run.yaml: unknown key 'epoch'; did you mean 'epochs'"),
        ("force: true", "run.yaml: unknown key 'force'"),
        ("epochs: many", "run.yaml: epochs must be an integer, not 'many'"),
        ("epochs: 2.5", "run.yaml: epochs must be an integer, not 2.5"),
        ("learning_rate: fast", "run.yaml: learning_rate must be a number, not 'fast'"),
        ("label: 3", "run.yaml: label must be a string, not 3"),
        ("prior_bias: 1", "run.yaml: prior_bias must be true or false, not 1"),
        ("loss_option: floor", "run.yaml: loss_option must be a list of key=value"),
        ("loss_option: [floor]", "run.yaml: loss_option takes key=value, not 'floor'"),
        ("seed: 1\nse-ed: 2", "run.yaml: unknown key 'se-ed'; did you mean 'seed'"),
        ("batch_size: 1\nbatch-size: 2", "run.yaml gives batch_size twice"),
        ("- a", "run.yaml must hold option: value lines, not list"),
        ("a: [", "run.yaml is not valid YAML: "),
        ("schedule: cosin", "unknown schedule 'cosin'; did you mean 'cosine'"),
    ],
)
def test_a_configuration_that_is_wrong_names_the_key(rows, call, content, message):
    (rows / "run.yaml").write_text(content + "\n")
    assert message in call("train rows.csv --label class --out model --config run.yaml", code=2)
    assert not (rows / "model").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train --out m", "there is nothing to train on; name a dataset or a file"),
        ("train rows.csv --label class", "name the folder of the model with --out"),
        ("train rows.csv --out m", "name either the label column"),
        ("train rows.csv --label klass --out m", "unknown column 'klass'; did you mean 'class'"),
        (f"{BASE} --out m --loss hcll", "unknown loss 'hcll'; did you mean"),
        (f"{BASE} --out m --loss hcl --loss-option flor=1", "unknown option of hcl 'flor'; did"),
        (
            f"{BASE} --out m --loss hcl --loss-option floor=x",
            "hcl cannot be made with floor='x'",
        ),
        (
            f"{BASE} --out m --loss-option floor=1",
            "--loss-option needs a loss; name it with --loss",
        ),
        (
            f"{BASE} --out m --network-option widht=3",
            "option of network mlp 'widht'",
        ),
        (f"{BASE} --out m --network-option width=9", "--network-option gives width twice"),
        (
            f"{BASE} --out m --network resnet",
            "unknown network 'resnet'; known: cnn, early-heads, embeddings, hmc-lmlp, "
            "hmcn-f, hmcn-r, linear, mlp, pack",
        ),
        (f"{BASE} --out m --decoder leaf --decoder-option x=1", "decoder leaf takes no options"),
        (
            f"{BASE} --out m --decoder argmax --decoder-option x=1",
            "decoder argmax takes no options",
        ),
        (f"{BASE} --out m --recipe papr", "unknown recipe 'papr'; did you mean 'paper'"),
        (f"{BASE} --out m --link soft", "unknown link 'soft'"),
        (f"{BASE} --out m --unlabeled-descendants none", "none"),
        (f"{BASE} --out m --epochs 0", "--epochs must be at least 1, not 0"),
        (f"{BASE} --out m --metric hit", "unknown metric 'hit'"),
        (f"{BASE} --out m --device tpu9", "'tpu9' is no device"),
        (f"{BASE} --out m --stream", "rows.csv: only Parquet files can be streamed"),
        (f"{BASE} --out m --stream-window 5", "--stream-window goes with --stream"),
        (
            "train synthetic --out m --stream",
            "synthetic is a named dataset and does not take --str",
        ),
        (
            "train rows.csv --label class --features a --out m --patience 2",
            "--patience needs validation rows; name a split 'valid' or set --valid-f",
        ),
        (
            "train rows.csv --label class --out m --valid-fraction 1",
            "--valid-fraction must be in [0, 1)",
        ),
        ("train rows.csv --label class --out rows.csv", "rows.csv is a file; name a folder"),
        ("train rows.csv --label class --out . ", "pass --force"),
        (
            "train rows.csv --label class --out . --force",
            "rows.csv is an input and lies in ., where files are replaced",
        ),
    ],
)
def test_each_refusal_is_one_line_and_leaves_nothing(rows, call, line, message):
    before = sorted(rows.rglob("*"))
    assert message in call(line, code=2)
    assert sorted(rows.rglob("*")) == before


def test_a_model_is_replaced_only_when_asked_and_only_by_one_that_begins(rows, call):
    call(f"{BASE} --out model")
    held = weights("model")
    assert "model exists; pass --force to replace the model in it, or --resume" in call(
        f"{BASE} --out model", code=2
    )
    call(f"{BASE} --out model --force --loss hcl --loss-option flor=1", code=2)
    assert all(torch.equal(value, held[name]) for name, value in weights("model").items())
    call(f"{BASE} --out model --force --seed 9")
    assert not all(torch.equal(value, held[name]) for name, value in weights("model").items())


def test_going_on_from_a_checkpoint_ends_in_the_same_weights(rows, call):
    call(f"{BASE} --out whole --keep-checkpoints 100 --checkpoint-every 3")
    shutil.copytree("whole", "cut")
    for name in ("config.json", "model.safetensors", "hierarchy.json", "README.md"):
        (rows / "cut" / name).unlink()
    steps = sorted((rows / "cut" / "checkpoints").iterdir())
    for path in steps[4:]:
        path.unlink()
    before = (rows / "cut" / "run.yaml").read_text()
    call("train --config whole/run.yaml --out cut --resume")
    assert same_weights("whole", "cut")
    assert (rows / "cut" / "run.yaml").read_text() == before
    assert "cut is finished already" in call("train --config whole/run.yaml --out cut --resume")


def test_going_on_with_other_options_is_refused(rows, call):
    call(f"{BASE} --out model")
    (rows / "model" / "config.json").unlink()
    before = (rows / "model" / "run.yaml").read_text()
    said = call(f"{BASE} --out model --resume --seed 5", code=2, begun=True)
    assert "was trained with --seed 0, now --seed 5; use the same" in said
    assert (rows / "model" / "run.yaml").read_text() == before


def test_texts_and_named_datasets(rows, call):
    (rows / "t.csv").write_text(
        "words,y\n" + "red round thing,fruit/apple\nblue flat thing,tool\n" * 10
    )
    said = call("train t.csv --label y --text words --out texts --epochs 2 --valid-fraction 0.2")
    assert "t: 20 texts, 3 classes in 2 levels, a tree" in said
    assert "┃ metric" in said
    assert json.loads((rows / "texts" / "config.json").read_text())["columns"]["text"] == "words"
    said = call("train synthetic --dataset-option rows=60 --out syn --epochs 1 --ensemble-size 2")
    assert "synthetic: 60 rows" in said
    stored = yaml.safe_load((rows / "syn" / "run.yaml").read_text())
    assert stored["dataset_option"] == ["rows=60"]
    call("train --config syn/run.yaml --out again")
    assert same_weights("syn", "again")


def test_a_streamed_parquet_file_trains_as_the_table(rows, call):
    pq.write_table(pyarrow.csv.read_csv(rows / "rows.csv"), rows / "rows.parquet", row_group_size=9)
    call(f"{BASE} --out held")
    line = BASE.replace("rows.csv", "rows.parquet")
    said = call(f"{line} --out streamed --stream")
    assert "streamed by row groups of up to 9 rows, shuffled in windows of " in said
    assert same_weights("held", "streamed")
    said = call(f"{line} --out windows --stream --stream-window 20")
    assert "shuffled in windows of 20\n" in said
    assert not same_weights("held", "windows")
    assert yaml.safe_load((rows / "windows" / "run.yaml").read_text())["stream_window"] == 20


def test_a_folder_a_pattern_and_an_address_of_parquet_files_are_the_table(rows, call):
    table = pyarrow.csv.read_csv(rows / "rows.csv")
    (rows / "parts").mkdir()
    for number, begin in enumerate(range(0, len(table), 20)):
        part = table.slice(begin, 20)
        pq.write_table(part, rows / "parts" / f"{number}.parquet", row_group_size=9)
    call(f"{BASE} --out held")
    for name, source in {
        "folder": "parts",
        "pattern": "parts/*.parquet",
        "address": f"file://{rows}/parts",
    }.items():
        line = BASE.replace("rows.csv", source)
        said = call(f"{line} --out {name} {'--stream' if name != 'pattern' else ''}")
        assert said.startswith("parts: ")
        assert same_weights("held", name)
    call("predict held rows.csv --out one.csv --keep all")
    call("predict folder parts --out many.csv --keep all")
    call(f"predict folder file://{rows}/parts --out far.csv --keep all")
    assert (rows / "many.csv").read_bytes() == (rows / "far.csv").read_bytes()
    assert len((rows / "one.csv").read_text().splitlines()) == len(table) + 1
    same, other = (pyarrow.csv.read_csv(rows / name) for name in ("one.csv", "many.csv"))
    assert same.column("path").equals(other.column("path"))


def test_an_address_needs_its_package_and_no_password(rows, call):
    line = BASE.replace("rows.csv", "s3://me:SECRET@bucket/rows")
    said = call(f"{line} --out m", code=2)
    assert "the address holds a password" in said
    assert "SECRET" not in said
    said = call(f"{BASE.replace('rows.csv', 'nosuch://rows')} --out m", code=2)
    assert "nosuch://rows cannot be read: Protocol not known: nosuch" in said


def test_under_torchrun_one_process_prints_and_writes(rows):
    line = f"{BASE} --out model --device cpu".replace("--epochs 4", "--epochs 2")
    done = subprocess.run(
        [
            *(*warm.python(), "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
            *("--no-python", *warm.python(), "-m", "hierlearn", *line.split()),
        ],
        cwd=rows,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("recipe quick") == 1
    assert done.stdout.count("wrote model") == 1
    log = (rows / "model" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in log] == [1, 2]
    assert Pipeline.load(rows / "model").config["training"]["steps"] == 10


@pytest.mark.parametrize("form", ["line", "list", "mapping"])
def test_further_heads_are_named_as_losses_are(rows, call, form):
    line = (
        "train rows.csv --label class --split part --epochs 1 --loss bce --head neighbors --out m"
    )
    written = {"list": "joint: [soft-labels=2]\n", "mapping": "joint: {soft-labels: 2}\n"}
    (rows / "run.yaml").write_text(written.get(form, "{}\n"))
    call(line + (" --joint soft-labels=2" if form == "line" else " --config run.yaml"))
    config = json.loads((rows / "m" / "config.json").read_text())
    assert config["plan"]["joint"] == {"soft-labels": 2}


def test_a_column_of_ids_is_no_feature_and_names_the_rows(rows, call):
    lines = (rows / "rows.csv").read_text().splitlines()
    named = [f"{'id' if not n else 5000 + n},{line}" for n, line in enumerate(lines)]
    (rows / "named.csv").write_text("\n".join(named) + "\n")
    columns = "--label class --split part --id-column id"
    said = call(f"train named.csv {columns} --epochs 1 --loss bce --head neighbors --out m")
    assert "100 rows of 3 numbers" in said
    assert "memory-00001.safetensors, memory.json" in said
    ids = memory(rows / "m")["ids"]
    assert ids == [str(5001 + n) for n in range(70)]
    call("evaluate m rows.csv")  # which has no such column


def test_numbers_in_bins_and_noise_on_inputs_from_the_command_line(rows, call):
    bins = "--preprocessing piecewise-linear --preprocessing-option bins=4"
    noise = "--network-option input_dropout=0.2 --network-option input_noise=0.1"
    call(f"{BASE} --out model {bins} {noise}")
    config = json.loads((rows / "model" / "config.json").read_text())
    assert config["preprocessing"]["name"] == "piecewise-linear"
    assert Pipeline.load(rows / "model").preprocessor.columns == 12
    assert config["metrics"]["test"]["accuracy"][0] > 0.5
    call("predict model new.csv -o answers.csv")
    assert len((rows / "answers.csv").read_text().splitlines()) == 101
    refused = call(f"{BASE} --out other {bins.replace('4', '0')}", code=2)
    assert "bins must be an integer from 1 to 1000, not 0" in refused


def test_counts_agree_with_their_nouns(call, tmp_path):
    lines = [f"{number % 2},{'ab'[number % 2]}" for number in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["f,y", *lines]) + "\n")
    said = call("train t.csv --label y --out model --recipe hcl --epochs 1 --valid-fraction 0.1")
    assert "t: 12 rows of 1 number, 2 classes in 1 level, a tree" in said
    assert "1 epoch, 1 network on cpu" in said
    card = (tmp_path / "model" / "README.md").read_text()
    assert "2 classes in 1 level (a tree, 2 leaves)" in card
    (tmp_path / "one.csv").write_text("f,y\n0.1,a\n")  # no row of the training
    said += call("evaluate model one.csv") + call("predict model one.csv -o out.csv --top 1")
    said += call("predict model one.csv -o long.csv --top 1 --layout long")
    assert "model on 1 row of one (all)" in said
    assert "scores of 1 row\n" in said
    found = re.findall(r"\b1 (?:rows|numbers|classes|levels|epochs|networks|texts)\b", said + card)
    assert found == []
