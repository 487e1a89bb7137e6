"""A faster front end for numba-cuda: only the passes from bytecode to LLVM that kernels need, with identical PTX.

Roundings are those of `rounding`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from numba.core.types.functions import BaseFunction
from numba.cuda import compiler
from numba.cuda.core import analysis, ir, ssa, typed_passes, untyped_passes
from numba.cuda.core.compiler_machinery import PassManager
from numba.cuda.cudadrv import nvvm

from pe_cli.kernels.cuda.rounding import joinable

#: The passes that kernels need. numba-cuda's others are for what kernels have not: closures, `with`, loops over literals, functions
#: inlined before they have types. They would change nothing, and each goes over the whole function again.
PASSES = (
    compiler.CUDATranslateBytecode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA, untyped_passes.DeadBranchPrune,
    typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, typed_passes.IRLegalization,
    compiler.CreateLibrary, compiler.CUDANativeLowering, compiler.CUDABackend,
)  # fmt: skip


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


#: Instead of a log of what is done to each variable, which nobody reads: a million lines for a large kernel.
SILENT = SimpleNamespace(debug=lambda *said: None)


def _pipelines(compiler: Any) -> list[Any]:
    """Return the only one, of PASSES."""
    manager = PassManager("kernel")
    for each in PASSES:
        manager.add_pass(each, each._name)
    manager.finalize()
    return [manager]


def _live_map(cfg: Any, blocks: Any, used: Any, defined: Any) -> dict[Any, set[str]]:
    """Return the variables that each block needs from before it, as numba's function does, which makes its rounds in the wrong direction.

    Sets are bits of numbers here.

    Args:
        cfg: which block follows which.
        blocks: by label.
        used, defined: label -> names.
    """
    names = list(dict.fromkeys(name for of in (used, defined) for label in of for name in of[label]))
    bit = {name: 1 << i for i, name in enumerate(names)}
    uses, makes = ({label: sum(bit[name] for name in of[label]) for label in blocks} for of in (used, defined))
    reached = {label: uses[label] | makes[label] for label in blocks}
    needed = dict(uses)
    order = [label for label in cfg.topo_order() if label in reached]
    before = {label: [b for b, _ in cfg.predecessors(label)] for label in order}
    settled = False
    while not settled:
        # Forwards: what may have been set on a way to a block. In topological order, so that code without loops settles in one round.
        known = dict(reached)
        for label in order:
            for each in before[label]:
                reached[label] |= reached[each]
        settled = known == reached
    settled = False
    while not settled:
        # Backwards: what a later block needs and its predecessor does not make, as far as it may have been set.
        known = dict(needed)
        for label in reversed(order):
            for each in before[label]:
                needed[each] |= needed[label] & reached[each] & ~makes[each]
        settled = known == needed
    return {label: {name for name in names if bit[name] & bits} for label, bits in needed.items()}


def _statements(states: Any, block: Any, handler: Any) -> Iterator[Any]:
    """Give what a step towards single assignments makes of each statement, as numba's function does; a large kernel has a million."""
    assigns = ir.assign_types
    if type(handler) is ssa._FreshVarHandler:  # it changes what sets one variable
        name = states["varname"]
        for statement in block.body:
            sets = isinstance(statement, assigns) and statement.target.name == name
            yield handler.on_assign(states, statement) if sets else statement
        return
    for statement in block.body:
        yield handler.on_assign(states, statement) if isinstance(statement, assigns) else handler.on_other(states, statement)


_compile = nvvm.compile_ir


def _compiled(texts: str | Sequence[str], **options: Any) -> Any:
    """Return the PTX of LLVM's text as numba-cuda's function does, which rounds where `rounding` says."""
    given = [texts] if isinstance(texts, str) else texts
    # libnvvm must not join products and sums by itself: `joinable` has marked those that may be joined.
    return _compile(["\n".join(joinable(text)) for text in given], **{**options, "fma": False})


def less_work() -> AbstractContextManager[None]:
    """Let numba-cuda make fewer passes, look up a call once, and write no log."""
    return changed(
        [
            (compiler.CUDACompiler, "define_pipelines", _pipelines),
            (BaseFunction, "get_call_type", call_type),
            (ir.Inst, "_rec_list_vars", variables_in(ir)),
            (ssa, "_logger", SILENT),
            (ssa, "_run_ssa_block_pass", _statements),
            (analysis, "compute_live_map", _live_map),
        ]
    )


def roundings() -> AbstractContextManager[None]:
    """Let PTX say where it rounds."""
    return changed([(nvvm, "compile_ir", _compiled)])
