"""Pictures: whole files of every format, of which one thing that their headers say is changed, with lengths and checksums made anew."""

from __future__ import annotations

import functools
import io
import random
import struct
import zlib

from PIL import Image

#: Sizes that a header claims.
SIZES = (0, 1, 2, 7, 255, 4096, 16383, 16384, 65535, 65536, 80_000_000, 2**31 - 1, 2**31, 2**32 - 1)
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
#: What Pillow writes of other formats, some of which only scripts read.
_OTHERS = ("GIF", "TIFF", "PPM", "TGA", "ICO", "PCX", "DDS", "JPEG2000", "SGI", "EPS", "PDF", "ICNS", "AVIF", "MPO", "QOI", "SPIDER", "IM")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) (w) file closefile showpage\n%%EOF\n"


def picture(draw: random.Random) -> bytes:
    """Return a file of one of the formats that are read, or, seldom, of another."""
    return draw.choice((_png, _png, _jpeg, _jpeg, _webp, _bmp, _other))(draw)


def other_picture(draw: random.Random) -> bytes:
    """Return a file as a folder of pictures may hold it, most often of a format that only scripts read."""
    return draw.choice((_other, _other, _other, picture))(draw)


def _png(draw: random.Random) -> bytes:
    colour = draw.choice(tuple(_DEPTHS))
    depth = draw.choice(_DEPTHS[colour])
    width, height = draw.randint(1, 40), draw.randint(1, 40)
    interlaced = draw.random() < 0.2
    row = 1 + (width * depth * _CHANNELS[colour] + 7) // 8
    raw = b"".join(bytes([draw.randrange(5)]) + draw.randbytes(row - 1) for _ in range(height * (2 if interlaced else 1)))
    if interlaced:
        raw = bytes(len(raw))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))]
    chunks += [draw.choice(_extras(draw)) for _ in range(draw.choice((0, 0, 1, 3)))]
    if colour == 3 or draw.random() < 0.1:
        chunks.append((b"PLTE", draw.randbytes(3 * draw.choice((1, 1 << min(depth, 8), 256)))))
    if draw.random() < 0.3:
        chunks.append((b"tRNS", draw.randbytes(draw.choice((1, 2, 6, 256)))))
    if draw.random() < 0.15:
        chunks.append((b"acTL", struct.pack(">II", draw.choice((1, 2, 2**31 - 1)), 0)))
        chunks.append((b"fcTL", struct.pack(">IIIIIHHBB", 0, width, draw.choice((height, 2**31 - 1)), 0, 0, 1, 1, 0, 0)))
    data = zlib.compress(raw, draw.choice((0, 9)))
    middle = draw.randint(0, len(data))
    chunks += [(b"IDAT", data[:middle]), (b"IDAT", data[middle:]), (b"IEND", b"")]
    how = draw.randrange(9)
    if how < 6:
        _damage(draw, how, chunks)
    elif how == 6:
        large = draw.choice((1_000, 4_000, 16_000))
        chunks[0] = (b"IHDR", struct.pack(">II", large, large) + b"\x01\x00\0\0\0")
        chunks[1:] = [(b"IDAT", _blank(large)), (b"IEND", b"")]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(draw, *each, lies=how == 7) for each in chunks)
    return whole[: draw.randint(0, len(whole))] if how == 8 else whole


def _damage(draw: random.Random, how: int, chunks: list[tuple[bytes, bytes]]) -> None:
    """Change one chunk of a PNG, or their order."""
    at = draw.randrange(len(chunks))
    name, body = chunks[at]
    if how in (0, 1):
        fields = bytearray(chunks[0][1])
        if how == 0:
            where = draw.choice((0, 4))
            fields[where : where + 4] = struct.pack(">I", draw.choice(SIZES))
        else:
            fields[draw.randint(8, 12)] = draw.choice((0, 1, 2, 3, 4, 5, 8, 16, 32, 255))
        chunks[0] = (b"IHDR", bytes(fields))
    elif how == 2:
        del chunks[at]
    elif how == 3:
        chunks.insert(draw.randrange(len(chunks)), (name, body))
    elif how == 4:
        chunks[at] = (name, body[: draw.randint(0, len(body))] + draw.randbytes(draw.choice((0, 0, 5))))
    else:
        draw.shuffle(chunks)


@functools.cache
def _blank(side: int) -> bytes:
    return zlib.compress(bytes(side * (1 + (side + 7) // 8)), 9)


def _chunk(draw: random.Random, name: bytes, body: bytes, lies: bool) -> bytes:
    size = draw.choice((len(body), len(body), 0, 2**31 - 1, 2**32 - 1)) if lies else len(body)
    return struct.pack(">I", size) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _extras(draw: random.Random) -> list[tuple[bytes, bytes]]:
    text = zlib.compress(bytes(draw.choice((10, 1 << 20, 1 << 22))), 9)
    return [
        (b"zTXt", b"Comment\0\0" + text),
        (b"iTXt", b"Comment\0\1\0\0\0" + text),
        (b"tEXt", b"Comment\0" + b"x" * 300),
        (b"iCCP", b"profile\0\0" + text),
        (b"eXIf", _exif(draw)),
        (b"gAMA", struct.pack(">I", draw.choice((0, 45455, 2**32 - 1)))),
        (b"pHYs", struct.pack(">IIB", 0, 2**31 - 1, 1)),
        (b"sRGB", b"\0"),
        (b"cHRM", draw.randbytes(draw.choice((0, 32)))),
        (draw.choice((b"abCD", b"ABCD", b"\0\0\0\0")), draw.randbytes(9)),
    ]  # fmt: skip


def _exif(draw: random.Random) -> bytes:
    """Return EXIF data with an orientation, and whose entries may lead nowhere or to themselves."""
    order, mark = draw.choice((("<", b"II*\0"), (">", b"MM\0*")))
    entries = [(0x0112, draw.choice((3, 3, 3, 2, 5)), 1, draw.choice((1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0x60000, 2**32 - 1)))]
    if draw.random() < 0.5:
        tag, kind = draw.choice((0x8769, 0x8825, 0x010F, 0xA005)), draw.choice((2, 4, 7, 13, 99))
        entries.append((tag, kind, draw.choice((1, 2**31)), draw.choice(SIZES)))
    body = struct.pack(f"{order}H", draw.choice((len(entries), len(entries), 65535)))
    body += b"".join(struct.pack(f"{order}HHII", *entry) for entry in entries) + struct.pack(f"{order}I", draw.choice((0, 8, 2**32 - 1)))
    return mark + struct.pack(f"{order}I", draw.choice((8, 8, 8, 0, 2**32 - 1))) + body


def _sample(draw: random.Random, mode: str) -> Image.Image:
    width, height = draw.randint(1, 40), draw.randint(1, 40)
    count = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "P": 1, "1": 1, "LA": 2, "I;16": 2}[mode]
    size = (width + 7) // 8 * height if mode == "1" else width * height * count
    return Image.frombytes(mode, (width, height), draw.randbytes(size))


def _jpeg(draw: random.Random) -> bytes:
    file = io.BytesIO()
    more = {"exif": b"Exif\0\0" + _exif(draw)} if draw.random() < 0.3 else {}
    _sample(draw, draw.choice(("L", "RGB", "CMYK"))).save(
        file, "JPEG", quality=draw.choice((1, 50, 95)), progressive=draw.random() < 0.4, subsampling=draw.randrange(3),
        restart_marker_blocks=draw.choice((0, 1)), icc_profile=draw.choice((None, b"x" * 300)), **more,
    )  # fmt: skip
    segments = _segments(file.getvalue())
    how = draw.randrange(9)
    at = draw.randrange(1, len(segments))
    mark, body = segments[at]
    frames = [i for i, (kind, _) in enumerate(segments) if 0xC0 <= kind <= 0xC2]
    if how == 0:
        at = frames[0]
        fields = bytearray(segments[at][1])
        fields[1:5] = struct.pack(">HH", *(min(65535, draw.choice(SIZES)) for _ in range(2)))
        segments[at] = (segments[at][0], bytes(fields))
    elif how == 1:
        fields = bytearray(segments[frames[0]][1])
        fields[draw.randrange(len(fields))] = draw.choice((0, 1, 2, 3, 0x11, 0x22, 0x41, 0x44, 0xFF))
        segments[frames[0]] = (draw.choice((0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA)), bytes(fields))
    elif how == 2:
        del segments[at]
    elif how == 3:
        segments.insert(draw.randint(1, len(segments)), (mark, body))
    elif how == 4:
        segments[at] = (mark, body[: draw.randint(0, len(body))])
    elif how == 5:
        fields = bytearray(body) or bytearray(1)
        fields[draw.randrange(len(fields))] = draw.randrange(256)
        segments[at] = (mark, bytes(fields))
    elif how == 6:  # a scan is very many
        scans = [each for each in segments if each[0] == 0xDA]
        segments[-1:-1] = scans[-1:] * draw.choice((10, 300, 3000))
    whole = b"".join(bytes([0xFF, mark]) + body if mark in (0xD8, 0xD9) else _segment(mark, body) for mark, body in segments)
    return whole[: draw.randint(0, len(whole))] if how == 7 else whole


def _segments(data: bytes) -> list[tuple[int, bytes]]:
    """Return the segments of a JPEG without their lengths; what is coded belongs to that of its scan."""
    found, at = [(0xD8, b"")], 2
    while data[at + 1] != 0xD9:
        mark, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        end = at + 2 + size
        if mark == 0xDA:
            while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
                end += 1
        found.append((mark, data[at + 4 : end]))
        at = end
    return [*found, (0xD9, b"")]


def _segment(mark: int, body: bytes) -> bytes:
    size = 2 + (6 + 2 * (body[0] if body else 0) - 2 if mark == 0xDA else len(body))
    return bytes([0xFF, mark]) + struct.pack(">H", min(size, 65535)) + body


def _webp(draw: random.Random) -> bytes:
    file = io.BytesIO()
    mode = draw.choice(("RGB", "RGBA"))
    first = _sample(draw, mode)
    more = [first.transpose(Image.Transpose.FLIP_LEFT_RIGHT)] if draw.random() < 0.3 else []
    exif = {"exif": _exif(draw)} if draw.random() < 0.4 else {}
    first.save(file, "WEBP", lossless=draw.random() < 0.5, save_all=bool(more), append_images=more, quality=20, method=0, **exif)
    data, chunks, at = file.getvalue(), [], 12
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        chunks.append((data[at : at + 4], data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    how, at = draw.randrange(8), draw.randrange(len(chunks))
    name, body = chunks[at]
    if how in (0, 1):
        fields = bytearray(body)
        where = draw.randrange(min(len(fields), 24)) if fields else 0
        fields[where : where + 1] = bytes([draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))])
        chunks[at] = (name, bytes(fields))
    elif how == 2:
        del chunks[at]
    elif how == 3:
        chunks.insert(draw.randrange(len(chunks) + 1), (name, body))
    elif how == 4:
        chunks[at] = (name, body[: draw.randint(0, len(body))])
    elif how == 5:
        canvas = (draw.choice((0, 9, 16382, 2**24 - 1)), draw.choice((0, 9, 16382, 2**24 - 1)))
        sized = bytes([draw.randrange(256), 0, 0, 0]) + b"".join(side.to_bytes(3, "little") for side in canvas)
        chunks = [(b"VP8X", sized)] + [each for each in chunks if each[0] != b"VP8X"]
    body = b"".join(n + struct.pack("<I", len(b)) + b + b"\0" * (len(b) % 2) for n, b in chunks)
    size = draw.choice((0, 2**32 - 1, 30)) if how == 6 else 4 + len(body)
    whole = b"RIFF" + struct.pack("<I", size) + b"WEBP" + body
    return whole[: draw.randint(0, len(whole))] if how == 7 else whole


def _bmp(draw: random.Random) -> bytes:
    depth = draw.choice((1, 4, 8, 16, 24, 32))
    width, height = draw.randint(1, 40), draw.randint(1, 40)
    packed = {8: 1, 4: 2}.get(depth, 0) if draw.random() < 0.5 else draw.choice((0, 0, 3))
    colours = draw.choice((0, 1, 2, 256, 2**31 - 1, 2**32 - 1)) if draw.random() < 0.2 else (1 << depth if depth <= 8 else 0)
    palette = draw.randbytes(4 * min(colours, 256))
    body = draw.randbytes((width * depth + 31) // 32 * 4 * height)
    if packed in (1, 2):
        runs = (b"\0\2\xff\xff", b"\0\0", bytes([draw.randrange(1, 255), 7]), b"\0\3abc\0", b"\xff\x01")
        body = b"".join(draw.choice(runs) for _ in range(draw.choice((5, 60, 3000)))) + b"\0\1"
    masks = struct.pack("<IIII", 0xF800, draw.choice((0x7E0, 0, 2**32 - 1)), 0x1F, 0) if packed == 3 else b""
    sizes = [width, draw.choice((height, -height))]
    if draw.random() < 0.4:
        sizes[draw.randrange(2)] = draw.choice((*SIZES[:-2], -1, -(2**31), 0))
    size = draw.choice((40, 40, 40, 12, 52, 56, 64, 108, 124, 0, 2**31 - 1))
    planes, bits = draw.choice((1, 1, 0, 9)), draw.choice((depth, depth, depth, 0, 255))
    fields = struct.pack("<IiiHHIIiiII", size, *sizes, planes, bits, packed, 0, 0, 0, colours, 0)
    if size == 12:
        fields = struct.pack("<IHHHH", 12, sizes[0] & 0xFFFF, sizes[1] & 0xFFFF, 1, depth)
    fields += masks + b"\0" * max(0, min(size, 124) - len(fields) - len(masks))
    offset = 14 + len(fields) + len(palette)
    begin = draw.choice((offset, offset, offset, 0, 2**31 - 1, 10))
    whole = b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, begin) + fields + palette + body
    return whole[: draw.randint(0, len(whole))] if draw.random() < 0.1 else whole


def _other(draw: random.Random) -> bytes:
    if draw.random() < 0.1:
        return draw.choice((EPS, b"", b"GIF89a", b"%PDF-1.4\n", b"P6 1 80000000 255\n", b"P5\n9 9\n65535\n" + b"x" * 50))
    data = bytearray(_written(draw.choice(_OTHERS), draw.choice(("RGB", "L", "1", "P", "I;16", "RGBA")), draw.randrange(4)))
    for _ in range(draw.randrange(4)):
        if data:
            at = draw.randrange(min(len(data), 120))
            width = draw.choice((1, 2, 4))
            data[at : at + width] = (draw.choice(SIZES) & ((1 << 8 * width) - 1)).to_bytes(width, draw.choice(("little", "big")))
    return bytes(data[: draw.randint(0, len(data))] if draw.random() < 0.1 else data)


@functools.cache
def _written(kind: str, mode: str, number: int) -> bytes:
    """Return a picture that Pillow has written in a format, empty where it cannot."""
    file, draw = io.BytesIO(), random.Random(f"{kind}:{mode}:{number}")
    more = {"compression": (None, "tiff_lzw", "tiff_deflate", "group4", "jpeg")[number % 5]} if kind == "TIFF" else {}
    try:
        _sample(draw, mode).save(file, kind, **more)
    except Exception:  # noqa: BLE001 - many formats have no such pixels
        return b""
    return file.getvalue()
