"""Reads the uncompressed sizes that Arrow messages claim, from FlatBuffers and without allocating anything else.

Source:
    Google, "FlatBuffers internals"; Apache Arrow, `Message.fbs`, `File.fbs`, and "Columnar format", section "Compression".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

#: Slots of the tables, by their place in the schema.
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_SCHEMA_FIELDS, _FOOTER_SCHEMA = 1, 1
_BATCH_BUFFERS, _BATCH_PACKED, _DICTIONARY_BATCH = 2, 3, 1
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
#: Kinds of messages.
_DICTIONARY, _BATCH = 2, 3
_BLOCK, _BUFFER = 24, 16
_CONTINUES = b"\xff\xff\xff\xff"


def _number(data: bytes, at: int, code: str) -> int:
    # Every place is checked: the metadata come from a file.
    if not 0 <= at <= len(data) - struct.calcsize(code):
        raise ValueError("a place of its metadata lies outside of them")
    return int(struct.unpack_from(f"<{code}", data, at)[0])


def _slot(data: bytes, table: int, number: int) -> int:
    """Return where the field of a table stands, 0 where it is not there."""
    names = table - _number(data, table, "i")
    place = 4 + 2 * number
    offset = _number(data, names + place, "H") if place < _number(data, names, "H") else 0
    return table + offset if offset else 0


def _inner(data: bytes, at: int) -> int:
    return at + _number(data, at, "I")


def unpacked(metadata: bytes, body: IO[bytes], begin: int) -> int:
    """Return how many bytes a message claims that its packed buffers unpack to; 0 where none is packed.

    Args:
        metadata: FlatBuffers of the message.
        body: file of its body.
        begin: where the body begins in the file.

    Raises:
        ValueError: the metadata are damaged.
    """
    message = _inner(metadata, 0)
    kind, header = _slot(metadata, message, _MESSAGE_KIND), _slot(metadata, message, _MESSAGE_HEADER)
    said = _number(metadata, kind, "B") if kind else 0
    if said not in (_DICTIONARY, _BATCH) or not header:
        return 0
    batch = _inner(metadata, header)
    if said == _DICTIONARY:
        data = _slot(metadata, batch, _DICTIONARY_BATCH)
        if not data:
            return 0
        batch = _inner(metadata, data)
    buffers = _slot(metadata, batch, _BATCH_BUFFERS)
    if not _slot(metadata, batch, _BATCH_PACKED) or not buffers:
        return 0
    first = _inner(metadata, buffers)
    total = 0
    # No more buffers than the metadata have bytes for.
    for i in range(min(_number(metadata, first, "I"), len(metadata) // _BUFFER)):
        offset, length = (_number(metadata, first + 4 + _BUFFER * i + part, "q") for part in (0, 8))
        if length >= 8 and offset >= 0:
            body.seek(begin + offset)
            # -1 says that a buffer is not packed
            total += max(0, int.from_bytes(body.read(8), "little", signed=True))
    return total


def messages(file: IO[bytes], whole: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the metadata of every message, and where its body begins.

    Args:
        file: of a stream, or of a file with a footer.
        whole: whether it is the latter.

    Raises:
        ValueError: it is damaged.
    """
    size = file.seek(0, 2)
    if whole:
        footer = _footer(file)
        root, length = _inner(footer, 0), len(footer)
        for slot in (_FOOTER_DICTIONARIES, _FOOTER_BATCHES):
            blocks = _slot(footer, root, slot)
            first = _inner(footer, blocks) if blocks else 0
            for i in range(min(_number(footer, first, "I"), length // _BLOCK) if blocks else 0):
                at, head, body = (_number(footer, first + 4 + _BLOCK * i + place, code) for place, code in ((0, "q"), (8, "i"), (16, "q")))
                found = _message(file, at, size)
                # A footer may name any place.
                if found is None or min(head, body) < 0 or at + head + body > size:
                    raise ValueError("its footer names places outside of the file")
                yield found[:2]
        return
    at = 0
    while (found := _message(file, at, size)) is not None:
        yield found[:2]
        at = found[2]


def _footer(file: IO[bytes]) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - 10))
    length = int.from_bytes(file.read(4), "little", signed=True)
    if not 0 < length <= size - 10:
        raise ValueError("its footer is cut off")
    file.seek(size - 10 - length)
    return file.read(length)


def columns(file: IO[bytes], whole: bool) -> int:
    """Return how many columns a schema claims; 0 where it has none.

    Args:
        file: of a stream, or of a file with a footer.
        whole: whether it is the latter.

    Raises:
        ValueError: it is damaged.
    """
    if whole:
        data, slot = _footer(file), _FOOTER_SCHEMA
    else:
        found = _message(file, 0, file.seek(0, 2))
        if found is None:
            return 0
        data, slot = found[0], _MESSAGE_HEADER
    schema = _slot(data, _inner(data, 0), slot)
    fields = _slot(data, _inner(data, schema), _SCHEMA_FIELDS) if schema else 0
    return _number(data, _inner(data, fields), "I") if fields else 0


def _message(file: IO[bytes], at: int, size: int) -> tuple[bytes, int, int] | None:
    """Return metadata, begin of the body and end of a message; None where there is none."""
    if not 0 <= at <= size - 4:
        return None
    file.seek(at)
    head = file.read(8)
    mark = 8 if head.startswith(_CONTINUES) else 4
    length = int.from_bytes(head[mark - 4 : mark], "little", signed=True)
    if not 0 < length <= size - at:
        return None
    file.seek(at + mark)
    metadata = file.read(length)
    message = _inner(metadata, 0)
    body = _slot(metadata, message, 3)
    begin = at + mark + length
    end = begin + (_number(metadata, body, "q") if body else 0)
    if not begin <= end <= size:
        raise ValueError("a message is cut off")
    return metadata, begin, end
