"""Opens the process group of a run: the one that the run file asks for, or that a launcher has started.

What parameter servers and launchers need is imported only for runs that have them.
"""

from __future__ import annotations

import os

from pe_cli.config.spec import RunSpec
from pe_cli.session.processes.peer_group import PeerGroup
from pe_cli.session.processes.process_group import ProcessGroup


def open_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI.
    """
    return _met(run) if run.executor.processes == "mpi" else ProcessGroup(_apart())


def _met(run: RunSpec) -> ProcessGroup:
    from pe_cli.collectives.mpi import MpiPeers

    peers = MpiPeers(run.executor.peer_timeout, by_machine=run.build_strategy.use_hierarchical_allreduce)
    return PeerGroup(peers, peers) if peers.size > 1 else ProcessGroup(", in this process alone: mpiexec -n 2 pe train ... starts two")


def join_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI, or what `choose_role` raises.
    """
    if not run.has_servers:
        return open_group(run)
    from pe_cli.session.processes.server_roles import choose_role

    return choose_role(run)


def launched_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a launcher has started for a run file that asks for several, else this process alone.

    Nobody trains: what parameter servers have learned is in a checkpoint, and each process has all of it.

    Raises:
        PeError: there is no MPI.
    """
    return _met(run) if are_several(run) else ProcessGroup()


def are_several(run: RunSpec) -> bool:
    """Return whether a run file asks for several processes, also as trainers and servers, and a launcher has started them."""
    if run.executor.processes != "mpi" and not run.has_servers:
        return False
    from pe_cli.collectives.launcher_environment import started_by

    started = started_by(os.environ)
    return started is not None and started.size > 1


def _apart() -> str:
    """Return the warning for several processes of a launcher that each train alone."""
    from pe_cli.collectives.launcher_environment import started_by

    started = started_by(os.environ)
    if started is None or started.size == 1:
        return ""
    return f", alone like each of the {started.size} processes of {started.launcher}: executor.processes=mpi lets them train together"
