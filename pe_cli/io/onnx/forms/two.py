"""Functions of two tensors: arithmetic, comparison, products."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.io.onnx.writer import Writer, form

ARITHMETIC = {
    "elementwise_add": "Add", "elementwise_sub": "Sub", "elementwise_mul": "Mul", "elementwise_div": "Div", "elementwise_max": "Max",
    "elementwise_min": "Min", "elementwise_pow": "Pow", "equal": "Equal", "greater_equal": "GreaterOrEqual", "greater_than": "Greater",
    "less_equal": "LessOrEqual", "less_than": "Less", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
}  # fmt: skip


def aligned(o: Writer) -> list[str]:
    """Return X and Y, the one with fewer axes reshaped so that its axes stand where fluid's `axis` says."""
    x, y = o.type("X"), o.type("Y")
    axis = o.attrs["axis"]
    names = [o.x("X"), o.x("Y")]
    if axis < 0 or len(x.shape) == len(y.shape):
        return names
    small = int(len(x.shape) > len(y.shape))
    wide, narrow = (x, y) if small else (y, x)
    behind = len(wide.shape) - axis - len(narrow.shape)
    if behind > 0:
        names[small] = o.node(
            "Unsqueeze", [names[small], o.const(list(range(len(narrow.shape), len(narrow.shape) + behind)))]
        )
    return names


@form(*ARITHMETIC)
def arithmetic(o: Writer) -> None:
    """One node, with fluid's rule for axes."""
    o.node(ARITHMETIC[o.op.type], aligned(o), to="Out")


@form("not_equal")
def not_equal(o: Writer) -> None:
    """Not equal."""
    o.node("Not", [o.node("Equal", aligned(o))], to="Out")


@form("scale_by")
def scale_by(o: Writer) -> None:
    """X times one number."""
    o.node("Mul", [o.x(), o.x("Scale")], to="Out")


@form("sum")
def total(o: Writer) -> None:
    """All inputs added."""
    o.node("Sum", o.ins("X"), to="Out")


@form("select")
def select(o: Writer) -> None:
    """X where the condition holds, else Y."""
    o.node("Where", [o.x("Condition"), o.x("X"), o.x("Y")], to="Out")


@form("square_error_cost")
def square_error_cost(o: Writer) -> None:
    """The square of the difference."""
    gap = o.node("Sub", [o.x("X"), o.x("Y")])
    o.node("Mul", [gap, gap], to="Out")


@form("mse_loss")
def mse_loss(o: Writer) -> None:
    """The mean of squared differences."""
    gap = o.node("Sub", [o.x("X"), o.x("Y")])
    mean = o.node("ReduceMean", [o.node("Mul", [gap, gap])], keepdims=0)
    o.node("Reshape", [mean, o.const([*o.out_type().shape])], to="Out")


@form("mul")
def mul(o: Writer) -> None:
    """A product of matrices; further axes are flattened before and come back after."""
    x, y = o.type("X"), o.type("Y")
    rows, columns = o.attrs["x_num_col_dims"], o.attrs["y_num_col_dims"]
    left = o.x("X")
    if len(x.shape) != 2 or rows != 1:
        left = o.node("Reshape", [left, o.const([-1, product(x.shape[rows:])])])
    right = o.x("Y")
    if len(y.shape) != 2 or columns != 1:
        right = o.node("Reshape", [right, o.const([product(y.shape[:columns]), -1])])
    out = o.out_type()
    if len(out.shape) == 2:
        o.node("MatMul", [left, right], to="Out")
    else:
        o.node("Reshape", [o.node("MatMul", [left, right]), o.const(out.shape)], to="Out")


@form("matmul")
def matmul(o: Writer) -> None:
    """Products of matrices with transposition and a factor; of vectors as fluid takes them."""
    names = []
    for slot in ("X", "Y"):
        kind, name = o.type(slot), o.x(slot)
        turned = o.attrs[f"transpose_{slot}"]
        rank = len(kind.shape)
        if turned and rank > 1:
            name = o.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2])
        elif rank == 1:  # a row on the left, a column on the right; with transposition the other way
            name = o.node("Unsqueeze", [name, o.const([int((slot == "X") == turned)])])
        names.append(name)
    made = o.node("MatMul", names)
    if o.attrs["alpha"] != 1.0:
        made = o.node("Mul", [made, o.const(o.attrs["alpha"], "X")])
    if 1 in (len(o.type("X").shape), len(o.type("Y").shape)):
        o.node("Reshape", [made, o.const(o.out_type().shape)], to="Out")
    else:
        o.node("Identity", [made], to="Out")
