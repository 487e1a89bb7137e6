"""Modules of the original and the names in them, as PaddlePaddle 1.8.5 has them: `reference_modules.txt`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Recorded:
    """Names of a module.

    Args:
        own: those that it defines.
        taken: name -> module that it is taken from.
        modules: name -> module that it is.
    """

    own: frozenset[str] = frozenset()
    taken: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self.own, *self.taken, *self.modules})


@functools.cache
def recorded() -> Mapping[str, Recorded]:
    """Return the names of every module, by its full name."""
    lines = (Path(__file__).parent / "reference_modules.txt").read_text(encoding="utf-8").splitlines()
    return dict(_parsed(line) for line in lines if not line.startswith("#"))


def _parsed(line: str) -> tuple[str, Recorded]:
    head, *rest = line.split("; ")
    module, _, own = head.partition(": ")
    taken: dict[str, str] = {}
    modules: dict[str, str] = {}
    for part in rest:
        source, _, names = part.partition(": ")
        for name in names.split():
            (modules if name.startswith("[") else taken)[name.strip("[]")] = source
    return module, Recorded(frozenset(own.split()), taken, modules)
