"""The numeric settings of a step: what its kernels compute with."""

from __future__ import annotations

from pe_cli.core.value_class import Value


class Numerics(Value):
    """What decides about the values of a step beside its graph and its batch. Executors hand it on to lowerings as it is.

    Args:
        seed: of random ops.
        precision: float32, tf32 or bf16: of products on CUDA, see `Lowering`.
        libraries: of CUDA that may take the place of our kernels, see `Lowering`.
        deterministic: whether theirs must give the same bits in every run.
    """

    seed: int = 0
    precision: str = "float32"
    libraries: frozenset[str] = frozenset()
    deterministic: bool = True


#: How kernels compute where nothing is said.
USUAL = Numerics()
