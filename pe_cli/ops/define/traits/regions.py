"""Traits about sequences, and about the ops that an op runs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from pe_cli.ops.define.traits.trait import Named, Trait, need


class Sequenced(Trait):
    """What the op does with sequences, see `pe_cli.ops.define.lod`; an op without it hands on the LoD of inputs whose rows it keeps.

    Args:
        rule: `f(LodRequest)`, for the op and its gradient.
        host_slots: optional input slots that the rule fills with arrays made from offsets before a step.
        begins: its output may have sequences where no input has.
        value_slots: input slots whose values the rule may need before a step, as sequences or sizes follow from them.
    """

    rule: Callable[[Any], None]
    host_slots: tuple[str, ...] = ()
    begins: bool = False
    value_slots: tuple[str, ...] = ()

    def verify(self, op: Named) -> None:
        need(op, self.host_slots)


class NamesOnly(Trait):
    """Inputs of a gradient op that its kernels do not read: their names tell the rule of `Sequenced` whose sequences count."""

    slots: tuple[str, ...]

    def verify(self, op: Named) -> None:
        need(op, self.slots)


class Runs(enum.Enum):
    """How an op runs its regions."""

    #: As many times as a number says, or the first axis of what is gone through.
    ROUNDS = "rounds"
    #: As long as the first of its regions gives true.
    WHILE = "while"
    #: One of two, once.
    BRANCH = "branch"


class HasRegions(Trait):
    """The op runs ops of its own, see `pe_cli.program.region`.

    Args:
        runs: how.
        attrs: attributes that are regions it runs.
    """

    runs: Runs
    attrs: tuple[str, ...]

    def verify(self, op: Named) -> None:
        assert all(name in op.attrs for name in self.attrs), f"{op.name} lacks one of {', '.join(self.attrs)}"

    def says(self) -> tuple[str, str]:
        return "regions", f"{', '.join(self.attrs)}: ops that it runs"
