"""numba's front end alone: from bytecode to LLVM by the passes that kernels need, and in less time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core import ir as numba_ir
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.types.functions import BaseFunction

#: The passes that the kernel language needs. numba's others are for what it has not: closures, arrays, `with`, constants as types,
#: functions inlined before they have types. They would change nothing, and each goes over the whole function again.
PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA, untyped_passes.DeadBranchPrune,
    typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, typed_passes.IRLegalization,
    typed_passes.NativeLowering, typed_passes.NoPythonBackend,
)  # fmt: skip


class Pipeline(CompilerBase):  # type: ignore[misc]  # numba has no types
    """numba's way from bytecode to LLVM, by PASSES."""

    def define_pipelines(self) -> list[Any]:
        """Return the only one."""
        manager = PassManager("kernel")
        for each in PASSES:
            manager.add_pass(each, each._name)
        manager.finalize()
        return [manager]


#: What numba found for a call of a function of its own, by function and types; the function stays alive with it.
_FOUND: dict[Any, tuple[Any, Any]] = {}
_find_call_type = BaseFunction.get_call_type


def _call_type(function: Any, context: Any, args: Any, keywords: Any) -> Any:
    """Return the signature of a call, as numba's method does, but try all overloads only once: a seventh of the time of a compilation."""
    key = id(function), args, *keywords.items()
    if key not in _FOUND:
        _FOUND[key] = _find_call_type(function, context, args, keywords), function
    return _FOUND[key][0]


#: Types of what an instruction holds besides variables.
_BARE = frozenset({str, int, float, bool, type(None), numba_ir.Loc})


def _variables(instruction: Any, value: Any) -> list[Any]:
    """Return the variables in what an instruction holds, as numba's method does, in less time: it is called ten thousand times a kernel."""
    found: list[Any] = []
    for each in value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,):
        kind = type(each)
        if kind is numba_ir.Var:
            found.append(each)
        elif kind not in _BARE:
            if isinstance(each, numba_ir.Inst):
                found += each.list_vars()
            elif isinstance(each, (list, tuple, dict)):
                found += _variables(instruction, each)
    return found


@contextlib.contextmanager
def front_end_only() -> Iterator[None]:
    """Keep numba from optimising and generating code: it would, anew for every helper, and each caller would again.

    A kernel that uses the microkernels took 4.2 s to compile with numba's own back end, 1.2 s with one pass at the end.
    """

    def finalize(library: Any) -> None:
        library._finalized = True

    changes: list[tuple[Any, str, Any]] = [
        (BaseFunction, "get_call_type", _call_type),
        (numba_ir.Inst, "_rec_list_vars", _variables),
        (JITCodeLibrary, "_optimize_final_module", lambda library: None),
        (JITCodeLibrary, "_finalize_final_module", finalize),
        (JITCPUCodegen, "set_env", lambda codegen, name, env: None),
    ]
    held = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in held:
            setattr(owner, name, value)
