"""Roles of operators by the original's numbers: `fluid.core.op_proto_and_checker_maker`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from pe_cli.program import ir
from pe_cli.program.ir import Role


class OpRole(IntEnum):
    """What an operator is for."""

    Forward = 0
    Backward = 1
    Optimize = 2
    RPC = 4
    Dist = 8
    LRSched = 16
    # A bit of its own: the original adds it to Forward for the loss, and to Backward for its gradient.
    Loss = 256


def kOpRoleAttrName() -> str:
    """Return the name of the attribute that holds a role."""
    return "op_role"


def kOpRoleVarAttrName() -> str:
    """Return the name of the attribute that holds (parameter, gradient)."""
    return "op_role_var"


def kOpNameScopeAttrName() -> str:
    """Return the name of the attribute that holds the scope of names."""
    return "op_namescope"


#: The original's numbers of roles; its servers' ops are no ops of a program here.
_NUMBERS = {
    Role.FORWARD: OpRole.Forward, Role.LOSS: OpRole.Loss, Role.BACKWARD: OpRole.Backward, Role.OPTIMIZE: OpRole.Optimize,
    Role.LR_SCHED: OpRole.LRSched, Role.DIST: OpRole.Dist,
}  # fmt: skip


class RoleGuards(ir.Program):
    """The original's names for the role of ops that a program is given."""

    @property
    def op_role(self) -> str:
        """The role of ops that are appended now."""
        return self.mark.role.value

    def set_op_role(self, role: str) -> None:
        """Give ops that are appended from now on a role."""
        self.mark = replace(self.mark, role=Role(role))

    @property
    def op_role_var(self) -> list[str]:
        """The role variables of ops that are appended now."""
        return list(self.mark.role_vars)

    def set_op_role_var(self, names: Sequence[str]) -> None:
        """Give ops that are appended from now on role variables."""
        self.mark = replace(self.mark, role_vars=tuple(names))

    # What scripts call of the original's programs below its documented names.

    @property
    def _current_role(self) -> int:
        return _NUMBERS[self.mark.role]

    @_current_role.setter
    def _current_role(self, number: int) -> None:
        """Give ops that are appended from now on the role of a number; schedules and losses may be parts of sums."""
        bits = int(number)
        single = OpRole.LRSched if bits & OpRole.LRSched else OpRole(bits if bits == OpRole.Loss else bits & ~OpRole.Loss)
        self.mark = replace(self.mark, role=next(role for role, known in _NUMBERS.items() if known == single))

    @contextlib.contextmanager
    def _optimized_guard(self, param_and_grads: Sequence[Any]) -> Iterator[None]:
        names = [v if isinstance(v, str) else v.name for v in param_and_grads]
        with self.role(Role.OPTIMIZE, names):
            yield

    @contextlib.contextmanager
    def _lr_schedule_guard(self, is_with_opt: bool = False) -> Iterator[None]:
        # Among updates, too, a schedule is one: each op waits for the values that it reads.
        with self.role(Role.LR_SCHED):
            yield


__all__ = ["OpRole", "RoleGuards", "kOpNameScopeAttrName", "kOpRoleAttrName", "kOpRoleVarAttrName"]
