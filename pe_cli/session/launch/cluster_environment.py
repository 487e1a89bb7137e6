"""Detects where a training is started: on one machine, in an allocation of Slurm, or as one of several launched processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pe_cli.collectives.launcher_environment import OPEN_MPI, RANK, SIZE
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass

#: Processes of one training, at most, and the port at which the first one waits for the others where nothing names another.
MOST, PORT = 4096, 6174
#: Steps of Slurm's that are shells and no tasks: those of sbatch, of prolog and epilog, and of salloc; numbers, and names since 23.02.
_SHELLS = ("4294967291", "4294967292", "4294967290", "batch", "extern", "interactive")
#: How Slurm counts: `2(x3),1` is 2, 2, 2, 1.
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
#: Variables of a rank and of the number of processes, and who sets them.
_RANKED = (
    (RANK, SIZE, "pe launch"),
    ("RANK", "WORLD_SIZE", "a launcher like torchrun"),
    ("JOB_COMPLETION_INDEX", "", "an indexed Job"),
)


@dataclass(frozen=True)
class Machine:
    """What of this machine decides how processes are started.

    Args:
        cores: that this process may use.
        cards: CUDA devices.
        mpi: launcher of MPI beside this Python or on the PATH: mpich, openmpi, other, or empty for none.
        name: host name.
    """

    cores: int
    cards: int = 0
    mpi: str = "mpich"
    name: str = "localhost"


@dataclass(frozen=True)
class Member:
    """This process is one of several that something else has started.

    Args:
        rank: of this process.
        size: processes.
        by: what has started them.
        meet: how they find each other: over MPI, by the address of the first, or by a file that the first one writes.
        address: host:port of the first process, with meet: address.
        job: a word that no other start has, with meet: file.
        here: processes of this start on this machine.
    """

    rank: int
    size: int
    by: str
    meet: Literal["mpi", "address", "file"]
    address: str = ""
    job: str = ""
    here: int = 1


@dataclass(frozen=True)
class Allocation:
    """The script or the shell of a job of Slurm's, which starts tasks by `srun`.

    Args:
        job: number of the job.
        nodes: how many.
        tasks: on each node; empty where the job does not say.
        cores: of each node.
        cores_per_task: that the job asks for; 0 where it does not say.
        cards: of each node.
    """

    job: str
    nodes: int
    tasks: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()
    cores_per_task: int = 0
    cards: int = 0


@dataclass(frozen=True)
class ClusterEnvironment:
    """Where a training is started.

    Args:
        where: the process of which this is one, the allocation, or None for a machine alone.
        why: the variables that say so, as NAME=value.
    """

    where: Member | Allocation | None = None
    why: str = ""


def find_cluster_environment(environment: Mapping[str, str], machine: Machine) -> ClusterEnvironment:
    """Return where a training is started, by the variables that launchers set; the innermost launcher counts.

    Raises:
        PeError: USAGE; variables contradict each other, or one of a pair is not there.
    """
    return (
        # MPI first: its variables name a process that exists already; a job's variables are the same in every process.
        _of_mpi(environment)
        or _of_step(environment, machine)
        or _of_ranks(environment, machine)
        or _of_job(environment)
        or ClusterEnvironment()
    )


def _of_mpi(facts: Mapping[str, str]) -> ClusterEnvironment | None:
    """A launcher of MPI has started this process: its library knows the others."""
    for size, rank, by, alone in (
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec", OPEN_MPI),
        ("PMI_SIZE", "PMI_RANK", "mpiexec", "MPI_LOCALNRANKS"),
    ):
        # A second variable each, because a shell inside of a job may inherit the first one from outside.
        if size in facts and alone in facts:
            member = Member(*_pair(facts, rank, size), by, "mpi")
            return ClusterEnvironment(member, _told(facts, rank, size))
    return None


def _of_step(facts: Mapping[str, str], machine: Machine) -> ClusterEnvironment | None:
    """`srun` has started this process."""
    step = facts.get("SLURM_STEP_ID", "")
    if not step or step in _SHELLS or "SLURM_PROCID" not in facts:
        return None
    # Since 20.11 the size of a step has a variable of its own; the job's is larger.
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in facts else "SLURM_NTASKS"
    (rank, count), job = _pair(facts, "SLURM_PROCID", size), facts.get("SLURM_JOB_ID", "")
    _agree(facts, rank, count, "SLURM_PROCID")
    why = _told(facts, "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", size)
    if count == 1:  # a shell of srun --pty, for example
        return ClusterEnvironment(None, why)
    if "PMIX_RANK" in facts and machine.mpi == "openmpi":
        return ClusterEnvironment(Member(rank, count, "srun", "mpi"), f"{why} {_told(facts, 'PMIX_RANK')}")
    tasks, node = _counts(facts, "SLURM_STEP_TASKS_PER_NODE"), facts.get("SLURM_NODEID", "")
    here = tasks[int(node)] if node.isdigit() and int(node) < len(tasks) else 1
    # A restart of the job must not meet the file of its earlier start.
    word = ".".join((job, step, facts.get("SLURM_RESTART_COUNT", "0")))
    return ClusterEnvironment(Member(rank, count, "srun", "file", job=word, here=here), why)


def _of_ranks(facts: Mapping[str, str], machine: Machine) -> ClusterEnvironment | None:
    """Something has started this process and says its number, and where the first one is."""
    rank, size, by = next(((r, s, by) for r, s, by in _RANKED if r in facts), ("", "", ""))
    if not rank:
        lost = next((s for _, s, _ in _RANKED if s and s in facts), "")
        if lost:
            raise PeError(f"{lost} says {facts[lost][:20]}, and no variable says which process this is", hint=f"set RANK, or unset {lost}")
        return None
    size = size if size in facts else next((s for _, s, _ in _RANKED if s and s in facts), "")
    if not size:
        raise PeError(
            f"{rank} says that this is process {facts[rank][:20]}, and no variable says of how many", hint="set WORLD_SIZE to their number"
        )
    number, count = _pair(facts, rank, size)
    _agree(facts, number, count, rank)
    why = _told(facts, rank, size, "MASTER_ADDR", "MASTER_PORT")
    if count == 1:
        return ClusterEnvironment(None, why)
    address = _first(facts, number, machine)
    here = _number(facts, "LOCAL_WORLD_SIZE", 1, MOST) if "LOCAL_WORLD_SIZE" in facts else 1
    return ClusterEnvironment(Member(number, count, by, "address", address, here=here), why)


def _first(facts: Mapping[str, str], rank: int, machine: Machine) -> str:
    """Return host:port of the first process: as the variables say, or the pod of an indexed Job whose number is 0."""
    port = _number(facts, "MASTER_PORT", 1, 65535) if "MASTER_PORT" in facts else PORT
    host = facts.get("MASTER_ADDR", "")
    if not host:
        pod, _, domain = machine.name.partition(".")
        job, dash, number = pod.rpartition("-")
        # Pods of an indexed Job are called like the job, with their number at the end.
        if "JOB_COMPLETION_INDEX" not in facts or not dash or number != str(rank):
            raise PeError(
                "no variable says where the first process is", hint="set MASTER_ADDR to its host, and MASTER_PORT to a free port there"
            )
        host = f"{job}-0.{domain}" if domain else f"{job}-0"
    if not re.fullmatch(r"[\w.:-]{1,255}", host):
        raise PeError(f"MASTER_ADDR is no host: '{host[:40]}'", hint="a name or an address")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _of_job(facts: Mapping[str, str]) -> ClusterEnvironment | None:
    """A script of `sbatch`, or a shell of `salloc`."""
    job = facts.get("SLURM_JOB_ID", "")
    if not job or facts.get("SLURM_STEP_ID", _SHELLS[0]) not in _SHELLS:
        return None
    names = [name for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES") if name in facts]
    nodes = _number(facts, names[0], 1, MOST) if names else 1
    asked = "SLURM_NTASKS" in facts or "SLURM_NTASKS_PER_NODE" in facts  # else Slurm counts cores
    tasks, cores = _counts(facts, "SLURM_TASKS_PER_NODE") if asked else (), _counts(facts, "SLURM_JOB_CPUS_PER_NODE")
    each = _number(facts, "SLURM_CPUS_PER_TASK", 1, 1 << 20) if "SLURM_CPUS_PER_TASK" in facts else 0
    cards = facts.get("SLURM_GPUS_ON_NODE", "")
    told = _told(facts, "SLURM_JOB_ID", *names[:1], *(("SLURM_TASKS_PER_NODE",) if asked else ()), "SLURM_CPUS_PER_TASK")
    return ClusterEnvironment(Allocation(job, nodes, tasks, cores, each, int(cards) if cards.isdigit() else 0), told)


def _agree(facts: Mapping[str, str], rank: int, size: int, by: str) -> None:
    """Refuse other variables that name another process than those that count."""
    for other, count, _ in _RANKED:
        for name, mine in ((other, rank), (count, size)):
            if name and name != by and facts.get(name, str(mine)) != str(mine):
                text = f"{name} says {facts[name][:20]}, and {by} stands for process {rank} of {size}"
                # Two launchers around one process: which of them is meant cannot be known.
                raise PeError(text, hint=f"unset the variables of one of the two: {other}, or {by}")


def _pair(facts: Mapping[str, str], rank: str, size: str) -> tuple[int, int]:
    count = _number(facts, size, 1, MOST)
    number = _number(facts, rank, 0, MOST)
    if number >= count:
        raise PeError(f"{rank} says {number}, and {size} says {count}", hint="processes are numbered from 0")
    return number, count


def _number(facts: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = facts.get(name, "")
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise PeError(f"{name} must be a number from {least} to {most}, got '{text[:20]}'", hint=f"who starts processes sets {name}")
    return int(text)


def _counts(facts: Mapping[str, str], name: str) -> tuple[int, ...]:
    """Return the numbers of `2(x3),1`; none where the variable is not there, or says something else."""
    found: list[int] = []
    for part in facts.get(name, "").split(","):
        match = _COUNT.fullmatch(part)
        if match is None or len(found) + int(match[2] or 1) > MOST:
            # A format that a later Slurm may write says nothing, instead of something wrong.
            return ()
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found)


def _told(facts: Mapping[str, str], *names: str) -> str:
    return " ".join(f"{name}={facts[name][:40]}" for name in names if name in facts)
