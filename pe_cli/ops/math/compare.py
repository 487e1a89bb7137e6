"""Comparisons and logic: less_than, equal, ..., logical_and, ...; results are bool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import DTYPES, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Kernel, Ptr, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, aligned, in_onnx, same_in_onnx
from pe_cli.ops.define.registry import OPS, Sample, op
from pe_cli.ops.define.traits import InPlace, Layout
from pe_cli.ops.math.broadcast import broadcast, call_binary, truth_kernel
from pe_cli.ops.math.elementwise import AXIS, check_dtypes

_DOC = """{title}

Out = X {sign} Y, element by element{nan}. Y is broadcast as for elementwise_add.

Args:
    X: any shape, {dtypes}.
    Y: dtype of X; sizes of X in a row, or 1.
    axis: of X, that Y's first axis stands for.

Returns:
    Out: bool, shape of the larger one.

Raises:
    PeError: the shapes do not fit, or the dtypes differ.

Source:
    fluid.layers.{name}.
"""


def _few(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(-2, 3, shape).astype("float64")


def _bits(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 2, shape).astype(bool)


def _samples(make: Any) -> list[Sample]:
    cases = [("one shape", (3, 40), (3, 40)), ("one row for all", (5, 7), (7,)), ("one element", (1,), (1,)), ("empty", (0, 2), (0, 2))]
    return [Sample({"X": lambda rng, s=x: make(rng, s), "Y": lambda rng, s=y: make(rng, s)}, name=name) for name, x, y in cases]


def _declare(
    name: str, title: str, sign: str, nan: str, dtypes: Sequence[str], make: Any, kernel: Kernel, *, swapped: bool = False
) -> None:
    def infer(x: TensorType, y: TensorType, *, axis: int) -> TensorType:
        check_dtypes(name, x, y, dtypes)
        return TensorType(broadcast(name, x.shape, y.shape, axis), "bool")

    infer.__doc__ = _DOC.format(title=title, sign=sign, nan=nan, dtypes=" or ".join(dtypes), name=name)
    infer.__module__ = __name__
    made = op(name, inputs="X Y", attrs=AXIS, differentiable="", traits=[Layout()], samples=_samples(make))(infer)

    @made.lower("cpu")
    def lower(o: Lowering) -> None:
        x, y = o.input("X"), o.input("Y")
        call_binary(o, kernel, *((y, x) if swapped else (x, y)), o.output("Out"), o.attrs["axis"])


def less(x, y):
    return x < y


def less_or_equal(x, y):
    return x <= y


def same(x, y):
    return x == y


def different(x, y):
    return x != y


def both(x, y):
    return x != 0 and y != 0


def either(x, y):
    return x != 0 or y != 0


def one_of(x, y):
    return (x != 0) != (y != 0)


_LESS, _LESS_OR_EQUAL = truth_kernel(less), truth_kernel(less_or_equal)
_NONE = ", false where one is NaN"
_COMPARE = tuple(DTYPES)
_declare("less_than", "Tell where X is less.", "<", _NONE, _COMPARE, _few, _LESS)
_declare("less_equal", "Tell where X is not greater.", "<=", _NONE, _COMPARE, _few, _LESS_OR_EQUAL)
# Greater is less with the operands exchanged, and both are false for NaN: one kernel serves for the two.
_declare("greater_than", "Tell where X is greater.", ">", _NONE, _COMPARE, _few, _LESS, swapped=True)
_declare("greater_equal", "Tell where X is not less.", ">=", _NONE, _COMPARE, _few, _LESS_OR_EQUAL, swapped=True)
_declare("equal", "Tell where two tensors agree.", "=", _NONE, _COMPARE, _few, truth_kernel(same))
_declare("not_equal", "Tell where two tensors differ.", "!=", ", true where one is NaN", _COMPARE, _few, truth_kernel(different))
_declare("logical_and", "Tell where both are true.", "and", "", ("bool",), _bits, truth_kernel(both))
_declare("logical_or", "Tell where one is true, or both.", "or", "", ("bool",), _bits, truth_kernel(either))
_declare("logical_xor", "Tell where exactly one is true.", "xor", "", ("bool",), _bits, truth_kernel(one_of))


@kernel
def invert(x: Ptr, out: Ptr, n: Int):
    """out = not x; out may be x."""
    for i in range(n):
        out[i] = x[i] == 0


@op(
    "logical_not",
    faces=[Face("", "x name")],
    inputs="X",
    differentiable="",
    traits=[InPlace({"Out": "X"}), Layout()],
    samples=[Sample({"X": lambda rng: _bits(rng, (3, 40))}), Sample({"X": lambda rng: _bits(rng, (0,))}, name="empty")],
)
def logical_not(x: TensorType) -> TensorType:
    """Turn true into false and false into true.

    Out = not X

    Args:
        X: any shape, bool.

    Returns:
        Out: type of X.

    Raises:
        PeError: X is not bool.

    Source:
        fluid.layers.logical_not.
    """
    check_dtypes("logical_not", x, x, ("bool",))
    return x


@logical_not.lower("cpu")
def logical_not_cpu(o: Lowering) -> None:
    """Call one loop over all elements."""
    out = o.output("Out")
    o.call(invert, o.input("X"), out, out.size)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(invert)
also_on_cuda(*(found for found in OPS.values() if found.module == __name__))


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"logical_not": "Not"})
same_in_onnx(
    {
        "equal": "Equal",
        "greater_equal": "GreaterOrEqual",
        "greater_than": "Greater",
        "less_equal": "LessOrEqual",
        "less_than": "Less",
        "logical_and": "And",
        "logical_or": "Or",
        "logical_xor": "Xor",
    },
    axes=True,
)


@in_onnx("not_equal")
def not_equal_onnx(o: Writer) -> None:
    """Not equal."""
    o.node("Not", [o.node("Equal", aligned(o))], to="Out")
