"""select: elements of one tensor where a condition holds, of another elsewhere."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU8, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Sample, op


@kernel
def choose(condition: PtrU8, x: Ptr, y: Ptr, out: Ptr, n: Int):
    """out = x where condition else y."""
    for i in range(n):
        out[i] = x[i] if condition[i] else y[i]


@kernel
def pass_where(condition: PtrU8, g: Ptr, out: Ptr, n: Int, wanted: Int):
    """out = g where condition is wanted, else 0."""
    for i in range(n):
        # Chosen, not multiplied by 0 or 1: a NaN in the gradient would get through as one.
        out[i] = g[i] if (condition[i] != 0) == (wanted != 0) else T(0)


def _sample(*shape: int, name: str = "") -> Sample:
    return Sample({"Condition": lambda rng: rng.integers(0, 2, shape).astype(bool), "X": shape, "Y": shape}, name=name)


@op(
    "select",
    inputs="Condition X Y",
    differentiable="X Y",
    faces=[Face("select", "condition x y name")],
    samples=[
        _sample(3, 5, name="a matrix"),
        _sample(2, 3, 7, name="odd sizes"),
        _sample(1, name="one element"),
        _sample(0, 3, name="empty batch"),
    ],
)
def select(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    """Choose between two tensors, element by element.

    Out = X where Condition, else Y; what is not chosen has no effect, NaN included.

    Args:
        Condition: bool, sizes of X.
        X: any.
        Y: type of X.

    Returns:
        Out: type of X.

    Raises:
        PeError: Condition is not bool, or types differ.

    Source:
        fluid.layers.cond and Switch of two values; numpy.where.
    """
    if condition.dtype != "bool":
        raise PeError(f"select needs a bool condition, got {condition}", hint="put a comparison or a cast before it")
    for name, other in (("Condition", condition), ("Y", y)):
        fits = len(other.shape) == len(x.shape) and all(
            a == b or -1 in (a, b) for a, b in zip(x.shape, other.shape, strict=True)
        )
        if not fits or (name == "Y" and other.dtype != x.dtype):
            raise PeError(f"select: X is {x}, but {name} is {other}", hint="make their shapes and dtypes equal")
    return x


@select.lower("cpu")
def select_cpu(o: Lowering) -> None:
    """One loop."""
    out = o.output("Out")
    if out.size:
        o.call(choose, o.input("Condition"), o.input("X"), o.input("Y"), out, out.size)


@select.grad(uses="Condition").lower("cpu")
def select_grad_cpu(o: Lowering) -> None:
    """The gradient goes where the element came from."""
    condition, g = o.input("Condition"), o.input("Out@GRAD")
    for slot, wanted in (("X@GRAD", 1), ("Y@GRAD", 0)):
        if o.has(slot) and g.size:
            o.call(pass_where, condition, g, o.output(slot), g.size, wanted)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(choose, pass_where)
also_on_cuda(select)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("select")
def select_onnx(o: Writer) -> None:
    """X where the condition holds, else Y."""
    o.node("Where", [o.x("Condition"), o.x("X"), o.x("Y")], to="Out")
