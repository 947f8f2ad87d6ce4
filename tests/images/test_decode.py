"""Every mode of Pillow becomes grey or RGB; what cannot be read is refused with a reason."""

import numpy as np
import pytest
from PIL import Image

from hierlearn.datasets.images import as_channels, fit_to, open_image
from hierlearn.errors import DataError
from images.picture_files import encoded, picture

RED = (200, 40, 40)


def grey(image):
    return np.asarray(image.convert("L"), dtype=int)


@pytest.mark.parametrize(
    ("mode", "kind", "expected"),
    [
        ("RGB", "PNG", "RGB"),
        ("L", "PNG", "L"),
        ("1", "PNG", "L"),
        ("P", "PNG", "RGB"),
        ("P", "GIF", "RGB"),
        ("RGBA", "PNG", "RGB"),
        ("LA", "PNG", "L"),
        ("CMYK", "TIFF", "RGB"),
        ("CMYK", "JPEG", "RGB"),
        ("YCbCr", "JPEG", "RGB"),
    ],
)
def test_modes(mode, kind, expected):
    image = picture(RED).convert(mode)
    found = open_image(encoded(image, kind))
    assert found.mode == expected
    assert found.size == image.size
    assert abs(grey(found).mean() - grey(image).mean()) < 8  # JPEG and palettes lose a little


def test_transparency_lies_over_white():
    image = picture(RED).convert("RGBA")
    image.putalpha(0)
    assert np.asarray(open_image(encoded(image))).min() == 255
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30])
    found = open_image(encoded(palette, "PNG", transparency=0))
    assert np.asarray(found).min() == 255


def test_16_bits_are_scaled():
    values = np.linspace(0, 65_535, 64).astype(np.uint16).reshape(8, 8)
    found = np.asarray(open_image(encoded(Image.fromarray(values))))
    assert found.dtype == np.uint8
    assert np.array_equal(found, (values // 257).astype(np.uint8))


def test_the_first_frame_of_an_animation():
    frames = [Image.new("RGB", (6, 6), color) for color in ((255, 0, 0), (0, 0, 255))]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.asarray(open_image(content))[0, 0].tolist() == [255, 0, 0]


def test_exif_turns_an_image():
    image = Image.new("L", (6, 4), 0)
    image.putpixel((0, 0), 255)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    found = open_image(encoded(image, "PNG", exif=exif))
    assert found.size == (4, 6)
    assert found.getpixel((3, 0)) == 255


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"these are words", "it is no image; it begins with b'these are wo'"),
        (encoded(picture(RED, (90, 90)))[:-200], "it is damaged"),
        (encoded(picture(RED, (90, 90)), "JPEG")[:-300], "it is damaged"),
    ],
)
def test_what_cannot_be_read(content, message):
    with pytest.raises(DataError, match=message):
        open_image(content)


def test_a_huge_image_is_refused_before_it_is_decoded():
    content = encoded(Image.new("1", (13_500, 13_500)))
    assert len(content) < 100_000
    with pytest.raises(DataError, match="it has more than 134,217,728 pixels"):
        open_image(content)
    with pytest.raises(DataError, match="more than 100 pixels, 11 x 10"):
        open_image(encoded(Image.new("L", (11, 10))), most=100)


def test_sizes_keep_the_aspect_unless_stretched():
    image = Image.new("RGB", (40, 20), (9, 9, 9))
    padded = np.asarray(fit_to(image, 16, "pad"))
    assert padded.shape == (16, 16, 3)
    assert padded[0].min() == padded[-1].min() == 255
    assert padded[8].max() == 9
    assert np.asarray(fit_to(image, 16, "crop")).max() == 9
    assert np.asarray(fit_to(image, 16, "stretch")).max() == 9
    assert fit_to(image.crop((0, 0, 16, 16)), 16).size == (16, 16)


def test_channels():
    values = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    assert np.array_equal(as_channels(image, 3), values.transpose(2, 0, 1))
    same = Image.fromarray(np.repeat(values[..., :1], 3, axis=2))
    assert np.array_equal(as_channels(same, 1)[0], values[..., 0])  # grey stays as it is
