"""Dates: a cell is a day or a moment, and becomes numbers for its parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from pe_cli.core.encoding import Cast, Check, Fill, Lane, Source, Standardise, Step, Wave
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column, selected
from pe_cli.data.columns.number_fit import ScaleState
from pe_cli.data.date_forms import parse, written
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.public_holidays import calendar_of

Part = Literal["timestamp", "year", "month", "day", "weekday", "dayofyear", "hour", "minute", "second", "holiday"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Part -> its value, and its first value and period where it comes around again.
PARTS: dict[str, tuple[Callable[[datetime], float], float, float | None]] = {
    "timestamp": (lambda t: (t - _EPOCH).total_seconds(), 0, None),
    "year": (lambda t: t.year, 0, None),
    "month": (lambda t: t.month, 1, 12),
    "day": (lambda t: t.day, 1, 31),
    "weekday": (lambda t: t.weekday(), 0, 7),
    "dayofyear": (lambda t: t.timetuple().tm_yday, 1, 366),
    "hour": (lambda t: t.hour + t.minute / 60, 0, 24),
    "minute": (lambda t: t.minute, 0, 60),
    "second": (lambda t: t.second, 0, 60),
    # by the calendar that `holidays` names; see `_numbers`
    "holiday": (lambda t: 0.0, 0, None),
}

#: Part -> what a number is, for those who give it by itself.
_SAID = {
    "timestamp": "seconds since 1970-01-01 in UTC",
    "year": "the year",
    "month": "1 to 12",
    "day": "day of the month, 1 to 31",
    "weekday": "0 (Monday) to 6",
    "dayofyear": "1 to 366",
    "hour": "0 to 24, with minutes as its fraction",
    "minute": "0 to 59",
    "second": "0 to 59",
    "holiday": "1 on a public holiday, else 0",
}


class DateOptions(ColumnOptions):
    """Options of date columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    format: Annotated[str, Field(strict=True, min_length=1)] | None = Field(
        None,
        description="as of Python's strptime, like %d.%m.%Y, with %q for a quarter (Q%q %Y), %V and %G for a week (KW %V/%G), and %B for "
        "names of months in many languages; duration: a length of time, whose timestamp is its seconds; year: a year with a fraction, "
        "1995.25 for April; ISO 8601 (2026-11-25, 2026-11-25T07:15:00+01:00, 2026-W48) when absent",
    )
    parts: list[Part] = Field(
        ["year", "month", "day", "weekday"],
        min_length=1,
        description="numbers of the field, in this order: timestamp (seconds since 1970), year, month (1 to 12), day, weekday "
        "(Monday is 0), dayofyear, hour (with a fraction), minute, second, holiday (1 on a public holiday, by `holidays`)",
    )
    holidays: Annotated[str, Field(strict=True, pattern=r"^[A-Z]{2,3}(-[A-Za-z0-9]{1,8})?$")] | None = Field(
        None,
        description="country, or country and region, whose public holidays the part holiday tells, such as DE or DE-BY "
        "(pip install 'pe-cli[holidays]')",
    )
    cyclic: bool = Field(
        True, strict=True, description="parts that come around again become sine and cosine, so that December is next to January"
    )
    missing: Literal["error", "zero"] = Field("error", description="a missing cell: an error, or 0 for every part")

    @field_validator("parts")
    @classmethod
    def _distinct(cls, parts: list[str]) -> list[str]:
        if len(set(parts)) < len(parts):
            raise ValueError("a part is listed twice")
        return parts

    @model_validator(mode="after")
    def _of_a_country(self) -> DateOptions:
        if ("holiday" in self.parts) != (self.holidays is not None):
            raise ValueError("the part holiday goes with holidays, which names the country: {holidays: DE, parts: [holiday]}")
        return self


class DateState(ScaleState):
    """What a date column has learned: mean and deviation of the parts that do not come around again."""

    first: str
    last: str


@column
class Date(ColumnType[DateOptions]):
    """A date or a moment per row, as numbers. Parts that do not come around again have mean 0 and deviation 1 over the training rows."""

    name = "date"
    options = DateOptions
    learned = DateState
    view = "codes"

    def sources(self, name: str, options: DateOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: DateOptions, context: Context, rows: Rows | None) -> State:
        """Learn mean and deviation.

        Raises:
            PeError: every training row misses the date; with the column's place.
        """
        moments, values = _read(options, context)
        codes = selected(context.table.cells(options.of or context.name).codes().codes, rows)
        # Of rows that train: dates of others must not move the mean.
        there = codes[codes >= 0]
        if not len(there):
            raise context.error(0, "every training row misses this date", "leave the column out")
        used = sorted(moments[i] for i in np.unique(there))
        plain = _columns(options)
        numbers = values[there].astype(np.float64)
        shift = np.where(plain, numbers.mean(axis=0), 0.0)
        divisor = np.where(plain, numbers.std(axis=0), 1.0)
        return {
            "shift": shift.tolist(), "divisor": np.where(divisor > 0, divisor, 1.0).tolist(),
            "first": used[0].isoformat(), "last": used[-1].isoformat(),
        }  # fmt: skip

    def encode(self, options: DateOptions, state: State, context: Context) -> FieldOf:
        """Return the parts."""
        # Distinct dates are computed once, and rows look theirs up.
        _, values = _read(options, context)
        scaled = (values - np.array(state["shift"])) / np.array(state["divisor"])
        # The last row stands for a missing cell, whose code is -1.
        table = np.concatenate([scaled, np.zeros((1, scaled.shape[1]))]).astype(np.float32)
        return ArrayField(table[context.table.cells(options.of or context.name).codes().codes], "float32")

    def cell(self, source: str, options: DateOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source
        if not state:
            return {"format": "ISO 8601", "example": "2026-01-01"}
        first, last = (_written(datetime.fromisoformat(state[key]), options.format) for key in ("first", "last"))
        missing = "error" if options.missing == "error" else "filled"
        return {"format": options.format or "ISO 8601", "first": first, "last": last, "missing": missing, "example": last}

    def lanes(self, name: str, options: DateOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return one for each part, which is given as a number; see `ColumnType.lanes`."""
        source = options.of or name
        found, at = [], 0
        for part in options.parts:
            _, first, period = PARTS[part]
            steps: list[Step] = []
            if options.missing == "error":
                steps.append(Check("finite", f"column '{source}': the cell is missing"))
            if options.cyclic and period is not None:
                steps.append(Wave(first, period))
                at += 2
            else:
                steps.append(Standardise((state["shift"][at],), (state["divisor"][at],)))
                at += 1
            if options.missing == "zero":
                steps.append(Fill(0.0))
            said = _SAID[part] + ("; NaN for a missing cell" if options.missing == "zero" else "")
            kind = TensorType((1,), "float64")
            found.append(Lane(Source(source, kind, said, part, raw=False), (*steps, Cast("float32"))))
        return tuple(found)


def _columns(options: DateOptions) -> NDArray[np.bool_]:
    """Return which numbers of the field are scaled."""
    found = []
    for part in options.parts:
        cyclic = options.cyclic and PARTS[part][2] is not None
        found += [False, False] if cyclic else [True]
    return np.array(found)


def _read(options: DateOptions, context: Context) -> tuple[list[datetime], NDArray[np.float64]]:
    """Return the distinct moments of a column and their parts, float64 [distinct, numbers]."""
    source = options.of or context.name
    found = context.table.cells(source).codes()
    if options.missing == "error" and (found.codes < 0).any():
        row = int(np.flatnonzero(found.codes < 0)[0])
        raise context.error(row, "the cell is missing", f"fill it, or set missing: zero on {context.name}", source)
    moments = []
    for i, word in enumerate(found.words):
        try:
            moments.append(parse(word, options.format))
        except ValueError:
            row = int(np.flatnonzero(found.codes == i)[0])
            said = f"no date of the form {options.format}" if options.format else "no date of ISO 8601, like 2026-11-25"
            raise context.error(row, f"'{word}' is {said}", "set format, for example format: '%d.%m.%Y'", source) from None
    return moments, np.array([_numbers(moment, options) for moment in moments]).reshape(len(moments), -1)


def _written(moment: datetime, form: str | None) -> str:
    """Return a moment as `parse` reads it; one at midnight without its time where any form is taken."""
    if form is not None:
        return written(moment, form)
    at_midnight = moment.timetz() == datetime(2000, 1, 1, tzinfo=UTC).timetz()
    return moment.date().isoformat() if at_midnight else moment.isoformat()


def _numbers(moment: datetime, options: DateOptions) -> list[float]:
    found: list[float] = []
    for part in options.parts:
        value, first, period = PARTS[part]
        is_holiday = part == "holiday" and options.holidays is not None and moment.date() in calendar_of(options.holidays)
        number = float(is_holiday) if part == "holiday" else float(value(moment))
        if options.cyclic and period is not None:
            angle = 2 * math.pi * (number - first) / period
            found += [math.sin(angle), math.cos(angle)]
        else:
            found.append(number)
    return found
