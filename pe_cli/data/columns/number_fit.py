"""What a number column learns of the training rows: what stands for missing cells, and the scale."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.config.sections.value_types import Number
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow
from pe_cli.data.column import ColumnOptions, Context, State
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.notation_detection import TRIED, notation_of
from pe_cli.data.raw_cells import Cells, Numbers

Missing = Literal["error", "mean", "median", "previous"] | Number
Divisor = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Scale = Literal["none", "standard", "minmax", "robust"] | Divisor
#: Added before the logarithm, by the name of the transform.
ADDED = {"log": 0.0, "log1p": 1.0}


def transformed(values: NDArray[np.float64], transform: str) -> NDArray[np.float64]:
    """Return numbers as a transform gives them."""
    found: NDArray[np.float64] = np.arcsinh(values) if transform == "asinh" else np.log(values + ADDED[transform])
    return found


#: Elements that are converted at a time, so that no second copy of a large column is made.
CHUNK = 1 << 20


class WrittenOptions(ColumnOptions):
    """How the cells of a column write numbers."""

    decimal: Literal[".", ","] = Field(".", description="sign before the decimals in the cells")
    thousands: Literal["", ".", ",", "'", " "] = Field(
        "", description="sign between thousands in the cells, which may be left out; `' '` is any blank"
    )
    unit: Annotated[str, Field(strict=True, min_length=1, max_length=24)] | None = Field(
        None, description="text before or behind the digits, such as `€`, `%` or `kg`, which may be left out"
    )
    empty: list[Number] = Field([], max_length=16, description="numbers that stand for a missing cell, such as 999")

    @property
    def notation(self) -> Notation:
        """The same as readers take it."""
        return Notation(self.decimal, self.thousands, self.unit or "", tuple(map(float, self.empty)))

    @model_validator(mode="after")
    def _apart(self) -> WrittenOptions:
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both '{self.decimal}': a number has two different signs")
        unit = self.unit or "a"
        if unit != unit.strip() or any(c in "0123456789" for c in unit) or not unit.strip("+-.,'()"):
            raise ValueError("unit is a text without digits and without blanks around it, such as € or kg")
        return self


class NumberOptions(WrittenOptions):
    """Options of number columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    missing: Missing = Field(
        "error", description="what stands for a missing cell: mean or median of the training rows; previous: the number of the "
        "row before, of the same series, and the mean where there is none; a number; or error"
    )
    scale: Scale = Field(
        "none",
        description="standard: mean 0 and deviation 1 over the training rows; minmax: from 0 to 1; robust: median 0 and "
        "distance of the quartiles 1; a number above 0: divided by it",
    )
    transform: Literal["log", "log1p", "asinh"] | None = Field(
        None, description="before scaling: log, the natural logarithm; log1p, the logarithm of 1 more than the number; asinh, a "
        "logarithm for numbers of either sign, which leaves small ones as they are"
    )
    clip: tuple[Number, Number] | None = Field(None, description="smallest and largest value, before scaling, in the file's unit")
    dtype: Literal["float32", "float64", "int64"] | None = Field(
        None, description="element type of the field; int64 where the model's feed is int64 and nothing is scaled, else float32"
    )

    @model_validator(mode="after")
    def _fits(self) -> NumberOptions:
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip: the smallest value must be below the largest")
        if self.transform in ADDED and not isinstance(self.missing, str) and self.missing + ADDED[self.transform] <= 0:
            raise ValueError(f"missing: {self.missing:g} has no logarithm, and transform: {self.transform} takes one")
        if self.dtype == "int64" and (self.scale != "none" or self.transform):
            raise ValueError("dtype int64 holds no scaled numbers: leave scale, transform or dtype out")
        return self


class ScaleState(BaseModel):
    """A scale that a column has learned: `(value - shift) / divisor`, element by element."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    shift: list[float] = Field(min_length=1)
    divisor: list[Divisor]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.shift) != len(self.divisor):
            raise ValueError("shift and divisor must be as many numbers")
        return self


class NumberState(ScaleState):
    """What a number column has learned. Features of arrays have a list in place of one number that is filled in."""

    fill: float | list[float] | None
    dtype: Literal["float32", "float64", "int64"]
    low: float
    high: float
    missing: int


def scale_of(state: State, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shift and divisor for numbers of a shape.

    Raises:
        PeError: DATA; they were learned of another number of numbers per row.
    """
    filled = len(state["fill"]) if isinstance(state.get("fill"), list) else 1
    count = next((count for count in (len(state["shift"]), filled) if count not in (1, *shape[-1:])), 0)
    if count:
        text = f"a scale that was learned of {count} numbers per row does not fit numbers of shape {list(shape)}"
        raise PeError(text, hint="take another checkpoint of the run", code=ExitCode.DATA)
    return np.asarray(state["shift"]), np.asarray(state["divisor"])


def numbers_of(context: Context, source: str, notation: Notation = PLAIN) -> Numbers:
    """Return a column as numbers of a notation.

    Raises:
        PeError: DATA; some cells are no numbers: the first of them are told.
    """
    cells = context.table.cells(source)
    found = cells.numbers(notation)
    if not found.bad_count:
        return found
    row = int(found.bad[0])
    others = [f"row {int(r) + 1}: '{_short(cells.text(int(r)))}'" for r in found.bad[1:]]
    more = found.bad_count - 1
    nor = "nor is 1 more cell" if more == 1 else f"nor are {more:,} more cells"
    said = f", {nor} ({', '.join(others[:3])})" if more else ""
    form = "" if notation.is_plain else f" like {notation.said}"
    raise context.error(row, f"'{_short(cells.text(row))}' is no finite number{form}{said}", _remedy(context, cells, notation), source)


def _remedy(context: Context, cells: Cells, notation: Notation) -> str:
    """Return how a column whose cells are no numbers may be declared."""
    guessed = notation_of(cells.codes().words[:TRIED]) if notation.is_plain else None
    if guessed is not None and not guessed.notation.is_plain:
        declared = flow({"type": "number", **guessed.notation.written})
        return f"declare {context.name}: {declared} where its numbers are written like {guessed.notation.said}"
    return f"correct the cells, declare {context.name}: {{type: category}}, or list such texts under the reader's missing"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def fit_numbers(options: NumberOptions, context: Context, values: NDArray[np.float64], source: str) -> State:
    """Learn from the training rows' numbers, [rows], NaN where missing.

    Raises:
        PeError: every training row misses the number, or one does and that is an error; with its place.
    """
    there = values[~np.isnan(values)]
    missing = len(values) - len(there)
    if options.missing == "error":  # of all rows: those of evaluation are encoded, too
        gone = np.flatnonzero(np.isnan(context.table.cells(source).numbers(options.notation).values) & ~ahead_of(context))
        if len(gone):
            raise is_missing(context, source, int(gone[0]), len(gone))
    if not len(there):
        raise context.error(0, "every training row misses this number", "leave the column out", source)
    fill = _fill(options, there)
    filled = np.where(np.isnan(values), fill, values) if missing and fill is not None else there
    if options.clip is not None:
        filled = np.clip(filled, *options.clip)
    if options.transform:
        _check_logarithm(options, context, source)
        filled = transformed(filled, options.transform)
    shift, divisor = _scale(options.scale, filled)
    low, high = float(there.min()), float(there.max())
    if low == high and len(there) > 1:
        context.notes.append(f"column '{context.name}' is {low:g} in every training row: nothing can be learned from it")
    plain = options.scale == "none" and not options.transform
    dtype = options.dtype or ("int64" if plain and context.dtype in ("int64", "int32") and _whole(filled) else "float32")
    return {
        "fill": fill, "shift": [shift], "divisor": [divisor], "dtype": dtype, "low": low, "high": high, "missing": missing,
    }  # fmt: skip


def _check_logarithm(options: NumberOptions, context: Context, source: str) -> None:
    """Raise where a number of the table has no logarithm.

    Raises:
        PeError: DATA; says the first one.
    """
    values = context.table.cells(source).numbers(options.notation).values
    check_logarithm(values if options.clip is None else np.clip(values, *options.clip), options.transform, 0, context, source)


def check_logarithm(part: NDArray[np.float64], transform: str | None, start: int, context: Context, source: str) -> None:
    """Raise where a number has no logarithm.

    Args:
        part: numbers from row `start` on, NaN where missing.
        transform: of the column; None where it takes none.
        start: row of the first.
        context: of the column.
        source: column of the table.

    Raises:
        PeError: DATA; says the first one.
    """
    if transform not in ADDED:
        return
    bad = np.flatnonzero(part + ADDED[transform] <= 0)
    if len(bad):
        row = start + int(bad[0])
        more = f", nor have {len(bad) - 1:,} more" if len(bad) > 1 else ""
        least = "above 0" if transform == "log" else "above -1"
        hint = f"transform: {transform} is for numbers {least}; set clip: [LEAST, MOST] on the column, or leave transform out"
        raise context.error(row, f"'{_short(context.table.cells(source).text(row))}' has no logarithm{more}", hint, source)


def _whole(values: NDArray[np.float64]) -> bool:
    return bool((values == np.rint(values)).all())


def _fill(options: NumberOptions, there: NDArray[np.float64]) -> float | None:
    if options.missing in ("mean", "previous"):
        return float(there.mean())
    if options.missing == "median":
        return float(np.median(there))
    return None if isinstance(options.missing, str) else float(options.missing)


def _scale(kind: Scale, values: NDArray[np.float64]) -> tuple[float, float]:
    """Return what is subtracted and what the rest is divided by; a constant column is divided by 1."""
    if not isinstance(kind, str):
        return 0.0, float(kind)
    if kind == "standard":
        shift, divisor = float(values.mean()), float(values.std())
    elif kind == "minmax":
        shift = float(values.min())
        divisor = float(values.max()) - shift
    elif kind == "robust":
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        shift, divisor = float(middle), float(high - low)
    else:
        return 0.0, 1.0
    return shift, divisor if divisor > 0 and np.isfinite(divisor) else 1.0


def ahead_of(context: Context) -> NDArray[np.bool_]:
    """Return which rows of a table are yet to come, bool [rows]: nothing reads what is missing there."""
    found: NDArray[np.bool_] | None = getattr(context.table, "future", None)
    return np.zeros(len(context.table), np.bool_) if found is None else found


def is_missing(context: Context, source: str, row: int, count: int) -> PeError:
    """Return the error of a number that is missing.

    Args:
        context: of the column.
        source: column of the table.
        row: of the first cell that is missing.
        count: cells that are missing.
    """
    rows = f"{count:,} cells are" if count > 1 else "the cell is"
    return context.error(
        row,
        f"{rows} missing",
        f"declare {context.name}: {{type: number, missing: median}} under data.columns, or fill the cells",
        source,
    )


def fit_array(options: NumberOptions, context: Context, array: Array, rows: Rows | None) -> State:
    """Learn from a file of arrays: features of a vector each by itself, larger samples with one scale for all elements.

    Raises:
        PeError: DATA, a number is NaN, and that is an error; USAGE, options that are for columns of a table only.
    """
    if options.notation != PLAIN:
        raise PeError(
            f"column '{context.name}': decimal, thousands, unit and empty are for cells, and this field holds arrays",
            at=context.at, hint="leave them out",
        )  # fmt: skip
    if options.transform:
        raise PeError(
            f"column '{context.name}': transform is for cells, and this field holds arrays", at=context.at,
            hint="leave it out, and begin the model with a layer of type log",
        )  # fmt: skip
    each = array.ndim == 2
    kind = "int64" if array.dtype.kind in "iu" and context.dtype in ("int64", "int32") and options.scale == "none" else "float32"
    dtype = options.dtype or kind
    if options.scale == "none" and isinstance(options.missing, str) and options.missing == "error":
        return {"fill": None, "shift": [0.0], "divisor": [1.0], "dtype": dtype, "low": 0.0, "high": 0.0, "missing": 0}
    _check_array_options(options, context, each)
    count, total, squares, low, high, missing = _moments(array, rows, each, None)
    mean = total / np.maximum(count, 1)
    if missing and options.missing == "error":
        raise context.error(0, f"{missing:,} numbers are NaN", "set missing: mean, or a number")
    # A feature of which every number is missing has no range: it is filled, and stays as it is.
    low, high = (np.where(count > 0, bound, 0.0) for bound in (low, high))
    if not (np.isfinite(low) & np.isfinite(high) & np.isfinite(mean)).all():
        raise context.error(0, "a training number is infinite, or too large to be scaled", "correct it, or leave scale and missing out")
    _, _, squares, *_ = _moments(array, rows, each, mean)
    quarters = _quarters(array, rows) if options.scale == "robust" or options.missing == "median" else np.zeros((3, 1))
    if options.scale == "standard":
        shift, divisor = mean, np.sqrt(squares / np.maximum(count, 1))
    elif options.scale == "minmax":
        shift, divisor = low, high - low
    elif options.scale == "robust":
        shift, divisor = quarters[1], quarters[2] - quarters[0]
    else:
        shift, divisor = np.zeros(1), np.array([1.0 if isinstance(options.scale, str) else float(options.scale)])
    divisor = np.where((divisor > 0) & np.isfinite(divisor), divisor, 1.0)
    # Features have units of their own, so that what is usual of one says nothing of another.
    filled = {"mean": mean, "median": quarters[1]}.get(str(options.missing))
    fill: float | list[float] | None = None if isinstance(options.missing, str) else float(options.missing)
    if filled is not None:
        fill = filled.tolist() if each else float(filled[0])
    return {
        "fill": fill, "shift": shift.tolist(), "divisor": divisor.tolist(), "dtype": dtype,
        "low": float(low.min()), "high": float(high.max()), "missing": missing,
    }  # fmt: skip


def _check_array_options(options: NumberOptions, context: Context, each: bool) -> None:
    """Refuse what arrays have no meaning or no room for.

    Raises:
        PeError: USAGE; says what would do.
    """
    if options.missing == "previous":
        text = f"column '{context.name}': missing: previous is for columns of a table, and this field holds arrays"
        raise PeError(text, at=context.at, hint="use missing: mean or median")
    if not each and (options.scale == "robust" or options.missing == "median"):
        text = f"column '{context.name}': robust scales and medians are of one number, and every sample of this field has several axes"
        raise PeError(text, at=context.at, hint="use scale: standard or minmax, and missing: mean")


def _quarters(array: Array, rows: Rows | None) -> NDArray[np.float64]:
    """Return the quartiles of every feature, [3, features], of the numbers that are there; 0 where none is."""
    found = np.zeros((3, array.shape[1]))
    samples = len(array) if rows is None else len(rows)
    step = max(1, CHUNK // max(1, samples))
    for start in range(0, array.shape[1], step):
        part = array[:, start : start + step] if rows is None else array[rows, start : start + step]
        for j, values in enumerate(np.asarray(part, np.float64).T):
            there = values[~np.isnan(values)]
            found[:, start + j] = np.quantile(there, [0.25, 0.5, 0.75]) if len(there) else 0.0
    return found


def _moments(
    array: Array, rows: Rows | None, each: bool, center: NDArray[np.float64] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], int]:
    """Return count, sum, squares about the center, least, greatest and missing, in one pass by parts."""
    width = array.shape[1] if each else 1
    count, total, squares = (np.zeros(width) for _ in range(3))
    low, high, missing = np.full(width, np.inf), np.full(width, -np.inf), 0
    step = max(1, CHUNK // max(1, int(np.prod(array.shape[1:]))))
    samples = len(array) if rows is None else len(rows)
    for start in range(0, samples, step):
        part = array[start : start + step] if rows is None else array[rows[start : start + step]]
        values = np.asarray(part, np.float64).reshape(-1, width)
        good = ~np.isnan(values)
        missing += int(values.size - good.sum())
        count += good.sum(axis=0)
        # What overflows is infinite, and told by whoever asks for the moments.
        with np.errstate(over="ignore", invalid="ignore"):
            total += np.where(good, values, 0).sum(axis=0)
            squares += (np.where(good, values - (0 if center is None else center), 0) ** 2).sum(axis=0)
        low = np.fmin(low, np.where(good, values, np.inf).min(axis=0))
        high = np.fmax(high, np.where(good, values, -np.inf).max(axis=0))
    return count, total, squares, low, high, missing
