"""Logic of the bits of whole numbers: bitwise_and, bitwise_or, bitwise_xor, bitwise_not, and shifts."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import TensorType, check_kind
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx, same_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import InPlace, Layout
from pe_cli.ops.math.broadcast import binary_kernel
from pe_cli.ops.math.elementwise import declare, lower_binary

WHOLE = ("int64", "int32", "uint8", "bool")
#: What bits are moved in: of truth values there is one.
_MOVED = WHOLE[:3]


def both_bits(x, y):
    return T(x & y)


def either_bits(x, y):
    return T(x | y)


def one_bit_of(x, y):
    return T(x ^ y)


# Processors disagree on shifts by as many bits as there are, or more, and LLVM gives no value for them at all.
def bits_left(x, y):
    return T(x << y) if 0 <= y < 64 else T(0)


def bits_right(x, y):
    return T(x >> y) if 0 <= y < 64 else (T(0) if x >= 0 else T(-1))


def _numbers(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(-1000, 1000, shape).astype("int32")


def _places(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 9, shape).astype("int32")


def _samples(second: Any) -> list[Sample]:
    cases = [("one shape", (3, 40), (3, 40)), ("one row for all", (5, 7), (7,)), ("one element", (1,), (1,)), ("empty", (0, 2), (0, 2))]
    return [Sample({"X": lambda rng, s=x: _numbers(rng, s), "Y": lambda rng, s=y: second(rng, s)}, name=name) for name, x, y in cases]


def _declare(name: str, title: str, formula: str, fn: Any, dtypes: tuple[str, ...] = WHOLE, second: Any = _numbers) -> None:
    made = declare(name, title, formula, dtypes, samples=_samples(second), differentiable="", in_place=True)
    lower_binary(made, binary_kernel(fn))


_declare("bitwise_and", "Keep the bits that both numbers have.", "X and Y, bit by bit", both_bits)
_declare("bitwise_or", "Keep the bits that one number has, or both.", "X or Y, bit by bit", either_bits)
_declare("bitwise_xor", "Keep the bits that exactly one number has.", "X xor Y, bit by bit", one_bit_of)
_SHIFTED = "X {}^Y; beyond the bits that X has, it is 0, and where X is negative -1 to the right"
_declare("bitwise_left_shift", "Shift bits to the left.", _SHIFTED.format("2"), bits_left, _MOVED, _places)
_declare("bitwise_right_shift", "Shift bits to the right, with the sign.", _SHIFTED.format("/ 2"), bits_right, _MOVED, _places)


@kernel
def flip_bits(x: Ptr, out: Ptr, n: Int, most: Int):
    """out = most - x, which turns every bit round; out may be x."""
    for i in range(n):
        out[i] = T(most - x[i])


@op(
    "bitwise_not",
    faces=[Face("", "x name")],
    inputs="X",
    differentiable="",
    traits=[InPlace({"Out": "X"}), Layout()],
    samples=[Sample({"X": lambda rng: _numbers(rng, (3, 40))}), Sample({"X": lambda rng: _numbers(rng, (0,))}, name="empty")],
)
def bitwise_not(x: TensorType) -> TensorType:
    """Turn every bit round.

    Out = not X, bit by bit

    Args:
        X: any shape, int64, int32, uint8 or bool.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has another type.

    Source:
        numpy.bitwise_not.
    """
    check_kind("bitwise_not", x, WHOLE)
    return x


@bitwise_not.lower("cpu")
def bitwise_not_cpu(o: Lowering) -> None:
    """One loop: numbers with a sign are turned round from -1, those without from the largest."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(flip_bits, x, out, out.size, {"uint8": 255, "bool": 1}.get(x.dtype, -1))


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}, axes=True)
same_in_onnx({"bitwise_not": "BitwiseNot"})
not_in_onnx("runtimes shift numbers without a sign alone", "bitwise_left_shift", "bitwise_right_shift")
