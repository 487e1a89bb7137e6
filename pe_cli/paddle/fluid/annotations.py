"""fluid.annotations: what marks a function that is deprecated."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: a call of the function warns that it is deprecated.

    Args:
        since: version.
        instead: what to call.
        extra_message: a further sentence.
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        said = f"{func.__name__} is deprecated since {since}, please use {instead} instead. {extra_message}".rstrip()

        @functools.wraps(func)
        def called(*args: Any, **given: Any) -> Any:
            warnings.warn(said, DeprecationWarning, stacklevel=2)
            return func(*args, **given)

        return called

    return decorate


__all__ = ["deprecated"]
