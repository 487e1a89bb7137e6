"""Kernels whose factors may be bfloat16 where the processor has matrix tiles: they read what is stored, and not a copy of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pe_cli.kernels.calls import Buffer, Call, Offset, buffers_of
from pe_cli.kernels.compiler.target import matrix_tiles
from pe_cli.kernels.language import Kernel

#: For kernels of float32, those that do the same with factors of bfloat16, and which arguments these are.
_BY_TILES: dict[Any, tuple[Kernel, tuple[int, ...], Callable[..., bool]]] = {}


def by_tiles(of: Kernel, *factors: str, suits: Callable[..., bool] = lambda *_: True) -> Callable[[Kernel], Kernel]:
    """Register a kernel that does what another does, with factors of bfloat16.

    Args:
        of: the other one, of as many parameters.
        factors: names of those parameters of the registered one; addresses.
        suits: of a call's arguments: whether it is one that the registered kernel can do.
    """

    def register(kernel: Kernel) -> Kernel:
        assert len(kernel.params) == len(of.params), f"{kernel} has other parameters than {of}"
        names = kernel.fn.__code__.co_varnames
        _BY_TILES[of] = kernel, tuple(map(names.index, factors)), suits
        return kernel

    return register


def with_tiles(call: Call, stored: Mapping[Buffer, Buffer]) -> Call:
    """Return a call of a product whose factors are stored as bfloat16, or the call itself where they are not, or there are no tiles.

    Args:
        call: of float32.
        stored: for copies of float32 that are only read, what they are copies of.
    """
    if call.kernel not in _BY_TILES or call.dtype != "float32" or not matrix_tiles():
        return call
    kernel, factors, suits = _BY_TILES[call.kernel]
    if not suits(*call.args):
        return call
    args = list(call.args)
    for i in factors:
        found = _stored(args[i], stored)
        if found is None:
            return call
        args[i] = found
    return replace(call, kernel=kernel, args=tuple(args))


def _stored(arg: Any, stored: Mapping[Buffer, Buffer]) -> Any:
    """Return the place of a factor as it is stored, if it is one of bfloat16."""
    if not all(b in stored for b in buffers_of(arg)):
        return None
    return Offset(stored[arg.buffer], arg.elements) if isinstance(arg, Offset) else stored.get(arg)
