"""Folders: models, checkpoints and studies, with any of their files mutated.

Most cases forge the checksums, too: what a stranger makes is intact, and still wrong.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fuzz.mutations import apply_edits, edit_value, places, several_byte_edits, several_value_edits
from hierlearn.datasets import load_dataset, read_table
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.compare import run_study
from hierlearn.lab.pages.page import write_report
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.ranks import rank_studies
from hierlearn.lab.study import Study
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.folder import digest, write_config
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training import Plan

QUIET = Reporting(bar=False)
SETTINGS = {"epochs": 2, "batch_size": 32, "device": "cpu"}
PLANS = {
    "mlp": Plan(loss="hcl", network="mlp", network_options={"width": 5}, settings=SETTINGS),
    "members": Plan(loss="bce", settings={**SETTINGS, "ensemble_size": 2}, network="linear"),
    "neighbors": Plan(recipe="neighbors", settings=SETTINGS),
    "trees": Plan(recipe="trees", network_options={"trees": 3}, settings={"device": "cpu"}),
    "kernel": Plan(recipe="kernel", settings={"device": "cpu"}),
    "estimator": Plan(base="logistic", settings={"device": "cpu"}),
    "texts": Plan(recipe="linear", settings={"device": "cpu"}),  # of n-grams
    "table": Plan(recipe="quick", settings=SETTINGS),  # of columns of every kind
    "blend": Plan(settings={"device": "cpu"}),  # of the models of a race
}


@cache
def rows(plan="mlp"):
    """Rows that a plan can be trained on."""
    dataset = load_dataset("synthetic", rows=240 if plan == "blend" else 60, depth=2)
    draw = np.random.default_rng(0)
    if plan == "texts":
        words = draw.integers(0, 9, (len(dataset), 3))
        return replace(dataset, inputs=[" ".join(f"w{n}" for n in one) for one in words])
    if plan == "table":
        head = "a,kind,note,flag,day,class\n"
        lines = [
            f"{n},{'xy'[n % 2]},word{n % 7} of many,{n % 3 == 0},2024-01-{1 + n % 28:02},{one[0]}\n"
            for n, one in enumerate(dataset.labels)
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            path.write_text(head + "".join(lines))
            return read_table(path, label="class", column_kinds={"kind": "category"})
    return dataset


class Examples:
    """Folders that are trained once, below ``root``."""

    def __init__(self, root):
        self.root = Path(root)
        self.models = {}

    def model(self, name):
        folder = self.root / f"model-{name}"
        if not folder.exists():
            train(rows(name), PLANS[name], folder, reporting=QUIET)
        return folder

    def study(self):
        folder = self.root / "study"
        if not folder.exists():
            protocol = Protocol(seeds=2, network={"name": "linear"}, settings=SETTINGS)
            run_study(rows(), parse_candidates(["bce", "hxe"]), folder, protocol)
        return folder


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Damage:
    """What is done to a folder.

    Attributes:
        which: the number of an example.
        file: the number of one of its files.
        forge: make the checksums right again.
        edits: of bytes.
        values: of JSON; also of the metadata of tensors, where there are two or more.
        tensor: which tensor of a file.
        way: how it is changed; also how the folder is used.
    """

    which: int
    file: int
    forge: bool
    edits: list
    values: list
    tensor: int
    way: int


damages = st.builds(
    Damage,
    which=st.integers(0, 99),
    file=st.integers(0, 99),
    forge=st.sampled_from([True, True, False]),
    edits=several_byte_edits,
    values=several_value_edits,
    tensor=places,
    way=st.integers(0, 99),
)


def damage_tensors(path, damage):
    """Change the tensors or the metadata of a file, and its checksum with them."""
    tensors, metadata = read_tensors(path)
    if len(damage.values) > 1:
        changed = edit_value(metadata, damage.values)
        metadata = changed if isinstance(changed, dict) else {"a": changed}
    name = sorted(tensors)[damage.tensor % len(tensors)]
    how = damage.way % 5
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = tensors[name].flatten()[: damage.tensor % 4]
    elif how == 2 and tensors[name].dtype.is_floating_point:
        tensors[name] = tensors[name] * float("nan")
    elif how == 3:
        tensors[name] = tensors[name].double() * 1e6
    elif how == 4:
        tensors[name] = tensors[name] + 1000
    write_tensors(path, tensors, metadata)


def damage_file(path, damage):
    if path.suffix == ".safetensors" and damage.forge:
        damage_tensors(path, damage)
    elif path.suffix in (".json", ".jsonl") and damage.forge:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        number = damage.tensor % len(lines)
        lines[number] = json.dumps(edit_value(json.loads(lines[number]), damage.values))
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_bytes(apply_edits(path.read_bytes(), damage.edits))


def fresh_copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(source, target)


def prepare_model(damage, folder, examples):
    """Damage a file of a model, and load it."""
    plan = list(PLANS)[damage.which % len(PLANS)]
    copy = fresh_copy(examples.model(plan), Path(folder) / "model")
    names = [path.name for path in copy.iterdir() if path.suffix in (".json", ".safetensors")]
    names = [*sorted(names), "config.json", "config.json"]
    name = names[damage.file % len(names)]
    config = json.loads((copy / "config.json").read_text())
    config.pop("sha256")
    if name == "config.json" and damage.forge:
        changed = edit_value(config, damage.values)
        if isinstance(changed, dict):
            write_config(copy / name, changed)
    else:
        damage_file(copy / name, damage)
        if damage.forge:
            config["files"] = {one: digest(copy / one) for one in config["files"]}
            write_config(copy / "config.json", config)

    def work():
        pipeline = Pipeline.load(copy)
        pipeline.predict(rows(plan).take(np.arange(3)).inputs)

    return work, size_of(copy)


def prepare_checkpoint(damage, folder, examples):
    """Damage a checkpoint of a training, and resume it."""
    name = ("mlp", "members")[damage.which % 2]
    copy = fresh_copy(examples.model(name), Path(folder) / "run")
    for one in ("config.json", "model.safetensors"):
        (copy / one).unlink()
    first, last = sorted((copy / "checkpoints").iterdir())
    if damage.which % 4 < 2:  # what is resumed has an epoch to go
        last.unlink()
        last = first
    damage_file(copy / "log.jsonl" if damage.file % 4 == 3 else last, damage)

    def work():
        train(rows(), PLANS[name], copy, resume=True, reporting=QUIET)

    return work, size_of(copy)


def prepare_study(damage, folder, examples):
    """Damage a file of a study, and make tables and pages of it."""
    copy = fresh_copy(examples.study(), Path(folder) / "study")
    names = [
        path.relative_to(copy)
        for path in copy.rglob("*")
        if path.is_file() and path.suffix in (".json", ".jsonl", ".safetensors")
    ]
    kept = sorted(str(one) for one in names if one.name != "summary.json")
    kept += ["study.json", "runs.jsonl"]
    damage_file(copy / kept[damage.file % len(kept)], damage)

    def work():
        study = Study.open(copy)
        for one in study.finished:
            study.rows(one), study.log(one), study.selected(one), study.evidence(one)
        study.truth(), study.texts(), study.names()
        if damage.which % 10 < 3:
            write_report(copy, copy / "page.html")
        elif damage.which % 10 < 5:
            rank_studies([copy, examples.study()], metric="hit@1")

    return work, size_of(copy)


FOLDERS = {"model": prepare_model, "checkpoint": prepare_checkpoint, "study": prepare_study}
