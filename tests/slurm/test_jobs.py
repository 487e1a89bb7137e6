"""What Slurm does with trainings: tasks on nodes have the bits of devices, and what Slurm ends is said with its exit code."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode
from tests.mpi_support import ENVIRONMENT, needs_mpi
from tests.needs import needs
from tests.rotation import on_its_day
from tests.slurm.conftest import Cluster, usable

pytestmark = [
    needs(usable(), "Slurm, as root", "apt-get install slurmctld slurmd slurm-client"),
    needs_mpi,
    on_its_day(0, of=3),
]
DIGITS = Path(__file__).parents[2] / "configs" / "digits.yaml"
SHORT = ("--quiet", "-o", "output.dir=runs", "-o", "train.epochs=1")
LONG = ("--quiet", "-o", "output.dir=runs", "-o", "train.epochs=100000", "-o", "executor.peer_timeout=40")


def parameters(folder: Path) -> str:
    (found,) = folder.glob("runs/*/checkpoints/step-23/params.safetensors")
    return hashlib.sha256(found.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The parameters that one process with two devices has trained."""
    folder = tmp_path_factory.mktemp("alone")
    command = [sys.executable, "-m", "pe_cli", "train", str(DIGITS), *SHORT, "-o", "executor.devices=2"]
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, timeout=600)
    return parameters(folder)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("salloc", "-N2", "PE"), id="two nodes of a job"),
        pytest.param(("salloc", "-N1", "-n2", "PE"), id="two tasks of a node"),
        pytest.param(("srun", "--mpi=pmi2", "-N2", "-n2", "PE"), id="tasks of srun, below its PMI"),
    ],
)
def test_tasks_have_the_bits_of_devices(cluster: Cluster, tmp_path: Path, alone: str, command: tuple[str, ...]) -> None:
    code, out, err = cluster.ran(tmp_path, *command, "launch", DIGITS, *SHORT, "-o", "executor.devices=1")
    assert code == ExitCode.DONE, err
    assert out.count("done: step 23") == 1
    assert parameters(tmp_path) == alone
    assert [each.name for each in (tmp_path / "runs").iterdir() if each.name.startswith(".")] == []


def test_what_slurm_cuts_is_an_error_with_the_remedy(cluster: Cluster, tmp_path: Path) -> None:
    code, _, err = cluster.ran(tmp_path, "srun", "--mpi=pmi2", "-N2", "-n2", "PE", "train", DIGITS, *SHORT, "-o", "executor.processes=auto")
    assert code == ExitCode.USAGE
    assert "Slurm cuts what it says of itself after 1,024 bytes" in err
    assert "hint: pe launch CONFIG in place of pe train CONFIG" in err


def trained(process: subprocess.Popen[str], folder: Path) -> None:
    """Wait until a run has begun its steps."""
    until = time.monotonic() + 300
    while not any(each.stat().st_size for each in folder.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)


def test_scancel_stops_all_with_a_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    process = cluster.started(tmp_path, "salloc", "-N2", "PE", "launch", DIGITS, *LONG)
    trained(process, tmp_path)
    job = subprocess.run(["squeue", "-h", "-o", "%i"], env=cluster.environment, capture_output=True, text=True, timeout=60).stdout.strip()
    cluster.ran(tmp_path, "scancel", "--signal=TERM", job)
    _, err = process.communicate(timeout=300)
    assert process.returncode == ExitCode.STOPPED, err
    assert list(tmp_path.glob("runs/*/checkpoints/step-*"))


def test_a_killed_task_ends_all_with_6(cluster: Cluster, tmp_path: Path) -> None:
    process = cluster.started(tmp_path, "salloc", "-N2", "PE", "launch", DIGITS, *LONG)
    trained(process, tmp_path)
    (run,) = tmp_path.glob("runs/digits-*")
    held = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _is_follower(each, tmp_path)]
    assert held
    os.kill(held[0], signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == ExitCode.PEER_LOST, err
    assert '"failed"' in (run / "status.json").read_text()


def _is_follower(process: Path, folder: Path) -> bool:
    """Whether a process is the second task, which has started a proxy."""
    try:
        words, about = (process / "cmdline").read_bytes().split(b"\0"), (process / "environ").read_bytes().split(b"\0")
        here = (process / "cwd").resolve() == folder
    except OSError:
        return False
    return here and b"launch" in words and b"SLURM_PROCID=1" in about and b"SLURM_STEP_ID=0" in about


def test_a_job_that_has_ended_is_named(cluster: Cluster, tmp_path: Path) -> None:
    said = cluster.ran(tmp_path, "salloc", "-N2", "env")[1]
    variables = dict(line.split("=", 1) for line in said.splitlines() if line.startswith("SLURM_"))
    command = [sys.executable, "-m", "pe_cli", "launch", str(DIGITS), *SHORT]
    found = subprocess.run(command, cwd=tmp_path, env=cluster.environment | variables, capture_output=True, text=True, timeout=300)
    assert found.returncode == ExitCode.USAGE
    assert f"job {variables['SLURM_JOB_ID']} of Slurm's has ended" in found.stderr
    assert "unset SLURM_JOB_ID" in found.stderr
