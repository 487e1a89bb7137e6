"""How many processes a training has, and how they are started: from where it is started, the config, and what the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.launch.cluster_environment import Allocation, ClusterEnvironment, Machine, Member
from pe_cli.session.launch.hosts import Host

#: How processes are started: this one becomes it; it is one of those that MPI knows already; by mpiexec; one by one, here or by ssh; as
#: tasks of Slurm's; or it is one of several, which meet.
Way = Literal["alone", "joined", "mpiexec", "one by one", "srun", "meeting"]
#: Trainers beside servers, where nobody says how many.
TRAINERS = 2


@dataclass(frozen=True)
class Wanted:
    """What the user says.

    Args:
        count: processes, servers among them; None for what fits.
        nodes: machines.
        per_node: processes on each.
        hosts: machines; none for those that are found.
    """

    count: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    hosts: Sequence[Host] = ()


@dataclass(frozen=True)
class Plan:
    """What is started.

    Args:
        count: processes.
        way: by which.
        why: a line for each decision, with what it went by.
        hosts: machines, for mpiexec and one by one.
        srun: options for the tasks of Slurm's.
        crowd: that more processes than cores share these; empty where they do not.
    """

    count: int
    way: Way
    why: tuple[str, ...]
    hosts: tuple[Host, ...] = ()
    srun: tuple[str, ...] = ()
    crowd: str = ""


def plan(run: RunSpec, wanted: Wanted, around: ClusterEnvironment, machine: Machine) -> Plan:
    """Return how the processes of a training are started.

    Raises:
        PeError: USAGE; numbers contradict each other, there are too few processes, or the config is for one.
    """
    # Whatever is contradictory is refused here, with the place in the config, rather than by mpiexec later.
    if "processes" in run.executor.model_fields_set and run.executor.processes == 1:
        hint = "executor.processes: auto, or leave it out; pe train trains in one process"
        raise PeError("executor.processes says 1: there is nothing to launch", at=run.at_of("executor", "processes"), hint=hint)
    where = around.where
    if wanted.hosts and isinstance(where, Member):
        raise PeError(
            f"--hosts starts processes, and {where.by} has started {where.size} already ({around.why})",
            hint=f"leave --hosts out, or start pe launch once and not by {where.by}",
        )
    hosts = _hosts(wanted, around)
    count, why = _count(run, wanted, hosts, around, machine)
    _check_servers(run, count)
    servers = servers_of(run)
    if isinstance(where, Member):
        met = "the library of MPI knows the others" if where.meet == "mpi" else "its tasks meet at the first one"
        way: Way = "joined" if where.meet == "mpi" else "meeting"
        return Plan(count, way, (why, f"{where.by} has started process {where.rank}: {met} ({around.why})"))
    if isinstance(where, Allocation) and not hosts:
        if where.nodes > 1 or count > 1:
            srun, crowd = _srun(where, wanted, count, machine)
            return Plan(count, "srun", (why, f"job {where.job} of Slurm's: srun starts the tasks ({around.why})"), srun=srun, crowd=crowd)
        return Plan(1, "alone", (why, f"job {where.job} of Slurm's has one node ({around.why})"))
    if hosts:
        text = "processes are started by ssh, as servers need no MPI" if servers else "mpiexec gets the hosts"
        named = f"--hosts names {len(hosts)} host{'s'[: len(hosts) > 1]}: {text}"
        return Plan(count, "one by one" if servers else "mpiexec", (why, named), tuple(hosts))
    if count == 1:
        return Plan(1, "alone", (why, "this machine: no variable of a launcher is set"))
    text = "this machine: each process is started here, as servers need no MPI" if servers else "this machine: mpiexec starts them"
    # More processes than cores work, but slowly, and mostly are a mistake: it is told and not refused.
    crowd = f"{count} processes share {machine.cores} core{'s'[: machine.cores > 1]}" if count > machine.cores else ""
    return Plan(count, "one by one" if servers else "mpiexec", (why, text), crowd=crowd)


def servers_of(run: RunSpec) -> int:
    """Return how many of the processes are parameter servers."""
    return (run.distributed.servers or 0) if run.distributed is not None else 0


def _hosts(wanted: Wanted, around: ClusterEnvironment) -> list[Host]:
    """Return the machines that the user names, as many as wanted, with their processes."""
    hosts = list(wanted.hosts)
    known = len(hosts) or (around.where.nodes if isinstance(around.where, Allocation) else 1)
    # Inside of a process that a launcher has started, its own count of nodes counts.
    if wanted.nodes is not None and wanted.nodes > known and not isinstance(around.where, Member):
        what = "this machine alone is" if known == 1 and not hosts else f"{known} are"
        raise PeError(f"--nodes {wanted.nodes}, and {what} known", hint="--hosts a,b names machines; sbatch --nodes asks Slurm for them")
    hosts = hosts[: wanted.nodes]
    return [replace(host, slots=wanted.per_node) for host in hosts] if wanted.per_node is not None else hosts


def _count(run: RunSpec, wanted: Wanted, hosts: Sequence[Host], around: ClusterEnvironment, machine: Machine) -> tuple[int, str]:
    """Return the number of processes, and why; whoever says one has to agree with the others."""
    where, said = around.where, []
    if wanted.count is not None:
        said.append((wanted.count, f"-n {wanted.count}"))
    if wanted.per_node is not None:
        nodes = wanted.nodes or len(hosts) or (where.nodes if isinstance(where, Allocation) else 1)
        if not isinstance(where, Member) or wanted.nodes is not None:
            said.append((nodes * wanted.per_node, f"{nodes} node{'s'[: nodes > 1]} with --per-node {wanted.per_node}"))
    if isinstance(run.executor.processes, int) and run.executor.processes > 1:
        said.append((run.executor.processes, f"executor.processes: {run.executor.processes}"))
    if isinstance(where, Member):
        said.append((where.size, f"{where.by}, which has started {where.size}"))
    elif isinstance(where, Allocation) and where.tasks and not hosts and (wanted.count, wanted.nodes, wanted.per_node) == (None,) * 3:
        said.append((sum(where.tasks), f"SLURM_TASKS_PER_NODE, which asks for {sum(where.tasks)}"))
    # All that say a number must say the same one: which of two is meant nobody can know.
    for number, text in said[1:]:
        if number != said[0][0]:
            hint = "leave one of the two out, or executor.processes=auto"
            raise PeError(f"{said[0][1]} and {text} do not go together", at=run.at_of("executor", "processes"), hint=hint)
    if said:
        return said[0][0], f"{said[0][0]} process{'es'[: 2 * (said[0][0] > 1)]}: {said[0][1]}"
    return _fitting(run, hosts, where, wanted.nodes, machine)


def _fitting(
    run: RunSpec, hosts: Sequence[Host], where: Member | Allocation | None, nodes: int | None, machine: Machine
) -> tuple[int, str]:
    """Return the number of processes where nobody says one."""
    cuda = run.executor.place == "cuda" and run.executor.devices in ("auto", 1)
    if hosts:
        count = sum(host.slots or 1 for host in hosts)
        return count, f"{count} process{'es'[: 2 * (count > 1)]}: as many as the hosts have slots, one where they say none"
    if isinstance(where, Allocation):
        each, what = (where.cards, "card") if cuda and where.cards else (1, "node, with all cores that Slurm gives it")
        count = (nodes or where.nodes) * each
        return count, f"{count} process{'es'[: 2 * (count > 1)]}: one for each {what}"
    servers = servers_of(run)
    if servers:
        return servers + TRAINERS, f"{servers + TRAINERS} processes: distributed.servers says {servers}, and {TRAINERS} trainers"
    if cuda and machine.cards > 1:
        return machine.cards, f"{machine.cards} processes: one for each card of this machine"
    return 1, f"1 process: its devices take all {machine.cores} core{'s'[: machine.cores > 1]} with less talk than processes"


def _check_servers(run: RunSpec, count: int) -> None:
    servers = servers_of(run)
    if servers and count <= servers:
        many = f"{servers} servers" if servers > 1 else "1 server"
        text = f"of {count} process{'es'[: 2 * (count > 1)]} {many} leave no trainer"
        raise PeError(text, at=run.at_of("distributed", "servers"), hint=f"-n {servers + TRAINERS}, for example")


def _srun(where: Allocation, wanted: Wanted, count: int, machine: Machine) -> tuple[tuple[str, ...], str]:
    """Return the options of srun, and whether tasks of a node share its cores."""
    nodes = wanted.nodes or min(where.nodes, count)
    if machine.mpi not in ("mpich", "openmpi", ""):
        # Other libraries of MPI do not find each other under srun.
        raise PeError("tasks of Slurm's need MPICH or Open MPI", hint="pip install mpich")
    options = [f"--mpi={'pmix' if machine.mpi == 'openmpi' else 'none'}", f"--nodes={nodes}", f"--ntasks={count}"]
    if wanted.per_node is not None:
        options.append(f"--ntasks-per-node={wanted.per_node}")
    most = -(-count // nodes)
    tasks = where.tasks if sum(where.tasks) == count and nodes == where.nodes else (most,) * nodes
    given = where.cores_per_task or min((c // max(1, t) for c, t in zip(where.cores, tasks, strict=False)), default=0)
    if where.cores and not given:
        return (*options, "--overcommit"), f"{most} processes of a node share {min(where.cores)} core{'s'[: min(where.cores) > 1]}"
    return (*options, f"--cpus-per-task={given}") if given else tuple(options), ""
