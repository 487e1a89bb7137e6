"""Parquet files, by row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pe_cli.data.origin import Origin
from pe_cli.data.tables.columnar import ColumnarPart, import_pyarrow, reading

MAGIC = b"PAR1"
#: Rows that are read at a time.
BATCH = 1 << 16


def open_parquet(path: Path, origin: Origin, missing: Collection[str], most: int | None = None) -> ColumnarPart:
    """Open a Parquet file.

    Args:
        path: of the file.
        origin: gives errors their place.
        missing: texts that count as missing.
        most: rows to look at; all when None.

    Raises:
        PeError: DATA; it is none, is damaged, or has no rows; or pyarrow is not installed.
    """
    import_pyarrow(path, origin)
    import pyarrow.parquet as pq

    def batches(columns: Sequence[str], start: int) -> Iterator[tuple[int, Any]]:
        with pq.ParquetFile(path) as file:
            row, group = 0, 0
            while group < file.num_row_groups and row + file.metadata.row_group(group).num_rows <= start:
                row += file.metadata.row_group(group).num_rows
                group += 1
            for batch in file.iter_batches(BATCH, range(group, file.num_row_groups), list(columns)):
                yield row, batch
                row += batch.num_rows

    with reading(path, "Parquet", origin), pq.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    return ColumnarPart(path, "Parquet", origin, schema, rows if most is None else min(rows, most), batches, missing)
