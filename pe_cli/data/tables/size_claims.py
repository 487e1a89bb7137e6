"""Checks the sizes that columnar files claim before pyarrow allocates them: a small file can claim very much.

Source:
    Apache Parquet, `parquet.thrift`; Apache Arrow, "Columnar format".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables import column_limit, flatbuffers, thrift
from pe_cli.data.tables.decompression import RATIO, UNPACKED

#: Limits on the values of a file in all columns together: per byte of the file, and a number that every file may have.
VALUES_PER_BYTE, FEW = 1000, 1 << 22
#: Bytes of a page's header that are looked at first, and at most, as by Parquet's own readers: statistics of long texts stand in it.
_HEADER, _LONGEST = 1 << 10, 1 << 24
#: Bytes of a value as an object of Python, about.
_OBJECT = 64
#: Fields of `PageHeader`, and of the headers of data and dictionaries in it.
_UNPACKED, _PACKED, _DATA, _WORDS, _DATA_2 = 2, 3, 5, 7, 8
#: Fields of `FileMetaData`, of `RowGroup`, of `ColumnChunk` and `ColumnMetaData`, and of `SchemaElement`.
_SCHEMA, _GROUPS = 2, 4
_CHUNKS, _ROWS = 1, 3
_OF_CHUNK, _PATH, _SIZE, _FIRST_PAGE, _FIRST_WORDS = 3, 3, 7, 9, 11
_TYPE, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 4, 5, 6, 10
#: A type of `SchemaElement`; as a converted type and as a logical one, a decimal number has the same number.
_BYTE_ARRAY, _DECIMAL = 6, 5
_REMEDY = "write it again if it is yours, without packing or as CSV"


def most_values(path: Path) -> int:
    """Return how many values a file may hold, however they are packed."""
    return max(FEW, VALUES_PER_BYTE * path.stat().st_size)


def most_bytes(path: Path) -> int:
    """Return how many bytes a file may unpack to."""
    return max(UNPACKED, RATIO * path.stat().st_size)


def check_rows(rows: int, columns: int, path: Path, origin: Origin) -> None:
    """Refuse more cells than a file can hold that is no bomb.

    Raises:
        PeError: DATA; says how many it claims.
    """
    most = most_values(path)
    if rows * columns > most:
        raise origin.error(
            f"{path} claims {rows:,} rows of {columns:,} columns, and a file of its size has {most:,} values at most", _REMEDY
        )


@dataclass(frozen=True)
class Footer:
    """What the footer of a Parquet file says.

    Args:
        rows: of each row group.
        chunks: of each row group: path of a column, and where its pages begin and end.
        texts: paths of columns that hold texts or bytes.
    """

    rows: tuple[int, ...]
    chunks: tuple[tuple[tuple[str, int, int], ...], ...]
    texts: tuple[str, ...]


def footer(path: Path) -> Footer:
    """Return what the footer of a Parquet file says.

    Raises:
        ValueError: it is damaged.
    """
    data = _footer(path)
    try:
        found, _ = thrift.fields(data)
        groups = found.get(_GROUPS, [])
        chunks = tuple(tuple(_chunk(chunk[_OF_CHUNK]) for chunk in group[_CHUNKS] if _OF_CHUNK in chunk) for group in groups)
        return Footer(tuple(int(group[_ROWS]) for group in groups), chunks, tuple(_texts(found.get(_SCHEMA, []))))
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("its footer is damaged") from None


def _footer(path: Path, most: int | None = None) -> bytes:
    """Return the first bytes of a Parquet file's footer, all of them when `most` is None."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        if not 0 < length <= size - 8:
            raise ValueError("its footer is cut off")
        file.seek(size - 8 - length)
        return file.read(length if most is None else min(length, most))


def check_columns(path: Path, origin: Origin) -> None:
    """Refuse a Parquet file that claims more columns than a table has, those in structures counted, before its footer is read.

    Raises:
        PeError: DATA; says how many.
    """
    with contextlib.suppress(ValueError, IndexError):  # whoever reads all of the footer says what is wrong with it
        columns = thrift.length(_footer(path, _HEADER), _SCHEMA) - 1
        if columns > column_limit.MOST_COLUMNS:
            raise origin.error(*column_limit.too_wide(path, columns))


def _chunk(found: thrift.Fields) -> tuple[str, int, int]:
    begin, words = int(found[_FIRST_PAGE]), int(found.get(_FIRST_WORDS, 0))
    begin = words if 0 < words < begin else begin
    return ".".join(part.decode("utf-8", "replace") for part in found[_PATH]), begin, begin + max(0, int(found[_SIZE]))


def _texts(schema: list[thrift.Fields]) -> Iterator[str]:
    """Yield the paths of leaves of bytes of any length, but for numbers; a schema is a tree, whose nodes follow each other."""
    above: list[tuple[tuple[str, ...], int]] = []  # path of each node around, and how many of its children are still to come
    for i, node in enumerate(schema):
        while above and not above[-1][1]:
            above.pop()
        parent, left = above.pop() if above else ((), 0)
        path = (*parent, node[_NAME].decode("utf-8", "replace")) if i else ()
        above.append((parent, max(0, left - 1)))
        children = int(node.get(_CHILDREN, 0))
        if children > 0:
            above.append((path, children))
        elif node.get(_TYPE) == _BYTE_ARRAY and node.get(_CONVERTED) != _DECIMAL and _DECIMAL not in node.get(_LOGICAL, {}):
            yield ".".join(path)


def check_pages(path: Path, found: Footer, columns: Set[str], origin: Origin) -> None:
    """Refuse a Parquet file whose pages claim more values, or more bytes, than a file of its size has.

    Args:
        path: of the file.
        found: its footer.
        columns: names of those that will be read.
        origin: gives errors their place.

    Raises:
        PeError: DATA; says what is claimed.
        ValueError: a header is damaged.
    """
    values = unpacked = 0
    most, room = most_values(path), most_bytes(path)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for at, end in ((at, end) for group in found.chunks for name, at, end in group if _is_of(name, columns)):
            while 0 <= at < min(end, size):
                header, length = _header(file, at)
                count, bytes_, packed = _claims(header)
                values, unpacked, at = values + count, unpacked + bytes_, at + length + packed
                if values > most or unpacked > room:
                    said = f"its pages claim {values:,} values and {unpacked:,} bytes or more"
                    raise origin.error(f"{path} has {size:,} bytes, and {said}", _REMEDY)


def _is_of(path: str, columns: Set[str]) -> bool:
    dots = (i for i, letter in enumerate(path) if letter == ".")
    return path in columns or any(path[:dot] in columns for dot in dots)


def _header(file: IO[bytes], at: int) -> tuple[thrift.Fields, int]:
    size = _HEADER
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            return thrift.fields(data)
        except IndexError:
            if len(data) < size or size >= _LONGEST:
                raise ValueError("the header of a page is cut off") from None
        size *= 16


def _claims(header: thrift.Fields) -> tuple[int, int, int]:
    """Return the values of a page, its bytes when it is unpacked, and its bytes in the file."""
    inner = next((found for key in (_DATA, _WORDS, _DATA_2) if isinstance(found := header.get(key), dict)), {})
    said = (inner.get(1, 0), header.get(_UNPACKED, 0), header.get(_PACKED, 0))
    if not all(isinstance(number, int) and number >= 0 for number in said):
        raise ValueError("the header of a page is damaged")
    return said


def check_messages(path: Path, whole: bool, origin: Origin) -> None:
    """Refuse an Arrow file of too many columns, or whose packed buffers claim to unpack to more than a file of its size does.

    Raises:
        PeError: DATA; says what is claimed.
        ValueError: the metadata are damaged.
    """
    most, total = most_bytes(path), 0
    with path.open("rb") as file:
        columns = flatbuffers.columns(file, whole)
        if columns > column_limit.MOST_COLUMNS:
            raise origin.error(*column_limit.too_wide(path, columns))
        for metadata, begin in flatbuffers.messages(file, whole):
            total += flatbuffers.unpacked(metadata, file, begin)
            if total > most:
                raise origin.error(f"{path} claims to unpack to {total:,} bytes, and a file of its size has {most:,} at most", _REMEDY)


def check_values(column: Any, path: Path, origin: Origin) -> None:
    """Refuse rows whose values take much more room when they are written out than a file of their size has.

    Raises:
        PeError: DATA; says how much.
        ValueError: their type may hold a value many times without a byte for it.
    """
    room, most = _room(column), most_bytes(path)
    if room > most:
        raise origin.error(f"{path} has rows whose values take {room:,} bytes, and a file of its size has {most:,} at most", _REMEDY)


def _room(column: Any) -> int:  # noqa: PLR0911 - one case per type
    """Return about how many bytes the values of an array take as objects of Python, those in lists of lists, too."""
    import pyarrow as pa

    kind, count = column.type, len(column)
    if not count:
        return 0
    if isinstance(kind, pa.BaseExtensionType):
        return _room(column.storage)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        begin, end = int(column.offsets[0].as_py()), int(column.offsets[count].as_py())
        inner = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        return _OBJECT * count + sum(_room(part.slice(begin, end - begin)) for part in inner)
    if pa.types.is_fixed_size_list(kind):
        if not pa.types.is_nested(kind.value_type) and not _is_text(kind.value_type):
            return _OBJECT * count * (1 + int(kind.list_size))
        return _OBJECT * count + _room(column.values.slice(column.offset * kind.list_size, count * kind.list_size))
    if pa.types.is_struct(kind):
        return _OBJECT * count + sum(_room(column.field(i)) for i in range(kind.num_fields))
    inside = kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind
    if pa.types.is_nested(inside) or pa.types.is_dictionary(inside):
        raise ValueError("such columns are not read")
    if pa.types.is_run_end_encoded(kind):
        return count * (_OBJECT + max(_lengths(column.values), default=0))
    if pa.types.is_dictionary(kind):
        lengths = np.append(_lengths(column.dictionary), 0)
        codes = np.asarray(column.indices.cast(pa.int64()).fill_null(len(lengths) - 1))
        return _OBJECT * count + int(lengths[codes].sum())
    return _OBJECT * count + int(_lengths(column).sum())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    short, long = (pa.types.is_string, pa.types.is_binary), (pa.types.is_large_string, pa.types.is_large_binary)
    return bool(views or any(of(kind) for of in (*short, *long)))


def _lengths(column: Any) -> NDArray[np.int64]:
    """Return how many bytes each value has that is a text, 0 for other values."""
    import pyarrow as pa

    kind, count = column.type, len(column)
    if not count or not _is_text(kind):
        return np.zeros(count, np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):  # sixteen bytes each, which begin with the length
        return np.frombuffer(column.buffers()[1], "<i4")[4 * column.offset : 4 * (column.offset + count) : 4].astype(np.int64)
    wide = np.dtype("<i8" if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else "<i4")
    offsets = np.frombuffer(column.buffers()[1], wide, count + 1, column.offset * wide.itemsize)
    return np.diff(offsets).astype(np.int64)
