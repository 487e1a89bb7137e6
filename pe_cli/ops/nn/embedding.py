"""lookup_table and lookup_table_v2: rows of a table by number (embeddings)."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cpu.non_temporal import AHEAD, fence_non_temporal, is_non_temporal, prefetch_row, store_row
from pe_cli.kernels.cuda.language import cuda_kernel, on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrI64, Status, T, address, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, per_sample, report
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.sorted_ids_cuda import PLACE, is_first, sorted_keys
from pe_cli.ops.define.traits import Divisible, ReportsData, RowWise, Table, Weight
from pe_cli.ops.define.work_parts import thread_parts


@kernel
def take_rows(
    table: Ptr, ids: PtrI64, out: Ptr, begin: Int, end: Int, count: Int, height: Int, width: Int, padding: Int, per: Int,
    status: Status,
):  # fmt: skip
    """out[i] = table[ids[i]] for i in [begin, end) of count, 0 for the padding id; of wrong ids, the first of all is reported."""
    far = is_non_temporal(address(out), width, count * width)
    for i in range(begin, end):
        k = ids[i]
        if k < 0 or k >= height:
            # Threads meet wrong ids in any order; the message always names the first one.
            first = 0
            while ids[first] >= 0 and ids[first] < height:
                first += 1
            report(status, first // per, ids[first], height)
            return
        # The processor cannot guess which row comes next, so it is told a few ids ahead.
        if i + AHEAD < end:
            prefetch_row(table, ids[i + AHEAD], width)
        if k == padding:
            for j in range(width):
                out[i * width + j] = T(0)
        elif far:
            store_row(address(table) + SIZE * k * width, address(out) + SIZE * i * width, width)
        else:
            for j in range(width):
                out[i * width + j] = table[k * width + j]
    # Stores past the caches have to be seen by whoever reads the result next.
    fence_non_temporal()


@kernel
def add_rows(g: Ptr, ids: PtrI64, dtable: Ptr, count: Int, begin: Int, end: Int, width: Int, padding: Int):
    """dtable = 0, then dtable[ids[i]] += g[i] in the order of i, in its rows from begin to end; the padding row stays 0."""
    for j in range(begin * width, end * width):
        dtable[j] = T(0)
    for i in range(count):
        k = ids[i]
        if i + AHEAD < count:
            then = ids[i + AHEAD]
            if then >= begin and then < end:
                prefetch_row(g, i + AHEAD, width)
                prefetch_row(dtable, then, width)
        # A thread owns rows of the table and passes over all ids: no two threads add to one row, and order is kept.
        if k != padding and k >= begin and k < end:
            for j in range(width):
                dtable[k * width + j] += g[i * width + j]


_ATTRS = {
    "padding_idx": Attr(-1, "id whose row reads as 0 and gets no gradient; -1 for none"),
    "is_sparse": Attr(False, "the gradient of W has only the rows that were looked up"),
    "is_distributed": Attr(False, "table on parameter servers; not available yet"),
}


def _repeated(*shape: int):
    return lambda rng: np.resize(np.array([1, 3, 1, 0], np.int64), shape)


def _checked(name: str, w: TensorType, ids: TensorType, padding: int, distributed: bool) -> None:
    if distributed:
        raise PeError(f"{name}: tables on parameter servers are not available yet", hint="set is_distributed: false")
    if len(w.shape) != 2:
        raise PeError(f"{name} needs a table W [rows, width], got {w}")
    if ids.dtype != "int64":
        raise PeError(f"{name} needs Ids of type int64, got {ids}", hint="cast them to int64")
    if not -1 <= padding < w.shape[0]:
        raise PeError(f"{name} needs padding_idx within [-1, {w.shape[0]}), got {padding}", hint="-1 means no padding")


@op(
    "lookup_table",
    traits=[Divisible(), ReportsData(), Table("W", "Ids", "Out"), RowWise(), Weight(("W",), "table", "vd")],
    inputs="W Ids",
    attrs=_ATTRS,
    differentiable="W",
    samples=[
        Sample({"W": (5, 4), "Ids": classes(0, 5, 6, 1)}, name="six rows"),
        Sample({"W": (4, 3), "Ids": _repeated(2, 4, 1)}, name="repeated ids"),
        Sample({"W": (4, 3), "Ids": _repeated(4, 1)}, {"padding_idx": 1}, "padding"),
        Sample({"W": (1, 1), "Ids": classes(0, 1, 1, 1)}, name="one element"),
        Sample({"W": (4, 3), "Ids": classes(0, 4, 0, 1)}, name="empty batch"),
    ],
)
def lookup_table(
    w: TensorType, ids: TensorType, *, padding_idx: int, is_sparse: bool, is_distributed: bool
) -> TensorType:
    """Take rows of a table by number.

    Out[..., :] = W[Ids[..., 0], :], and 0 where the id is padding_idx.

    Args:
        W: [rows, width] float32 or float64.
        Ids: [batch, ..., 1] int64, from 0.
        padding_idx: id whose row reads as 0 and gets no gradient; -1 for none.
        is_sparse: the gradient of W is row-sparse, see merge_selected_rows; no value changes.
        is_distributed: only false is available yet.

    Returns:
        Out: [batch, ..., width] element type of W.

    Raises:
        PeError: types that do not fit, or is_distributed; while running, an id that is not in [0, rows).

    Source:
        fluid.layers.embedding.
    """
    _checked("lookup_table", w, ids, padding_idx, is_distributed)
    if not ids.shape or ids.shape[-1] not in (1, -1):
        raise PeError(f"lookup_table needs Ids [..., 1], got {ids}", hint="lookup_table_v2 takes Ids without that axis")
    return w.with_shape(*ids.shape[:-1], w.shape[1])


@op(
    "lookup_table_v2",
    traits=[Divisible(), ReportsData(), Table("W", "Ids", "Out"), RowWise(), Weight(("W",), "table", "vd")],
    inputs="W Ids",
    attrs=_ATTRS,
    differentiable="W",
    samples=[
        Sample({"W": (5, 4), "Ids": classes(0, 5, 2, 3)}, name="a matrix of ids"),
        Sample({"W": (4, 3), "Ids": _repeated(4)}, {"padding_idx": 1}, "repeated ids and padding"),
        Sample({"W": (4, 3), "Ids": classes(0, 4, 0, 2)}, name="empty batch"),
    ],
)
def lookup_table_v2(
    w: TensorType, ids: TensorType, *, padding_idx: int, is_sparse: bool, is_distributed: bool
) -> TensorType:
    """Take rows of a table by number; as lookup_table, but the ids have no last axis of 1.

    Out[..., :] = W[Ids[...], :], and 0 where the id is padding_idx.

    Args:
        W: [rows, width] float32 or float64.
        Ids: [batch, ...] int64, from 0.
        padding_idx: id whose row reads as 0 and gets no gradient; -1 for none.
        is_sparse: the gradient of W is row-sparse, see merge_selected_rows; no value changes.
        is_distributed: only false is available yet.

    Returns:
        Out: [batch, ..., width] element type of W.

    Raises:
        PeError: types that do not fit, or is_distributed; while running, an id that is not in [0, rows).

    Source:
        paddle.nn.functional.embedding.
    """
    _checked("lookup_table_v2", w, ids, padding_idx, is_distributed)
    return w.with_shape(*ids.shape, w.shape[1])


def _lower(definition: OpDef) -> None:
    @definition.lower("cpu")
    def forward(o: Lowering) -> None:
        w, ids = o.input("W"), o.input("Ids")
        out, count = o.output("Out"), product(ids.shape)
        per = per_sample(count, ids.shape)
        for part, begin, end in thread_parts(count, o.threads, out.type.nbytes):
            o.call(take_rows, w, ids, out, begin, end, count, *w.shape, o.attrs["padding_idx"], per, STATUS, part=part)

    @definition.grad(uses="Ids").lower("cpu")
    def backward(o: Lowering) -> None:
        g, ids, dw = o.input("Out@GRAD"), o.input("Ids"), o.output("W@GRAD")
        for part, begin, end in thread_parts(dw.shape[0], o.threads, dw.type.nbytes):
            o.call(
                add_rows, g, ids, dw, product(ids.shape), begin, end, dw.shape[1], o.attrs["padding_idx"], part=part
            )


_lower(lookup_table)
_lower(lookup_table_v2)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(take_rows)
def take_rows_cuda(
    table: Ptr, ids: PtrI64, out: Ptr, begin: Int, end: Int, count: Int, height: Int, width: Int, padding: Int, per: Int,
    status: Status,
):  # fmt: skip
    """One thread per element."""
    for e in range(begin * width, end * width):
        i = quotient(e, width)
        k = ids[i]
        if k < 0 or k >= height:
            report(status, quotient(i, per), k, height)
            return
        out[e] = T(0) if k == padding else table[k * width + e - i * width]


@cuda_kernel
def add_sorted(g: Ptr, keys: PtrI64, dtable: Ptr, total: Int, width: Int):
    """dtable[row] = the sum of what its ids have in g, in their order, for rows that have ids; one thread per number."""
    for e in range(total * width):
        at = quotient(e, width)
        j = e - at * width
        # The first of equal ids adds up those behind it, which stand in their first order.
        if is_first(keys, at):
            row, sums, then = keys[at] >> 32, T(0), at
            while then < total and keys[then] >> 32 == row:
                sums += g[(keys[then] & PLACE) * width + j]
                then += 1
            dtable[row * width + j] = sums


def _gradient_on_cuda(definition: OpDef) -> None:
    assert definition.grad_op is not None

    @definition.grad_op.lower("cuda")
    def backward(o: Lowering) -> None:
        g, ids, dw = o.input("Out@GRAD"), o.input("Ids"), o.output("W@GRAD")
        total = product(ids.shape)
        o.call(fill, dw, dw.size, 0.0)
        if total and dw.size:
            keys = sorted_keys(o, [ids], [o.attrs["padding_idx"]], dw.shape[0])
            o.call(add_sorted, g, keys, dw, total, dw.shape[1])


_gradient_on_cuda(lookup_table)
_gradient_on_cuda(lookup_table_v2)
also_on_cuda(lookup_table, lookup_table_v2)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("lookup_table", "lookup_table_v2")
def lookup_table_onnx(o: Writer) -> None:
    """Rows of the table; the row of padding_idx is 0."""
    ids = o.x("Ids")
    if o.op.type == "lookup_table":
        ids = o.node("Squeeze", [ids, o.const([-1])])
    padding = o.attrs["padding_idx"]
    if padding == -1:
        o.node("Gather", [o.x("W"), ids], to="Out")
        return
    rows = o.node("Gather", [o.x("W"), ids])
    empty = o.node("Unsqueeze", [o.node("Equal", [ids, o.const(padding)]), o.const([-1])])
    o.node("Where", [empty, o.const(0.0, "W"), rows], to="Out")
