"""Kernels that are generated: several pointwise functions in one loop, their intermediate values in registers.

A kernel is named by its text, from which any process makes it again:

    pe_cli.ops.fused.fusion_kernel:fr>elementwise.add(0,1);activation.relu(2)>3

says that values 0 and 1 are read from arrays of kinds f and r, value 2 is their sum, value 3 relu of that, and value 3 is written. The
numbers that functions take last are arguments, so that one kernel serves all of them. Functions round as their own loops do (`exact`),
so that the results are the same bits.
"""

from __future__ import annotations

import dis
import functools
import re
import types
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.compiler.worker_processes import load
from pe_cli.kernels.language import KERNELS, MAKERS, Helper, Kernel, kernel_code, make_kernel

PACKAGE = "pe_cli.ops."
PREFIX = f"{__name__}:"
#: How an array is read: at every element, a mask at every element, one row again and again, one element per row, or one for all.
FULL, MASK, ROW, COLUMN, ONE = "fmrcs"
_PLACES = {FULL: "[b + i]", MASK: "[b + i]", ROW: "[i]", COLUMN: "[r]", ONE: "[0]"}
_STEP = re.compile(r"([\w.]+)\(([\d,]*)\)")


@dataclass(frozen=True)
class Step:
    """A value: the function of a kernel's `each` applied to earlier ones.

    Args:
        kernel: named `pe_cli.ops.module:function`.
        args: numbers of values.
    """

    kernel: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Text:
    """What a generated kernel does.

    Args:
        kinds: of the arrays that are read, a letter each; their elements are values 0, 1, ...
        steps: the values after those.
        outs: values that are written, in order.
    """

    kinds: str
    steps: tuple[Step, ...]
    outs: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the kernel."""
        steps = ";".join(f"{_short(s.kernel)}({','.join(map(str, s.args))})" for s in self.steps)
        return f"{PREFIX}{self.kinds}>{steps}>{','.join(map(str, self.outs))}"

    @staticmethod
    def parse(name: str) -> Text:
        """Return the text that a kernel's name is."""
        kinds, steps, outs = name.removeprefix(PREFIX).split(">")
        found = []
        for module, args in _STEP.findall(steps):
            path, _, function = module.rpartition(".")
            found.append(Step(f"{PACKAGE}{path}:{function}", _numbers(args)))
        return Text(kinds, tuple(found), _numbers(outs))


def _short(kernel: str) -> str:
    assert kernel.startswith(PACKAGE), f"{kernel} is no op's kernel"
    return kernel.removeprefix(PACKAGE).replace(":", ".")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def numbers_of(function: Helper | None, args: int) -> int:
    """Return how many numbers a function takes after its arguments."""
    assert function is not None
    assert function.fn is not None
    return function.fn.__code__.co_argcount - args


@functools.cache
def is_long(kernel: str) -> bool:
    """Return whether a kernel's function is a polynomial or a call of the C library, which fills the registers by itself.

    Two of them in one loop take longer than in two: LLVM no longer works on several vectors side by side.
    """
    function = load(kernel).each
    assert function is not None
    assert function.fn is not None
    code = function.fn.__code__
    reached = (function.fn.__globals__.get(name) for name in code.co_names)
    # The operator ** has no helper to be found by, but calls the C library as well.
    return any(isinstance(v, (Helper, types.ModuleType)) for v in reached) or any(
        i.argrepr == "**" for i in dis.get_instructions(code)
    )


@functools.cache
def fused_kernel(text: Text) -> Kernel:
    """Return the kernel `(arrays read, arrays written, rows, n, numbers)`; see the module."""
    return KERNELS.get(text.name) or _made(text)


def _made(text: Text) -> Kernel:
    space, steps, numbers = computed(text)
    parameters = [*arrays(text), "rows: Int", "n: Int", *(f"{a}: Real" for a in numbers)]
    lines = ["from __future__ import annotations", f"def loop({', '.join(parameters)}):"]
    lines += [f"    {line}" for line in _loads(text, ONE)]
    lines += ["    for r in range(rows):", "        b = r * n", *(f"        {line}" for line in _loads(text, COLUMN))]
    stores = [f"y{k}[b + i] = v{value}" for k, value in enumerate(text.outs)]
    lines += ["        for i in range(n):"]
    lines += [f"            {line}" for line in [*_loads(text, FULL + MASK + ROW), *steps, *stores]]
    exec(kernel_code("\n".join(lines)), space)  # our own text: its names are numbers
    return make_kernel(space["loop"], text.name, exact=True, apart=True)


def computed(text: Text) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the functions of a kernel by name, the lines that compute values v0, v1, ... behind those read, and the names of numbers."""
    # Sorted: a set's order differs from process to process, but the same name has to give the same source.
    functions = sorted({s.kernel for s in text.steps})
    space: dict[str, Any] = {f"f{k}": load(name).each for k, name in enumerate(functions)}
    numbers: list[str] = []
    steps: list[str] = []
    for k, step in enumerate(text.steps, len(text.kinds)):
        name = f"f{functions.index(step.kernel)}"
        own = [f"a{len(numbers) + i}" for i in range(numbers_of(space[name], len(step.args)))]
        numbers += own
        steps.append(f"v{k} = {name}({', '.join([*(f'v{a}' for a in step.args), *own])})")
    return space, steps, numbers


def arrays(text: Text) -> list[str]:
    """Return the parameters for what is read and what is written."""
    reads = [f"x{k}: {'PtrU8' if kind == MASK else 'Ptr'}" for k, kind in enumerate(text.kinds)]
    return [*reads, *(f"y{k}: Ptr" for k in range(len(text.outs)))]


def _loads(text: Text, kinds: str) -> list[str]:
    """Return the lines that read arrays of some kinds, each element once: an output may be the same array."""
    return [f"v{k} = x{k}{_PLACES[kind]}" for k, kind in enumerate(text.kinds) if kind in kinds]


def _from_name(name: str) -> Kernel:
    return fused_kernel(Text.parse(name))


MAKERS[__name__] = _from_name
