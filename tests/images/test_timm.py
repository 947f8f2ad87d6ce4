"""Image encoders of timm, with random weights: frozen and trained, saved and read again."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hierlearn.backbones import BACKBONES
from hierlearn.backbones.timm import find_timm
from hierlearn.datasets import read_images
from hierlearn.errors import HierlearnError
from hierlearn.features.images import ImagePreprocessor
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.export import export
from hierlearn.training.settings import Plan
from images.picture_files import make_folder

NAME = "test_resnet"  # of timm's own tests: half a million weights
FAMILY = BACKBONES["timm"]
RANDOM = {"pretrained": False, "image_size": 32}
SETTINGS = {"epochs": 2, "batch_size": 8, "device": "cpu"}


@pytest.fixture(autouse=True)
def _no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_description_is_enough_to_build_it():
    found = FAMILY.describe(NAME)
    encoder = FAMILY.build(found, pretrained=False).eval()
    x = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    features = encoder(x)
    assert features.shape == (3, found["features"])
    mean, std = (torch.tensor(found[name]).view(3, 1, 1) for name in ("mean", "std"))
    torch.testing.assert_close(features, encoder.model((x / 255 - mean) / std))
    assert FAMILY.load(encoder, NAME) is None  # random weights stay
    torch.testing.assert_close(encoder(x), features)


def test_weights_of_a_file(tmp_path):
    torch.manual_seed(3)
    donor = find_timm().create_model(NAME, pretrained=False)  # with its classifier
    save_file(donor.state_dict(), tmp_path / "own.safetensors")
    encoder = FAMILY.build(FAMILY.describe(NAME), weights=str(tmp_path / "own.safetensors"))
    FAMILY.load(encoder, NAME)
    state = donor.state_dict()
    for name, value in encoder.model.state_dict().items():
        assert torch.equal(value, state[name])
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    encoder = FAMILY.build(FAMILY.describe(NAME), weights=str(tmp_path / "other.safetensors"))
    with pytest.raises(HierlearnError, match="does not hold the weights of test_resnet"):
        FAMILY.load(encoder, NAME)


def test_weights_that_cannot_be_had(monkeypatch):
    import huggingface_hub as hub

    def refuse(*_, **__):
        raise OSError("no route to the host")

    monkeypatch.setattr(hub, "get_hf_file_metadata", refuse)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    encoder = FAMILY.build(FAMILY.describe("resnet18"))
    message = r"of resnet18 cannot be downloaded .*weights=PATH\.safetensors.*pretrained=false"
    with pytest.raises(HierlearnError, match=message):
        FAMILY.load(encoder, "resnet18")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet81", {}, "unknown model of timm 'resnet81'; did you mean 'resnet18'.*see timm"),
        (NAME, {"pretrained": 3}, "pretrained must be true or false, not 3"),
        (NAME, {"pretrained": False, "weights": "a"}, "leave out pretrained=false"),
    ],
)
def test_what_is_refused(name, options, message):
    with pytest.raises(HierlearnError, match=message):
        FAMILY.build(FAMILY.describe(name), **options)


def test_a_frozen_encoder_needs_no_training_of_its_own(tmp_path):
    dataset = read_images(make_folder(tmp_path / "images", 6))
    plan = Plan(network=f"timm:{NAME}", network_options=RANDOM, settings=SETTINGS)
    made = train(dataset, plan, tmp_path / "model")
    p = made.probabilities(dataset.inputs)
    again = Pipeline.load(tmp_path / "model")
    assert torch.equal(again.probabilities(dataset.inputs), p)
    assert again.preprocessor.reads == "images"
    wanted = [row[0] for row in dataset.labels]
    assert np.mean(np.array(made.predict(dataset.inputs)) == wanted) > 0.5


def test_a_trained_encoder(tmp_path):
    dataset = read_images(make_folder(tmp_path / "images", 6))
    options = {**RANDOM, "tuning": "full", "augment": "light", "flip": True}
    plan = Plan(network=f"timm:{NAME}", network_options=options, settings=SETTINGS)
    made = train(dataset, plan, tmp_path / "model")
    assert made.network.encoder.augment.flip
    before = FAMILY.build(FAMILY.describe(NAME), pretrained=False).state_dict()
    after = made.network.encoder.state_dict()
    assert before.keys() == after.keys()
    again = Pipeline.load(tmp_path / "model")
    assert torch.equal(again.probabilities(dataset.inputs), made.probabilities(dataset.inputs))
    assert again.network_spec.inputs.shape == (3, 32, 32)


@pytest.mark.parametrize("tuning", ["frozen", "full"])
def test_a_graph_reads_bytes(tmp_path, tuning):
    import onnxruntime

    dataset = read_images(make_folder(tmp_path / "images", 4))
    options = {**RANDOM, "tuning": tuning}
    plan = Plan(network=f"timm:{NAME}", network_options=options, settings=SETTINGS)
    made = train(dataset, plan)
    path = export(made, tmp_path / "model.onnx")[0]
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    step = ImagePreprocessor(f"timm:{NAME}", image_size=32).fit(dataset.inputs)
    found = session.run(["probabilities"], {"inputs": step.transform(dataset.inputs)})[0]
    np.testing.assert_allclose(found, made.probabilities(dataset.inputs).numpy(), atol=1e-5)
