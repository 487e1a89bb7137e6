"""Joins several columns side by side for one feed: one look-up per sample."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column_usage import ColumnUsage
from pe_cli.data.fields import ArrayField, Field
from pe_cli.data.machine_processes import MachineProcesses
from pe_cli.data.spill_storage import room


def joined(want: ColumnUsage, parts: Sequence[Field], plain: Collection[str], together: MachineProcesses | None) -> ArrayField:
    """Return fields of one table joined along their last axis.

    Args:
        want: names them.
        parts: the fields, in this order; one row of numbers per sample each.
        plain: those that are numbers, not classes.
        together: processes that join the same: each writes its rows, and all have the array.

    Raises:
        PeError: DATA; a field has samples of another kind.
    """
    for name, part in zip(want.names, parts, strict=True):
        if not isinstance(part, ArrayField) or len(part.type.shape) != 1:
            raise PeError(
                f"column '{name}' is {part.type}{' in sequences' if part.sequences else ''} and cannot stand beside others in a feed",
                at=want.at,
                hint="columns that are joined have one row of numbers per sample; give this one a feed of its own",
                code=ExitCode.DATA,
            )
    arrays = [part for part in parts if isinstance(part, ArrayField)]
    dtype = np.result_type(*(part.type.numpy for part in arrays)).name
    dtype = dtype if dtype == "int64" else "float64" if any(p.type.dtype == "float64" for p in arrays) else "float32"
    shape, what = (len(arrays[0]), sum(part.type.shape[0] for part in arrays)), f"feed of '{want.field}'"
    shared = None if together is None else together.rooms([(shape, dtype)], what)
    out = shared[0] if shared else room(shape, dtype, what)
    rows = slice(*together.span(len(out))) if together and shared else slice(None)
    start = 0
    numbers: dict[str, slice] = {}
    for name, part in zip(want.names, arrays, strict=True):
        end = start + part.type.shape[0]
        out[rows, start:end] = part.values[rows]
        if name in plain:
            numbers[name] = slice(start, end)
        start = end
    if together and shared:
        together.wait(what)
    return ArrayField(out, dtype, numbers)
