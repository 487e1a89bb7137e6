"""Partial sums: a long sum is taken in pieces of the element type, and float64 adds up the pieces."""

from __future__ import annotations

#: Terms of one partial sum: short enough that float32 keeps its digits, long enough to vectorise.
CHUNK = 1024
