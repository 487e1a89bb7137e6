"""A classifier's report as HTML and SVG: ROC, precision and recall, calibration, figures by class, confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.io.view.chart import COLOURS
from pe_cli.io.view.sections import text
from pe_cli.metrics.curves import Array, Calibration, ClassifierEvaluation, PrecisionRecall

#: Classes up to which the matrix is drawn, pairs that are named where it is not, and lines of a chart.
MOST_CLASSES, PAIRS, LINES = 30, 20, 8
#: Points of a curve that are drawn.
POINTS = 400
#: A square and the room around it, in about pixels.
SIDE, LEFT, TOP = 240.0, 44.0, 12.0


def judgement(found: ClassifierEvaluation | None) -> str:
    """Return the section's inside; empty for a model that is no classifier."""
    if found is None:
        return ""
    what = "have the right set of tags" if found.confusion is None else "are right"
    share = f"{found.right:,} {what}, {found.right / found.rows:.2%}."
    said = f"{found.rows:,} samples of data.{found.split}, with the checkpoint that pe eval takes: {share}"
    head = f"<p class=note>{text(said)}</p>"
    matrix = "" if found.confusion is None else _matrix(found.confusion, found.names)
    plots = f"{_roc(found)}{_precision_recall(found)}{_calibration(found)}"
    return f'{head}<div class="plots">{plots}</div>{_table(found)}{matrix}'


def _table(found: ClassifierEvaluation) -> str:
    """Return what is decided of each class, those with the smallest F1 where there are many."""
    worst = sorted(found.figures, key=lambda one: one.f1)[:MOST_CLASSES]
    shown = [one for one in found.figures if any(one is w for w in worst)]
    rows = ""
    for one in shown:
        limit = "the most probable" if one.threshold is None else f"{one.threshold:.4g}"
        average = "" if one.average is None else f"{one.average:.4f}"
        numbers = "".join(f"<td>{value:.4f}</td>" for value in (one.precision, one.recall, one.f1))
        rows += f"<tr><th>{text(one.name)}</th><td>{limit}</td>{numbers}<td>{average}</td><td>{one.rows:,}</td></tr>"
    of = "tag" if found.confusion is None else "class"
    titles = (of, "taken from", "precision", "recall", "F1", "average precision", "samples")
    head = "".join(f"<th>{title}</th>" for title in titles)
    more = f", the {len(shown)} with the smallest F1 of {len(found.figures)}" if len(shown) < len(found.figures) else ""
    return f'<h4>by {of}{more}</h4><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _figure(title: str, key: str, lines: Sequence[str], across: str, up: str, legend: str, *, diagonal: bool = True) -> str:
    """Return a chart whose axes go from 0 to 1, with the diagonal where it means something."""
    parts = []
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x, y = _place(tick, tick)
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}h{SIDE:g}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{TOP + SIDE + 17:g}" text-anchor="middle">{tick:g}</text>')
    bottom, middle, half = TOP + SIDE, LEFT + SIDE / 2, TOP + SIDE / 2
    parts.append(f'<path class="base" d="M{LEFT:g} {bottom:g}h{SIDE:g}"/>')
    if diagonal:
        parts.append(f'<path class="base" stroke-dasharray="2 4" d="M{LEFT:g} {bottom:g}L{LEFT + SIDE:g} {TOP:g}"/>')
    parts.append(f'<text class="unit" x="{middle:g}" y="{bottom + 34:g}" text-anchor="middle">{text(across)}</text>')
    parts.append(f'<text class="unit" x="10" y="{half:g}" text-anchor="middle" transform="rotate(-90 10 {half:g})">{text(up)}</text>')
    width, height = LEFT + SIDE + 14, TOP + SIDE + 40
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{title}">'
    body = "".join([svg, *parts, *lines, "</svg>"])
    return f'<figure class="plot" id="plot-{key}"><figcaption><h3>{title}</h3>{legend}</figcaption><div class="view">{body}</div></figure>'


def _place(x: float, y: float) -> tuple[float, float]:
    return LEFT + x * SIDE, TOP + (1 - y) * SIDE


def _path(xs: Array, ys: Array) -> str:
    chosen = np.unique(np.linspace(0, len(xs) - 1, min(len(xs), POINTS)).round().astype(int))
    places = (_place(float(xs[i]), float(ys[i])) for i in chosen)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _roc(found: ClassifierEvaluation) -> str:
    worst = sorted(found.rocs, key=lambda curve: curve.area)[:LINES]
    shown = [curve for curve in found.rocs if any(curve is w for w in worst)]
    if not shown:
        return ""
    lines = [f'<g class="c{i % COLOURS}"><path class="line" d="{_path(c.false, c.true)}"/></g>' for i, c in enumerate(shown)]
    legend = "".join(_entry(i, f"{c.name}: area {c.area:.4f}") for i, c in enumerate(shown))
    if len(shown) < len(found.rocs):
        legend += f"<span>the {len(shown)} classes with the smallest area of {len(found.rocs)}</span>"
    return _figure("receiver operating characteristic", "roc", lines, "false positive rate", "true positive rate", legend)


def _precision_recall(found: ClassifierEvaluation) -> str:
    """Return precision over recall; a dotted line is that of a random order."""
    worst = sorted(found.precisions, key=lambda curve: curve.average)[:LINES]
    shown = [curve for curve in found.precisions if any(curve is w for w in worst)]
    if not shown:
        return ""
    lines = []
    for i, c in enumerate(shown):
        level = _path(np.array([0.0, 1.0]), np.array([c.share, c.share]))
        dotted = f'<path class="line" stroke-dasharray="2 4" d="{level}"/>' if len(shown) == 1 else ""
        lines.append(f'<g class="c{i % COLOURS}"><path class="line" d="{_steps(c)}"/>{dotted}</g>')
    legend = "".join(_entry(i, f"{c.name}: average precision {c.average:.4f}") for i, c in enumerate(shown))
    if len(shown) < len(found.precisions):
        legend += f"<span>the {len(shown)} classes with the smallest average precision of {len(found.precisions)}</span>"
    return _figure("precision and recall", "precision-recall", lines, "recall", "precision", legend, diagonal=False)


def _steps(curve: PrecisionRecall) -> str:
    """Return the curve as steps, whose area is the average precision."""
    before = np.concatenate([[0.0], curve.recall[:-1]])
    return _path(np.stack([before, curve.recall], axis=1).reshape(-1), np.repeat(curve.precision, 2))


def _entry(index: int, said: str) -> str:
    swatch = f'<svg class="chart key" viewBox="0 0 26 8"><path class="line c{index % COLOURS}" d="M1 4h24"/></svg>'
    return f"<span>{swatch}{text(said)}</span>"


def _calibration(found: ClassifierEvaluation) -> str:
    curve: Calibration = found.calibration
    most = int(curve.rows.max())
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 + 4 * (n / most) ** 0.5:.1f}">'
        f"<title>{n:,} samples: said {s:.4f}, came true {r:.4f}</title></circle>"
        for s, r, n in zip(curve.said.tolist(), curve.right.tolist(), curve.rows.tolist(), strict=True)
        for x, y in [_place(s, r)]
    )
    line = f'<g class="c0"><path class="line" d="{_path(curve.said, curve.right)}"/>{dots}</g>'
    across = f"mean probability of {found.said}"
    return _figure("calibration", "calibration", [line], across, "share that is right", "<span>larger dots: more samples</span>")


def _matrix(counts: Array, names: Sequence[str]) -> str:
    if len(names) > MOST_CLASSES:
        pairs = sorted(((int(counts[i, j]), i, j) for i, j in np.argwhere(counts) if i != j), reverse=True)[:PAIRS]
        rows = "".join(f"<tr><th>{text(names[i])}</th><td>{text(names[j])}</td><td>{n:,}</td></tr>" for n, i, j in pairs)
        head = "<tr><th>is</th><th>taken for</th><th>samples</th></tr>"
        return f'<h4>confused most</h4><div class="scroll"><table>{head}{rows}</table></div>'
    most = counts.sum(axis=1, keepdims=True)
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    body = ""
    for i, name in enumerate(names):
        cells = ""
        for j in range(len(names)):
            share = counts[i, j] / most[i, 0] if most[i, 0] else 0.0
            shade = f' style="--share:{100 * share:.0f}%"' if counts[i, j] else ""
            cells += f"<td{' class=right' if i == j else ''}{shade}>{counts[i, j]:,}</td>"
        body += f"<tr><th>{text(name)}</th>{cells}</tr>"
    return (
        '<h4>confusion: true classes down, taken ones across</h4><div class="scroll"><table class="confusion">'
        f"<tr><th></th>{head}</tr>{body}</table></div>"
    )
