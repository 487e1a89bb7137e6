"""Bags: several categories in one cell, in any order."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pe_cli.core.encoding import TEXT, Count, Lane, Source
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnType as ColumnTypeOf
from pe_cli.data.column import Context, State, column, selected
from pe_cli.data.columns.category import (
    CategoryState,
    SpelledOptions,
    fit_classes,
    lookup,
    lookup_steps,
    names_of,
    no_class,
)
from pe_cli.data.fields import ArrayField, Rows, SequenceField
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.raw_cells import Codes
from pe_cli.data.spill_storage import room


class BagOptions(SpelledOptions):
    """Options of bag columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    separator: Annotated[str, Field(strict=True, min_length=1)] = Field("|", description="text between the categories of a cell")
    format: Literal["separated", "list"] = Field(
        "separated",
        description='how a cell is written: separated, or list, as JSON and Python write one: `["a", "b"]`',
    )
    encode: Literal["multi_hot", "counts", "ids"] = Field(
        "multi_hot",
        description="multi_hot: 1 for every class that is there; counts: how often; ids: a sequence of indices, for an embedding",
    )

    @model_validator(mode="after")
    def _one_form(self) -> BagOptions:
        if self.format == "list" and "separator" in self.model_fields_set:
            raise ValueError("separator is of cells that are separated: leave it out, or format: list")
        return self

    def split(self, word: str) -> list[str]:
        """Return the categories of a cell.

        Raises:
            ValueError: it is no list, and `format` says so.
        """
        if self.format == "list":
            return items_of_list(word)
        return [part for part in (part.strip() for part in word.split(self.separator)) if part]

    def join(self, names: Sequence[str]) -> str:
        """Return a cell that has some categories."""
        return json.dumps(list(names), ensure_ascii=False) if self.format == "list" else self.separator.join(names)


@column
class Bag(ColumnTypeOf[BagOptions]):
    """Several categories per row, as `drama|war|history`. A missing cell is an empty bag.

    As the target of a model, each class has a probability of its own.

    With `encode: ids` a row is a sequence for a feed with lod_level: 1; an empty bag is the sequence of index 0 alone.
    """

    name = "bag"
    options = BagOptions
    learned = CategoryState
    view = "codes"

    def sources(self, name: str, options: BagOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: BagOptions, context: Context, rows: Rows | None) -> State:
        """Learn the classes."""
        found = context.table.cells(options.of or context.name).codes()
        codes = selected(found.codes, rows)
        times = np.bincount(codes[codes >= 0], minlength=len(found.words))
        counts: dict[str, int] = {}
        bags = _bags(options, context, found)
        for bag, number in zip(bags, times.tolist(), strict=True):
            # A class counts once for each row that has it.
            for name in dict.fromkeys(bag):
                counts[name] = counts.get(name, 0) + number
        state = fit_classes(options, context, list(counts), np.array(list(counts.values()), np.int64))
        # an empty bag of ids needs an index
        return state | ({"unknown": True} if options.encode == "ids" else {})

    def encode(self, options: BagOptions, state: State, context: Context) -> FieldOf:
        """Look the classes up."""
        source = options.of or context.name
        found = context.table.cells(source).codes()
        bags = _bags(options, context, found)
        names = list(dict.fromkeys(name for bag in bags for name in bag))
        table, unknown = lookup(state, names)
        if unknown:
            self._unknown(options, state, context, source, found.codes, bags, names[unknown[0]], len(unknown))
        index = dict(zip(names, table.tolist(), strict=True))
        ids = [[index[name] for name in bag] for bag in bags]
        # An empty bag has the index of unknown values: a sequence of no item has no length to pool over.
        if options.encode == "ids":
            return _sequences([bag or [0] for bag in ids] + [[0]], found.codes)
        # The last row stands for missing cells, and stays zeros.
        known = set(state["classes"])
        rows = np.zeros((len(bags) + 1, len(names_of(state))), np.float32)
        for i, (bag, named) in enumerate(zip(ids, bags, strict=True)):
            for position, name in zip(bag, named, strict=True):
                if name in known or state["unknown"]:
                    rows[i, position] += 1
        if options.encode == "multi_hot":
            np.minimum(rows, 1, out=rows)
        out = room((len(found.codes), rows.shape[1]), "float32", f"column '{context.name}'")
        # `wrap` lets the code -1 of a missing cell find the last row.
        np.take(rows, found.codes, axis=0, out=out, mode="wrap")
        return ArrayField(out, "float32")

    def _unknown(
        self,
        options: BagOptions,
        state: State,
        context: Context,
        source: str,
        codes: NDArray[np.int32],
        bags: list[list[str]],
        word: str,
        count: int,
    ) -> None:
        holds = np.array([word in bag for bag in bags] + [False])
        row = int(np.flatnonzero(holds[codes])[0])
        if not state["unknown"]:
            raise context.error(row, *no_class(state, word), name=source)
        values = f"{count:,} value{'s' * (count > 1)} of column '{context.name}'"
        context.notes.append(f"{values} with the index of unknown values: '{word}' in row {row + 1} is no class of the training rows")

    def cell(self, source: str, options: BagOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source
        unknown = "index" if state["unknown"] else "error"
        written = {"separator": options.separator} if options.format == "separated" else {"format": "list"}
        return {"classes": list(state["classes"]), **written, "unknown": unknown, "example": options.join(state["classes"][:2])}

    def classes(self, state: State) -> tuple[str, ...]:
        """Return the names of all indices."""
        return names_of(state)

    def several(self, options: BagOptions) -> bool:
        """Whether a cell may have any number of its classes: it may."""
        del options
        return True

    def join(self, options: BagOptions, names: Sequence[str]) -> str:
        """Return the cell that has some classes."""
        return options.join(names)

    def counts(self, options: BagOptions) -> bool:
        """Whether it says how often each class is in a cell."""
        return options.encode == "counts"

    def lanes(self, name: str, options: BagOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps, from cells that are split; see `ColumnType.lanes`."""
        source = options.of or name
        form = "a list" if options.format == "list" else f"split at '{options.separator}'"
        if options.encode == "ids":
            said = f"the categories of all cells, one below the other ({form}); an empty text for an empty cell"
            return (Lane(Source(source, TensorType((1,), TEXT), said, raw=False), tuple(options.spelled(lookup_steps(state, source, 0)))),)
        width = len(names_of(state))
        said = f"the categories of a cell ({form}), and empty texts up to the longest of the batch"
        steps = (*options.spelled(lookup_steps(state, source, width)), Count(width, options.encode == "multi_hot"))
        return (Lane(Source(source, TensorType((-1,), TEXT), said, raw=False), steps),)


def _bags(options: BagOptions, context: Context, found: Codes) -> list[list[str]]:
    """Return the categories of every distinct cell.

    Raises:
        PeError: DATA; one is no list.
    """
    bags = []
    for code, word in enumerate(found.words):
        try:
            bags.append(options.classes_of(options.split(word)))
        except ValueError:
            row = int(np.flatnonzero(found.codes == code)[0])
            hint = f"write [\"a\", \"b\"], or declare {context.name}: {{type: bag, separator: ...}}"
            raise context.error(row, f"'{word[:40]}' is no list", hint, options.of or context.name) from None
    return bags


def items_of_cell(word: str, separator: str | None, form: str | None) -> list[str]:
    """Return the items of a cell, for people to look at: of one that should be a list and is none, the whole."""
    if form == "list":
        try:
            return items_of_list(word)
        except ValueError:
            return [word]
    return [part for part in (part.strip() for part in word.split(separator)) if part]


def items_of_list(word: str) -> list[str]:
    """Return the items of a list as JSON and Python write it: of texts in quotes of either kind, numbers and plain words.

    Raises:
        ValueError: the text is no such list.

    >>> items_of_list('["a", "b c"]'), items_of_list("['a', 1, x]"), items_of_list("[]")
    (['a', 'b c'], ['a', '1', 'x'], [])
    """
    inside = word.strip()
    if inside[:1] + inside[-1:] not in ("[]", "()", "{}"):
        raise ValueError(word)
    inside, at = inside[1:-1].strip(), 0
    items: list[str] = []
    while at < len(inside):
        part = _ITEM.match(inside, at)
        if part is None:
            raise ValueError(word)
        items.append(_unquoted(part))
        at = part.end()
    return [item for item in items if item]


# Possessive quantifiers: a cell is text of a file and must not make the expression go back and forth for ever.
_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"',\[\]{}()\s][^"',\[\]{}()]*+)\s*+(?:,|$)""", re.DOTALL)


def _unquoted(part: re.Match[str]) -> str:
    text = part.group(1)
    if text[0] == '"':
        return str(json.loads(text, strict=False)).strip()
    return (re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] == "'" else text).strip()


def _sequences(bags: list[list[int]], codes: NDArray[np.int32]) -> SequenceField:
    """Return the bag of every row; the last one stands for a missing cell."""
    lengths = np.array([len(bag) for bag in bags], np.int64)
    distinct = SequenceField(
        np.concatenate([np.array(bag, np.int32) for bag in bags]).reshape(-1, 1), np.append(0, np.cumsum(lengths)), "int64"
    )
    rows = codes.astype(np.int64) % len(bags)
    values, offsets = distinct.take(rows)
    return SequenceField(values.astype(np.int32), offsets, "int64")
