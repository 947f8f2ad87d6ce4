"""Zero-shot: the answers of titles, against similarities computed by hand."""

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy, LabelSpace, from_similarities, load, zero_shot, zero_shot_pipeline
from hierlearn.errors import HierlearnError
from hierlearn.pipeline.zero_shot import TitleOptions, title_sentences
from tiny_backbones import save_tiny_bert

TREE = Hierarchy.from_paths(["fruit/apple", "fruit/pear", "vehicle/car", "vehicle/bus"])
TITLED = TREE.with_titles({"apple": "round apple", "fruit": "small fruit"})
TEXTS = ["red apple", "a blue car", "small plum", ""]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    pytest.importorskip("transformers")
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))


def letters(texts):
    """A stand-in for a sentence encoder: how often each letter occurs."""
    return np.array([[text.count(chr(97 + n)) + 0.1 for n in range(26)] for text in texts])


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("inner_titles", [False, True])
def test_a_function_that_encodes(inner_titles):
    found = zero_shot(TEXTS, TITLED, encoder=letters, temperature=0.2, inner_titles=inner_titles)
    titles = ["round apple", "pear", "car", "bus"]
    classes = ["apple", "pear", "car", "bus"]
    if inner_titles:
        titles, classes = [*titles, "small fruit", "vehicle"], [*classes, "fruit", "vehicle"]
    similarities = unit(letters(TEXTS)) @ unit(letters(titles)).T
    wanted = from_similarities(similarities, TITLED, classes=classes, temperature=0.2)
    torch.testing.assert_close(
        found.probabilities.double(), wanted.probabilities, atol=1e-6, rtol=0
    )


def test_sentences_of_classes():
    sentences, classes = title_sentences(TITLED, TitleOptions("a photo of {title}"))
    by_class = dict(zip((TITLED.names[c] for c in classes), sentences, strict=True))
    assert by_class == {
        "fruit/apple": "a photo of round apple",
        "fruit/pear": "a photo of pear",
        "vehicle/bus": "a photo of bus",
        "vehicle/car": "a photo of car",
    }
    sentences, classes = title_sentences(
        LabelSpace(TITLED, ["fruit"]), TitleOptions("{path}", inner_titles=False)
    )
    assert "small fruit > round apple" in sentences
    assert "small fruit" in sentences
    assert len(classes) == 5


@pytest.mark.parametrize("inner_titles", [False, True])
def test_the_pipeline_equals_the_similarities(bert, tmp_path, inner_titles):
    options = {"template": "a photo of {title}", "inner_titles": inner_titles, "temperature": 0.01}
    pipeline = zero_shot_pipeline(TITLED, f"hf:{bert},pooling=cls", **options)
    encode = pipeline.preprocessor.transform
    wanted = zero_shot(TEXTS, TITLED, encoder=encode, **options).probabilities
    found = pipeline.probabilities(TEXTS)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    assert found.std() > 0.01  # the tiny encoder does tell texts apart
    named = zero_shot(TEXTS, TITLED, encoder={"source": f"hf:{bert}", "pooling": "cls"}, **options)
    torch.testing.assert_close(named.probabilities, found)
    pipeline.save(tmp_path / "model")
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.probabilities(TEXTS), found)
    assert again.predict(TEXTS, "stop", threshold=0.99) == pipeline.predict(
        TEXTS, "stop", threshold=0.99
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "a photo"}, "has no {title}"),
        ({"template": "a photo of {name}"}, "unknown field of a template 'name'"),
        ({"template": "{title"}, "cannot be read"),
        ({"temperature": 0.0}, "temperature must be a number above 0"),
        ({"tempature": 0.1}, "unknown option 'tempature'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(HierlearnError, match=message):
        zero_shot(TEXTS, TREE, encoder=letters, **options)


def test_encoders_that_are_none():
    with pytest.raises(HierlearnError, match=r"returns \(N, F\) floats"):
        zero_shot(TEXTS, TREE, encoder=lambda texts: [len(text) for text in texts])
    with pytest.raises(HierlearnError, match="reads images, but titles are texts"):
        zero_shot(TEXTS, TREE, encoder="timm:resnet18")
    with pytest.raises(HierlearnError, match="needs a source such as hf:PATH"):
        zero_shot(TEXTS, TREE, encoder={"pooling": "cls"})
