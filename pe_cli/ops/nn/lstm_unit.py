"""lstm_unit: what one step of an LSTM makes of its gates and its cell."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, Real, T, helper, make_kernel
from pe_cli.kernels.math.vector_math import sigmoid, tanh
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import InPlace, RowWise

#: Orders of the gates: input, forget, output, and g, the candidate.
ORDERS = ("ifog", "igfo", "ifgo")


def _forward_one(x, before, gates, cell, out, at, to, i0, f0, o0, g0, more):
    """One unit of a row: its row of gates, at the unit, begins at `at`, and its cell is at `to`."""
    # Values of a row are read before any is written: gates may lie where x lies.
    i = sigmoid(x[at + i0])
    f = sigmoid(T(x[at + f0] + T(more)))
    o = sigmoid(x[at + o0])
    g = tanh(x[at + g0])
    c = f * before[to] + i * g
    gates[at + i0] = i
    gates[at + f0] = f
    gates[at + o0] = o
    gates[at + g0] = g
    cell[to] = c
    out[to] = o * tanh(c)


def _backward_one(gates, before, cell, dc, dh, dx, dbefore, at, to, i0, f0, o0, g0):
    """One unit of a row, as `_forward_one`."""
    i = gates[at + i0]
    f = gates[at + f0]
    o = gates[at + o0]
    g = gates[at + g0]
    bent = tanh(cell[to])
    h = dh[to]
    # The cell's gradient comes from the next step (dc) and through the output (h).
    c = dc[to] + h * o * (T(1) - bent * bent)
    dx[at + i0] = c * g * i * (T(1) - i)
    dx[at + f0] = c * before[to] * f * (T(1) - f)
    dx[at + o0] = h * bent * o * (T(1) - o)
    dx[at + g0] = c * i * (T(1) - g * g)
    dbefore[to] = c * f


forward_one, backward_one = helper(_forward_one, inline=True), helper(_backward_one, inline=True)


def _forward(
    x: Ptr, before: Ptr, gates: Ptr, cell: Ptr, out: Ptr, rows: Int, d: Int, i0: Int, f0: Int, o0: Int, g0: Int, more: Real
):
    """Gates after their functions, cells and outputs of all rows; gates may be x."""
    for r in range(rows):
        for j in range(d):
            forward_one(x, before, gates, cell, out, r * 4 * d + j, r * d + j, i0, f0, o0, g0, more)


def _backward(
    gates: Ptr, before: Ptr, cell: Ptr, dc: Ptr, dh: Ptr, dx: Ptr, dbefore: Ptr, rows: Int, d: Int, i0: Int, f0: Int, o0: Int,
    g0: Int,
):  # fmt: skip
    """Gradients of the gates before their functions and of the cell before; dx may be gates, and dbefore dc."""
    for r in range(rows):
        for j in range(d):
            backward_one(gates, before, cell, dc, dh, dx, dbefore, r * 4 * d + j, r * d + j, i0, f0, o0, g0)


# Two kernels are made of one pair of functions, so that CPU and CUDA compute the same expressions in the same order.
lstm_unit_forward = make_kernel(_forward, f"{__name__}:lstm_unit_forward", apart=True)
lstm_unit_backward = make_kernel(_backward, f"{__name__}:lstm_unit_backward", apart=True)


@on_cuda(lstm_unit_forward)
def lstm_unit_forward_cuda(
    x: Ptr, before: Ptr, gates: Ptr, cell: Ptr, out: Ptr, rows: Int, d: Int, i0: Int, f0: Int, o0: Int, g0: Int, more: Real
):
    """One thread per unit of a row."""
    # k // d * 3 * d + k is r * 4 d + j for unit j of row r, with one division.
    for k in range(rows * d):
        forward_one(x, before, gates, cell, out, k // d * 3 * d + k, k, i0, f0, o0, g0, more)


@on_cuda(lstm_unit_backward)
def lstm_unit_backward_cuda(
    gates: Ptr, before: Ptr, cell: Ptr, dc: Ptr, dh: Ptr, dx: Ptr, dbefore: Ptr, rows: Int, d: Int, i0: Int, f0: Int, o0: Int,
    g0: Int,
):  # fmt: skip
    """One thread per unit of a row."""
    for k in range(rows * d):
        backward_one(gates, before, cell, dc, dh, dx, dbefore, k // d * 3 * d + k, k, i0, f0, o0, g0)


@op(
    "lstm_unit",
    traits=[InPlace({"Gates": "X"}), RowWise()],
    inputs="X C_prev",
    floats="X C_prev",
    outputs="C H Gates",
    attrs={
        "forget_bias": Attr(0.0, "added to the forget gate before its sigmoid, no unit"),
        "order": Attr("ifog", "order of the gates in X: input, forget, output, and g for the candidate", ORDERS),
    },
    differentiable="X C_prev",
    samples=[
        Sample({"X": (3, 20), "C_prev": (3, 5)}, name="three rows"),
        Sample({"X": (2, 36), "C_prev": (2, 9)}, {"forget_bias": 1.0, "order": "igfo"}, "another order"),
        Sample({"X": (1, 4), "C_prev": (1, 1)}, {"order": "ifgo"}, "one element"),
        Sample({"X": (0, 8), "C_prev": (0, 2)}, name="no row"),
    ],
)
def lstm_unit(x: TensorType, before: TensorType, *, forget_bias: float, order: str) -> tuple[TensorType, TensorType, TensorType]:
    """Compute the cell and the output of an LSTM from its gates, which a product of input and state has made.

    C = s(f + forget_bias) C_prev + s(i) tanh(g),  H = s(o) tanh(C),  with s the sigmoid and i, f, o, g the four parts of X.

    Args:
        X: [batch, 4 width] float32 or float64, the gates side by side.
        C_prev: [batch, width], the cell before.

    Returns:
        C: [batch, width], the cell.
        H: [batch, width], the output.
        Gates: [batch, 4 width], s(i), s(f + forget_bias), s(o) and tanh(g), in the order of X.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.lstm_unit, which has no Gates and the order `ifog`.
    """
    del forget_bias, order
    if len(x.shape) != 2 or len(before.shape) != 2 or before.dtype != x.dtype or x.shape[1] != 4 * before.shape[1]:
        raise PeError(f"lstm_unit needs X [batch, 4 width] and C_prev [batch, width] of one type, got {x} and {before}")
    if -1 not in (x.shape[0], before.shape[0]) and x.shape[0] != before.shape[0]:
        raise PeError(f"lstm_unit needs as many rows of X as of C_prev, got {x} and {before}")
    return before, before, x


def _facts(o: Lowering, width: int) -> list[int]:
    """Return where the gates i, f, o and g begin in a row."""
    return [str(o.attrs["order"]).index(gate) * width for gate in "ifog"]


@lstm_unit.lower("cpu")
def lstm_unit_cpu(o: Lowering) -> None:
    """One pass over all rows."""
    x, before = o.input("X"), o.input("C_prev")
    rows, d = before.shape
    gates = o.output_or_scratch("Gates", x.size, x.dtype)
    cell, out = (o.output_or_scratch(slot, before.size, x.dtype) for slot in ("C", "H"))
    o.call(lstm_unit_forward, x, before, gates, cell, out, rows, d, *_facts(o, d), float(o.attrs["forget_bias"]))


def _gradient(o: Lowering, slot: str, like: Buffer) -> Buffer:
    """Return the gradient of an output, zeros where there is none."""
    if o.has(slot):
        return o.input(slot)
    # Only the cell or only the output may have been used; the kernel takes both.
    zeros = o.scratch(like.size, like.dtype)
    o.call(fill, zeros, like.size, 0.0)
    return zeros


@lstm_unit.grad(uses="C_prev C Gates", traits=[InPlace({"C_prev@GRAD": "C@GRAD"})]).lower("cpu")
def lstm_unit_grad_cpu(o: Lowering) -> None:
    """One pass over all rows."""
    before, cell, gates = o.input("C_prev"), o.input("C"), o.input("Gates")
    rows, d = before.shape
    dc, dh = (_gradient(o, slot, before) for slot in ("C@GRAD", "H@GRAD"))
    dx = o.output_or_scratch("X@GRAD", gates.size, gates.dtype)
    dbefore = o.output_or_scratch("C_prev@GRAD", before.size, gates.dtype)
    o.call(lstm_unit_backward, gates, before, cell, dc, dh, dx, dbefore, rows, d, *_facts(o, d))


also_on_cuda(lstm_unit)
