"""pe report: runs as one HTML page that can be kept and sent."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.core.errors import PeError


@click.command()
@path_argument("runs", nargs=-1, required=True)
@path_option("-o", "--out", metavar="FILE", help="The page; report.html in the run's folder, or here for several runs.")
@click.option("--profile", type=click.IntRange(min=1), metavar="STEPS", help="Time the kernels of so many steps now, for the timeline.")
def command(runs: tuple[Path, ...], out: Path | None, profile: int | None) -> None:
    """Write an HTML page about RUNS, which are folders of runs.

    Curves of all runs in one chart a metric, learning rate, gradients, throughput, timeline, graph, memory, config and
    environment. The page needs no network and nothing beside it. The timeline is that of trace.json, which `output.trace:
    STEPS` in the config leaves; --profile measures one now, for which the data must be there.
    """
    from pe_cli.cli.run_facts import facts_of
    from pe_cli.io import atomic
    from pe_cli.io.history import read_run
    from pe_cli.io.run_folder import RunFolder
    from pe_cli.io.view.page import build_page

    if len({path.resolve() for path in runs}) < len(runs):
        raise PeError("a run is named twice", hint="name each run once")
    found = [read_run(path) for path in runs]
    page = build_page(found, [facts_of(path, profile=profile or 0) for path in runs])
    if out is None and len(runs) == 1:
        RunFolder(runs[0]).check_links()
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    atomic.write_text(target, page)
    what = f"{len(runs)} runs" if len(runs) > 1 else found[0].name
    click.echo(f"{what}: {len(page.encode()) / 1024:,.0f} KiB -> {target}")
