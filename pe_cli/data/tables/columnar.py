"""Tables that pyarrow reads, a batch of rows at a time: Parquet and Arrow share what their columns mean."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import SHOWN, Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room
from pe_cli.data.tables import column_limit, size_claims
from pe_cli.data.tables.dialect import repeated
from pe_cli.data.tables.findings import Bad, Dictionary, Findings
from pe_cli.data.tables.python_cells import Texts, as_number, as_text

#: Yields (first row, batch) of some columns from a row on; the first batch may begin before it.
Batches = Callable[[Sequence[str], int], Iterator[tuple[int, Any]]]
#: Bytes of a cell, about.
CELL = 8
#: Rows that are converted at a time.
BATCH = 1 << 16


def import_pyarrow(path: Path, origin: Origin) -> Any:
    """Return pyarrow.

    Raises:
        PeError: DATA; it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise origin.error(f"{path} needs pyarrow to be read", "pip install 'pe-cli[tables]'") from None
    return pyarrow


@contextlib.contextmanager
def reading(path: Path, kind: str, origin: Origin) -> Iterator[None]:
    """Turn what pyarrow raises into a data error.

    Raises:
        PeError: whatever pyarrow raised, with the file's name.
    """
    pa = import_pyarrow(path, origin)
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise origin.error(f"{path} is no readable {kind} file: {said}", "copy or write it again") from None


class ColumnarPart:
    """A file of columns.

    Args:
        path: of the file.
        kind: of file, for messages.
        origin: gives errors their place.
        schema: names and types of its columns.
        rows: number of rows that are used; fewer where a packed file is only looked into.
        batches: reads it.
        missing: texts that count as missing.
        groups: number of rows of each group that can be read without those before it; one group when there are none.

    Raises:
        PeError: DATA; it has no rows, no columns or too many of them, or two columns have one name.
    """

    by_columns = True

    def __init__(
        self,
        path: Path,
        kind: str,
        origin: Origin,
        schema: Any,
        rows: int,
        batches: Batches,
        missing: Collection[str],
        groups: Sequence[int] = (),
    ) -> None:
        names = list(schema.names)
        if len(names) > column_limit.MOST_COLUMNS:
            raise origin.error(*column_limit.too_wide(path, len(names)))
        self.path, self.names = path, tuple(names)
        self._types = dict(zip(names, schema.types, strict=True))
        self._kind, self._origin = kind, origin
        row = CELL * max(1, len(names))
        # A look at the beginning reads as many rows as fit into its bytes.
        self._rows = max(1, origin.look.most // row) if origin.look and origin.only_looks(rows * row, path) else rows
        self._batches, self._missing, self._groups = batches, frozenset(missing), groups
        # columns that were read, and their texts in the row that was asked for last: other cells of a row are asked for next
        self._asked: set[str] = set()
        self._row, self._texts = -1, dict[str, str]()
        if not names or rows <= 0:
            raise origin.error(f"{path} is empty: it has no {'rows' if names else 'columns'}", "check what wrote it")
        twice = repeated(names)
        if twice is not None:
            count = self.names.count(names[twice])
            raise origin.error(f"{path} has {count} columns named '{names[twice]}'", "give every column its own name")
        size_claims.check_rows(rows, len(names), path, origin)

    def __len__(self) -> int:
        return self._rows

    @property
    def stretches(self) -> NDArray[np.int64]:
        """Rows that reading may begin at; see `Part.stretches`."""
        begins = np.unique(np.cumsum([0, *self._groups], dtype=np.int64))
        found: NDArray[np.int64] = begins[(begins == 0) | (begins < self._rows)]
        return found

    def _slices(self, names: Sequence[str], start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield columns of rows start to stop: first row, counted from start, and arrays by name."""
        row = start
        with reading(self.path, self._kind, self._origin):
            for first, batch in self._batches(names, start):
                # Converted in pieces: a batch of a file may be of any size.
                for begin in range(max(start, first), min(stop, first + batch.num_rows), BATCH):
                    end = min(begin + BATCH, stop, first + batch.num_rows)
                    cut = batch.slice(begin - first, end - begin)
                    yield begin - start, {name: cut.column(cut.schema.get_field_index(name)) for name in names}
                    row = end
                if row >= stop:
                    return
        if row < stop:
            raise self._origin.error(
                f"{self.path} has {row} rows, and had {stop} before", "it was changed while it is read: start again"
            )

    def read(
        self,
        start: int,
        # Cells of a row are often asked for together, and reading a group costs the same for one as for all.
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass; see `Part.read`."""
        found = Findings(numbers, codes)
        self._asked |= {*numbers, *codes}
        for row, columns in self._slices([*numbers, *codes], start, stop):
            for name, array in numbers.items():
                with self._converting(name, start + row, columns[name]):
                    values, wrong = self._numbers(columns[name], notations.get(name, PLAIN))
                array[row : row + len(values)] = values
                found.count[name] += len(wrong)
                found.bad[name] += (wrong[: SHOWN - len(found.bad[name])] + row).tolist()
            for name, coded in codes.items():
                with self._converting(name, start + row, columns[name]):
                    read = self._codes(columns[name], row, found.known[name], found.firsts[name])
                coded[row : row + len(read)] = read
        return found.told(stop - start)

    def _numbers(self, column: Any, notation: Notation) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return an array as numbers, and which rows hold none."""
        import pyarrow as pa

        column = _plain(column)
        kind = column.type
        null = np.asarray(column.is_null())
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
            values[null] = math.nan
            wrong = np.isinf(values)
        elif pa.types.is_boolean(kind):
            values = np.array([math.nan if value is None else float(value) for value in column.to_pylist()], np.float64)
            wrong = np.zeros(len(values), bool)
        elif _is_text(kind):
            indices, words = _distinct(column)
            found = [as_number(word, self._missing, notation) for word in words] + [math.nan]
            values = np.array([math.nan if value is None else value for value in found])[indices]
            wrong = np.array([value is None for value in found])[indices]
        else:
            values = np.full(len(column), math.nan)
            wrong = ~null
        values[wrong] = math.nan
        return values, np.flatnonzero(wrong)

    def _codes(self, column: Any, row: int, known: dict[str, int], firsts: list[int]) -> NDArray[np.int32]:
        """Return an array as codes of words, of which the new ones are taken in."""
        indices, words = _distinct(column)
        used, first = np.unique(indices, return_index=True)
        table = np.zeros(len(words) + 1, np.int32)
        for k in np.argsort(first).tolist():
            word = "" if used[k] < 0 else as_text(words[used[k]])
            code = table[used[k]] = known.setdefault(word, len(known))
            if code == len(firsts):
                firsts.append(row + int(first[k]))
        return table[indices]

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts.

        Raises:
            PeError: DATA; they are larger than a file of this size may hold.
        """
        texts, most = Texts(stop - start, name, self._missing), size_claims.most_bytes(self.path)
        for row, columns in self._slices([name], start, stop):
            with self._converting(name, start + row, columns[name]):
                for text in _as_texts(columns[name]):
                    texts.add(text)
            if texts.size > most:
                raise self._origin.error(
                    f"{self.path}: the texts of column '{name}' have more than {most:,} bytes, too many for a file of its size",
                    "unpack it yourself if you trust it: write it as CSV",
                )
        return texts.strings()

    def array(self, name: str, start: int, stop: int) -> Array | None:
        """Return a column of lists of a fixed size, of numbers, as an array; None for another column.

        Raises:
            PeError: DATA; a list or a number in it is missing.
        """
        kind, shape = self._types[name], []
        import pyarrow as pa

        while pa.types.is_fixed_size_list(kind):
            shape.append(kind.list_size)
            kind = kind.value_type
        if not shape or 0 in shape or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        out = room((stop - start, *shape), kind.to_pandas_dtype(), f"column '{name}'")
        for row, columns in self._slices([name], start, stop):
            values = columns[name]
            for _ in shape:
                if values.null_count:
                    missing = (
                        int(np.flatnonzero(np.asarray(columns[name].is_null()))[0]) if columns[name].null_count else 0
                    )
                    raise self.error(
                        start + row + missing,
                        name,
                        "a list, or a list in one, is missing",
                        "fill it, or leave the row out",
                    )
                values = values.flatten()
            if values.null_count and not pa.types.is_floating(kind):
                raise self.error(
                    start + row, name, "a whole number of a list is missing in this row or behind it", "fill it"
                )
            count = len(columns[name])
            out[row : row + count] = values.to_numpy(zero_copy_only=False).reshape(count, *shape)
        return out

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        if self._row != row or name not in self._texts:
            self._row, self._texts = row, {}
            _, columns = next(self._slices(sorted(self._asked | {name}), row, row + 1))
            for one, column in columns.items():
                # of a cell that nobody has asked for nothing is said
                with contextlib.nullcontext() if one == name else contextlib.suppress(PeError), self._converting(one, row, column):
                    self._texts[one] = as_text(_plain(column)[0].as_py())
        return self._texts[name]

    @contextlib.contextmanager
    def _converting(self, name: str, row: int, column: Any) -> Iterator[None]:
        """Turn what pyarrow raises of a value that Python has no number and no text for into a data error at its row.

        Args:
            name: of the column.
            row: of its first value.
            column: what is converted.

        Raises:
            PeError: a date outside of the years 1 to 9999, bytes that are no text, a zone that is not known, and the like.
        """
        import pyarrow as pa

        try:
            size_claims.check_values(column, self.path, self._origin)
            yield
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError, KeyError) as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise self.error(
                row + _first_odd(column),
                name,
                f"a value of the type {column.type} is not understood: {said}",
                "mend the cell, or write the column as numbers or texts",
            ) from None

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell, with file and row."""
        return self._origin.error(f"{self.path}, row {row + 1}, column '{name}': {message}", hint)


def _first_odd(column: Any) -> int:
    """Return the place of the first value that has no text; 0 where each of them has one."""
    import pyarrow as pa

    # Row by row, which is slow and only done for the message.
    for row in range(len(column)):
        try:
            as_text(_plain(column.slice(row, 1))[0].as_py())
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError, KeyError):
            return row
    return 0


def _is_text(kind: Any) -> bool:
    """Return whether a type holds texts, or a dictionary of anything."""
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_dictionary(kind)
    )


def _plain(column: Any) -> Any:
    """Return an array whose elements Python has a type for: times of at most microseconds, in UTC where they have a zone."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(column.storage)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", "UTC" if kind.tz else None), safe=kind.unit != "ns")  # nanoseconds are cut off
    if pa.types.is_duration(kind):
        return column.cast(pa.duration("us"), safe=kind.unit != "ns")
    if pa.types.is_time64(kind):
        return column.cast(pa.time64("us"), safe=False)
    return column


def _as_texts(column: Any) -> Iterator[str]:
    """Yield the values of an array as texts; words that stand for many rows are made texts once."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return map(as_text, _plain(column).to_pylist())
    indices, words = _distinct(column)
    found = [*map(as_text, words), ""]
    return map(found.__getitem__, indices.tolist())


def _distinct(column: Any) -> tuple[NDArray[np.int64], list[object]]:
    """Return an array as indices of distinct values; -1 where there is none."""
    import pyarrow as pa

    column = _plain(column)
    if pa.types.is_nested(column.type):
        texts = [None if value is None else as_text(value) for value in column.to_pylist()]
        column = pa.array(texts, pa.string())
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    indices = np.asarray(column.indices.cast(pa.int64()).fill_null(-1))
    return indices, _plain(column.dictionary).to_pylist()
