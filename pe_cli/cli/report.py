"""pe report: runs as one HTML page that can be kept and sent."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode, PeError


@click.command()
@path_argument("runs", nargs=-1, required=True)
@path_option("-o", "--out", metavar="FILE", help="The page; report.html in the run's folder, or here for several runs.")
@click.option("--profile", type=click.IntRange(min=1), metavar="STEPS", help="Time the kernels of so many steps now, for the timeline.")
@click.option("--curves/--no-curves", default=True, help="Run a classifier over data.eval, for its curves and confusion matrix.")
@click.option(
    "--embedding", metavar="LAYER", help="Draw the rows of data.eval by the numbers of a layer, along the two axes on which they differ "
    "most, with a colour for each class.",
)
def command(runs: tuple[Path, ...], out: Path | None, profile: int | None, curves: bool, embedding: str | None) -> None:
    """Write an HTML page about RUNS, which are folders of runs or of folds.

    Curves of all runs in one chart per metric, learning rate, gradients, throughput, timeline, graph, memory, config and
    environment; of a classifier its ROC, precision over recall, calibration and figures by class or tag over all of data.eval,
    where the data is there, and its confusion matrix. The page needs no network and nothing beside it. The timeline is that of
    trace.json, which `output.trace: STEPS` in the config leaves; --profile measures one now, for which the data must be there.

    --embedding draws what a layer, such as the one before the last, makes of the rows: what the model takes for alike lies together.
    `pe predict RUN FILE --fetch LAYER` writes the numbers.
    """
    from pe_cli.cli.run_facts import facts_of
    from pe_cli.io import atomic
    from pe_cli.io.history import read_run
    from pe_cli.io.view.page import build_page
    from pe_cli.session.evaluation.cross_validation import REPORT, read_folds

    folds = read_folds(runs[0]) if len(runs) == 1 and (runs[0] / REPORT).is_file() else None
    if folds is not None:
        out = out or folds.folder / "report.html"
        runs = tuple(fold.run for fold in folds.folds if fold.run is not None)
        if not runs:
            raise PeError(f"{folds.folder}: no fold has left a run", code=ExitCode.DATA)
    if len({path.resolve() for path in runs}) < len(runs):
        raise PeError("a run is named twice", hint="name each run once")
    found = [read_run(path) for path in runs]
    facts = [facts_of(path, profile=profile or 0, curves=curves, embedding=embedding) for path in runs]
    page = build_page(found, facts, folds=folds.rows() if folds else ())
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    atomic.write_text(target, page)
    what = f"{len(runs)} runs" if len(runs) > 1 else found[0].name
    echo(f"{what}: {len(page.encode()) / 1024:,.0f} KiB -> {target}")
