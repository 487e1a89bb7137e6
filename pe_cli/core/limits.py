"""What this process may use of the machine: cores and memory, by its affinity and by the limits of its containers (cgroups 1 and 2)."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: Where the kernel says in which groups a process is, and where their files are.
_GROUPS, _MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")


def usable_cores() -> int:
    """Return how many cores this process may keep busy, at least 1: those of its affinity, or as many as its quota of time is worth.

    A quota of a core and a half is worth two: threads that wait for each other do one and a half core's work then.
    """
    # The affinity first: a launcher that binds processes to cores says it there alone.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, math.ceil(min(cores, _quota())))


def memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or the least that a group of it is allowed; 2**63 if unknown."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _allowed())
    return _allowed()


@cache
def _quota() -> float:
    """Return the cores whose time the groups of this process are given; infinite where they may use all."""
    shares = [math.inf]
    for folder in _folders("cpu"):
        with contextlib.suppress(OSError, ValueError):  # version 2: "max 100000", or "150000 100000"
            time, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            shares += [int(time) / int(period)] if time != "max" and int(period) > 0 else []
        with contextlib.suppress(OSError, ValueError):  # version 1: -1 is no limit
            time, period = ((folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
            shares += [int(time) / int(period)] if int(time) > 0 and int(period) > 0 else []
    return min(shares)


@cache
def _allowed() -> int:
    """Return the least number of bytes that a group of this process is allowed; 2**63 where there is no limit."""
    sizes = [2**63]
    for folder in _folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                sizes.append(int((folder / name).read_text(encoding="ascii")))
    # Some kernels write 0 for a group that is being removed.
    return min(size for size in sizes if size > 0)


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of the groups of this process, from its own one up, for all hierarchies that may limit something.

    A container sees its own group as the root of a mount; some show the path outside of it none the less, which is not there then.
    """
    try:
        groups = [line.split(":", 2) for line in _GROUPS.read_text(encoding="utf-8", errors="replace").splitlines()]
        mounts = [line.split(" ") for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and controller not in controllers.split(","):
            continue
        for mount in mounts:
            kind, *_, options = mount[mount.index("-") + 1 :] if "-" in mount else [""]
            if kind == ("cgroup" if controllers else "cgroup2") and (not controllers or controller in options.split(",")):
                root, at = mount[3], Path(mount[4])
                # Inside of a container the path is that of the host, and the mount shows only what is below its root.
                inner = path.removeprefix(root.rstrip("/")) if path.startswith(root) else path
                below = at / inner.lstrip("/")
                # A parent group's limit counts as well: a job may have none, and its user one.
                yield from [below, *below.parents][: len(below.parts) - len(at.parts) + 1]
