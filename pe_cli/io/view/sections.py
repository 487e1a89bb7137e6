"""Pieces of the report's page as HTML. Every text goes through `text`: configs and run folders are not trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from pe_cli.graph.dot import plain, size_text
from pe_cli.io.history import Run
from pe_cli.io.view.chart import COLOURS, Chart, draw, thin
from pe_cli.io.view.charts import norms_of
from pe_cli.io.view.compare import differences
from pe_cli.io.view.model_facts import Facts, LayerFacts, MemoryFacts
from pe_cli.io.view.run_list import cell, names_of
from pe_cli.io.view.ticks import drawable, short

#: Parameters and columns of the map of gradients.
MOST_ROWS, COLUMNS = 120, 60
#: Runs that the legend of a chart names; the cards name all of them.
MOST_NAMES = 8
#: States that have a look.
STATES = ("running", "done", "stopped", "failed", "lost")


def text(value: object) -> str:
    """Return a value as text of a page: nothing in it is markup."""
    return escape(plain(value), quote=True)


def duration(seconds: float | None) -> str:
    """Return seconds as people say them.

    >>> duration(3.25), duration(75), duration(7300), duration(None)
    ('3.2 s', '1 min 15 s', '2 h 1 min', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def summary(runs: Sequence[Run]) -> str:
    """Return a card for every run: state, best, newest values, duration; a button shows and hides its lines."""
    cards, called = [], names_of(runs)
    for i, run in enumerate(runs):
        best = run.best
        facts = [("steps", f"{run.step:,}"), ("time", duration(run.seconds))]
        if best:
            facts.insert(0, (f"{best.mode} {best.by}", f"{best.value:.5g} at step {best.step:,}"))
        # What the card shows already is not repeated among the newest values.
        newest = [(n, v) for n, v in run.last().items() if "gradient_norm" not in n and n != (best.by if best else "")]
        facts += [(name, f"{value:.5g}") for name, value in newest[:5]]
        rows = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in facts)
        several = len(runs) > 1
        mark = f'<span class="swatch c{i % COLOURS}"></span>' if several else ""
        head = f"{mark}<strong>{text(run.name)}</strong>"
        if several:
            head = f'<button type="button" data-toggle="{i}" aria-pressed="true" title="show or hide">{head}</button>'
        look = run.state if run.state in STATES else "unknown"
        state = f'<span class="state {look}">{text(run.state)}</span>'
        apart = f"<p class=note>{text(called[i])}</p>" if several and called[i] != run.name else ""
        warning = f'<p class="warning">{text(run.warning)}</p>' if run.warning else ""
        cards.append(f'<article class="card"><header>{head}{state}</header>{apart}<dl>{rows}</dl>{warning}</article>')
    return f'<div class="cards">{"".join(cards)}</div>'


def charts(found: Sequence[Chart], several: bool) -> str:
    """Return the charts, each with a logarithmic twin where that shows more."""
    parts = []
    for chart in found:
        button, twin = "", ""
        # A logarithmic twin is drawn at once and hidden: the page needs no code to draw.
        if chart.may_be_log:
            button = '<button type="button" class="log" aria-pressed="false">log</button>'
            twin = f'<div class="log-view" hidden>{draw(chart, log=True)}</div>'
        parts.append(
            f'<figure class="plot" id="plot-{text(chart.key)}"><figcaption><h3>{text(chart.title)}</h3>'
            f"{_legend(chart, several)}{button}</figcaption>"
            f'<div class="view">{draw(chart)}</div>{twin}</figure>'
        )
    return "".join(parts) or "<p>No metrics yet.</p>"


def _legend(chart: Chart, several: bool) -> str:
    """Return what colours and dashes mean: with one run splits have colours; several have a colour each, and dashes tell splits apart."""
    if not chart.lines or (chart.key == "speed" and not several):
        return ""
    shown: dict[str, str] = {}
    if several:
        shown |= {line.of: f"c{line.colour}" for line in chart.lines[: 2 * MOST_NAMES]}
    for line in chart.lines if chart.key != "speed" else ():
        label = line.label.rpartition(" ")[2] if several else line.label
        look = f"{'dashed ' * line.dashed}{'' if several else f'c{line.colour}'}"
        shown.setdefault(label, look)
    swatch = '<svg class="chart key" viewBox="0 0 26 8"><path class="line {look}" d="M1 4h24"/></svg>'
    return "".join(f"<span>{swatch.format(look=look)}{text(label)}</span>" for label, look in shown.items())


def chart_data(found: Sequence[Chart]) -> dict[str, object]:
    """Return the values that tooltips show, as JSON."""
    out: dict[str, object] = {}
    for chart in found:
        lines = []
        for line in chart.lines:
            steps, values = thin(line.series)
            # Six digits are what a tooltip shows; more would double the page.
            given = [float(f"{v:.6g}") if drawable(v) else None for v in values]
            lines.append({"label": line.label, "run": line.run, "colour": line.colour, "x": steps, "y": given})
        out[chart.key] = {"lines": lines}
    return out


def gradients(run: Run) -> str:
    """Return a map of the lengths of gradients: a row per parameter, a column per step, stronger where longer; empty without any."""
    found = dict(list(norms_of(run).items())[:MOST_ROWS])
    sizes = [v for s in found.values() for v in s.values if drawable(v) and v > 0]
    if not sizes:
        return ""
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    high = high if high > low else low + 1
    rows = []
    for name, series in found.items():
        n = min(COLUMNS, len(series.values))
        cells = []
        for c in range(n):
            value = series.values[c * len(series.values) // n]
            # Lengths differ by powers of ten, so strength goes by their logarithm; nothing is quite invisible.
            strength = 0.06 + 0.94 * (math.log10(value) - low) / (high - low) if drawable(value) and value > 0 else 0.0
            cells.append(f'<rect x="{c * 600 / n:.1f}" width="{600 / n + 0.3:.1f}" height="14" fill-opacity="{strength:.2f}"/>')
        svg = f'<svg viewBox="0 0 600 14" preserveAspectRatio="none" role="img" aria-label="{text(name)}">{"".join(cells)}</svg>'
        rows.append(f"<tr><th>{text(name)}</th><td class=strip>{svg}</td><td>{short(series.values[-1])}</td></tr>")
    return (
        f'<details><summary>{text(run.name)}: gradients by parameter</summary><div class="scroll"><table class="heat">'
        f"<tr><th>parameter</th><th>steps, from {short(10**low)} (pale) to {short(10**high)} (strong), logarithmic</th>"
        f"<th>newest</th></tr>{''.join(rows)}</table></div></details>"
    )


def memory(facts: Facts) -> str:
    """Return memory by category and by layer."""
    # Devices that hold the same are shown once.
    alike: dict[MemoryFacts, list[str]] = {}
    for device in facts.memory:
        alike.setdefault(replace(device, place=""), []).append(device.place)
    parts = [_categories(device, ", ".join(places)) for device, places in alike.items()]
    if facts.layers:
        parts.append(_layers(facts.layers))
    return "".join(parts)


def _categories(device: MemoryFacts, places: str) -> str:
    most = max((max(r.kept, r.peak) for r in device.rows), default=0) or 1
    rows = "".join(
        f"<tr><th>{text(r.kind)}</th><td>{_bar(r.kept, most, 0)}</td><td>{_bar(r.peak, most, 1)}</td><td>{_bytes(r.whole)}</td></tr>"
        for r in device.rows
    )
    return (
        f"<h4>{text(places)}: {size_text(device.total)}{' each' * (',' in places)}</h4>"
        f'<div class="scroll"><table class="bars"><tr><th>category</th><th>stays between steps</th><th>at the peak of a step</th>'
        f"<th>without sharing</th></tr>{rows}</table></div>"
        f"<p>The peak is at {text(device.at)}; a step's arena is {size_text(device.arena)}.</p>"
    )


def _layers(rows: Sequence[LayerFacts]) -> str:
    weights, outputs = max(r.parameter_bytes for r in rows) or 1, max(r.output_bytes for r in rows) or 1
    body = "".join(
        f"<tr><th>{text(r.name)}</th><td>{text(r.type)}</td><td>{text(r.output)}</td><td>{_bar(r.parameter_bytes, weights, 0)}</td>"
        f"<td>{_bar(r.output_bytes, outputs, 1)}</td><td>{short(r.flops) if r.flops else '-'}</td></tr>"
        for r in rows
    )
    return (
        '<h4>by layer</h4><div class="scroll"><table class="bars"><tr><th>layer</th><th>type</th><th>output</th><th>parameters</th>'
        f"<th>output of a batch</th><th>FLOPs a sample</th></tr>{body}</table></div>"
    )


def _bytes(count: int) -> str:
    return size_text(count) if count else "-"


def _bar(count: int, most: int, colour: int) -> str:
    bar = f'<span class="bar c{colour}" style="width:{100 * count / most:.1f}%"></span>' if count else ""
    return f'{bar}<span class="value">{_bytes(count)}</span>'


def side_by_side(title: str, runs: Sequence[Run], values: Sequence[Mapping[str, object]]) -> str:
    """Return a table of what differs between runs; empty for one run."""
    if len(runs) < 2:
        return ""
    rows = differences(values)
    if not rows:
        return f"<p>The {text(title)} of all runs are the same.</p>"
    heads = "".join(f'<th><span class="swatch c{i % COLOURS}"></span>{text(r.name)}</th>' for i, r in enumerate(runs))
    body = "".join(
        f"<tr><th>{text(k)}</th>{''.join(f'<td>{text(cell(v))}</td>' for v in vs)}</tr>" for k, vs in rows.items()
    )
    return f'<div class="scroll"><table><tr><th>{text(title)}: what differs</th>{heads}</tr>{body}</table></div>'
