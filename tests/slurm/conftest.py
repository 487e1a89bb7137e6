"""A Slurm with two nodes on this machine, as Debian and Ubuntu package it: without munge, which would need a user and a key."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mpi_support import ENVIRONMENT

PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "squeue")
#: The controller and the nodes; Slurm takes a machine's second node by its port.
SETTINGS = """
ClusterName=pe
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def usable() -> bool:
    """Whether Slurm is installed, and this user may start it."""
    return all(map(shutil.which, PROGRAMS)) and os.geteuid() == 0


class Cluster:
    """A running Slurm.

    Args:
        folder: of its settings, logs and state.
    """

    def __init__(self, folder: Path) -> None:
        self.environment = ENVIRONMENT | {"SLURM_CONF": str(folder / "slurm.conf"), "UCX_TLS": "tcp,self,sm"}

    def started(self, folder: Path, *command: object) -> subprocess.Popen[str]:
        """Start a command of Slurm's in a folder; PE stands for `python -m pe_cli`."""
        words = [word for each in command for word in ((sys.executable, "-m", "pe_cli") if each == "PE" else (str(each),))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, cwd=folder, env=self.environment, text=True, **pipes)

    def ran(self, folder: Path, *command: object) -> tuple[int, str, str]:
        """Run a command of Slurm's in a folder; return its exit code, what it said, and its errors."""
        process = self.started(folder, *command)
        try:
            out, err = process.communicate(timeout=600)
        finally:
            process.kill()
        return process.returncode, out, err

    def up(self) -> bool:
        """Whether both nodes take jobs."""
        said = subprocess.run(["sinfo", "-h", "-o", "%D %t"], env=self.environment, capture_output=True, text=True, timeout=60).stdout
        return said.strip() == "2 idle"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with contextlib.ExitStack() as kept:
        free = [kept.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [each.getsockname()[1] for each in free]
    settings = folder / "slurm.conf"
    settings.write_text(SETTINGS.format(ports=ports, folder=folder))
    for name in ("state", "n1", "n2"):
        (folder / name).mkdir()
    found = Cluster(folder)
    daemons = [("slurmctld", "-D", "-c"), *(("slurmd", "-D", "-N", name) for name in ("n1", "n2"))]
    processes = [
        subprocess.Popen([name, "-f", str(settings), *rest], env=found.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name, *rest in daemons
    ]
    try:
        until = time.monotonic() + 120
        while not found.up():
            assert time.monotonic() < until, (folder / "controller.log").read_text()
            time.sleep(0.2)
        yield found
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
