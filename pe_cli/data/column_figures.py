"""Figures of columns and fields: what `pe data` tells of each, over the training rows, computed from raw cells."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.survey_figures import ClassShare, ColumnFacts, Figures
from pe_cli.data.column import Context
from pe_cli.data.columns.bag import items_of_cell
from pe_cli.data.dataset import Dataset, sequence_fields
from pe_cli.data.date_forms import parse
from pe_cli.data.fields import Rows
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import Cells, Codes, Strings, Table
from pe_cli.ops.define.lod import offsets_name

#: How many classes and texts of a column are listed.
MOST_CLASSES, MOST_TEXTS = 10, 3
#: Characters of a long text that are shown.
MOST_CHARACTERS = 300
#: Bytes of an array that are read at a time.
STEP = 1 << 24
#: Distinct integers of an array up to which they are listed as classes.
WHOLE = 1000


@dataclass(frozen=True)
class Part:
    """Rows of a table that are for something.

    Args:
        use: train, eval, ...
        table: the rows.
        rows: int64, those of the part; all when None.
    """

    use: str
    table: Table
    rows: Rows | None

    @property
    def chosen(self) -> Rows:
        """The rows of the part, int64."""
        return np.arange(len(self.table), dtype=np.int64) if self.rows is None else self.rows


# --- figures ----------------------------------------------------------------------------------------------------------


def figures(values: NDArray[Any]) -> Figures | None:
    """Return least, greatest, mean and deviation of the numbers that are not missing; None where there is none."""
    found = np.asarray(values, np.float64)
    found = found[np.isfinite(found)]
    if not found.size:
        return None
    return Figures(float(found.min()), float(found.max()), float(found.mean()), float(found.std()))


def shares(codes: Codes, rows: Rows, most: int | None = MOST_CLASSES) -> tuple[tuple[ClassShare, ...], int]:
    """Return the most frequent texts of some rows, and the number of all different ones there."""
    used = codes.codes[rows]
    counts = np.bincount(used[used >= 0], minlength=len(codes.words))
    return _most(dict(zip(codes.words, counts.tolist(), strict=True)), most)


def _most(counts: Mapping[str, int], most: int | None) -> tuple[tuple[ClassShare, ...], int]:
    there = [(name, count) for name, count in counts.items() if count]
    ordered = sorted(there, key=lambda pair: (-pair[1], pair[0]))
    return tuple(ClassShare(name, count) for name, count in ordered[:most]), len(there)


def characters(strings: Strings) -> NDArray[np.int64]:
    """Return the number of characters of every text, int64 [texts]."""
    starts = np.append(0, np.cumsum((strings.bytes & 0xC0) != 0x80))  # bytes that do not go on with a character
    found: NDArray[np.int64] = np.diff(starts[strings.offsets]).astype(np.int64)
    return found


def longest(strings: Strings, rows: Rows, lengths: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the longest of some texts, shortened, the longest first; equal ones once."""
    order = rows[np.argsort(-lengths[rows], kind="stable")[: 10 * MOST_TEXTS]]
    texts = dict.fromkeys(strings[int(row)] for row in order if lengths[row])
    return tuple(cut(text) for text in list(texts)[:MOST_TEXTS])


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text in one line, not longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 3]}..."


# --- columns of tables ------------------------------------------------------------------------------------------------

#: (facts so far, its cells in training, the parts, what it learned) -> the facts of a type.
Teller = Callable[[ColumnFacts, str, Sequence[Part], FittedColumn | None], ColumnFacts]


def column_facts(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    """Return facts of a column with the figures that its type has.

    Args:
        facts: name, type and use.
        source: column of the table.
        parts: the training part first.
        fitted: what it learned; None where it has not learned, or is not used.
    """
    cells = parts[0].table.cells(source)
    if cells.array() is not None:
        return _array(facts, source, parts)
    return _TELLERS.get(facts.type, _plain)(facts, source, parts, fitted)


def _missing(source: str, parts: Sequence[Part], empty: Callable[[Cells, Rows], int]) -> dict[str, int]:
    found = {part.use: empty(part.table.cells(source), part.chosen) for part in parts if source in part.table.names}
    return {use: count for use, count in found.items() if count}


def _empty(cells: Cells, rows: Rows) -> int:
    return int((cells.codes().codes[rows] < 0).sum())


def _gaps(cells: Cells, rows: Rows, notation: Notation = PLAIN) -> int:
    numbers = cells.numbers(notation)
    # where some cells are neither numbers nor missing, NaN stands for both
    return _empty(cells, rows) if numbers.bad_count else int(np.isnan(numbers.values[rows]).sum())


def _number(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    train = parts[0]
    cells = train.table.cells(source)
    notation = PLAIN if fitted is None else fitted.kind.notation(fitted.checked)
    numbers = cells.numbers(notation)
    note = facts.note
    if numbers.bad_count:
        row = int(numbers.bad[0])
        what = "1 cell is no number:" if numbers.bad_count == 1 else f"{numbers.bad_count:,} cells are no numbers, such as"
        note = f"{what} '{cut(cells.text(row), 30)}' in row {row + 1}"
    gaps = functools.partial(_gaps, notation=notation)
    return replace(facts, figures=figures(numbers.values[train.chosen]), missing=_missing(source, parts, gaps), note=note)


def _meant(facts: ColumnFacts) -> dict[str, str]:
    """Return the texts that stand for a class, by the column's declaration -> that class."""
    return {word: name for name, words in facts.options.get("spellings", {}).items() for word in words}


def _category(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    train = parts[0]
    meant = _meant(facts)
    classes, count = shares(train.table.cells(source).codes().merged(meant), train.chosen)
    unknown: dict[str, int] = {}
    if fitted is not None and "classes" in fitted.state:
        known = frozenset([*fitted.state["classes"], *meant])
        for part in parts:
            if source in part.table.names:
                codes = part.table.cells(source).codes()
                strange = np.array([word not in known for word in codes.words] + [False])
                unknown[part.use] = int(strange[codes.codes[part.chosen]].sum())
    return replace(
        facts, classes=classes, class_count=count, missing=_missing(source, parts, _empty),
        unknown={use: number for use, number in unknown.items() if number},
    )  # fmt: skip


def _date(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    train = parts[0]
    codes = train.table.cells(source).codes()
    used = np.unique(codes.codes[train.chosen])
    note, first, last = facts.note, "", ""
    try:
        moments = sorted(parse(codes.words[code], facts.options.get("format")) for code in used.tolist() if code >= 0)
    except ValueError as error:
        moments, note = [], str(error)
    if moments:
        first, last = (one.isoformat(" ").removesuffix("+00:00").removesuffix(" 00:00:00") for one in (moments[0], moments[-1]))
    return replace(facts, first=first, last=last, note=note, missing=_missing(source, parts, _empty))


def _items(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    """Tell a column with several items in a cell."""
    train = parts[0]
    codes = train.table.cells(source).codes()
    separator = facts.options.get("separator", "|" if facts.type == "bag" else None)
    meant = _meant(facts)
    split = [[meant.get(item, item) for item in items_of_cell(word, separator, facts.options.get("format"))] for word in codes.words]
    used = codes.codes[train.chosen]
    times = np.bincount(used[used >= 0], minlength=len(split))
    lengths = np.array([len(items) for items in split] + [0])[used]
    made = replace(facts, figures=figures(lengths), unit="items", missing=_missing(source, parts, _empty))
    if facts.type == "sequence" and facts.options.get("items", "number") == "number":
        return made
    counts: dict[str, int] = {}
    for items, number in zip(split, times.tolist(), strict=True):
        for item in dict.fromkeys(items):
            counts[item] = counts.get(item, 0) + number
    classes, count = _most(counts, MOST_CLASSES)
    return replace(made, classes=classes, class_count=count)


def _text(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    train = parts[0]
    strings = train.table.cells(source).strings()
    lengths = characters(strings)
    made = replace(
        facts, figures=figures(lengths[train.chosen]), unit="characters", longest=longest(strings, train.chosen, lengths),
        missing={part.use: count for part in parts if (count := _no_text(part, source))},
    )  # fmt: skip
    return made if fitted is None or "tokens" not in fitted.state else _tokens(made, source, parts, fitted)


def _blocks(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    """Tell a text that is cut into blocks: how long it is, and what its tokens are."""
    if "of" in facts.options:
        return replace(facts, note=f"the token behind each of {facts.options['of']}")
    strings = parts[0].table.cells(source).strings()
    notes = [f"{int(characters(strings)[parts[0].chosen].sum()):,} characters"]
    if fitted is not None and "tokens" in fitted.state:
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        notes.append(f"{open_tokens(fitted.state['tokens']).size:,} different tokens")
    return replace(facts, note="; ".join(notes))


def _no_text(part: Part, source: str) -> int:
    if source not in part.table.names:
        return 0
    return int((np.diff(part.table.cells(source).strings().offsets)[part.chosen] == 0).sum())


def _tokens(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn) -> ColumnFacts:
    """Count tokens instead of characters, and those that training never saw."""
    from pe_cli.data.tokens.tokenizer_kinds import open_tokens

    tokens = open_tokens(fitted.state["tokens"])
    unknown: dict[str, int] = {}
    lengths: NDArray[np.int64] | None = None
    for part in parts:
        if source in part.table.names:
            found = tokens.encode_many(part.table.cells(source).strings(), part.rows)
            lengths = np.diff(found.offsets) if lengths is None else lengths
            unknown[part.use] = found.unknown
    assert lengths is not None
    said = f"{tokens.size:,} different tokens" + (f"; {facts.note}" if facts.note else "")
    return replace(
        facts,
        figures=figures(lengths),
        unit="tokens",
        unknown={use: number for use, number in unknown.items() if number},
        note=said,
    )


def _image(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    from pe_cli.data.pictures.decode import Recipe
    from pe_cli.data.pictures.sources import Files

    train = parts[0]
    folder = getattr(train.table, "folder", None)
    if folder is None or facts.options.get("folder"):
        return replace(facts, missing=_missing(source, parts, _empty))
    try:
        files = Files(Context(train.table, source, False, None), source, folder, Recipe(None))
        survey = files.survey(train.rows, "skip")
    except PeError as error:
        return replace(facts, note=error.message)
    usable = train.chosen[survey.usable[train.chosen]]
    sizes = survey.sizes[usable]
    broken = len(train.chosen) - len(usable)
    notes = [f"{broken:,} cannot be read"] if broken else []
    if len(sizes):
        low, high = sizes.min(axis=0), sizes.max(axis=0)
        span = f"{low[0]} x {low[1]}" + (f" to {high[0]} x {high[1]}" if (low != high).any() else "")
        notes.insert(0, f"{span} pixels (height x width)")
    notes += [f"{count:,} {sentence}" for sentence, count in sorted(survey.notes.items())]
    return replace(facts, note="; ".join(notes), missing=_missing(source, parts, _empty))


def _mask(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    from pe_cli.data.columns.mask import pixel_shares

    context = Context(parts[0].table, source)
    note = pixel_shares(fitted.checked, fitted.state, context, parts[0].chosen) if fitted is not None else ""  # type: ignore[arg-type]
    return replace(facts, note=note, missing=_missing(source, parts, _empty))


def _plain(facts: ColumnFacts, source: str, parts: Sequence[Part], fitted: FittedColumn | None) -> ColumnFacts:
    """Tell a column by its cells: numbers where they are, else texts that repeat, else texts."""
    cells = parts[0].table.cells(source)
    numbers = cells.numbers()
    if not numbers.bad_count and np.isfinite(numbers.values).any():
        return _number(replace(facts, type="number"), source, parts, None)
    codes = cells.codes()
    if len(codes.words) * 2 > max(1, int((codes.codes >= 0).sum())):
        return _text(replace(facts, type="text", note=_own(codes)), source, parts, None)
    return _category(replace(facts, type="category"), source, parts, None)


def _own(codes: Codes) -> str:
    return "another text in every row" if len(codes.words) == int((codes.codes >= 0).sum()) else ""


_TELLERS: dict[str, Teller] = {
    "number": _number, "vector": _number, "category": _category, "bool": _category, "date": _date, "bag": _items,
    "sequence": _items, "text": _text, "blocks": _blocks, "image": _image, "mask": _mask,
}  # fmt: skip


# --- fields of arrays -------------------------------------------------------------------------------------------------


def _array(facts: ColumnFacts, source: str, parts: Sequence[Part]) -> ColumnFacts:
    """Tell a column whose cells are arrays."""
    train = parts[0]
    values = train.table.cells(source).array()
    assert values is not None
    rows = train.chosen
    step = max(1, STEP // max(1, values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))))
    found = _Moments()
    for start in range(0, len(rows), step):
        found.add(values[rows[start : start + step]])
    return found.told(facts)


def field_facts(facts: ColumnFacts, dataset: Dataset) -> ColumnFacts:
    """Return facts of a field of a data set of arrays, with its figures."""
    kind = dataset.fields[facts.name]
    sequences = facts.name in sequence_fields(dataset)
    found, lengths = _Moments(), []
    step = max(1, STEP // max(1, sum(field.nbytes for field in dataset.fields.values())))
    for start in range(0, len(dataset), step):
        batch = dataset.take(np.arange(start, min(start + step, len(dataset)), dtype=np.int64))
        found.add(batch[facts.name])
        if sequences:
            lengths.append(np.diff(batch[offsets_name(facts.name, 0)]))
    made = found.told(replace(facts, kind=f"{kind}{' in sequences' if sequences else ''}"), kind.size == 1 and not sequences)
    if not sequences:
        return made
    value = made.figures
    said = f"values {value.low:.6g} to {value.high:.6g}" if value else ""
    return replace(made, figures=figures(np.concatenate(lengths)), unit="items", note=said)


class _Moments:
    """Figures of an array that is read in parts, and its classes while it has few whole numbers."""

    def __init__(self) -> None:
        self.low, self.high, self.count, self.total, self.square = np.inf, -np.inf, 0, 0.0, 0.0
        self.shift: float | None = None
        self.classes: dict[int, int] | None = {}
        self.gaps = 0

    def add(self, part: NDArray[Any]) -> None:
        """Take samples along."""
        if self.classes is not None:
            self._classes(part)
        values = np.asarray(part, np.float64).reshape(-1)
        there = values[np.isfinite(values)]
        self.gaps += len(values) - len(there)
        if not len(there):
            return
        # sums of distances from a value near the mean keep their digits
        self.shift = float(there.mean()) if self.shift is None else self.shift
        apart = there - self.shift
        self.count += len(there)
        self.total += float(apart.sum())
        self.square += float((apart * apart).sum())
        self.low, self.high = min(self.low, float(there.min())), max(self.high, float(there.max()))

    def _classes(self, part: NDArray[Any]) -> None:
        if part.dtype.kind not in "iub" or (part.ndim > 1 and np.prod(part.shape[1:]) != 1):
            self.classes = None
            return
        assert self.classes is not None
        for value, count in zip(*np.unique(part, return_counts=True), strict=True):
            self.classes[int(value)] = self.classes.get(int(value), 0) + int(count)
        if len(self.classes) > WHOLE:
            self.classes = None

    def told(self, facts: ColumnFacts, classes: bool = True) -> ColumnFacts:
        """Return facts of a column with the figures, missing cells and classes that were counted."""
        if not self.count:
            return facts
        mean = self.total / self.count
        deviation = max(0.0, self.square / self.count - mean * mean) ** 0.5
        made = replace(facts, figures=Figures(self.low, self.high, mean + (self.shift or 0.0), deviation))
        made = replace(made, missing={"train": self.gaps}) if self.gaps else made
        if self.classes and classes:
            shown, count = _most({str(value): number for value, number in sorted(self.classes.items())}, MOST_CLASSES)
            made = replace(made, classes=shown, class_count=count)
        return made
