"""An ONNX model as an older or newer opset has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.onnx.opset_rules import NEWEST, OLDEST, RULES, Site, Unsaid, Value

#: Nodes that a message lists.
_MOST = 5


def in_opset(model: onnx.ModelProto, opset: int) -> None:
    """Rewrite a model that is whole, so that it follows another opset and computes the same.

    Args:
        model: with types that can be inferred; changed.
        opset: that is wanted.

    Raises:
        PeError: USAGE; no such opset is written, or a node cannot be said in it; then the hint has the lowest one that can.
    """
    (own,) = (each for each in model.opset_import if not each.domain)
    if opset == own.version:
        return
    newest = min(NEWEST, defs.onnx_opset_version())
    if not OLDEST <= opset <= newest:
        raise PeError(f"opset {opset} is not written", hint=f"from {OLDEST} to {newest}, which the package onnx {onnx.__version__} knows")
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True)
    walk = _Walk(opset, own.version)
    walk.graph(model.graph, inferred.graph, _Scope({}, {}))
    if walk.unsaid:
        lowest = max(version for _, version in walk.unsaid)
        what = "; ".join(text for text, _ in walk.unsaid[:_MOST]) + (f" and {len(walk.unsaid) - _MOST} more" * (len(walk.unsaid) > _MOST))
        raise PeError(f"opset {opset} cannot say {what}", hint=f"--opset {lowest}{' or newer' * (opset < own.version)}")
    own.version = opset
    model.ir_version = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        why = next(iter(str(error).splitlines()), "")
        raise PeError(f"opset {opset} cannot say the model: {why}", hint="leave --opset out") from None


@dataclass(frozen=True)
class _Scope:
    """What nodes may look up: values and constants by name."""

    values: Mapping[str, Value]
    constants: Mapping[str, np.ndarray[Any, Any]]

    def inside(self, graph: onnx.GraphProto, inferred: onnx.GraphProto) -> _Scope:
        """Return the scope of a graph in this one."""
        constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer if each.data_type in _SMALL and _few(each)}
        found = {each.name: Value(each.data_type, tuple(each.dims)) for each in graph.initializer}
        for info in (*inferred.input, *inferred.value_info, *inferred.output):
            if info.type.HasField("tensor_type"):
                kind = info.type.tensor_type
                sizes = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
                found[info.name] = Value(kind.elem_type, sizes if kind.HasField("shape") else None)
        return _Scope({**self.values, **found}, {**self.constants, **constants})


#: Constants that rules read: sizes, places, axes and pads.
_SMALL = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def _few(tensor: onnx.TensorProto) -> bool:
    return len(tensor.dims) < 2 and int(np.prod(tensor.dims)) <= 64


@dataclass
class _Walk:
    """One walk over a model.

    Attributes:
        unsaid: what cannot be said, and the lowest opset that can.
    """

    opset: int
    own: int
    unsaid: list[tuple[str, int]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def graph(self, graph: onnx.GraphProto, inferred: onnx.GraphProto, around: _Scope) -> None:
        """Rewrite a graph's nodes, and those of the graphs in them."""
        scope = around.inside(graph, inferred)
        made: list[onnx.NodeProto] = []
        for node, twin in zip(graph.node, inferred.node, strict=True):
            for attribute, other in zip(node.attribute, twin.attribute, strict=True):
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self.graph(attribute.g, other.g, scope)
            made += self._node(graph, node, scope) if not node.domain else [node]
        nodes = [_copied(node) for node in made]
        del graph.node[:]
        graph.node.extend(nodes)

    def _node(self, graph: onnx.GraphProto, node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
        site = self._site(node, self.opset, scope)
        try:
            made = self._said(site)
        except Unsaid as error:
            self.unsaid.append((f"{node.op_type} of '{node.output[0]}' ({error})", self._lowest(node, scope)))
            return [node]
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in site.constants.items())
        return made

    def _site(self, node: onnx.NodeProto, opset: int, scope: _Scope) -> Site:
        return Site(node, opset, scope.values, scope.constants, self._fresh)

    def _fresh(self) -> str:
        return f"opset@{next(self._numbers)}"

    def _lowest(self, node: onnx.NodeProto, scope: _Scope) -> int:
        """Return the lowest opset above the wanted one in which a node can be said."""
        for opset in range(self.opset + 1, self.own):
            try:
                self._said(self._site(node, opset, scope))
            except Unsaid:
                continue
            return opset
        return self.own

    def _said(self, site: Site) -> list[onnx.NodeProto]:
        rule = RULES.get(site.node.op_type)
        made = rule(site) if rule is not None else [site.node]
        return [_fitting(node, site.opset, self.own, site.value) for node in made]


def _fitting(node: onnx.NodeProto, opset: int, own: int, value: Callable[[str], Value | None]) -> onnx.NodeProto:
    """Return a node without what says only what an opset does anyway.

    Raises:
        Unsaid: the opset does not have it, or not with its attributes, inputs or types.
    """
    try:
        schema = defs.get_schema(node.op_type, opset)
    except defs.SchemaError:
        raise Unsaid("it does not exist there") from None
    if schema.deprecated:
        raise Unsaid("it is deprecated there")
    made = _copied(node)
    for attribute in node.attribute:
        if attribute.name not in schema.attributes:
            if not _default(attribute, defs.get_schema(node.op_type, own)):
                raise Unsaid(f"it has no '{attribute.name}' there")
            made.attribute.remove(next(each for each in made.attribute if each.name == attribute.name))
    while made.input and not made.input[-1]:
        del made.input[-1]
    if not schema.min_input <= len(made.input) <= schema.max_input or len(made.output) > schema.max_output:
        raise Unsaid(f"it has other inputs there than {len(made.input)}")
    _check_types(made.input, schema, value)
    return made


def _default(attribute: onnx.AttributeProto, schema: defs.OpSchema) -> bool:
    """Tell whether an attribute says what holds without it."""
    said = schema.attributes.get(attribute.name)
    return said is not None and bool(helper.get_attribute_value(attribute) == helper.get_attribute_value(said.default_value))


def _check_types(inputs: Sequence[str], schema: defs.OpSchema, value: Callable[[str], Value | None]) -> None:
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    for i, name in enumerate(inputs):
        found = value(name) if name else None
        if found is None:
            continue
        said = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        kind = f"tensor({helper.tensor_dtype_to_string(found.element).removeprefix('TensorProto.').lower()})"
        if kind not in allowed.get(said, [said]):
            raise Unsaid(f"it takes no {kind} there")


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    return made
