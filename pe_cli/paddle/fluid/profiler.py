"""The profiler of scripts: how long every step of every program took, as a table and as a trace file."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.reference_names import missing

_STATES = ("CPU", "GPU", "All")
_ORDERS = (None, "default", "calls", "total", "max", "min", "ave")


class Recorder:
    """Steps while it is on: (what ran, begin in seconds, seconds)."""

    def __init__(self) -> None:
        self.on = False
        self.steps: list[tuple[str, float, float]] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record what runs inside, where the recorder is on."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            # Asked afterwards, so that a profiler that a step's hook starts has that step.
            if self.on:
                self.steps.append((name, begin, time.perf_counter() - begin))

    def table(self, order: str | None) -> str:
        """Return a line for every kind of step, in the order asked for."""
        rows = []
        # In the order of the first appearance, which is the program's.
        for name in dict.fromkeys(n for n, _, _ in self.steps):
            took = [s for n, _, s in self.steps if n == name]
            rows.append((name, len(took), sum(took), max(took), min(took), sum(took) / len(took)))
        column = {"calls": 1, "total": 2, "max": 3, "min": 4, "ave": 5}.get(order or "")
        if column:
            rows.sort(key=lambda row: row[column], reverse=True)
        head = f"{'Step':<32}{'Calls':>8}{'Total ms':>12}{'Max ms':>12}{'Min ms':>12}{'Ave ms':>12}"
        lines = [f"{n:<32}{c:>8}" + "".join(f"{1e3 * v:>12.3f}" for v in rest) for n, c, *rest in rows]
        return "\n".join([head, *lines])

    def trace(self) -> dict[str, Any]:
        """Return the steps as a Chrome trace."""
        events = [{"name": n, "ph": "X", "ts": 1e6 * b, "dur": 1e6 * s, "pid": 0, "tid": 0} for n, b, s in self.steps]
        return {"traceEvents": events}


RECORDER = Recorder()


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Begin to record.

    Raises:
        FluidValueError: an unknown state or option; a ValueError.
    """
    if state not in _STATES:
        raise FluidValueError(f"the state is {state!r}", hint=f"one of {', '.join(_STATES)}")
    if tracer_option not in ("Default", "OpDetail", "AllOpDetail"):
        raise FluidValueError(f"tracer_option is {tracer_option!r}", hint="Default, OpDetail or AllOpDetail")
    RECORDER.on = True


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Stop recording, print the table and write the trace.

    Raises:
        FluidValueError: an unknown order; a ValueError.
    """
    if sorted_key not in _ORDERS:
        raise FluidValueError(f"sorted_key is {sorted_key!r}", hint="default, calls, total, max, min or ave")
    RECORDER.on = False
    print(RECORDER.table(sorted_key))  # noqa: T201 (what it is for)
    Path(profile_path).write_text(json.dumps(RECORDER.trace()), encoding="utf-8")
    RECORDER.steps.clear()


def reset_profiler() -> None:
    """Forget what was recorded."""
    RECORDER.steps.clear()


@contextlib.contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Record what runs inside; arguments of `start_profiler` and `stop_profiler`."""
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextlib.contextmanager
def cuda_profiler(output_file: str, output_mode: str | None = None, config: Any = None) -> Iterator[None]:
    """Record what runs inside and write the trace to a file."""
    with profiler("GPU", None, output_file):
        yield


__getattr__ = missing("fluid.profiler", lambda: globals())
