"""Server programs for geo-SGD: trainers update by themselves, and servers add up their changes."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.graph.servers.blocks import add, declare, inner_block
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.graph.servers.server_program import ROWS, Kept
from pe_cli.graph.servers.slicing import Piece
from pe_cli.graph.servers.trainer_program import Cut, Job
from pe_cli.program.ir import Program, Role

#: A learning rate of -1, with which an update adds some rows.
BACKWARDS = "backwards"


def geo_server(origin: Program, job: Job, found: Cut, endpoint: str) -> tuple[Program, list[Kept]]:
    """Return the program of a server, and what it keeps between steps.

    Args:
        origin: the program that is trained.
        job: trainers and servers.
        found: where the pieces are.
        endpoint: host:port of the server.
    """
    made = type(origin)()
    made.random_seed = origin.random_seed
    block, numbers, pieces = made.main_block, {}, found.at(endpoint)
    for p in pieces:
        declare(block, p.name, p.type, persistable=True)
    for p in pieces:
        numbers[f"{p.name}.delta"] = _add(made, p)
    attrs = {
        "endpoint": endpoint,
        "Fanin": job.trainers,
        "distributed_mode": DistributedMode.GEO,
        "optimize_blocks": list(numbers.values()),
        "grad_to_block_id": [f"{name}:{number}" for name, number in numbers.items()],
        "sparse_grad_to_param": [f"{p.name}.delta:{p.name}" for p in pieces if p.sparse],
    }
    add(block, "listen_and_serv", {}, {}, attrs, role=Role.FORWARD)
    return made, [Kept(p.name, p.parameter, p.type, None if p.whole else p.begin) for p in pieces]


def _add(program: Program, p: Piece) -> int:
    """Add a block that adds a difference to a piece; return its number."""
    block = program.main_block
    inner, delta = inner_block(program, 0), f"{p.name}.delta"
    declare(block, delta, TensorType((-1, *p.type.shape[1:]), p.type.dtype) if p.sparse else p.type)
    if p.sparse:
        declare(block, delta + ROWS, TensorType((-1,), "int64"))
        declare(block, BACKWARDS, TensorType((1,), p.type.dtype))
        # sgd subtracts, and a change is to be added: the rate is -1.
        attrs = {"shape": [1], "dtype": p.type.dtype, "value": -1.0}
        add(inner, "fill_constant", {}, {"Out": [BACKWARDS]}, attrs, role=Role.FORWARD)
        given = {"Param": [p.name], "Grad": [delta], "Rows": [delta + ROWS], "LearningRate": [BACKWARDS]}
        add(inner, "sgd", given, {"ParamOut": [p.name]}, role=Role.OPTIMIZE, role_vars=[p.name, delta])
    else:
        add(inner, "sum", {"X": [p.name, delta]}, {"Out": [p.name]}, role=Role.FORWARD)
    return inner.index
