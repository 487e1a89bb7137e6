"""What a training step over processes costs: a model with four numbers, fitted to what was measured, and used where nobody can measure.

A sum over N processes takes 2 log2 N messages one after the other, and 2 (N - 1) / N times its bytes on the way:

    sum(S, N) = messages(N) * latency + bytes(S, N) * (1 / bandwidth + handling)

`handling` is what the software itself takes for a byte, with a network without a limit. A step begins with the forward pass, a third of
what it computes; then gradients come, bucket by bucket, and sums run beside the backward pass. Either computing or the sums are last:

    step(N) = max(forward + backward / n + sums, compute + sums / n) + control,   n buckets

`control` is the small sum of numbers that ends each step: log2 N messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pe_cli.core.strategy import BuildStrategy
from pe_cli.graph.replicate import bucket_bytes

#: Share of computing that comes before the first gradient, and bytes of a bucket that are asked for where nobody says otherwise.
FORWARD, BUCKET = 1 / 3, BuildStrategy().fuse_all_reduce_bytes
#: Steps of the search for a fit.
ROUNDS = 100


def messages(size: int) -> int:
    """Return the messages of one sum that come one after the other; where processes are folded there are three more."""
    levels = size.bit_length() - 1
    return 2 * levels + 3 * (size != 1 << levels)


def sent(nbytes: float, size: int) -> float:
    """Return the bytes on the way one after the other for one sum: twice more for those that are folded.

    >>> sent(1.0, 1), sent(1.0, 2), sent(1.0, 4), sent(1.0, 3)
    (0.0, 1.0, 1.5, 3.0)
    """
    whole = 1 << (size.bit_length() - 1)
    return 2 * nbytes * (whole - 1) / whole + (2 * nbytes if whole != size else 0.0)


def buckets(nbytes: float, bucket: int = BUCKET) -> int:
    """Return the sums of a step."""
    return max(1, math.ceil(nbytes / bucket_bytes(bucket, int(nbytes))))


@dataclass(frozen=True)
class Costs:
    """What was fitted.

    Args:
        latency: seconds of a message, of the network and of the software.
        bandwidth: bytes a second that a process can send.
        handling: seconds of the software for a byte.
    """

    latency: float
    bandwidth: float
    handling: float = 0.0

    def sum(self, nbytes: float, size: int, count: int = 1) -> float:
        """Return the seconds of sums over so many processes.

        Args:
            nbytes: of all sums together.
            size: processes.
            count: sums that the bytes are in.
        """
        return count * messages(size) * self.latency + sent(nbytes, size) * (1 / self.bandwidth + self.handling)

    def step(self, nbytes: float, size: int, compute: float, count: int) -> float:
        """Return the seconds of a step.

        Args:
            nbytes: of all gradients.
            size: processes.
            compute: seconds that a process computes for its samples.
            count: buckets.
        """
        return overlapped(compute, self.sum(nbytes, size, count), count) + math.ceil(math.log2(size)) * self.latency


def overlapped(compute: float, sums: float, count: int) -> float:
    """Return the seconds of a step whose sums, in so many buckets, run beside the backward pass."""
    forward = FORWARD * compute
    return max(forward + (compute - forward) / count + sums, compute + sums / count)


def fit(measured: Sequence[Mapping[str, float]], handling: float) -> Costs:
    """Return the latency and the bandwidth that agree best with sums alone: by least squares of logarithms, as times span four orders.

    Args:
        measured: bytes, size and seconds of each sum; the largest begin the search.
        handling: seconds of the software for a byte.
    """
    count = np.array([messages(int(m["size"])) for m in measured], float)
    way = np.array([sent(m["bytes"], int(m["size"])) for m in measured])
    seconds = np.array([m["seconds"] for m in measured])
    found = np.log([np.min(seconds / count), np.min(seconds / way)])
    for _ in range(ROUNDS):
        latency, per_byte = np.exp(found)
        terms = np.stack([count * latency, way * per_byte])
        whole = terms.sum(axis=0) + way * handling
        change = np.linalg.lstsq((terms / whole).T, np.log(seconds / whole), rcond=None)[0]
        found = found + np.clip(change, -1, 1)
    latency, per_byte = np.exp(found)
    return Costs(float(latency), 1 / float(per_byte), handling)


def predicted(costs: Costs, parameters: float, compute: float, sizes: Sequence[int], bucket: int = BUCKET) -> list[dict[str, float]]:
    """Return sums, step and efficiency for each number of processes, each of which computes as long as one alone (weak scaling)."""
    nbytes = 4 * parameters
    count = buckets(nbytes, bucket)
    found = []
    for size in sizes:
        step = costs.step(nbytes, size, compute, count)
        found.append({"size": size, "sums": costs.sum(nbytes, size, count), "step": step, "efficiency": compute / step})
    return found
