"""Texts and tables of texts that are packed, in several encodings, and descriptions of feeds."""

from __future__ import annotations

import functools
import gzip
import random
from collections.abc import Callable

import pyarrow as pa

_WORDS = ("a", "b,c", '"q"', "é", "1", "-2.5e3", "", "\n", "\r\n", "\t", "x" * 5000, "\ud800", "\0", "\ufeff", "日本", '""', "NA")
_NAMES, _TYPES = ('"a"', '"b"', "a", '"\\x"', '"'), ('"uint64"', '"float"', '"x"', "7")
_ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "latin-1", "cp1252")


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _twice(data: bytes) -> bytes:
    return gzip.compress(gzip.compress(data))


@functools.cache
def _large(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(b"a,b\n" + b"1,2\n" * (1 << 20))


def packed(draw: random.Random) -> bytes:
    """Return a text, most often packed, whose bytes are changed inside or outside."""
    text = draw.choice(("", "a,b\n")) + draw.choice((",", " ", "\n", ";")).join(draw.choices(_WORDS, k=draw.choice((1, 9, 60))))
    data = text.encode(draw.choice(_ENCODINGS), "replace")
    pack = draw.choice((gzip.compress, gzip.compress, _zstd, _zstd, bytes, _twice))
    found = _large(pack) if draw.random() < 0.01 else pack(data)
    how = draw.randrange(6)
    if how == 0:
        return found[: draw.randint(0, len(found))]
    if how == 1:
        return found + draw.choice((found, b"\0" * 9, draw.randbytes(9)))
    if how == 2 and found:
        changed = bytearray(found)
        changed[draw.randrange(min(len(found), 24))] = draw.randrange(256)
        return bytes(changed)
    return found


def feed_description(draw: random.Random) -> bytes:
    """Return a description of slots as protobuf's text form, with odd values."""
    numbers = ("1", "0", "-1", "9" * 30, "1e9", "true", '"x"', "")
    slots = "".join(
        f"slots {{ name: {draw.choice(_NAMES)} type: {draw.choice(_TYPES)} "
        f"is_dense: {draw.choice(('true', 'false', '1', 'x'))} is_used: true shape: {draw.choice(numbers)} }}\n"
        for _ in range(draw.choice((0, 1, 2)))
    )
    text = f'name: "MultiSlotDataFeed"\nbatch_size: {draw.choice(numbers)}\nmulti_slot_desc {{ {slots} }}\n'
    if draw.random() < 0.5:
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(("{", "}", '"', ":", "\\", "é", "", "#", "{" * 5000)) + text[at + draw.randrange(3) :]
    return text.encode()
