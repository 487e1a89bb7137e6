"""Series in tables, cut into windows: what was seen, and what came then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from pe_cli.config.sections.value_types import Count, Name
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import Offset, ReaderOptions, check_options, find_reader, reader
from pe_cli.data.regular_times import Combined, regular, seconds_of

if TYPE_CHECKING:
    from pe_cli.data.series_windows import Shape, WindowTable


def _step(value: str) -> str:
    seconds_of(value)
    return value


class WindowsOptions(ReaderOptions):
    """Options of the windows reader."""

    table: Name | dict[str, Any] = Field(description="the table: its file, or the options of the reader `table`")
    length: Count = Field(description="rows of an input")
    horizon: Count = Field(1, description="rows that follow, and are to be forecast")
    gap: Offset = Field(0, description="rows between input and horizon")
    stride: Count = Field(1, description="rows from a window to the next one")
    key: Name | None = Field(None, description="column that tells series apart; one series when absent")
    time: Name | None = Field(
        None, description="column of numbers or dates that puts the rows of a series in order; in the order of the file when absent"
    )
    format: Name | None = Field(
        None, description="of `time`, as a column of dates has it, like %d.%m.%Y or Q%q %Y; ISO 8601 or numbers when absent"
    )
    every: Annotated[Name, AfterValidator(_step)] | None = Field(
        None,
        description="makes times regular: one row for each step of so long, such as 15 minutes, 1 hour, 1 day or 1 week; in steps without "
        "a row numbers are missing, and other cells are those of the step before",
    )
    combine: Combined = Field("mean", description="with `every`: what becomes of several numbers in a step; of other cells the last counts")
    observed: Name | None = Field(
        None,
        description="column that is known up to now, and empty in rows that are yet to come: inputs end at the last row of a series that "
        "has it; columns whose future is known, such as a price, may be seen in the horizon",
    )
    ends: Annotated[bool, Field(strict=True)] = Field(
        False, description="one window per series, whose input is its last rows, to forecast what comes; `pe predict RUN FILE` sets it"
    )

    def shape(self) -> Shape:
        """Return how windows are cut."""
        from pe_cli.data.series_windows import Shape

        return Shape(self.length, self.horizon, self.gap, self.stride, self.ends, self.observed)


    @model_validator(mode="after")
    def _timed(self) -> WindowsOptions:
        alone = next((name for name in ("format", "every") if getattr(self, name) is not None), None)
        if self.time is None and alone is not None:
            raise ValueError(f"{alone} is of the column of times, and time names none")
        return self

    def windows(self, table: Table, origin: Origin) -> WindowTable:
        """Return the windows of a table.

        Raises:
            PeError: DATA; see `WindowTable` and `regular`.
        """
        from pe_cli.data.series_windows import WindowTable

        if self.every is None:
            return WindowTable(table, self.shape(), self.key, self.time, origin, self.format)
        for option, name in (("key", self.key), ("time", self.time)):
            if name is not None and name not in table.names:
                raise origin.error(f"{option}: the table has no column '{name}'", f"it has {', '.join(table.names[:20])}")
        assert self.time is not None, "checked above"
        made = regular(table, self.key, self.time, self.format, seconds_of(self.every), self.combine, origin)
        return WindowTable(made, self.shape(), self.key, self.time, origin)


@reader("windows", WindowsOptions)
def open_windows(options: WindowsOptions, origin: Origin) -> Table:
    """Read series in a table: a sample is a window, some rows as input and the rows that follow as horizon.

    Columns of type `window` say which columns a window shows; any other column has its value in the last row of the input. `skip` and
    `limit` count rows of the table.
    """
    from pe_cli.data.readers.table import open_table
    given = {"files": options.table} if isinstance(options.table, str) else options.table
    whole = {"skip": options.skip, "limit": options.limit, **given}
    table = open_table(check_options(find_reader("table"), whole, origin.at), origin)  # type: ignore[arg-type]
    return options.windows(table, origin)
