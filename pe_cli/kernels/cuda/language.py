"""The CUDA side of the kernel language: what of it runs on a GPU, and the functions that numba-cuda compiles for it.

A kernel of the CPU runs on CUDA from the same text, in one of two ways:

    as it is    one thread does everything: right for kernels that compute one number (schedules, counters)
    `deal`      the outermost loops are dealt over all threads of the grid: thread t does iterations t, t + threads, ...

`deal` is a promise that an iteration of an outermost loop reads nothing that another writes, except what the iteration of the same number
wrote in an earlier loop. Where the CPU's text does not fit, `on_cuda(kernel)` gives another with the same parameters, or several that run
one after the other; ops whose calls differ altogether write `cuda_kernel` functions. Both are dealt, unless they say the shape of a
block: those are taken as they are and see `cuda` (threadIdx, shared memory, syncthreads).

On CUDA every pointer parameter, and every address, is a pointer to its element type; a kernel has no other arguments
than these, int64 numbers and numbers of its element type.

Nothing here imports numba: `Built.bound` gets the module, when something has to be compiled (`compiler`).
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16, FLOATS
from pe_cli.kernels.calls import Call
from pe_cli.kernels.compiler.parsing import expression, statements
from pe_cli.kernels.cuda.grid_loops import deal_loops
from pe_cli.kernels.cuda.intrinsics import CudaIntrinsic as CudaIntrinsic
from pe_cli.kernels.cuda.intrinsics import cuda_intrinsic as cuda_intrinsic
from pe_cli.kernels.cuda.math import ceil, floor, meaning
from pe_cli.kernels.cuda.rounding import exactly
from pe_cli.kernels.cuda.vectorized_loops import meanings
from pe_cli.kernels.language import POINTERS, Helper, Intrinsic, Kernel, PerType, parameter_kinds

#: Name of what Python's math is on CUDA.
MATH = "math on CUDA"
#: Most iterations of an outermost loop that is dealt, and most elements of a buffer.
MOST_ITERATIONS = 2**31 - 1
#: Bytes of Python's code in the helpers of a loop that is done by fours; what is longer takes longer than its memory.
MOST_CODE = 600


class _Module:
    """Stands for numba.cuda in the globals of kernels until they are compiled."""


cuda: Any = _Module()


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel that exists on CUDA only.

    Args:
        fn: the Python function, with the annotations of `pe_cli.kernels.language`.
        params: annotation names in order.
        name: `module:function`.
        text: source, for functions made by `exec`.
        block: threads of a block along x (and y, z) of a kernel that works by blocks; empty where the outermost loops are dealt.
        threads: how many threads have something to do along each, as expressions of the integer parameters; empty for
            a whole grid.
        copies: makes its second argument what its first is: nothing to do where the plan gave both the same bytes.
        resident: blocks that a multiprocessor shall have room for at a time, which bounds their registers; 0 for the compiler's choice.
        dealt: whether the text deals its loops itself, to blocks of any size.
        exact: see `Kernel`.
    """

    fn: types.FunctionType
    params: tuple[str, ...]
    name: str
    text: str | None = None
    block: tuple[int, ...] = ()
    threads: tuple[str, ...] = ()
    copies: bool = False
    resident: int = 0
    dealt: bool = False
    exact: bool = False

    def __repr__(self) -> str:
        return f"<CUDA kernel {self.name}>"


#: Kernels of the CPU whose outermost loops may be dealt.
DEALT: set[Kernel] = set()
#: Kernels of the CPU -> what runs on CUDA instead, in order.
INSTEAD: dict[Kernel, list[CudaKernel]] = {}
#: Kernels of the CPU -> what makes other calls of one that is of a common kind; None where it is not.
CHOSEN: dict[Kernel, Callable[[Call], Call | None]] = {}


def cuda_kernel(
    fn: Any = None, *, text: str | None = None, block: Sequence[int] = (), threads: Sequence[str] = (), name: str = "",
    copies: bool = False,
    resident: int = 0, exact: bool = False,
) -> Any:  # fmt: skip
    """Make a kernel for CUDA of a function: `@cuda_kernel`, whose outermost loops are dealt, or `@cuda_kernel(block=...)`.

    Args:
        fn: the function.
        text: see `CudaKernel`.
        block: see `CudaKernel`; the function is then taken as it is: it sees `cuda`.
        threads: see `CudaKernel`.
        name: `module:function`, for functions made by `exec`.
        copies, resident, exact: see `CudaKernel`.
    """
    if fn is None:
        how: dict[str, Any] = {"text": text, "block": block, "threads": threads, "name": name, "copies": copies}
        how |= {"resident": resident, "exact": exact}
        return lambda f: cuda_kernel(f, **how)
    named = name or f"{fn.__module__}:{fn.__qualname__}"
    return CudaKernel(fn, parameter_kinds(fn), named, text, tuple(block), tuple(threads), copies, resident, exact=exact)


def deal(*kernels: Kernel) -> None:
    """Let kernels deal their outermost loops over the threads; see the module for what they promise."""
    DEALT.update(kernels)


def on_cuda(kernel: Kernel, **how: Any) -> Callable[[Any], CudaKernel]:
    """Give a kernel another text on CUDA, with the same parameters, as exact; of two, the second runs when the first is done.

    Args:
        kernel: of the CPU.
        how: keywords of `cuda_kernel`.
    """

    def make(fn: Any) -> CudaKernel:
        made: CudaKernel = cuda_kernel(fn, name=kernel.name if "text" in how else "", exact=kernel.exact, **how)
        assert made.params == kernel.params, f"{kernel}: other parameters on CUDA, {made.params}"
        INSTEAD.setdefault(kernel, []).append(made)
        return made

    return make


def calls_on_cuda(call: Call) -> list[Call]:
    """Return the calls that a call becomes on CUDA, in order; what is chosen for an exact kernel is exact."""
    chosen = CHOSEN[call.kernel](call) if call.kernel in CHOSEN else None
    if chosen and call.kernel.exact:
        chosen = replace(chosen, kernel=_as_written(chosen.kernel))
    return [chosen] if chosen else [replace(call, kernel=kernel) for kernel in forms(call.kernel)]


@functools.cache
def _as_written(kernel: Kernel | CudaKernel) -> Kernel | CudaKernel:
    return kernel if kernel.exact else replace(kernel, exact=True)


def same_on_cuda(kernel: Kernel, other: Kernel) -> None:
    """Let a kernel be on CUDA what another of the same parameters is."""
    assert kernel.params == other.params
    INSTEAD[kernel] = INSTEAD[other]


# --- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A kernel for one pair of element types, before it is compiled.

    Args:
        fn: the function; its globals are what they mean on CUDA, with helpers as plain functions.
        helpers: those of the functions among them that are compiled with it.
        kernel: of `forms`.
        dtype: element type T.
        second: element type U.
        threads: how many have something to do along each axis, as expressions; `loops` where the largest counts.
        loops: whether the outermost loops are dealt.
        halves: numbers of the parameters that point to bfloat16 where their annotation says T or U, which is float32 then.
        parts: kernels that it does one behind the other.
    """

    fn: types.FunctionType
    helpers: frozenset[types.FunctionType]
    kernel: Kernel | CudaKernel
    dtype: str
    second: str
    threads: tuple[Any, ...]
    loops: bool
    halves: frozenset[int] = frozenset()
    parts: tuple[Built, ...] = ()

    @property
    def block(self) -> tuple[int, ...]:
        """Threads of a block, empty for the device's choice."""
        return self.kernel.block if isinstance(self.kernel, CudaKernel) else ()

    def wanted(self, args: Sequence[Any]) -> tuple[int, ...] | None:
        """Return how many threads have something to do along each axis, None where the arguments don't tell."""
        if not self.threads:
            return None if self.block else (1,)
        names = self.fn.__code__.co_varnames
        numbers = {name: arg for name, arg in zip(names, args, strict=False) if isinstance(arg, int)}
        try:
            found = [int(eval(t, {"__builtins__": {}, "min": min, "max": max}, numbers)) for t in self.threads]
        except NameError:  # a size that the kernel reads from memory
            return None
        return (max(found),) if self.loops else tuple(found)

    def element(self, number: int) -> str | None:
        """Return the element type that a parameter of a number points to, as it is stored; a bool is a byte. None for a number."""
        kind = self.kernel.params[number]
        return _element(kind, self.dtype, self.second, number in self.halves)

    @property
    def elements(self) -> frozenset[str]:
        """The element types that parameters point to."""
        return frozenset(found for i in range(len(self.kernel.params)) if (found := self.element(i)))

    @property
    def type_names(self) -> str:
        """T, and what other types it has to do with."""
        others = [self.second] * (self.second != self.dtype) + [BFLOAT16] * bool(self.halves)
        return ", ".join([self.dtype, *others])

    def number(self, kind: str) -> str:
        """Return the type of a parameter that is a number."""
        return self.dtype if kind == "Real" and self.dtype in FLOATS else {"Real": "float64", "Int": "int64"}[kind]

    def bound(
        self, module: Any, intrinsic: Callable[[CudaIntrinsic], Any] | None = None, made: dict[types.FunctionType, Any] | None = None
    ) -> types.FunctionType:
        """Return the function with numba.cuda in it.

        Args:
            module: numba.cuda, or what stands for it: its `jit(device=True)` compiles a helper.
            intrinsic: makes a function of an intrinsic.
            made: helpers that other kernels have had compiled; those of this one are added.
        """
        made = {} if made is None else made

        def meant(value: Any) -> Any:
            if value is cuda:
                return module
            if isinstance(value, CudaIntrinsic) and intrinsic:
                return intrinsic(value)
            if isinstance(value, types.ModuleType) and value.__name__ == MATH:
                return _module({name: meant(member) for name, member in vars(value).items()})
            if not isinstance(value, types.FunctionType) or value not in self.helpers:
                return value
            if value not in made:
                made[value] = module.jit(device=True)(with_meaning(value))
            return made[value]

        def with_meaning(fn: types.FunctionType) -> types.FunctionType:
            space = {name: meant(value) for name, value in fn.__globals__.items()}
            made = types.FunctionType(fn.__code__, space, fn.__name__, fn.__defaults__)
            made.__qualname__ = fn.__qualname__
            return made

        return with_meaning(self.fn)


def forms(kernel: Kernel | CudaKernel) -> Sequence[Kernel | CudaKernel]:
    """Return what runs on CUDA for a kernel, in order."""
    return INSTEAD.get(kernel, (kernel,)) if isinstance(kernel, Kernel) else (kernel,)


def _element(kind: str, dtype: str, second: str, half: bool) -> str | None:
    if kind not in POINTERS and kind != "Addr":
        return None
    named = POINTERS.get(kind, "T")  # an Addr is the place of a T, too
    found = BFLOAT16 if half else {"T": dtype, "U": second}.get(named, named)
    return "uint8" if found == "bool" else found


@functools.cache
def build(kernel: Kernel | CudaKernel, dtype: str, second: str, halves: frozenset[int] = frozenset()) -> Built:
    """Return a kernel for element types T and U, ready to be compiled.

    Args:
        kernel: one of `forms`.
        dtype: element type T.
        second: element type U.
        halves: see `Built`.
    """
    tree, space, resolver, loops = _prepared(kernel, dtype, second, halves)
    own = kernel if isinstance(kernel, CudaKernel) else None
    threads = loops or [expression(t) for t in (own.threads if own else ())]
    exec(compile(ast.Module([tree], []), inspect.getsourcefile(kernel.fn) or kernel.name, "exec"), space)
    codes = tuple(compile(ast.Expression(t), kernel.name, "eval") for t in threads)
    made = exactly(space.pop(tree.name), kernel.exact)
    return Built(made, frozenset(resolver.helpers), kernel, dtype, second, codes, bool(loops), halves)


def prepared(built: Built) -> tuple[ast.FunctionDef, dict[str, Any]]:
    """Return the text of a kernel, its loops dealt, and its globals."""
    return _prepared(built.kernel, built.dtype, built.second, built.halves)[:2]


def _prepared(
    kernel: Kernel | CudaKernel, dtype: str, second: str, halves: frozenset[int]
) -> tuple[ast.FunctionDef, dict[str, Any], _Resolver, list[ast.expr]]:
    own = kernel if isinstance(kernel, CudaKernel) else None
    tree = definition(kernel.fn, own.text if own else None)
    named = zip(tree.args.args, kernel.params, strict=True)
    arrays = {arg.arg: str(_element(kind, dtype, second, i in halves)) for i, (arg, kind) in enumerate(named) if kind in POINTERS}
    resolver = _Resolver(dtype, kernel.exact)
    space = resolver.space(kernel.fn)
    short = sum(len(fn.__code__.co_code) for fn in resolver.helpers) <= MOST_CODE and not any(map(_loops, resolver.helpers))
    asked = kernel in DEALT if own is None else not (own.block or own.dealt)
    loops = deal_loops(tree, arrays if short else {}) if asked else []
    for element in sorted(set(arrays.values())) if loops else ():
        space |= meanings(element, CudaIntrinsic)
    return tree, space, resolver, loops


def _loops(fn: types.FunctionType) -> bool:
    return any(at.opname == "FOR_ITER" or "JUMP_BACKWARD" in at.opname for at in dis.get_instructions(fn))


def definition(fn: types.FunctionType, text: str | None) -> ast.FunctionDef:
    """Return the function without decorators and annotations, with the line numbers of its file."""
    given = statements(textwrap.dedent(text or inspect.getsource(fn)))
    found = next(n for n in given if isinstance(n, ast.FunctionDef) and n.name == fn.__name__)
    if text is None:
        ast.increment_lineno(found, fn.__code__.co_firstlineno - 1)
    found.decorator_list = []
    for arg in found.args.args:
        arg.annotation = None
    return found


def _module(members: dict[str, Any]) -> types.ModuleType:
    made = types.ModuleType(MATH)
    vars(made).update({**members, "__name__": MATH})
    return made


class _Resolver:
    """What the globals of a kernel mean on CUDA, for one element type.

    Args:
        dtype: T.
        exact: whether the functions that it calls round as written, as it does.

    Attributes:
        helpers: functions that are compiled with the kernel.
    """

    def __init__(self, dtype: str, exact: bool) -> None:
        self.dtype, self.exact = dtype, exact
        self.helpers: set[types.FunctionType] = set()
        self._made: dict[int, Any] = {}

    def space(self, fn: types.FunctionType) -> dict[str, Any]:
        """Return the globals of a function, as they are on CUDA."""
        cells = dict(zip(fn.__code__.co_freevars, (c.cell_contents for c in fn.__closure__ or ()), strict=True))
        known = {**fn.__globals__, **cells}
        used = {name: self.value(known[name]) for name in (*fn.__code__.co_names, *cells) if name in known}
        return {
            "__builtins__": __builtins__, "__name__": fn.__module__, "_cuda": cuda, "_u32": np.uint32, "_i64": np.int64, **used,
        }  # fmt: skip

    def value(self, value: Any) -> Any:
        """Return what a global means."""
        if isinstance(value, PerType):
            return value.value(self.dtype)
        if value is math:  # its floor and ceil give whole numbers, as on the CPU; numba-cuda's would give float64
            return _module({**vars(math), "floor": self.value(floor), "ceil": self.value(ceil)})
        if not isinstance(value, (Helper, Intrinsic)):
            return value
        if id(value) not in self._made:
            found = meaning(value)
            self._made[id(value)] = self._function(found) if isinstance(found, (Helper, Intrinsic)) else found
        return self._made[id(value)]

    def _function(self, value: Helper | Intrinsic) -> Any:
        if isinstance(value, CudaIntrinsic):
            return value
        if isinstance(value, Intrinsic):
            raise AssertionError(f"the intrinsic {value.name} has no text on CUDA")
        made, reached = _helper(value.of(self.dtype), self.dtype, self.exact)
        self.helpers |= reached
        return made


@functools.cache
def _helper(value: Helper, dtype: str, exact: bool) -> tuple[types.FunctionType, frozenset[types.FunctionType]]:
    """Return a helper as a plain function, the same one for all kernels, and all helpers that it reaches, itself included."""
    assert value.fn is not None, f"no variant of a helper for {dtype}"
    exact |= value.exact
    resolver = _Resolver(dtype, exact)
    # `floor` and `ceil` call Python's math themselves; resolved, each would reach itself without end.
    space = value.fn.__globals__ if value in (floor, ceil) else resolver.space(value.fn)
    made = types.FunctionType(value.fn.__code__, space, value.fn.__name__, value.fn.__defaults__)
    exactly(made, exact)
    return made, frozenset({made, *resolver.helpers})
