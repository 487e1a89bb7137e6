"""Kernels whose factors may be bfloat16 where the processor multiplies these: they read what is stored, and not a copy of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import Buffer, Call, Offset, buffers_of
from pe_cli.kernels.compiler.target import PAIRS, bfloat16_unit
from pe_cli.kernels.language import Kernel


@dataclass(frozen=True)
class _Tiled:
    """A kernel that does with factors of bfloat16 what another does: which arguments these are, and its scratch, of how many elements."""

    kernel: Kernel
    factors: tuple[int, ...]
    scratch: int
    room: Callable[..., int]
    suits: Callable[..., bool]
    pairs_pay: Callable[..., bool]


def _always(*_args: Any) -> bool:
    return True


#: By the kernel of float32.
_BY_TILES: dict[Any, _Tiled] = {}


def by_tiles(
    of: Kernel,
    *factors: str,
    scratch: str,
    room: Callable[..., int],
    suits: Callable[..., bool] = _always,
    pairs_pay: Callable[..., bool] = _always,
) -> Callable[[Kernel], Kernel]:
    """Register a kernel that does what another does, with factors of bfloat16.

    Args:
        of: the other one, of as many parameters.
        factors: names of those parameters of the registered one; addresses.
        scratch: name of the parameter that is scratch.
        room: of a call's arguments: the elements of float32 of scratch.
        suits: of a call's arguments: whether it is one that the registered kernel can do.
        pairs_pay: of a call's arguments: whether products of pairs take less time than the kernel of float32.
    """

    def register(kernel: Kernel) -> Kernel:
        assert len(kernel.params) == len(of.params), f"{kernel} has other parameters than {of}"
        # A function's variables begin with its parameters, in order: a name's place is that of the argument.
        place = kernel.fn.__code__.co_varnames.index
        _BY_TILES[of] = _Tiled(kernel, tuple(map(place, factors)), place(scratch), room, suits, pairs_pay)
        return kernel

    return register


def with_tiles(call: Call, stored: Mapping[Buffer, Buffer]) -> tuple[Call, list[Buffer]]:
    """Return a call of a product whose factors are stored as bfloat16, and its scratch.

    Where they are not, or nothing multiplies such, that is the call itself, and none beside its own.

    Args:
        call: of float32.
        stored: for copies of float32 that are only read, what they are copies of.
    """
    tiled = _BY_TILES.get(call.kernel)
    unit = bfloat16_unit()
    if tiled is None or call.dtype != "float32" or not unit or not tiled.suits(*call.args):
        return call, []
    if unit == PAIRS and not tiled.pairs_pay(*call.args):
        return call, []
    args = list(call.args)
    for i in tiled.factors:
        found = _stored(args[i], stored)
        if found is None:
            return call, []
        args[i] = found
    args[tiled.scratch] = scratch = Buffer("scratch", TensorType((tiled.room(*call.args),), "float32"))
    return replace(call, kernel=tiled.kernel, args=tuple(args)), [scratch]


def _stored(arg: Any, stored: Mapping[Buffer, Buffer]) -> Any:
    """Return the place of a factor as it is stored, if it is one of bfloat16."""
    if not all(b in stored for b in buffers_of(arg)):
        return None
    return Offset(stored[arg.buffer], arg.elements) if isinstance(arg, Offset) else stored.get(arg)
