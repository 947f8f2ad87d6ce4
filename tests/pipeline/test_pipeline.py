"""A model folder: bit for bit there and back, and a sentence for every file that is not right."""

import json
import shutil
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.errors import DataError, HierlearnError
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.networks import NETWORKS
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.folder import digest, write_config
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from training.datasets import assert_identical, partial_problem, plan, problem, state, texts

FILES = ["README.md", "config.json", "hierarchy.json", "model.safetensors", "rows.safetensors"]
KINDS = {
    "mlp": (problem, plan("hcl", dropout=0.3)),
    "linear": (partial_problem, plan("bce", network="linear")),
    "token bag": (texts, plan("leaf-ce", network="token-bag")),
    "stacked": (problem, plan("leaf-ce", ensemble_size=3)),
    "inner classes end rows": (partial_problem, plan("leaf-ce")),
}

QUIET = Reporting(bar=False)


@pytest.fixture(scope="module")
def trained():
    """A model of 12 classes."""
    return train(problem(), plan("leaf-ce"), reporting=QUIET)


@pytest.fixture
def saved(trained, tmp_path):
    return trained.save(tmp_path / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_bit_for_bit(tmp_path, kind):
    make, chosen = KINDS[kind]
    dataset = make()
    model = train(dataset, chosen, reporting=QUIET)
    folder = model.save(tmp_path / "deep" / "model")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    loaded = Pipeline.load(folder)
    assert_identical(state(loaded.network), state(model.network))
    assert not loaded.network.training
    assert torch.equal(loaded.probabilities(dataset.inputs), model.probabilities(dataset.inputs))
    assert loaded.hierarchy == model.hierarchy
    assert (loaded.label_space, loaded.decoder) == (model.label_space, model.decoder)
    assert loaded.decoder_options == model.decoder_options
    assert type(loaded.link) is type(model.link)
    assert loaded.config == json.loads(json.dumps(model.config))
    again = loaded.save(tmp_path / "again")
    for name in FILES:
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_decisions_come_back(tmp_path):
    dataset = partial_problem()
    model = train(dataset, plan("leaf-ce"), reporting=QUIET)
    loaded = Pipeline.load(model.save(tmp_path / "m"))
    p = model.probabilities(dataset.inputs)
    assert torch.equal(loaded.make_decoder()(p), model.make_decoder()(p))
    other = loaded.make_decoder("argmax")(p)
    assert torch.equal(other, p.argmax(dim=1))


def test_a_row_gets_the_same_probabilities_in_any_company(trained):
    inputs = problem().inputs
    whole = trained.probabilities(inputs)
    parts = list(trained.stream_probabilities(inputs, batch=7))
    assert [len(part) for part in parts] == [7] * 8 + [4]
    torch.testing.assert_close(torch.cat(parts), whole)
    torch.testing.assert_close(trained.probabilities(inputs[5:6])[0], whole[5])
    assert trained.probabilities(inputs[:0]).shape == (0, 12)
    logs = torch.cat(list(trained.stream_probabilities(inputs, log=True)))
    torch.testing.assert_close(logs.exp(), whole)


def test_inputs_of_another_width_are_refused(trained):
    with pytest.raises(DataError, match=r"4 columns"):
        trained.probabilities(problem().inputs[:, :4])
    bare = replace(trained, preprocessor=None)
    with pytest.raises(DataError, match="inputs have 4 features but the network reads 5"):
        bare.probabilities(problem().inputs[:, :4])


def test_the_card_tells_what_the_model_is(tmp_path):
    dataset = problem()
    model = train(dataset, plan("leaf-ce"), reporting=QUIET)
    model.config["license"] = "CC-BY-4.0"
    card = (model.save(tmp_path / "m") / "README.md").read_text()
    assert card.startswith("---\nlicense: CC-BY-4.0\nlibrary_name: hierlearn\n---\n\n# synthetic\n")
    assert "Assigns rows to 12 classes in 2 levels (a tree, 9 leaves)." in card
    for line in (
        "- source: drawn at random with seed 0",
        "- training rows: 36",
        "- validation rows: 12",
        "- inputs: 5 numbers",
        "- loss: leaf-ce",
        f"| exact | {100 * model.config['metrics']['test']['exact']:.2f} % |",
        "## On the valid rows",
        "## On the test rows",
        f"Hierarchy {dataset.hierarchy.fingerprint[:16]}.",
    ):
        assert line in card
    bare = replace(model, config={}).save(tmp_path / "bare")
    assert "license: unknown" in (bare / "README.md").read_text()


# ---------------------------------------------------------------------- folders that exist


def test_a_folder_that_exists_is_refused_without_force(trained, saved, tmp_path):
    with pytest.raises(HierlearnError, match=r"model exists; pass force=True to replace the model"):
        trained.save(saved)
    other = train(problem(), plan("bce"), reporting=QUIET)
    other.save(saved, force=True)
    assert_identical(state(Pipeline.load(saved).network), state(other.network))
    (tmp_path / "empty").mkdir()
    trained.save(tmp_path / "empty")


def test_a_folder_without_a_model_is_never_replaced(trained, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(HierlearnError, match="mine holds no model, so it is not replaced"):
        trained.save(tmp_path / "mine", force=True)
    with pytest.raises(HierlearnError, match=r"thesis\.tex is a file; name a folder"):
        trained.save(tmp_path / "mine" / "thesis.tex", force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years"


def test_other_files_beside_a_replaced_model_stay(trained, saved):
    (saved / "notes.txt").write_text("mine")
    trained.save(saved, force=True)
    assert (saved / "notes.txt").read_text() == "mine"


def test_what_cannot_be_saved_leaves_the_old_model(trained, saved):
    foreign = Pipeline(trained.label_space, nn.Linear(5, 12), trained.link)
    with pytest.raises(HierlearnError, match="a Linear that was passed in as a module cannot be"):
        foreign.save(saved, force=True)
    odd = replace(trained, config={"plan": {"f": len}})
    with pytest.raises(HierlearnError, match=r"plan cannot be written as JSON .*plain values"):
        odd.save(saved, force=True)
    assert_identical(state(Pipeline.load(saved).network), state(trained.network))


# ---------------------------------------------------------------------- files that are not right


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        Pipeline.load(folder)
    return str(caught.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize("name", ["model.safetensors", "hierarchy.json", "config.json"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    assert refusal(saved) == f"FOLDER has no {name}: it is no model, or an unfinished one"


def test_a_model_is_read_without_its_card(saved, trained):
    (saved / "README.md").unlink()
    assert_identical(state(Pipeline.load(saved).network), state(trained.network))


def test_no_folder(tmp_path):
    assert refusal(tmp_path / "nowhere") == "FOLDER is no folder with a model in it"


@pytest.mark.parametrize("name", ["model.safetensors", "hierarchy.json", "rows.safetensors"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_file_is_named(saved, name, share):
    whole = (saved / name).read_bytes()
    (saved / name).write_bytes(whole[: int(share * len(whole))])
    assert refusal(saved) == (
        f"FOLDER/{name} is not the file that was saved: it is truncated or of another model; copy "
        f"the whole folder again"
    )


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_configuration_is_named(saved, share):
    whole = (saved / "config.json").read_bytes()
    (saved / "config.json").write_bytes(whole[: int(share * len(whole))])
    wrong = "is damaged: it is not valid JSON" if share else "is empty"
    assert refusal(saved) == f"FOLDER/config.json {wrong}"


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "other"}', "3"])
def test_a_configuration_from_elsewhere_is_named(saved, text):
    (saved / "config.json").write_text(text)
    assert refusal(saved) == "FOLDER/config.json was not written by hierlearn"


def test_a_configuration_of_another_version_is_named(saved):
    config = json.loads((saved / "config.json").read_text())
    write_config(saved / "config.json", {**config, "version": 2})
    assert refusal(saved) == (
        "FOLDER/config.json is of version 2, this hierlearn reads version 3; use the hierlearn "
        "that wrote it"
    )


@pytest.mark.parametrize("name", ["model.safetensors", "hierarchy.json", "config.json"])
def test_files_of_two_models_are_not_mixed(saved, tmp_path, name):
    other = train(partial_problem(), plan("leaf-ce"), reporting=QUIET).save(tmp_path / "other")
    shutil.copy(other / name, saved / name)
    told = "model.safetensors" if name == "config.json" else name
    assert refusal(saved).startswith(f"FOLDER/{told} is not the file that was saved")


def test_a_hierarchy_that_is_not_the_models(saved):
    other = Hierarchy.from_paths(["x/y", "z"])
    (saved / "hierarchy.json").write_text(other.to_json() + "\n")
    edit_config(saved, files=digests_of(saved))
    fingerprint = json.loads((saved / "config.json").read_text())["fingerprint"]
    assert refusal(saved) == (
        f"FOLDER/hierarchy.json is not the hierarchy of this model: fingerprint "
        f"{other.fingerprint[:12]}, the model has {fingerprint[:12]}"
    )


def digests_of(folder):
    return {one: digest(folder / one) for one in ("model.safetensors", "hierarchy.json")}


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    write_config(folder / "config.json", {**config, **changes})


def test_a_network_that_nobody_knows(saved):
    config = json.loads((saved / "config.json").read_text())
    edit_config(saved, network={**config["network"], "name": "mlpp"})
    assert refusal(saved).startswith("FOLDER: unknown network 'mlpp'; did you mean 'mlp'")


def tiny(label_space, inputs, *, link="sigmoid", scale=1.0):
    """A factory that hierlearn does not know."""
    network = NETWORKS["linear"](label_space, inputs, link=link)
    network.scale = scale
    return network


def test_a_network_of_other_code_is_saved_and_loaded_with_consent(tmp_path, monkeypatch):
    module = types.ModuleType("elsewhere_nets")
    module.tiny = tiny
    monkeypatch.setitem(sys.modules, "elsewhere_nets", module)
    chosen = Plan(
        loss="leaf-ce",
        network="elsewhere_nets:tiny",
        network_options={"scale": 3.0},
        settings={"epochs": 2, "ensemble_size": 2, "device": "cpu"},
    )
    dataset = problem()
    model = train(dataset, chosen, tmp_path / "m", reporting=QUIET)
    assert refusal(tmp_path / "m") == (
        "FOLDER names the network 'elsewhere_nets:tiny', which is code outside of hierlearn; pass "
        "trust=True if you trust it to run"
    )
    loaded = Pipeline.load(tmp_path / "m", trust=True)
    assert torch.equal(loaded.probabilities(dataset.inputs), model.probabilities(dataset.inputs))
    monkeypatch.delitem(sys.modules, "elsewhere_nets")
    with pytest.raises(CheckpointError, match="'elsewhere_nets:tiny' cannot be imported"):
        Pipeline.load(tmp_path / "m", trust=True)


def test_nothing_is_unpickled(saved):
    tensors, facts = read_tensors(saved / "model.safetensors")
    torch.save(tensors, saved / "model.safetensors")
    assert "is not the file that was saved" in refusal(saved)
    edit_config(saved, files=digests_of(saved))
    assert "is damaged or truncated" in refusal(saved)
    write_tensors(saved / "model.safetensors", tensors, facts)
    edit_config(saved, files=digests_of(saved))
    assert np.isfinite(Pipeline.load(saved).probabilities(problem().inputs).numpy()).all()


def test_a_finished_folder_does_not_smuggle_code_into_a_resumed_training(tmp_path, monkeypatch):
    ran = []
    module = types.ModuleType("elsewhere_nets")
    module.tiny = lambda *_, **__: ran.append(1)
    monkeypatch.setitem(sys.modules, "elsewhere_nets", module)
    train(problem(), plan("bce"), tmp_path / "m", reporting=QUIET)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    edit_config(tmp_path / "m", network={**config["network"], "name": "elsewhere_nets:tiny"})
    with pytest.raises(CheckpointError, match="code outside of hierlearn"):
        train(problem(), plan("bce"), tmp_path / "m", resume=True, reporting=QUIET)
    assert not ran


def test_a_network_that_has_changed_since_is_named(tmp_path, monkeypatch):
    module = types.ModuleType("elsewhere_nets")
    module.tiny = tiny
    monkeypatch.setitem(sys.modules, "elsewhere_nets", module)
    chosen = Plan(loss="bce", network="elsewhere_nets:tiny", settings={"epochs": 1})
    train(problem(), chosen, tmp_path / "m", reporting=QUIET)
    module.tiny = lambda label_space, inputs, **_: NETWORKS["mlp"](label_space, inputs)
    with pytest.raises(CheckpointError, match="'elsewhere_nets:tiny' is not the one that was"):
        Pipeline.load(tmp_path / "m", trust=True)
