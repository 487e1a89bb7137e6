"""A kernel's LLVM module: its entry, its function, and the helpers that it reaches, each for the kinds of its arguments."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import BFLOAT16, DTYPES, FLOATS, computed
from pe_cli.kernels.compiler.arithmetic import Value, cast
from pe_cli.kernels.compiler.builder import Builder
from pe_cli.kernels.compiler.expressions import Static
from pe_cli.kernels.compiler.instance import Instance, symbol
from pe_cli.kernels.compiler.target import vector_bytes
from pe_cli.kernels.compiler.translator import Translator
from pe_cli.kernels.compiler.value_kinds import Kind, llvm_type
from pe_cli.kernels.language import POINTERS, Helper, Kernel, Shared

#: Lets sums reassociate (so that loops vectorise) but keeps NaN and infinity meaningful.
FASTMATH = ("reassoc", "contract", "nsz", "arcp")
_FAST = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"))
#: What values of an element type are outside of memory.
_COMPUTED = {"bool": "uint8", BFLOAT16: "float32"}


class Emit:
    """What an intrinsic's `emit` works with: builder, module, dtype, lanes and types."""

    def __init__(self, unit: Unit, builder: Any) -> None:
        self.unit = unit
        self.builder = builder
        self.module = builder.module
        self.dtype = computed(unit.dtype)
        self.lanes = vector_bytes() // DTYPES[self.dtype]

    def type_of(self, name: str) -> Any:
        """Return the LLVM type of `T`, `float32*`, ..."""
        return llvm_type(self.unit.kind_of(name))

    @property
    def element(self) -> Any:
        """LLVM type of T."""
        return self.type_of("T")

    def function(self, name: str, returns: Any, args: list[Any]) -> Any:
        """Return the declaration of an external function or LLVM intrinsic, made on first use."""
        return self.builder.declared(name, returns, args)


class Unit:
    """A module that is written.

    Args:
        dtype, second: element types T and U.
    """

    def __init__(self, dtype: str, second: str) -> None:
        self.dtype = dtype
        self.second = second
        self.module = ir.Module("kernel")
        self.module.triple = llvm.get_default_triple()
        self._helpers: dict[Any, tuple[Any, Kind] | None] = {}

    def kind_of(self, name: str) -> Kind:
        """Return the kind that `T`, `float32*`, `void`, ... are here."""
        star = "*" if name.endswith("*") else ""
        plain = name.removesuffix("*")
        if plain == "void":
            return None
        plain = {"T": self.dtype, "U": self.second}.get(plain, plain)
        return (plain if star and plain == BFLOAT16 else _COMPUTED.get(plain, plain)) + star

    def emit(self, builder: Any) -> Emit:
        """Return what an intrinsic works with."""
        return Emit(self, builder)

    def entry(self, kernel: Shared) -> str:
        """Return the symbol of a shared kernel."""
        return symbol(Instance(kernel, computed(self.dtype)))

    def helper(self, target: Helper, kinds: list[Any]) -> tuple[Any, Kind]:
        """Return the function of a helper for the kinds of its arguments, or what of Python's they are, and the kind of what it returns.

        Raises:
            PeError: it calls itself.
        """
        chosen = target.of(self.dtype)
        assert chosen.fn is not None, f"no variant of a helper for {self.dtype}"
        key = id(chosen), tuple(id(k.value) if isinstance(k, Static) else k for k in kinds)
        if key not in self._helpers:
            # Stands there while the helper is written, so that a helper that reaches itself is noticed.
            self._helpers[key] = None
            name = f"{chosen.fn.__module__}.{chosen.fn.__qualname__}.{len(self._helpers)}"
            self._helpers[key] = self._function(chosen, name, kinds)
        found = self._helpers[key]
        if found is None:
            raise PeError(f"helper {chosen.fn.__qualname__} of kernels calls itself", code=ExitCode.BUG)
        return found

    def _function(self, target: Helper | Kernel, name: str, kinds: list[Any]) -> tuple[Any, Kind]:
        fn = target.fn
        assert fn is not None
        translator = Translator(self, fn, kinds)
        kinds = list(translator.arguments.values())
        returns = translator.find_kind()
        function = ir.Function(self.module, ir.FunctionType(llvm_type(returns), [llvm_type(k) for k in kinds]), name)
        function.linkage = "internal"
        if isinstance(target, Helper) and target.inline:
            function.attributes.add("alwaysinline")
        for argument, kind in zip(function.args, kinds, strict=True):
            if target.apart and str(kind).endswith("*"):
                argument.add_attribute("noalias")
        translator.write(function, returns)
        if not (self.exact or target.exact):
            _loosen(function)
        return function, returns

    def kernel(self, kernel: Kernel, entry: str) -> str:
        """Return the LLVM text of a kernel with `void entry(ptr record)`, which takes the arguments out of their record."""
        self.exact = kernel.exact
        kinds = [self._parameter(kind) for kind in kernel.params]
        function, _ = self._function(kernel, kernel.name, kinds)
        word = ir.IntType(64)
        outer = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [ir.PointerType(word)]), entry)
        b = Builder(outer)
        values = []
        for i, kind in enumerate(kinds):
            held = b.load(b.gep(outer.args[0], [ir.Constant(word, i)]))
            if str(kind).endswith("*"):
                values.append(b.inttoptr(held, llvm_type(kind)))
            elif kind == "int64":
                values.append(held)
            else:
                # A real number travels as the bits of a float64 whatever T is: records have the same form for all element types.
                values.append(cast(b, Value("float64", b.bitcast(held, ir.DoubleType())), kind).ir)
        b.call(function, values)
        b.ret_void()
        with b.goto_block(b.first):
            b.branch(outer.blocks[1])
        return str(self.module)

    def _parameter(self, kind: str) -> Kind:
        if kind in POINTERS:
            return self.kind_of(POINTERS[kind] + "*")
        if kind == "Real":
            return computed(self.dtype) if computed(self.dtype) in FLOATS else "float64"
        return "int64"


def _loosen(function: Any) -> None:
    """Let LLVM reassociate what a function computes; what an intrinsic wrote as strict stays."""
    real = (ir.FloatType(), ir.DoubleType())
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opname in _FAST and not instruction.flags:
                instruction.flags = list(FASTMATH)
            elif instruction.opname == "call" and instruction.type in real:
                for flag in FASTMATH:
                    instruction.fastmath.add(flag)
