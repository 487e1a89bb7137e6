"""pe lr: runs a learning-rate range test, which trains a few steps with a growing rate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import PeError

if TYPE_CHECKING:
    from pe_cli.io.view.chart import Chart
    from pe_cli.session.training.lr_range_test import RangeTest

#: Rows of the table, at most.
ROWS = 12


@click.command()
@path_argument("config")
@click.option("--from", "low", type=float, default=1e-6, show_default=True, help="Learning rate of the first step.")
@click.option("--to", "high", type=float, default=1.0, show_default=True, help="Learning rate of the last step.")
@click.option("--steps", type=click.IntRange(min=10), default=100, show_default=True, help="Steps, fewer where the loss diverges.")
@path_option("--svg", metavar="FILE", help="Draw the loss over the learning rate.")
@override_option
def command(config: Path, low: float, high: float, steps: int, svg: Path | None, overrides: tuple[str, ...]) -> None:
    """Find a learning rate for CONFIG.

    Trains from initial values while the rate grows by the same factor from step to step, until the loss diverges. The rate at
    which the loss falls fastest is a good learning rate, or the largest of a schedule. The rate of the config and its schedule
    are left out of account. No run is written.
    """
    from pe_cli.cli.progress import Quiet
    from pe_cli.io import atomic
    from pe_cli.io.view.chart import standalone
    from pe_cli.session.training.lr_range_test import open_for_range, range_test

    if not (math.isfinite(high) and 0 < low < high):
        raise PeError(f"the rate grows from --from to --to, got {low:g} and {high:g}", hint="--from 1e-6 --to 1")
    job = open_for_range(config, overrides, Quiet())
    job.initialise()
    found = range_test(job, low, high, steps)
    if not found.rates:
        raise PeError("the loss of the first step is no number", hint="pe check CONFIG looks at the data and the model")
    _print(found, job.run.model.name)
    if svg is not None:
        atomic.write_text(svg, standalone(chart_of(found, job.run.model.name)))
        echo(f"{len(found.rates)} steps -> {svg}")


def chart_of(found: RangeTest, model: str) -> Chart:
    """Return the chart of the losses over the powers of ten that the rates are."""
    from pe_cli.io.history import Series
    from pe_cli.io.view.chart import Chart, Line

    # A series is typed by steps, which are whole; a chart of powers takes any number along its axis.
    powers = cast("list[int]", [math.log10(rate) for rate in found.rates])
    lines = Line("loss", Series(powers, found.losses), 1), Line("smoothed", Series(powers, found.smoothed), 0)
    return Chart(f"{model}: loss over the learning rate", "loss", lines, across="learning rate", powers=True)


def _print(found: RangeTest, model: str) -> None:
    from pe_cli.cli.text_columns import columns
    from pe_cli.io.view.text_chart import bars

    count = len(found.rates)
    shown = sorted({round(i * (count - 1) / (ROWS - 1)) for i in range(ROWS)})
    rows: list[tuple[object, ...]] = [("step", "rate", "loss", "smoothed")]
    rows += [(i, f"{found.rates[i]:.3g}", f"{found.losses[i]:.6g}", f"{found.smoothed[i]:.6g}") for i in shown]
    echo(f"{model}: {count} steps, {found.rates[0]:.3g} to {found.rates[-1]:.3g}" + (", then the loss diverges" * found.diverged))
    echo(columns(rows, right=(0,)))
    echo(bars(found.smoothed))
    echo(f"the least smoothed loss is {found.smoothed[found.best]:.6g}, at the rate {found.rates[found.best]:.3g}")
    steepest = found.steepest()
    if found.still_falls:
        echo("no suggestion: the loss still falls at the largest rate; try a larger --to")
    elif steepest is None:
        echo("no suggestion: the loss does not fall; try other rates with --from and --to, or more --steps")
    else:
        echo(f"suggested learning rate: {found.rates[steepest]:.2g}, where the loss falls fastest")
