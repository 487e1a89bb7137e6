"""A kernel that does nothing: for schedules tried without computing, and as a barrier between the parts of an op."""

from __future__ import annotations

from pe_cli.kernels.language import kernel


@kernel
def nothing():
    """Return at once."""
    return
