"""The interface through which trainers and servers reach the values of their process and run programs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]
#: An array, or one with sequences, `Leveled`.
Value = Any


class Kept(Protocol):
    """Values that live between steps."""

    def has_value(self, name: str) -> bool:
        """Return whether a variable was ever written."""

    def read(self, name: str) -> Array:
        """Return a copy of a variable's value.

        Raises:
            PeError: it has none.
        """

    def write(self, name: str, value: Array) -> None:
        """Write a value."""

    def put(self, name: str, begin: int, value: Array) -> None:
        """Write some rows of a variable, from row `begin` on."""

    def rows(self, name: str, numbers: Array) -> Array:
        """Return copies of some rows of a variable."""


class Host(Kept, Protocol):
    """Values that live between steps, and programs that work on them."""

    def run(self, program: Program, fed: Mapping[str, Value], fetches: Sequence[str]) -> Mapping[str, Value]:
        """Run a program once.

        Args:
            program: not changed; of variables that are fed, the fed values count.
            fed: name -> value.
            fetches: names.

        Returns:
            Name -> value.

        Raises:
            PeError: a variable without a value, or a failing kernel.
        """
