"""elementwise_mod and elementwise_floordiv: division that rounds down, and what it leaves."""

from __future__ import annotations

from pe_cli.core.types import NUMBERS
from pe_cli.kernels.language import T
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.onnx import Writer, aligned, in_onnx
from pe_cli.ops.math.broadcast import binary_kernel
from pe_cli.ops.math.elementwise import declare, lower_binary, nonzero, samples


def remainder(x, y):
    return T(x % y)


def quotient(x, y):
    return T(x // y)


FLOOR = "; there fluid cuts towards 0, here X = Y floordiv(X, Y) + mod(X, Y) and mod has Y's sign."
_mod = declare(
    "elementwise_mod", "Remainder of a division.", "X - Y floor(X / Y)", NUMBERS, FLOOR,
    samples=samples(nonzero), differentiable="", in_place=True,
)  # fmt: skip
_floordiv = declare(
    "elementwise_floordiv", "Divide and round down.", "floor(X / Y)", NUMBERS, FLOOR,
    samples=samples(nonzero), differentiable="", in_place=True,
)  # fmt: skip
lower_binary(_mod, binary_kernel(remainder))
lower_binary(_floordiv, binary_kernel(quotient))
also_on_cuda(_mod, _floordiv)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("elementwise_floordiv")
def floordiv_onnx(o: Writer) -> None:
    """ONNX's Div cuts whole numbers towards 0, so that the remainder goes first; its Floor knows no whole numbers."""
    x, y = aligned(o)
    if o.type("X").dtype in ("float32", "float64"):
        o.node("Floor", [o.node("Div", [x, y])], to="Out")
    else:
        o.node("Div", [o.node("Sub", [x, o.node("Mod", [x, y])]), y], to="Out")


@in_onnx("elementwise_mod")
def mod_onnx(o: Writer) -> None:
    """ONNX's Mod has Y's sign, as ours, but for whole numbers alone."""
    x, y = aligned(o)
    if o.type("X").dtype in ("float32", "float64"):
        whole = o.node("Floor", [o.node("Div", [x, y])])
        o.node("Sub", [x, o.node("Mul", [y, whole])], to="Out")
    else:
        o.node("Mod", [x, y], to="Out")
