"""Windows: several rows of a series in one sample, as input or as what is to be forecast."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import PeError
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.fields import Rows
from pe_cli.data.series_windows import WindowTable


class WindowOptions(ColumnOptions):
    """Options of window columns."""

    of: Name | Annotated[list[Name], Field(min_length=1)] = Field(
        description="column that is seen, or a list of them, side by side; each is encoded as it is declared"
    )
    part: Literal["input", "horizon"] = Field("input", description="the rows of the input, or those that are to be forecast")


class WindowState(BaseModel):
    """What a window has learned: how many rows it has; all else is learned by the columns that it is made of."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    steps: Annotated[int, Field(ge=1)]


@column
class Window(ColumnType[WindowOptions]):
    """Rows of a series, [rows, numbers], the oldest first; for the reader `windows`. `of: NAME` of one number per row gives [rows]."""

    name = "window"
    options = WindowOptions
    learned = WindowState

    def sources(self, name: str, options: WindowOptions) -> tuple[str, ...]:
        """Return none: the columns that it is made of read the table."""
        return ()

    def made_of(self, options: WindowOptions) -> tuple[str, ...]:
        """Return the columns that it shows."""
        return (options.of,) if isinstance(options.of, str) else tuple(options.of)

    def fit(self, options: WindowOptions, context: Context, rows: Rows | None) -> State:
        """Return the number of rows."""
        shape = _table(context).shape
        return {"steps": shape.length if options.part == "input" else shape.horizon}

    def encode(self, options: WindowOptions, state: State, context: Context) -> FieldOf:
        """Return windows of the columns that it is made of.

        Raises:
            PeError: windows have another length than in training, or are made of a column that has no row of numbers.
        """
        table = _table(context)
        for name, field in context.fields.items():
            if field.sequences or len(field.type.shape) != 1:
                said = f"{field.type}{' in sequences' if field.sequences else ''}"
                raise PeError(
                    f"column '{context.name}' is made of '{name}', which is {said}",
                    at=context.at,
                    hint="a window shows columns with a row of numbers: number, bool, category, date, bag or vector",
                )
        fields = list(context.fields.values())
        flat = isinstance(options.of, str) and fields[0].type.shape == (1,)
        made = table.window(fields, options.part, flat, f"column '{context.name}'")
        if made.type.shape[0] != state["steps"]:
            raise PeError(
                f"column '{context.name}' has windows of {made.type.shape[0]} rows, and {state['steps']} in training",
                at=context.at,
                hint="bring back length and horizon of the reader",
            )
        return made


def _table(context: Context) -> WindowTable:
    if not isinstance(context.table, WindowTable):
        raise PeError(
            f"column '{context.name}': only the reader windows cuts series into windows",
            at=context.at,
            hint="source: {reader: windows, table: FILE, length: 28, horizon: 7}",
        )
    return context.table
