"""teacher_student_sigmoid_loss: the loss of labels that hold a click and the score of a teacher in one number."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Real, T, kernel
from pe_cli.kernels.math.vector_math import absolute, exp, log1p
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def taught(x: Ptr, label: Ptr, out: Ptr, n: Int):
    """out = the cost of the click, and of the teacher's score where there is one."""
    for i in range(n):
        one = max(x[i], T(0)) + log1p(exp(-absolute(x[i])))
        y = label[i]
        clicked = (y >= T(-1) and y < T(0)) or y >= T(1)
        cost = one - x[i] if clicked else one
        if y >= T(0):
            cost += one - x[i] * (y - T(1) if clicked else y)
        out[i] = cost


@kernel
def taught_back(x: Ptr, label: Ptr, g: Ptr, dx: Ptr, n: Int, low: Real, high: Real):
    """dx = g times the slope, and 0 where x is not within the bounds."""
    for i in range(n):
        p = T(1) / (T(1) + exp(-x[i]))
        y = label[i]
        slope = p
        if y >= T(0):
            slope = T(2) * p - y
        elif y >= T(-1):
            slope = p - T(1)
        # A NaN is outside of all bounds, but has to show.
        inside = x[i] > low and x[i] < high
        dx[i] = g[i] * slope if inside or x[i] != x[i] else T(0)


def _taught(rng):
    return rng.choice([-2.0, -1.0, 0.3, 1.4, 0.0], (7, 1))


@op(
    "teacher_student_sigmoid_loss",
    faces=[Face("", "input label soft_max_up_bound soft_max_lower_bound")],
    inputs="X Label",
    outputs="Y",
    attrs={
        "soft_max_up_bound": Attr(15.0, "from there on there is no gradient"),
        "soft_max_lower_bound": Attr(-15.0, "up to there there is no gradient"),
    },
    differentiable="X",
    samples=[
        Sample({"X": (7, 1), "Label": _taught}, name="labels of all kinds", keep=()),
        Sample({"X": (0, 1), "Label": (0, 1)}, name="an empty batch"),
    ],
)
def teacher_student_sigmoid_loss(x: TensorType, label: TensorType, *, soft_max_up_bound: float, soft_max_lower_bound: float) -> TensorType:
    """Measure a click, and what a teacher says of it, where one does.

    Y = s - z X, and s - z' X more where there is a teacher's score z';  s = ln(1 + exp(X)). Label is -2: no click (z = 0) and no
    score; -1: a click (z = 1) and no score; z' in [0, 1): no click; 1 + z': a click.

    Args:
        X: [batch, 1] float32 or float64, a logit.
        Label: type of X.
        soft_max_up_bound, soft_max_lower_bound: X within gets a gradient.

    Returns:
        Y: type of X, in nats.

    Raises:
        PeError: types that differ, or bounds in the wrong order.

    Source:
        fluid.layers.teacher_student_sigmoid_loss.
    """
    if x != label or x.dtype not in FLOATS:
        raise PeError(f"teacher_student_sigmoid_loss needs X and Label of one type, got {x} and {label}", hint="cast one")
    if soft_max_up_bound <= soft_max_lower_bound:
        raise PeError(f"teacher_student_sigmoid_loss: bounds are {soft_max_lower_bound:g} and {soft_max_up_bound:g}", hint="swap them")
    return x


@teacher_student_sigmoid_loss.lower("cpu")
def teacher_student_cpu(o: Lowering) -> None:
    """One loop."""
    out = o.output("Y")
    o.call(taught, o.input("X"), o.input("Label"), out, out.size)


@teacher_student_sigmoid_loss.grad(uses="X Label").lower("cpu")
def teacher_student_grad_cpu(o: Lowering) -> None:
    """One loop."""
    dx = o.output("X@GRAD")
    bounds = o.attrs["soft_max_lower_bound"], o.attrs["soft_max_up_bound"]
    o.call(taught_back, o.input("X"), o.input("Label"), o.input("Y@GRAD"), dx, dx.size, *bounds)


deal(taught, taught_back)
also_on_cuda(teacher_student_sigmoid_loss)
