"""Declares PTX instructions that kernels call like functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.language import Intrinsic


@dataclass(frozen=True, eq=False)
class CudaIntrinsic(Intrinsic):
    """Instructions that exist on CUDA only; `emit(env, args)` has env.builder and env.dtype, the name of T.

    `4T` are four numbers, `4int32` four words. Where one takes a `T*`, it may be given a pointer to bfloat16, see `bfloat16_pointers`.

    Args:
        room: elements T of shared memory that it gives.
    """

    room: int = 0


def cuda_intrinsic(returns: str, *args: str) -> Callable[[Any], Any]:
    """Mark a function `emit(env, args)` as an intrinsic of CUDA with these types; see `Intrinsic`."""
    return lambda emit: CudaIntrinsic(emit.__qualname__, returns, args, emit)
