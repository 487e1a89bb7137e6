"""take_rows, put_rows and all_rows: read and write the rows of a sharded parameter that this process owns."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.calls import Offset
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import InPlace, OwnRows
from pe_cli.ops.update.optimizer import in_place

_ATTRS = {
    "rows": Attr([0, 0], "first row of each process and the row after its last: [begin_0, end_0, begin_1, ...]"),
    "rank": Attr(0, "number of this process"),
}


def _own(name: str, whole: TensorType, rows: Sequence[int], rank: int) -> tuple[int, int]:
    """Return the first row of this process and the one after its last."""
    if not 0 <= rank < len(rows) // 2 or len(rows) % 2 or not whole.shape:
        raise PeError(f"{name}: rows has {len(rows)} numbers, and this is process {rank}", hint="two numbers for each process")
    begin, end = rows[2 * rank : 2 * rank + 2]
    if not 0 <= begin <= end <= whole.shape[0]:
        raise PeError(f"{name}: there are no rows {begin} to {end} of {whole}")
    return begin, end


@op(
    "take_rows",
    inputs="X",
    attrs=_ATTRS,
    differentiable="",
    traits=[OwnRows("X")],
    samples=[
        Sample({"X": (5, 3)}, {"rows": [0, 2, 2, 5], "rank": 1}, "the last rows"),
        Sample({"X": (7,)}, {"rows": [0, 3, 3, 7]}, "elements"),
        Sample({"X": (5, 3)}, {"rows": [0, 5, 5, 5], "rank": 1}, "no row"),
        Sample({"X": (0, 3)}, name="nothing"),
    ],
)
def take_rows(x: TensorType, *, rows: list[int], rank: int) -> TensorType:
    """Copy the rows that are this process's own.

    Out = X[rows[2 rank] : rows[2 rank + 1]]

    Args:
        X: any type with an axis: a parameter or its gradient.
        rows: for each process two row numbers, along axis 0.
        rank: of this process.

    Returns:
        Out: those rows.

    Raises:
        PeError: X has no such rows.

    Source:
        fluid's ReduceStrategy.Reduce; Rajbhandari et al. 2020, section 5.1.
    """
    begin, end = _own("take_rows", x, rows, rank)
    return x.with_shape(end - begin, *x.shape[1:])


@take_rows.lower("cpu")
def take_rows_cpu(o: Lowering) -> None:
    """One copy."""
    # A begin in elements: rows are contiguous, so own rows are one copy.
    x, out = o.input("X"), o.output("Out")
    begin, _ = _own("take_rows", x.type, o.attrs["rows"], o.attrs["rank"])
    if out.size:
        o.call(copy, Offset(x, begin * product(x.shape[1:])), out, out.size)


@op(
    "put_rows",
    inputs="X Rows",
    attrs=_ATTRS,
    differentiable="",
    traits=[OwnRows("Out", gives=True), InPlace({"Out": "X"})],
    samples=[
        Sample({"X": (5, 3), "Rows": (3, 3)}, {"rows": [0, 2, 2, 5], "rank": 1}, "the last rows"),
        Sample({"X": (7,), "Rows": (3,)}, {"rows": [0, 3, 3, 7]}, "elements"),
        Sample({"X": (5, 3), "Rows": (0, 3)}, {"rows": [0, 5, 5, 5], "rank": 1}, "no row"),
        Sample({"X": (0, 3), "Rows": (0, 3)}, name="nothing"),
    ],
)
def put_rows(x: TensorType, values: TensorType, *, rows: list[int], rank: int) -> TensorType:
    """Put this process's own rows into the whole.

    Out = X, but Out[rows[2 rank] : rows[2 rank + 1]] = Rows. Where several processes share updates, each then gets the rows of the others.

    Args:
        X: any type with an axis: a parameter.
        Rows: as many rows of X's type as the process has.
        rows: for each process two row numbers, along axis 0.
        rank: of this process.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has no such rows, or Rows is of another type.

    Source:
        fluid's ReduceStrategy.Reduce; Rajbhandari et al. 2020, section 5.1.
    """
    begin, end = _own("put_rows", x, rows, rank)
    if values != x.with_shape(end - begin, *x.shape[1:]):
        raise PeError(f"put_rows: Rows is {values} for rows {begin} to {end} of {x}")
    return x


@put_rows.lower("cpu")
def put_rows_cpu(o: Lowering) -> None:
    """One copy, and one before where the result is another variable."""
    (out,) = in_place(o, ("X", "Out"))
    values = o.input("Rows")
    begin, _ = _own("put_rows", out.type, o.attrs["rows"], o.attrs["rank"])
    if values.size:
        o.call(copy, values, Offset(out, begin * product(out.shape[1:])), values.size)


@op(
    "all_rows",
    inputs="Rows",
    attrs=_ATTRS,
    differentiable="",
    traits=[OwnRows("Out", gives=True)],
    samples=[
        Sample({"Rows": (3, 3)}, {"rows": [0, 2, 2, 5], "rank": 1}, "the last rows"),
        Sample({"Rows": (3,)}, {"rows": [0, 3, 3, 7]}, "elements"),
    ],
)
def all_rows(values: TensorType, *, rows: list[int], rank: int) -> TensorType:
    """Give all rows of a variable of which each process has some.

    Out[rows[2 rank] : rows[2 rank + 1]] = Rows. The other rows come from the other processes behind this op; where there are none, nothing
    is there.

    Args:
        Rows: as many rows of any type as this process has.
        rows: for each process two row numbers, along axis 0.
        rank: of this process.

    Returns:
        Out: [rows of all, ...], and the type of Rows.

    Raises:
        PeError: Rows has another number of rows than this process.

    Source:
        ZeRO-3: Rajbhandari et al. 2020, section 5.3; fully sharded data parallelism: Zhao et al. 2023.
    """
    whole = values.with_shape(max(rows[1::2], default=0), *values.shape[1:])
    begin, end = _own("all_rows", whole, rows, rank)
    if values.shape[0] != end - begin:
        raise PeError(f"all_rows: Rows is {values} for rows {begin} to {end} of {whole}")
    return whole


@all_rows.lower("cpu")
def all_rows_cpu(o: Lowering) -> None:
    """One copy."""
    values, out = o.input("Rows"), o.output("Out")
    begin, _ = _own("all_rows", out.type, o.attrs["rows"], o.attrs["rank"])
    if values.size:
        o.call(copy, values, Offset(out, begin * product(out.shape[1:])), values.size)


for _op in (take_rows, put_rows, all_rows):
    also_on_cuda(_op)
