"""Roles of operators by the original's numbers: `fluid.core.op_proto_and_checker_maker`."""

from __future__ import annotations

from enum import IntEnum


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


__all__ = ["OpRole", "kOpNameScopeAttrName", "kOpRoleAttrName", "kOpRoleVarAttrName"]
