"""Training on images: from a folder to a model that is saved, resumed, remembered and exported."""

import numpy as np
import pytest
import torch

from hierlearn.datasets import Images, read_images
from hierlearn.errors import DataError
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.export import export
from hierlearn.pipeline.remember import remember
from hierlearn.pipeline.run import Reporting
from hierlearn.training.settings import Plan
from images.picture_files import COLORS, make_folder, picture

SMALL = {"width": 8, "depth": 2, "augment": "light"}
SETTINGS = {"epochs": 4, "batch_size": 6, "device": "cpu", "learning_rate": 3e-3}


def plan(**values):
    settings = {**SETTINGS, **values.pop("settings", {})}
    options = {**SMALL, **values.pop("network_options", {})}
    return Plan(
        network_options=options,
        preprocessing_options={"image_size": 12},
        settings=settings,
        **values,
    )


@pytest.fixture
def dataset(tmp_path):
    return read_images(make_folder(tmp_path / "images", 6))


def equal_weights(one, other):
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_images_have_a_recipe_and_a_network(dataset, tmp_path):
    made = train(dataset, plan(), tmp_path / "model")
    assert made.config["recipe"]["because"].startswith("inputs are images")
    assert made.network_spec.name == "cnn"
    assert made.network_spec.inputs.shape == (3, 12, 12)
    assert made.config["data"]["inputs"] == "color images of 12 x 12 pixels"
    again = Pipeline.load(tmp_path / "model")
    assert torch.equal(again.probabilities(dataset.inputs), made.probabilities(dataset.inputs))
    wanted = [row[0] for row in dataset.labels]
    assert made.predict(dataset.inputs) == wanted


@pytest.mark.parametrize("head", ["neighbors", "linear"])
def test_a_training_resumes_bit_for_bit(dataset, tmp_path, head):
    chosen = plan(head=head, settings={"ensemble_size": 2})
    whole = train(dataset, chosen)
    shorter = plan(head=head, settings={"ensemble_size": 2, "checkpoint_every": 2})
    calls = []

    def stop(step, _):
        calls.append(step)
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(dataset, shorter, tmp_path / "model", reporting=Reporting(on_step=stop))
    resumed = train(dataset, shorter, tmp_path / "model", resume=True)
    assert calls[-1] == 5
    assert equal_weights(resumed, whole)


def test_members_are_the_networks_that_they_are_alone(dataset):
    both = train(dataset, plan(settings={"ensemble_size": 2}))
    alone = train(dataset, plan(settings={"seed": 1}))
    for name, value in alone.network.state_dict().items():
        torch.testing.assert_close(both.network.networks[1].state_dict()[name], value)


def test_half_precision(dataset):
    made = train(dataset, plan(settings={"precision": "bf16"}))
    assert bool(made.probabilities(dataset.inputs).isfinite().all())


def test_new_classes_are_remembered_and_explained(dataset):
    made = train(dataset, plan())
    green = [np.asarray(picture((20, 200, 40), seed=one)) for one in range(4)]
    added = Images.from_array(np.stack(green), [f"green{one}.png" for one in range(4)])
    remember(made, added, [["cold/green"]] * 4)
    more = [np.asarray(picture((20, 200, 40), seed=9))]
    asked = Images.from_array(np.stack(more), ["asked.png"])
    assert made.predict(asked) == ["cold/green"]
    (found,) = explain(made, asked, 1)
    assert found[0].text.startswith("green")
    assert made.predict(dataset.inputs) == [row[0] for row in dataset.labels]


@pytest.mark.parametrize("head", ["neighbors", "linear"])
def test_a_graph_reads_bytes(dataset, tmp_path, head):
    import onnxruntime

    made = train(dataset, plan(head=head))
    path = export(made, tmp_path / "model.onnx")[0]
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    x = made.preprocessor.transform(dataset.inputs)
    assert x.dtype == np.uint8
    found = session.run(["probabilities"], {"inputs": x})[0]
    np.testing.assert_allclose(found, made.probabilities(dataset.inputs).numpy(), atol=1e-5)


def test_the_best_of_a_memory_and_logits(dataset, tmp_path):
    chosen = Plan(
        effort="best",
        preprocessing_options={"image_size": 8},
        settings={"epochs": 1, "device": "cpu", "ensemble_size": 1},
    )
    made = train(dataset, chosen, tmp_path / "model")
    again = Pipeline.load(tmp_path / "model")
    assert torch.equal(again.probabilities(dataset.inputs), made.probabilities(dataset.inputs))


def test_broken_images_stop_a_training(dataset, tmp_path):
    path = tmp_path / "images" / next(iter(COLORS)) / "999.jpg"
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"1 of 19 images cannot be read: warm/red/999\.jpg"):
        train(read_images(tmp_path / "images"), plan())
