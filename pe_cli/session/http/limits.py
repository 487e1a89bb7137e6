"""The limits on what clients may use of a server: connections, sizes and times."""

from __future__ import annotations

from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Limits:
    """What strangers may take.

    Args:
        connections: at a time.
        body: bytes of a request's body.
        memory: bytes of all requests that are being read, and of answers that are being sent.
        request: seconds for a request to be whole from its first byte on, and for its answer to be taken.
        idle: seconds that a connection may be silent.
        grace: seconds in which requests that are on their way are answered at the end; those that are not whole have a part of it.
    """

    connections: int = 256
    body: int = 0
    memory: int = 16 << 20
    request: float = 15.0
    idle: float = 75.0
    grace: float = 30.0
