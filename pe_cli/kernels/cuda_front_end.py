"""numba-cuda's front end in less time: from bytecode to LLVM by the passes that kernels need. Their PTX is the same to the byte."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from numba.core.types.functions import BaseFunction
from numba.cuda import compiler
from numba.cuda.core import ir, ssa, typed_passes, untyped_passes
from numba.cuda.core.compiler_machinery import PassManager

from pe_cli.kernels.front_end import SILENT, call_type, changed, variables_in

#: The passes that kernels need. numba-cuda's others are for what kernels have not: closures, `with`, loops over literals, functions
#: inlined before they have types. They would change nothing, and each goes over the whole function again.
PASSES = (
    compiler.CUDATranslateBytecode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA, untyped_passes.DeadBranchPrune,
    typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, typed_passes.IRLegalization,
    compiler.CreateLibrary, compiler.CUDANativeLowering, compiler.CUDABackend,
)  # fmt: skip


def _pipelines(compiler: Any) -> list[Any]:
    """Return the only one, of PASSES."""
    manager = PassManager("kernel")
    for each in PASSES:
        manager.add_pass(each, each._name)
    manager.finalize()
    return [manager]


def less_work() -> AbstractContextManager[None]:
    """Let numba-cuda make fewer passes, look up a call once, and write no log."""
    return changed(
        [
            (compiler.CUDACompiler, "define_pipelines", _pipelines),
            (BaseFunction, "get_call_type", call_type),
            (ir.Inst, "_rec_list_vars", variables_in(ir)),
            (ssa, "_logger", SILENT),
        ]
    )
