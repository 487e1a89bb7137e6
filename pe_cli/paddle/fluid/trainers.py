"""Trainers without servers (`num_trainers`): processes that mpiexec has started, which sum gradients of batches of their own."""

from __future__ import annotations

import atexit
import sys
from hashlib import sha256
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Failure, PeerError, Summing
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError, raised_as
from pe_cli.paddle.fluid.flags import deadline
from pe_cli.paddle.fluid.scope import Scope
from pe_cli.program.ir import Program

#: The processes that this one has met: MPI starts once.
_MET: list[Summing] = []


def trainers(number: int, mine: int) -> Summing | None:
    """Return all trainers, None where there is one.

    Args:
        number: `num_trainers`.
        mine: `trainer_id`.

    Raises:
        FluidValueError: mpiexec has started another number of processes, or this one has another number; a ValueError.
        EnforceNotMet: mpi4py is missing, or a process never comes; a RuntimeError.
    """
    if number == 1:
        return None
    if not _MET:
        from pe_cli.collectives.mpi import MpiPeers

        with raised_as(EnforceNotMet):
            _MET.append(MpiPeers(deadline()))
        atexit.register(_end, _MET[0])
    peers = _MET[0]
    if peers.size != number:
        found = "this process is alone" if peers.size == 1 else f"{peers.size} processes have been started together"
        hint = f"mpiexec -n {number} python SCRIPT; trainer_id is the number that mpiexec gives"
        raise FluidValueError(f"num_trainers is {number}, and {found}", hint=hint)
    if peers.rank != mine:
        raise FluidValueError(f"trainer_id is {mine}, but this is process {peers.rank}", hint="PMI_RANK or OMPI_COMM_WORLD_RANK has it")
    return peers


def share_first_values(peers: Summing, program: Program, scope: Scope) -> None:
    """Give all trainers the values that the first one has of a program's persistable variables.

    Raises:
        EnforceNotMet: a trainer has another program, or is lost; a RuntimeError.
    """
    with raised_as(EnforceNotMet):
        # Trainers with other programs would sum gradients of different parameters; the texts are compared by their digests before anything
        # is exchanged.
        told = peers.gather(sha256(str(program).encode()).digest())
        other = next((rank for rank, digest in enumerate(told) if digest != told[0]), None)
        if other is not None:
            raise EnforceNotMet(f"trainer {other} has another program than trainer 0", hint="run the same script in all")
        # Sorted by name: all processes have to ask in one order.
        for v in sorted((v for v in program.list_vars() if v.persistable and v.type.known), key=lambda v: v.name):
            has = peers.rank == 0 and scope.has_value(v.name)
            first = peers.gather(scope.read(v.name).astype(v.type.numpy).tobytes() if has else b"")[0]
            if first and peers.rank:
                # A copy, since `frombuffer` is read-only.
                scope.write(v.name, np.frombuffer(first, v.type.numpy).reshape(v.type.shape).copy())


def _end(peers: Any) -> None:
    """Leave the others: with them where all is well, or tell them of the error by which this process ends."""
    # An uncaught exception of the script: the others must not wait for a trainer that has failed.
    error = getattr(sys, "last_value", None)  # of Python: what the script has not caught
    try:
        if error is None or peers.size == 1:
            peers.close()
            return
        told = error if isinstance(error, PeError) else PeError(f"{type(error).__name__}: {error}", code=ExitCode.BUG)
        peers.fail(Failure.of(told))
        peers.abort(int(told.code))
    except PeerError as lost:
        print(lost.render(), file=sys.stderr, flush=True)  # noqa: T201
        peers.abort(int(lost.code))
