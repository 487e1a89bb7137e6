"""Sets when the garbage collector runs: rarely while compilers create hundreds of thousands of objects, often while steps run."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: Objects that may be made while steps run before the collector looks for cycles among them: a megabyte of them.
YOUNG = 5_000


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Look for garbage early meanwhile: what is made is looked at twice while it is young, and what lives on hardly ever."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage meanwhile, which took a tenth of the time of a compilation; what is left is collected after it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
