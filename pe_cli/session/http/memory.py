"""A budget of memory that all requests share; it is reserved before memory is taken."""

from __future__ import annotations

#: What connections cannot take of it: the rest stays for small requests when large ones fill theirs.
_RESERVED = 4


class Memory:
    """Bytes that requests hold; used by one thread.

    Large bodies share three quarters of it, small ones may take all.

    Args:
        limit: bytes.
        small: bytes up to which one holder is a small one.
    """

    def __init__(self, limit: int, small: int = 64 << 10) -> None:
        self.limit, self._small = limit, small
        self.used = 0

    def fits(self, more: int, held: int = 0) -> bool:
        """Whether a request that holds some bytes may take more of them."""
        # Small requests still get through while large ones fill what is theirs.
        limit = self.limit if held + more <= self._small else self.limit - self.limit // _RESERVED
        return self.used + more <= limit

    def take(self, more: int) -> None:
        """Count bytes that are taken, or given back where the number is negative."""
        self.used += more
