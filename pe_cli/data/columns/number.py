"""Numbers: a cell is one number; what is missing is filled in, and the rest is brought to a common scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.encoding import Affine, Cast, Check, Clip, Fill, Lane, Source, Standardise, Step
from pe_cli.core.errors import PeError, PeErrors
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.data.cells import Numbers, Table
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column, selected
from pe_cli.data.dataset import Array
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.room import room

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Missing = Literal["error", "mean", "median", "previous"] | Finite
Scale = Literal["none", "standard", "minmax", "robust"]
#: Elements that are converted at a time, so that no second copy of a large column is made.
CHUNK = 1 << 20


class NumberOptions(ColumnOptions):
    """Options of number columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    missing: Missing = Field(
        "error", description="what stands for a missing cell: mean or median of the training rows; previous: the number of the "
        "row before, of the same series, and the mean where there is none; a number; or error"
    )
    scale: Scale = Field(
        "none",
        description="standard: mean 0 and deviation 1 over the training rows; minmax: from 0 to 1; robust: median 0 and "
        "distance of the quartiles 1",
    )
    clip: tuple[Finite, Finite] | None = Field(None, description="smallest and largest value, before scaling, in the file's unit")
    dtype: Literal["float32", "float64", "int64"] | None = Field(
        None, description="element type of the field; int64 where the model's feed is int64 and nothing is scaled, else float32"
    )

    @model_validator(mode="after")
    def _fits(self) -> NumberOptions:
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip: the smallest value must be below the largest")
        if self.dtype == "int64" and self.scale != "none":
            raise ValueError("dtype int64 holds no scaled numbers: leave scale or dtype out")
        return self


class NumberState(BaseModel):
    """What a number column has learned: `(value - shift) / divisor`, element by element."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    fill: float | None
    shift: list[float]
    divisor: list[float]
    dtype: Literal["float32", "float64", "int64"]
    low: float
    high: float
    missing: int


class ScaledField:
    """A field of arrays that are scaled as they are taken, so that a mapped file stays where it is.

    Args:
        values: [rows, *shape].
        state: of the column.
        clip: smallest and largest value, before scaling.
        context: of the column, for messages.
        source: column of the table.
    """

    sequences = False

    def __init__(self, values: Array, state: State, clip: tuple[float, float] | None, context: Context, source: str) -> None:
        self.values, self._state, self._clip, self._context, self._source = values, state, clip, context, source
        self.type = TensorType(tuple(int(n) for n in values.shape[1:]), state["dtype"])

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Rows) -> tuple[Array, None]:
        """Return copies of some samples, scaled; see `Field.take`.

        Raises:
            PeError: DATA; NaN where nothing stands for it, or a fraction in a column of whole numbers.
        """
        found = self.values[rows]
        whole = self.type.dtype == "int64"
        if whole and found.dtype.kind in "iub" and self._clip is None:
            return np.ascontiguousarray(found, np.int64), None
        wide = found.astype(np.float64)
        if self._state["fill"] is None and found.dtype.kind == "f":
            self._check(rows, np.isnan(wide), found, "is missing", "set missing: mean, or a number")
        out = np.empty(found.shape, self.type.numpy)
        apply_scale(wide, self._state, self._clip, out)
        if whole:
            self._check(rows, wide != np.rint(wide), wide, "is no whole number", "set dtype: float32 on the column")
        return out, None

    def _check(self, rows: Rows, bad: NDArray[np.bool_], found: Array, said: str, hint: str) -> None:
        if bad.any():
            first = int(np.flatnonzero(bad.reshape(len(rows), -1).any(axis=1))[0])
            value = found[first][bad[first]].reshape(-1)[0] if found.ndim > 1 else found[first]
            raise self._context.error(int(rows[first]), f"{value} {said}", hint, self._source)


@column
class Number(ColumnType[NumberOptions]):
    """One number per row. `missing`, `clip` and `scale` are applied in this order."""

    name = "number"
    options = NumberOptions
    learned = NumberState
    view = "numbers"

    def sources(self, name: str, options: NumberOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: NumberOptions, context: Context, rows: Rows | None) -> State:
        """Learn the fill value and the scale."""
        source = options.of or context.name
        array = context.table.cells(source).array()
        if array is not None:
            return _fit_array(options, context, array, rows)
        found = numbers_of(context, source)
        values = selected(found.values, rows)
        return fit_numbers(options, context, values, source)

    def encode(self, options: NumberOptions, state: State, context: Context) -> FieldOf:
        """Fill in, clip and scale."""
        source = options.of or context.name
        array = context.table.cells(source).array()
        if array is not None:
            return ScaledField(array, state, options.clip, context, source)
        out = room((len(context.table), 1), state["dtype"], f"column '{context.name}'")
        encode_numbers(options, state, context, source, out)
        return ArrayField(out, state["dtype"])

    def decode(self, options: NumberOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Undo the scale."""
        found: NDArray[Any] = np.asarray(values, np.float64) * np.asarray(state["divisor"]) + np.asarray(state["shift"])
        return found

    def lanes(self, name: str, options: NumberOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps; see `ColumnType.lanes`."""
        return (number_lane(options.of or name, options.clip, carry_free(options.missing, state), array),)

    def units(self, options: NumberOptions, state: State) -> tuple[Step, ...]:
        """Return `decode` as steps; see `ColumnType.units`."""
        return scaling(Affine, state["divisor"], state["shift"])


def carry_free(missing: Missing, state: State) -> State:
    """Return a state that fills nothing in where a missing number is that of the row before, which a model cannot see."""
    return {**state, "fill": None} if missing == "previous" else state


def number_lane(source: str, clip: tuple[float, float] | None, state: State, array: TensorType | None = None) -> Lane:
    """Return how a column's numbers are filled in, clipped and scaled, as steps."""
    kind = array or TensorType((1,), "float64")
    steps: list[Step] = [] if kind.dtype == "float64" else [Cast("float64")]
    if kind.dtype not in FLOATS and state["dtype"] == "int64" and clip is None:
        return Lane(Source(source, kind, "an array, as in the file"), (Cast("int64"),))
    if state["fill"] is not None:
        steps.append(Fill(state["fill"]))
    if kind.dtype in FLOATS:
        steps.append(Check("finite", f"column '{source}': the cell is missing"))
    if clip is not None:
        steps.append(Clip(*clip))
    if state["dtype"] == "int64":
        steps.append(Check("whole", f"column '{source}': no whole number"))
    steps += scaling(Standardise, state["shift"], state["divisor"])
    if state["dtype"] != "float64":
        steps.append(Cast(state["dtype"]))
    said = "an array, as in the file" if array else "a number" + ("; NaN for a missing cell" if state["fill"] is not None else "")
    return Lane(Source(source, kind, said), tuple(steps))


def scaling(step: type[Standardise | Affine], first: list[float], second: list[float]) -> tuple[Step, ...]:
    """Return a step with two lists of numbers, or none where it would change nothing."""
    zero, one = (first, second) if step is Standardise else (second, first)
    return () if set(zero) == {0.0} and set(one) == {1.0} else (step(tuple(first), tuple(second)),)


def numbers_of(context: Context, source: str) -> Numbers:
    """Return a column as numbers.

    Raises:
        PeError: DATA; some cells are no numbers: the first of them are told.
    """
    found = context.table.cells(source).numbers()
    if not found.bad_count:
        return found
    cells = context.table.cells(source)
    row = int(found.bad[0])
    others = [f"row {int(r) + 1}: '{_short(cells.text(int(r)))}'" for r in found.bad[1:]]
    more = found.bad_count - 1
    nor = "nor is 1 more cell" if more == 1 else f"nor are {more:,} more cells"
    said = f", {nor} ({', '.join(others[:3])})" if more else ""
    raise context.error(
        row,
        f"'{_short(cells.text(row))}' is no finite number{said}",
        f"correct the cells, declare {context.name}: {{type: category}}, or list such texts under the reader's missing",
        source,
    )


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
        gone = np.flatnonzero(np.isnan(context.table.cells(source).numbers().values))
        if len(gone):
            raise _is_missing(context, source, int(gone[0]), len(gone))
    if not len(there):
        raise context.error(0, "every training row misses this number", "leave the column out", source)
    fill = _fill(options, there)
    filled = np.where(np.isnan(values), fill, values) if missing and fill is not None else there
    if options.clip is not None:
        filled = np.clip(filled, *options.clip)
    shift, divisor = _scale(options.scale, filled)
    low, high = float(there.min()), float(there.max())
    if low == high and len(there) > 1:
        context.notes.append(f"column '{context.name}' is {low:g} in every training row: nothing can be learned from it")
    dtype = options.dtype or (
        "int64" if context.dtype in ("int64", "int32") and options.scale == "none" and _whole(filled) else "float32"
    )
    return {
        "fill": fill, "shift": [shift], "divisor": [divisor], "dtype": dtype, "low": low, "high": high, "missing": missing,
    }  # fmt: skip


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


def _is_missing(context: Context, source: str, row: int, count: int) -> PeError:
    rows = f"{count:,} cells are" if count > 1 else "the cell is"
    return context.error(
        row,
        f"{rows} missing",
        f"declare {context.name}: {{type: number, missing: median}} under data.columns, or fill the cells",
        source,
    )


def encode_numbers(options: NumberOptions, state: State, context: Context, source: str, out: NDArray[Any]) -> None:
    """Write a column's numbers, filled in, clipped and scaled, into `out`, [rows, 1].

    Raises:
        PeError: a row misses the number, and that is an error; with its place.
    """
    values = numbers_of(context, source).values
    if options.missing == "previous":
        values = _carried(values, context.table)
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK].copy()
        gone = np.isnan(part)
        if gone.any():
            if state["fill"] is None:
                row = start + int(np.flatnonzero(gone)[0])
                raise _is_missing(context, source, row, int(np.isnan(values).sum()))
            part[gone] = state["fill"]
        target = out[start : start + CHUNK, 0]
        if state["dtype"] == "int64":
            if options.clip is not None:
                np.clip(part, *options.clip, out=part)
            _check_whole(part, start, context, source)
            target[:] = part
        else:
            apply_scale(part, state, options.clip, target)
            _check_range(target, start, context, source)


def _carried(values: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
    """Return numbers with the last one before in place of a missing one; a series that begins with missing ones keeps them."""
    order = getattr(table, "order", None)
    bounds: NDArray[np.int64] = getattr(table, "bounds", np.array([0, len(values)]))
    found = values if order is None else values[order]
    there = np.where(np.isnan(found), -1, np.arange(len(found)))
    last = np.maximum.accumulate(there)
    last = np.where(last < np.repeat(bounds[:-1], np.diff(bounds)), -1, last)
    carried = np.where(last < 0, np.nan, found[last])
    if order is None:
        return carried
    out = np.empty_like(values)
    out[order] = carried
    return out


def _check_whole(part: NDArray[np.float64], start: int, context: Context, source: str) -> None:
    bad = (part != np.rint(part)) | (np.abs(part) > 2.0**53)
    if bad.any():
        row = start + int(np.flatnonzero(bad)[0])
        text = context.table.cells(source).text(row)
        raise context.error(row, f"'{text}' is no whole number", "set dtype: float32 on the column", source)


def _check_range(part: NDArray[Any], start: int, context: Context, source: str) -> None:
    if not np.isfinite(part).all():
        row = start + int(np.flatnonzero(~np.isfinite(part))[0])
        text = context.table.cells(source).text(row)
        raise context.error(row, f"'{text}' is too large for {part.dtype}", "set scale: standard, clip, or dtype: float64", source)


def apply_scale(values: NDArray[np.float64], state: State, clip: tuple[float, float] | None, out: NDArray[Any]) -> None:
    """Fill in, clip and scale float64 numbers, which are changed, into `out` of the same shape."""
    if state["fill"] is not None:
        np.copyto(values, state["fill"], where=np.isnan(values))
    if clip is not None:
        np.clip(values, *clip, out=values)
    values -= np.asarray(state["shift"])
    values /= np.asarray(state["divisor"])
    with np.errstate(over="ignore"):
        out[...] = values


def _fit_array(options: NumberOptions, context: Context, array: Array, rows: Rows | None) -> State:
    """Learn from a file of arrays: features of a vector each by itself, larger samples with one scale for all elements."""
    each = array.ndim == 2
    kind = "int64" if array.dtype.kind in "iu" and context.dtype in ("int64", "int32") and options.scale == "none" else "float32"
    dtype = options.dtype or kind
    if options.scale == "none" and isinstance(options.missing, str) and options.missing == "error":
        return {"fill": None, "shift": [0.0], "divisor": [1.0], "dtype": dtype, "low": 0.0, "high": 0.0, "missing": 0}
    if options.scale == "robust" or options.missing in ("median", "previous"):
        raise PeError(
            f"column '{context.name}': robust scales, medians and previous numbers are for columns of a table, and this field holds arrays",
            at=context.at,
            hint="use scale: standard or minmax",
        )
    count, total, squares, low, high, missing = _moments(array, rows, each, None)
    mean = total / np.maximum(count, 1)
    if missing and options.missing == "error":
        raise context.error(0, f"{missing:,} numbers are NaN", "set missing: mean, or a number")
    _, _, squares, *_ = _moments(array, rows, each, mean)
    if options.scale == "standard":
        shift, divisor = mean, np.sqrt(squares / np.maximum(count, 1))
    elif options.scale == "minmax":
        shift, divisor = low, high - low
    else:
        shift, divisor = np.zeros(1), np.ones(1)
    divisor = np.where(divisor > 0, divisor, 1.0)
    fill = float(mean.mean()) if options.missing == "mean" else None if options.missing == "error" else float(options.missing)
    return {
        "fill": fill, "shift": shift.tolist(), "divisor": divisor.tolist(), "dtype": dtype,
        "low": float(low.min()), "high": float(high.max()), "missing": missing,
    }  # fmt: skip


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
        total += np.where(good, values, 0).sum(axis=0)
        squares += (np.where(good, values - (0 if center is None else center), 0) ** 2).sum(axis=0)
        low = np.fmin(low, np.where(good, values, np.inf).min(axis=0))
        high = np.fmax(high, np.where(good, values, -np.inf).max(axis=0))
    return count, total, squares, low, high, missing


def all_or_none(errors: Sequence[PeError]) -> None:
    """Raise the mistakes of several columns as one.

    Raises:
        PeError: there are any.
    """
    if errors:
        raise errors[0] if len(errors) == 1 else PeErrors(list(errors))
