"""Fusions: which ops a fused op takes the place of, declared beside it; one engine, `graph.passes.fusions`, applies all of them.

A pattern is a list of parts. The first is looked for in the whole program, every other one is linked to a part before it:

    Part("act", ("relu",)), Part("norm", ("batch_norm",), writes=("act", "X"))

finds every relu with the batch_norm that makes its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pe_cli.core.types import TensorType
from pe_cli.core.value_class import Value
from pe_cli.ops.define.registry import OPS, OpDef
from pe_cli.ops.define.traits import Trait
from pe_cli.ops.define.traits.trait import Named


class Op(Protocol):
    """What a pattern sees of an op of the program: its type, variables by slot, attributes, and its entry of the catalogue."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]

    @property
    def definition(self) -> OpDef:
        """The entry of the catalogue."""


class Match(Protocol):
    """The ops that were found for the parts of a pattern, and what else decides whether they are joined."""

    def __getitem__(self, part: str) -> Op:
        """Return the op of a part."""

    def __contains__(self, part: str) -> bool:
        """Whether a part was found; only optional ones may be missing."""

    def type(self, variable: str) -> TensorType:
        """Return the type of a variable."""

    def readers(self, variable: str) -> Sequence[Op]:
        """Return the ops that read a variable, in order."""

    def unchanged(self, variable: str, first: Any, last: Any) -> bool:
        """Whether no op between two ops writes a variable."""

    def only_for(self, variable: str, readers: Sequence[Any], *, stays: bool = False) -> str:
        """Return why a variable cannot vanish when only these ops read it, empty where it can.

        With stays, gradients that are typed after the variable may remain.
        """

    def needed(self, variable: str, readers: Sequence[Any]) -> str:
        """Return the same where gradients that are typed after the variable will be typed after another one; see `Becomes.gone`.

        A variable that nobody reads may vanish.
        """

    def same_role(self, *ops: Any) -> bool:
        """Whether ops belong to the same part of a training step."""

    def can_meet(self, *ops: Any) -> bool:
        """Whether ops may all move to the place of one of them."""

    def create(self, name: str, type: TensorType) -> str:
        """Add a variable of a name that begins so, and return its name."""


class Part(Value):
    """One op of a pattern.

    Args:
        name: what links, conditions and results call it.
        ops: the ops that may stand here: their names, or `f(definition)`.
        writes: (part, input slots): it alone writes what that part reads there; of several slots, that of the last op that may stand here.
        reads: (part, output slot), or `f(match) -> variable`: it alone reads that; the first part of a gradient may share it with others.
        others: more ops may read it too, but none of them may stand here.
        into: input slot through which it reads; empty for any.
        fits: further condition: `f(match, op)`.
        optional: the pattern goes without it, too.
        lacking: why the pattern does not apply without it; empty for a sentence that names the op that is there instead.
    """

    name: str
    ops: Sequence[str] | Callable[[OpDef], bool]
    writes: tuple[str, str] | None = None
    reads: tuple[str, str] | Callable[[Match], str] | None = None
    others: bool = False
    into: str = ""
    fits: Callable[[Match, Any], bool] | None = None
    optional: bool = False
    lacking: str = ""

    def may_be(self, definition: OpDef) -> bool:
        """Whether an op may stand here, whatever it is linked to."""
        return self.ops(definition) if callable(self.ops) else definition.name in self.ops


class Becomes(Value):
    """An op that takes the place of others.

    Args:
        ops: those, in dataflow order; it has the place in the file of the first, and the role variables of all.
        type: its name.
        inputs, outputs: variables by slot.
        attrs: its attributes.
        gone: variables that vanish -> variable that gradients which were typed after them are typed after from then on.
    """

    ops: Sequence[Any]
    type: str
    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, list[str]]
    attrs: Mapping[str, Any]
    gone: Mapping[str, str] = {}


class Pattern(Value):
    """Ops that stand together, and what becomes of them.

    Args:
        parts: see `Part`.
        becomes: `f(match) -> [Becomes]`.
        vanish: (part, output slot): values that nothing but the parts may read, or `f(match)` -> why values may not vanish, empty where
            they may. Gradients that are joined on their own are by then.
        unless: `f(match)` -> why the ops, and their gradients, are left alone; empty where they are not.
    """

    parts: Sequence[Part]
    becomes: Callable[[Match], Sequence[Becomes]]
    vanish: Sequence[tuple[str, str]] | Callable[[Match], str] = ()
    unless: Callable[[Match], str] | None = None


class Fuses(Trait):
    """The op, or its gradient, takes the place of several ops; no bit changes by it.

    Args:
        switch: field of the build strategy that asks for it.
        forward: the ops of the forward pass.
        gradient: those of each of their gradients, in which the parts of `forward` are known; None where they stay.
        together: nothing is done where one of the gradients cannot be joined; else each is for itself.
        on: facts of the target without which it does not pay.
        unless_synchronised: it takes batch_norm, which sync_batch_norm wants for itself.
        did: what became of the first parts, for the report; empty to count forward places and gradients.
        nothing: what is said of a program without any first part.
    """

    switch: str
    forward: Pattern
    gradient: Pattern | None = None
    together: bool = False
    on: Sequence[str] = ()
    unless_synchronised: bool = False
    did: str = ""
    nothing: str = ""

    def verify(self, op: Named) -> None:
        patterns = [self.forward, *([self.gradient] if self.gradient else [])]
        for part in (part for pattern in patterns for part in pattern.parts):
            # A name that is no op's would never be found, and the pattern would silently do nothing.
            missing = [] if callable(part.ops) else [name for name in part.ops if name not in OPS]
            assert not missing, f"{op.name} takes the place of {', '.join(missing)}, which is no op"
