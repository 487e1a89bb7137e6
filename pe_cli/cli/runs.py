"""pe runs: what runs there are, and how they did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option
from pe_cli.cli.say import echo

if TYPE_CHECKING:
    from pe_cli.io.history import Run


@click.command()
@click.argument("folder", default=Path("runs"), type=click.Path(path_type=Path))
@json_option
def command(folder: Path, as_json: bool) -> None:
    """List the runs in FOLDER (default: runs), the oldest first.

    A run is running, done, stopped (by a signal, with a checkpoint) or failed; lost says that its process is no more,
    though nobody wrote so. The best value is that of `output.checkpoint.best`, else the smallest loss.
    """
    from pe_cli.cli.columns import columns
    from pe_cli.cli.common import print_json
    from pe_cli.core.errors import PeError
    from pe_cli.graph.dot import plain
    from pe_cli.io.history import find_runs, read_run

    found: list[Run] = []
    for path in find_runs(folder):
        try:
            found.append(read_run(path))
        except PeError as error:  # the others are still to be seen
            echo(f"warning: {plain(error.message)}", err=True)
    if as_json:
        print_json([_json(run) for run in found])
    elif not found:
        echo(f"{folder}: no run in it")
    else:
        shown = columns([("run", "config", "state", "steps", "time", "best", "", "at step"), *map(_row, found)], right=(3, 4, 6, 7))
        warnings = [f"{run.name}: {plain(' '.join(run.warning.split()))}" for run in found if run.warning]
        echo("\n".join([shown, *warnings]))


def _row(run: Run) -> tuple[str, ...]:
    from pe_cli.io.view.sections import duration

    best = run.best
    judged = (f"{best.mode} {best.by}", f"{best.value:.5g}", f"{best.step:,}") if best else ("-", "", "")
    return run.name, run.config_name, run.state, f"{run.step:,}", duration(run.seconds), *judged


def _json(run: Run) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "run": str(run.path),
        "config": run.config_name,
        "state": run.state,
        "step": run.step,
        "epoch": run.status.get("epoch"),
        "seconds": run.seconds,
        "warning": run.warning or None,
        "started": run.status.get("started"),
        "best": asdict(run.best) if run.best else None,
        "metrics": {name: value for name, value in run.last().items() if "/gradient_norm/" not in name},
    }
