"""Archives of data sets: tar and zip files with odd members, and the pickles, MATLAB and IDX files that they hold.

An input is the name of a data set, an end of line, and its file.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import pickle
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

from tests.fuzz import grammar_pictures

SIZES = (0, 1, 511, 513, 2**31, 2**33, 8**11 - 1, 2**62, -1)
_ODD = ("../../etc/passwd", "/etc/passwd", "a/../../b", "", "x" * 300, "é\udce9", "a\nb")
_ROLES = b"-\t*\n-\t(A0*)\nsit\t(V*)\n\n"
_TEXTS: dict[str, dict[str, bytes]] = {
    "imdb": {"aclImdb/train/neg/1_2.txt": b"bad; the worst", "aclImdb/train/pos/1_10.txt": b"the best\r\n"},
    "imikolov": {
        "./simple-examples/data/ptb.train.txt": b" a cat sat \n the <unk> \n",
        "./simple-examples/data/ptb.valid.txt": b" a cat \n",
    },
    "wmt14": {
        "wmt14/src.dict": b"<s>\n<e>\n<unk>\nthe\n",
        "wmt14/trg.dict": b"<s>\n<e>\n<unk>\nle\n",
        "wmt14/train/train": b"the cat\tle chat\n",
    },
    "wmt16": {
        "wmt16/train": b"a man\tein Mann\nbad line\n",
        "wmt16/test": b"a\tein\n",
        "wmt16/val": b"dog x\tHund X\n",
    },
}
_FILMS = {
    "movies": b"1::Toy Story (1995)::Animation|Comedy\n",
    "users": b"1::F::1::10::48067\n",
    "ratings": b"1::1::5::978300760\n" * 9,
}


def archive(draw: random.Random) -> bytes:
    """Return the name of a data set, and its file."""
    kind = draw.choice(tuple(_MADE))
    return kind.encode() + b"\n" + _MADE[kind](draw)


def _damaged(draw: random.Random, data: bytes) -> bytes:
    """Return contents of which something is changed, seldom."""
    how = draw.randrange(10)
    found = bytearray(data)
    if how == 0 and found:
        found[draw.randrange(len(found))] = draw.randrange(256)
    elif how == 1:
        return data[: draw.randint(0, len(data))]
    elif how == 2:
        return data.replace(
            draw.choice((b"\t", b"\n", b"::", b" ", b"|")), draw.choice((b"", b"\0", b"\xff", b"\n\n", b"9" * 5000))
        )
    elif how == 3:
        return data * draw.choice((0, 2, 50))
    return bytes(found)


def _tar(draw: random.Random, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    shape = draw.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    names = list(files)
    for name in [*names, *draw.choices(names, k=draw.choice((0, 0, 1)))]:
        data = _damaged(draw, files[name])
        info = tarfile.TarInfo(draw.choice(_ODD) if draw.random() < 0.05 else name)
        info.size = len(data)
        if draw.random() < 0.15:
            info.type = draw.choice(
                (
                    tarfile.LNKTYPE,
                    tarfile.SYMTYPE,
                    tarfile.CHRTYPE,
                    tarfile.FIFOTYPE,
                    tarfile.DIRTYPE,
                    tarfile.GNUTYPE_SPARSE,
                    b"Z",
                )
            )
            info.linkname = draw.choice((name, "/etc/passwd", "../../../etc/passwd", draw.choice(names), ""))
        if draw.random() < 0.1:
            info.size = draw.choice(SIZES)
        if shape == tarfile.PAX_FORMAT and draw.random() < 0.1:
            key = draw.choice(
                (
                    "size",
                    "path",
                    "linkpath",
                    "GNU.sparse.map",
                    "GNU.sparse.size",
                    "GNU.sparse.realsize",
                    "GNU.sparse.major",
                )
            )
            info.pax_headers = {key: draw.choice(("1", "9" * 12, "-1", "0,1,5,9999999999", "x", "/etc/passwd"))}
        try:
            head = info.tobuf(shape, errors="surrogateescape")
        except ValueError:
            head = tarfile.TarInfo(name).tobuf(shape)
        out.write(_header(draw, head) + data + bytes(-len(data) % 512))
    return _packed(draw, out.getvalue() + bytes(1024 * draw.choice((1, 1, 1, 0))))


def _header(draw: random.Random, head: bytes) -> bytes:
    """Return a header of which a byte is changed, seldom, with its sum made anew."""
    if draw.random() > 0.1:
        return head
    changed = bytearray(head)
    changed[draw.randrange(len(changed))] = draw.choice((0, 0x80, 0xFF, ord("9"), draw.randrange(256)))
    last = changed[-512:]
    last[148:156] = b" " * 8
    last[148:156] = f"{sum(last):06o}\0 ".encode()
    return bytes(changed[:-512] + last)


def _packed(draw: random.Random, data: bytes) -> bytes:
    pack = draw.choice((gzip.compress, gzip.compress, bz2.compress, lzma.compress, bytes))
    found = _zeros(pack) if draw.random() < 0.02 else pack(data)
    return found[: draw.randint(0, len(found))] if draw.random() < 0.05 else found


@functools.cache
def _zeros(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(bytes(1 << 23))


def _zip(draw: random.Random, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name in files:
            kind = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            package.writestr(zipfile.ZipInfo(f"ml-1m/{name}.dat"), _damaged(draw, files[name]), kind)
    data = bytearray(out.getvalue())
    begins = [i for i in range(len(data) - 4) if data[i : i + 4] in (b"PK\1\2", b"PK\3\4", b"PK\5\6")]
    for _ in range(draw.choice((0, 1, 1, 2))):
        at = draw.choice(begins) + draw.choice(
            (6, 8, 10, 14, 16, 18, 20, 22, 24, 26, 28, 30, 42)
        )  # flags, methods, sums, sizes, lengths, places
        width = draw.choice((2, 4))
        value = draw.choice((0, 1, 8, 99, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, draw.choice(begins)))
        data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(data[: draw.randint(0, len(data))] if draw.random() < 0.05 else data)


def _cifar(draw: random.Random) -> bytes:
    images = np.zeros((draw.choice((1, 2)), 3072), draw.choice(("u1", "u1", "f4", "O", "M8[s]", "V7")))
    labels: object = draw.choice(([1] * len(images), np.arange(len(images)), "x", [[1]], [2**70], None, [1.5]))
    rows: object = draw.choice((images, images, images.T.copy().T, images.tobytes(), [1], images.reshape(-1)))
    data = pickle.dumps(
        {b"data": rows, b"labels": labels, b"fine_labels": labels}, protocol=draw.choice((0, 1, 2, 3, 4))
    )
    for _ in range(draw.choice((0, 0, 1, 2))):
        found = bytearray(data)
        at = draw.randrange(min(len(found), 300))
        found[at : at + draw.choice((0, 1))] = draw.choice(
            (bytes([draw.randrange(256)]), b"(", b"R", b"b", b"0", b"2", b"\x8a\xff", b"J\xff\xff\xff\x7f")
        )
        data = bytes(found)
    if draw.random() < 0.1:
        data = draw.choice((
            b"cos\nsystem\n(S'true'\ntR.", b"cnumpy\nndarray\n((J\xff\xff\xff\x7fJ\xff\xff\xff\x7ftS'u1'\ntR.",
            b"(" * 9999 + b".", b"X\xff\xff\xff\x7f",
            b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", b"]" + b"2a" * 5000 + b".",
            b"cnumpy\ndtype\n(S'O'\ntR(I9\nS'|'\nNNNI-1\nI-1\nI63\ntb.",
        ))  # fmt: skip
    return _tar(draw, {"cifar-10-batches-py/data_batch_1": data, "cifar-10-batches-py/readme.html": b"x"})


def _voc(draw: random.Random) -> bytes:
    root = "VOCdevkit/VOC2012"
    return _tar(draw, {
        f"{root}/ImageSets/Segmentation/trainval.txt": b"2007_000001\n",
        f"{root}/JPEGImages/2007_000001.jpg": grammar_pictures.picture(draw),
        f"{root}/SegmentationClass/2007_000001.png": grammar_pictures.picture(draw),
    })  # fmt: skip


def _roles(draw: random.Random) -> bytes:
    at = "conll05st-release/test.wsj"
    words, roles = (_packed(draw, _damaged(draw, text)) for text in (b"The\ncat\nsat\n\n", _ROLES))
    return _tar(draw, {f"{at}/words/test.wsj.words.gz": words, f"{at}/props/test.wsj.props.gz": roles})


def _matlab(draw: random.Random) -> bytes:
    order = draw.choice(("<", ">"))
    count = draw.choice((1, 3, 40))
    kind, code = draw.choice(((2, "B"), (5, "i"), (9, "d"), (4, "H"), (12, "q")))
    numbers = struct.pack(f"{order}{count}{code}", *(draw.choice((1, 2, 3, 7)) for _ in range(count)))
    fields = [
        [6, struct.pack(f"{order}II", draw.choice((9, 6, 4, 0x0806)), 0)],
        [5, struct.pack(f"{order}ii", draw.choice((1, 1, -1, 2**31 - 1)), draw.choice((count, count, 0, 2**31 - 1)))],
        [1, draw.choice((b"labels", b"labels", b"tstid", b"", b"x" * 90))],
        [kind, numbers],
    ]
    if draw.random() < 0.4:
        fields[draw.randrange(4)][0] = draw.choice((0, 1, 14, 15, 2**16, 2**32 - 1))
    if draw.random() < 0.2:
        del fields[draw.randrange(4)]

    def element(number: int, body: bytes) -> bytes:
        size = draw.choice((len(body),) * 9 + (0, 2**31, 2**32 - 1))
        return struct.pack(f"{order}II", number, size) + body + bytes(-len(body) % 8)

    whole = element(14, b"".join(element(number, body) for number, body in fields))
    if draw.random() < 0.5:
        packed = _zeros(zlib.compress) if draw.random() < 0.05 else zlib.compress(whole)
        whole = struct.pack(f"{order}II", 15, len(packed)) + packed
    return _damaged(draw, b"MATLAB 5.0 MAT-file".ljust(124) + (b"\0\1IM" if order == "<" else b"\1\0MI") + whole)


def _idx(draw: random.Random) -> bytes:
    sizes = [draw.choice((2, 2, 0, 28, 2**16, 2**32 - 1)) for _ in range(draw.choice((3, 3, 1, 255)))]
    head = struct.pack(">HBB", 0, draw.choice((8, 9, 11, 14, 99)), len(sizes)) + b"".join(
        struct.pack(">I", size) for size in sizes
    )
    data = head + draw.randbytes(draw.choice((8, 0, 100)))
    return gzip.compress(_damaged(draw, data)) if draw.random() < 0.5 else data


_MADE: dict[str, Callable[[random.Random], bytes]] = {
    **{name: lambda draw, files=files: _tar(draw, files) for name, files in _TEXTS.items()},  # type: ignore[misc]
    "movielens": lambda draw: _zip(draw, _FILMS),
    "cifar": _cifar,
    "voc": _voc,
    "conll05": _roles,
    "matlab": _matlab,
    "mnist": _idx,
    "housing": lambda draw: _damaged(draw, b" ".join(b"%d.5" % i for i in range(42))),
    "words": lambda draw: _damaged(draw, b"unk\nThe\ncat\n"),
}
