"""Arrow's own files and streams, Feather among them, by record batches."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pe_cli.data.reader_context import Origin
from pe_cli.data.tables import size_claims
from pe_cli.data.tables.columnar import CELL, ColumnarPart, import_pyarrow, reading

MAGIC, STREAM, OLD_FEATHER = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"


def open_arrow(path: Path, origin: Origin, missing: Collection[str], most: int | None = None) -> ColumnarPart:
    """Open an Arrow IPC file or stream.

    Args:
        path: of the file.
        origin: gives errors their place.
        missing: texts that count as missing.
        most: rows to look at; all when None.

    Raises:
        PeError: DATA; it is none, is damaged, or has no rows; or pyarrow is not installed.
    """
    pa = import_pyarrow(path, origin)
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(OLD_FEATHER):
        raise origin.error(
            f"{path} is a Feather file of version 1", "write it again: pyarrow.feather.write_feather(table, path)"
        )
    whole = head.startswith(MAGIC)

    @contextlib.contextmanager
    def opened(columns: Sequence[str] | None = None) -> Iterator[Any]:
        # not mapped: a file that is cut while it is read would end the process
        options = pa.ipc.IpcReadOptions(included_fields=None if columns is None else sorted(map(places.__getitem__, columns)))
        with pa.OSFile(str(path)) as file, (pa.ipc.open_file if whole else pa.ipc.open_stream)(file, options=options) as reader:
            yield reader

    def every(reader: Any, first: int = 0) -> Iterator[Any]:
        found = (reader.get_batch(i) for i in range(first, reader.num_record_batches)) if whole else iter(reader)
        for batch in found:
            batch.validate(full=True)  # offsets of a damaged file would lead out of it
            yield batch

    def batches(columns: Sequence[str], start: int) -> Iterator[tuple[int, Any]]:
        with opened(columns) as reader:
            first = bisect.bisect_right(begins, start) - 1 if whole else 0
            row = begins[first]
            for batch in every(reader, first):
                yield row, batch
                row += batch.num_rows

    rows, groups = 0, list[int]()
    with reading(path, "Arrow", origin):
        size_claims.check_messages(path, whole, origin)
    with reading(path, "Arrow", origin), opened() as reader:
        schema = reader.schema
        names = list(schema.names)
        places = {name: i for i, name in enumerate(names)}
    # what others look at here, they read: whoever reads a column looks at it again
    looked = names[origin.together.index :: origin.together.count] if origin.together else names
    with reading(path, "Arrow", origin), opened(looked or names) as reader:
        for batch in every(reader):
            rows += batch.num_rows
            groups.append(batch.num_rows)
            size_claims.check_rows(rows, len(names), path, origin)
            if most is not None and rows >= most:
                break
            if origin.look and rows * CELL * len(schema.names) > origin.look.most:
                break  # the part takes no more than is looked at
    begins = list(itertools.accumulate(groups, initial=0))
    used = rows if most is None else min(rows, most)
    return ColumnarPart(path, "Arrow", origin, schema, used, batches, missing, groups if whole else ())
