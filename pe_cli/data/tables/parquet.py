"""Parquet files, by row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pe_cli.data.reader_context import Origin
from pe_cli.data.tables import size_claims
from pe_cli.data.tables.columnar import BATCH, ColumnarPart, import_pyarrow, reading
from pe_cli.data.tables.text_source import changed, stamp_of

MAGIC = b"PAR1"


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
        # texts stay what they are in the file: a few words and a code for each row
        if stamp_of(path) != stamp:
            raise changed(path, origin)
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=said.texts) as file:
            size_claims.check_pages(path, said, set(columns), origin)
            row, group = 0, 0
            while group < len(said.rows) and row + said.rows[group] <= start:
                row += said.rows[group]
                group += 1
            for batch in file.iter_batches(BATCH, range(group, len(said.rows)), list(columns)):
                batch.validate(full=True)  # codes of a damaged file would lead out of its words
                yield row, batch
                row += batch.num_rows

    size_claims.check_columns(path, origin)
    stamp = stamp_of(path)
    with reading(path, "Parquet", origin), pq.ParquetFile(path) as file:
        said, metadata = size_claims.footer(path), file.metadata
        schema, rows = file.schema_arrow, metadata.num_rows
    return ColumnarPart(path, "Parquet", origin, schema, rows if most is None else min(rows, most), batches, missing, said.rows)
