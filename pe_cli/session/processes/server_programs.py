"""The programs that a config's trainers and servers run, for inspection."""

from __future__ import annotations

from pe_cli.build.build import Built
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.program.ir import Program
from pe_cli.session.processes.server_training import divide

#: Trainers that are assumed where nobody says how many there are, and the port of the first server.
TRAINERS, PORT = 2, 6174


def role_program(built: Built, run: RunSpec | None, role: str, processes: int | None, number: int) -> Program:
    """Return the program of a trainer or of a server.

    Args:
        built: programs of one process.
        run: says how the training is divided.
        role: trainer or server.
        processes: how many there are, servers among them; None for two trainers.
        number: of the trainer or server, from 0.

    Raises:
        PeError: the config has no servers, or there is no such process.
    """
    if run is None or run.distributed is None or not run.has_servers or built.train is None:
        at = None if run is None else run.at_of("distributed")
        hint = "distributed: {mode: parameter_server, servers: 2}"
        raise PeError("--role is for configs that train with parameter servers", at=at, hint=hint)
    servers = run.distributed.servers or 1
    trainers = TRAINERS if processes is None else processes - servers
    count = trainers if role == "trainer" else servers
    if trainers < 1 or not 0 <= number < count:
        raise PeError(f"there is no {role} {number}", hint=f"{max(0, trainers)} trainers and {servers} servers, each numbered from 0")
    endpoints = run.distributed.endpoints or [f"127.0.0.1:{PORT + i}" for i in range(servers)]
    division = divide(built, run, number if role == "trainer" else 0, trainers, list(endpoints))
    return division.trainer if role == "trainer" else division.server(endpoints[number])[0]


def flat(program: Program) -> Program:
    """Return a program with the operators of all blocks in one, in their order, as pictures show it: a server's last op is its first."""
    made = program.clone()
    block = made.main_block
    listens, block.ops = block.ops, []
    # Several blocks are one program here, as pictures and `pe explain` show it.
    for each in made.blocks[1:]:
        for name, v in each.vars.items():
            block.vars.setdefault(name, v.for_block(block))
        block.ops += each.ops
    block.ops = [*block.ops, *listens] if made.num_blocks > 1 else listens
    made.blocks = made.blocks[:1]
    return made
