"""How many processes, and how they are started, from where it is, the config and the options."""

from __future__ import annotations

import pytest

from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.launch.cluster_environment import Allocation, ClusterEnvironment, Machine, Member
from pe_cli.session.launch.hosts import Host
from pe_cli.session.launch.plan import Wanted, plan

DESK = Machine(cores=4)
SERVED = "distributed={mode: parameter_server, servers: 2}"
CUDA = "executor.place=cuda"
JOB = Allocation("14", 2, (2, 1), (4, 2), 2)
SHELL = Allocation("15", 2, (), (4, 4))
TASK = Member(1, 3, "srun", "file", job="14.0.0", here=2)


def planned(*overrides, where=None, machine=DESK, **wanted):
    return plan(load_run("configs/digits.yaml", overrides), Wanted(**wanted), ClusterEnvironment(where, "A=1"), machine)


@pytest.mark.parametrize(
    ("overrides", "given", "count", "way"),
    [
        pytest.param((), {}, 1, "alone", id="a machine: one process has all cores"),
        pytest.param((CUDA,), {"machine": Machine(4, cards=3)}, 3, "mpiexec", id="a machine with cards: one process for each"),
        pytest.param((CUDA, "executor.devices=3"), {"machine": Machine(4, cards=3)}, 1, "alone", id="cards that one process has"),
        pytest.param((), {"count": 2}, 2, "mpiexec", id="-n"),
        pytest.param(("executor.processes=2",), {}, 2, "mpiexec", id="the config's number"),
        pytest.param(("executor.processes=auto",), {"per_node": 3}, 3, "mpiexec", id="--per-node"),
        pytest.param((SERVED,), {}, 4, "one by one", id="servers and two trainers"),
        pytest.param((), {"hosts": [Host("a", 2), Host("b")]}, 3, "mpiexec", id="hosts with slots"),
        pytest.param((), {"hosts": [Host("a", 2), Host("b")], "per_node": 4}, 8, "mpiexec", id="hosts, and how many on each"),
        pytest.param((), {"hosts": [Host("a"), Host("b")], "nodes": 1}, 1, "mpiexec", id="the first of the hosts"),
        pytest.param((SERVED,), {"hosts": [Host("a", 4)]}, 4, "one by one", id="servers on hosts"),
        pytest.param((), {"where": JOB, "hosts": []}, 3, "srun", id="a job's tasks"),
        pytest.param((), {"where": SHELL}, 2, "srun", id="a job without tasks: one process for each node"),
        pytest.param((CUDA,), {"where": Allocation("1", 2, cards=4)}, 8, "srun", id="a job with cards: one process for each"),
        pytest.param((), {"where": SHELL, "per_node": 2}, 4, "srun", id="a job, and how many on each node"),
        pytest.param((), {"where": JOB, "count": 2}, 2, "srun", id="fewer than the job asks for"),
        pytest.param((), {"where": Allocation("1", 1, (), (4,))}, 1, "alone", id="a job with one node"),
        pytest.param((), {"where": JOB, "hosts": [Host("a", 2)]}, 2, "mpiexec", id="hosts inside of a job"),
        pytest.param((), {"where": TASK}, 3, "meeting", id="a task"),
        pytest.param((SERVED,), {"where": TASK}, 3, "meeting", id="a task with servers"),
        pytest.param((), {"where": Member(0, 2, "mpiexec", "mpi")}, 2, "joined", id="mpiexec"),
    ],
)
def test_what_fits_is_started(overrides, given, count, way):
    found = planned(*overrides, **given)
    assert (found.count, found.way) == (count, way)
    assert str(count) in found.why[0]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        pytest.param({"where": JOB}, "--mpi=none --nodes=2 --ntasks=3 --cpus-per-task=2", id="as the job says"),
        pytest.param({"where": SHELL}, "--mpi=none --nodes=2 --ntasks=2 --cpus-per-task=4", id="all cores of a node"),
        pytest.param({"where": SHELL, "per_node": 2}, "--mpi=none --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=2", id="halves"),
        pytest.param({"where": SHELL, "count": 1}, "--mpi=none --nodes=1 --ntasks=1 --cpus-per-task=4", id="one node of two"),
        pytest.param({"where": SHELL, "per_node": 8}, "--mpi=none --nodes=2 --ntasks=16 --ntasks-per-node=8 --overcommit", id="a crowd"),
        pytest.param({"where": SHELL, "machine": Machine(4, mpi="openmpi")}, "--mpi=pmix --nodes=2 --ntasks=2 --cpus-per-task=4",
                     id="Open MPI knows the others by PMIx"),
    ],
)  # fmt: skip
def test_tasks_get_the_cores_of_their_nodes(given, options):
    assert " ".join(planned(**given).srun) == options


def test_more_processes_than_cores_are_said():
    assert planned(count=5).crowd == "5 processes share 4 cores"
    assert planned(where=SHELL, per_node=8).crowd == "8 processes of a node share 4 cores"
    assert not planned(count=4).crowd


@pytest.mark.parametrize(
    ("overrides", "given", "message"),
    [
        pytest.param(("executor.processes=4",), {"where": TASK}, "executor.processes: 4 and srun, which has started 3", id="a task"),
        pytest.param(("executor.processes=4",), {"where": JOB}, "and SLURM_TASKS_PER_NODE, which asks for 3", id="a job"),
        pytest.param((), {"count": 4, "per_node": 3}, "-n 4 and 1 node with --per-node 3 do not go together", id="two options"),
        pytest.param((), {"count": 2, "where": TASK}, "-n 2 and srun, which has started 3", id="an option and a launcher"),
        pytest.param((), {"nodes": 2}, "--nodes 2, and this machine alone is known", id="nodes that nobody names"),
        pytest.param((), {"nodes": 3, "where": JOB}, "--nodes 3, and 2 are known", id="more nodes than there are"),
        pytest.param((), {"hosts": [Host("a")], "where": TASK}, "--hosts starts processes, and srun has started 3", id="hosts"),
        pytest.param((SERVED,), {"where": Allocation("1", 2, (1, 1))}, "of 2 processes 2 servers leave no trainer", id="servers alone"),
    ],
)
def test_numbers_that_contradict_each_other_are_named(overrides, given, message):
    with pytest.raises(PeError) as found:
        planned(*overrides, **given)
    assert message in found.value.message
    assert found.value.hint
    assert found.value.code == ExitCode.USAGE
