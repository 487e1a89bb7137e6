"""pe bench: the speed of a config's training step, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option, start_override
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.execute.executor import Executor
    from pe_cli.session.benchmarks.benchmark_job import BenchmarkJob

#: Seconds for which the reader alone is timed.
READING_S = 2.0


@click.command()
@path_argument("config")
@click.option("--steps", type=click.IntRange(min=1), default=30, show_default=True, help="Steps that are timed.")
@click.option("--warmup", type=click.IntRange(min=1), default=3, show_default=True, help="Steps before, the first too.")
@click.option("--max-seconds", type=click.FloatRange(min=0), help="Stop timing after so long; at least four steps.")
@click.option("--data", "with_data", is_flag=True, help="Also time the reader alone, and steps that read their data.")
@path_option("--init", metavar="FILE", help="Start from values by name: a run, a checkpoint, .safetensors, .npz or .onnx; as train.init.")
@override_option
@json_option
def command(
    config: Path,
    steps: int,
    warmup: int,
    max_seconds: float | None,
    with_data: bool,
    init: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Time the training step of CONFIG.

    Every step feeds the same first batch from memory and reads the loss; reading data is not timed. import_s is the
    time from the start of the process until the first step can begin, build_s its part without imports; first_step_s
    includes planning and, where no cache holds them, compiling the kernels. Where a config has no
    training, its evaluation step is timed; with train.phases, all updates of a step are timed together.

    With --data, data_opened_s is the time until the files were read, split, learned from and encoded (what is decoded sample
    by sample, such as pictures, comes later); data_samples_per_s is what the reader gives when nobody computes, over two
    seconds, and beyond_step the share of a reading step that one fed from memory does not take: near 0 where reading
    keeps up beside computing. Batches of ever new shapes, as of sequences, count there too: the plan is refitted for each.
    """
    import time

    from pe_cli.cli.common import print_json
    from pe_cli.cli.progress import Quiet
    from pe_cli.session.benchmarks.benchmark_job import time_step
    from pe_cli.session.benchmarks.reader_speed import measure_reading, open_data
    from pe_cli.session.job import Job

    watcher = Quiet()
    begin = time.perf_counter()
    job = Job.open(config, overrides + start_override(init), watcher)
    job.initialise()
    build_s = time.perf_counter() - begin
    opened_s = open_data(job)
    timed = time_step(job)
    found = _measure(timed, steps, warmup, max_seconds)
    if with_data:
        found |= {"data_opened_s": round(opened_s, 4)} | measure_reading(timed, found["ms_per_step"]["median"], steps, READING_S)
    found |= {"build_s": round(build_s, 4), "kernels_compiled": watcher.compiled}
    if as_json:
        print_json(found)
    else:
        times = found["ms_per_step"]
        echo(
            f"{found['model']}, batch {found['batch_size']}, {found['devices']} devices, {found['threads']} threads: "
            f"{times['median']} ms a step ({times['min']} to {times['max']}), {found['samples_per_s']:,} samples/s; "
            f"ready after {found['import_s']} s, first step {found['first_step_s']} s"
            f" ({found['kernels_compiled']} of {found['kernels']} kernels compiled), {found['peak_rss_mb']} MB; "
            f"loss {found['loss_first']:.6g} -> {found['loss_last']:.6g}"
        )
        if with_data:
            echo(
                f"data: ready after {found['data_opened_s']} s; the reader alone gives {found['data_samples_per_s']:,} "
                f"samples/s; {found['ms_per_reading_step']} ms a step that reads, {found['beyond_step']:.0%} of it beyond the step"
            )


def _measure(timed: BenchmarkJob, steps: int, warmup: int, max_seconds: float | None) -> dict[str, Any]:
    import statistics
    import time

    from pe_cli.core.errors import PeError
    from pe_cli.io.environment import peak_memory

    job, names = timed.job, timed.numbers
    if not names:
        raise PeError(
            "nothing to read: the model fetches no single number", at=job.run.model.at, hint="add fetches: [loss]"
        )
    name = next(iter(names.values()))
    feed = timed.loader().first()
    number = 0

    def step() -> tuple[float, float]:
        nonlocal number
        start = time.perf_counter()
        # Reading the loss waits for the end of the step: a device would otherwise still be computing.
        loss, _ = timed.run(feed, [name], number).number(name)
        number += 1
        return loss, time.perf_counter() - start

    import_s = since_start()
    first, first_s = step()
    for _ in range(warmup - 1):
        step()
    times: list[float] = []
    last, begin = first, time.perf_counter()
    while len(times) < steps:
        if max_seconds is not None and len(times) >= 4 and time.perf_counter() - begin > max_seconds:
            break
        last, seconds = step()
        times.append(seconds * 1000)
    median = statistics.median(times)
    samples = timed.samples(feed)
    return {
        "model": job.run.model.name,
        "batch_size": samples,
        "devices": len(job.places),
        "threads": timed.executors[0].threads,
        "steps": len(times),
        "ms_per_step": {"median": round(median, 4), "min": round(min(times), 4), "max": round(max(times), 4)},
        "samples_per_s": round(samples / median * 1000, 1),
        "first_step_s": round(first_s, 4),
        "import_s": round(import_s, 4),
        "peak_rss_mb": round(peak_memory() / 2**20, 1),
        "loss_first": first,
        "loss_last": last,
        "kernels": _kernels(timed.executors),
    }


def _kernels(executors: Sequence[Executor]) -> int:
    """Return the number of different kernels in the plans of executors."""
    calls = [c for executor in executors for plan in executor.plans.values() for task in plan.tasks for c in task.calls]
    return len({(c.kernel.name, c.dtype, c.second) for c in calls})


def since_start() -> float:
    """Return seconds since this process was started, to a hundredth; those on a processor where nobody tells."""
    import os
    import time

    try:
        # the name in parentheses may hold spaces; the start is the 22nd field, in clock ticks since boot
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, AttributeError, IndexError):
        return time.process_time()
