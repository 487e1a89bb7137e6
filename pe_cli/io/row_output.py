"""Rows of named values as a table: CSV or JSON lines, to a file or to standard output."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.io import atomic, strict_json

#: A function that writes a block of rows: name -> one value per row.
Write = Callable[[Mapping[str, Sequence[Any]]], None]


def _csv_lines(rows: Mapping[str, Sequence[Any]], first: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if first:
        writer.writerow(rows)
    writer.writerows([_cell(value) for value in row] for row in zip(*rows.values(), strict=True))
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return the text of a cell: JSON for lists, nothing for None."""
    if isinstance(value, list):
        return strict_json.dumps(value)
    return "" if value is None else value


def _json_lines(rows: Mapping[str, Sequence[Any]], first: bool) -> str:
    return "".join(strict_json.dumps(dict(zip(rows, row, strict=True))) + "\n" for row in zip(*rows.values(), strict=True))


_FORMS = {".csv": _csv_lines, ".jsonl": _json_lines}


@contextlib.contextmanager
def row_writer(path: Path | None) -> Iterator[Write]:
    """Give what writes rows; a file appears whole, when the block ends well.

    Args:
        path: *.csv or *.jsonl, its folder is created where missing; None writes CSV to standard output.

    Raises:
        PeError: USAGE, an unknown suffix or a folder that can't be written; DEVICE, the disk is full or failed.
    """
    if path is None:
        yield _to(sys.stdout.write, _csv_lines)
        sys.stdout.flush()
        return
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        hint = did_you_mean(path.suffix, _FORMS) or "one of .csv, .jsonl, or .npz with --raw"
        raise PeError(f"cannot write rows to {path}: unknown suffix '{path.suffix}'", hint=hint)
    atomic.make_folder(path.parent)
    with atomic.temporary(path) as draft:
        try:
            with draft.open("w", encoding="utf-8", newline="") as file:
                yield _to(file.write, form)
        except OSError as error:
            raise atomic.write_error(error, path) from None


def _to(write: Callable[[str], object], form: Callable[[Mapping[str, Sequence[Any]], bool], str]) -> Write:
    first = True

    def rows(values: Mapping[str, Sequence[Any]]) -> None:
        nonlocal first
        write(form(values, first))
        first = False

    return rows
