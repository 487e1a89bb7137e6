"""Starting several processes with mpiexec, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pe_cli
from tests.needs import needs

#: The launcher that belongs to this environment, else any other.
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


def _is_mpich() -> bool:
    """Whether the launcher is MPICH's: of others, options and the variable with the rank are called otherwise."""
    if MPIEXEC is None or importlib.util.find_spec("mpi4py") is None:
        return False
    return "HYDRA" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, timeout=60).stdout


needs_mpi = needs(_is_mpich(), "mpi4py and MPICH's mpiexec", "pip install '.[mpi]'")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}


def mpiexec(processes: int, *command: object) -> subprocess.Popen[str]:
    """Start a Python command in several processes."""
    line = [str(MPIEXEC), "-n", str(processes), sys.executable, *map(str, command)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def finished(started: subprocess.Popen[str], seconds: float = 120.0) -> tuple[int, str, str]:
    """Return exit code, output and errors; whatever still runs then is killed."""
    try:
        out, err = started.communicate(timeout=seconds)
    finally:
        started.kill()
    return started.returncode, out, err
