"""The launcher of MPI on this machine: where it is, and of which library."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pe_cli.collectives.mpi import INSTALL
from pe_cli.core.errors import PeError


def mpiexec_of(given: Sequence[str], library: str = "") -> str:
    """Return the path of mpiexec: the given one, else the one beside this Python, or else of the PATH.

    Args:
        given: its name with options; may be empty.
        library: that it has to belong to; empty for any.

    Raises:
        PeError: USAGE; it is not there, mpi4py is not, or it belongs to another library.
    """
    name = given[0] if given else "mpiexec"
    # The one beside this Python first: a package in the environment is meant, rather than what the system has.
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise PeError(f"{name} is not installed", hint=INSTALL)
    if importlib.util.find_spec("mpi4py") is None:
        raise PeError("the package mpi4py is not installed, over which processes talk", hint=INSTALL)
    if library and library_of(found) != library:
        text = f"{found} is not MPICH's: processes that something else has started meet by its hydra alone"
        raise PeError(text, hint="pip install mpi4py mpich; or start them with the launcher of the library")
    return found


def library_of(mpiexec: str | None) -> str:
    """Return the library of a launcher: mpich, openmpi or other; empty where there is none."""
    if mpiexec is None:
        return ""
    # Libraries say who they are in this text alone.
    try:
        said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "other"
    return "mpich" if "HYDRA" in said else "openmpi" if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said else "other"


def mpi_here() -> str:
    """Return the library of the launcher beside this Python, or else of the PATH; empty where there is none."""
    return library_of(shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec"))


def reserved(host: str) -> socket.socket:
    """Return a socket that keeps a free port from everybody but a server that binds it: it is bound, and does not listen.

    Args:
        host: address; empty for all of this machine.
    """
    kept = socket.socket()
    # It is bound and not listening: nobody can connect before the server does.
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # both have to allow it, and `create_server` does
    kept.bind((host, 0))
    return kept
