"""What launchers tell the processes that they start: how many there are, and which one this is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: What `pe launch` tells: number of the process, processes, host:port of the servers, with commas, and a word that no other group has.
RANK, SIZE, SERVERS, GROUP = "PE_RANK", "PE_SIZE", "PE_SERVERS", "PE_GROUP"
#: What Open MPI's mpiexec says the number of processes in.
OPEN_MPI = "OMPI_COMM_WORLD_SIZE"
#: Launchers with the variables of size and rank, and the mpiexec that they are of.
_KNOWN = (
    (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec"),
    ("PMI_SIZE", "PMI_RANK", "MPICH's mpiexec"),
    ("PMIX_SIZE", "PMIX_RANK", "a launcher with PMIx"),
    ("SLURM_NTASKS", "SLURM_PROCID", "srun"),
)


@dataclass(frozen=True)
class Started:
    """What a launcher says.

    Args:
        size: processes.
        rank: of this one.
        variable: that says the size.
        launcher: its name.
    """

    size: int
    rank: int
    variable: str
    launcher: str


def started_by(environment: Mapping[str, str]) -> Started | None:
    """Return what the launcher of this process says, None where there is none; the innermost counts."""
    for size, rank, name in _KNOWN:
        if environment.get(size, "").isdigit() and environment.get(rank, "").isdigit():
            return Started(int(environment[size]), int(environment[rank]), size, name)
    return None
