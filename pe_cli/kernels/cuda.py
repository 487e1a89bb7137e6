"""The CUDA side of the kernel language: what of it runs on a GPU, and the functions that numba-cuda compiles for it.

A kernel of the CPU runs on CUDA from the same text, in one of two ways:

    as it is    one thread does everything: right for kernels that compute one number (schedules, counters)
    `deal`      the outermost loops are dealt over all threads of the grid: thread t does iterations t, t + threads, ...

`deal` is a promise that an iteration of an outermost loop reads nothing that another writes, except what the iteration
of the same number wrote in an earlier loop. Where the CPU's text does not fit, `on_cuda(kernel)` gives another with the
same parameters, or several that run one after the other; ops whose calls differ altogether write `cuda_kernel`
functions. Both are dealt, unless they say the shape of a block: those are taken as they are and see `cuda` (threadIdx,
shared memory, syncthreads).

Nothing here imports numba: `build` gets the module. One text serves the GPU and numba's simulator.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pe_cli.kernels.cuda_math import meaning
from pe_cli.kernels.lang import Helper, Intrinsic, Kernel, PerType, parameter_kinds


class _Module:
    """Stands for numba.cuda in the globals of kernels until they are built."""


cuda: Any = _Module()


@dataclass(frozen=True)
class Tuned:
    """A compile-time constant that is smaller in the simulator, whose threads are slow."""

    device: int
    simulated: int


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel that exists on CUDA only.

    Args:
        fn: the Python function, with the annotations of `lang`.
        params: annotation names in order.
        name: `module:function`.
        text: source, for functions made by `exec`.
        block: threads of a block along x (and y, z) of a kernel that works by blocks; empty where the outermost loops are dealt.
        threads: how many threads have something to do along each, as expressions of the integer parameters; empty for
            a whole grid.
    """

    fn: types.FunctionType
    params: tuple[str, ...]
    name: str
    text: str | None = None
    block: tuple[Tuned | int, ...] = ()
    threads: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<CUDA kernel {self.name}>"


#: Kernels of the CPU whose outermost loops may be dealt.
DEALT: set[Kernel] = set()
#: Kernels of the CPU -> what runs on CUDA instead, in order.
INSTEAD: dict[Kernel, list[CudaKernel]] = {}


def cuda_kernel(
    fn: Any = None, *, text: str | None = None, block: Sequence[Tuned | int] = (), threads: Sequence[str] = ()
) -> Any:
    """Make a kernel for CUDA of a function: `@cuda_kernel`, whose outermost loops are dealt, or `@cuda_kernel(block=...)`.

    Args:
        fn: the function.
        text: see `CudaKernel`.
        block: see `CudaKernel`; the function is then taken as it is: it sees `cuda`.
        threads: see `CudaKernel`.
    """
    if fn is None:
        return lambda f: cuda_kernel(f, text=text, block=block, threads=threads)
    name = f"{fn.__module__}:{fn.__qualname__}"
    return CudaKernel(fn, parameter_kinds(fn), name, text, tuple(block), tuple(threads))


def deal(*kernels: Kernel) -> None:
    """Let kernels deal their outermost loops over the threads; see the module for what they promise."""
    DEALT.update(kernels)


def on_cuda(kernel: Kernel, **how: Any) -> Callable[[Any], CudaKernel]:
    """Give a kernel another text on CUDA, with the same parameters; of two, the second runs when the first is done.

    Args:
        kernel: of the CPU.
        how: keywords of `cuda_kernel`.
    """

    def make(fn: Any) -> CudaKernel:
        made: CudaKernel = cuda_kernel(fn, **how)
        assert made.params == kernel.params, f"{kernel}: other parameters on CUDA, {made.params}"
        INSTEAD.setdefault(kernel, []).append(made)
        return made

    return make


def same_on_cuda(kernel: Kernel, other: Kernel) -> None:
    """Let a kernel be on CUDA what another of the same parameters is."""
    assert kernel.params == other.params
    INSTEAD[kernel] = INSTEAD[other]


# --- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A kernel for one pair of element types, before numba-cuda compiles it.

    Args:
        fn: what to give to `cuda.jit`.
        names: of the parameters.
        block: threads of a block, empty for the device's choice.
        threads: how many have something to do along each axis, as expressions; `loops` where the largest counts.
        loops: whether the outermost loops are dealt.
    """

    fn: types.FunctionType
    names: tuple[str, ...]
    block: tuple[int, ...]
    threads: tuple[Any, ...]
    loops: bool

    def wanted(self, args: Sequence[Any]) -> tuple[int, ...] | None:
        """Return how many threads have something to do along each axis, None where the arguments don't tell."""
        if not self.threads:
            return None if self.block else (1,)
        numbers = {name: arg for name, arg in zip(self.names, args, strict=True) if isinstance(arg, int)}
        try:
            found = [int(eval(t, {"__builtins__": {}, "min": min, "max": max}, numbers)) for t in self.threads]
        except NameError:  # a size that the kernel reads from memory
            return None
        return (max(found),) if self.loops else tuple(found)


def forms(kernel: Kernel | CudaKernel) -> Sequence[Kernel | CudaKernel]:
    """Return what runs on CUDA for a kernel, in order."""
    return INSTEAD.get(kernel, (kernel,)) if isinstance(kernel, Kernel) else (kernel,)


def build(kernel: Kernel | CudaKernel, dtype: str, second: str, module: Any, simulated: bool) -> Built:
    """Return the function of a kernel for element types T and U.

    Args:
        kernel: one of `forms`.
        dtype: element type T.
        second: element type U.
        module: numba.cuda.
        simulated: whether that is the simulator.
    """
    fn = kernel.fn
    own = kernel if isinstance(kernel, CudaKernel) else None
    tree = _definition(fn, own.text if own else None)
    loops = _deal(tree) if (kernel in DEALT if own is None else not own.block) else []
    threads = loops or [ast.parse(t, mode="eval").body for t in (own.threads if own else ())]
    space = _Resolver(dtype, module, simulated).space(fn)
    exec(compile(ast.Module([tree], []), inspect.getsourcefile(fn) or kernel.name, "exec"), space)
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    codes = tuple(compile(ast.Expression(t), kernel.name, "eval") for t in threads)
    sizes = (t if isinstance(t, int) else t.simulated if simulated else t.device for t in (own.block if own else ()))
    return Built(space[fn.__name__], names, tuple(sizes), codes, bool(loops))


def _definition(fn: types.FunctionType, text: str | None) -> ast.FunctionDef:
    """Return the function without decorators and annotations, with the line numbers of its file."""
    tree = ast.parse(textwrap.dedent(text or inspect.getsource(fn)))
    found = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == fn.__name__)
    if text is None:
        ast.increment_lineno(found, fn.__code__.co_firstlineno - 1)
    found.decorator_list = []
    for arg in found.args.args:
        arg.annotation = None
    return found


def _deal(tree: ast.FunctionDef) -> list[ast.expr]:
    """Make the outermost loops take every `_dealt_stride`-th iteration from `_dealt_first`; return their numbers of iterations."""
    bounds: list[ast.expr] = []

    def walk(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.For):
                call = node.iter
                assert isinstance(call, ast.Call), f"{tree.name}: an outermost loop must be over a range"
                assert len(call.args) < 3, f"{tree.name}: an outermost loop must have steps of 1"
                low = call.args[0] if len(call.args) == 2 else None
                high = call.args[-1]
                bounds.append(_expression("h - l", h=high, l=low) if low else high)
                first = _expression("l + _dealt_first", l=low) if low else ast.Name("_dealt_first", ast.Load())
                call.args = [first, high, ast.Name("_dealt_stride", ast.Load())]
            elif isinstance(node, ast.If):
                walk(node.body)
                walk(node.orelse)

    walk(tree.body)
    start = ast.parse("_dealt_first = _cuda.grid(1)\n_dealt_stride = _cuda.gridsize(1)").body
    for node in start:
        ast.increment_lineno(node, tree.lineno - 1)
    skip = 1 if ast.get_docstring(tree) else 0
    tree.body[skip:skip] = start
    ast.fix_missing_locations(tree)
    return [ast.fix_missing_locations(b) for b in bounds]


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parts.get(node.id, node)

    made: ast.expr = Put().visit(ast.parse(text, mode="eval").body)
    return made


class _Resolver:
    """What the globals of a kernel mean on CUDA, for one element type."""

    def __init__(self, dtype: str, module: Any, simulated: bool) -> None:
        self.dtype = dtype
        self.module = module
        self.simulated = simulated
        self._made: dict[int, Any] = {}

    def space(self, fn: types.FunctionType) -> dict[str, Any]:
        """Return the globals of a function, with helpers compiled and the module in place."""
        cells = dict(zip(fn.__code__.co_freevars, (c.cell_contents for c in fn.__closure__ or ()), strict=True))
        known = {**fn.__globals__, **cells}
        used = {name: self.value(known[name]) for name in (*fn.__code__.co_names, *cells) if name in known}
        return {"__builtins__": __builtins__, "__name__": fn.__module__, "_cuda": self.module, **used}

    def value(self, value: Any) -> Any:
        """Return what a global means."""
        if isinstance(value, Tuned):
            return value.simulated if self.simulated else value.device
        if isinstance(value, PerType):
            return value.value(self.dtype)
        if value is cuda:
            return self.module
        if not isinstance(value, (Helper, Intrinsic)):
            return value
        if id(value) not in self._made:
            found = meaning(value, self.simulated)
            self._made[id(value)] = self._helper(found) if isinstance(found, (Helper, Intrinsic)) else found
        return self._made[id(value)]

    def _helper(self, value: Helper | Intrinsic) -> Any:
        if isinstance(value, Intrinsic):
            raise AssertionError(f"the intrinsic {value.name} has no text on CUDA")
        found = value.of(self.dtype)
        assert found.fn is not None, f"no variant of a helper for {self.dtype}"
        made = types.FunctionType(found.fn.__code__, self.space(found.fn), found.fn.__name__, found.fn.__defaults__)
        return made if self.simulated else self.module.jit(device=True)(made)
