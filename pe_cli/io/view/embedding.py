"""Rows as points of a plane, as HTML and SVG: an embedding along its two principal axes, with a colour for each class."""

from __future__ import annotations

import numpy as np

from pe_cli.io.view.chart import COLOURS
from pe_cli.io.view.sections import text
from pe_cli.metrics.principal_axes import EmbeddingPoints

#: Width, height, and the room at the left and below, in about pixels.
WIDTH, HEIGHT, LEFT, BELOW = 640.0, 420.0, 30.0, 30.0


def embedding(found: EmbeddingPoints | None) -> str:
    """Return the section's inside; empty where no layer was named."""
    if found is None:
        return ""
    frequent = np.argsort(-np.bincount(found.groups, minlength=len(found.names) or 1), kind="stable")
    # Colours that can be told apart are few: the most frequent groups have one each, and all others the last.
    colours = {int(group): min(i, COLOURS - 1) for i, group in enumerate(frequent)}
    least, most = found.places.min(axis=0), found.places.max(axis=0)
    span = np.where(most > least, most - least, 1.0)
    at = (found.places - least) / span * [WIDTH - 20, HEIGHT - 20] + 10
    dots: dict[int, list[str]] = {}
    for (x, y), group in zip(at.tolist(), found.groups.tolist(), strict=True):
        dots.setdefault(colours[group], []).append(f'<circle cx="{LEFT + x:.1f}" cy="{HEIGHT - y:.1f}" r="2.5" fill-opacity="0.7"/>')
    drawn = "".join(f'<g class="c{colour}">{"".join(circles)}</g>' for colour, circles in sorted(dots.items()))
    axes = [f"axis {i + 1}: {share:.1%} of the variance" for i, share in enumerate(found.shares)]
    labels = (
        f'<text class="unit" x="{LEFT + WIDTH / 2:g}" y="{HEIGHT + 20:g}" text-anchor="middle">{axes[0]}</text>'
        f'<text class="unit" x="14" y="{HEIGHT / 2:g}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2:g})">{axes[1]}</text>'
    )
    frame = f'<path class="base" d="M{LEFT:g} 0V{HEIGHT:g}H{LEFT + WIDTH:g}" fill="none"/>'
    box = f"0 0 {LEFT + WIDTH:g} {HEIGHT + BELOW:g}"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="{box}" role="img" aria-label="embedding">'
    svg += f"{frame}{drawn}{labels}</svg>"
    some = f", of which {len(found.places):,} are drawn" if len(found.places) < found.rows else ""
    by = f"; colours are those of '{found.of}'" if found.of else ""
    numbers = f"{found.size:,} number{'s' * (found.size > 1)}"
    axes_are = f"{numbers} along the two axes on which rows differ most (principal components){by}"
    head = f"'{found.layer}' of {found.rows:,} rows of data.{found.split}{some}: {axes_are}."
    caption = f"<figcaption>{_legend(found, colours)}</figcaption>"
    return f'<p class=note>{text(head)}</p><figure class="plot" id="plot-embedding">{caption}<div class="view">{svg}</div></figure>'


def _legend(found: EmbeddingPoints, colours: dict[int, int]) -> str:
    counts = np.bincount(found.groups, minlength=len(found.names) or 1)
    shown = [(group, colour) for group, colour in colours.items() if group < len(found.names) and counts[group]]
    many = len(shown) > COLOURS
    entries = [(found.names[group], colour) for group, colour in shown[: COLOURS - 1 if many else COLOURS]]
    if many:
        entries.append((f"{len(shown) - COLOURS + 1} others", COLOURS - 1))
    return "".join(
        f'<span><svg class="chart key c{colour}" viewBox="0 0 26 8"><circle cx="13" cy="4" r="3.5"/></svg>{text(name)}</span>'
        for name, colour in entries
    )
