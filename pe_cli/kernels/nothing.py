"""A kernel that does nothing, for schedules that are tried without computing, and where parts of an op wait for each other."""

from __future__ import annotations

from pe_cli.kernels.lang import kernel


@kernel
def nothing():
    """Return at once."""
    return
