"""The step "images": sizes, channels, broken files, and a cache that changes nothing."""

import numpy as np
import pytest
from PIL import Image

from hierlearn.datasets import Images, read_images
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import images as step_file
from hierlearn.features.images import ImagePreprocessor
from hierlearn.features.registry import from_state, preprocessor_for
from images.picture_files import encoded, make_folder, picture

RED = (220, 30, 30)


def test_the_step_of_images_is_chosen_for_them(tmp_path):
    dataset = read_images(make_folder(tmp_path))
    step = preprocessor_for(dataset)
    assert isinstance(step, ImagePreprocessor)
    found = step.fit(dataset.inputs).transform(dataset.inputs)
    assert found.shape == (12, 3, 64, 64)
    assert found.dtype == np.uint8
    assert step.shape == (3, 64, 64)
    assert step.summary() == "color images of 64 x 64 pixels"


def test_rows_do_not_depend_on_their_company(tmp_path):
    inputs = read_images(make_folder(tmp_path)).inputs
    step = ImagePreprocessor(image_size=16).fit(inputs)
    every = step.transform(inputs)
    assert np.array_equal(every, step.transform(inputs))  # not only what fit has kept
    assert np.array_equal(every[5:7], step.transform(inputs[5:7]))


def test_grey_images_have_one_channel(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    picture(RED).convert("L").save(folder / "0.png")
    picture(RED).convert("L").convert("RGB").save(folder / "1.png")  # grey in three channels
    inputs = read_images(tmp_path).inputs
    step = ImagePreprocessor(image_size=16).fit(inputs)
    assert step.shape == (1, 16, 16)
    found = step.transform(inputs)
    assert np.array_equal(found[0], found[1])
    picture(RED).save(folder / "2.png")
    colored = read_images(tmp_path).inputs
    assert ImagePreprocessor().fit(colored).shape == (3, 64, 64)
    assert step.transform(colored).shape == (3, 1, 16, 16)  # a model of grey images reads grey


def test_pixels_of_the_right_size_are_left_as_they_are():
    values = np.random.default_rng(0).integers(0, 256, (5, 16, 16), dtype=np.uint8)
    step = ImagePreprocessor(image_size=16).fit(Images.from_array(values))
    assert np.array_equal(step.transform(values)[:, 0], values)


def test_state(tmp_path):
    inputs = read_images(make_folder(tmp_path)).inputs
    step = ImagePreprocessor(image_size=24, fit="crop").fit(inputs)
    twin = from_state(*step.state())
    assert np.array_equal(twin.transform(inputs), step.transform(inputs))
    with pytest.raises(DataError, match="is not fitted yet"):
        ImagePreprocessor().transform(inputs)


def test_a_cached_run_equals_another(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    inputs = read_images(make_folder(tmp_path / "images")).inputs
    plain = ImagePreprocessor(image_size=16).fit(inputs).transform(inputs)
    monkeypatch.setattr(step_file, "IN_MEMORY", 0)
    first = ImagePreprocessor(image_size=16).fit(inputs).transform(inputs)
    assert isinstance(first, np.memmap)
    files = list((tmp_path / "cache" / "images").iterdir())
    assert [one.suffix for one in files] == [".npy"]
    monkeypatch.setattr(step_file, "decoded_blocks", None)  # nothing is decoded again
    again = ImagePreprocessor(image_size=16).fit(inputs).transform(inputs)
    assert np.array_equal(plain, first)
    assert np.array_equal(plain, again)


def test_a_changed_file_is_not_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(step_file, "IN_MEMORY", 0)
    root = make_folder(tmp_path / "images")
    before = ImagePreprocessor(image_size=16).fit_transform(read_images(root).inputs)
    picture((1, 2, 3)).save(root / "warm" / "red" / "000.png")
    after = ImagePreprocessor(image_size=16).fit_transform(read_images(root).inputs)
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 1


def broken_folder(root):
    """Write images of every odd kind, and of every broken one; return the names of these."""
    make_folder(root, 2)
    odd = root / "odd"
    odd.mkdir()
    image = picture(RED, (30, 30))
    for mode, kind in (("L", "png"), ("RGBA", "png"), ("CMYK", "jpg"), ("1", "png"), ("P", "gif")):
        image.convert(mode).save(odd / f"{mode}.{kind}")
    broken = {
        "empty.jpg": b"",
        "huge.png": encoded(Image.new("1", (12_000, 12_000))),
        "text.jpg": b"no image at all",
        "truncated.png": encoded(picture(RED, (90, 90)))[:-400],
    }
    for name, content in broken.items():
        (odd / name).write_bytes(content)
    return sorted(f"odd/{name}" for name in broken)


def test_broken_images_are_named(tmp_path):
    names = broken_folder(tmp_path)
    inputs = read_images(tmp_path).inputs
    with pytest.raises(DataError, match=r"4 of 15 images cannot be read: odd/empty\.jpg") as raised:
        ImagePreprocessor(image_size=16).fit(inputs)
    assert all(name in str(raised.value) for name in names)
    assert str(raised.value).endswith("with --skip-broken (in Python: without_broken)")


def test_many_broken_images_are_counted(tmp_path):
    for number in range(14):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{number:02}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"14 of 14 images cannot be read.*09\.png and 4 more;"):
        ImagePreprocessor().fit(read_images(tmp_path).inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 4}, "image_size must be an integer from 8 to 2048, not 4"),
        ({"fit": "squeeze"}, "unknown fit of images 'squeeze'"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(HierlearnError, match=message):
        ImagePreprocessor(**options)


def test_lists_of_paths_are_images(tmp_path):
    inputs = read_images(make_folder(tmp_path)).inputs
    step = ImagePreprocessor(image_size=16).fit(inputs)
    paths = [tmp_path / name for name in inputs.names]
    assert np.array_equal(step.transform(paths), step.transform(inputs))
    with pytest.raises(DataError, match="as a list of paths"):
        step.transform([3.5])
