"""Series in tables, cut into windows: what was seen, and what came then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from pe_cli.config.sections.value_types import Count, Name
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import Offset, ReaderOptions, check_options, find_reader, reader

if TYPE_CHECKING:
    from pe_cli.data.series_windows import Shape



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


@reader("windows", WindowsOptions)
def open_windows(options: WindowsOptions, origin: Origin) -> Table:
    """Read series in a table: a sample is a window, some rows as input and the rows that follow as horizon.

    Columns of type `window` say which columns a window shows; any other column has its value in the last row of the input. `skip` and
    `limit` count rows of the table.
    """
    from pe_cli.data.readers.table import open_table
    from pe_cli.data.series_windows import WindowTable

    given = {"files": options.table} if isinstance(options.table, str) else options.table
    whole = {"skip": options.skip, "limit": options.limit, **given}
    table = open_table(check_options(find_reader("table"), whole, origin.at), origin)  # type: ignore[arg-type]
    return WindowTable(table, options.shape(), options.key, options.time, origin)
