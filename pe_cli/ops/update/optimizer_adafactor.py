"""adafactor and adafactor_whole: steps over the root of squares that are kept by rows and columns, or by elements."""

from __future__ import annotations

import math
from collections.abc import Callable

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import fma, square_root
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.update.clip_norm import square_sum
from pe_cli.ops.update.lr_schedule import reals
from pe_cli.ops.update.optimizer import check_update, in_place, positive, rate, state_samples
from pe_cli.ops.update.optimizer_adamw import count_on
from pe_cli.ops.update.optimizer_decayed import DECAY
from pe_cli.ops.update.optimizer_dpsgd import squared_length
from pe_cli.ops.update.update_kernels import shrink

_ATTRS = {
    "beta2_decay": Attr(-0.8, "power of the step that a new square counts with, no unit"),
    "epsilon1": Attr(0.0, "least root that is divided by, unit of the gradient; 0: that of the element type"),
    "epsilon2": Attr(1e-3, "least size of a parameter, its unit"),
    "clip": Attr(1.0, "root mean square of a direction above which it is shortened, no unit"),
    "weight_decay": Attr(0.0, DECAY.doc),
}
#: What an element type can add to 1; as torch.finfo says.
_EPS = {"float32": 2.0**-23, "float64": 2.0**-52}


@kernel
def row_squares(g: Ptr, row: Ptr, count: Ptr, rows: Int, c: Int, numbers: PtrF64):
    """row moves to the mean of squares of each row."""
    # The part that a new square counts with falls from step to step: the first squares are of parameters that are soon far away.
    part = T(math.pow(count[0] + 1.0, numbers[0]))
    for i in range(rows):
        total = 0.0
        for j in range(c):
            total += g[i * c + j] * g[i * c + j]
        # The mean moves towards the new one by that part: one multiplication, and no `1 - part` whose digits are lost.
        row[i] = fma(part, T(total / c) - row[i], row[i])


@kernel
def column_squares(g: Ptr, column: Ptr, sums: Ptr, count: Ptr, batch: Int, r: Int, c: Int, numbers: PtrF64):
    """column moves to the mean of squares of each column of each matrix; sums has room for one row."""
    part = T(math.pow(count[0] + 1.0, numbers[0]))
    # Rows outside and columns inside: memory is read in its order, and the inner loop works on whole vectors.
    for b in range(batch):
        for j in range(c):
            sums[j] = T(0)
        for i in range(r):
            at = (b * r + i) * c
            for j in range(c):
                sums[j] += g[at + j] * g[at + j]
        for j in range(c):
            column[b * c + j] = fma(part, sums[j] / T(r) - column[b * c + j], column[b * c + j])


@on_cuda(column_squares)
def column_squares_cuda(g: Ptr, column: Ptr, sums: Ptr, count: Ptr, batch: Int, r: Int, c: Int, numbers: PtrF64):
    """One thread per column."""
    part = T(math.pow(count[0] + 1.0, numbers[0]))
    # A thread for each column, so that neighbouring threads read neighbouring numbers and no two of them add to one.
    for k in range(batch * c):
        b, j = k // c, k % c
        total = 0.0
        for i in range(r):
            value = g[(b * r + i) * c + j]
            total += value * value
        column[k] = fma(part, T(total / r) - column[k], column[k])


@kernel
def row_means(row: Ptr, means: Ptr, batch: Int, r: Int, least: Real):
    """means[b] = the mean over the rows of a matrix, at least `least`."""
    for b in range(batch):
        total = 0.0
        for i in range(r):
            total += row[b * r + i]
        # Where all gradients are zero, `by_factors` would divide by the mean.
        means[b] = max(T(total / r), least)


@kernel
def by_factors(g: Ptr, row: Ptr, column: Ptr, means: Ptr, out: Ptr, rows: Int, r: Int, c: Int, least: Real):
    """out = g over the root of row times column over the mean of rows."""
    for i in range(rows):
        b = i // r
        scale = row[i]
        mean = means[b]
        for j in range(c):
            # Squares are compared before the root is taken: one root serves, and a square of zero never divides.
            out[i * c + j] = g[i * c + j] / square_root(max(scale * column[b * c + j] / mean, least * least))


@kernel
def by_squares(g: Ptr, v: Ptr, out: Ptr, count: Ptr, n: Int, least: Real, numbers: PtrF64):
    """v moves to the squares; out = g over its root."""
    part = T(math.pow(count[0] + 1.0, numbers[0]))
    for i in range(n):
        now = fma(part, g[i] * g[i] - v[i], v[i])
        v[i] = now
        out[i] = g[i] / square_root(max(now, least * least))


@kernel
def factored_step(p: Ptr, u: Ptr, size: PtrF64, length: PtrF64, count: Ptr, rate: PtrU, n: Int, numbers: PtrF64, decay: Real):
    """p = p - rate * decay * p - a u; size, length: sums of squares of p, u; numbers[1], [2]: least size, longest u."""
    # The rate of a step has a bound of its own that falls with the steps, and is relative to the size of the parameter.
    speed = min(rate[0] * 1.0, 1.0 / math.sqrt(count[0] + 1.0))
    speed *= max(numbers[1], math.sqrt(size[0] / n))
    # A direction whose root mean square is above `clip` is shortened to it.
    step = T(speed / max(1.0, math.sqrt(length[0] / n) / numbers[2]))
    pull = T(rate[0]) * decay
    for i in range(n):
        p[i] = fma(-step, u[i], shrink(p[i], pull))


def _check(name: str, beta2_decay: float, epsilon1: float, epsilon2: float, clip: float) -> None:
    if not (beta2_decay <= 0 and epsilon1 >= 0 and epsilon2 >= 0 and clip > 0):
        numbers = f"{beta2_decay}, {epsilon1}, {epsilon2} and {clip}"
        raise PeError(f"{name} needs beta2_decay <= 0, both epsilons >= 0 and clip > 0, got {numbers}")


def _factored_samples() -> list[Sample]:
    """Return samples whose squares are kept by rows and columns."""
    made = []
    for name, shape, attrs in (
        ("a matrix", (3, 5), {}),
        ("matrices", (2, 3, 4), {"weight_decay": 0.5, "clip": 0.5}),
        ("one element", (1, 1), {}),
        ("nothing", (0, 3), {}),
    ):
        states = {"Row": positive(*shape[:-1], 1), "Column": positive(*shape[:-2], 1, shape[-1]), "Count": positive(1)}
        made.append(Sample({"Param": shape, "Grad": shape, "LearningRate": rate, **states}, attrs, name))
    return made


@op(
    "adafactor",
    inputs="Param Grad LearningRate Row Column Count",
    outputs="ParamOut RowOut ColumnOut CountOut",
    attrs=_ATTRS,
    differentiable="",
    samples=_factored_samples(),
)
def adafactor(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    row: TensorType,
    column: TensorType,
    count: TensorType,
    *,
    beta2_decay: float,
    epsilon1: float,
    epsilon2: float,
    clip: float,
    weight_decay: float,
) -> tuple[TensorType, ...]:
    """Step along the gradient over the root of its squares, of which only means of rows and of columns are kept.

    t = Count + 1; w = t^beta2_decay; Row += w (mean of Grad^2 over a row - Row); Column the same over a column, both of the last two axes;
    V = Row Column / max(mean of Row, epsilon1); U = Grad / sqrt(max(V, epsilon1^2)); with RMS(X) = sqrt(mean of X^2):
    a = max(epsilon2, RMS(Param)) min(LearningRate, 1 / sqrt(t));
    Param = Param - LearningRate * weight_decay * Param - a U / max(1, RMS(U) / clip); Count = t.

    Args:
        Param: [..., r, c], float32 or float64.
        Grad: type of Param.
        LearningRate: [1], no unit; the most that a step may be, relative to the parameter's size.
        Row: [..., r, 1] of Param's element type; 0 at first.
        Column: [..., 1, c] of Param's element type; 0 at first.
        Count: [1] of Param's element type, steps; 0 at first.
        beta2_decay, epsilon1, epsilon2, clip: as above.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, RowOut, ColumnOut, CountOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit, Param has fewer than two axes, or a number is out of range.

    Source:
        Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", algorithm 4; torch.optim.Adafactor.
    """
    del weight_decay
    _check("adafactor", beta2_decay, epsilon1, epsilon2, clip)
    check_update("adafactor", param, gradient, rate, count)
    if len(param.shape) < 2:
        raise PeError(f"adafactor keeps squares by rows and columns, and Param is {param}", hint="adafactor_whole takes vectors")
    for name, state, wanted in (("Row", row, (*param.shape[:-1], 1)), ("Column", column, (*param.shape[:-2], 1, param.shape[-1]))):
        if state != param.with_shape(*wanted):
            raise PeError(f"adafactor: {name} is {state}, for Param {param} it must be {param.with_shape(*wanted)}")
    return param, row, column, count


@op(
    "adafactor_whole",
    inputs="Param Grad LearningRate Variance Count",
    outputs="ParamOut VarianceOut CountOut",
    attrs=_ATTRS,
    differentiable="",
    samples=[*state_samples(["Variance", "Count"]), *state_samples(["Variance", "Count"], weight_decay=0.5, clip=0.5)[:1]],
)
def adafactor_whole(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    variance: TensorType,
    count: TensorType,
    *,
    beta2_decay: float,
    epsilon1: float,
    epsilon2: float,
    clip: float,
    weight_decay: float,
) -> tuple[TensorType, ...]:
    """Step as `adafactor` does, with a square kept for every element.

    t = Count + 1; Variance += t^beta2_decay (Grad^2 - Variance); U = Grad / sqrt(max(Variance, epsilon1^2)); the rest as there.

    Args:
        Param: any shape, float32 or float64.
        Grad, Variance: type of Param.
        LearningRate: [1], no unit.
        Count: [1] of Param's element type, steps; 0 at first.
        beta2_decay, epsilon1, epsilon2, clip: as there.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, VarianceOut, CountOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit, or a number is out of range.

    Source:
        Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", algorithm 5; torch.optim.Adafactor.
    """
    del weight_decay
    _check("adafactor_whole", beta2_decay, epsilon1, epsilon2, clip)
    check_update("adafactor_whole", param, gradient, rate, variance, count)
    return param, variance, count


Squares = Callable[[Lowering, Buffer, Buffer], None]


def _cpu_squares(o: Lowering, x: Buffer, out: Buffer) -> None:
    o.call(squared_length, x, out, x.size)


def _step(o: Lowering, squares: Squares) -> None:
    """Append the direction, and a step along it that is as long as the parameter says."""
    factored = o.has("Row")
    p, *states, count = in_place(o, "Param", *(("Row", "Column") if factored else ("Variance",)), "Count")
    g, least = o.input("Grad"), o.attrs["epsilon1"] or _EPS[p.dtype]
    numbers = reals(o.attrs["beta2_decay"], o.attrs["epsilon2"], o.attrs["clip"])
    if p.size:
        u = o.scratch(p.size, p.dtype)
        if factored:
            (row, column), (r, c) = states, p.shape[-2:]
            batch = p.size // (r * c)
            means = o.scratch(batch, p.dtype)
            o.call(row_squares, g, row, count, batch * r, c, numbers)
            o.call(column_squares, g, column, o.scratch(c, p.dtype), count, batch, r, c, numbers)
            o.call(row_means, row, means, batch, r, least)
            o.call(by_factors, g, row, column, means, u, batch * r, r, c, least)
        else:
            o.call(by_squares, g, states[0], u, count, p.size, least, numbers)
        # Both lengths come before the step, as the step of each number depends on all of them.
        size, length = o.scratch(1, "float64"), o.scratch(1, "float64")
        squares(o, p, size)
        squares(o, u, length)
        o.call(factored_step, p, u, size, length, count, o.input("LearningRate"), p.size, numbers, o.attrs["weight_decay"])
    # The count goes last: all kernels above read the number of steps before this one.
    o.call(count_on, count)


def _lower(definition: OpDef) -> None:
    @definition.lower("cpu")
    def on_processor(o: Lowering) -> None:
        """Squares, the direction, two lengths, and the step."""
        _step(o, _cpu_squares)

    @definition.lower("cuda")
    def on_device(o: Lowering) -> None:
        """The same, with partial sums side by side."""
        _step(o, square_sum)


_lower(adafactor)
_lower(adafactor_whole)
deal(row_squares, row_means, by_factors, by_squares, factored_step)
