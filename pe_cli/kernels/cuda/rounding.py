"""Rounding of CUDA kernels: after every operation as written, or once for a product and the sum that it enters (fused multiply-add).

A function says which by its qualified name, which comes as far as LLVM's text. PTX says of every operation that it is rounded: of those
that do not say so, what makes machine code joins any product with any sum, also those of functions that a pass has put into one kernel,
and a function would have other bits there than alone.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator

#: Begins the qualified name of a function that rounds after every operation as written.
EXACT = "as_written_"
_JOINED = re.compile(r"= (fmul|fadd|fsub) (?=float|double)")


def exactly(fn: types.FunctionType, exact: bool) -> types.FunctionType:
    """Return a function, marked where it rounds as written."""
    if exact:
        fn.__qualname__ = f"{EXACT}{fn.__qualname__}"
    return fn


def is_exact(fn: types.FunctionType) -> bool:
    """Return whether a function is marked so."""
    return fn.__qualname__.startswith(EXACT)


def joinable(text: str) -> Iterator[str]:
    """Yield the lines of LLVM's text, which let products and sums be joined in functions that are not marked."""
    exact = False
    for line in text.splitlines():
        if line.startswith("define"):
            exact = EXACT in line
        yield line if exact else _JOINED.sub(r"= \1 contract ", line)
