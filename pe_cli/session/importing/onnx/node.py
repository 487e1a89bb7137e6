"""One node of an ONNX graph as its form sees it, and the registry of forms."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.importing.onnx.emit import Emitter
from pe_cli.session.importing.onnx.values import Array, NeedsConstant, Size, Unimportable, Value, is_filled, known

#: Attributes that say nothing which a result depends on, or only what an input says as well.
_WITHOUT_MEANING = frozenset({"kernel_shape", "momentum", "num_outputs", "ratio", "saturate", "seed", "spatial"})


class Attributes(dict[str, Any]):
    """Attributes of a node, which know which of them were asked for."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        self.read.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        """Return an attribute that is there."""
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        """Whether an attribute is there."""
        self.read.add(str(name))
        return super().__contains__(name)


@dataclass(frozen=True)
class Node:
    """A node with what it reads.

    Args:
        op: kind of node.
        opset: version of its domain's operators.
        attrs: plain values.
        inputs: names, "" for what is left out.
        values: of the inputs.
        outputs: names.
        keys: name in the graph -> name of a layer, for outputs.
        emitter: of the model.
        uses: how often each value is read.
        takers: kinds of the nodes that read each value; "" where it is an output of the graph.
    """

    op: str
    opset: int
    attrs: Attributes
    inputs: Sequence[str]
    values: Sequence[Value | None]
    outputs: Sequence[str]
    keys: Mapping[str, str]
    emitter: Emitter
    uses: Mapping[str, int]
    takers: Mapping[str, set[str]]

    # --- what it is given ---------------------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attrs.get(name, default)

    def check_read(self, domain: str) -> None:
        """Refuse attributes that nobody has asked for, but for those that say what holds without them.

        Raises:
            Unimportable: there is such a one.
        """
        import onnx

        unread = self.attrs.keys() - self.attrs.read - _WITHOUT_MEANING
        if not unread or not onnx.defs.has(self.op, self.opset, domain):
            return
        said = onnx.defs.get_schema(self.op, self.opset, domain).attributes
        for name in sorted(unread):
            default = onnx.helper.get_attribute_value(said[name].default_value) if name in said and said[name].default_value.name else None
            default = default.decode() if isinstance(default, bytes) else default
            if default is None or default != dict.get(self.attrs, name):
                raise Unimportable(f"its attribute {name} has no meaning for the layer")

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.values) and self.values[index] is not None

    def wants(self, index: int) -> bool:
        """Whether an output is there and read."""
        return index < len(self.outputs) and self.outputs[index] != "" and self.uses.get(self.outputs[index], 0) > 0

    def value(self, index: int = 0) -> Value:
        """Return an input.

        Raises:
            Unimportable: it is not there.
        """
        found = self.values[index] if index < len(self.values) else None
        if found is None:
            raise Unimportable(f"its input {index} is missing")
        return found

    def shape(self, index: int = 0) -> tuple[Size, ...]:
        """Return the sizes of an input."""
        return self.value(index).shape

    def sizes(self, index: int = 0) -> tuple[int, ...]:
        """Return the sizes of an input, -1 for those that are not known."""
        return known(self.shape(index))

    def const(self, index: int, what: str = "an input") -> Array:
        """Return an input that is a constant.

        Raises:
            NeedsConstant: it is computed.
        """
        found = self.value(index)
        if found.constant is None:
            raise NeedsConstant(self.inputs[index], what)
        return found.constant

    def ints(self, name: str, index: int | None = None, default: Sequence[int] | None = None) -> list[int] | None:
        """Return whole numbers that an attribute or, in newer versions, an input gives.

        Raises:
            NeedsConstant: an input that is computed.
        """
        if name in self.attrs:
            found = self.attrs[name]
            return [int(v) for v in found] if isinstance(found, list | np.ndarray) else [int(found)]
        if index is not None and self.has(index):
            return [int(v) for v in self.const(index, name).reshape(-1)]
        return None if default is None else list(default)

    def number(self, name: str, index: int | None, default: float) -> float:
        """Return a number that an attribute or, in newer versions, an input gives; see `ints`."""
        if name in self.attrs:
            return float(self.attrs[name])
        return float(self.const(index, name).reshape(-1)[0]) if index is not None and self.has(index) else default

    def axis(self, default: int, index: int = 0, name: str = "axis") -> int:
        """Return the attribute `axis`, counted from the first axis of an input.

        Raises:
            Unimportable: there is no such axis.
        """
        axis, rank = int(self.attr(name, default)), self.value(index).rank
        if not -rank <= axis < max(rank, 1):
            raise Unimportable(f"{name} {axis} is none of an input with {rank} axes")
        return axis % max(rank, 1)

    def var(self, index: int = 0) -> Value:
        """Return an input as a variable of the model."""
        return self.emitter.variable(self.value(index), f"{self.key}_{index}")

    def parameter(self, index: int, what: str, turn: Callable[[Array], Array] | None = None) -> tuple[Array, str]:
        """Keep an input as a parameter; return its value and name.

        Raises:
            NeedsConstant: it is computed.
        """
        value = self.value(index)
        array = self.const(index, what)
        made = np.ascontiguousarray(array if turn is None else turn(array))
        if value.later is not None:
            self.emitter.note(f"'{self.inputs[index]}' is computed of parameters in the file; '{self.key}' trains it as one of its own")
        name = self.emitter.parameter(made, value.initializer or f"{self.key}.{what.replace(' ', '_')}")
        # Factors of 1 and biases of 0 in the nodes of a graph stand for none. PyTorch keeps all of its parameters as initializers.
        if value.initializer is None and value.later is None and (self.emitter.from_torch or is_filled(made)):
            self.emitter.fixed.add(name)
            if not is_filled(made):
                self.emitter.constants.setdefault(name)
        return made, name

    # --- what it becomes ----------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The name of the layer that computes the first output."""
        return self.keys[next(name for name in self.outputs if name)]

    def out(self, type: str, /, *, to: int = 0, dims: Sequence[Size] | None = None, scalar: bool = False, **args: Any) -> Value:
        """Append the layer that computes an output."""
        made = self.emitter.layer(type, self.keys[self.outputs[to]], args, dims, own=True)
        return Value(made.dtype, variable=made.variable, dims=made.dims, scalar=scalar)

    def mid(self, type: str, hint: str, /, *, dims: Sequence[Size] | None = None, **args: Any) -> Value:
        """Append a layer on the way to an output."""
        return self.emitter.layer(type, f"{self.key}_{hint}", args, dims)

    def outs(self, type: str, /, **args: Any) -> list[Value]:
        """Append a layer with several outputs, which have no names of their own in the graph."""
        return self.emitter.outputs_of(type, f"{self.key}_{type}", args)

    def by(self, op: str, values: Sequence[Value | None], hint: str, opset: int = 0, /, **attrs: Any) -> Value:
        """Return what another operator computes on the way to an output; its first output.

        Args:
            op: of ONNX's own.
            values: its inputs.
            hint: of its layers' names.
            opset: whose version it is of; 0 for that of the node.
            attrs: its attributes.
        """
        name = f"{self.outputs[0]}@{hint}"
        keys = {**self.keys, name: self.emitter.key(f"{self.key}_{hint}")}
        inner = Node(
            op, opset or self.opset, Attributes(attrs), [f"{name}:{i}" for i in range(len(values))], values, [name], keys, self.emitter,
            {name: 1}, {name: {""}},
        )  # fmt: skip
        made = discover()["", op](inner)
        first = made if isinstance(made, Value) else made[0]
        assert first is not None, f"{op} has computed nothing"
        return first

    def number_like(self, value: float, like: Value, hint: str) -> Value:
        """Return a tensor [1] of one number in the type of a variable."""
        return self.mid("fill_constant", hint, shape=[1], dtype=like.dtype, value=float(value))

    def reshaped(self, value: Value, shape: Sequence[Size], hint: str | None = None) -> Value:
        """Give a variable another shape; symbols of the new one are sizes of the old, or what is left.

        Raises:
            Unimportable: more than one size of the new shape is not known.
        """
        old, given, unknown = value.dims, [], 0
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                given.append(size)
            elif axis < len(old) and old[axis] == size:
                given.append(0)
            else:
                given.append(-1)
                unknown += 1
        if unknown > 1:
            raise Unimportable(f"it makes {unknown} sizes that are not known of {list(known(tuple(old)))}")
        dims = list(shape) or [1]
        args: dict[str, Any] = {"x": value, "shape": given or [1]}
        made = self.mid("reshape", hint, dims=dims, **args) if hint else self.out("reshape", dims=dims, **args)
        return Value(made.dtype, variable=made.variable, dims=made.dims, scalar=not shape)


#: What a node becomes: values for its outputs.
Form = Callable[[Node], "Value | Sequence[Value | None]"]
FORMS: dict[tuple[str, str], Form] = {}


def form(*ops: str, domain: str = "") -> Callable[[Form], Form]:
    """Register what nodes of these kinds become."""

    def keep(fn: Form) -> Form:
        for op in ops:
            assert FORMS.setdefault((domain, op), fn) is fn, f"{op} has two forms"
        return fn

    return keep


@functools.cache
def discover() -> Mapping[tuple[str, str], Form]:
    """Return all forms."""
    from pe_cli.session.importing.onnx import forms as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    return FORMS
