"""Thumbnails are small, bounded in number, and on the page of a model."""

import base64
import io
import json
import re

import numpy as np
from PIL import Image

from hierlearn.datasets import Images, read_images
from hierlearn.pipeline import train
from hierlearn.reports import page as thumbnails
from hierlearn.reports import write_model_report
from hierlearn.reports.page import BYTES, SIDE, Thumbnails, thumbnail
from hierlearn.training.settings import Plan
from images.picture_files import COLORS, make_folder


def decoded(data):
    return Image.open(io.BytesIO(base64.b64decode(data.partition(",")[2])))


def test_a_thumbnail_is_small_whatever_the_image_is():
    noise = np.random.default_rng(0).integers(0, 256, (3, 300, 200), dtype=np.uint8)
    for content in (noise, noise[:1], np.zeros((1, 9, 9), dtype=np.uint8)):
        found = thumbnail(content)
        assert len(found) <= BYTES
        assert max(decoded(found).size) <= SIDE
    assert thumbnail(noise).startswith("data:image/jpeg;base64,")
    assert decoded(thumbnail(noise)).size == (37, 56)  # the aspect is kept


def test_images_are_found_by_name_up_to_a_number(monkeypatch, tmp_path):
    monkeypatch.setattr(thumbnails, "MOST", 2)
    values = np.zeros((4, 8, 8), dtype=np.uint8)
    found = Thumbnails([Images.from_array(values, list("abcd")), ["texts", "are", "none"]])
    assert found.find("a") == found.find("a") is not None
    assert found.find("b") is not None
    assert found.find("c") is None
    assert found.find("texts") is None
    assert found.find(None) is None
    gone = Images.from_files(["x.png"], tmp_path)
    assert Thumbnails([gone]).find("x.png") is None


def test_a_page_shows_the_mistakes_and_their_neighbors(tmp_path):
    dataset = read_images(make_folder(tmp_path / "images", 4))
    options = {"width": 8, "depth": 2}
    settings = {"epochs": 1, "batch_size": 8, "device": "cpu"}
    plan = Plan(network_options=options, preprocessing_options={"image_size": 8}, settings=settings)
    made = train(dataset, plan)
    wrong = [[one] for one in COLORS for _ in range(4)]
    other = dataset.take(np.arange(12))
    other = type(other)(other.inputs, wrong, other.hierarchy, ids=other.ids)
    path = write_model_report(made, other, tmp_path / "page.html", every=dataset)
    text = path.read_text()
    data = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', text, re.S)[1])
    assert data["images"]
    shown = [one for own in data["candidates"][0]["evidence"] for one in own]
    assert shown
    assert all(one["image"].startswith("data:image/") for one in shown)
    assert len(text) < 600_000
