"""The builder that translators write instructions with, and one that writes none, for when only kinds are looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pe_cli.kernels.compiler.value_kinds import Kind, llvm_type


class Builder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's builder, with calls of functions by their name, and memory of a function in its first block."""

    dry = False

    def __init__(self, function: Any) -> None:
        # Slots get a block of their own before the body: an alloca within a loop would take more stack in every round.
        self.first = function.append_basic_block("entry")
        super().__init__(function.append_basic_block("body"))

    def slot(self, kind: Any, count: int | None = None) -> Any:
        """Return memory that lives as long as a call of the function does.

        Args:
            kind: LLVM's type.
            count: how many of them, None for one.
        """
        with self.goto_block(self.first):
            return self.alloca(kind, count)

    def declared(self, name: str, returns: Any, args: list[Any], pure: bool = False) -> Any:
        """Return the declaration of a function, made on first use; pure: it writes no memory."""
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(returns, args), name)
            for word in ("readonly", "nounwind") if pure else ():
                found.attributes.add(word)
        return found

    def intrinsic(self, name: str, kind: Kind, args: list[Any]) -> Any:
        """Call an LLVM function of real numbers."""
        return self._call(f"{name}.{'f32' if kind == 'float32' else 'f64'}", kind, args, False)

    def library(self, name: str, kind: Kind, args: list[Any]) -> Any:
        """Call a function of the C library of real numbers."""
        return self._call(name + "f" * (kind == "float32"), kind, args, True)

    def _call(self, name: str, kind: Kind, args: list[Any], pure: bool) -> Any:
        number = llvm_type(kind)
        return self.call(self.declared(name, number, [number] * len(args), pure), args)


class DryBuilder:
    """Takes every instruction and writes none."""

    dry = True

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    return None


#: The only one.
DRY = DryBuilder()
