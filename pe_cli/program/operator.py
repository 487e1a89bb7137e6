"""Operator: one operation of a program, with its role in a training step."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any

from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import OpDef, find
from pe_cli.ops.define.schema import EMPTY


class Role(StrEnum):
    """Which part of a training step an op belongs to; the multi-device graph is built from this and `role_vars`."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZE = "optimize"
    LR_SCHED = "lr_sched"
    DIST = "dist"


#: What changes parameters, and the learning rates of that.
UPDATES = (Role.OPTIMIZE, Role.LR_SCHED)


@dataclass(frozen=True)
class ByDevice:
    """An attribute that has another value on each device, as a variable there gives it.

    Args:
        values: of each device; a list as a tuple.
    """

    values: tuple[Any, ...]


@dataclass(eq=False)
class Operator:
    """One operation: type, slots with variable names, attributes, role, and the line of YAML it comes from.

    Forward operators of one `segment`, from 1, keep nothing for the backward pass, which does them again; those of the last segment, and
    all where it is 0, keep what is needed. See `graph.passes.recompute`.
    """

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]
    role: Role = Role.FORWARD
    role_vars: list[str] = field(default_factory=list)
    at: Span | None = None
    scope: str = ""
    segment: int = 0

    @property
    def definition(self) -> OpDef:
        """The entry of the catalogue."""
        return find(self.type)

    @property
    def varies(self) -> bool:
        """Whether attributes differ from device to device."""
        return any(type(value) is ByDevice for value in self.attrs.values())

    def attrs_on(self, device: int) -> dict[str, Any]:
        """Return the attributes on a device."""
        if not self.varies:
            return self.attrs
        here = {name: value.values[device] for name, value in self.attrs.items() if type(value) is ByDevice}
        return self.attrs | {name: [*value] if isinstance(value, tuple) else value for name, value in here.items()}

    def input_names(self) -> list[str]:
        """Return every variable read, in slot order."""
        return [n for names in self.inputs.values() for n in names if n != EMPTY]

    def output_names(self) -> list[str]:
        """Return every variable written, in slot order."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY]


@dataclass(frozen=True)
class Mark:
    """What an op is given by where it is appended.

    Args:
        role: of the op.
        role_vars: see `Operator`.
        at: place in a file.
        scope: for pictures.
    """

    role: Role = Role.FORWARD
    role_vars: tuple[str, ...] = ()
    at: Span | None = None
    scope: str = ""
