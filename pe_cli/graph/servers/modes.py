"""The modes in which trainers and parameter servers work together: synchronous, asynchronous and others."""

from __future__ import annotations


class DistributedMode:
    """What servers do with gradients: wait for all trainers, apply them as they come, or add up what trainers have learned."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3
