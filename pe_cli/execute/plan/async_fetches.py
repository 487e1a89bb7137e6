"""Values of a step that may still be running; reading one waits for the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Failure = tuple[int, list[int]] | None
Finish = Callable[[], tuple[Failure, list[Array]]]


class AsyncFetches(Mapping[str, Array]):
    """Names and values that wait for the step when a value is asked for.

    Args:
        names: of the values.
        finish: waits for the step, and returns what it reported and the values.
        complain: raises what is wrong with the step.
    """

    def __init__(self, names: Sequence[str], finish: Finish, complain: Callable[[Failure], None]) -> None:
        self._names = names
        self._finish: Finish | None = finish
        self._complain = complain
        self._values: dict[str, Array] = {}
        self._failed: Failure = None

    def settle(self) -> None:
        """Wait for the step.

        Raises:
            PeError: the step reported an error.
        """
        if self._finish is not None:
            # Taken first: a step that failed is not waited for again, and what holds its memory is let go of.
            finish, self._finish = self._finish, None
            self._failed, values = finish()
            # Also of a step that failed: who looks at a value before the error is told finds what the step left there.
            self._values = dict(zip(self._names, values, strict=True))
        self._complain(self._failed)

    def __getitem__(self, name: str) -> Array:
        """Return a value; see `settle`."""
        self.settle()
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        """Return whether there is a value of that name."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Go over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._names)
