"""From a kernel to machine code: the translator's LLVM, optimised, one object file per kernel."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from pe_cli.core.types import DTYPES
from pe_cli.kernels.compiler.bounds_check import CHECKED, checking
from pe_cli.kernels.compiler.garbage_collection import paused
from pe_cli.kernels.compiler.target import vector_bytes
from pe_cli.kernels.compiler.unit import Unit
from pe_cli.kernels.language import Kernel, Routine


class RoutineEmit:
    """What a routine's `fn` works with: module, dtype, lanes, element type, and the name that its function must have."""

    def __init__(self, dtype: str, entry: str) -> None:
        self.module = ir.Module(entry)
        self.module.triple = llvm.get_default_triple()
        self.dtype = dtype
        self.entry = entry
        self.lanes = vector_bytes() // DTYPES[dtype]
        self.element = {"float32": ir.FloatType(), "float64": ir.DoubleType()}[dtype]

    def function(self, name: str, returns: Any, args: list[Any]) -> Any:
        """Return the declaration of an external function or LLVM intrinsic, made on first use."""
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(returns, args), name)


def compile_kernel(kernel: Kernel, dtype: str, second: str, entry: str) -> bytes:
    """Compile a kernel for element types into a relocatable object.

    Args:
        kernel: what to compile.
        dtype: element type T.
        second: element type U.
        entry: symbol of the C function `void entry(int64 *record)`.

    Returns:
        An object file; its only visible symbol is entry.
    """
    with paused():
        if isinstance(kernel, Routine):
            env = RoutineEmit(dtype, entry)
            kernel.fn(env)
            return _object(str(env.module), entry, written=True)
        return _object(Unit(dtype, second).kernel(kernel, entry), entry)


def _object(text: str, entry: str, written: bool = False) -> bytes:
    """Return the machine code of a module, of which only entry is visible; written: as it should be, with nothing to optimise."""
    module = llvm.parse_assembly(text)
    for item in [*module.functions, *module.global_variables]:
        if not item.is_declaration and item.name != entry:
            # Objects of all kernels are loaded side by side, where helpers of the same name would clash.
            item.linkage = "internal"
    module.verify()
    if CHECKED:
        # A kernel's entry only reads the record, which lies in no checked range; the entry of a routine does the work, so it is checked.
        module = llvm.parse_assembly(checking(str(module), entry if not written else ""))
    if not written:
        _optimise(module)
    return bytes(_machine().emit_object(module))


def _optimise(module: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)


_MACHINE: list[Any] = []


def _machine() -> Any:
    if not _MACHINE:
        from pe_cli.kernels.compiler.target import cpu_name, features

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # reads what kernels write in assembly language, as ARM's timer is asked for
        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=cpu_name(), features=features(), opt=3, reloc="static", codemodel="jitdefault"
        )
        _MACHINE.append(machine)
    return _MACHINE[0]
