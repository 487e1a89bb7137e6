"""Several processes that train one model: what they cannot share yet."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.ops.define.traits import MergesRows
from pe_cli.program.ir import Program

YET = "not with several processes yet"


def check_processes(program: Program, strategy: BuildStrategy) -> None:
    """Refuse what a process would do on its own.

    Raises:
        PeError: a wish of the strategy, or an op with its place.
    """
    if strategy.reduce_strategy == "Reduce":
        raise PeError(f"reduce_strategy: Reduce: {YET}", hint="use AllReduce")
    if strategy.sync_batch_norm:
        raise PeError(
            f"sync_batch_norm: {YET}", hint="set it to false: each device keeps statistics of its own samples"
        )
    check_operators(program)


def check_operators(program: Program) -> None:
    """Refuse ops that several processes cannot share.

    Raises:
        PeError: there is one; with its place.
    """
    for op in program.global_block().ops:
        if op.definition.has(MergesRows):
            raise PeError(f"row-sparse gradients: {YET}", at=op.at, hint="set is_sparse: false, or processes: 1")
