"""Truth values: a cell says yes or no, in one of the usual ways."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.encoding import TEXT, Cast, Check, Lane, Lookup, Source, Step
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column, selected
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf

Text = Annotated[str, Field(strict=True)]
YES = ("true", "yes", "y", "t", "1", "on")
NO = ("false", "no", "n", "f", "0", "off")
#: Words for yes and no, for true and false, of other languages.
PAIRS = (
    ("ja", "nein"), ("wahr", "falsch"), ("j", "n"), ("w", "f"), ("oui", "non"), ("vrai", "faux"), ("o", "n"), ("sí", "no"), ("si", "no"),
    ("verdadero", "falso"), ("s", "n"), ("sì", "no"), ("vero", "falso"), ("sim", "não"), ("sim", "nao"), ("ja", "nee"), ("waar", "onwaar"),
    ("tak", "nie"), ("prawda", "fałsz"), ("да", "нет"), ("истина", "ложь"), ("evet", "hay\u0131r"), ("doğru", "yanl\u0131ş"), ("ja", "nej"),
    ("ano", "ne"), ("áno", "nie"), ("da", "ne"), ("da", "nu"), ("igen", "nem"), ("igaz", "hamis"), ("kyllä", "ei"), ("tosi", "epätosi"),
    ("jah", "ei"), ("sant", "falskt"), ("sand", "falsk"),
    ("sant", "usant"), ("taip", "ne"), ("jā", "nē"), ("\u03bd\u03b1\u03b9", "όχι"), ("так", "ні"), ("да", "не"),
    ("ya", "tidak"), ("có", "không"), ("نعم", "لا"), ("بله", "خیر"), ("כן", "לא"), ("हाँ", "नहीं"), ("ใช่", "ไม่ใช่"),
    (".true.", ".false."), ("✓", "✗"), ("✔", "✘"), ("☑", "☐"), ("有", "无"), ("對", "錯"),
    ("はい", "いいえ"), ("是", "否"), ("真", "假"), ("예", "아니오"),
)  # fmt: skip


class BoolOptions(ColumnOptions):
    """Options of bool columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    yes: list[Text] = Field(list(YES), min_length=1, description="cells that mean true, in any case of letters")
    no: list[Text] = Field(list(NO), min_length=1, description="cells that mean false")
    missing: Literal["error"] | bool = Field("error", description="what a missing cell stands for: true, false, or error")

    @model_validator(mode="after")
    def _apart(self) -> BoolOptions:
        both = {text.lower() for text in self.yes} & {text.lower() for text in self.no}
        if both:
            raise ValueError(f"'{min(both)}' is listed under yes and under no")
        return self


class BoolState(BaseModel):
    """What a bool column has learned: nothing but how often each value was there, and what the model's feed holds."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    true: int
    false: int
    dtype: Literal["float32", "int64"]


@column
class Bool(ColumnType[BoolOptions]):
    """True or false per row: 1 or 0."""

    name = "bool"
    options = BoolOptions
    learned = BoolState
    view = "codes"

    def sources(self, name: str, options: BoolOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: BoolOptions, context: Context, rows: Rows | None) -> State:
        """Count true and false cells."""
        values = selected(_read(options, context), rows)
        true = int(values.sum())
        if true in (0, len(values)):
            said = "true" if true else "false"
            context.notes.append(f"column '{context.name}' is {said} in every training row: nothing can be learned from it")
        dtype = "int64" if context.dtype in ("int64", "int32") else "float32"
        return {"true": true, "false": len(values) - true, "dtype": dtype}

    def encode(self, options: BoolOptions, state: State, context: Context) -> FieldOf:
        """Return 1 for true and 0 for false."""
        return ArrayField(_read(options, context).reshape(-1, 1), state["dtype"])

    def cell(self, source: str, options: BoolOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source, state
        missing = "error" if options.missing == "error" else "filled"
        return {"yes": list(options.yes), "no": list(options.no), "missing": missing, "example": options.yes[0]}

    def classes(self, state: State) -> tuple[str, ...]:
        """Return false and true."""
        return ("false", "true")

    def lanes(self, name: str, options: BoolOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps; see `ColumnType.lanes`."""
        source = options.of or name
        meaning = {text: i for i, texts in enumerate((options.no, options.yes)) for word in texts for text in _cases(word)}
        missing = -1 if options.missing == "error" else int(options.missing)
        steps: list[Step] = [
            Lookup(tuple(meaning), tuple(meaning.values()), -1, missing),
            Check("index", f"column '{source}': a cell that is neither true nor false", 2),
        ]
        if state["dtype"] != "int64":
            steps.append(Cast(state["dtype"]))
        said = f"{options.yes[0]} or {options.no[0]}" + ("" if missing < 0 else "; an empty text for a missing cell")
        return (Lane(Source(source, TensorType((1,), TEXT), said), tuple(steps)),)


def truth(words: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the options under which two texts are yes and no, nothing where those of every column do; None for other texts."""
    small = {word.lower(): word for word in words}
    if len(small) == 2:
        if set(small) <= {*YES, *NO} and any(word in YES for word in small) and any(word in NO for word in small):
            return {}
        for yes, no in PAIRS:
            if {yes, no} == set(small):
                return {"yes": [small[yes]], "no": [small[no]]}
    return None


def _cases(word: str) -> list[str]:
    """Return a word in small and capital letters; in all mixtures of them where it is short."""
    if len(word) > 8:
        return list(dict.fromkeys([word, word.lower(), word.upper(), word.capitalize()]))
    letters = [tuple(dict.fromkeys((letter.lower(), letter.upper()))) for letter in word]
    return ["".join(chosen) for chosen in itertools.product(*letters)]


def _read(options: BoolOptions, context: Context) -> NDArray[Any]:
    source = options.of or context.name
    found = context.table.cells(source).codes()
    known = {text.lower(): 0 for text in options.no} | {text.lower(): 1 for text in options.yes}
    meaning = [known.get(word.lower(), 2) for word in found.words]
    # a missing cell has code -1, which is the last element
    table = np.array([*meaning, 3 if options.missing == "error" else int(options.missing)], np.uint8)
    values = table[found.codes]
    if (values > 1).any():
        row = int(np.flatnonzero(values > 1)[0])
        if values[row] == 3:
            raise context.error(row, "the cell is missing", f"fill it, or set missing: false on {context.name}", source)
        word = found.words[found.codes[row]]
        hint = f"true is one of {', '.join(options.yes)}; false one of {', '.join(options.no)}; or declare a category"
        raise context.error(row, f"'{word}' is neither true nor false", hint, source)
    return values
