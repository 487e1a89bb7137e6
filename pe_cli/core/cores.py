"""The cores that this process may run on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return how many cores this process may run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
