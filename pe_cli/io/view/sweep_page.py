"""The page of a sweep: its table, the importance of each key, and parallel axes with a line per trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from pe_cli.core.errors import shown
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.view.sections import text
from pe_cli.io.view.ticks import short

#: Sizes of the picture in about pixels: between axes, of the margins, and of an axis.
GAP, SIDE, TOP, TALL = 150.0, 70.0, 34.0, 260.0
#: Values up to which every one has its place on an axis, instead of one by its size.
FEW = 4
#: Lines that are drawn, the best ones, and letters of a label.
MOST, LETTERS = 500, 16


@dataclass(frozen=True)
class Axis:
    """Where values lie.

    Args:
        name: over it.
        places: text of a value -> its place from 0, the bottom, to 1; empty where the size says it.
        low, high: sizes at bottom and top.
        log: whether the axis is logarithmic.
    """

    name: str
    places: Mapping[str, float]
    low: float = 0.0
    high: float = 1.0
    log: bool = False

    def place(self, value: Any) -> float:
        """Return the place of a value, from 0 to 1."""
        if self.places:
            return self.places[str(value)]
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """Return places with what stands there."""
        if self.places:
            return [(place, name) for name, place in self.places.items()]
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return [(place, short(value)) for place, value in ((0.0, self.low), (0.5, middle), (1.0, self.high))]


def axis_of(name: str, values: Sequence[Any], few: int = FEW) -> Axis:
    """Return an axis that has a place for all values.

    Args:
        name: over it.
        values: at least one.
        few: different values up to which each gets a place of its own.
    """
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    different = list(dict.fromkeys(map(str, sorted(values) if numbers else values)))
    if not numbers or len(different) <= max(1, few):
        return Axis(name, {value: 0.5 if len(different) == 1 else i / (len(different) - 1) for i, value in enumerate(different)})
    low, high = float(min(values)), float(max(values))
    return Axis(name, {}, low, high, low > 0 and high / low >= 20)


def parallel_svg(points: Sequence[Mapping[str, Any]]) -> str:
    """Return lines through parallel axes as an SVG element.

    Args:
        points: name of an axis -> value, the last one being the metric; the best trial first. At least one.
    """
    points = points[:MOST]
    names = list(points[0])
    axes = [axis_of(name, [point[name] for point in points], FEW if name != names[-1] else 1) for name in names]
    width, height = 2 * SIDE + GAP * (len(axes) - 1), TOP + TALL + 16
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {size} role="img" aria-label="parallel coordinates">']
    for i, point in reversed(list(enumerate(points))):  # the best one is drawn over the others
        way = "L".join(f"{SIDE + GAP * k:.1f} {_y(axis.place(point[axis.name])):.1f}" for k, axis in enumerate(axes))
        tip = ", ".join(f"{name.strip()} {_label(value)}" for name, value in point.items())
        faint = "" if i == 0 else ' style="opacity:.45;stroke-width:1"'
        parts.append(f'<g class="c{int(i == 0)}"><path class="line"{faint} d="M{way}"><title>{text(tip)}</title></path></g>')
    for k, axis in enumerate(axes):
        x = SIDE + GAP * k
        parts.append(f'<path class="base" d="M{x:g} {TOP:g}V{TOP + TALL:g}"/>')
        parts.append(f'<text class="unit" x="{x:g}" y="16" text-anchor="middle">{escape(_cut(axis.name.strip(), 24))}</text>')
        for place, label in axis.ticks():
            parts.append(f'<text class="axis" x="{x + 6:g}" y="{_y(place) + 4:.1f}">{escape(_cut(label, LETTERS))}</text>')
    return "".join([*parts, "</svg>"])


def _y(place: float) -> float:
    return TOP + TALL * (1 - place)


def _label(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cut(label: str, most: int) -> str:
    label = shown(label)
    return label if len(label) <= most else f"{label[: most - 1]}…"


def sweep_page(
    title: str, rows: Sequence[Sequence[object]], importance: Mapping[str, float | None], points: Sequence[Mapping[str, Any]], by: str
) -> str:
    """Return a page about a sweep, which needs no script and no network.

    Args:
        title: over it.
        rows: the table, with a header.
        importance: name of a key -> share of the variance that it explains, None where that is not known.
        points: as for `parallel_svg`; may be empty.
        by: the metric.
    """
    css = "".join(resources.files("pe_cli.io.view").joinpath(name).read_text(encoding="utf-8") for name in ("chart.css", "page.css"))
    head = "".join(f"<th>{text(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    shares = sorted(((n, s) for n, s in importance.items() if s is not None), key=lambda pair: -pair[1])
    known = "".join(f"<tr><th>{text(name)}</th><td>{share:.2f}</td></tr>" for name, share in shares)
    picture = f'<div class="scroll">{parallel_svg(points)}</div>' if points else "<p class=note>no trial was measured yet</p>"
    how = (
        f"Share of the variance of {text(by)} after the first budget that the values of a key explain, as an adjusted R&sup2; over groups"
        " of trials with the same value, or with numbers in three groups by size. It sees each key alone, and says little of few trials."
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f'<title>{text(title)}</title><style>{css}</style></head>\n<body><header class="top"><h1>{text(title)}</h1></header>\n<main>'
        f"<section><h2>Parallel coordinates</h2>{picture}<p class=note>One line per trial; the thick one is the best.</p></section>\n"
        + (f"<section><h2>Importance</h2><table>{known}</table><p class=note>{how}</p></section>\n" if known else "")
        + f'<section><h2>Trials</h2><div class="scroll"><table><tr>{head}</tr>{body}</table></div></section>\n</main></body></html>\n'
    )
