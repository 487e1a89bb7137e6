"""Starting several processes with mpiexec, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pe_cli

#: The launcher that belongs to this environment, else any other.
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="mpi4py or mpiexec is not installed"
)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}


def mpiexec(processes: int, *command: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a Python command in several processes."""
    line = [str(MPIEXEC), *options, "-n", str(processes), sys.executable, *map(str, command)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def finished(started: subprocess.Popen[str], seconds: float = 120.0) -> tuple[int, str, str]:
    """Return exit code, output and errors; whatever still runs then is killed."""
    try:
        out, err = started.communicate(timeout=seconds)
    finally:
        started.kill()
    return started.returncode, out, err
