"""Charts as PNG, drawn by matplotlib."""

from __future__ import annotations

import io

from pe_cli.core.errors import PeError
from pe_cli.io.view.chart import Chart

#: The colours of chart.css on white, in its order.
HEX = ("#0072b2", "#d55e00", "#00855f", "#aa4499", "#8a6d00", "#2b8fc4", "#882255", "#4d4d4d")


def png(chart: Chart, *, log: bool = False) -> bytes:
    """Return a chart as a PNG file.

    Args:
        chart: with at least one finite value.
        log: logarithmic vertical axis.

    Raises:
        PeError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install 'pe-cli[plot]', or write a .svg, which needs nothing"
        raise PeError(f"a .png needs the package matplotlib: {error}", hint=hint) from None
    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for line in chart.lines:
        few = len(line.series.steps) <= 40
        axes.plot(
            line.series.steps, line.series.values, color=HEX[line.colour], linestyle="--" if line.dashed else "-",
            marker="o" if few else None, markersize=3, label=line.label.replace("$", r"\$"),
        )  # fmt: skip
    axes.set_xlabel("step")
    axes.set_ylabel(chart.unit.replace("$", r"\$"))
    axes.set_title(chart.title.replace("$", r"\$"), loc="left")
    axes.set_yscale("log" if log else "linear")
    axes.grid(True, color="#e3e7ec")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
