"""What launchers tell the processes that they start: how many there are, and which one this is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: What `pe launch` tells: number of the process, processes, host:port of the servers, with commas, and a word that no other group has.
RANK, SIZE, SERVERS, GROUP = "PE_RANK", "PE_SIZE", "PE_SERVERS", "PE_GROUP"
#: What Open MPI's mpiexec says the number of processes in.
OPEN_MPI = "OMPI_COMM_WORLD_SIZE"
#: What Slurm says it in, in a script of one process, too.
SLURM = "SLURM_NTASKS"
#: Launchers with the variables of size and rank, their names, and the variables that are the same in all processes of one start alone.
_KNOWN = (
    (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec", ("PMIX_NAMESPACE",)),
    ("PMI_SIZE", "PMI_RANK", "MPICH's mpiexec", ()),
    ("PMIX_SIZE", "PMIX_RANK", "a launcher with PMIx", ("PMIX_NAMESPACE",)),
    (SLURM, "SLURM_PROCID", "srun", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


@dataclass(frozen=True)
class Started:
    """What a launcher says.

    Args:
        size: processes.
        rank: of this one.
        variable: that says the size.
        launcher: its name.
        group: a word that no other start has, as far as the environment says one; MPICH's is `hydra.job`.
    """

    size: int
    rank: int
    variable: str
    launcher: str
    group: str = ""


def started_by(environment: Mapping[str, str]) -> Started | None:
    """Return what the launcher of this process says, None where there is none; the innermost counts."""
    for size, rank, name, common in _KNOWN:
        if environment.get(size, "").isdigit() and environment.get(rank, "").isdigit():
            group = ".".join(environment.get(each, "") for each in common)
            return Started(int(environment[size]), int(environment[rank]), size, name, group)
    return None
