"""Reads the rows in a request's body: they are counted first, so that parsing takes no more memory than is allowed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pe_cli.core import json_reading
from pe_cli.core.flat_objects import Twice, flattened
from pe_cli.core.json_size import count
from pe_cli.data.pictures.decode import of_bytes
from pe_cli.data.pictures.picture_checks import TooLarge, Unreadable
from pe_cli.session.evaluation.predictor import Predictor, Row
from pe_cli.session.http.replies import Refusal

#: Rows of a request, columns of a row beyond those of the model, and lists and objects in one another, at most.
MOST_ROWS, SPARE, DEEPEST = 10_000, 1000, 8
#: Bytes up to which a body is small: it may be read at once, and what its values take is bounded by its size.
SMALL = 64 << 10
#: Bytes that a value takes at most besides those of its text, and that a byte of text takes while it is made numbers of.
VALUE, TOKENS = 120, 24
#: Columns whose cells are cut into many items, those whose cells may be long, and characters of the cells of others.
TOKENISED = ("text", "sequence", "bag")
LONG, LONGEST = (*TOKENISED, "image"), 10_000


def needs(body: bytes | bytearray, predictor: Predictor) -> int:
    """Return the bytes that reading a body may take, besides itself.

    Raises:
        Refusal: it has more rows, columns or levels than a request may have.
    """
    # Counted before anything is parsed: parsed values take many times the memory of their text.
    found = count(body)
    if found.depth > DEEPEST:
        raise Refusal(400, f"lists and objects are nested {found.depth} deep: send {{\"rows\": [{{\"column\": cell, ...}}, ...]}}")
    if found.objects > MOST_ROWS + 1:
        raise Refusal(413, f"a request has {MOST_ROWS} rows at most, got {found.objects}")
    wide = len(predictor.columns) + SPARE
    if found.members > max(found.objects, 1) * wide:
        raise Refusal(413, f"a row has {wide} columns at most, and these have more")
    # Python keeps a text with as many bytes per letter as its widest letter needs.
    letters = 1 if body.isascii() else 2 if int(np.frombuffer(body, np.uint8).max()) < 0xF0 else 4
    tokens = TOKENS if any(column.type in TOKENISED for column in predictor.columns.values()) else 0
    # Text and its decoded copy, values, and what the columns of a row become, at most.
    return len(body) * (2 * letters + tokens) + found.values * VALUE + found.objects * predictor.bytes


def read_rows(kind: str, body: bytes | bytearray, predictor: Predictor) -> list[Row]:
    """Return the rows of a body of JSON or text.

    Raises:
        Refusal: it has none, or they have not the columns of the model.
    """
    if kind == "text/plain" and predictor.text is not None:
        return [{predictor.text: body.decode("utf-8", "replace")}]
    try:
        value = json_reading.parse(body.decode())
    except ValueError as error:
        raise Refusal(400, f"no JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("rows"), list):
        value = value["rows"]
    elif isinstance(value, dict) and set(value) == {"text"} and predictor.text is not None:
        value = [{predictor.text: value["text"]}]
    elif isinstance(value, dict):
        value = [value]
    if isinstance(value, list):
        try:
            value = [flattened(row) if isinstance(row, dict) else row for row in value]
        except Twice as twice:
            raise Refusal(400, f"two values of a row are called '{twice}': objects become columns with dots in their names") from None
    return _checked(value, predictor, len(body) > SMALL)


def _checked(value: object, predictor: Predictor, long: bool) -> list[Row]:
    """Return rows, where it is some, and not too many or too wide."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise Refusal(400, 'send {"rows": [{"column": cell, ...}, ...]}, or one row')
    if not value:
        raise Refusal(400, 'there is no row: send {"rows": [{"column": cell, ...}, ...]}')
    if len(value) > MOST_ROWS:
        raise Refusal(413, f"a request has {MOST_ROWS} rows at most, got {len(value)}")
    wide = len(predictor.columns) + SPARE
    if max(map(len, value)) > wide:
        raise Refusal(413, f"a row has {wide} columns at most, got {max(map(len, value))}")
    if long:
        _check_lengths(value, predictor)
    return value


def _check_lengths(rows: Sequence[Row], predictor: Predictor) -> None:
    for name, column in predictor.columns.items():
        if column.type in LONG:
            continue
        longest = max((len(cell) for row in rows if isinstance(cell := row.get(name), str)), default=0)
        if longest > LONGEST:
            raise Refusal(413, f"column '{name}': a cell has {LONGEST:,} characters at most, got {longest:,}")


# A misspelt column would be taken for a missing one: names that no column has are told with the answer.
def unread(rows: Sequence[Row], columns: Collection[str]) -> list[str]:
    """Return the columns of rows that a model does not read."""
    names = set[str]().union(*rows)
    # As many names as columns are mostly the columns: nothing is sorted for an ordinary request.
    return sorted(names.difference(columns)) if len(names) > len(columns) else []


def with_pixels(rows: Sequence[Row], predictor: Predictor, memory: int) -> tuple[list[Row], list[str]]:
    """Return rows with each picture replaced by its pixels, and notes on what was done to pictures.

    Args:
        rows: with pictures as bytes, or as base64 text.
        predictor: whose columns they are.
        memory: bytes that decoding one may take.

    Raises:
        Refusal: a picture is too large, cut off, or none.
    """
    names = [name for name, column in predictor.columns.items() if column.type == "image"]
    notes: dict[str, int] = {}
    found: list[Row] = []
    for number, row in enumerate(rows, 1):
        pixels: dict[str, Any] = {}
        for name in names:
            try:
                pixels[name], said = of_bytes(_content(row, name), predictor.recipe(name), memory)
            except TooLarge as error:
                raise Refusal(413, f"row {number}, column '{name}': the picture {error.broken.why}; send a smaller one") from None
            except Unreadable as error:
                why = f"row {number}, column '{name}': the picture {error.broken.why}"
                raise Refusal(400, f"{why}; send the bytes of a file, all of them") from None
            for text in said:
                notes[text] = notes.get(text, 0) + 1
        found.append({**row, **pixels})
    return found, [f"{times:,} pictures {text}" for text, times in sorted(notes.items())]


def _content(row: Row, name: str) -> bytes:
    cell = row.get(name)
    if isinstance(cell, bytes | bytearray):
        return bytes(cell)
    # A browser's file reader gives data URLs.
    text = cell.partition(",")[2] if isinstance(cell, str) and cell.startswith("data:") else cell
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise Refusal(400, f"column '{name}': a cell is the base64 text of a picture's file")
