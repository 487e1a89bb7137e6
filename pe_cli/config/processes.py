"""What a run file may ask for together with `executor.processes: mpi`."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.asynchronous import Mistake
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.strategies import BuildSection

_YET = "not with several processes yet"


def process_mistakes(executor: ExecutorSection, build: BuildSection) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that cannot be acted on."""
    if executor.processes == 1:
        return
    reduce = build.reduce_strategy == "Reduce"
    yield from (
        (f"{what}: {_YET}", at, hint)
        for wrong, what, at, hint in (
            (executor.type == "async", "type: async", executor.at_of("type"), "type: parallel, or processes: 1"),
            (
                executor.place != "cpu",
                f"place: {executor.place}",
                executor.at_of("place"),
                "place: cpu, or processes: 1",
            ),
            (reduce, "reduce_strategy: Reduce", build.at_of("reduce_strategy"), "reduce_strategy: AllReduce"),
        )
        if wrong
    )
