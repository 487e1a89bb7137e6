"""The start of MPI: launchers that do not match, and processes that never come."""

from __future__ import annotations

import pytest

from pe_cli.collectives.launcher_environment import processes_here, started_by
from pe_cli.collectives.startup_watch import check_size
from pe_cli.core.errors import ExitCode, PeError
from tests.mpi_support import finished, mpiexec, needs_mpi


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0"}, "srun has started 4 .SLURM_NTASKS."),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "the job has 4 .SLURM_NTASKS., which no launcher has started"),  # its script
        ({"SLURM_NTASKS": "4"}, "the job has 4 .SLURM_NTASKS., which no launcher has started"),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "MPICH's mpiexec has started 3 .PMI_SIZE."),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "Open MPI's mpiexec has started 2 .OMPI_COMM_WORLD_SIZE."),
    ],
)
def test_to_be_alone_where_a_launcher_started_several_is_an_error_with_a_remedy(environment, launcher):
    with pytest.raises(PeError, match=launcher) as found:
        check_size(1, environment)
    assert found.value.code == ExitCode.USAGE
    assert "mpiexec" in str(found.value.hint)
    check_size(2, environment)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"},
        {"PMI_SIZE": "two"},
        {"PMI_SIZE": "1", "PMI_RANK": "0", "SLURM_NTASKS": "4"},  # mpiexec -n 1 in a job of four
    ],
)
def test_one_process_may_be_alone(environment):
    check_size(1, environment)


@pytest.mark.parametrize(
    ("environment", "count"),
    [({}, 1), ({"MPI_LOCALNRANKS": "4", "PMI_SIZE": "8"}, 4), ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2), ({"MPI_LOCALNRANKS": "0"}, 1)],
)
def test_the_launcher_says_how_many_processes_share_the_memory_of_the_machine(environment, count):
    assert processes_here(environment) == count


def test_the_launcher_says_which_process_this_is():
    started = started_by({"PMI_SIZE": "3", "PMI_RANK": "2", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"})
    assert started is not None
    assert (started.size, started.rank) == (3, 2)


@pytest.mark.parametrize(
    ("said", "group"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "prterun-a-7@1"}, "prterun-a-7@1"),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "11", "SLURM_STEP_ID": "3"}, "11.3"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0", "SLURM_JOB_ID": "11", "SLURM_STEP_ID": "3"}, ""),
    ],
)
def test_the_launcher_says_which_processes_it_has_started_together(said, group):
    started = started_by(said)
    assert started is not None
    assert started.group == group


#: The second process never comes to MPI.
LATE = """
import os, time
if os.environ["PMI_RANK"] == "1":
    time.sleep(100)
from pe_cli.collectives.mpi import MpiPeers
MpiPeers(2.0)
"""


@needs_mpi
def test_a_process_that_never_comes_ends_the_others_and_the_launcher_with_6():
    code, _, err = finished(mpiexec(3, "-c", LATE), 60)
    assert code == ExitCode.PEER_LOST, err
    assert "MPI has not started after 2 seconds: of 3 processes one has ended, or never came" in err
