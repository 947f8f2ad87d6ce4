"""Folders: models, checkpoints and studies, with any of their files mutated.

Half of the cases forge the checksums, too: what a stranger makes is intact, and still wrong.
"""

import json
import shutil
from pathlib import Path

from fuzz.mutations import mutate_bytes, mutate_json, mutate_value
from hierlearn.datasets import load_dataset
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.config_file import digest, write_config
from hierlearn.pipeline.reporting import Reporting
from hierlearn.pipeline.train import train
from hierlearn.reports.page import write_report
from hierlearn.studies.candidates import parse_candidates
from hierlearn.studies.compare import compare
from hierlearn.studies.protocol import Protocol
from hierlearn.studies.ranks import rank_studies
from hierlearn.studies.study import Study
from hierlearn.training import Plan

QUIET = Reporting(bar=False)
SETTINGS = {"epochs": 2, "batch_size": 32, "device": "cpu"}
PLANS = {
    "mlp": Plan(loss="hcl", network="mlp", network_options={"width": 5}, settings=SETTINGS),
    "members": Plan(loss="bce", settings={**SETTINGS, "ensemble_size": 2}, network="linear"),
    "neighbors": Plan(recipe="neighbors", settings=SETTINGS),
}


def rows():
    return load_dataset("synthetic", rows=60, depth=2)


class Examples:
    """Folders that are trained once, below ``root``."""

    def __init__(self, root):
        self.root = Path(root)
        self.models = {}

    def model(self, name):
        folder = self.root / f"model-{name}"
        if not folder.exists():
            train(rows(), PLANS[name], folder, reporting=QUIET)
        return folder

    def study(self):
        folder = self.root / "study"
        if not folder.exists():
            protocol = Protocol(seeds=2, network={"name": "linear"}, settings=SETTINGS)
            compare(rows(), parse_candidates(["bce", "hxe"]), folder, protocol)
        return folder


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def mutate_tensors(rng, path):
    """Change the tensors or the metadata of a file, and its checksum with them."""
    tensors, metadata = read_tensors(path)
    if rng.random() < 0.5:
        changed = mutate_value(rng, metadata)
        metadata = changed if isinstance(changed, dict) else {"a": changed}
    name = rng.choice(sorted(tensors))
    how = rng.randrange(5)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = tensors[name].flatten()[: rng.randrange(4)]
    elif how == 2 and tensors[name].dtype.is_floating_point:
        tensors[name] = tensors[name] * float("nan")
    elif how == 3:
        tensors[name] = tensors[name].double() * 1e6
    elif how == 4:
        tensors[name] = tensors[name] + 1000
    write_tensors(path, tensors, metadata)


def mutate_file(rng, path, forge):
    if path.suffix == ".safetensors" and forge:
        mutate_tensors(rng, path)
    elif path.suffix in (".json", ".jsonl") and forge:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        number = rng.randrange(len(lines))
        lines[number] = json.dumps(mutate_value(rng, json.loads(lines[number])))
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".json" and rng.random() < 0.5:
        path.write_bytes(mutate_json(rng, path.read_bytes()))
    else:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))


def prepare_model(rng, folder, examples):
    """Mutate a file of a model, and load it."""
    copy = Path(folder) / "model"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(examples.model(rng.choice(list(PLANS))), copy)
    names = [path.name for path in copy.iterdir() if path.suffix in (".json", ".safetensors")]
    name = rng.choice([*sorted(names), "config.json", "config.json"])
    forge = rng.random() < 0.7
    config = json.loads((copy / "config.json").read_text())
    config.pop("sha256")
    if name == "config.json" and forge:
        changed = mutate_value(rng, config)
        if isinstance(changed, dict):
            write_config(copy / name, changed)
    else:
        mutate_file(rng, copy / name, forge)
        if forge:
            config["files"] = {one: digest(copy / one) for one in config["files"]}
            write_config(copy / "config.json", config)

    def work():
        pipeline = Pipeline.load(copy)
        pipeline.predict(rows().inputs[:3])

    return work, size_of(copy)


def prepare_checkpoint(rng, folder, examples):
    """Mutate the newest checkpoint of a training, and resume it."""
    copy = Path(folder) / "run"
    shutil.rmtree(copy, ignore_errors=True)
    name = rng.choice(["mlp", "members"])
    shutil.copytree(examples.model(name), copy)
    for one in ("config.json", "model.safetensors"):
        (copy / one).unlink()
    paths = sorted((copy / "checkpoints").iterdir())
    target = rng.choice([paths[-1], paths[-1], paths[-1], copy / "log.jsonl"])
    mutate_file(rng, target, rng.random() < 0.7)

    def work():
        train(rows(), PLANS[name], copy, resume=True, reporting=QUIET)

    return work, size_of(copy)


def prepare_study(rng, folder, examples):
    """Mutate a file of a study, and make tables and pages of it."""
    copy = Path(folder) / "study"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(examples.study(), copy)
    names = [
        path.relative_to(copy)
        for path in copy.rglob("*")
        if path.is_file() and path.suffix in (".json", ".jsonl", ".safetensors")
    ]
    kept = sorted(str(one) for one in names if one.name != "summary.json")
    mutate_file(rng, copy / rng.choice([*kept, "study.json", "runs.jsonl"]), rng.random() < 0.7)
    choice = rng.random()

    def work():
        study = Study.open(copy)
        for one in study.finished:
            study.rows(one), study.log(one), study.selected(one), study.evidence(one)
        study.truth(), study.texts(), study.names()
        if choice < 0.3:
            write_report(copy, copy / "page.html")
        elif choice < 0.5:
            rank_studies([copy, examples.study()], metric="hit@1")

    return work, size_of(copy)


FOLDERS = {"model": prepare_model, "checkpoint": prepare_checkpoint, "study": prepare_study}
