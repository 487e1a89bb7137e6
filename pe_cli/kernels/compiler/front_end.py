"""numba's front end alone: from bytecode to LLVM by the passes that kernels need, and in less time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from numba.core import ir as numba_ir
from numba.core import ssa, typed_passes, untyped_passes
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


#: What numba found for a call of a function of its own, by target, function and types: the signature, what the function calls its code,
#: and target and function, which stay alive with it.
_FOUND: dict[Any, tuple[Any, Any, Any, Any]] = {}
_find_call_type = BaseFunction.get_call_type


def call_type(function: Any, context: Any, args: Any, keywords: Any) -> Any:
    """Return the signature of a call, as numba's method does, but try all overloads only once: a seventh of the time of a compilation."""
    key = id(context), id(function), args, *keywords.items()
    if key not in _FOUND:
        made = _find_call_type(function, context, args, keywords)
        _FOUND[key] = made, function.get_impl_key(made), context, function
    signature, code, _, _ = _FOUND[key]
    function._impl_keys[signature.args] = code  # another target may have found its own since
    return signature


def variables_in(ir: Any) -> Any:
    """Return numba's method that lists the variables in what an instruction holds, in less time: a kernel calls it ten thousand times.

    Args:
        ir: module of the instructions.
    """
    variable, one = ir.Var, ir.Inst
    bare = frozenset({str, int, float, bool, type(None), ir.Loc})

    def variables(instruction: Any, value: Any) -> list[Any]:
        found: list[Any] = []
        for each in value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,):
            kind = type(each)
            if kind is variable:
                found.append(each)
            elif kind not in bare:
                if isinstance(each, one):
                    found += each.list_vars()
                elif isinstance(each, (list, tuple, dict)):
                    found += variables(instruction, each)
        return found

    return variables


@contextlib.contextmanager
def changed(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes meanwhile: owner, name and value of each."""
    held = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in held:
            setattr(owner, name, value)


_variables = variables_in(numba_ir)
#: Instead of a log of what is done to each variable, which nobody reads: a million lines for a large kernel.
SILENT = SimpleNamespace(debug=lambda *said: None)


@contextlib.contextmanager
def front_end_only() -> Iterator[None]:
    """Keep numba from optimising and generating code: it would, anew for every helper, and each caller would again.

    A kernel that uses the microkernels took 4.2 s to compile with numba's own back end, 1.2 s with one pass at the end.
    """

    def finalize(library: Any) -> None:
        library._finalized = True

    changes: list[tuple[Any, str, Any]] = [
        (BaseFunction, "get_call_type", call_type),
        (numba_ir.Inst, "_rec_list_vars", _variables),
        (ssa, "_logger", SILENT),
        (JITCodeLibrary, "_optimize_final_module", lambda library: None),
        (JITCodeLibrary, "_finalize_final_module", finalize),
        (JITCPUCodegen, "set_env", lambda codegen, name, env: None),
    ]
    with changed(changes):
        yield
