"""Opens the process group of a run: the one that the run file asks for, or that a launcher has started.

What parameter servers and launchers need is imported only for runs that have them.
"""

from __future__ import annotations

import os

from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.processes.process_group import ProcessGroup

#: What a run says whose config asks for several processes, and which has none.
_ALONE = ", in this process alone: pe launch starts several"


def open_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI, or there are more or fewer processes than the config says.
    """
    if run.executor.processes == 1:
        return ProcessGroup(_apart())
    group = _met(run) if _launched() else ProcessGroup(_ALONE)
    check_number(run, group.size, group.leads)
    return group


def check_number(run: RunSpec, size: int, leads: bool) -> None:
    """Refuse another number of processes than the config says.

    Raises:
        PeError: it says a number, and there are more or fewer.
    """
    wanted = run.executor.processes
    if wanted in ("auto", size):
        return
    if size > 1 and not leads:
        # All processes find the same mistake; one message is enough.
        raise SystemExit(int(ExitCode.USAGE))  # the first process tells
    text = f"executor.processes says {wanted}, and {'1 process is' if size == 1 else f'{size} processes are'} started"
    raise PeError(text, at=run.at_of("executor", "processes"), hint=f"pe launch {run.path}, or executor.processes=auto for any number")


def _met(run: RunSpec) -> ProcessGroup:
    from pe_cli.collectives.mpi import MpiPeers
    from pe_cli.session.processes.peer_group import PeerGroup

    peers = MpiPeers(run.executor.peer_timeout, by_machine=run.build_strategy.use_hierarchical_allreduce)
    return PeerGroup(peers, peers) if peers.size > 1 else ProcessGroup(_ALONE)


# MPI itself starts slowly, and is only asked where something has started several processes.
def _launched() -> bool:
    """Whether a launcher, or the job around it, says that this process has others: MPI is needed for that alone."""
    from pe_cli.collectives.launcher_environment import asked_for, started_by

    started = started_by(os.environ)
    return started.size > 1 if started else asked_for(os.environ)[0] > 1


def join_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a run file asks for.

    Raises:
        PeError: there is no MPI, or what `choose_role` raises.
    """
    if not run.has_servers:
        return open_group(run)
    from pe_cli.session.processes.server_roles import choose_role

    group = choose_role(run)
    check_number(run, group.size, group.leads)
    return group


def launched_group(run: RunSpec) -> ProcessGroup:
    """Return the processes that a launcher has started for a run file that asks for several, else this process alone.

    Nobody trains: what parameter servers have learned is in a checkpoint, and each process has all of it.

    Raises:
        PeError: there is no MPI.
    """
    return _met(run) if are_several(run) else ProcessGroup()


def are_several(run: RunSpec) -> bool:
    """Return whether a run file asks for several processes, also as trainers and servers, and a launcher has started them."""
    if run.executor.processes == 1 and not run.has_servers:
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
    return f", alone like each of the {started.size} processes of {started.launcher}: executor.processes=auto lets them train together"
