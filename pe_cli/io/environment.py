"""Records facts of the machine that explain a run's speed and digits, and nothing that identifies the machine or its user."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path

import pe_cli
from pe_cli.core.limits import memory, usable_cores

_PACKAGES = ("numpy", "llvmlite", "numba-cuda", "mpi4py", "safetensors", "pydantic")


def environment() -> dict[str, object]:
    """Return versions and hardware, as JSON values.

    Returns:
        pe, python, platform: texts; packages: name -> version, None when not installed; cpu: model name;
        cores: number of cores that this process may use; memory: bytes that it may use.
    """
    return {
        "pe": pe_cli.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory": memory(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the name of the CPU as the kernel gives it, else the architecture."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()


def peak_memory() -> int:
    """Return the most bytes that were resident in this process at a time.

    Not `getrusage`'s figure where the kernel gives another: a process that a large one started begins with that one's.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return 1024 * int(text.split("VmHWM:")[1].split()[0])
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
