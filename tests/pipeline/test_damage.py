"""Model folders that are damaged or made by a stranger: refused in one sentence, in no time."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch

from hierlearn.datasets import load_dataset
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.folder import check_free, digest, write_config
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import save_into, train
from hierlearn.training import Plan

QUIET = Reporting(bar=False)
SETTINGS = {"epochs": 2, "batch_size": 32, "device": "cpu"}
MLP = Plan(loss="hcl", network="mlp", network_options={"width": 4}, settings=SETTINGS)
PATIENT = Plan(
    loss="bce", network="linear", settings={**SETTINGS, "patience": 2}, valid_fraction=0.3
)
NEIGHBORS = Plan(recipe="neighbors", settings=SETTINGS)


def rows():
    return load_dataset("synthetic", rows=40, depth=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    for name, plan in {"mlp": MLP, "neighbors": NEIGHBORS, "patient": PATIENT}.items():
        train(rows(), plan, root / name, reporting=QUIET)
    return root


@pytest.fixture
def model(trained, tmp_path):
    return shutil.copytree(trained / "mlp", tmp_path / "m")


@pytest.fixture
def remembering(trained, tmp_path):
    return shutil.copytree(trained / "neighbors", tmp_path / "n")


def refusal(folder):
    begun = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        Pipeline.load(folder)
    assert time.process_time() - begun < 30
    message = str(caught.value)
    assert len(message) <= 600
    assert "\n" not in message
    return message.replace(str(folder), "FOLDER")


def forge(folder, **changes):
    """Change entries of config.json, and its checksum with them."""
    config = json.loads((folder / "config.json").read_text())
    write_config(folder / "config.json", {**config, **changes})


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "hierarchy.json", "model.safetensors", "rows.safetensors"),
        *("memory.json", "memory-00001.safetensors"),
    ],
)
def test_a_hundred_of_a_hundred_bit_flips_are_refused(remembering, name):
    whole = (remembering / name).read_bytes()
    draw = random.Random(name)
    for _ in range(100):
        place, bit = draw.randrange(len(whole)), draw.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        (remembering / name).write_bytes(flipped)
        assert name in refusal(remembering), (place, bit)


def test_what_has_no_checksum_changes_no_answer(remembering):
    """SECURITY.md names these files; every other one of the folder is covered."""
    config = json.loads((remembering / "config.json").read_text())
    covered = {"config.json", *config["files"]}
    (remembering / "run.yaml").write_text("# hierlearn\n")
    free = {path.name for path in remembering.iterdir() if path.is_file()} - covered
    assert free == {"README.md", "run.yaml", "log.jsonl"} - (
        set() if (remembering / "log.jsonl").exists() else {"log.jsonl"}
    )
    inputs = rows().inputs
    before = Pipeline.load(remembering).probabilities(inputs)
    for name in free:
        (remembering / name).write_bytes(b"\xff\0{")
    assert torch.equal(Pipeline.load(remembering).probabilities(inputs), before)
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    assert all(f"`{name}`" in text for name in ("README.md", "run.yaml", "log.jsonl"))


def test_a_hundred_of_a_hundred_bit_flips_of_a_checkpoint_are_refused(model):
    path = sorted((model / "checkpoints").iterdir())[-1]
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=path.name):
            read_tensors(path)


def test_an_edited_configuration_is_told_from_a_damaged_one(model):
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace('"license": null', '"license": "MIT"'))
    assert refusal(model) == (
        "FOLDER/config.json is damaged or was edited: its checksum does not match; copy the whole "
        "folder again"
    )


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "notes.txt", "a/b.safetensors", ""])
def test_only_files_of_a_model_may_be_named(model, name):
    files = json.loads((model / "config.json").read_text())["files"]
    forge(model, files={**files, name: "0" * 64})
    assert refusal(model) == (
        f"FOLDER/config.json: files names {name!r}, which is no file of a model"
    )


def test_pipes_and_devices_are_not_opened(model):
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")
    assert refusal(model) == (
        "FOLDER/model.safetensors is not a regular file; copy its content into one"
    )
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to("/dev/zero")
    assert refusal(model) == (
        "FOLDER/model.safetensors is not a regular file; copy its content into one"
    )
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("/dev/zero")
    assert refusal(model) == "FOLDER/config.json is not a regular file; copy its content into one"
    with pytest.raises(HierlearnError, match="holds no model, so it is not replaced"):
        check_free(model, force=True)


def test_files_may_be_links_as_in_a_cache_that_shares_them(remembering, tmp_path):
    """Each file of a snapshot links to one named by its content, in another folder."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    for one in (blobs, snapshot):
        one.mkdir(parents=True)
    for path in [path for path in remembering.iterdir() if path.is_file()]:
        held = blobs / digest(path)
        path.rename(held)
        (snapshot / path.name).symlink_to(f"../../blobs/{held.name}")
    before = {path.name: path.read_bytes() for path in blobs.iterdir()}
    model = Pipeline.load(snapshot)
    assert len(model.predict(rows().inputs[:3])) == 3
    save_into(model, snapshot)  # replaces the links, and never writes through them
    assert not (snapshot / "config.json").is_symlink()
    assert {path.name: path.read_bytes() for path in blobs.iterdir()} == before


def test_a_blend_has_a_bounded_number_of_parts(model):
    network = json.loads((model / "config.json").read_text())["network"]
    part = {"name": "a", "network": network, "link": "sigmoid", "answers": {"main": 1.0}}
    forge(model, network={**network, "parts": [part] * 3_000})
    assert refusal(model) == "FOLDER: a blend has at most 100 parts, not 3,000"


@pytest.mark.parametrize("depth", [1, 40])
def test_the_layers_of_all_parts_are_counted_together(model, depth):
    network = json.loads((model / "config.json").read_text())["network"]
    network["options"]["depth"] = depth
    part = {"name": "a", "network": network, "link": "sigmoid", "answers": {"main": 1.0}}
    forge(model, network={**network, "options": {}, "parts": [part] * 90})
    assert "is not the one that was saved" in refusal(model)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"depth": 1_000_000}, "with depth 1,000,000 is not the one that was saved"),
        ({"depth": 10**9}, "with depth 1,000,000,000 is not the one that was saved"),
        ({"width": 10**9}, "with width 1,000,000,000 is not the one that was saved"),
        ({"width": 60_000}, "is not the one that was saved (encoder.hidden.0.weight is"),
        ({"width": "wide"}, "width"),
        ({"members": 60_000}, "with members 60,000 is not the one that was saved"),
        ({"breadth": 3}, "unknown option of network mlp 'breadth'"),
    ],
)
def test_a_network_is_compared_with_its_weights_before_it_is_built(model, options, wrong):
    network = json.loads((model / "config.json").read_text())["network"]
    forge(model, network={**network, "options": {**network["options"], **options}})
    assert wrong in refusal(model)


@pytest.mark.parametrize("members", [999, 10**5, 10**12])
def test_members_are_compared_with_the_weights(model, members):
    network = json.loads((model / "config.json").read_text())["network"]
    forge(model, network={**network, "members": members})
    wrong = "is not the one that was saved" if members < 1000 else "members must be from 1 to 1000"
    assert wrong in refusal(model)


@pytest.mark.parametrize(
    "key",
    ["fingerprint", "network", "link", "decoder", "terminals", "preprocessing", "files"],
)
def test_missing_keys_are_named(model, key):
    config = json.loads((model / "config.json").read_text())
    del config[key]
    write_config(model / "config.json", config)
    assert refusal(model) == f"FOLDER/config.json: {key} is missing"


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"link": 3}, "link must be a string, not 3"),
        ({"terminals": [99]}, "terminals must be class numbers"),
        ({"terminals": [-1]}, "terminals[0] must be from 0 to"),
        ({"decoder": {"name": "leaf"}}, "decoder.options is missing"),
        (
            {"scaling": {"kind": "x", "slopes": [1], "shares": []}},
            "scaling.kind must be one of 'steps', 'mass', 'log-odds'",
        ),
        ({"network": {"name": "mlp", "x": 1}}, "network.inputs is missing"),
        ({"feature_names": "a"}, "feature_names must be a list, not 'a'"),
        ({"preprocessing": {"name": "numbers"}}, "does not describe this model ("),
        ({"preprocessing": {"name": "x" * 10_000}}, "unknown preprocessor 'xxx"),
    ],
)
def test_wrong_values_are_named_with_their_key(model, changes, wrong):
    forge(model, **changes)
    assert wrong in refusal(model)


def test_a_memory_must_be_among_the_files(remembering):
    files = json.loads((remembering / "config.json").read_text())["files"]
    del files["memory.json"]
    forge(remembering, files=files)
    assert refusal(remembering) == "FOLDER has no memory.json; copy the whole folder again"


def test_names_that_no_folder_has():
    for name in ("a\0b", "a" * 5000):
        assert "is no folder with a model in it" in refusal(name)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda held: held.pop("best"), "best is missing"),
        (lambda held: held.update(step="two"), "step must be an integer, not 'two'"),
        (lambda held: held.update(step=-1), "step must be from 0"),
        (lambda held: held.update(epoch=None), "epoch must be an integer, not None"),
        (lambda held: held.update(step=10**9), "is of step 1,000,000,000, but this training has"),
        (lambda held: held["best"].update(epoch=[1, 2, 3]), "best.epoch has 3 members, not 1"),
        (lambda held: held["best"].update(stopped=None), "best.stopped must be a list, not None"),
        (lambda held: held.update(run={}), "fingerprint is missing"),
        (lambda held: held.update(run=[1]), "must be an object"),
    ],
)
def test_headers_of_checkpoints_are_checked(model, change, wrong):
    for name in ("config.json", "model.safetensors"):
        (model / name).unlink()
    path = sorted((model / "checkpoints").iterdir())[-1]
    tensors, metadata = read_tensors(path)
    change(metadata)
    write_tensors(path, tensors, metadata)
    with pytest.raises(CheckpointError) as caught:
        train(rows(), MLP, model, resume=True, reporting=QUIET)
    assert wrong in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("name", ["optimizer/0.exp_avg", "optimizer/0.step", "best/0/"])
@pytest.mark.parametrize("change", ["longer", "shorter", "absent", "unknown"])
def test_tensors_of_checkpoints_are_checked(trained, tmp_path, name, change):
    """Fused kernels of torch write beyond the end of a state that is too short."""
    model = shutil.copytree(trained / "patient", tmp_path / "p")
    for one in ("config.json", "model.safetensors"):
        (model / one).unlink()
    path, last = sorted((model / "checkpoints").iterdir())
    last.unlink()
    tensors, metadata = read_tensors(path)
    name = next(one for one in sorted(tensors) if one.startswith(name))
    if change == "absent":
        del tensors[name]
    elif change == "unknown":
        tensors[f"{name}x"] = tensors[name].clone()
    else:
        tensors[name] = tensors[name].flatten()[: 0 if change == "shorter" else 1].repeat(99)
    write_tensors(path, tensors, metadata)
    with pytest.raises(CheckpointError) as caught:
        train(rows(), PATIENT, model, resume=True, reporting=QUIET)
    assert f"{path.name} does not fit this network, its losses or its optimizer ({name}" in str(
        caught.value
    )


def test_equal_models_are_equal_files(tmp_path):
    for number in range(4):  # safetensors orders several entries of a header by chance
        write_tensors(tmp_path / f"{number}.safetensors", {}, {"a": 1, "b": 2})
    assert len({digest(path) for path in tmp_path.iterdir()}) == 1


def test_a_damaged_log_is_named(model):
    for name in ("config.json", "model.safetensors"):
        (model / name).unlink()
    log = model / "log.jsonl"
    log.write_text("{damaged\n" + log.read_text())
    with pytest.raises(HierlearnError, match=r"log.jsonl, line 1: not JSON; remove the line"):
        train(rows(), MLP, model, resume=True, reporting=QUIET)
