"""pe profile: where the time of a training step goes, as a table and as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option, phase_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.execute.diagnostics.profile import Profile, Row, Use
    from pe_cli.session.benchmarks.benchmark_job import BenchmarkJob
    from pe_cli.session.job import Job

#: Share of a step below which nothing is said of waiting: times of steps differ by so much.
WAITING = 0.05
FIELDS = ("op", "layer", "role", "calls", "ms", "share", "gflops", "gbytes", "at")


@click.command()
@path_argument("config")
@click.option("--steps", type=click.IntRange(min=1), default=10, show_default=True, help="Steps that are recorded.")
@path_option("--trace", "trace_file", metavar="FILE", help="Write a timeline for ui.perfetto.dev or chrome://tracing.")
@click.option("--by", type=click.Choice(["layer", "op"]), default="layer", show_default=True, help="One row per layer, or per op.")
@click.option("--top", type=click.IntRange(min=0), default=25, show_default=True, help="Rows of the table; 0: all.")
@phase_option
@override_option
@json_option
def command(
    config: Path, steps: int, trace_file: Path | None, by: str, top: int, phase: str | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Show where the time of a training step of CONFIG goes.

    The first batch is run again and again, as in pe bench. Times are means over the recorded steps; a step lasts as long
    as its slowest thread, so that the times of ops on several threads add up to more. GFLOP/s are shown where an op
    counts its operations; bytes are those of the variables that it reads and writes. The last line tells whether steps wait for
    their data: the reader works beside them, a few batches ahead. Under mpiexec, with executor.processes: auto, all processes take
    their steps together, and the first shows its own; the timeline has the lanes of all.
    """
    import json
    import statistics

    from pe_cli.cli.common import print_json
    from pe_cli.execute.diagnostics.profile import rows, use
    from pe_cli.io import atomic
    from pe_cli.session.benchmarks.reader_speed import measure_reading

    timed, found, timeline = measure(config, overrides, steps, phase, join=True)
    group = timed.job.group
    if not group.leads:
        return
    listed, threads = rows(found, by), use(found)
    alone = group.size == 1  # the others have ended
    reading = measure_reading(timed, statistics.median(found.plain_ms), max(steps, 30), 0.3) if alone else None
    if trace_file is not None:
        atomic.write_text(trace_file, json.dumps(timeline))
    if as_json:
        print_json(_json(timed.job, found, listed, threads) | ({"data": reading} if reading else {}))
        return
    echo(headline(timed, found))
    echo(_table(listed, top))
    for line in describe_use(threads, found):
        echo(line)
    if reading:
        echo(describe_reading(reading, timed.size))
    if trace_file is not None:
        echo(f"timeline of {steps} steps -> {trace_file}")


def measure(
    config: Path, overrides: tuple[str, ...], steps: int, phase: str | None = None, *, join: bool = False
) -> tuple[BenchmarkJob, Profile, dict[str, Any]]:
    """Prepare a config's training step, or its evaluation step where it says nothing of training, profile it, and draw its timeline.

    Args:
        config, overrides: as of the command.
        steps: that are recorded.
        phase: of a step of several; None for the first one.
        join: with the other processes that a launcher has started, where the config asks for several.

    Raises:
        PeError: a mistake in the config, or there is no such phase.
    """
    from pe_cli.cli.progress import Quiet
    from pe_cli.config.load import load_run
    from pe_cli.session.benchmarks.benchmark_job import time_phase
    from pe_cli.session.benchmarks.profiling import whole_trace
    from pe_cli.session.job import Job

    # trainers with servers sum nothing among themselves: each would measure what none of them does
    job = Job.open(config, overrides, Quiet(), launched=join and not load_run(config, overrides).has_servers)
    with job.group.together():
        job.initialise()
        timed = time_phase(job, phase)
        return timed, *whole_trace(timed, steps)


def called(timed: BenchmarkJob) -> str:
    """Return what was measured, in words: the model, and the phase where steps have several."""
    return f"{timed.job.run.model.name}: {timed.phase}" if timed.phase else timed.job.run.model.name


def headline(timed: BenchmarkJob, found: Profile) -> str:
    """Return the times that were measured, in one line."""
    import statistics

    devices = len(timed.job.places)
    return (
        f"{called(timed)}, batch {sum(found.plan.request.sizes)}, {devices} device{'s' * (devices > 1)},"
        f" {found.threads} thread{'s' * (found.threads > 1)}:"
        f" {statistics.median(found.plain_ms):.4g} ms a step, {found.step_ms:.4g} ms while it is recorded"
    )


def _table(listed: list[Row], top: int) -> str:
    from pe_cli.cli.text_columns import columns

    shown = listed[:top] if top else listed
    table: list[tuple[object, ...]] = [("op", "layer", "role", "calls", "ms", "share", "GFLOP/s", "GB/s")]
    for r in shown:
        rate = "-" if r.gflops is None else f"{r.gflops:.3g}"
        table.append((r.op, r.layer or "-", r.role, f"{r.calls:g}", f"{r.ms:.4f}", f"{r.share:.1%}", rate, f"{r.gbytes:.3g}"))
    rest = listed[len(shown) :]
    if rest:
        ms, share = sum(r.ms for r in rest), sum(r.share for r in rest)
        table.append((f"{len(rest)} more", "", "", f"{sum(r.calls for r in rest):g}", f"{ms:.4f}", f"{share:.1%}", "", ""))
    ms, calls = sum(r.ms for r in listed), sum(r.calls for r in listed)
    table.append(("total", "", "", f"{calls:g}", f"{ms:.4f}", "100.0%", "", ""))
    return columns(table, right=(3, 4, 5, 6, 7))


def describe_use(threads: Use, found: Profile) -> list[str]:
    """Return sentences about threads and sums over devices."""
    from pe_cli.graph.ssa import ADDENDS, Collective

    lines = []
    for t, (busy, idle) in enumerate(zip(threads.busy_ms, threads.idle_ms, strict=True)):
        lines.append(f"thread {t}: {busy:.4f} ms in kernels, {idle:.4f} ms idle ({idle / threads.wall_ms:.1%} of the step)")
    if len(threads.busy_ms) > 1:
        lines.append(f"{threads.busy_threads:.2f} of {len(threads.busy_ms)} threads compute at a time, on average")
    if threads.collective_ms:
        total = threads.collective_ms
        lines.append(
            f"sums over devices: {total:.4f} ms, {threads.hidden_ms / total:.1%} of it while another thread computes"
            f" ({threads.backward_ms / total:.1%} gradients), {total - threads.hidden_ms:.4f} ms exposed"
        )
    if threads.process_ms:
        total = threads.process_ms
        lines.append(
            f"sums over processes: {total:.4f} ms, {threads.process_hidden_ms / total:.1%} of it while a thread computes,"
            f" {total - threads.process_hidden_ms:.4f} ms exposed"
        )
    elif len(found.plan.graph.places) > 1 and not threads.collective_ms:
        nodes = found.plan.graph.nodes
        summed = any(isinstance(node, Collective) or ADDENDS in node.ins for node in nodes)
        lines.append(f"sums over devices: {'the updates add gradients up as they go' if summed else 'none'}")
    return lines


def describe_reading(reading: dict[str, Any], batch_size: int) -> str:
    """Return a sentence on whether steps wait for their data."""
    alone = 1000 * batch_size / reading["data_samples_per_s"]
    waits = reading["beyond_step"] * reading["ms_per_reading_step"]
    said = "steps do not wait for data" if reading["beyond_step"] < WAITING else f"a step waits {waits:.4g} ms for data"
    return f"{said}: one that reads takes {reading['ms_per_reading_step']:.4g} ms; the reader alone needs {alone:.4g} ms for a batch"


def _json(job: Job, found: Profile, listed: list[Row], threads: Use) -> dict[str, Any]:
    import statistics
    from dataclasses import asdict

    from pe_cli.execute.diagnostics.profile import as_json

    return {
        "model": job.run.model.name,
        "batch_size": sum(found.plan.request.sizes),
        "devices": len(job.places),
        "threads": found.threads,
        "steps": len(found.timelines),
        "ms_per_step": {"plain": statistics.median(found.plain_ms), "recorded": found.step_ms},
        "ops": [as_json(row, FIELDS) for row in listed],
        "use": asdict(threads),
    }
