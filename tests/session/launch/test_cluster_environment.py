"""From the variables of a process to where it is: each launcher's own, as that launcher sets them, and those that contradict each other."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.launch.cluster_environment import (
    Allocation,
    ClusterEnvironment,
    Machine,
    Member,
    find_cluster_environment,
)

HERE = Machine(cores=8)
#: As Slurm 22.05 sets them in the script of `sbatch -N2 --ntasks=3 --cpus-per-task=2`, and in its `srun`.
SCRIPT = {
    "SLURM_JOB_ID": "14", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_NTASKS": "3", "SLURM_NPROCS": "3", "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_TASKS_PER_NODE": "2,1", "SLURM_JOB_CPUS_PER_NODE": "4,2", "SLURM_CPUS_PER_TASK": "2",
    "SLURM_JOB_NODELIST": "n[1-2]",
}  # fmt: skip
STEP = SCRIPT | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_PROCID": "1"}
#: As `salloc -N2` sets them, which asks for no number of tasks: Slurm counts one for each node's cores.
SHELL = {"SLURM_JOB_ID": "15", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_JOB_CPUS_PER_NODE": "4(x2)"}
#: As torchrun sets them.
TORCH = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
POD = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "5", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
OPEN = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"}


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        pytest.param({}, None, id="a machine"),
        pytest.param({"HOME": "/root", "SLURM_CONF": "/etc/slurm.conf"}, None, id="a login node"),
        pytest.param(SCRIPT, Allocation("14", 2, (2, 1), (4, 2), 2), id="the script of a job"),
        pytest.param(SHELL, Allocation("15", 2, (), (4, 4)), id="a shell of salloc without tasks"),
        pytest.param(SHELL | {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, Allocation("15", 2, (), (4, 4)),
                     id="its interactive step"),
        pytest.param(SCRIPT | {"SLURM_GPUS_ON_NODE": "4"}, Allocation("14", 2, (2, 1), (4, 2), 2, 4), id="a job with cards"),
        pytest.param(STEP, Member(1, 3, "srun", "file", job="14.0.0", here=2), id="a task"),
        pytest.param(STEP | {"SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_RESTART_COUNT": "1"},
                     Member(2, 3, "srun", "file", job="14.0.1", here=1), id="the task of the smaller node, after a requeue"),
        pytest.param(STEP | {"PMI_RANK": "1", "PMI_SIZE": "3", "PMI_FD": "11"}, Member(1, 3, "srun", "file", job="14.0.0", here=2),
                     id="a task with Slurm's PMI, which MPICH does not go with"),
        pytest.param(STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None, id="a shell of srun --pty"),
        pytest.param(STEP | HYDRA, Member(1, 2, "mpiexec", "mpi"), id="mpiexec inside of a job"),
        pytest.param(HYDRA, Member(1, 2, "mpiexec", "mpi"), id="MPICH's mpiexec"),
        pytest.param(OPEN, Member(0, 2, "Open MPI's mpiexec", "mpi"), id="Open MPI's"),
        pytest.param(TORCH, Member(3, 4, "a launcher like torchrun", "address", "node-a:29500", here=2), id="torchrun"),
        pytest.param({**TORCH, "MASTER_ADDR": "fe80::1"}, Member(3, 4, "a launcher like torchrun", "address", "[fe80::1]:29500", here=2),
                     id="an address with colons"),
        pytest.param(POD | {"MASTER_ADDR": "job-0.net"}, Member(2, 4, "an indexed Job", "address", "job-0.net:6174"), id="a pod"),
        pytest.param({"PE_RANK": "1", "PE_SIZE": "2", "MASTER_ADDR": "a"}, Member(1, 2, "pe launch", "address", "a:6174"), id="pe's own"),
        pytest.param({"RANK": "0", "WORLD_SIZE": "1"}, None, id="one alone"),
    ],
)  # fmt: skip
def test_variables_say_where_it_is(variables, where):
    found = find_cluster_environment(variables, HERE)
    assert found.where == where
    assert all(word.partition("=")[0] in variables for word in found.why.split())


def test_a_pod_knows_the_first_one_by_its_own_name():
    found = find_cluster_environment(POD, Machine(cores=2, name="clicks-2.clicks.default.svc.cluster.local"))
    assert isinstance(found.where, Member)
    assert found.where.address == "clicks-0.clicks.default.svc.cluster.local:6174"
    with pytest.raises(PeError, match="no variable says where the first process is"):
        find_cluster_environment(POD, Machine(cores=2, name="clicks-7.clicks"))


def test_tasks_with_pmix_are_those_of_open_mpi_alone():
    variables = STEP | {"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.14.0"}
    assert find_cluster_environment(variables, Machine(8, mpi="openmpi")).where == Member(1, 3, "srun", "mpi")
    assert find_cluster_environment(variables, HERE).where == Member(1, 3, "srun", "file", job="14.0.0", here=2)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        pytest.param(TORCH | {"RANK": "4"}, "RANK says 4, and WORLD_SIZE says 4", id="a rank too high"),
        pytest.param(TORCH | {"RANK": "-1"}, "RANK must be a number from 0 to 4096, got '-1'", id="a rank below 0"),
        pytest.param(TORCH | {"WORLD_SIZE": "four"}, "WORLD_SIZE must be a number", id="no number"),
        pytest.param(TORCH | {"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE must be a number", id="5,000 digits"),
        pytest.param(TORCH | {"MASTER_PORT": "0"}, "MASTER_PORT must be a number from 1 to 65535", id="no port"),
        pytest.param(TORCH | {"MASTER_ADDR": "a; rm -rf /"}, "MASTER_ADDR is no host", id="a command"),
        pytest.param({"RANK": "1"}, "no variable says of how many", id="a rank alone"),
        pytest.param({"WORLD_SIZE": "2"}, "WORLD_SIZE says 2, and no variable says which process this is", id="a size alone"),
        pytest.param({"RANK": "1", "WORLD_SIZE": "2"}, "no variable says where the first process is", id="no address"),
        pytest.param(POD | TORCH, "JOB_COMPLETION_INDEX says 2, and RANK stands for process 3 of 4", id="a pod and torchrun"),
        pytest.param(STEP | TORCH, "RANK says 3, and SLURM_PROCID stands for process 1 of 3", id="a task and torchrun"),
        pytest.param({**TORCH, "PE_RANK": "3", "PE_SIZE": "8"}, "WORLD_SIZE says 4, and PE_RANK stands for process 3 of 8", id="two sizes"),
        pytest.param(HYDRA | {"PMI_RANK": "2"}, "PMI_RANK says 2, and PMI_SIZE says 2", id="mpiexec's own"),
    ],
)  # fmt: skip
def test_variables_that_contradict_each_other_are_named(variables, message):
    with pytest.raises(PeError) as found:
        find_cluster_environment(variables, HERE)
    assert message in found.value.message
    assert found.value.hint
    assert found.value.code == ExitCode.USAGE


def test_nothing_else_of_the_environment_is_looked_at():
    odd = dict.fromkeys(("PATH", "SLURMD_NODENAME", "PMI_SIZE", "PMIX_RANK"), "odd")
    assert find_cluster_environment(odd, HERE) == ClusterEnvironment()
