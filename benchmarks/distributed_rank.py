"""One process of pe on a host: prints a JSON line with the times of its steps, or of sums alone, and what its interface counted.

`distributed.py` starts it with mpiexec, one process on each host.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np


def counted() -> dict[str, int]:
    """Return bytes and packets that the interfaces of this host have sent."""
    found = {"bytes": 0, "packets": 0}
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            fields = rest.split()
            found = {"bytes": found["bytes"] + int(fields[8]), "packets": found["packets"] + int(fields[9])}
    return found


class Messages:
    """Counts what this process sends to others, beside signs of life."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self) -> None:
        from pe_cli.collectives.mpi import ALIVE, MpiPeers

        send = MpiPeers._send

        def counting(peers: MpiPeers, message: Any, to: int, tag: int) -> Any:
            self.count += tag != ALIVE
            return send(peers, message, to, tag)

        MpiPeers._send = counting  # type: ignore[method-assign]


def timed(step: Any, repeats: int, messages: Messages) -> dict[str, Any]:
    """Do something again and again: seconds by the clock and of the processor, and what is sent for it each time."""
    step()
    sent, before, started = messages.count, counted(), time.process_time()
    walls = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step()
        walls.append(time.perf_counter() - begin)
    cpu, after = time.process_time() - started, counted()
    return {
        "seconds": walls,
        "cpu": cpu / repeats,
        "bytes": (after["bytes"] - before["bytes"]) / repeats,
        "packets": (after["packets"] - before["packets"]) / repeats,
        "messages": (messages.count - sent) / repeats,
    }


def steps(config: str, overrides: list[str], repeats: int, messages: Messages) -> tuple[int, dict[str, Any]]:
    """Train steps of a config with all processes; return the number of this one, and its times."""
    from pe_cli.session.benchmarks.benchmark_job import time_phase
    from pe_cli.session.job import Job

    job = Job.open(config, tuple(overrides), launched=True)
    with job.group.together():
        job.initialise()
        made = time_phase(job, None)
        feed, names, done = made.loader().first(), list(made.numbers.values()), [0]

        def step() -> None:
            made.run(feed, names, done[0])
            done[0] += 1

        step()  # kernels, plans
        (plan,) = made.executors[0].plans.values()
        count = sum(node.kind == "start_all_reduce_processes" for node in plan.graph.nodes)
        return job.group.rank, timed(step, repeats, messages) | {"size": job.group.size, "buckets": count}


def sums(sizes: list[int], repeats: int, messages: Messages) -> tuple[int, dict[str, Any]]:
    """Sum arrays of so many bytes over all processes, with nothing beside; each is one bucket."""
    from pe_cli.collectives.mpi import MpiPeers

    peers = MpiPeers(120.0)
    found = {}
    for size in sizes:
        values = np.zeros(size // 4, np.float32)
        peers.reserve(size)

        def step(values: Any = values) -> None:
            peers.begin(values, len(values)).wait()

        peers.gather(b"")
        found[str(size)] = timed(step, repeats, messages)
    rank, size = peers.rank, peers.size
    peers.close()
    return rank, {"sums": found, "size": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--sums", type=int, nargs="*", help="bytes of each array")
    parser.add_argument("--config")
    parser.add_argument("-o", dest="overrides", action="append", default=[])
    args = parser.parse_args()
    messages = Messages()
    messages.watch()
    if args.sums:
        rank, found = sums(args.sums, args.repeats, messages)
    else:
        rank, found = steps(args.config, args.overrides, args.repeats, messages)
    print("\n" + json.dumps({"rank": rank} | found), flush=True)


if __name__ == "__main__":
    main()
