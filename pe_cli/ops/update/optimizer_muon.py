"""muon_direction: the direction of a momentum, which Muon makes orthogonal before it steps along it."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrF64, Real, T, kernel
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.update.clip_norm import square_sum
from pe_cli.ops.update.optimizer import check_update, in_place
from pe_cli.ops.update.optimizer_dpsgd import squared_length
from pe_cli.ops.update.update_kernels import accelerate


@kernel
def aim(g: Ptr, v: Ptr, out: Ptr, n: Int, mu: Real, nesterov: Int):
    """v = mu v + g; out = v, or g + mu v."""
    for i in range(n):
        # PyTorch keeps 1 - mu times this velocity: both point the same way, and the length is taken out below.
        now = accelerate(v[i], g[i], mu)
        v[i] = now
        out[i] = accelerate(now, g[i], mu) if nesterov else now


@kernel
def to_unit(x: Ptr, square: PtrF64, n: Int, least: Real):
    """x = x / max(|x|, least), with the sum of its squares given."""
    length = math.sqrt(square[0])
    factor = T(1.0 / max(length, least))
    # A NaN shows in every element; max might drop it.
    if length != length:
        factor = T(length)
    for i in range(n):
        x[i] *= factor


@op(
    "muon_direction",
    inputs="Grad Velocity",
    outputs="Out VelocityOut",
    attrs={
        "mu": Attr(0.95, "part of the velocity that stays each step, no unit"),
        "use_nesterov": Attr(True, "look one step ahead"),
        "epsilon": Attr(1e-7, "least length that is divided by, unit of the gradient"),
    },
    differentiable="",
    samples=[
        Sample({"Grad": (3, 5), "Velocity": (3, 5)}, name="a matrix"),
        Sample({"Grad": (37,), "Velocity": (37,)}, {"use_nesterov": False, "mu": 0.5}, "an odd vector"),
        Sample({"Grad": (1,), "Velocity": (1,)}, name="one element"),
        Sample({"Grad": (0, 3), "Velocity": (0, 3)}, name="nothing"),
    ],
)
def muon_direction(
    gradient: TensorType, velocity: TensorType, *, mu: float, use_nesterov: bool, epsilon: float
) -> tuple[TensorType, TensorType]:
    """Add a gradient to a decaying sum, and return where that points, as a vector of length 1.

    Velocity = mu Velocity + Grad; D = Grad + mu Velocity with Nesterov, else Velocity; Out = D / max(||D||, epsilon).

    Args:
        Grad: any shape, float32 or float64.
        Velocity: type of Grad, 0 at first.
        mu, use_nesterov, epsilon: as above.

    Returns:
        Out: type of Grad.
        VelocityOut: the same variable as Velocity.

    Raises:
        PeError: types do not fit.

    Source:
        Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; torch.optim.Muon.
    """
    del mu, use_nesterov, epsilon
    check_update("muon_direction", gradient, velocity, None)
    return gradient, velocity


def _aimed(o: Lowering) -> tuple[Buffer, Buffer]:
    """Append the pass before the length is known; return what it makes, and room for the length."""
    (v,), out = in_place(o, "Velocity"), o.output("Out")
    o.call(aim, o.input("Grad"), v, out, v.size, o.attrs["mu"], int(o.attrs["use_nesterov"]))
    return out, o.scratch(1, "float64")


@muon_direction.lower("cpu")
def muon_direction_cpu(o: Lowering) -> None:
    """A pass, the length, and another pass."""
    out, square = _aimed(o)
    o.call(squared_length, out, square, out.size)
    o.call(to_unit, out, square, out.size, o.attrs["epsilon"])


@muon_direction.lower("cuda")
def muon_direction_cuda(o: Lowering) -> None:
    """The same, with partial sums side by side."""
    out, square = _aimed(o)
    square_sum(o, out, square)
    o.call(to_unit, out, square, out.size, o.attrs["epsilon"])


deal(aim, to_unit)
