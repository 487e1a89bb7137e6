"""A kernel that does nothing, for schedules that are tried without computing."""

from __future__ import annotations

from pe_cli.kernels.lang import kernel


@kernel
def nothing():
    """Return at once."""
    return
