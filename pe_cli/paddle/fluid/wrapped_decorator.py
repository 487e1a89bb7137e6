"""fluid.wrapped_decorator: decorators that keep the name and the arguments of what they decorate."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def wrap_decorator(decorator_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that shows the name, the text and the arguments of the decorated function."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def called(*args: Any, **given: Any) -> Any:
            return decorator_func(func)(*args, **given)

        return called

    return decorate


signature_safe_contextmanager = wrap_decorator(contextlib.contextmanager)

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]
