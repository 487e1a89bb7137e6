"""Numbers: a cell is one number; what is missing is filled in, and the rest is brought to a common scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.encoding import (
    Affine,
    Cast,
    Check,
    Clip,
    Empty,
    Exponential,
    Fill,
    HyperbolicSine,
    Lane,
    Logarithm,
    SignedLogarithm,
    Source,
    Standardise,
    Step,
)
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.data.column import ColumnType, Context, State, column, selected
from pe_cli.data.columns.number_fit import (
    ADDED,
    CHUNK,
    Missing,
    NumberOptions,
    NumberState,
    ahead_of,
    check_logarithm,
    fit_array,
    fit_numbers,
    is_missing,
    numbers_of,
    scale_of,
    transformed,
)
from pe_cli.data.dataset import Array
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import Table
from pe_cli.data.spill_storage import room


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
            PeError: DATA; NaN where nothing stands for it, a fraction in a column of whole numbers, or a number that its type cannot hold.
        """
        found = self.values[rows]
        whole = self.type.dtype == "int64"
        if whole and found.dtype.kind in "iub":
            return self._whole(rows, found), None
        wide = found.astype(np.float64)
        if self._state["fill"] is None and found.dtype.kind == "f":
            self._check(rows, np.isnan(wide), found, "is missing", "set missing: mean, or a number")
        out = np.empty(found.shape, self.type.numpy)
        apply_scale(wide, self._state, self._clip, out)
        if whole:
            self._check(rows, wide != np.rint(wide), wide, "is no whole number", "set dtype: float32 on the column")
            # Above 2^53 a float64 does not hold every whole number.
            self._check(rows, np.abs(wide) > 2.0**53, wide, "is too large for a whole number", "set clip, or dtype: float32 on the column")
        else:
            large = ~np.isfinite(out) & np.isfinite(found)
            unscaled = set(self._state["divisor"]) == {1.0} and set(self._state["shift"]) == {0.0}
            hint = f"set {'scale: standard, ' * unscaled}clip, or dtype: float64 on the column"
            self._check(rows, large, found, f"is too large for {out.dtype}", hint)
        return out, None

    def _whole(self, rows: Rows, found: Array) -> Array:
        """Return whole numbers as they are, or clipped: by way of float64 large ones would be rounded."""
        top = np.iinfo(np.int64)
        if found.dtype == np.uint64:
            hint = "set clip, or dtype: float32 on the column"
            most = float(top.max) if self._clip is None else self._clip[1]
            if most >= top.max:
                self._check(rows, found > np.uint64(top.max), found, "is too large for int64", hint)
            found = np.minimum(found, np.uint64(top.max))
        out = np.ascontiguousarray(found, np.int64)
        if self._clip is None:
            return out
        low, high = (min(max(int(bound), top.min), top.max) for bound in (np.ceil(self._clip[0]), np.floor(self._clip[1])))
        return np.clip(out, low, high)

    def _check(self, rows: Rows, bad: NDArray[np.bool_], found: Array, said: str, hint: str) -> None:
        if bad.any():
            first = int(np.flatnonzero(bad.reshape(len(rows), -1).any(axis=1))[0])
            value = found[first][bad[first]].reshape(-1)[0] if found.ndim > 1 else found[first]
            raise self._context.error(int(rows[first]), f"{value} {said}", hint, self._source)


@column
class Number(ColumnType[NumberOptions]):
    """One number per row. `missing`, `clip`, `transform` and `scale` are applied in this order."""

    name = "number"
    options = NumberOptions
    learned = NumberState
    view = "numbers"

    def sources(self, name: str, options: NumberOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def notation(self, options: NumberOptions) -> Notation:
        """Return how its cells are written."""
        return options.notation

    def fit(self, options: NumberOptions, context: Context, rows: Rows | None) -> State:
        """Learn the fill value and the scale."""
        source = options.of or context.name
        array = context.table.cells(source).array()
        if array is not None:
            return fit_array(options, context, array, rows)
        found = numbers_of(context, source, options.notation)
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

    def cell(self, source: str, options: NumberOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source
        return number_cell(state, options.notation)

    def decode(self, options: NumberOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Undo the scale and the logarithm."""
        shift, divisor = scale_of(state, np.shape(values))
        found: NDArray[Any] = np.asarray(values, np.float64) * divisor + shift
        if options.transform:
            with np.errstate(over="ignore"):
                found = np.sinh(found) if options.transform == "asinh" else np.exp(found) - ADDED[options.transform]
        return found

    def lanes(self, name: str, options: NumberOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps; see `ColumnType.lanes`."""
        lane = number_lane(
            options.of or name, options.clip, carry_free(options.missing, state), array, options.notation, options.transform
        )
        return (lane,)

    def units(self, options: NumberOptions, state: State) -> tuple[Step, ...]:
        """Return `decode` as steps; see `ColumnType.units`."""
        back: tuple[Step, ...] = (Exponential(ADDED[options.transform]),) if options.transform in ADDED else ()
        back = (HyperbolicSine(),) if options.transform == "asinh" else back
        return (*scaling(Affine, state["divisor"], state["shift"]), *back)


def carry_free(missing: Missing, state: State) -> State:
    """Return a state that fills nothing in where a missing number is that of the row before, which a model cannot see."""
    return {**state, "fill": None} if missing == "previous" else state


def number_lane(
    source: str, clip: tuple[float, float] | None, state: State, array: TensorType | None = None, notation: Notation = PLAIN,
    transform: str | None = None,
) -> Lane:  # fmt: skip
    """Return how a column's numbers are filled in, clipped and scaled, as steps."""
    kind = array or TensorType((1,), "float64")
    steps: list[Step] = [] if kind.dtype == "float64" else [Cast("float64")]
    if kind.dtype not in FLOATS and state["dtype"] == "int64" and clip is None:
        return Lane(Source(source, kind, "an array, as in the file"), (Cast("int64"),))
    if notation.empty:
        steps.append(Empty(notation.empty))
    if state["fill"] is not None:
        steps.append(Fill(tuple(state["fill"]) if isinstance(state["fill"], list) else state["fill"]))
    if kind.dtype in FLOATS:
        steps.append(Check("finite", f"column '{source}': the cell is missing"))
    if clip is not None:
        steps.append(Clip(*clip))
    if state["dtype"] == "int64":
        steps.append(Check("whole", f"column '{source}': no whole number"))
    steps += _transforming(source, transform)
    steps += scaling(Standardise, state["shift"], state["divisor"])
    if state["dtype"] != "float64":
        steps.append(Cast(state["dtype"]))
    said = "an array, as in the file" if array else "a number" + ("; NaN for a missing cell" if state["fill"] is not None else "")
    if not notation.is_plain:
        said += f"; not the text of the file, like {notation.said}"
    return Lane(Source(source, kind, said), tuple(steps))


def _transforming(source: str, transform: str | None) -> list[Step]:
    if transform == "asinh":
        return [SignedLogarithm()]
    if transform:
        return [Logarithm(ADDED[transform]), Check("finite", f"column '{source}': the number has no logarithm")]
    return []


def number_cell(state: State, notation: Notation) -> dict[str, Any]:
    """Return what a cell of numbers may be: any, of which those of training had some range."""
    low, high = state["low"], state["high"]
    middle = round(low + (high - low) / 2)
    example = middle if low <= middle <= high else low
    missing = "error" if state["fill"] is None else "filled"
    unit = notation.unit or "that of the training data"
    texts = {} if notation.is_plain else {"text": notation.said}
    return {"low": low, "high": high, "unit": unit, "missing": missing, "example": example, **texts}


def scaling(step: type[Standardise | Affine], first: list[float], second: list[float]) -> tuple[Step, ...]:
    """Return a step with two lists of numbers, or none where it would change nothing."""
    zero, one = (first, second) if step is Standardise else (second, first)
    return () if set(zero) == {0.0} and set(one) == {1.0} else (step(tuple(first), tuple(second)),)


def encode_numbers(options: NumberOptions, state: State, context: Context, source: str, out: NDArray[Any]) -> None:
    """Write a column's numbers, filled in, clipped and scaled, into `out`, [rows, 1].

    Raises:
        PeError: a row misses the number, and that is an error; with its place.
    """
    values = numbers_of(context, source, options.notation).values
    if options.missing == "previous":
        values = _carried(values, context.table)
    ahead = ahead_of(context)
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK].copy()
        # In chunks, so that a column as large as memory needs no second one.
        gone = np.isnan(part)
        if state["fill"] is None:
            part[gone & ahead[start : start + CHUNK] & (state["dtype"] == "int64")] = 0
            gone &= ~ahead[start : start + CHUNK]
        if gone.any():
            if state["fill"] is None:
                row = start + int(np.flatnonzero(gone)[0])
                raise is_missing(context, source, row, int(np.isnan(values).sum()))
            part[gone] = state["fill"]
        if options.transform:
            clipped = part if options.clip is None else np.clip(part, *options.clip)
            check_logarithm(clipped, options.transform, start, context, source)
        target = out[start : start + CHUNK, 0]
        if state["dtype"] == "int64":
            if options.clip is not None:
                np.clip(part, *options.clip, out=part)
            _check_whole(part, start, context, source)
            target[:] = part
        else:
            apply_scale(part, state, options.clip, target, options.transform)
            _check_range(target, start, context, source, ahead)


def _carried(values: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
    """Return numbers with the last one before in place of a missing one; a series that begins with missing ones keeps them."""
    # Within each series and in its order: the last row of another series is no past of this one.
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
    # Above 2^53 a float64 does not hold every whole number.
    bad = (part != np.rint(part)) | (np.abs(part) > 2.0**53)
    if bad.any():
        row = start + int(np.flatnonzero(bad)[0])
        text = context.table.cells(source).text(row)
        raise context.error(row, f"'{text}' is no whole number", "set dtype: float32 on the column", source)


def _check_range(part: NDArray[Any], start: int, context: Context, source: str, ahead: NDArray[np.bool_]) -> None:
    bad = ~np.isfinite(part)
    if bad.any() and (bad := bad & ~ahead[start : start + len(part)]).any():
        row = start + int(np.flatnonzero(bad)[0])
        text = context.table.cells(source).text(row)
        raise context.error(row, f"'{text}' is too large for {part.dtype}", "set scale: standard, clip, or dtype: float64", source)


def apply_scale(
    values: NDArray[np.float64], state: State, clip: tuple[float, float] | None, out: NDArray[Any], transform: str | None = None
) -> None:
    """Fill in, clip and scale float64 numbers, which are changed, into `out` of the same shape."""
    if state["fill"] is not None:
        np.copyto(values, state["fill"], where=np.isnan(values))
    if clip is not None:
        np.clip(values, *clip, out=values)
    if transform:
        np.copyto(values, transformed(values, transform))
    shift, divisor = scale_of(state, values.shape)
    values -= shift
    values /= divisor
    # Told afterwards, with the row, by whoever wrote the value.
    with np.errstate(over="ignore"):
        out[...] = values
