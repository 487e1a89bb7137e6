"""Second-order gradients: a rule per forward op, for gradients of gradient ops.

A gradient op computes `X@GRAD` of what the forward op read and of `Out@GRAD`. A rule gets the gradient of `X@GRAD` and either *gives* those
of the op's inputs, or says with other ops how `X@GRAD` *comes about*, and the walk differentiates these. All that rules append has rules
itself, so that there is no highest order.

- An op that is linear in its inputs: the gradient of `Out@GRAD` is the op, applied to the gradient of `X@GRAD`.
- One that is linear in each of two inputs: the same for either, and the gradients of the inputs are the gradient op's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import OpDesc, forward_name, grad_name
from pe_cli.ops.define.schema import EMPTY

#: Slot -> variable or variables.
Inputs = Mapping[str, "str | Sequence[str]"]


@dataclass
class Again:
    """A gradient op that is differentiated.

    Attributes:
        op: the gradient op, with its variables.
        grads: gradient of each of its outputs that has one.
        wanted: inputs whose gradient is of use.
        append: appends an op.
        unique: `unique(prefix)` returns a new name.
        type_of: type of a variable.
        given: variables and their gradients, what the rule decided.
        instead: output -> a variable of the same value, made by ops that the walk is to differentiate.
        constants: variables that no gradient flows to from there.
    """

    op: OpDesc
    grads: Mapping[str, str]
    wanted: Collection[str]
    append: Callable[[OpDesc], None]
    unique: Callable[[str], str]
    type_of: Callable[[str], TensorType]
    given: list[tuple[str, str]] = field(default_factory=list)
    instead: dict[str, str] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the op, which are the forward op's."""
        return self.op.attrs

    def input(self, slot: str) -> str:
        """Return the variable in a slot."""
        return str(self.op.inputs[slot][0])

    def wants(self, slot: str) -> bool:
        """Whether a gradient of what is in an input slot is of use."""
        return any(n in self.wanted for n in self.op.inputs.get(slot, ()))

    def has(self, slot: str) -> bool:
        """Whether a gradient of the op has a gradient itself."""
        return any(n in self.grads for n in self.op.outputs.get(slot, ()))

    def grad(self, slot: str) -> str:
        """Return the gradient of an output that has one."""
        return self.grads[self.op.outputs[slot][0]]

    def of(self, slot: str) -> str:
        """Return the forward variable of an output, `x` for `x@GRAD`; only its type is sure to be the same."""
        return forward_name(self.op.outputs[slot][0])

    def one(self, type: str, inputs: Inputs, attrs: Mapping[str, Any] | None = None, out: str = "Out") -> str:
        """Append an op with one result and return that."""
        return self.several(type, inputs, attrs, out, 1)[0]

    def several(self, type: str, inputs: Inputs, attrs: Mapping[str, Any] | None, out: str, count: int) -> list[str]:
        """Append an op with results in one slot and return those."""
        names = [self.unique("again") for _ in range(count)]
        self._append(type, inputs, {out: names}, attrs)
        return names

    def back(self, type: str, inputs: Inputs, slot: str, like: str, attrs: Mapping[str, Any] | None = None) -> str:
        """Append a gradient op for one of its results.

        Args:
            type: of the gradient op.
            inputs: slot -> variables.
            slot: of the result.
            like: a variable of the result's type.
            attrs: of the op.
        """
        # The name tells the type: a gradient op's output has that of the variable before @GRAD.
        name = self.unique(f"{grad_name(forward_name(like))}@AGAIN")
        self._append(type, inputs, {slot: [name]}, attrs)
        return name

    def _append(self, type: str, inputs: Inputs, outputs: dict[str, list[str]], attrs: Mapping[str, Any] | None) -> None:
        ins = {s: [n] if isinstance(n, str) else list(n) for s, n in inputs.items()}
        self.append(OpDesc(type, ins, outputs, dict(attrs or {})))

    def like(self, name: str, value: float) -> str:
        """Return a constant in the shape of a variable."""
        return self.one("fill_like", {"X": name}, {"value": value})

    def times(self, x: str, y: str) -> str:
        """Return x y, where the larger of the two may come first or second."""
        return self.one("elementwise_mul", {"X": x, "Y": y})

    def scaled(self, x: str, factor: float, shift: float = 0.0) -> str:
        """Return factor x + shift."""
        return self.one("scale", {"X": x}, {"scale": factor, "bias": shift})


Rule = Callable[[Again], None]
#: Forward op -> how its gradient op is differentiated.
SECOND: dict[str, Rule] = {}


def second(*names: str) -> Callable[[Rule], Rule]:
    """Register how the gradients of ops are differentiated."""

    def keep(rule: Rule) -> Rule:
        for name in names:
            assert name not in SECOND, f"{name} has two rules"
            SECOND[name] = rule
        return rule

    return keep


def linear(name: str, slots: str = "X", *, inputs: str = "", out: str = "Out", changed: Mapping[str, Any] | None = None) -> None:
    """Register an op that is linear in some inputs together.

    Args:
        name: of the forward op.
        slots: those inputs.
        inputs: other inputs, which the gradient op has, too.
        out: slot of the result.
        changed: attributes without which the op is not linear but only affine, and their values.
    """

    @second(name)
    def rule(r: Again) -> None:
        if not r.wants(grad_name(out)):
            return
        given: dict[str, str | Sequence[str]] = {slot: r.op.inputs[slot] for slot in inputs.split() if r.op.inputs.get(slot)}
        for slot in slots.split():
            given[slot] = _gradients(r, slot, slots)
        results = r.op.inputs[grad_name(out)]
        made = r.several(name, given, {**r.attrs, **(changed or {})}, out, len(results))
        r.given += zip(results, made, strict=True)


def _gradients(r: Again, slot: str, slots: str) -> list[str]:
    """Return the gradients of all gradients of a slot, zeros where there is none."""
    there = [g for s in slots.split() for n in r.op.outputs.get(grad_name(s), ()) if (g := r.grads.get(n))]
    names = r.op.outputs.get(grad_name(slot)) or [EMPTY]
    # Zeros take their shape from the forward variable, if the gradient op reads it, else from a gradient beside them.
    forward = r.op.inputs.get(slot, [there[0]] * len(names))
    return [r.grads.get(n) or r.like(forward[i], 0.0) for i, n in enumerate(names)]


def bilinear(name: str, first: str = "X", other: str = "Y", out: str = "Out") -> None:
    """Register an op that is linear in each of two inputs; its gradient op has both.

    Args:
        name: of the forward op.
        first: slot of the one input.
        other: slot of the other input.
        out: slot of the result.
    """

    @second(name)
    def rule(r: Again) -> None:
        g = grad_name(out)
        for slot, rest in ((first, other), (other, first)):
            if not r.has(grad_name(slot)):
                continue
            moved = {slot: r.grad(grad_name(slot)), rest: r.input(rest)}
            if r.wants(g):
                r.given.append((r.input(g), r.one(name, moved, r.attrs, out)))
            if r.wants(rest):
                back = r.back(f"{name}_grad", {**moved, g: r.input(g)}, grad_name(rest), r.input(rest), r.attrs)
                r.given.append((r.input(rest), back))


def refuse(r: Again) -> None:
    """Stop at a gradient op without a rule.

    Raises:
        PeError: always.
    """
    name = r.op.type.removesuffix("_grad")
    hint = "let no loss depend on it, or set stop_gradient of what it is of"
    raise PeError(f"the gradient of '{name}' has no gradient of its own", hint=hint)
