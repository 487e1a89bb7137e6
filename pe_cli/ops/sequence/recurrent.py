"""What recurrent ops over sequences share: the order in which rows are done, activations of whole rows, copies by index.

Rows are done step by step: first the first rows of all sequences, the longest sequence first, then the second rows, ... So the
sequences that are still going on are always the first ones of the step before, and one matrix product does a step for all.
"""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import SIZE, T, helper, pointer
from pe_cli.kernels.math.vector_math import sigmoid, tanh
from pe_cli.ops.define.lod import Indices, LodRequest, lengths_of, ranges, sequence_count
from pe_cli.ops.define.registry import Attr

#: Activations by number, as kernels have them.
ACTS = ("sigmoid", "tanh", "relu", "identity")
HOST_SLOTS = "Order Begins Sorted Offsets"


def act_attr(default: str, what: str) -> Attr:
    """Return the attribute of an activation."""
    return Attr(default, what, ACTS)


# --- made before a step -----------------------------------------------------------------------------------------------


def sorted_sequences(offsets: Indices) -> Indices:
    """Return the sequences that have rows, the longest first, equal ones in order."""
    lengths = lengths_of(offsets)
    # Sequences without rows take part in no step, and a stable order keeps equal lengths in the order that they were fed in: results do not
    # depend on the sorting algorithm.
    return np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]


def _going_on(offsets: Indices) -> Indices:
    """Return for every step how many sequences have it."""
    lengths = lengths_of(offsets)
    counts = np.bincount(lengths, minlength=1)
    # Counted from the longest down, the sequences of at least t + 1 rows are those that have step t; entry 0, of at least 0 rows, is
    # dropped.
    return np.cumsum(counts[::-1])[::-1][1:]


def step_begins(offsets: Indices) -> Indices:
    """Return the number of rows before every step, and of all, int64 [steps + 1]."""
    return np.concatenate([[0], np.cumsum(_going_on(offsets))])


def row_order(offsets: Indices, *, is_reverse: bool) -> Indices:
    """Return the rows in the order in which they are done."""
    counts, rank = _going_on(offsets), sorted_sequences(offsets)
    steps = np.repeat(np.arange(len(counts)), counts)
    # Within step t the sequences are the first counts[t] of the order of lengths.
    sequence = rank[ranges(np.zeros(len(counts)), counts)]
    return offsets[sequence + 1] - 1 - steps if is_reverse else offsets[sequence] + steps


def give_order(s: LodRequest) -> None:
    """Fill the slots of HOST_SLOTS from the sequences of Input."""
    offsets = s.offsets("Input")
    s.give("Order", s.derive(row_order, offsets, is_reverse=s.attrs["is_reverse"]))
    s.give("Begins", s.derive(step_begins, offsets))
    s.give("Sorted", s.derive(sorted_sequences, offsets))
    s.give("Offsets", offsets)


def host_samples(*lengths: int, is_reverse: bool = False):
    """Return the slots of HOST_SLOTS for sample inputs."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    made = {
        "Order": row_order(offsets, is_reverse=is_reverse),
        "Begins": step_begins(offsets),
        "Sorted": sorted_sequences(offsets),
        "Offsets": offsets,
    }
    return {slot: (lambda rng, value=value: value.astype(np.int64)) for slot, value in made.items()}


def check_states(
    name: str, offsets: TensorType | None, states: dict[str, tuple[TensorType | None, int]], dtype: str
) -> None:
    """Check the types of first states.

    Args:
        name: of the op.
        offsets: of the sequences.
        states: slot -> its type and width.
        dtype: of the input.

    Raises:
        PeError: one does not fit.
    """
    count = sequence_count(offsets)
    for slot, (kind, width) in states.items():
        if kind is not None and count >= 0 and kind.shape[0] not in (-1, count):
            raise PeError(f"{name}: {slot} is {kind}, but there are {count} sequences", hint="one row for each")
        if kind is not None and (len(kind.shape) != 2 or kind.shape[1] != width or kind.dtype != dtype):
            raise PeError(f"{name}: {slot} is {kind}, but should be {dtype}[sequences, {width}]")


# --- inside kernels ---------------------------------------------------------------------------------------------------


@helper
def activate(code, x, n):
    """x[0 .. n) = act(x) at an address; codes are places in ACTS."""
    p = pointer(x)
    if code == 0:
        for i in range(n):
            p[i] = sigmoid(p[i])
    elif code == 1:
        for i in range(n):
            p[i] = tanh(p[i])
    elif code == 2:
        for i in range(n):
            # A NaN is kept: `p > 0` alone would turn it into 0 and hide it.
            p[i] = p[i] if p[i] > 0 or p[i] != p[i] else T(0)


@helper
def times_slope(code, d, y, n):
    """d[0 .. n) *= act'(x) where y = act(x)."""
    # The slope is written by the value, not by the argument: for all four activations y is enough, so x needs no memory after the forward
    # pass.
    p = pointer(d)
    q = pointer(y)
    if code == 0:
        for i in range(n):
            p[i] *= q[i] * (T(1) - q[i])
    elif code == 1:
        for i in range(n):
            p[i] *= T(1) - q[i] * q[i]
    elif code == 2:
        for i in range(n):
            p[i] = p[i] if q[i] > 0 else T(0)


@helper
def copy_row(source, target, n):
    """Copy n elements between addresses."""
    p = pointer(source)
    q = pointer(target)
    for i in range(n):
        q[i] = p[i]


@helper
def zero_rows(target, n):
    """Write n zeros at an address."""
    q = pointer(target)
    for i in range(n):
        q[i] = T(0)


@helper
def rows_before(values, first, has_first, order, begins, ranks, steps, width, out):
    """out[b + p] = the state before step t of the sequence at place p: that of its row before, first's at step 0, or zeros."""
    for t in range(steps):
        begin = begins[t]
        for p in range(begins[t + 1] - begin):
            to = out + SIZE * (begin + p) * width
            if t > 0:
                copy_row(values + SIZE * order[begins[t - 1] + p] * width, to, width)
            elif has_first:
                copy_row(first + SIZE * ranks[p] * width, to, width)
            else:
                zero_rows(to, width)
