"""Opens the process group of a run: the one that the run file asks for, or that a launcher has started.

What parameter servers and launchers need is imported only for runs that have them.
"""

from __future__ import annotations

import os

from pe_cli.config.spec import RunSpec
from pe_cli.session.peer_team import PeerTeam
from pe_cli.session.team import Team


def open_team(run: RunSpec) -> Team:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI.
    """
    return _met(run) if run.executor.processes == "mpi" else Team(_apart())


def _met(run: RunSpec) -> Team:
    from pe_cli.collectives.mpi import MpiPeers

    peers = MpiPeers(run.executor.peer_timeout, by_machine=run.build_strategy.use_hierarchical_allreduce)
    return PeerTeam(peers, peers) if peers.size > 1 else Team(", in this process alone: mpiexec -n 2 pe train ... starts two")


def join_team(run: RunSpec) -> Team:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI, or what `take_seat` raises.
    """
    if not run.has_servers:
        return open_team(run)
    from pe_cli.session.seats import take_seat

    return take_seat(run)


def launched_team(run: RunSpec) -> Team:
    """Return the processes that a launcher has started for a run file that asks for several, else this process alone.

    Nobody trains: what parameter servers have learned is in a checkpoint, and each process has all of it.

    Raises:
        PeError: there is no MPI.
    """
    return _met(run) if are_several(run) else Team()


def are_several(run: RunSpec) -> bool:
    """Return whether a run file asks for several processes, also as trainers and servers, and a launcher has started them."""
    if run.executor.processes != "mpi" and not run.has_servers:
        return False
    from pe_cli.collectives.launchers import started_by

    started = started_by(os.environ)
    return started is not None and started.size > 1


def _apart() -> str:
    """Return the warning for several processes of a launcher that each train alone."""
    from pe_cli.collectives.launchers import started_by

    started = started_by(os.environ)
    if started is None or started.size == 1:
        return ""
    return f", alone like each of the {started.size} processes of {started.launcher}: executor.processes=mpi lets them train together"
