"""Files of pictures: their pixels against Pillow's, and what is wrong with bad ones."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from pe_cli.data.pictures.decode import (
    ALPHA,
    CMYK,
    COLORS,
    FRAMES,
    SIXTEEN,
    Header,
    Recipe,
    header,
    of_array,
    read,
    stamp,
)
from pe_cli.data.pictures.picture_checks import MOST_PIXELS, Broken, Unreadable

RNG = np.random.default_rng(4)
PIXELS = np.asarray(Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48), Image.Resampling.BICUBIC))


@pytest.fixture
def save(tmp_path):
    """Write a picture and return its path: save(image, "x.png", quality=90)."""

    def write(image, name, **options):
        path = tmp_path / name
        image.save(path, **options)
        return str(path)

    return write


def looked(path, mode="rgb"):
    return header(path, mode, stamp(path))


def png(width, height, body=b"", bits=8, kind=2):
    """Return a PNG with any header."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("a.png", {}, id="PNG"),
        pytest.param("a.jpg", {"quality": 90}, id="JPEG"),
        pytest.param("a.webp", {"lossless": True}, id="WebP"),
        pytest.param("a.bmp", {}, id="BMP"),
        pytest.param("PNG-under-another-name.jpg", {"format": "PNG"}, id="a PNG that is called JPEG"),
    ],
)
def test_pixels_are_those_of_pillow(save, name, options):
    path = save(Image.fromarray(PIXELS), name, **options)
    with Image.open(path) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(read(path, Recipe(None)), expected)
    assert looked(path) == Header(48, 64)


@pytest.mark.parametrize(
    ("kind", "mode", "notes"),
    [
        pytest.param("L", "rgb", (), id="gray as three channels"),
        pytest.param("1", "rgb", (), id="black and white"),
        pytest.param("P", "rgb", (), id="a palette"),
        pytest.param("RGBA", "rgb", (ALPHA,), id="alpha is left out"),
        pytest.param("LA", "rgb", (ALPHA,), id="gray with alpha"),
        pytest.param("RGB", "gray", (COLORS,), id="colours as gray"),
        pytest.param("RGB", "rgba", (), id="opaque"),
        pytest.param("RGBA", "rgba", (), id="alpha is kept"),
    ],
)
def test_modes_are_converted_as_pillow_does_and_said(save, kind, mode, notes):
    image = Image.fromarray(PIXELS).convert(kind)
    path = save(image, "a.png")
    expected = np.asarray(image.convert({"rgb": "RGB", "gray": "L", "rgba": "RGBA"}[mode]))
    assert np.array_equal(read(path, Recipe(None, mode)), expected.reshape(48, 64, -1))
    assert looked(path, mode).notes == notes


def test_the_upper_eight_of_sixteen_bits_are_kept_and_it_is_said(save):
    wide = np.array([[0, 255, 256, 65535], [513, 32768, 4660, 1]], np.uint16)
    path = save(Image.fromarray(wide), "a.png")
    assert read(path, Recipe(None, "gray"))[:, :, 0].tolist() == [[0, 0, 1, 255], [2, 128, 18, 0]]
    assert looked(path, "gray").notes == (SIXTEEN,)
    assert read(path, Recipe(None, "rgb"))[1, 2].tolist() == [18, 18, 18]


def test_sixteen_bits_of_three_channels_are_said(tmp_path):
    row = b"\0" + struct.pack(">6H", 0x1234, 0x5678, 0x9ABC, 0xFFFF, 0, 0x0100)
    path = tmp_path / "a.png"
    path.write_bytes(png(2, 1, row, bits=16))
    assert looked(str(path)).notes == (SIXTEEN,)
    assert read(str(path), Recipe(None)).tolist() == [[[0x12, 0x56, 0x9A], [255, 0, 1]]]


def test_cmyk_is_converted_and_said(save):
    image = Image.fromarray(PIXELS).convert("CMYK")
    path = save(image, "a.jpg", quality=95)
    assert looked(path).notes == (CMYK,)
    with Image.open(path) as found:
        assert np.array_equal(read(path, Recipe(None)), np.asarray(found.convert("RGB")))


def test_of_an_animation_the_first_frame_is_taken(save):
    frames = [Image.fromarray(np.full((4, 4, 3), 60 * i, np.uint8)) for i in range(3)]
    path = save(frames[0], "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert looked(path).notes == (FRAMES,)
    assert (read(path, Recipe(None)) == 0).all()


def test_pictures_stand_upright(save):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(Image.fromarray(PIXELS), "a.png", exif=exif)
    assert looked(path) == Header(64, 48)
    assert np.array_equal(read(path, Recipe(None)), np.rot90(PIXELS, -1))


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param("stretch", lambda image: image.resize((40, 30), Image.Resampling.BILINEAR), id="stretched"),
        pytest.param("cover", lambda image: ImageOps.fit(image, (40, 30), Image.Resampling.BILINEAR), id="covered"),
        pytest.param("contain", lambda image: ImageOps.pad(image, (40, 30), Image.Resampling.BILINEAR), id="contained"),
    ],
)
@pytest.mark.parametrize("shape", [(48, 64), (64, 40), (20, 90)])
def test_sizes_are_made_as_pillow_does(save, how, expected, shape):
    image = Image.fromarray(np.ascontiguousarray(np.resize(PIXELS, (*shape, 3))))
    path = save(image, "a.png")
    assert np.array_equal(read(path, Recipe((30, 40), "rgb", how)), np.asarray(expected(image)))
    assert np.array_equal(of_array(np.asarray(image), Recipe((30, 40), "rgb", how)), np.asarray(expected(image)))


def test_contained_pictures_have_black_borders(tmp_path, save):
    path = save(Image.new("RGB", (40, 20), (200, 100, 50)), "a.png")
    found = read(path, Recipe((40, 40), "rgb", "contain"))
    assert (found[:10] == 0).all()
    assert (found[30:] == 0).all()
    assert (found[10:30] == (200, 100, 50)).all()


def test_a_large_jpeg_is_decoded_at_a_smaller_size_that_is_still_large_enough(save, monkeypatch):
    from PIL import JpegImagePlugin

    asked = []
    draft = JpegImagePlugin.JpegImageFile.draft

    def remember(self, mode, size):
        found = draft(self, mode, size)
        asked.append(self.size)
        return found

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "draft", remember)
    image = Image.fromarray(PIXELS).resize((800, 600), Image.Resampling.BICUBIC)
    path = save(image, "a.jpg", quality=95)
    found = read(path, Recipe((140, 190)))
    assert asked == [(200, 150)]
    expected = np.asarray(image.resize((190, 140), Image.Resampling.BILINEAR)).astype(int)
    assert found.shape == (140, 190, 3)
    assert np.abs(found - expected).mean() < 3


# --- bad files --------------------------------------------------------------------------------------------------------


def broken(path):
    found = looked(str(path))
    assert isinstance(found, Broken)
    return found


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "is empty", id="nothing"),
        pytest.param(b"id,label\n1,cat\n2,dog\n", "is no picture but text: it starts with 'id,label", id="text"),
        pytest.param(b"GIF89a\1\0\1\0", "is a GIF, which is not read", id="a GIF"),
        pytest.param(b"II*\0" + bytes(20), "is a TIFF", id="a TIFF"),
        pytest.param(b"\0\0\0\x1cftypavif" + bytes(20), "is an AVIF or HEIC", id="an AVIF"),
        pytest.param(bytes(range(1, 60)), "is no picture: it starts with 01 02 03", id="bytes"),
        pytest.param(b"\x89PNG\r\n\x1a\nrubbish", "has a broken header", id="a PNG without a header"),
        pytest.param(b"\xff\xd8\xff\xe0rubbish", "has a broken header", id="a JPEG without a header"),
        pytest.param(b"RIFF\x10\0\0\0WEBPVP8 ", "has a broken header", id="a WebP without a header"),
        pytest.param(b"BMrubbish", "has a broken header", id="a BMP without a header"),
    ],
)
def test_what_is_no_picture_is_told_by_its_header(tmp_path, content, why):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    assert why in broken(path).why
    with pytest.raises(Unreadable) as raised:
        read(str(path), Recipe(None))
    assert why in raised.value.broken.why


def test_a_bomb_is_refused_by_its_header(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(20_000, 20_000))
    assert f"claims 20000 x 20000 pixels, more than {MOST_PIXELS:,}" in broken(path).why


def test_as_many_pixels_are_read_as_pillow_reads_without_a_warning():
    assert MOST_PIXELS == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
def test_a_file_that_is_cut_off_has_a_good_header_and_no_pixels(save, name, tmp_path):
    path = save(Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)), name)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    if name != "a.webp":  # whose decoder looks at the whole file at once
        assert looked(path) == Header(64, 64)
    with pytest.raises(Unreadable) as raised:
        read(path, Recipe(None))
    assert raised.value.broken.hint == "copy or download it again, or set broken: skip"


def test_a_missing_file_a_folder_and_a_name_that_is_none(tmp_path):
    for path, why in ((tmp_path / "a.png", "is not there"), (tmp_path, "is a folder"), ("a\0b", "cannot be read: embedded null")):
        with pytest.raises(Unreadable) as raised:
            stamp(str(path))
        assert why in raised.value.broken.why


def test_a_header_is_read_again_when_the_file_has_changed(save, tmp_path):
    path = save(Image.fromarray(PIXELS), "a.png")
    assert looked(path) == Header(48, 64)
    out = io.BytesIO()
    Image.fromarray(PIXELS[:10, :20]).save(out, "PNG")
    (tmp_path / "a.png").write_bytes(out.getvalue())
    assert looked(path) == Header(10, 20)
