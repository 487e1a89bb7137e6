"""pe explain: what becomes of a config, and why its step takes the time and memory that it does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, override_option, path_argument, phase_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.execute.diagnostics.critical_path import Parallelism
    from pe_cli.execute.memory.usage import Usage
    from pe_cli.execute.plan.plan import Plan

#: Rows of the lists in the text; JSON has all.
SHOWN = 8


@click.command()
@path_argument("config")
@click.option("--steps", type=click.IntRange(min=1), default=10, show_default=True, help="Steps that are measured.")
@phase_option
@override_option
@json_option
def command(config: Path, steps: int, phase: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Explain the training step of CONFIG.

    What every pass did, the ops by role, the critical path with the measured times of its ops, how well threads are
    used and how well they could be, and memory by category, with what is alive where a step needs most. Efficiency is
    the time of all kernels over the time of all threads.
    """
    from pe_cli.cli.common import print_json
    from pe_cli.cli.profile import headline, measure
    from pe_cli.execute.diagnostics.critical_path import parallelism
    from pe_cli.execute.memory.usage import usage
    from pe_cli.program.sparse import notes

    # Steps are timed as they run, and once more with a timer for each kernel, which costs time itself.
    timed, found, _ = measure(config, overrides, steps, phase)
    (program,), (executor,) = timed.programs, timed.executors
    said = [*executor.stages(found.plan.request.fetches).reports, *notes(program)]
    parallel, memory = parallelism(found), usage(executor, found.plan)
    if as_json:
        print_json(_json(said, found.plan, parallel, memory))
        return
    echo(headline(timed, found))
    for title, lines in (
        ("passes", said or ["none: the build strategy asks for none"]),
        ("ops", _ops(found.plan)),
        ("critical path", _path(parallel)),
        ("threads", _threads(parallel)),
        *((f"memory of {m.place}", _memory(m)) for m in memory),
    ):
        echo(f"\n{title}")
        for line in lines:
            echo(f"  {line}")


def _counts(plan: Plan) -> dict[str, Counter[str]]:
    """Return role -> op -> number of nodes, over all devices."""
    out: dict[str, Counter[str]] = {}
    for node in plan.graph.nodes:
        out.setdefault(node.role.value, Counter())[node.title] += 1
    return out


def _ops(plan: Plan) -> list[str]:
    from pe_cli.cli.text_columns import columns

    rows = []
    for role, ops in _counts(plan).items():
        most = ", ".join(f"{n} {op}" for op, n in ops.most_common(5))
        rows.append((role, str(ops.total()), most + (", ..." if len(ops) > 5 else "")))
    calls = sum(len(t.calls) for t in plan.tasks)
    total = f"{len(plan.graph.nodes)} ops on {len(plan.graph.places)} devices, {calls} kernel calls"
    return [*columns(rows, right=(1,)).splitlines(), total]


def _path(parallel: Parallelism) -> list[str]:
    from pe_cli.cli.text_columns import columns

    lines = [
        (
            f"{parallel.path_ms:.4g} ms of {parallel.work_ms:.4g} ms of work: no number of threads is faster,"
            f" and {parallel.useful_threads:.3g} of them could be busy on average at most"
        ),
    ]
    # By time, not in the order of the path: what to look at first comes first.
    most = sorted(parallel.path, key=lambda s: -s.ms)[:SHOWN]
    rows = [
        (s.op, s.layer or "-", f"{s.calls}", f"{s.ms:.4f} ms", f"{s.ms / (parallel.path_ms or 1.0):.1%}") for s in most
    ]
    return [*lines, *columns(rows or [("nothing",)], right=(2, 3, 4)).splitlines()]


def _threads(parallel: Parallelism) -> list[str]:
    p = parallel
    return [
        f"predicted: {p.predicted_ms:.4g} ms a step on {p.threads} threads, efficiency {p.predicted:.1%}",
        (
            f"measured:  {p.measured_ms:.4g} ms a step, efficiency {p.measured:.1%}"
            f" ({p.recorded_ms:.4g} ms while kernels are timed)"
        ),
    ]


def _memory(usage: Usage) -> list[str]:
    from pe_cli.cli.text_columns import columns
    from pe_cli.graph.dot import size_text

    rows: list[tuple[str, ...]] = [("category", "stays", "at the peak", "without sharing")]
    for kind in dict.fromkeys([*usage.kept, *usage.whole]):
        cells = (usage.kept.get(kind), usage.at_peak.get(kind), usage.whole.get(kind))
        rows.append((kind, *(size_text(c) if c else "-" for c in cells)))
    totals = (sum(usage.kept.values()), usage.peak, sum(usage.whole.values()))
    rows.append(("total", *(size_text(t) for t in totals)))
    alive = ", ".join(f"{a.name} ({a.kind}, {size_text(a.nbytes)})" for a in usage.alive[:SHOWN])
    more = f" and {len(usage.alive) - SHOWN} more" if len(usage.alive) > SHOWN else ""
    return [
        *columns(rows, right=(1, 2, 3)).splitlines(),
        f"peak at {usage.at}; alive there: {alive}{more}",
        f"a step's arena is {size_text(usage.arena)}",
    ]


def _json(said: list[str], plan: Plan, parallel: Parallelism, memory: list[Usage]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "passes": said,
        "ops": {role: dict(ops) for role, ops in _counts(plan).items()},
        "parallelism": {
            **asdict(parallel),
            "useful_threads": parallel.useful_threads,
            "predicted_efficiency": parallel.predicted,
            "measured_efficiency": parallel.measured,
        },
        "memory": [{**asdict(m), "place": str(m.place)} for m in memory],
    }
