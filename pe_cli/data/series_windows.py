"""Windows of series: rows in the order of time, some of which make the input of a sample and later ones what is to be forecast.

A sample is known by its *anchor*, the last row of its input. So everything that is asked of a sample's row (its key, its weight, the
draws of augmentation) is asked of the anchor, and columns that are no windows have their value there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Field, Rows
from pe_cli.data.notation import Notations
from pe_cli.data.raw_cells import Cells, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room
from pe_cli.data.time_columns import moments_of, working_days

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

Part = Literal["input", "horizon"]
#: Rows that are brought into the order of time together.
STEP = 1 << 18
#: Series that a note names.
NAMED = 3
#: A time step is a gap if it is longer than the usual step by this factor.
LONGER = 1.5


@dataclass(frozen=True)
class Shape:
    """How windows are cut.

    Args:
        length: rows of the input.
        horizon: rows that are forecast.
        gap: rows between the two.
        stride: rows from a window to the next one.
        ends: one window per series, whose input is its last rows; it has no horizon, but for rows that are yet to come.
        observed: column that is empty in such rows; None where there are none.
    """

    length: int
    horizon: int
    gap: int = 0
    stride: int = 1
    ends: bool = False
    observed: str | None = None


class WindowField:
    """Windows of some columns side by side.

    Args:
        values: [rows, numbers], in the order of series and time.
        place: int64 [rows], where a row of the table stands in that order.
        first: of a window's rows, counted from its anchor.
        steps: rows of a window.
        flat: whether a step is a number by itself, and not a row of them.
        complete: bool [rows], in the order of `values`, where a window is whole.
    """

    sequences = False

    def __init__(
        self, values: Array, place: NDArray[np.int64], first: int, steps: int, flat: bool, complete: NDArray[np.bool_]
    ) -> None:
        self._values = values[:, 0] if flat else values
        self._place, self._complete = place, complete
        self._within = np.arange(first, first + steps, dtype=np.int64)
        self.type = TensorType((steps,) if flat else (steps, values.shape[1]), values.dtype.name)

    def __len__(self) -> int:
        return len(self._place)

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64] | None]:
        """Return the windows of some anchors; see `pe_cli.data.fields.Field.take`."""
        places = self._place[rows]
        assert self._complete[places].all(), "an anchor without a whole window"
        return self._values[places[:, None] + self._within], None


class WindowTable:
    """A table of series; see `pe_cli.data.raw_cells.Table`. Its rows are those of the file, and anchors of windows are its samples.

    Args:
        table: as it was read.
        shape: of the windows.
        key: column that tells series apart; None for one series.
        time: column that orders the rows of a series; None where they are in order.
        origin: gives errors their place.
        form: of dates in `time`, as of strptime; None for ISO 8601, or numbers.

    Attributes:
        contiguous: neighbouring samples share rows by nature.
        sample_names: columns by which a sample is known.

    Raises:
        PeError: DATA; there is no such column, a time is none, or a series has two rows of one time.
    """

    contiguous = True

    def __init__(self, table: Table, shape: Shape, key: str | None, time: str | None, origin: Origin, form: str | None = None) -> None:
        self.base, self.shape, self.key, self.time = table, shape, key, time
        self.implied: Mapping[str, Mapping[str, Any]] = dict(table.implied)
        self._origin = origin
        self.sample_names = tuple(name for name in (key, time) if name is not None)
        for option, name in (("key", key), ("time", time), ("observed", shape.observed)):
            if name is not None and name not in table.names:
                raise origin.error(f"{option}: the table has no column '{name}'", f"it has {', '.join(table.names[:20])}")
        times = None if time is None else moments_of(table, time, "windows are cut in its order", form)
        # Series by the codes of their key, in the order in which they first appear.
        series = np.zeros(len(table), np.int64) if key is None else table.cells(key).codes().codes.astype(np.int64)
        if (series < 0).any():
            raise table.error(int(np.flatnonzero(series < 0)[0]), str(key), "the key is missing", "fill it")
        # A stable order of two keys, so that equal times keep the order of the file.
        order = np.argsort(series, kind="stable") if times is None else np.lexsort((times, series))
        #: int64 [rows], the rows of the table by series and time.
        self.order: NDArray[np.int64] = order.astype(np.int64)
        #: int64 [rows], where a row stands in that order.
        self.place = np.empty(len(order), np.int64)
        self.place[self.order] = np.arange(len(order))
        sorted_series = series[self.order]
        #: int64 [series + 1], where series begin in the order, and its end.
        self.bounds = np.append(np.flatnonzero(np.diff(sorted_series, prepend=-1)), len(order)).astype(np.int64)
        self.times = None if times is None else times[self.order]
        #: int64 [series], where the rows of a series that are observed end in the order.
        self.stops = self._observed()
        self._check_times()

    def _check_times(self) -> None:
        if self.times is None:
            return
        same = np.flatnonzero(np.diff(self.times) == 0) + 1
        same = same[~np.isin(same, self.bounds)]
        # Two rows of one series at one time have no order, and a window over them would be of chance.
        if len(same):
            row, before = int(self.order[same[0]]), int(self.order[same[0] - 1])
            assert self.time is not None
            said = f" of '{self._name(row)}'" if self.key else ""
            hint = "remove one of them, or name the column that tells series apart: key"
            raise self.base.error(row, self.time, f"row {before + 1}{said} has the same time", hint)

    def _observed(self) -> NDArray[np.int64]:
        """Return where the rows of series end of which something is known but what is known ahead."""
        if self.shape.observed is None:
            return self.bounds[1:]
        cells = self.base.cells(self.shape.observed)
        numbers = cells.numbers()
        there = cells.codes().codes >= 0 if numbers.bad_count else ~np.isnan(numbers.values)
        stops = self.bounds[:-1].copy()
        places = np.flatnonzero(there[self.order])
        np.maximum.at(stops, self._series[places], places + 1)
        return stops

    @cached_property
    def series_of_rows(self) -> NDArray[np.int64]:
        """Which series a row belongs to, int64 [rows], in the order of the table."""
        return np.asarray(self._series[self.place])

    @cached_property
    def future(self) -> NDArray[np.bool_]:
        """Which rows are yet to come, bool [rows], in the order of the table."""
        found = np.empty(len(self), np.bool_)
        found[self.order] = np.arange(len(self)) >= self.stops[self._series]
        return found

    def _name(self, row: int) -> str:
        return self.base.cells(self.key).text(row) if self.key else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.base.names

    def __len__(self) -> int:
        return len(self.base)

    def cells(self, name: str) -> Cells:
        """Return a column; see `Table.cells`."""
        return self.base.cells(name)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Say which columns will be asked for; see `Table.prepare`."""
        self.base.prepare(numbers, codes, together)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""
        return self.base.error(row, name, message, hint)

    @cached_property
    def moments(self) -> NDArray[np.float64]:
        """When the rows were, float64 [rows]: by the column of times, or else from 0 to 1 within each series."""
        found = np.empty(len(self), np.float64)
        if self.times is not None:
            found[self.order] = self.times
        else:
            # Without a column of time the place within its series stands for it, so that all series are divided alike.
            for begin, end in zip(self.bounds[:-1], self.bounds[1:], strict=True):
                found[self.order[begin:end]] = np.arange(1, end - begin + 1) / (end - begin)
        return found

    # --- samples --------------------------------------------------------------------------------------------------------

    @cached_property
    def _series(self) -> NDArray[np.int64]:
        """Which series stands at a place."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def _complete(self, part: Part) -> NDArray[np.bool_]:
        """Return for every place whether the part of a window that is anchored there lies inside its series."""
        places, of = np.arange(len(self), dtype=np.int64), self._series
        if part == "input":
            return np.asarray((places - self.shape.length + 1 >= self.bounds[:-1][of]) & (places < self.stops[of]))
        ends = self.bounds[1:] if self.shape.ends else self.stops
        return np.asarray(places + self.shape.gap + self.shape.horizon < ends[of])

    def regroup(self, rows: Rows | None, fitted: object) -> tuple[Table, Rows]:
        """Return the anchors of the windows that belong to some rows: those whose whole horizon does.

        What a window's input reaches back to may be other rows: they are earlier, and known at that time.

        Args:
            rows: int64, sorted; all when None.
            fitted: not needed.

        Raises:
            PeError: DATA; there is none.
        """
        # At the end of each series, where nothing follows: what prediction asks for.
        whole = self._complete("input")
        if self.shape.ends:
            ends = self.stops[self.stops > self.bounds[:-1]] - 1
            return self, self._checked(np.sort(self.order[ends[whole[ends]]]))
        whole &= self._complete("horizon")
        starts = self.bounds[:-1][self._series]
        whole &= (np.arange(len(self)) - starts - self.shape.length + 1) % self.shape.stride == 0
        # A window counts for a part of the split only if its whole horizon lies in it: what is predicted must not be known from training.
        if rows is not None:
            inside = np.zeros(len(self), np.int64)
            inside[self.place[rows]] = 1
            total = np.append(0, np.cumsum(inside))
            first = np.minimum(np.arange(len(self)) + self.shape.gap + 1, len(self))
            last = np.minimum(first + self.shape.horizon, len(self))
            whole &= total[last] - total[first] == self.shape.horizon
        return self, self._checked(np.sort(self.order[whole]))

    def _checked(self, anchors: Rows) -> Rows:
        if not len(anchors):
            needed = self.shape.length + (0 if self.shape.ends else self.shape.gap + self.shape.horizon)
            longest = int(np.diff(self.bounds).max())
            most = f"the longest series has {longest:,}" if self.key else f"the series has {longest:,}"
            raise self._origin.error(
                f"no window of {needed:,} rows fits: {most}, and a part of a split must hold a whole horizon",
                "smaller length or horizon, a larger share of the split, or more rows",
            )
        return anchors

    @property
    def notes(self) -> list[str]:
        """What users should know: series that are too short for a window, and gaps of time."""
        needed = self.shape.length + (0 if self.shape.ends else self.shape.gap + self.shape.horizon)
        sizes = np.diff(self.bounds)
        short = np.flatnonzero(sizes < needed)
        notes = []
        if len(short) and self.key:
            named = ", ".join(f"'{self._name(int(self.order[self.bounds[i]]))}'" for i in short[:NAMED])
            more = f" and {len(short) - NAMED:,} more" if len(short) > NAMED else ""
            notes.append(f"{len(short):,} of {len(sizes):,} series have fewer than {needed:,} rows, and no window: {named}{more}")
        if self.times is not None and len(self) > len(sizes):
            # Steps over the border of two series are none.
            working = working_days(self.times)
            steps = np.delete(np.diff(self.times if working is None else working), self.bounds[1:-1] - 1)
            usual = float(np.median(steps))
            gaps = int((steps > LONGER * usual).sum())
            if gaps:
                notes.append(
                    f"{gaps:,} of {len(steps):,} steps of '{self.time}' are longer than {LONGER:g} usual ones, and windows go over them"
                )
        return notes

    def window(self, fields: Sequence[Field], part: Part, flat: bool, what: str) -> WindowField:
        """Return windows of columns.

        Args:
            fields: of this table, each with a row of numbers per row of the table.
            part: input or horizon; at the ends of series, a horizon of rows that are yet to come.
            flat: whether a step is a number by itself; needs one number.
            what: names it in an error.

        Raises:
            PeError: DATA; the horizon of windows at the ends of series is asked for.
        """
        if self.shape.ends and part == "horizon" and self.shape.observed is None:
            raise self._origin.error(
                f"{what}: windows at the ends of series have no horizon, so there is nothing to compare a forecast with",
                "leave ends out; pe predict asks for what comes next",
            )
        dtypes = {field.type.dtype for field in fields}
        # Numbers of several types become the widest of them.
        dtype = "int64" if dtypes == {"int64"} else "float64" if "float64" in dtypes else "float32"
        widths = [field.type.size for field in fields]
        values = room((len(self), sum(widths)), dtype, what)
        for start in range(0, len(self), STEP):
            rows = self.order[start : start + STEP]
            at = 0
            for field, width in zip(fields, widths, strict=True):
                values[start : start + len(rows), at : at + width] = field.take(rows)[0].reshape(len(rows), width)
                at += width
        shape = self.shape
        first, steps = (1 - shape.length, shape.length) if part == "input" else (shape.gap + 1, shape.horizon)
        if shape.ends and part == "horizon":
            self._check_future(values, first, steps, what)
        return WindowField(values, self.place, first, steps, flat, self._complete(part))

    def _check_future(self, values: Array, first: int, steps: int, what: str) -> None:
        """Check that the rows which are yet to come are there, and say what is known of them.

        Raises:
            PeError: DATA; says the series, and how many rows there are, or the first cell that is missing.
        """
        named = self.shape.observed
        hint = f"behind the last row with '{named}', each series needs {first + steps - 1} more: '{named}' empty, the others filled"
        ends = self.stops[self._complete("input")[self.stops - 1] & (self.stops > self.bounds[:-1])]
        for stop, end in zip(ends.tolist(), self.bounds[1:][self._series[ends - 1]].tolist(), strict=True):
            row = int(self.order[stop - 1])
            of = f" of '{self._name(row)}'" if self.key else ""
            if end - stop < first + steps - 1:
                said = f"{what} shows {steps} rows that are yet to come, and {end - stop:,}{of} are there"
                raise self.base.error(row, str(named), said, hint)
            part = values[stop + first - 1 : stop + first - 1 + steps]
            if part.dtype.kind == "f" and np.isnan(part).any():
                gone = int(self.order[stop + first - 1 + int(np.flatnonzero(np.isnan(part).any(axis=1))[0])])
                raise self.base.error(gone, str(named), f"{what} needs a cell{of} that is missing in this row", hint)
