"""Reads the environment variables by which launchers tell a process its rank and the number of processes."""

from __future__ import annotations

from collections.abc import Mapping

from pe_cli.core.lazy_dataclass import dataclass

#: What `pe launch` tells: number of the process, processes, host:port of the servers, with commas, and a word that no other group has.
RANK, SIZE, SERVERS, GROUP = "PE_RANK", "PE_SIZE", "PE_SERVERS", "PE_GROUP"
#: What trainers and servers of a group know each other by; on no command line, which all users of a machine can read.
SECRET = "PE_GROUP_SECRET"
#: What Open MPI's mpiexec says the number of processes in.
OPEN_MPI = "OMPI_COMM_WORLD_SIZE"
#: What launchers say the number of a machine's processes in: `pe launch`, whose tasks have a launcher each, MPICH's and Open MPI's.
LOCAL = "PE_LOCAL_SIZE"
HERE = (LOCAL, "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
#: Seconds after a signal in which those that Slurm and the processes of a task send beside it have come.
ONE_REQUEST = 10.0
#: What Slurm says it in, and what says that srun has started the process: the script of a job has the former, too.
_SLURM, _STEP = "SLURM_NTASKS", "SLURM_STEP_ID"
#: Launchers with the variables of size and rank, their names, and the variables that are the same in all processes of one start alone.
_KNOWN = (
    (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec", ("PMIX_NAMESPACE",)),
    ("PMI_SIZE", "PMI_RANK", "MPICH's mpiexec", ()),
    ("PMIX_SIZE", "PMIX_RANK", "a launcher with PMIx", ("PMIX_NAMESPACE",)),
    (_SLURM, "SLURM_PROCID", "srun", ("SLURM_JOB_ID", _STEP)),
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


def one_request(environment: Mapping[str, str]) -> float:
    """Return the seconds in which signals are one request to stop: Slurm sends it to every process of a task, and they pass it on."""
    several = "SLURM_STEP_ID" in environment and environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    return ONE_REQUEST if several else 0.0


def asked_for(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the processes of the job around this one, and the variable that says so: a shell of it has that before anything is started."""
    found = ((environment.get(size, ""), size) for size, _, _, _ in _KNOWN)
    return next(((int(count), size) for count, size in found if count.isdigit()), (1, ""))


def processes_here(environment: Mapping[str, str]) -> int:
    """Return the processes that the launcher of this one has started on this machine; 1 where it does not say."""
    return next((int(environment[name]) for name in HERE if environment.get(name, "").isdigit() and int(environment[name])), 1)


def started_by(environment: Mapping[str, str]) -> Started | None:
    """Return what the launcher of this process says, None where there is none; the innermost counts."""
    for size, rank, name, common in _KNOWN:
        if environment.get(size, "").isdigit() and environment.get(rank, "").isdigit() and (size != _SLURM or _STEP in environment):
            group = ".".join(environment.get(each, "") for each in common)
            return Started(int(environment[size]), int(environment[rank]), size, name, group)
    return None
