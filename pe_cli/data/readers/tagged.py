"""Texts of which every word has a tag: CoNLL files, and JSON lines with spans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pe_cli.config.sections.value_types import Name
from pe_cli.core import json_reading
from pe_cli.core.errors import PeError
from pe_cli.data.annotations.things import content
from pe_cli.data.raw_cells import ListTable, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.tables.file_patterns import find_files

WORDS, TAGS = "words", "tags"
#: Words of a text with spans: letters and digits together, and every other sign alone.
_WORD = re.compile(r"\w+|[^\w\s]")
#: Keys of spans, and of the parts of one that is a mapping.
_SPANS, _PARTS = ("label", "labels", "spans", "entities"), (("start", "start_offset"), ("end", "end_offset"), ("label", "tag", "type"))
_OUTSIDE = "O"
Place = Annotated[int, Field(strict=True, ge=-64, le=63)]


class TaggedOptions(ReaderOptions):
    """Options of the tagged reader."""

    files: Name | Annotated[list[Name], Field(min_length=1)] = Field(description="a file, or a pattern; or a list of them")
    format: Literal["auto", "conll", "conllu", "spans"] = Field(
        "auto", description="auto: spans where a file begins with { or [, conllu where lines have ten columns and begin with a number"
    )
    word: Place | None = Field(None, description="column of the words in CoNLL files, from 0; the first, of conllu the second, when absent")
    tag: Place | None = Field(None, description="column of the tags; the last, of conllu the fourth (UPOS), when absent")


@reader("tagged", TaggedOptions)
def open_tagged(options: TaggedOptions, origin: Origin) -> Table:
    """Read sentences whose words have tags: a row per sentence, with the columns `words` and `tags`, both with blanks between items.

    CoNLL files have a line per word, its columns with tabs or blanks between, and an empty line behind each sentence; lines that begin
    with `#` and `-DOCSTART-` are left out. Spans are JSON lines, or one JSON list, of {"text": ..., "label": [[start, end, tag], ...]}:
    the first word of a span gets `B-tag`, its others `I-tag`, and words outside `O`. A blank inside of a word becomes `_`.

    Raises:
        PeError: DATA; a line has fewer columns than the others, or a span lies outside of its text or over another one.
    """
    rows: list[tuple[list[str], list[str]]] = []
    for path in find_files(options.files, origin):
        try:
            text = content(path, origin).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise origin.error(f"{path} is no UTF-8 text: byte {error.start + 1}", "convert it: iconv -f latin1 -t utf-8") from None
        kind = _kind(text) if options.format == "auto" else options.format
        rows += _spans(text, path, origin) if kind == "spans" else _conll(text, kind, options, path, origin)
    rows = rows[options.skip :][: options.limit]
    if not rows:
        raise origin.error(f"no sentence is left in {options.files}", "skip fewer, or check the files")
    columns = {WORDS: [" ".join(words) for words, _ in rows], TAGS: [" ".join(tags) for _, tags in rows]}
    made = ListTable(columns, origin, missing=())
    made.implied = {name: {"type": "sequence", "items": "category"} for name in columns}
    return made


def _kind(text: str) -> str:
    if text.lstrip()[:1] in ("{", "["):
        return "spans"
    lines = [line.split("\t") for line in text.splitlines()[:200] if line.strip() and not line.startswith("#")]
    return "conllu" if lines and all(len(cells) == 10 and cells[0][:1].isdigit() for cells in lines) else "conll"


# --- a line per word --------------------------------------------------------------------------------------------------


def _conll(text: str, kind: str, options: TaggedOptions, path: Path, origin: Origin) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words and the tags of every sentence.

    Raises:
        PeError: DATA; a line has another number of columns than the first one.
    """
    word, tag = (1, 3) if kind == "conllu" else (0, -1)
    word, tag = options.word if options.word is not None else word, options.tag if options.tag is not None else tag
    words: list[str] = []
    tags: list[str] = []
    width = 0
    for i, line in enumerate(_lines(text)):
        if not line.strip():
            if words:
                yield words, tags
                words, tags = [], []
            continue
        if line.startswith(("# ", "#\t", "-DOCSTART-")) or line == "#":
            continue
        cells = line.rstrip().split("\t") if "\t" in line else line.split()
        width = width or len(cells)
        if len(cells) != width or width < 2:
            said = f"{path}, line {i + 1} has {len(cells)} column{'s' * (len(cells) != 1)}, and " + (
                f"lines before it have {width}" if width > 1 else "it needs a word and a tag"
            )
            raise origin.error(said, "columns have tabs or blanks between them, and an empty line ends a sentence")
        if not (-width <= word < width and -width <= tag < width):
            said = f"{path} has {width} columns, and word: {word} and tag: {tag} name others"
            raise origin.error(said, "count from 0, or from -1 backwards")
        if kind == "conllu" and not cells[0].isdigit():  # words that stand for several, and words that are left out
            continue
        words.append("_".join(cells[word].split()) or "_")
        tags.append("_".join(cells[tag].split()) or "_")
    if words:
        yield words, tags


# --- spans ------------------------------------------------------------------------------------------------------------


def _spans(text: str, path: Path, origin: Origin) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words and the tags of every text.

    Raises:
        PeError: DATA; a line is no JSON of such a form, or a span lies outside of its text or over another one.
    """
    for where, value in _values(text, path, origin):
        found = next((value[key] for key in _SPANS if isinstance(value.get(key), list)), None) if isinstance(value, dict) else None
        if found is None or not isinstance(value.get("text"), str):
            raise origin.error(f"{where}: no text with spans", 'such as {"text": "Anna lives here", "label": [[0, 4, "PER"]]}')
        words = [(one.start(), one.end(), one[0]) for one in _WORD.finditer(value["text"])]
        if not words:
            continue
        tags = [_OUTSIDE] * len(words)
        for span in found:
            start, end, tag = _span(span, len(value["text"]), where, origin)
            inside = [i for i, (first, last, _) in enumerate(words) if first < end and last > start]
            if any(tags[i] != _OUTSIDE for i in inside):
                raise origin.error(f"{where}: the span {start} to {end} lies over another one", "a word has one tag: take one of them out")
            for i in inside:
                tags[i] = f"{'B' if i == inside[0] else 'I'}-{tag}"
        yield [word for _, _, word in words], tags


def _values(text: str, path: Path, origin: Origin) -> Iterator[tuple[str, Any]]:
    try:
        if text.lstrip().startswith("["):
            for i, value in enumerate(json_reading.loads(text)):
                yield f"{path}, text {i + 1}", value
            return
    except ValueError as error:
        raise origin.error(f"{path} is no JSON: {error}", "export it again") from None
    for i, line in enumerate(_lines(text)):
        if line.strip():
            try:
                value = json_reading.loads(line)
            except ValueError as error:
                raise origin.error(f"{path}, line {i + 1} is no JSON: {error}", "one object per line") from None
            yield f"{path}, line {i + 1}", value


def _lines(text: str) -> list[str]:
    """Return the lines of a file: JSON and CoNLL allow what Python takes for further ends of a line, such as U+2028, inside of one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _span(span: object, size: int, where: str, origin: Origin) -> tuple[int, int, str]:
    """Return where a span begins and ends, in characters, and its tag.

    Raises:
        PeError: DATA; it has another form, or lies outside of the text.
    """
    parts: Sequence[object] = ()
    if isinstance(span, dict):
        parts = [next((span[key] for key in keys if key in span), None) for keys in _PARTS]
    elif isinstance(span, list) and len(span) == 3:
        parts = span
    places = [part for part in parts[:2] if isinstance(part, int) and not isinstance(part, bool)]
    if len(parts) != 3 or len(places) != 2 or not isinstance(parts[2], str):
        raise _wrong(f"{where}: {str(span)[:60]} is no span: [start, end, tag]", origin)
    start, end = places
    if not 0 <= start < end <= size:
        raise _wrong(f"{where}: the span {start} to {end} lies outside of its text of {size} characters", origin)
    return start, end, "_".join(parts[2].split()) or "_"


def _wrong(message: str, origin: Origin) -> PeError:
    return origin.error(message, "spans count characters from 0, and the end is that of the first character behind")
