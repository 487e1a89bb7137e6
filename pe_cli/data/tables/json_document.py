"""A JSON text that is one value, or objects over several lines: its objects become lines, a row each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.data.tables.text_source import Source, Spool

#: Bytes of a text that is read as a whole, at most.
MOST = 1 << 30
#: Items from which lists of equal length are columns, and no cells of one row.
COLUMN = 10
_BLANKS = " \t\n\r"
_LINES = "pandas writes lines: df.to_json(FILE, orient='records', lines=True)"


def is_document(source: Source) -> bool:
    """Return whether a text that begins with a bracket is to be read as a whole: a list, one object, or objects over several lines."""
    head = source.read(source.start, 1 << 20)
    text = head.decode("utf-8", "replace").lstrip(_BLANKS)
    if text.startswith("["):
        return True
    line, _, rest = text.partition("\n")
    if rest.strip() or source.start + len(head) < source.end:
        # Several lines are JSON lines, unless the first one ends in the middle of an object.
        return line.rstrip(_BLANKS)[-1:] in ("{", ",", "[", ":")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and (any(_is_rows(value) for value in found.values()) or _is_columns(found))


def lines_of(source: Source, spool: Spool, decoder: json.JSONDecoder) -> Source:
    """Return the objects of a document as lines in a spool.

    Args:
        source: its text.
        spool: takes the lines.
        decoder: of one value.

    Raises:
        PeError: DATA; it is no JSON, or has no list of objects.
    """
    if source.end - source.start > MOST:
        text = f"{source.path} is one JSON list of more than {MOST >> 30} GiB, which is read as a whole"
        raise source.origin.error(text, "write an object per line: jq -c '.[]' FILE > FILE.jsonl")
    data = source.read(source.start, source.end - source.start)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise source.error_at(source.start + error.start, f"{source.path} is not UTF-8 text: byte {data[error.start]:#04x}") from None
    start = spool.size
    for found, place in _rows(text, source, decoder):
        if not isinstance(found, dict):
            kind = {list: "list", str: "text", bool: "truth value", type(None): "null"}.get(type(found), "number")
            raise _error(source, text, place, f"a row is a {kind}, not an object", 'write each as {"name": value, ...}; ' + _LINES)
        spool.write((json.dumps(found, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"), source.path)
    if spool.size == start:
        raise source.origin.error(f"{source.path} is empty: it has no rows", "check what wrote it")
    return Source(source.path, source.origin, start, spool.size, spool, source.stamp)


def _rows(text: str, source: Source, decoder: json.JSONDecoder) -> Iterator[tuple[Any, int]]:
    """Yield the rows of a document, with the place of each."""
    at = _blank(text, 0)
    if text[at : at + 1] == "[":
        yield from _items(text, at + 1, source, decoder)
        return
    values = []
    while at < len(text):
        found, end = _value(text, at, source, decoder)
        values.append((found, at))
        at = _blank(text, end)
    if len(values) > 1:
        yield from values
        return
    outer = values[0][0]
    lists = [name for name, value in outer.items() if _is_rows(value)]
    if len(lists) == 1:
        yield from ((row, 0) for row in outer[lists[0]])
    elif lists:
        named = ", ".join(lists[:5])
        raise source.origin.error(
            f"{source.path} is one object with several lists of rows: {named}", f"take one out: jq -c '.{lists[0]}[]' FILE > FILE.jsonl"
        )
    elif _is_columns(outer):
        keys = ", ".join(list(outer)[:5])
        raise source.origin.error(f"{source.path} is one object of columns or parts ({keys}), and rows are objects", _LINES)
    else:
        yield outer, 0


def _items(text: str, at: int, source: Source, decoder: json.JSONDecoder) -> Iterator[tuple[Any, int]]:
    """Yield the items of a list, which begins before a place."""
    at = _blank(text, at)
    if text[at : at + 1] == "]":
        at += 1
    else:
        first = True
        while True:
            try:
                found, end = _value(text, at, source, decoder)
            except PeError:
                if first or not source.origin.is_cut:
                    raise
                return  # only the beginning of the file is looked at
            first = False
            yield found, at
            end = _blank(text, end)
            sign, at = text[end : end + 1], _blank(text, end + 1)
            if sign == "]":
                break
            if sign != ",":
                raise _error(source, text, end, "no JSON: expecting ',' or ']' behind an item of the list", "check what wrote it")
    if text[_blank(text, at) :]:
        raise _error(source, text, _blank(text, at), "no JSON: more stands behind the list", "one list has all rows")


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _is_columns(outer: dict[str, Any]) -> bool:
    """Return whether an object holds columns, as pandas writes them: lists or objects of one length, or a list of names beside `data`."""
    if {"columns", "data"} <= set(outer):
        return True
    sizes = {(type(value), len(value)) for value in outer.values() if isinstance(value, (list, dict))}
    return len(outer) > 1 and len(sizes) == 1 and all(isinstance(value, (list, dict)) and len(value) >= COLUMN for value in outer.values())


def _blank(text: str, at: int) -> int:
    """Return where something stands from a place on."""
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _value(text: str, at: int, source: Source, decoder: json.JSONDecoder) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _error(source, text, error.pos, f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}", "check what wrote it") from None
    except RecursionError:
        raise _error(source, text, at, "lists and objects are nested too deeply", "write the columns as plain values") from None
    except ValueError as error:
        hint = "name every key once, and write numbers below 1e308"
        raise _error(source, text, at, f"a row that cannot be read: {error}", hint) from None


def _error(source: Source, text: str, place: int, message: str, hint: str) -> PeError:
    return source.error_at(source.start + len(text[:place].encode("utf-8", "surrogatepass")), message, hint)
