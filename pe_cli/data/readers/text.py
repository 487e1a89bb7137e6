"""Texts in files: a row per line or per file, a folder per class, or blocks of one long text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from pe_cli.config.sections.value_types import Count, Name
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.folder_listing import files_in
from pe_cli.data.notation import PLAIN, Notation, Notations
from pe_cli.data.raw_cells import Cells, Codes, ListCells, Numbers, Strings, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.table import TableOptions
from pe_cli.data.registry import ReaderOptions, reader

if TYPE_CHECKING:
    from pe_cli.data.fitted_columns import Fitted
    from pe_cli.data.machine_processes import MachineProcesses
    from pe_cli.data.text_files import TextFiles

#: Columns.
TEXT, LABEL, FILE = "text", "label", "file"
TOKENS, NEXT = "tokens", "next"


class TextOptions(ReaderOptions):
    """Options of the text reader."""

    files: Name | Annotated[list[Name], Field(min_length=1)] | None = Field(
        None, description="a file, or a pattern such as `data/*.txt` (`**`: folders of any depth); or a list of them"
    )
    folder: Name | None = Field(
        None, description="folder with one folder of texts per class; or with texts alone, which then have no label; instead of files"
    )
    per: Literal["line", "file"] | None = Field(
        None, description="what a row is: a line that holds more than blanks, or a whole file; line when absent"
    )
    blocks: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None, description="cut the whole text into samples of so many tokens, for a language model; instead of per"
    )
    stride: Count | None = Field(
        None, description="tokens from the start of a block to that of the next one; as many as a block has when absent"
    )
    encoding: str = Field("auto", description="Python's name of it; auto: UTF-8, or UTF-16 where a byte-order mark says so")

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        TableOptions.model_validate({"files": "any", "encoding": encoding})
        return encoding

    @model_validator(mode="after")
    def _fits(self) -> TextOptions:
        ways = [name for name in ("files", "folder") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise ValueError("name one of files and folder" if not ways else "files and folder both say which texts there are: keep one")
        if self.blocks is not None and self.per is not None:
            raise ValueError("per and blocks both say what a row is: keep one")
        if self.stride is not None and self.blocks is None:
            raise ValueError("stride is the distance of blocks: add blocks: 64")
        return self


@reader("text", TextOptions)
def open_text(options: TextOptions, origin: Origin) -> Table:
    """Read texts: a row per line or file; or one long text as blocks of tokens. Files may be packed by gzip or zstd.

    The column `text` has the type text; a folder with a folder per class gives `label`, too, and a row per file the column `file`, its
    path. With `blocks` the columns are `tokens`, the tokens of a block, and `next`, the token behind each of them.
    """
    from pe_cli.data.tables.file_patterns import find_files
    from pe_cli.data.text_files import TextFiles

    labels: list[str | None]
    if options.files is not None:
        paths = find_files(options.files, origin)
        labels, names = [None] * len(paths), [str(path) for path in paths]
    else:
        assert options.folder is not None
        folder, found = _of_folder(options.folder, origin)
        labels, names = [label for label, _ in found], [name for _, name in found]
        paths = [origin.find(str((folder / name).absolute())) for name in names]
    files = TextFiles.read(paths, options.encoding, origin)
    if options.blocks is not None:
        return PieceTable(files, options, origin)
    return TextTable(files, options, labels, names, origin)


class TextCells:
    """A column of texts; see `pe_cli.data.raw_cells.Cells`.

    Args:
        name: of the column.
        strings: one text per row.
    """

    def __init__(self, name: str, strings: Strings) -> None:
        self.name = name
        self._strings = strings

    def __len__(self) -> int:
        return len(self._strings)

    def strings(self) -> Strings:
        """Return the column."""
        return self._strings

    def text(self, row: int) -> str:
        """Return a text."""
        return self._strings[row]

    def array(self) -> Array | None:
        """Return None: these are texts."""
        return None

    @cached_property
    def _values(self) -> ListCells:
        return ListCells(self.name, [self._strings[row] for row in range(len(self))])

    def numbers(self, notation: Notation = PLAIN) -> Numbers:
        """Return the texts that are numbers."""
        return self._values.numbers(notation)

    def codes(self) -> Codes:
        """Return codes of equal texts."""
        return self._values.codes()


class TextTable:
    """Texts in rows; see `pe_cli.data.raw_cells.Table`.

    Args:
        files: hold them.
        options: of the reader.
        labels: of every file; all None where there are none.
        names: of every file, as its cells show them.
        origin: gives errors their place.
    """

    def __init__(
        self, files: TextFiles, options: TextOptions, labels: Sequence[str | None], names: Sequence[str], origin: Origin
    ) -> None:
        self._files, self._origin = files, origin
        whole = options.per == "file"
        strings, counts = (files.files(), np.ones(len(names), np.int64)) if whole else files.lines()
        self._first, self._rows = window(len(strings), options, origin)
        self._strings = part(strings, self._first, self._rows)
        self._ends = np.cumsum(counts)
        self._whole = whole
        columns: dict[str, list[str]] = {}
        of = np.searchsorted(self._ends, np.arange(self._first, self._first + self._rows), side="right")
        if labels[0] is not None:
            columns[LABEL] = [str(labels[file]) for file in of.tolist()]
        if whole:
            # By the number of lines before each file.
            columns[FILE] = [names[file] for file in of.tolist()]
        # a class may well be called NA: what a folder is called is never missing
        self._others = {name: ListCells(name, values, missing=()) for name, values in columns.items()}
        self.implied: Mapping[str, Mapping[str, Any]] = {
            TEXT: {"type": "text"},
            **({LABEL: {"type": "category"}} if LABEL in columns else {}),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (TEXT, *self._others)

    def __len__(self) -> int:
        return self._rows

    def cells(self, name: str) -> Cells:
        """Return a column; see `Table.cells`."""
        if name != TEXT:
            return self._others[name]
        self._files.unchanged()
        return TextCells(TEXT, self._strings)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Do nothing: texts are found when the files are opened."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a row."""
        row += self._first
        file = int(np.searchsorted(self._ends, row, side="right"))
        before = int(self._ends[file - 1]) if file else 0
        start = int(self._files.bounds[file]) if self._whole else self._files.line_start(file, row - before)
        return self._files.error_at(start, f"column '{name}': {message}", hint)


class PieceTable:
    """A long text in pieces, which become blocks once its tokens are known; see `pe_cli.data.raw_cells.Table`.

    Args:
        files: hold it.
        options: of the reader.
        origin: gives errors their place.

    Attributes:
        length: tokens of a block.
        contiguous: neighbouring rows belong together, so that a split cuts by position unless it is told otherwise.
    """

    contiguous = True

    def __init__(self, files: TextFiles, options: TextOptions, origin: Origin) -> None:
        assert options.blocks is not None
        self._files, self._origin = files, origin
        self.length, self._stride = options.blocks, options.stride or options.blocks
        offsets = files.pieces()
        self._first, self._rows = window(len(offsets) - 1, options, origin)
        self._strings = part(Strings(files.buffer, offsets), self._first, self._rows)
        self.implied: Mapping[str, Mapping[str, Any]] = {
            TOKENS: {"type": "blocks"},
            NEXT: {"type": "blocks", "of": TOKENS, "shift": 1},
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the column of pieces."""
        return (TEXT,)

    def __len__(self) -> int:
        return self._rows

    def cells(self, name: str) -> Cells:
        """Return the pieces."""
        self._files.unchanged()
        return TextCells(name, self._strings)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Do nothing: the text is there."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a piece."""
        return self._files.error_at(int(self._strings.offsets[row]), f"column '{name}': {message}", hint)

    def regroup(self, rows: Rows | None, fitted: Fitted) -> tuple[Table, Rows | None]:
        """Return a table whose rows are blocks of some pieces, all of which are samples.

        Args:
            rows: int64, sorted; all pieces when None.
            fitted: has a column of blocks with its tokens.

        Raises:
            PeError: DATA; there are too few tokens for a block, or no column of blocks.
        """
        from pe_cli.data.token_blocks import cut_blocks
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        state = next((c.state["tokens"] for c in fitted.columns.values() if c.type == "blocks" and "tokens" in c.state), None)
        if state is None:
            raise self._origin.error("no column of type blocks says how the text is cut into tokens", "leave the column tokens as it is")
        self._files.unchanged()
        breaks = np.searchsorted(self._strings.offsets, self._files.bounds).clip(0, self._rows)
        tokens = open_tokens(state, template=False)
        return cut_blocks(TEXT, self._strings, breaks, rows, tokens, self.length, self._stride, self._origin), None


def window(total: int, options: ReaderOptions, origin: Origin) -> tuple[int, int]:
    """Return the first row and the number of rows that `skip` and `limit` leave.

    Raises:
        PeError: DATA; none.
    """
    if options.skip >= total:
        raise origin.error(f"skip: {options.skip} leaves none of {total} rows", "skip fewer")
    left = total - options.skip
    return options.skip, left if options.limit is None else min(left, options.limit)


def part(strings: Strings, first: int, rows: int) -> Strings:
    """Return some neighbouring texts."""
    return Strings(strings.bytes, np.ascontiguousarray(strings.offsets[first : first + rows + 1]))


def _of_folder(name: str, origin: Origin) -> tuple[Path, list[tuple[str | None, str]]]:
    """Return a folder, and class and path of every file in it, sorted by path.

    Raises:
        PeError: DATA; there is no such folder, it is empty, or files lie beside folders of classes.
    """
    folder = origin.base / os.path.expanduser(name)  # noqa: PTH111 - Path's raises where there is no such user
    if not folder.is_dir():
        if folder.exists():
            raise origin.error(f"{folder} is a file, not a folder", f"files: {name} takes single files")
        close = did_you_mean(folder.name, sorted(e.name for e in folder.parent.iterdir())) if folder.parent.is_dir() else None
        raise origin.error(
            f"there is no folder {folder}", close or f"relative paths start at the config file's folder, {origin.base.absolute()}"
        )
    found = sorted(files_in(folder, origin, linked=False))
    if not found:
        raise origin.error(f"{folder} has no files", "name the folder that holds the folders of the classes")
    labels = [path.split("/", 1)[0] if "/" in path else None for path in found]
    classes = sorted({label for label in labels if label is not None})
    if not classes:
        return folder, [(None, path) for path in found]
    if None in labels:
        raise origin.error(
            f"{folder / found[labels.index(None)]} lies beside folders of classes ({', '.join(classes[:5])}), so it has no class",
            "move it into one of them, or name one folder",
        )
    return folder, list(zip(labels, found, strict=True))
