"""Checks which numeric settings a run file may ask for on which kind of device."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.error_collector import Mistake
from pe_cli.config.sections.executor import ExecutorSection


def numerics_mistakes(executor: ExecutorSection) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that this kind of executor cannot act on."""
    at = executor.at_of("precision")
    if executor.precision == "tf32" and executor.place == "cpu":
        yield "precision: tf32 is for the tensor cores of place: cuda; products on the CPU are of float32", at, "place: cuda, or bf16"
    if executor.precision == "bf16" and executor.type == "async":
        said = "precision: bf16 is not for type: async, whose threads train parameters in float32"
        yield said, at, "leave precision out, or type: parallel"
    if executor.deterministic or executor.type == "async":
        return
    at = executor.at_of("deterministic")
    if executor.place == "cpu":
        yield "deterministic: false is for libraries of place: cuda; on the CPU one seed always gives one result", at, "deterministic: true"
    elif executor.libraries == "none":
        said = "deterministic: false lets libraries choose, and libraries: none leaves them nothing to choose"
        yield said, at, "libraries: auto, or deterministic: true"
