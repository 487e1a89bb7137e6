"""Parquet and Arrow files: columns of every type, and one field of their metadata, or one number of their pages and buffers, changed.

A Parquet file's footer and the headers of its pages are taken apart as Thrift and put together again; the metadata of an Arrow message
keeps its size, so that only what it says is changed.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import thrift

NUMBERS = (0, 1, 2, -1, 7, 63, 64, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
_WORDS = ("", "a", "NA", "7", "-1e5", "é", "x" * 70, "null", "1970-01-01", "\u202e")
_FLAT: tuple[pa.DataType, ...] = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"),
    pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "no/zone"), pa.timestamp("ns"), pa.duration("s"),
    pa.duration("ns"), pa.decimal128(38, 2), pa.decimal128(5, -3), pa.decimal256(76, 10), pa.month_day_nano_interval(), pa.binary(5),
)  # fmt: skip
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view())


def column(draw: random.Random, rows: int, depth: int = 0) -> pa.Array:
    """Return a column of any type, with any values; those of a fixed width are any bits."""
    kind = draw.randrange(4 if depth > 2 else 13)
    missing = [draw.random() < 0.15 for _ in range(rows)]
    if kind < 2:
        return _flat(draw, rows, draw.choice(_FLAT))
    if kind == 2:
        made: Any = [None if gone else draw.choice(_WORDS) for gone in missing]
        texts = draw.choice(_TEXTS)
        return pa.array(made if pa.types.is_string(texts) else [w if w is None else w.encode() for w in made], pa.binary()).cast(texts)
    if kind == 3:
        return pa.array([None if gone else draw.random() < 0.5 for gone in missing], pa.bool_()) if draw.random() < 0.7 else pa.nulls(rows)
    return _nested(draw, rows, depth, kind)


def _flat(draw: random.Random, rows: int, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    wild = draw.random() < 0.5
    data = draw.randbytes(rows * width) if wild else b"".join(draw.randrange(50).to_bytes(width, "little") for _ in range(rows))
    holes = pa.py_buffer(draw.randbytes(rows // 8 + 1)) if draw.random() < 0.4 else None
    return pa.Array.from_buffers(kind, rows, [holes, pa.py_buffer(data)])


def _nested(draw: random.Random, rows: int, depth: int, kind: int) -> pa.Array:
    sizes = [draw.choice((0, 1, 1, 2, 3)) for _ in range(rows)]
    offsets = [sum(sizes[:i]) for i in range(rows + 1)]
    if kind in (4, 5):
        inner = column(draw, offsets[-1], depth + 1)
        return (pa.ListArray if kind == 4 else pa.LargeListArray).from_arrays(offsets, inner)
    if kind == 6:
        wide = draw.choice((1, 3))
        return pa.FixedSizeListArray.from_arrays(column(draw, rows * wide, depth + draw.choice((1, 3))), wide)
    if kind == 7:
        return pa.StructArray.from_arrays([column(draw, rows, depth + 1) for _ in range(2)], ["a", "b"])
    if kind == 8:
        keys = pa.array([draw.choice(_WORDS) for _ in range(offsets[-1])], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, column(draw, offsets[-1], depth + 1))
    if kind == 9:
        words = _flat(draw, 4, draw.choice(_FLAT[:24])) if draw.random() < 0.5 else pa.array(list(_WORDS[:4]))
        codes = pa.array([draw.choice((0, 1, 2, 3, None)) for _ in range(rows)], draw.choice((pa.int8(), pa.int32(), pa.uint16())))
        return pa.DictionaryArray.from_arrays(codes, words)
    if kind == 10:
        ends = pa.array([*range(2, rows, 2), rows] if rows else [], pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, _flat(draw, len(ends), draw.choice((pa.int16(), pa.float64()))))
    if kind == 11:
        which = pa.array([draw.randrange(2) for _ in range(rows)], pa.int8())
        return pa.UnionArray.from_sparse(which, [column(draw, rows, 3) for _ in range(2)])
    return _extension(draw, rows)


def _extension(draw: random.Random, rows: int) -> pa.Array:
    kind = draw.choice((pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.json_(), pa.opaque(pa.int64(), "a", "b")))
    storage = kind.storage_type
    if pa.types.is_fixed_size_list(storage):
        return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(_flat(draw, rows * 4, pa.float32()), 4))
    if pa.types.is_string(storage):
        return pa.ExtensionArray.from_storage(kind, pa.array(["{}"] * rows, storage))
    return pa.ExtensionArray.from_storage(kind, _flat(draw, rows, storage))


def table(draw: random.Random) -> pa.Table:
    """Return a table of some columns, in one chunk or two."""
    names = draw.sample(("a", "b", "c d", "é", "", "a.b", "x\n"), draw.choice((1, 2, 4)))
    chunks = [draw.choice((1, 3, 20)) for _ in range(draw.choice((1, 1, 2)))]
    first = [column(draw, chunks[0]) for _ in names]
    if draw.random() < 0.05:
        names[-1] = names[0]
    return pa.Table.from_arrays([pa.chunked_array([c] * len(chunks)) for c in first], names)


def parquet(draw: random.Random) -> bytes:
    """Return a Parquet file; most of them say something wrong."""
    file = io.BytesIO()
    codec = draw.choice(("none", "none", "snappy", "gzip", "brotli", "zstd", "lz4"))
    options: dict[str, Any] = {
        "compression": codec,
        "use_dictionary": draw.random() < 0.6,
        "write_statistics": draw.random() < 0.7,
        "data_page_version": draw.choice(("1.0", "2.0")),
        "row_group_size": draw.choice((1, 5, 1000)),
        "data_page_size": draw.choice((16, 1 << 20)),
        "version": draw.choice(("1.0", "2.4", "2.6")),
        "store_schema": draw.random() < 0.7,
        "write_page_index": draw.random() < 0.3,
        "write_page_checksum": draw.random() < 0.2,
    }
    try:
        pq.write_table(table(draw), file, **options)
    except (pa.ArrowException, ValueError, OSError):  # types that Parquet has not
        file = io.BytesIO()
        pq.write_table(pa.table({"a": _flat(draw, 9, pa.int32()), "b": pa.array(["x"] * 9)}), file, compression=codec)
    data = file.getvalue()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    pages, footer = bytearray(data[:begin]), data[begin:-8]
    how = draw.randrange(5)
    if how == 0:
        return data
    tree, _ = thrift.read(footer)
    if how in (1, 2):
        thrift.change(tree, draw, NUMBERS)
    elif how == 3:
        _change_page(draw, pages, tree)
    elif how == 4 and len(pages) > 4:  # what pages hold: levels, lengths of texts, numbers of codes
        for _ in range(draw.choice((1, 1, 3))):
            at = draw.randrange(4, len(pages))
            size = draw.choice((1, 1, 4, 8))
            pages[at : at + size] = struct.pack("<q", draw.choice(NUMBERS))[:size]
    written = thrift.write(tree)
    return bytes(pages) + written + struct.pack("<I", len(written)) + b"PAR1"


def _change_page(draw: random.Random, pages: bytearray, tree: thrift.Tree) -> None:
    """Change the header of a page; what lies behind it stays where it is when the header keeps its length."""
    offsets = [v for path, v in thrift.leaves(tree) if path[-1] in (9, 11) and isinstance(v, int) and 4 <= v < len(pages)]
    if not offsets:
        return
    at = draw.choice(offsets)
    try:
        header, end = thrift.read(bytes(pages), at)
    except (IndexError, ValueError):
        return
    thrift.change(header, draw, NUMBERS)
    pages[at:end] = thrift.write(header)


def arrow(draw: random.Random) -> bytes:
    """Return an Arrow file or stream; most of them say something wrong."""
    file = io.BytesIO()
    codec = draw.choice((None, None, "lz4", "zstd"))
    whole = draw.random() < 0.6
    made = table(draw)
    write: Callable[..., Any] = pa.ipc.new_file if whole else pa.ipc.new_stream
    try:
        with write(file, made.schema, options=pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=draw.random() < 0.3)) as to:
            to.write_table(made)
    except pa.ArrowException:
        file = io.BytesIO()
        made = pa.table({"a": _flat(draw, 9, pa.int32()), "b": pa.array(["x"] * 9)})
        with write(file, made.schema) as to:
            to.write_table(made)
    data = bytearray(file.getvalue())
    how = draw.randrange(4)
    for _ in range(draw.choice((1, 1, 3)) if how else 0):
        if how == 3:  # buffers: offsets, codes, the sizes of what is packed
            at = draw.randrange(8, len(data) - 8) // 4 * 4
            size = draw.choice((1, 4, 8))
        else:  # metadata: lengths, places of buffers, counts, tables of flatbuffers
            at = draw.choice(_metadata(data)) // draw.choice((1, 2, 4, 8)) * 8 or 8
            size = draw.choice((1, 2, 4, 8))
        data[at : at + size] = struct.pack("<q", draw.choice((*NUMBERS, draw.randrange(200), draw.randrange(len(data)))))[:size]
    return bytes(data)


def _metadata(data: bytes) -> list[int]:
    """Return places in the metadata of messages, and in a file's footer."""
    found, at = list(range(max(8, len(data) - 200), len(data) - 10, 4)), 8 if data.startswith(b"ARROW1") else 0
    while at + 8 <= len(data) and data[at : at + 4] == b"\xff\xff\xff\xff":
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if not size:
            break
        found += range(at + 8, min(at + 8 + size, len(data)), 4)
        following = data.find(b"\xff\xff\xff\xff", at + 8 + size)
        if following < 0:
            break
        at = following
    return found
