"""What nodes of the forms' opset are in others, where more than the number differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from pe_cli.core.lazy_dataclass import dataclass

#: Opsets that are written: of 2019, and the newest whose changes these rules know.
OLDEST, NEWEST = 11, 28


class Unsaid(Exception):
    """An opset cannot say a node."""


@dataclass(frozen=True)
class Value:
    """Type of a value.

    Args:
        element: number of ONNX.
        sizes: -1 where it is open; None where not even their number is known.
    """

    element: int
    sizes: tuple[int, ...] | None


@dataclass
class Site:
    """A node that is rewritten.

    Args:
        node: of the forms' opset.
        opset: that is wanted.
        values: name -> type, as far as it is known.
        held: name -> constant.
        fresh: gives names that nothing else has.

    Attributes:
        constants: that were added, by name.
    """

    node: onnx.NodeProto
    opset: int
    values: Mapping[str, Value]
    held: Mapping[str, np.ndarray[Any, Any]]
    fresh: Callable[[], str]
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    _made: list[onnx.NodeProto] = field(default_factory=list)

    @property
    def inputs(self) -> list[str]:
        """Names of what the node reads."""
        return list(self.node.input)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes by name; texts as bytes."""
        return {each.name: helper.get_attribute_value(each) for each in self.node.attribute}

    def value(self, name: str) -> Value | None:
        """Return the type of a value; None where it is not known."""
        return self.values.get(name)

    def rank(self) -> int | None:
        """Return the number of axes of the first input; None where it is not known."""
        found = self.value(self.node.input[0])
        return None if found is None or found.sizes is None else len(found.sizes)

    def constant(self, place: int) -> list[int] | None:
        """Return the numbers of an input; None where there is no such input.

        Raises:
            Unsaid: they are known only when the model runs.
        """
        if place >= len(self.node.input) or not self.node.input[place]:
            return None
        found = self.held.get(self.node.input[place])
        if found is None:
            raise Unsaid(f"'{self.node.input[place]}' has to be a constant there")
        return [int(each) for each in found.reshape(-1)]

    def const(self, value: Any, dtype: str = "int64") -> str:
        """Add a constant and return its name."""
        name = self.fresh()
        self.constants[name] = np.asarray(value, dtype)
        return name

    def like(self, value: float) -> str:
        """Add a constant of the first input's element type and return its name.

        Raises:
            Unsaid: that type is not known.
        """
        found = self.value(self.node.input[0])
        if found is None:
            raise Unsaid("the type of what it reads is not known")
        return self.const(value, helper.tensor_dtype_to_np_dtype(found.element).name)

    def add(self, kind: str, inputs: Sequence[str], last: bool = False, **attrs: Any) -> str:
        """Add a node; the last one gives what the rewritten node gave."""
        name = self.node.output[0] if last else self.fresh()
        self._made.append(helper.make_node(kind, list(inputs), [name], name=f"{self.node.name}_{len(self._made)}", **attrs))
        return name

    def reduced(self, kind: str, name: str, axes: Sequence[int]) -> str:
        """Add a reduction that keeps its axes, as the wanted opset has it."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.add(kind, [name, self.const(list(axes))], keepdims=1)
        return self.add(kind, [name], keepdims=1, axes=list(axes))

    def done(self) -> list[onnx.NodeProto]:
        """Return the nodes that were added."""
        return self._made

    def again(self, inputs: Sequence[str], attrs: Mapping[str, Any]) -> list[onnx.NodeProto]:
        """Return the node with other inputs and attributes."""
        return [helper.make_node(self.node.op_type, list(inputs), list(self.node.output), name=self.node.name, **attrs)]


Rule = Callable[[Site], list[onnx.NodeProto]]


def _axes_as_attribute(since: int) -> Rule:
    def rule(site: Site) -> list[onnx.NodeProto]:
        if site.opset >= since:
            return [site.node]
        axes, attrs = site.constant(1), site.attrs
        if axes is None and attrs.pop("noop_with_empty_axes", 0):
            site.add("Identity", site.inputs[:1], last=True)
            return site.done()
        return site.again(site.inputs[:1], attrs | ({"axes": axes} if axes is not None else {}))

    return rule


def _split(site: Site) -> list[onnx.NodeProto]:
    attrs, inputs = site.attrs, site.inputs
    if site.opset < 18 and (parts := attrs.pop("num_outputs", None)) is not None:
        found, axis = site.value(inputs[0]), attrs.get("axis", 0)
        if found is None or found.sizes is None or found.sizes[axis] < 0 or found.sizes[axis] % parts:
            raise Unsaid("its parts are not known to be of one size")
    if site.opset < 13 and (sizes := site.constant(1)) is not None:
        return site.again(inputs[:1], attrs | {"split": sizes})
    return site.again(inputs, attrs)


def _softmax(site: Site) -> list[onnx.NodeProto]:
    axis, rank = site.attrs.get("axis", -1), site.rank()
    if site.opset >= 13:
        return [site.node]
    if axis == -1 or (rank is not None and axis == rank - 1):
        return site.again(site.inputs, {"axis": axis})
    # Older ones take all axes from that one on as one.
    (x,) = site.inputs
    away = site.add("Sub", [x, site.reduced("ReduceMax", x, [axis])])
    powers = site.add("Exp", [away])
    total = site.reduced("ReduceSum", powers, [axis])
    if site.node.op_type == "Softmax":
        site.add("Div", [powers, total], last=True)
    else:
        site.add("Sub", [away, site.add("Log", [total])], last=True)
    return site.done()


def _layer_normalization(site: Site) -> list[onnx.NodeProto]:
    if site.opset >= 17:
        return [site.node]
    axis, rank = site.attrs.get("axis", -1), site.rank()
    if any(site.node.output[1:]) or (rank is None and axis >= 0):
        raise Unsaid("the axes that it normalises are not known")
    axes = list(range(axis, 0 if axis < 0 else rank or 0))
    x, scale, *bias = site.inputs
    away = site.add("Sub", [x, site.reduced("ReduceMean", x, axes)])
    variance = site.reduced("ReduceMean", site.add("Mul", [away, away]), axes)
    deviation = site.add("Sqrt", [site.add("Add", [variance, site.like(site.attrs.get("epsilon", 1e-5))])])
    rows, shift = site.add("Div", [away, deviation]), [each for each in bias if each]
    made = site.add("Mul", [rows, scale], last=not shift)
    if shift:
        site.add("Add", [made, shift[0]], last=True)
    return site.done()


def _resize(site: Site) -> list[onnx.NodeProto]:
    attrs, inputs, rank = site.attrs, [*site.inputs, "", "", ""][:4], site.rank()
    if site.opset >= 18:
        return [site.node]
    axes = attrs.pop("axes", None)
    if axes is not None:
        if rank is None or list(axes) != list(range(rank - len(axes), rank)) or not inputs[3]:
            raise Unsaid("it resizes some axes")
        whole = site.add("Shape", inputs[:1])
        first = site.add("Slice", [whole, site.const([0]), site.const([rank - len(axes)])])
        inputs[3] = site.add("Concat", [first, inputs[3]], axis=0)
    if site.opset < 13:
        inputs[1:3] = [name or site.const([], "float32") for name in inputs[1:3]]
    return [*site.done(), *site.again(inputs, attrs)]


def _pad(site: Site) -> list[onnx.NodeProto]:
    axes = site.constant(3) if site.opset < 18 else None
    if axes is None:
        return [site.node]
    pads, rank = site.constant(1), site.rank()
    if rank is None or pads is None:
        raise Unsaid("it pads some axes")
    whole = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        whole[axis % rank], whole[rank + axis % rank] = pads[i], pads[len(axes) + i]
    return site.again([site.inputs[0], site.const(whole), *site.inputs[2:3]], site.attrs)


def _shape(site: Site) -> list[onnx.NodeProto]:
    attrs = site.attrs
    if site.opset >= 15 or not attrs:
        return [site.node]
    whole = site.add("Shape", site.inputs)
    ends = site.const([attrs.get("start", 0)]), site.const([attrs.get("end", np.iinfo(np.int64).max)])
    site.add("Slice", [whole, *ends], last=True)
    return site.done()


def _scatter(site: Site) -> list[onnx.NodeProto]:
    if site.opset < 18 and site.attrs.get("reduction", b"none") in (b"max", b"min"):
        raise Unsaid("it joins by the largest or smallest value")
    return [site.node]


def _grid_sample(site: Site) -> list[onnx.NodeProto]:
    names = {b"bilinear": b"linear", b"bicubic": b"cubic"}
    if site.opset < 20:
        return [site.node]
    mode = site.attrs.get("mode", b"bilinear")
    return site.again(site.inputs, {**site.attrs, "mode": names.get(mode, mode)})


def _or_equal(kind: str) -> Rule:
    def rule(site: Site) -> list[onnx.NodeProto]:
        if site.opset >= 12:
            return [site.node]
        site.add("Or", [site.add(kind, site.inputs), site.add("Equal", site.inputs)], last=True)
        return site.done()

    return rule


#: Kind of node -> what it becomes; others differ in nothing but what their schemas say.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), _axes_as_attribute(13)),
    **{f"Reduce{kind}": _axes_as_attribute(18) for kind in ("Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scatter),
    "GreaterOrEqual": _or_equal("Greater"),
    "LessOrEqual": _or_equal("Less"),
    "Split": _split,
    "LayerNormalization": _layer_normalization,
    "Resize": _resize,
    "Pad": _pad,
    "Shape": _shape,
    "GridSample": _grid_sample,
}
