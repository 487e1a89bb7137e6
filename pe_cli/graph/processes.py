"""Several processes that train one model: the sum of gradients over them is a node of its own behind the sum over devices."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.graph.ssa import GraphBuilder, OpNode
from pe_cli.program.ir import Operator, Program, Role
from pe_cli.program.sparse import MERGE

#: Kind of the nodes that sum over processes.
SUM_PROCESSES = "all_reduce_processes"
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
        if op.type == MERGE:
            raise PeError(f"row-sparse gradients: {YET}", at=op.at, hint="set is_sparse: false, or processes: 1")


def add_sum_over_processes(
    build: GraphBuilder, names: list[str], devices: Sequence[int], running: Sequence[int]
) -> OpNode:
    """Add the node that sums a bucket over processes: it takes the first device's sums and gives the result to all devices.

    Args:
        build: of the graph.
        names: gradients.
        devices: of this process.
        running: those with samples; without any, this process adds nothing.
    """
    op = Operator(SUM_PROCESSES, {"X": names}, {"Out": names}, {}, Role.DIST)
    ins = {"X": [(n, 0) for n in names]} if running else {}
    return build.add(SUM_PROCESSES, op, 0, ins, {"Out": [(n, d) for n in names for d in devices]})
