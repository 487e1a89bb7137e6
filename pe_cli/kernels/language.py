"""The kernel language: plain Python functions over typed pointers, compiled only when they are needed.

The text of a function is translated (`kernels/compiler/translator.py`): numbers and pointers, arithmetic, comparisons, `if`, `while`,
`for` over `range` or a few values, tuples, functions of `math`, and calls of helpers, which may be handed on as arguments. What a value is
follows from what it is made of, as in numba: whole numbers are int64, numbers with a point float64. A kernel's parameters are declared by
annotation; at run time they lie in an int64 record, one word each, in order:

    ======================= ===================================================
    Ptr                     pointer to the element type T of the call
    PtrU                    pointer to a second element type U (casts)
    PtrI64 PtrI32 PtrU8
    PtrF32 PtrF64           pointer to a fixed element type
    Addr                    an address as an integer, for microkernels
    Int                     int64
    Real                    a number of type T, stored as float64 bits
    Status                  int64 pointer to the four words of an error report
    ======================= ===================================================

Inside a kernel, `T(0.5)` is a constant of the element type and `LANES` the number of T in a vector register.

An element type bfloat16 is one of memory alone: what is read through a pointer becomes float32, what is written is rounded, and
T is float32. So the text of a kernel that reaches its arrays as `x[i]` alone is good for it; what works on vectors is not.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeAlias

from pe_cli.core.lazy_dataclass import dataclass

Ptr: TypeAlias = Any
PtrU: TypeAlias = Any
PtrI64: TypeAlias = Any
PtrI32: TypeAlias = Any
PtrU8: TypeAlias = Any
PtrF32: TypeAlias = Any
PtrF64: TypeAlias = Any
Addr: TypeAlias = Any
Int: TypeAlias = Any
Real: TypeAlias = Any
Status: TypeAlias = Any

#: Element type of every pointer parameter, by annotation.
POINTERS = {
    "Ptr": "T",
    "PtrU": "U",
    "PtrI64": "int64",
    "PtrI32": "int32",
    "PtrU8": "uint8",
    "PtrF32": "float32",
    "PtrF64": "float64",
    "Status": "int64",
}
WORDS = ("Addr", "Int", "Real")

#: Every kernel by name, `module:function`. Filled by the decorator; compile workers look kernels up here.
KERNELS: dict[str, Kernel] = {}
#: Module -> maker of its kernels from their names, for kernels that are generated.
MAKERS: dict[str, Callable[[str], Kernel]] = {}
#: Texts that kernels were made of, by the name of the file that their code says it is from.
TEXTS: dict[str, str] = {}


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function of a record; see the module's table for its parameters.

    Args:
        fn: the Python function.
        params: annotation names in order.
        name: `module:function`, unique.
        exact: round after every operation as written: nothing is reassociated or contracted, so that the result does not depend on
            what stands beside it.
        each: the scalar function that a pointwise loop maps over arrays, for those who fuse such loops; those kernels are exact.
        apart: an output overlaps an input only where it is the same array, and then depends on its element.
        scalar: it reaches its arrays as `x[i]` alone, and writes no element twice, so that it is good for bfloat16.
    """

    fn: types.FunctionType
    params: tuple[str, ...]
    name: str
    exact: bool
    each: Helper | None = None
    apart: bool = False
    scalar: bool = False

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


class Routine(Kernel):
    """Machine code that many kernels share: compiled once for an element type, and called by its symbol.

    `fn(env)` emits it as LLVM IR: env is as for `Intrinsic`, without a builder, and has `entry`, the name that the function must have.
    """


class Shared(Kernel):
    """A kernel of numbers that others call like a helper, but by its symbol: compiled once for an element type, not with each of them."""

    def __call__(self, *args: Any) -> None:
        """Exist for type checkers; see `Helper`."""
        raise AssertionError("a shared kernel is called inside a compiled kernel only")


@dataclass(frozen=True, eq=False)
class Helper:
    """A function that kernels call; compiled with each of them.

    Args:
        fn: the Python function, or None when `variants` decides.
        variants: by element type, for functions with different text for float32 and float64.
        inline: put its text wherever it is called, however long it is: a loop with a call in it does not vectorise.
        exact: as of a `Kernel`: a loop that is cut elsewhere then gives the same bits, by vectors or by single elements.
        apart: what is written through one of its pointers is not touched through another: many pointers would keep loops from vectorising.
    """

    fn: types.FunctionType | None
    variants: dict[str, Helper]
    inline: bool = False
    apart: bool = False
    exact: bool = False

    def __call__(self, *args: Any) -> Any:
        """Exist for type checkers; helpers run inside kernels only."""
        raise AssertionError("a helper runs inside a compiled kernel only")

    def of(self, dtype: str) -> Helper:
        """Return the helper to compile for an element type."""
        dtype = "float32" if dtype == "bfloat16" else dtype
        return self.variants.get(dtype, self) if self.fn is None or self.variants else self


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """Instructions emitted as LLVM IR.

    Args:
        name: for symbols and messages.
        returns: `void`, `T`, `T*`, or a DTYPES name, optionally with `*`.
        args: types likewise.
        emit: `emit(env, args) -> value`, where env has builder, module, dtype (name of T) and lanes; imports llvmlite inside.
    """

    name: str
    returns: str
    args: tuple[str, ...]
    emit: Callable[[Any, list[Any]], Any]

    def __call__(self, *args: Any) -> Any:
        """Exist for type checkers; intrinsics run inside kernels only."""
        raise AssertionError("an intrinsic runs inside a compiled kernel only")


@dataclass(frozen=True, eq=False)
class PerType:
    """A global whose value depends on the element type of the kernel that reads it."""

    name: str
    value: Callable[[str], Any]

    def __call__(self, value: Any) -> Any:
        """Exist for type checkers; `T(x)` is compiled away."""
        raise AssertionError("T() runs inside a compiled kernel only")


def _lanes(dtype: str) -> int:
    from pe_cli.core.types import DTYPES
    from pe_cli.kernels.compiler.target import vector_bytes

    return vector_bytes() // DTYPES[dtype]


def _cast(dtype: str) -> Any:
    import numpy

    return getattr(numpy, {"bool": "uint8", "bfloat16": "float32"}.get(dtype, dtype))


#: The element type of the kernel: `T(0.5)` is a constant of it.
T: Any = PerType("T", _cast)
#: Elements of T in a vector register, a compile-time constant.
LANES: Any = PerType("LANES", _lanes)


@functools.cache
def kernel_code(text: str) -> types.CodeType:
    """Return the code of a text that makes kernel functions, to run with `exec`; compilers of kernels find the text again by its name."""
    name = f"<kernel text {len(TEXTS)}>"
    TEXTS[name] = text
    return compile(text, name, "exec", dont_inherit=True)


def parameter_kinds(fn: types.FunctionType) -> tuple[str, ...]:
    """Return the annotation names of a kernel's parameters, in order."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    found = tuple(str(fn.__annotations__.get(name, "")) for name in names)
    for name, kind in zip(names, found, strict=True):
        assert kind in POINTERS or kind in WORDS, (
            f"{fn.__qualname__}: parameter {name} needs a kernel annotation, has {kind!r}"
        )
    return found


def make_kernel(
    fn: Any, name: str, *, exact: bool = False, each: Helper | None = None, apart: bool = False, scalar: bool = False
) -> Kernel:
    """Register a function that was built by another (a pointwise loop, for instance) as a kernel.

    Args:
        fn: a function with kernel annotations.
        name: `module:function`; the module, once imported, must register it again under this name.
        exact: see `Kernel`.
        each: see `Kernel`.
        apart: see `Kernel`.
        scalar: see `Kernel`; so are those with `each`.
    """
    assert name not in KERNELS, f"kernel {name} is defined twice"
    KERNELS[name] = made = Kernel(fn, parameter_kinds(fn), name, exact or each is not None, each, apart, scalar or each is not None)
    return made


def kernel(fn: Any = None, *, exact: bool = False, each: Helper | None = None, scalar: bool = False) -> Any:
    """Mark a function as a kernel: `@kernel` or `@kernel(exact=True)`; see `Kernel`."""
    if fn is None:
        return lambda f: kernel(f, exact=exact, each=each, scalar=scalar)
    return make_kernel(fn, f"{fn.__module__}:{fn.__qualname__}", exact=exact, each=each, scalar=scalar)


def routine(fn: Any) -> Routine:
    """Mark a function that emits a routine; see `Routine`."""
    name = f"{fn.__module__}:{fn.__qualname__}"
    assert name not in KERNELS, f"kernel {name} is defined twice"
    KERNELS[name] = made = Routine(fn, (), name, False)
    return made


def shared(fn: Any) -> Shared:
    """Mark a function that kernels call by its symbol; see `Shared`. Its parameters are addresses and int64; it returns nothing."""
    name = f"{fn.__module__}:{fn.__qualname__}"
    assert name not in KERNELS, f"kernel {name} is defined twice"
    KERNELS[name] = made = Shared(fn, ("Int",) * fn.__code__.co_argcount, name, False)
    return made


def helper(fn: Any = None, *, inline: bool = False, exact: bool = False) -> Any:
    """Mark a function that kernels call: `@helper`, or with facts of `Helper`."""
    if fn is None:
        return lambda f: helper(f, inline=inline, exact=exact)
    return Helper(fn, {}, inline, exact=exact)


def apart(fn: Any) -> Helper:
    """Mark a function that kernels call, whose pointers lead to different places; see `Helper`."""
    return Helper(fn, {}, apart=True)


def helper_by_type(**variants: Helper) -> Helper:
    """Make a helper that differs by element type: `helper_by_type(float32=exp32, float64=exp64)`."""
    return Helper(None, variants)


def intrinsic(returns: str, *args: str, name: str | None = None) -> Callable[[Any], Any]:
    """Mark a function `emit(env, args)` as an intrinsic with these types."""
    return lambda emit: Intrinsic(name or emit.__qualname__, returns, args, emit)


# --- pointers ---------------------------------------------------------------------------------------------------------


def _make_cast(returns: str, name: str) -> Any:
    def emit(env: Any, args: list[Any]) -> Any:
        return env.builder.inttoptr(args[0], env.type_of(returns))

    return Intrinsic(name, returns, ("int64",), emit)


#: `pointer(address)`: a typed pointer to T; the others to fixed types.
pointer: Any = _make_cast("T*", "pointer")
pointer_i64: Any = _make_cast("int64*", "pointer_i64")
pointer_i32: Any = _make_cast("int32*", "pointer_i32")
pointer_f32: Any = _make_cast("float32*", "pointer_f32")
pointer_f64: Any = _make_cast("float64*", "pointer_f64")


@intrinsic("int64", "T*")
def address(env: Any, args: list[Any]) -> Any:
    """Return the address of a T pointer as an integer, in bytes."""
    from llvmlite import ir

    return env.builder.ptrtoint(args[0], ir.IntType(64))


def _make_size() -> Any:
    from pe_cli.core.types import DTYPES

    return PerType("SIZE", lambda dtype: DTYPES[dtype])


#: Bytes of one T, a compile-time constant.
SIZE: Any = _make_size()


def _unit(dtype: str) -> int:
    from pe_cli.kernels.compiler.target import halves_cost_half

    return _lanes(dtype) // 2 if halves_cost_half() else _lanes(dtype)


#: Columns that the width of a microkernel's panel is counted in: a vector register, or half of one where that takes half of the time.
UNIT: Any = PerType("UNIT", _unit)
