"""From a kernel to machine code: numba's front end and LLVM, one object file per kernel. Only this module and `front_end` import numba."""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic as numba_intrinsic

from pe_cli.core.types import BFLOAT16, DTYPES, FLOATS, computed
from pe_cli.kernels.compiler.bounds_check import CHECKED, checking
from pe_cli.kernels.compiler.front_end import Pipeline, front_end_only
from pe_cli.kernels.compiler.garbage_collection import paused
from pe_cli.kernels.compiler.instance import Instance, symbol
from pe_cli.kernels.compiler.target import vector_bytes
from pe_cli.kernels.cpu.bfloat16_pointers import ROUNDED
from pe_cli.kernels.language import POINTERS, Helper, Intrinsic, Kernel, PerType, Routine, Shared

#: numba's types; it has no stubs, and makes some of its names at run time.
nb: Any = numba_types
#: Lets sums reassociate (so that loops vectorise) but keeps NaN and infinity meaningful.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
SCALARS = {
    "float32": nb.float32,
    "float64": nb.float64,
    "int64": nb.int64,
    "int32": nb.int32,
    "uint8": nb.uint8,
    "bool": nb.uint8,
    BFLOAT16: nb.float32,
}


class Emit:
    """What an intrinsic's `emit` works with: builder, module, dtype, lanes and types."""

    def __init__(self, context: Any, builder: Any, dtype: str) -> None:
        self.context = context
        self.builder = builder
        self.module = builder.module
        self.dtype = dtype
        self.lanes = vector_bytes() // DTYPES[dtype]

    def type_of(self, name: str) -> Any:
        """Return the LLVM type of `T`, `float32*`, ..."""
        return self.context.get_value_type(_numba_type(name, self.dtype, self.dtype))

    @property
    def element(self) -> Any:
        """LLVM type of T."""
        return self.type_of("T")

    def function(self, name: str, returns: Any, args: list[Any]) -> Any:
        """Return the declaration of an external function or LLVM intrinsic, made on first use."""
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(returns, args), name)


def _numba_type(name: str, dtype: str, second: str) -> Any:
    if name.endswith("*"):
        return _pointer_to(name[:-1], dtype, second)
    if name == "void":
        return nb.void
    return SCALARS[{"T": dtype, "U": second}.get(name, name)]


def _pointer_to(name: str, dtype: str, second: str) -> Any:
    if {"T": dtype, "U": second}.get(name, name) == BFLOAT16:
        return ROUNDED
    return nb.CPointer(_numba_type(name, dtype, second))


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


class Resolver:
    """Turns functions of the kernel language into what numba compiles, for one pair of element types.

    It lives as long as the process: numba types and lowers a helper once for all kernels that call it.
    """

    def __init__(self, dtype: str, second: str, exact: bool) -> None:
        self.dtype = dtype
        self.second = second
        self.options: dict[str, Any] = {
            "nogil": True,
            "error_model": "numpy",
            "fastmath": False if exact else FASTMATH,
            "no_cpython_wrapper": True,
            "no_cfunc_wrapper": True,
            "boundscheck": False,
            "pipeline_class": Pipeline,
        }
        #: By identity: a value of the kernel language, which lives as long as its number here, and what it became.
        self._made: dict[int, tuple[Any, Any]] = {}

    def function(self, fn: types.FunctionType) -> types.FunctionType:
        """Return a copy of fn whose globals and closure hold compiled helpers and intrinsics."""
        names = fn.__globals__
        found = {name: self.value(names[name]) for name in fn.__code__.co_names if name in names}
        cells = tuple(types.CellType(self.value(cell.cell_contents)) for cell in fn.__closure__ or ())
        made = types.FunctionType(fn.__code__, {**names, **found}, fn.__name__, fn.__defaults__, cells)
        made.__module__ = fn.__module__
        made.__qualname__ = fn.__qualname__
        return made

    def value(self, value: Any) -> Any:
        """Return what a global of the kernel language means to numba."""
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, Helper):
            chosen = value.of(self.dtype)
            assert chosen.fn is not None, f"no variant of a helper for {self.dtype}"
            # co_names holds attributes too: a helper `exp` that calls `math.exp` is no recursion
            self._made[id(value)] = value, value
            options = {**self.options, "forceinline": chosen.inline}
            if chosen.exact:
                options["fastmath"] = False
            made: Any = _plain(numba.njit(**options)(self.function(chosen.fn)))
        elif isinstance(value, Intrinsic):
            made = self.intrinsic(value)
        elif isinstance(value, Shared):
            made = self.intrinsic(_called(value))
        elif isinstance(value, PerType):
            made = value.value(self.dtype)
        else:
            return value
        self._made[id(value)] = value, made
        return made

    def apart(self, fn: types.FunctionType, seen: set[int] | None = None) -> list[str]:
        """Return parts of the symbols of the helpers that a function reaches whose pointers don't overlap."""
        seen = set() if seen is None else seen
        cells = [cell.cell_contents for cell in fn.__closure__ or ()]
        reached = [*cells, *(fn.__globals__[name] for name in fn.__code__.co_names if name in fn.__globals__)]
        found = []
        for value in reached:
            if isinstance(value, Helper) and id(value) not in seen:
                seen.add(id(value))
                chosen = value.of(self.dtype)
                assert chosen.fn is not None, f"no variant of a helper for {self.dtype}"
                if chosen.apart:
                    path = [*chosen.fn.__module__.split("."), chosen.fn.__qualname__]
                    found.append("".join(f"{len(part)}{part}" for part in path))
                found += self.apart(chosen.fn, seen)
        return found

    def intrinsic(self, value: Intrinsic) -> Any:
        """Return a numba intrinsic that calls `value.emit`."""
        returns = _numba_type(value.returns, self.dtype, self.second)
        wanted = [_numba_type(a, self.dtype, self.second) for a in value.args]
        dtype = computed(self.dtype)
        names = ", ".join(f"a{i}" for i in range(len(wanted)))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out = value.emit(Emit(context, builder, dtype), list(args))
            return context.get_dummy_value() if value.returns == "void" else out

        def typer(*_: Any) -> Any:
            return returns(*wanted), codegen

        space: dict[str, Any] = {"typer": typer}
        exec(
            f"def {_symbol(value.name)}(context, {names}):\n    return typer()\n", space
        )  # our own text: names of ours only
        return numba_intrinsic(space[_symbol(value.name)])


def _called(kernel: Shared) -> Intrinsic:
    """Return the call of a shared kernel: its arguments are put into a record on the stack."""

    def emit(env: Any, args: list[Any]) -> None:
        word = ir.IntType(64)
        record = cgutils.alloca_once(env.builder, word, size=len(args))
        for i, arg in enumerate(args):
            env.builder.store(arg, env.builder.gep(record, [ir.Constant(word, i)]))
        entry = env.function(symbol(Instance(kernel, env.dtype)), ir.VoidType(), [record.type])
        env.builder.call(entry, [record])

    return Intrinsic(kernel.name, "void", ("int64",) * len(kernel.params), emit)


def _plain(dispatcher: Any) -> Any:
    """Let a helper be compiled once for int64, not again for every constant that some call passes."""
    original = dispatcher.get_call_template

    def get_call_template(args: Any, keywords: Any) -> Any:
        return original(tuple(nb.unliteral(a) for a in args), {k: nb.unliteral(v) for k, v in keywords.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _symbol(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _wrapper(entry: str, callee: str, kernel: Kernel, dtype: str, second: str) -> str:
    """Return LLVM text of `void entry(ptr record)`, which loads the arguments and calls numba's function."""
    short = {"float32": "float", "float64": "double"}
    real = short.get(computed(dtype), "double")
    body, args = [], []
    for i, kind in enumerate(kernel.params):
        body.append(f"  %p{i} = getelementptr i64, ptr %record, i64 {i}")
        body.append(f"  %w{i} = load i64, ptr %p{i}, align 8")
        if kind in POINTERS:
            body.append(f"  %a{i} = inttoptr i64 %w{i} to ptr")
            args.append(("ptr", f"%a{i}"))
        elif kind == "Real":
            body.append(f"  %d{i} = bitcast i64 %w{i} to double")
            if real == "float":
                body.append(f"  %a{i} = fptrunc double %d{i} to float")
            args.append((real, f"%a{i}" if real == "float" else f"%d{i}"))
        else:
            args.append(("i64", f"%w{i}"))
    types_ = ", ".join(["ptr", "ptr", *(t for t, _ in args)])
    values = ", ".join(["ptr %ret", "ptr %exc", *(f"{t} {v}" for t, v in args)])
    lines = "\n".join(body)
    return (
        f'declare i32 @"{callee}"({types_})\n'
        f'define void @"{entry}"(ptr %record) {{\n'
        "  %ret = alloca ptr, align 8\n  %exc = alloca ptr, align 8\n"
        "  store ptr null, ptr %ret, align 8\n  store ptr null, ptr %exc, align 8\n"
        f'{lines}\n  %rc = call i32 @"{callee}"({values})\n  ret void\n}}\n'
    )


@functools.cache
def _resolver(dtype: str, second: str, exact: bool) -> Resolver:
    return Resolver(dtype, second, exact)


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
            return _object(llvm.parse_assembly(str(env.module)), entry, written=True)
        return _object(_module(kernel, dtype, second, entry), entry)


def _module(kernel: Kernel, dtype: str, second: str, entry: str) -> Any:
    """Return the LLVM module of a kernel and of all that it calls."""
    resolver = _resolver(dtype, second, kernel.exact)
    args = []
    for kind in kernel.params:
        if kind in POINTERS:
            args.append(_pointer_to(POINTERS[kind], dtype, second))
        elif kind == "Real":
            args.append(SCALARS[dtype] if computed(dtype) in FLOATS else nb.float64)
        else:
            args.append(nb.int64)
    dispatcher = numba.njit(**resolver.options)(resolver.function(kernel.fn))
    signature = nb.void(*args)
    with front_end_only():
        dispatcher.compile(signature)
    result = dispatcher.overloads[signature.args]
    text, symbol = result.library.get_llvm_str(), result.fndesc.llvm_func_name
    module = llvm.parse_assembly(_apart(text, [*resolver.apart(kernel.fn), *([symbol] if kernel.apart else [])]))
    module.link_in(llvm.parse_assembly(_wrapper(entry, symbol, kernel, dtype, second)))
    return module


def _object(module: Any, entry: str, written: bool = False) -> bytes:
    """Return the machine code of a module, of which only entry is visible; written: as it should be, with nothing to optimise."""
    for item in [*module.functions, *module.global_variables]:
        if not item.is_declaration and item.name != entry:
            item.linkage = "internal"
    module.verify()
    if CHECKED:
        module = llvm.parse_assembly(checking(str(module), entry if not written else ""))
    if not written:
        _optimise(module)
    return bytes(_machine().emit_object(module))


def _apart(text: str, symbols: list[str]) -> str:
    """Return LLVM text whose functions of these symbols, or parts of symbols, promise that their pointers don't overlap."""
    lines = text.splitlines()
    for name in symbols:
        found = [i for i, line in enumerate(lines) if line.startswith("define") and name in line]
        assert found, f"no function {name} to keep apart"
        for i in found:
            lines[i] = re.sub(r"(\*|\bptr)( %\"?arg\.)", r"\1 noalias\2", lines[i])
    return "\n".join(lines)


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

        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=cpu_name(), features=features(), opt=3, reloc="static", codemodel="jitdefault"
        )
        _MACHINE.append(machine)
    return _MACHINE[0]
