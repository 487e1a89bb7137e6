"""Feed and fetch slots of a plan: their addresses are looked up once, so that no step searches for them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from pe_cli.core.types import BFLOAT16, TensorType, widened
from pe_cli.devices.aligned_memory import Arena
from pe_cli.devices.protocol import Loan, Spot

Array = np.ndarray[Any, Any]


class PlanSlot:
    """A variable's place in memory.

    Args:
        spot: where it starts.
        kind: its type.
        loan: of a feed that a step can read where the caller has it, see `Step.loan`.
    """

    def __init__(self, spot: Spot, kind: TensorType, loan: Loan | None = None) -> None:
        self._spot = spot
        self._kind = kind
        self._dtype = kind.numpy
        self._rounded = kind.dtype == BFLOAT16
        self._loan = loan
        # Only the host's arenas are arrays that NumPy can look into; on a card every value is copied by the driver.
        self._view = spot.memory.view(spot.offset, kind) if isinstance(spot.memory, Arena) else None

    @property
    def place(self) -> tuple[Spot, TensorType]:
        """Where the value lies, and its type."""
        return self._spot, self._kind

    def feed(self, value: Array) -> None:
        """Make a step read a value: where it lies, or a copy."""
        loan = self._loan
        if loan is not None:
            if loan.array is value:  # as in the step before
                return
            flags = value.flags
            # A tape holds addresses: kernels go through memory one element after the other and never look at strides.
            if flags.c_contiguous and flags.aligned and value.dtype == self._dtype:
                loan.lend(value)
                return
            # What cannot be read in place is copied, and the step has to read the copy.
            loan.lend(None)
        if self._view is None:
            self._spot.memory.write(self._spot.offset, self._kind, value)
        else:
            self._view[...] = value

    def read(self) -> Array:
        """Return a copy of the value; of bfloat16, as float32."""
        value: Array = self._spot.memory.read(self._spot.offset, self._kind) if self._view is None else self._view
        # Readers of results know no bfloat16: NumPy has no such type, so it is widened, which loses nothing.
        if self._rounded:
            return cast(Array, widened(value))
        return value if self._view is None else value.copy()
