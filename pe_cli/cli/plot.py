"""pe plot: a metric of runs as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import PeError

if TYPE_CHECKING:
    from pe_cli.io.view.chart import Chart


@click.command()
@path_argument("runs", nargs=-1, required=True)
@path_option("-o", "--out", required=True, metavar="FILE", help="The picture: .svg, or .png with the extra [plot].")
@click.option("--metric", metavar="NAME", help="loss, or eval/loss for one split; the loss when absent.")
@click.option("--log", is_flag=True, help="Logarithmic vertical axis.")
def command(runs: tuple[Path, ...], out: Path, metric: str | None, log: bool) -> None:
    """Draw a metric of RUNS, which are folders of runs, into one chart."""
    from pe_cli.io import atomic
    from pe_cli.io.history import read_run
    from pe_cli.io.view.chart import standalone
    from pe_cli.io.view.charts import chosen_chart
    from pe_cli.io.view.png import png

    if out.suffix not in (".svg", ".png"):
        raise PeError(f"{out}: a plot is .svg or .png", hint="name the file loss.svg, for example")
    chart = chosen_chart([read_run(path) for path in runs], metric)
    if not chart.values():
        raise PeError(f"'{chart.title}' has no finite value in these runs")
    if log:
        _check_log(chart)
    if out.suffix == ".svg":
        atomic.write_text(out, standalone(chart, log=log))
    else:
        atomic.write_bytes(out, png(chart, log=log))
    echo(f"{chart.title}: {len(chart.lines)} lines -> {out}")


def _check_log(chart: Chart) -> None:
    lowest = min(chart.values())
    if lowest <= 0:
        text = f"'{chart.title}' has the value {lowest:g}, and a logarithmic axis shows positive values only"
        raise PeError(text, hint="leave out --log")
