"""Categories: a cell is one of some texts, and becomes the index of its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from pe_cli.config.sections.value_types import Classes, Count
from pe_cli.core.encoding import TEXT, Check, Lane, Lookup, OneHot, Source, Step
from pe_cli.core.errors import did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column, selected
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.raw_cells import Codes
from pe_cli.data.spill_storage import room

#: Classes that an error lists.
LISTED = 20
#: Other texts of classes in a config, below.
MOST_SPELLINGS = 2000


class ClassOptions(ColumnOptions):
    """Options of every column that has classes."""

    classes: Classes | None = Field(
        None, description="classes in the order of their indices; those of the training rows, sorted, when absent"
    )
    min_count: Count = Field(
        1, description="training rows that a class must have; rarer ones are unknown"
    )
    max_classes: Count | None = Field(
        None, description="keep so many of the most frequent classes; the others are unknown"
    )
    unknown: Literal["error", "index"] | None = Field(
        None, description="a value that is no class: an error, or an index of its own; error for a target, else index"
    )


class SpelledOptions(ClassOptions):
    """Options of columns whose cells may write a class in several ways."""

    spellings: dict[str, list[Annotated[str, Field(strict=True)]]] = Field(
        default_factory=dict, description="class -> other texts that are the same class, as {Yes: [yes, YES]}"
    )

    @field_validator("spellings")
    @classmethod
    def _one_class_each(cls, spellings: dict[str, list[str]]) -> dict[str, list[str]]:
        every = [word for words in spellings.values() for word in words]
        twice = next((word for word in every if every.count(word) > 1 or word in spellings), None) if len(every) < MOST_SPELLINGS else None
        if len(every) >= MOST_SPELLINGS:
            raise ValueError(f"{len(every):,} other texts are more than {MOST_SPELLINGS - 1:,}", "correct the cells")
        if twice is not None:
            raise ValueError(f"'{twice}' stands for two classes", "let each text stand for one")
        return spellings

    def classes_of(self, words: Sequence[str]) -> list[str]:
        """Return the class that each text stands for, which is mostly itself."""
        meant = {word: name for name, others in self.spellings.items() for word in others}
        return [meant.get(word, word) for word in words]

    def spelled(self, steps: list[Step]) -> list[Step]:
        """Return the steps of a look-up that knows the other texts, too."""
        found = steps[0]
        assert isinstance(found, Lookup)
        index = dict(zip(found.words, found.indices, strict=True))
        more = [(word, index[name]) for name, words in self.spellings.items() if name in index for word in words]
        words, indices = (*found.words, *(word for word, _ in more)), (*found.indices, *(at for _, at in more))
        return [Lookup(words, indices, found.unknown, found.missing), *steps[1:]]


class CategoryOptions(SpelledOptions):
    """Options of category columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    missing: Literal["error", "index"] | None = Field(
        None, description="a missing cell: an error, or an index of its own; error for a target, else index"
    )
    encode: Literal["index", "one_hot"] = Field("index", description="one index, or a row of 0 and 1 for every index")


class CategoryState(BaseModel):
    """What a column of classes has learned. Index 0 is unknown and the next one missing, where they have an index; then the classes."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    classes: list[str]
    counts: list[int]
    unknown: bool
    missing: bool
    rare: int


@column
class Category(ColumnType[CategoryOptions]):
    """One of some classes per row.

    A column that is no target has index 0 for values that training never saw (or saw less than `min_count` times) and index 1 for
    missing cells, and its classes from 2 on. A target has its classes from 0 on; other values are errors.
    """

    name = "category"
    options = CategoryOptions
    learned = CategoryState
    view = "codes"

    def sources(self, name: str, options: CategoryOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: CategoryOptions, context: Context, rows: Rows | None) -> State:
        """Learn the classes."""
        source = options.of or context.name
        found = context.table.cells(source).codes()
        codes = selected(found.codes, rows)
        counts = np.bincount(codes[codes >= 0], minlength=len(found.words))
        state = fit_classes(options, context, options.classes_of(found.words), counts)
        state["missing"] = (options.missing or ("error" if context.target else "index")) == "index"
        return state

    def encode(self, options: CategoryOptions, state: State, context: Context) -> FieldOf:
        """Look the classes up.

        Raises:
            PeError: a cell is missing or has a class that training never saw, and that is an error; with its place.
        """
        source = options.of or context.name
        found = context.table.cells(source).codes()
        first = first_class(state)
        table, unknown = lookup(state, options.classes_of(found.words))
        has_missing = bool((found.codes < 0).any())
        if has_missing and not state["missing"]:
            row = int(np.flatnonzero(found.codes < 0)[0])
            hint = f"fill the cell, or declare {context.name}: {{type: category, missing: index}}"
            raise context.error(row, "the cell is missing", hint, source)
        # a missing cell has code -1, which is the last element
        table = np.append(table, int(state["unknown"]))
        if unknown:
            _unknown(state, context, source, found, unknown)
        width = first + len(state["classes"])
        if options.encode == "index":
            values = room((len(found.codes), 1), "int32", f"column '{context.name}'")
            np.take(table.astype(np.int32), found.codes, out=values[:, 0], mode="wrap")
            return ArrayField(values, "int64")
        values = room((len(found.codes), width), "uint8", f"column '{context.name}'")
        values[np.arange(len(values)), table[found.codes]] = 1
        return ArrayField(values, "float32")

    def cell(self, source: str, options: CategoryOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source, options
        if not state:
            return {"example": "a"}
        return {"classes": list(state["classes"]), **_others(state), "example": state["classes"][0]}

    def classes(self, state: State) -> tuple[str, ...]:
        """Return the names of all indices."""
        return names_of(state)

    def decode(self, options: CategoryOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Return the names of indices."""
        names = np.array(names_of(state), object)
        return names[np.clip(np.asarray(values, np.int64), 0, len(names) - 1)]

    def lanes(self, name: str, options: CategoryOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps; see `ColumnType.lanes`."""
        source = options.of or name
        steps: list[Step] = options.spelled(lookup_steps(state, source, int(state["unknown"]) if state["missing"] else -1))
        if options.encode == "one_hot":
            steps.append(OneHot(len(names_of(state)), "float32"))
        said = "one of its classes" + ("; an empty text for a missing cell" if state["missing"] else "")
        return (Lane(Source(source, TensorType((1,), TEXT), said), tuple(steps)),)


def fit_classes(
    options: ClassOptions, context: Context, words: list[str], counts: NDArray[np.int64]
) -> State:
    """Choose the classes.

    Args:
        options: fixed classes, or how many are kept.
        context: of the column.
        words: texts, of which some may be the same class.
        counts: int64 [words], training rows that have them.

    Raises:
        PeError: no training row has a class; with the column's place.
    """
    of: dict[str, int] = {}
    for word, count in zip(words, counts.tolist(), strict=True):
        of[word] = of.get(word, 0) + int(count)
    if options.classes is not None:
        kept = [(name, of.get(name, 0)) for name in map(str, options.classes)]
    else:
        there = [(word, count) for word, count in of.items() if count]
        # In order of text, so that two files with the same classes get the same indices.
        there.sort()
        kept = [pair for pair in there if pair[1] >= options.min_count]
        if options.max_classes is not None:
            most = sorted(kept, key=lambda pair: -pair[1])[: options.max_classes]
            kept = [pair for pair in kept if pair in set(most)]
        # Numbers by size: class 10 comes after class 9.
        if _all_numbers(kept):
            kept.sort(key=lambda pair: float(pair[0]))
    if not kept:
        hint = "lower min_count" if options.min_count > 1 else "leave the column out"
        raise context.error(0, "no training row has a class here", hint)
    unknown = (options.unknown or ("error" if context.target else "index")) == "index"
    rare = int(counts.sum()) - sum(count for _, count in kept)
    return {
        "classes": [name for name, _ in kept], "counts": [count for _, count in kept],
        "unknown": unknown, "missing": False, "rare": rare,
    }  # fmt: skip


# Sorted as numbers only if all are.
def _all_numbers(kept: list[tuple[str, int]]) -> bool:
    try:
        return all(np.isfinite(float(name)) for name, _ in kept)
    except ValueError:
        return False


def first_class(state: State) -> int:
    """Return the index of the first class."""
    return int(state["unknown"]) + int(state["missing"])


def names_of(state: State) -> tuple[str, ...]:
    """Return the names of all indices, those of unknown and missing in angle brackets."""
    before = (("<unknown>",) if state["unknown"] else ()) + (("<missing>",) if state["missing"] else ())
    return (*before, *state["classes"])


def lookup(state: State, words: list[str]) -> tuple[NDArray[np.int64], list[int]]:
    """Return the index of every word, 0 where it is no class, and the positions of such words."""
    first = first_class(state)
    index = {name: first + i for i, name in enumerate(state["classes"])}
    found = [index.get(word, -1) for word in words]
    unknown = [i for i, position in enumerate(found) if position < 0]
    return np.maximum(np.array(found, np.int64), 0).reshape(-1), unknown


def lookup_steps(state: State, source: str, missing: int, strict: bool = False) -> list[Step]:
    """Return the look-up of one text as steps.

    Args:
        state: of the column.
        source: column of the table.
        missing: index of a missing cell; -1 where that is an error.
        strict: other texts are errors, although there is an index for them.
    """
    first = first_class(state)
    unknown = 0 if state["unknown"] and not strict else -1
    indices = tuple(range(first, first + len(state["classes"])))
    steps: list[Step] = [Lookup(tuple(state["classes"]), indices, unknown, missing)]
    if unknown < 0 or missing < 0:
        limit = max(len(names_of(state)), missing + 1)
        steps.append(Check("index", f"column '{source}': a value that is not among the classes of training", limit))
    return steps


def _others(state: State) -> dict[str, Any]:
    """Return what becomes of cells that are no classes, as JSON values."""
    return {"unknown": "index" if state["unknown"] else "error", "missing": "index" if state["missing"] else "error"}


def _unknown(state: State, context: Context, source: str, found: Codes, unknown: list[int]) -> None:
    """Say which values are no classes.

    Raises:
        PeError: DATA; the column has no index for them.
    """
    bad = np.zeros(len(found.words) + 1, bool)
    bad[unknown] = True
    rows = np.flatnonzero(bad[found.codes])
    if not len(rows):
        return
    word = found.words[found.codes[rows[0]]]
    if state["unknown"]:
        cells = f"{len(rows):,} cell{'s' * (len(rows) > 1)} of column '{context.name}'"
        text = f"with the index of unknown values: '{word}' in row {int(rows[0]) + 1} is no class of the training rows"
        context.notes.append(f"{cells} {text}")
        return
    raise context.error(int(rows[0]), *no_class(state, word), name=source)


def no_class(state: State, word: str) -> tuple[str, str]:
    """Return message and hint for a value that is no class."""
    known = state["classes"]
    listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
    return f"'{word}' is not among the {len(known)} classes of the training rows", (
        did_you_mean(word, known) or f"they are {listed}; unknown: index on the column gives other values an index"
    )
