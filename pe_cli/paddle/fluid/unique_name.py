"""unique_name: counters that give variables their names, one generator for all programs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any


class UniqueNameGenerator:
    """Counts how often a name was asked for.

    Args:
        prefix: in front of every name.
    """

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix or ""
        self.ids: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """Return `key_0`, `key_1`, ..."""
    return generator(key)


def generate_with_ignorable_key(key: str) -> str:
    """Return such a name for a variable whose own name says little."""
    return generator(key)


def switch(new_generator: UniqueNameGenerator | None = None, new_para_name_checker: Any = None) -> UniqueNameGenerator:
    """Make another generator the current one and return the one before; names of parameters need no checker here."""
    # Of the module: names are counted over all programs of a process, as in the original.
    global generator
    before, generator = generator, UniqueNameGenerator() if new_generator is None else new_generator
    return before


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Use a fresh generator inside, or the given one; a text is its prefix."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    made = UniqueNameGenerator(new_generator) if isinstance(new_generator, str) else new_generator
    before = switch(made)
    try:
        yield
    finally:
        switch(before)
