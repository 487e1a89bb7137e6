"""Vectors: several columns of numbers side by side, or several numbers in one cell."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pe_cli.config.sections.value_types import Number
from pe_cli.core.encoding import Lane
from pe_cli.core.errors import PeError, as_one
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnType, Context, State, column, selected
from pe_cli.data.columns.number import carry_free, encode_numbers, number_cell, number_lane
from pe_cli.data.columns.number_fit import (
    Missing,
    NumberOptions,
    NumberState,
    Scale,
    WrittenOptions,
    fit_numbers,
    numbers_of,
)
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.notation import Notation
from pe_cli.data.spill_storage import room


class VectorOptions(WrittenOptions):
    """Options of vector columns."""

    of: list[Annotated[str, Field(strict=True)]] = Field(min_length=1, description="columns of numbers, in the order of the vector")
    missing: Missing = Field("error", description="as for number, for each column by itself")
    scale: Scale = Field("none", description="as for number, for each column by itself")
    clip: tuple[Number, Number] | None = Field(None, description="as for number")


class VectorState(BaseModel):
    """What a vector has learned: the states of its columns."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    columns: dict[str, NumberState]


@column
class Vector(ColumnType[VectorOptions]):
    """Several columns of numbers as one field, float32 [columns]."""

    name = "vector"
    options = VectorOptions
    learned = VectorState
    view = "numbers"

    def sources(self, name: str, options: VectorOptions) -> tuple[str, ...]:
        """Return the columns that it is made of."""
        return tuple(options.of)

    def notation(self, options: VectorOptions) -> Notation:
        """Return how its cells are written."""
        return options.notation

    def fit(self, options: VectorOptions, context: Context, rows: Rows | None) -> State:
        """Learn from every column by itself.

        Raises:
            PeError: DATA; see `ColumnType.fit`, all mistakes in one.
        """
        found, errors = {}, []
        number = _number(options)
        # Every column is tried, so that all mistakes are told at once.
        for source in options.of:
            try:
                values = selected(numbers_of(_renamed(context, source), source, options.notation).values, rows)
                found[source] = fit_numbers(number, _renamed(context, source), values, source) | {"dtype": "float32"}
            except PeError as error:
                errors.append(error)
        if errors:
            raise as_one(errors)
        return {"columns": found}

    def encode(self, options: VectorOptions, state: State, context: Context) -> FieldOf:
        """Return the columns side by side.

        Raises:
            PeError: DATA; see `ColumnType.encode`, all mistakes in one.
        """
        out = room((len(context.table), len(options.of)), "float32", f"column '{context.name}'")
        errors = []
        for i, source in enumerate(options.of):
            try:
                encode_numbers(_number(options), state["columns"][source], _renamed(context, source), source, out[:, i : i + 1])
            except PeError as error:
                errors.append(error)
        if errors:
            raise as_one(errors)
        return ArrayField(out, "float32")

    def cell(self, source: str, options: VectorOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        return {"type": "number", **number_cell(state["columns"][source], options.notation)}

    def lanes(self, name: str, options: VectorOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return one lane for each column; see `ColumnType.lanes`."""
        states = {source: carry_free(options.missing, state["columns"][source]) for source in options.of}
        return tuple(number_lane(source, options.clip, states[source], None, options.notation) for source in options.of)


def _number(options: VectorOptions) -> NumberOptions:
    return NumberOptions(
        of=None, missing=options.missing, scale=options.scale, clip=options.clip, dtype="float32", decimal=options.decimal,
        thousands=options.thousands, unit=options.unit, empty=options.empty, transform=None,
    )  # fmt: skip


def _renamed(context: Context, source: str) -> Context:
    return Context(context.table, source, context.target, context.dtype, context.at, context.base, context.notes)
