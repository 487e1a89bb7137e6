"""LoRA and DoRA: two small matrices beside a weight, through which its inputs go, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pe_cli.build.insertion import Insertion
from pe_cli.config.sections.adapt import AdaptSection
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.ops.define.traits import Weight
from pe_cli.program.initializer import Constant, Initializer, Uniform
from pe_cli.program.ir import Operator, Parameter, Program, Variable
from pe_cli.program.param_attr import ParamAttr
from pe_cli.program.region import regions_of


@dataclass(frozen=True)
class LowRank:
    """A weight W and what is beside it: W + scale A B counts, with the lengths of DoRA times (lengths of W + change) / its own lengths.

    Args:
        weight: W, a matrix, a table, or filters [outputs, inputs, height, width].
        first, second: A [rows of W, rank] and B [rank, columns of W]; of filters [rank, inputs, height, width] and [outputs, rank, 1, 1].
        scale: no unit.
        change: what DoRA adds to the length of each output's weights; empty for none.
        outputs: axis of W that has an entry for each output.
    """

    weight: str
    first: str
    second: str
    scale: float
    change: str = ""
    outputs: int = 1


def why_not(weight: Parameter, readers: Sequence[Operator], type: str) -> str | None:
    """Return why a parameter has no matrices beside it; None where it may.

    Args:
        weight: of a program of forward ops.
        readers: ops that read it.
        type: lora or dora.
    """
    if weight.dtype not in FLOATS or len(weight.shape) not in (2, 4):
        return f"it is {weight.type}, and no weight of a layer"
    wrong = next((why for op in readers if (why := _wrong_reader(weight, op)) is not None), None)
    if wrong is not None or not readers:
        return wrong or "nothing reads it"
    matrices = all(op.definition.has(Weight) and len(weight.shape) == 2 and "Ids" not in op.inputs for op in readers)
    if type == "dora" and (not matrices or len({_outputs(op) for op in readers}) > 1):
        return "dora is for matrices with one axis of outputs"
    return None


def _wrong_reader(weight: Parameter, op: Operator) -> str | None:
    """Return why what an op does with a weight cannot be done with small matrices."""
    if regions_of(op):
        return "a loop or branch reads it"
    found = op.definition.get(Weight)
    slots = {slot for slot, names in op.inputs.items() if weight.name in names}
    if found is None or not slots <= set(found.slots) or found.kind not in _DELTAS:
        return f"{op.type} reads it"
    if op.attrs.get("groups", 1) != 1 or op.attrs.get("transpose_X", False) or op.attrs.get("y_num_col_dims", 1) != 1:
        return f"{op.type} reads it in groups or turned"
    return None


def beside(program: Program, weight: Parameter, readers: Sequence[Operator], section: AdaptSection) -> LowRank:
    """Put small matrices beside a weight, wherever it is read.

    B begins with 0, so that the model begins as it is.

    Args:
        program: of forward ops, changed; the default one.
        weight: that `why_not` says nothing of.
        readers: ops that read it.
        section: what is wished.

    Raises:
        PeError: no gradient flows behind one of them.

    Source:
        Hu et al. 2021, section 4.1; A begins as that of peft. Liu et al. 2024 (DoRA), equations 5 and 11.
    """
    stem = weight.name.removesuffix(".w_0")
    shapes = _shapes(weight.shape, section.columns)
    # As PEFT draws A: uniform up to 1 / sqrt(inputs), which is PyTorch's Kaiming with a = sqrt(5).
    limit = 1 / math.sqrt(weight.type.size // weight.shape[0] if len(weight.shape) == 4 else weight.shape[0])
    with program.place(section.at_of("targets")):
        first = _new(f"{stem}.lora_a", shapes[0], weight.dtype, Uniform(-limit, limit))
        second = _new(f"{stem}.lora_b", shapes[1], weight.dtype, Constant(0.0))
        axis = _outputs(readers[0])
        change = _new(f"{stem}.dora_m", (weight.shape[axis],), weight.dtype, Constant(0.0)) if section.type == "dora" else None
    for op in readers:
        kind = op.definition.get(Weight)
        assert kind is not None
        inserted = Insertion(program, op)
        delta = _DELTAS[kind.kind](inserted, op, first, second, section)
        if change is None:
            inserted.one("elementwise_add", {"X": inserted.given, "Y": delta}, {"axis": -1}, last=True)
        else:
            total = inserted.one("elementwise_add", {"X": inserted.given, "Y": delta}, {"axis": -1})
            factor = _factor(inserted, weight, first, second, change, section.scale, axis)
            inserted.one("elementwise_mul", {"X": total, "Y": factor}, {"axis": len(total.shape) - 1}, last=True)
    return LowRank(weight.name, first.name, second.name, section.scale, change.name if change else "", axis)


def _outputs(op: Operator) -> int:
    """Return the axis of a weight that has an entry for each output."""
    kind = op.definition.get(Weight)
    assert kind is not None
    order = kind.order(op.attrs)
    return order.index("o") if "o" in order else len(order) - 1


def _shapes(shape: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(shape) == 4:
        return (rank, *shape[1:]), (shape[0], rank, 1, 1)
    return (shape[0], rank), (rank, shape[1])


def _new(name: str, shape: Sequence[int], dtype: str, initializer: Initializer) -> Variable:
    return LayerHelper("adapt", name).parameter(ParamAttr(name=name, initializer=initializer), shape, dtype)


def _dropped(inserted: Insertion, x: str, section: AdaptSection) -> Variable | str:
    if not section.dropout:
        return x
    return inserted.one("dropout", {"X": x}, {"dropout_prob": section.dropout, "dropout_implementation": "upscale_in_train"})


def _scaled(inserted: Insertion, x: Variable, section: AdaptSection) -> Variable:
    return x if section.scale == 1 else inserted.one("scale", {"X": x}, {"scale": section.scale})


def _of_matrix(inserted: Insertion, op: Operator, first: Variable, second: Variable, section: AdaptSection) -> Variable:
    """Return scale x A B, or scale x B^T A^T where the weight is read transposed."""
    x = _dropped(inserted, op.inputs["X"][0], section)
    if "x_num_col_dims" in op.attrs:  # of rows of any rank, which matmul's attributes do not say
        attrs = {"x_num_col_dims": op.attrs["x_num_col_dims"], "y_num_col_dims": 1}
        inner = _scaled(inserted, inserted.one("mul", {"X": x, "Y": first}, attrs), section)
        return inserted.one("mul", {"X": inner, "Y": second}, attrs)
    turned = {"transpose_Y": op.attrs["transpose_Y"]}
    order = (second, first) if op.attrs["transpose_Y"] else (first, second)
    inner = inserted.one("matmul", {"X": x, "Y": order[0]}, {**turned, "alpha": op.attrs["alpha"]})
    return inserted.one("matmul", {"X": _scaled(inserted, inner, section), "Y": order[1]}, turned)


def _of_filters(inserted: Insertion, op: Operator, first: Variable, second: Variable, section: AdaptSection) -> Variable:
    """Return what filters of the same window give that go to `rank` channels, and those to the outputs."""
    x = _dropped(inserted, op.inputs["Input"][0], section)
    inner = _scaled(inserted, inserted.one(op.type, {"Input": x, "Filter": first}, op.attrs), section)
    # B is 1 x 1: it takes what A gives, place by place.
    plain = {**op.attrs, "strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1]}
    return inserted.one(op.type, {"Input": inner, "Filter": second}, plain)


def _of_table(inserted: Insertion, op: Operator, first: Variable, second: Variable, section: AdaptSection) -> Variable:
    """Return scale A[ids] B."""
    rows = inserted.one(op.type, {"W": first, "Ids": op.inputs["Ids"][0]}, op.attrs)
    inner = _scaled(inserted, rows, section)
    return inserted.one("mul", {"X": inner, "Y": second}, {"x_num_col_dims": len(inner.shape) - 1, "y_num_col_dims": 1})


_DELTAS = {"matrix": _of_matrix, "filters": _of_filters, "table": _of_table}


def _factor(
    inserted: Insertion, weight: Variable, first: Variable, second: Variable, change: Variable, scale: float, axis: int
) -> Variable:
    """Return (||W|| + change) / ||W + scale A B||, a number for each output; no gradient flows through the lengths."""
    product = inserted.one("matmul", {"X": first, "Y": second}, {"alpha": scale})
    whole = inserted.one("elementwise_add", {"X": weight, "Y": product}, {"axis": -1})
    lengths = []
    for x in (weight, whole):
        found = inserted.one("norm_except_dim", {"X": x}, {"dim": axis})
        lengths.append(inserted.one("reshape", {"X": found}, {"shape": list(change.shape)}))
    wanted = inserted.one("elementwise_add", {"X": lengths[0], "Y": change}, {"axis": -1})
    return inserted.one("elementwise_div", {"X": wanted, "Y": lengths[1]}, {"axis": -1})
