"""Line charts as SVG: on the report's page, and as files of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.dot import plain
from pe_cli.io.history import Series
from pe_cli.io.view.ticks import TINY, drawable, linear_ticks, log_ticks, short

#: Colours that lines have; `chart.css` gives them for light and dark. More lines begin again.
COLOURS = 8
#: Points of a line that are drawn; of more, the smallest and the largest of each stretch.
POINTS = 400
#: Points up to which each gets a mark.
MARKS = 40
#: Parts of a chart in its own units, which are about a pixel: text is 12 high.
LEFT, RIGHT, TOP, BOTTOM = 54.0, 14.0, 26.0, 38.0
WIDTH, HEIGHT = 460.0, 270.0


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        label: in the legend.
        series: what is drawn; gaps where a value is no number.
        colour: 0 to COLOURS - 1.
        dashed: to tell two lines of one colour apart.
        run: number of the run that it is of.
        of: what that run is called, of several.
    """

    label: str
    series: Series
    colour: int = 0
    dashed: bool = False
    run: int = 0
    of: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart of lines over steps.

    Args:
        title: over it.
        unit: of the values, at the vertical axis.
        lines: at least one.
        key: names it in a page.
        from_zero: whether the vertical axis begins at 0.
        across: what the horizontal axis counts.
        powers: the horizontal axis is logarithmic, and `steps` of the series are powers of ten.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    key: str = ""
    from_zero: bool = False
    across: str = "step"
    powers: bool = False

    def values(self) -> list[float]:
        """Return all values that have a place."""
        return [v for line in self.lines for v in line.series.values if drawable(v)]

    @property
    def may_be_log(self) -> bool:
        """Whether all values are positive and far enough apart for a logarithmic axis to show more."""
        found = self.values()
        return not self.from_zero and bool(found) and min(found) > TINY and max(found) / min(found) >= 5


@dataclass(frozen=True)
class Axes:
    """Where values lie in a chart.

    Args:
        x_low, x_high: steps at the ends.
        y_low, y_high: values at the bottom and the top.
        log: whether the vertical axis is logarithmic.
        width, height: of the chart.
    """

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log: bool
    width: float
    height: float

    def x(self, step: float) -> float:
        """Return the place of a step."""
        return LEFT + (step - self.x_low) / (self.x_high - self.x_low) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the place of a value."""
        scale: Callable[[float], float] = math.log10 if self.log else float
        low, high = scale(self.y_low), scale(self.y_high)
        return self.height - BOTTOM - (scale(value) - low) / (high - low) * (self.height - TOP - BOTTOM)


def draw(chart: Chart, *, log: bool = False, width: float = WIDTH, height: float = HEIGHT, css: str = "") -> str:
    """Return a chart as an SVG element.

    Args:
        chart: without values it says so.
        log: logarithmic vertical axis; all values must be positive.
        width, height: in about pixels.
        css: put into the element; the page has its own.
    """
    name = escape(plain(chart.title))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' aria-label="{name}" data-key="{escape(plain(chart.key))}"'
    )
    style = f"<style>{css}</style>" if css else ""
    if not chart.values():
        return f'{head}>{style}<text class="axis" x="{width / 2:g}" y="{height / 2:g}" text-anchor="middle">no values yet</text></svg>'
    axes, across, up = _axes(chart, log, width, height)
    at = " ".join(f"{v!r}" for v in (axes.x_low, axes.x_high, axes.y_low, axes.y_high))
    parts = [f'{head} data-axes="{at}" data-log="{int(log)}">', style, *_grid(axes, across, up, chart)]
    for i, line in enumerate(chart.lines):
        parts += _line(line, axes, i)
    return "".join([*parts, "</svg>"])


def standalone(chart: Chart, *, log: bool = False) -> str:
    """Return a chart as the text of an SVG file, with its title and legend; light or dark as the viewer prefers."""
    inner = draw(chart, log=log, width=720, height=400)
    body = inner.partition(">")[2].removesuffix("</svg>")
    rows = _legend(chart.lines, 720)
    height = 40 + 400 + 22 * len(rows) + 10
    css = resources.files("pe_cli.io.view").joinpath("chart.css").read_text(encoding="utf-8")
    legend = "".join(text for row in rows for text in row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="720" height="{height}" viewBox="0 0 720 {height}">'
        f"<style>{without_variables(css)}</style>"
        f'<rect class="paper" width="720" height="{height}"/>'
        f'<text class="title" x="{LEFT}" y="26">{escape(plain(chart.title))}</text>'
        f'<g transform="translate(0 36)">{body}</g><g transform="translate({LEFT} 452)">{legend}</g></svg>\n'
    )


def without_variables(css: str) -> str:
    """Return the rules of chart.css with colours in the place of variables, which many viewers of pictures do not know.

    The dark colours follow in a media query, which such viewers leave out.
    """
    light, dark = (dict(re.findall(r"(--\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL))
    rules = [r for r in re.findall(r"^\.chart .*$", css, re.MULTILINE) if "var(--c)" not in r]
    shared = [r.replace("stroke: var(--c); ", "") for r in re.findall(r"^\.chart .*var\(--c\).*$", css, re.MULTILINE) if "fill: none" in r]
    for i in range(COLOURS):
        rules += [f".chart .line.c{i}, .chart .c{i} .line {{ stroke: var(--c{i}); }}", f".chart .c{i} circle {{ fill: var(--c{i}); }}"]

    def coloured(names: dict[str, str], of: list[str]) -> str:
        return "\n".join(re.sub(r"var\((--\w+)\)", lambda found: names[found[1]], rule) for rule in of)

    changing = [rule for rule in rules if "var(" in rule]
    return f"{coloured(light, [*shared, *rules])}\n@media (prefers-color-scheme: dark) {{\n{coloured(dark, changing)}\n}}\n"


def _legend(lines: Sequence[Line], width: float) -> list[list[str]]:
    """Return the entries of a legend in rows; widths of texts are guessed."""
    rows: list[list[str]] = [[]]
    at = 0.0
    for line in lines:
        text = plain(line.label)
        text = text if len(text) <= 70 else f"{text[:69]}…"
        needed = 44 + 7 * len(text)
        if rows[-1] and at + needed > width - LEFT - RIGHT:
            rows.append([])
            at = 0.0
        y = 22 * (len(rows) - 1)
        look = f"line c{line.colour % COLOURS}{' dashed' * line.dashed}"
        rows[-1].append(
            f'<path class="{look}" d="M{at:.1f} {y - 4}h24"/><text class="axis" x="{at + 30:.1f}" y="{y}">{escape(text)}</text>'
        )
        at += needed
    return rows


def _axes(chart: Chart, log: bool, width: float, height: float) -> tuple[Axes, list[float], list[float]]:
    """Return the axes, and the ticks across and up."""
    steps = [s for line in chart.lines for s in line.series.steps]
    low, high = min(steps), max(steps)
    if low == high:
        low, high = low - 1, high + 1
    across = [t for t in linear_ticks(low, high, 6 if width < 600 else 8) if low <= t <= high and t == int(t)]
    values = chart.values()
    least = min([*values, 0.0]) if chart.from_zero and not log else min(values)
    up = log_ticks(least, max(values)) if log else linear_ticks(least, max(values))
    if len(up) == 1:
        # One tick alone gives an axis without a scale.
        up = [up[0] / 2, up[0], up[0] * 2]
    return Axes(low, high, up[0], up[-1], log, width, height), across, up


def _grid(axes: Axes, across: Sequence[float], up: Sequence[float], chart: Chart) -> list[str]:
    right, bottom = axes.width - RIGHT, axes.height - BOTTOM
    parts = []
    for value in up:
        y = axes.y(value)
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}H{right:g}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for step in across:
        x = axes.x(step)
        parts.append(f'<path class="tick" d="M{x:.1f} {bottom:g}v4"/>')
        shown = short(10.0**step if chart.powers else step)
        parts.append(f'<text class="axis" x="{x:.1f}" y="{bottom + 17:g}" text-anchor="middle">{shown}</text>')
    parts.append(f'<path class="base" d="M{LEFT:g} {bottom:g}H{right:g}"/>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="unit" x="{middle:g}" y="{axes.height - 5:g}" text-anchor="middle">{escape(plain(chart.across))}</text>')
    # above the labels, which may be of any width
    parts.append(f'<text class="unit" x="4" y="{TOP - 13:g}">{escape(plain(chart.unit))}</text>')
    return parts


def _line(line: Line, axes: Axes, index: int) -> list[str]:
    steps, values = thin(line.series)
    path, pen = [], "M"
    dots = []
    for step, value in zip(steps, values, strict=True):
        if not drawable(value):
            pen = "M"
            continue
        x, y = axes.x(step), axes.y(value)
        path.append(f"{pen}{x:.1f} {y:.1f}")
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>')
        pen = "L"
    look = f"c{line.colour % COLOURS}{' dashed' * line.dashed}"
    marks = "".join(dots) if len(dots) <= MARKS else ""
    return [f'<g class="{look}" data-line="{index}" data-run="{line.run}"><path class="line" d="{"".join(path)}"/>{marks}</g>']


def thin(series: Series, most: int = POINTS) -> tuple[list[int], list[float]]:
    """Return at most so many points of a series that look like all: of each stretch the smallest and the largest.

    The first and the last are always there, and where there is a value that is no number, one of it.
    """
    # Extremes of every stretch are kept: a thinned line must not hide a spike.
    n = len(series.steps)
    if n <= most:
        return list(series.steps), list(series.values)
    kept = {0, n - 1}
    stretches = max(1, (most - 2) // 3)
    for k in range(stretches):
        inside = range(k * n // stretches, (k + 1) * n // stretches)
        finite = [i for i in inside if drawable(series.values[i])]
        if finite:
            # What cannot be drawn is kept as well, so that the line breaks where the values are not finite.
            kept |= {min(finite, key=series.values.__getitem__), max(finite, key=series.values.__getitem__)}
        if len(finite) < len(inside):
            kept.add(next(i for i in inside if not drawable(series.values[i])))
    order = sorted(kept)
    return [series.steps[i] for i in order], [series.values[i] for i in order]
