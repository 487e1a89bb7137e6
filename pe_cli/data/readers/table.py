"""Tables in files: CSV and its kin, JSON lines, Parquet and Arrow."""

from __future__ import annotations

import codecs
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from pe_cli.core.errors import did_you_mean
from pe_cli.data.raw_cells import MISSING, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.tables.file_formats import Format, named_format

if TYPE_CHECKING:
    from pe_cli.data.tables.table_files import Part
    from pe_cli.data.tables.text_source import Spool

Strict = Field(strict=True)
Text = Annotated[str, Strict]
#: Encodings that a wrong name is compared with.
ENCODINGS = (
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "latin-1",
    "cp1250",
    "cp1251",
    "cp1252",
    "shift_jis",
    "gbk",
    "big5",
)
#: Rows of a text that are looked at where not all of it is unpacked.
FIRST_ROWS = 100


class TableOptions(ReaderOptions):
    """Options of the table reader."""

    files: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="a file, or a pattern such as `data/part-*.csv` (`**`: folders of any depth); or a list of them"
    )
    format: Format = Field("auto", description="auto: by the first bytes of the file and the end of its name")
    delimiter: Text = Field(
        "auto",
        description="of CSV: a character between cells; auto: the one of `,` `;` tab `|` that the first rows have, or that a first line "
        "`sep=;` says",
    )
    encoding: Text = Field(
        "auto", description="of text: Python's name of it; auto: UTF-8, or UTF-16 where a byte-order mark says so"
    )
    header: Literal["auto"] | Annotated[bool, Strict] = Field(
        "auto",
        description="of CSV: whether the first row has names, else columns are named 0, 1, 2, ...; auto: see below",
    )
    titles: Annotated[int, Field(ge=0, le=10_000, strict=True)] = Field(
        0, description="of CSV: lines above the header that are left out, such as the title of a report"
    )
    missing: list[Text] = Field(list(MISSING), description="texts that count as a missing cell, besides the empty one")
    empty_rows: Literal["keep", "skip"] = Field(
        "keep", description="skip: leave out rows of which every cell is missing, as spreadsheets have them between others"
    )
    stream: Annotated[bool, Strict] = Field(
        False, description="decode rows when they are needed, a stretch at a time, and keep none: for tables larger than memory and disk"
    )

    @model_validator(mode="after")
    def _read_before(self) -> TableOptions:
        if self.stream and self.empty_rows == "skip":
            raise ValueError("a stream keeps every row: write the table without its empty rows, or leave stream out")
        return self

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, delimiter: str) -> str:
        if delimiter == "auto":
            return delimiter
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"\0':
            raise ValueError("one ASCII character, no quote and no end of a line, stands between cells; or auto")
        return delimiter

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        if encoding == "auto":
            return encoding
        try:
            found = codecs.lookup(encoding)
            codecs.getincrementaldecoder(encoding)
        except (LookupError, ValueError):
            found = None
        if found is None or not getattr(found, "_is_text_encoding", True):
            hint = did_you_mean(encoding, ENCODINGS) or "common ones are latin-1 and cp1252"
            raise ValueError(f"no encoding of text that Python knows; {hint}")
        return encoding


@reader("table", TableOptions)
def open_table(options: TableOptions, origin: Origin) -> Table:
    """Read tables: CSV and its kin, JSON lines, Parquet and Arrow; columns are found by name.

    Several files make one table, one after the other, and have the same columns in any order. Text may be packed by gzip or zstd.
    Cells are numbers, texts or missing; what they mean is said by `data.columns`.
    """
    from pe_cli.data.tables.empty_rows import without_empty
    from pe_cli.data.tables.file_patterns import find_shards
    from pe_cli.data.tables.remote_tables import FetchedPart
    from pe_cli.data.tables.stream import StreamTable
    from pe_cli.data.tables.table_files import PartsTable
    from pe_cli.data.tables.text_source import Spool

    spool = Spool()
    parts: list[Part] = []
    skips = options.empty_rows == "skip"
    # How many rows of a file are left is known when all of them were looked at.
    left = None if options.limit is None or skips else options.skip + options.limit
    for found in find_shards(options.files, origin):
        # of files behind the last row that is used only the columns are compared
        most = left if left is None else max(1, left)

        def again(path: Path, most: int | None = most) -> Part:
            # later, by this process alone
            return open_part(path, options, replace(origin, together=None), Spool(), most)

        if isinstance(found, str) and options.stream:
            parts.append(FetchedPart(found, origin, again))
        else:
            parts.append(open_part(origin.find(found) if isinstance(found, str) else found, options, origin, spool, most))
        left = None if left is None else max(0, left - len(parts[-1]))
        if skips:
            parts[-1] = without_empty(parts[-1], options.missing, origin)
    kind = StreamTable if options.stream else PartsTable
    return kind(parts, origin, 0 if origin.is_cut else options.skip, options.limit, frozenset(options.missing))


def open_part(path: Path, options: TableOptions, origin: Origin, spool: Spool, most: int | None) -> Part:
    """Open one file of a table.

    Args:
        path: of a file that is there.
        options: of the table.
        origin: gives errors their place.
        spool: takes text that is unpacked.
        most: rows to look at; all when None.

    Raises:
        PeError: DATA; it is no table of the format.
    """
    from pe_cli.data.tables import arrow, parquet, text_source
    from pe_cli.data.tables.decompression import packing

    head = text_source.first_bytes(path)
    if not head:
        raise origin.error(f"{path} is empty: it has no bytes", "check what wrote it")
    kind = options.format if options.format != "auto" else _format(path, head)
    if kind == "parquet":
        return parquet.open_parquet(path, origin, options.missing, most)
    if kind == "arrow":
        return arrow.open_arrow(path, origin, options.missing, most)
    text = text_source.open_source(path, options.encoding, origin, spool)
    first = text.read(text.start, 64)
    if not first:
        raise origin.error(f"{path} is empty: it has no rows", "check what wrote it")
    if first.startswith((parquet.MAGIC, arrow.MAGIC)):
        hint = "unpack it first" if packing(head) else "leave format out"
        raise origin.error(
            f"{path} is a {'Parquet' if first.startswith(parquet.MAGIC) else 'Arrow'} file, not text", hint
        )
    if origin.is_cut:
        most = min(most or FIRST_ROWS, FIRST_ROWS)  # the last row may be cut
    if kind == "auto":
        kind = "jsonl" if first.lstrip().startswith((b"{", b"[{")) else "csv"
    if kind == "jsonl":
        from pe_cli.data.tables.json_document import is_document, lines_of
        from pe_cli.data.tables.jsonl import DECODER, JsonlPart

        whole = is_document(text)
        return JsonlPart(lines_of(text, spool, DECODER) if whole else text, options.missing, most, of_document=whole)
    from pe_cli.data.tables.csv import CsvPart

    delimiter = options.delimiter if options.delimiter != "auto" else "\t" if options.format == "tsv" else None
    header = None if options.header == "auto" else options.header
    return CsvPart(text.below(options.titles), delimiter, header, options.missing, most)


def _format(path: Path, head: bytes) -> Format:
    """Return the format of a file: by its first bytes, else by its name; auto where text must tell."""
    from pe_cli.data.tables import arrow, parquet

    if head.startswith(parquet.MAGIC):
        return "parquet"
    if head.startswith((arrow.MAGIC, arrow.STREAM, arrow.OLD_FEATHER)):
        return "arrow"
    return named_format(path.name)
