"""Pictures that claim more than they are: refused by their headers, before room is made for a pixel."""

from __future__ import annotations

import errno
import io
import resource
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pe_cli.data.pictures import decode
from pe_cli.data.pictures.decode import Recipe, read
from pe_cli.data.pictures.picture_checks import (
    BUDGET,
    MOST_PIXELS,
    MOST_SCANS,
    SCRIPT_FORMATS,
    Unreadable,
    check_scans,
    open_picture,
)
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.vision.image_load import read_picture

RNG = np.random.default_rng(5)


def png(width, height, body=b"", bits=8, kind=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")


def webp(width, height):
    canvas = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + canvas


def lossless(width, height):
    bits = (width - 1 | (height - 1) << 14).to_bytes(4, "little")
    return b"RIFF" + struct.pack("<I", 18) + b"WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + bits + b"\0"


def bmp(width, height, packed=0):
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 60, 0, 0, 54, 40, width, height, 1, 24 if not packed else 8, packed, 0, 0, 0, 0, 0)


def jpeg(width=16, height=16, scans=0):
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (16, 16), dtype=np.uint8)).save(file, "JPEG", progressive=scans > 0)
    data = bytearray(file.getvalue())
    at = next(i for i in range(len(data)) if data[i] == 0xFF and data[i + 1] in (0xC0, 0xC2))
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    last = data.rindex(b"\xff\xda")
    return bytes(data[:-2]) + bytes(data[last:-2]) * scans + b"\xff\xd9"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(png(1, 80_000_000), "claims 1 x 80000000 pixels, more than 65,535 along one side", id="a PNG of one long side"),
        pytest.param(png(8000, 8000), "claims 8000 x 8000 pixels in", id="a PNG of 69 bytes that is large"),
        pytest.param(png(8000, 8000, bytes(8000 * 1001), bits=1), "claims 8000 x 8000 pixels in", id="a PNG of 8 KB that is blank"),
        pytest.param(png(2**31 - 1, 2**31 - 1), f"more than {MOST_PIXELS:,}", id="a PNG of all pixels"),
        pytest.param(webp(16384, 8192), f"more than {MOST_PIXELS:,}", id="a WebP with a canvas of all pixels"),
        pytest.param(webp(16384, 4096), "pixels in", id="a WebP with a canvas in 30 bytes"),
        pytest.param(lossless(16384, 4096), "pixels in", id="a WebP without losses in 26 bytes"),
        pytest.param(bmp(60000, 1000), "pixels in", id="a BMP"),
        pytest.param(bmp(1, 70000, packed=1), "along one side", id="a packed BMP of one long side"),
        pytest.param(jpeg(65500, 1000), "pixels in", id="a JPEG"),
    ],
)
def test_a_claim_is_refused_before_room_is_made_for_it(content, why, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(Unreadable) as raised:
        read(str(path), Recipe((8, 8)))
    assert why in raised.value.broken.why
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("size", [(65535, 2), (2, 65535)])
def test_a_picture_of_the_longest_side_is_resized(size, tmp_path):
    pixels = RNG.integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = read(str(tmp_path / "a.png"), Recipe((2, 2)))
    assert found.astype(int).mean(axis=(0, 1)) == pytest.approx(pixels.mean(axis=(0, 1)), abs=1)


def test_too_little_memory_is_no_fault_of_the_picture(tmp_path):
    Image.new("RGB", (4000, 4000)).save(tmp_path / "a.png", compress_level=1)  # 64 MB of pixels, a good file
    limited = f"""
import pathlib, resource, sys
from pe_cli.data.pictures.decode import Recipe, header, read, stamp
path = {str(tmp_path / "a.png")!r}
print(header(path, "rgb", stamp(path)))
taken = 1024 * int(next(line.split()[1] for line in pathlib.Path("/proc/self/status").open() if line.startswith("VmSize")))
resource.setrlimit(resource.RLIMIT_AS, (taken + (16 << 20),) * 2)
read(path, Recipe((8, 8)))
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert done.stdout == "Header(height=4000, width=4000, notes=())\n", done.stderr
    assert done.stderr.splitlines()[-1] == "MemoryError"


def test_a_file_that_the_system_does_not_give_is_not_damaged(tmp_path, monkeypatch):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")

    class Failing(io.BytesIO):
        def read(self, *size):
            if self.tell() > 40:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(*size)

    monkeypatch.setattr(decode, "opened", lambda path: Failing(Path(path).read_bytes()))
    with pytest.raises(Unreadable, match="cannot be read: input/output error"):
        read(str(tmp_path / "a.png"), Recipe(None))


def test_a_jpeg_of_many_scans_is_refused(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(scans=5000))
    with pytest.raises(Unreadable, match=r"has 5,\d+ scans, more than 100"):
        read(str(path), Recipe(None))
    path.write_bytes(jpeg(scans=MOST_SCANS // 2))
    assert read(str(path), Recipe(None)).shape == (16, 16, 3)


def test_marks_of_scans_in_what_else_a_file_holds_are_no_scans():
    behind, comment = b"\xff\xda" * 500, b"\xff\xfe" + struct.pack(">H", 1002) + b"\xff\xda" * 500
    data = jpeg()
    check_scans(io.BytesIO(data[:2] + comment + data[2:] + behind))


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {}) for kind in SCRIPT_FORMATS] + [("JPEG", {"progressive": True}), ("WEBP", {"lossless": True})],
)
def test_a_picture_that_is_cut_off_anywhere_is_refused_or_has_all_its_pixels(kind, options, tmp_path):
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(file, kind, **options)
    data, path = file.getvalue(), tmp_path / "a.png"
    path.write_bytes(data)
    whole = np.asarray(read_picture(path))
    accepted, said = 0, []
    for end in sorted({*range(0, len(data), 17), *range(len(data) - 25, len(data))}):
        path.write_bytes(data[:end])
        try:
            assert np.array_equal(np.asarray(read_picture(path)), whole)
            accepted += 1
        except FluidValueError as error:
            said.append(error.message)
    assert all(str(path) in text for text in said)
    assert accepted <= 20  # marks of the end, and what pads


def test_pictures_that_are_decoded_at_once_share_the_pixels_of_one():
    order, inside = [], threading.Event()

    def second():
        inside.wait()
        with BUDGET.take(1):
            order.append("second")

    other = threading.Thread(target=second)
    with BUDGET.take(MOST_PIXELS):
        other.start()
        inside.set()
        other.join(0.05)
        order.append("first")
    other.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "is a PostScript program", id="a program"),
        pytest.param(b"\xc5\xd0\xd3\xc6" + bytes(30), "is no picture", id="a program in a binary file"),
        pytest.param(b"GIF89a" + bytes(30), "is a GIF", id="a GIF"),
        pytest.param(b"P6 1 80000000 255\n", "more than 65,535 along one side", id="a bomb"),
        pytest.param(b"", "is empty", id="nothing"),
    ],
)
def test_a_script_reads_pictures_alone(content, why, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(FluidValueError, match=why) as raised:
        read_picture(path)
    assert raised.value.hint
    assert "broken" not in raised.value.hint


def test_every_format_of_scripts_is_read(tmp_path):
    pixels = RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8)
    for kind in SCRIPT_FORMATS:
        Image.fromarray(pixels).save(tmp_path / kind, kind, **({"lossless": True} if kind == "WEBP" else {}))
        with (tmp_path / kind).open("rb") as file:
            assert open_picture(file, SCRIPT_FORMATS).size == (7, 9)
        if kind != "JPEG":
            assert np.array_equal(np.asarray(read_picture(tmp_path / kind)), pixels)
