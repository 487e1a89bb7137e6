"""Partial sums: a long sum is taken in pieces of the element type, which float64 adds up."""

from __future__ import annotations

#: Terms of one partial sum: short enough that float32 keeps its digits, long enough to vectorise.
CHUNK = 1024
