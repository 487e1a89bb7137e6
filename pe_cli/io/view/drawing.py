"""Graphs as SVG, for files and the report's page: by Graphviz where it is installed, sanitized, else by our own layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from xml.etree import ElementTree

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.graph.dot import COLOURS, SHAPES, legend_rows, plain, render_svg, sizes_inside, write_dot
from pe_cli.graph.picture import Arrow, Box, Picture
from pe_cli.io.view.layered_layout import Spot, place

#: Elements and attributes of Graphviz's SVG that a page takes over; nothing of it links, loads or runs.
ELEMENTS = frozenset({"svg", "g", "title", "polygon", "path", "ellipse", "text", "polyline"})
ATTRIBUTES = frozenset(
    {
        "class", "cx", "cy", "d", "fill", "font-family", "font-size", "points", "rx", "ry", "stroke", "stroke-dasharray",
        "text-anchor", "transform", "viewBox", "x", "y", "id",
    }
)  # fmt: skip
#: The head of an arrow.
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
)
_VALUE = re.compile(r"[\w\s.,#%()+-]*", re.ASCII)
#: Size of a letter, and lines and letters of a box.
LETTER, ROW = 6.6, 15.0
MOST_LETTERS = 34
#: Types that an arrow says.
MOST_TYPES = 2
#: Boxes up to which Graphviz, where it is installed, draws a file: of more it takes minutes.
GRAPHVIZ = 600
#: Room between the boxes of a device and its frame, with the device's name.
FRAME = 22.0


def picture_file(picture: Picture) -> bytes:
    """Return a picture as the bytes of an SVG file: Graphviz's, or, where it is not installed or the picture is too large, our own."""
    if len(picture.boxes) <= GRAPHVIZ:
        try:
            return render_svg(write_dot(picture))
        except PeError as error:
            # A bug is told; that there is no renderer is not.
            if error.code == ExitCode.BUG:
                raise
    return standalone_graph(picture).encode()


def graph_svg(picture: Picture) -> tuple[str, str]:
    """Return a picture as an SVG element, and a text that says which program laid it out."""
    try:
        return sanitized(render_svg(write_dot(picture))), "laid out by Graphviz"
    except PeError as error:
        if error.code == ExitCode.BUG:
            raise
        return own_svg(picture, sized=True), "own layout, as Graphviz is not installed"


def sanitized(svg: bytes) -> str:
    """Return an SVG document as an element with known elements and harmless attributes only."""
    # Expat reads it: it loads no external entities.
    root = ElementTree.fromstring(svg)
    return "".join(_clean(root))


def _clean(node: ElementTree.Element) -> Iterator[str]:
    name = node.tag.rpartition("}")[2]
    # links around nodes carry their tooltips: keep what is inside
    inner = (part for child in node for part in _clean(child))
    if name == "a":
        yield from inner
    elif name in ELEMENTS:
        # Values of attributes are taken only where they are made of harmless characters, so that none can hold a script or a link.
        kept = {k: v for k, v in node.attrib.items() if k in ATTRIBUTES - {"id"} and _VALUE.fullmatch(v)}
        kept |= {"xmlns": "http://www.w3.org/2000/svg", "data-layout": "graphviz"} if name == "svg" else {}
        attributes = "".join(f' {k}="{escape(v)}"' for k, v in kept.items())
        yield f"<{name}{attributes}>{escape(plain((node.text or '').strip()))}"
        yield from inner
        yield f"</{name}>"


def own_svg(picture: Picture, *, sized: bool = False) -> str:
    """Return a picture by our own layout: boxes with role colours, arrows from top to bottom.

    Args:
        picture: of any stage.
        sized: whether the types of what flows are written, in variables and at arrows between ops.
    """
    picture = sizes_inside(picture) if sized else picture
    texts = {b.key: _texts(b) for b in picture.boxes}
    sizes = {
        key: (max(len(t) for t in lines) * LETTER + 20, ROW * len(lines) + 10) for key, lines in texts.items()
    }
    # Order alone gives no layers: such an arrow may go up.
    spots, ways = place(sizes, [(a.source, a.target) for a in picture.arrows if not a.order], _columns(picture))
    said = list(_said(picture, spots)) if sized else []
    frames = list(_frames(picture, spots))
    ends = [*(s.x + s.width / 2 for s in spots.values()), *(x + len(text) * LETTER for x, _, text in said)]
    margin = FRAME + 10 if frames else 10.0
    width = max(ends, default=0.0) + 2 * margin
    height = max((s.y + s.height / 2 for s in spots.values()), default=0.0) + 2 * margin
    view = f"{-margin:g} {-margin:g} {width:.0f} {height:.0f}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" data-layout="own">', ARROW, *frames]
    for a in picture.arrows:
        if a.source in spots and a.target in spots:
            parts.append(_arrow(a, spots, ways))
    parts += [f'<text class="said" x="{x:.1f}" y="{y:.1f}">{escape(plain(text))}</text>' for x, y, text in said]
    parts += [_box(b, spots[b.key], texts[b.key]) for b in picture.boxes]
    return "".join([*parts, "</svg>"])


def _columns(picture: Picture) -> dict[str, int]:
    """Return the column of every box: one for each device, and in their middle one for what joins them."""
    count = len(picture.clusters)
    if count < 2:
        return {}
    middle = (count + 1) // 2
    return {b.key: middle if b.cluster is None else b.cluster + (b.cluster >= middle) for b in picture.boxes}


def _frames(picture: Picture, spots: Mapping[str, Spot]) -> Iterator[str]:
    """Yield a frame with its name for every device, where there are several."""
    for d, name in enumerate(picture.clusters) if len(picture.clusters) > 1 else ():
        inside = [spots[b.key] for b in picture.boxes if b.cluster == d]
        if inside:
            left, right = min(s.x - s.width / 2 for s in inside), max(s.x + s.width / 2 for s in inside)
            top, bottom = min(s.y - s.height / 2 for s in inside), max(s.y + s.height / 2 for s in inside)
            yield (
                f'<rect class="frame" x="{left - FRAME:.1f}" y="{top - FRAME:.1f}" width="{right - left + 2 * FRAME:.1f}"'
                f' height="{bottom - top + 2 * FRAME:.1f}" rx="8"/>'
                f'<text class="said" x="{left - FRAME + 8:.1f}" y="{top - FRAME + 14:.1f}">{escape(plain(name))}</text>'
            )


def _arrow(a: Arrow, spots: Mapping[str, Spot], ways: Mapping[tuple[str, str], Sequence[Spot]]) -> str:
    """Return an arrow with what flows as its tooltip; one that says an order is dashed, one straight over layers fainter."""
    start, way, end = spots[a.source], ways.get((a.source, a.target), ()), spots[a.target]
    # A long straight arrow crosses many layers, and is drawn fainter so that boxes stay readable.
    far = not a.order and not way and end.y - start.y > 12 * ROW
    flow = ", ".join(f"{d.name}: {d.type}" if d.type else d.name for d in a.data[:12])
    look = "edge order" if a.order else "edge far" if far else "edge"
    title = f"<title>{escape(plain(flow))}</title>" if flow else ""
    drawn = _line(start, end) if a.order else _curve(start, way, end)
    return f'<path class="{look}" d="{drawn}" marker-end="url(#arrow)">{title}</path>'


def standalone_graph(picture: Picture) -> str:
    """Return a picture by our own layout as the text of an SVG file that any viewer shows, with types at arrows."""
    drawn = own_svg(picture, sized=True)
    x, y, width, height = map(float, re.findall(r'viewBox="([^"]+)"', drawn)[0].split())
    title = [picture.title, *picture.notes]
    legend, right = _legend(legend_rows(picture.boxes), 24.0 * len(title) + 10)
    top, width = 24.0 * len(title) + (44 if legend else 10), max(width, 20 + 9.0 * max(map(len, title)), right)
    rows = "".join(f'<text class="title" x="12" y="{24 * i + 26}">{escape(plain(line))}</text>' for i, line in enumerate(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" width="{width:.0f}" height="{height + top:.0f}"'
        f' viewBox="0 0 {width:.0f} {height + top:.0f}"><style>{_style()}</style><rect class="paper" width="100%" height="100%"/>'
        f"{rows}{legend}"
        f'<g transform="translate({-x:g} {top - y:g})">{drawn.partition(">")[2].removesuffix("</svg>")}</g></svg>\n'
    )


def _legend(rows: Sequence[Box], top: float) -> tuple[str, float]:
    """Return a row of small boxes that say what colours mean, and where it ends; nothing where there is one colour."""
    x, parts = 12.0, []
    for row in rows if len(rows) > 1 else ():
        width = len(row.title) * LETTER + 16
        parts.append(_box(row, Spot(x + width / 2, top + 12, width, ROW + 8), [row.title]))
        x += width + 8
    return f'<g class="legend">{"".join(parts)}</g>' * bool(parts), x + 4


def _style() -> str:
    """Return the rules for a picture of its own, of which the page has some more."""
    fills = [f".role-{role} rect {{ fill: {colour}; }}" for role, colour in COLOURS.items()]
    fills += [f".kind-{kind} rect {{ fill: {colour}; }}" for kind, (_, colour) in SHAPES.items() if colour]
    return (
        '.graph { font: 11px system-ui, "DejaVu Sans", sans-serif; } .paper { fill: #ffffff; } .title { font-size: 15px; fill: #1b1f24; }'
        " .edge { fill: none; stroke: #8a94a0; } .order { stroke-dasharray: 4 3; } .far { stroke-opacity: 0.4; }"
        " .frame { fill: #f8f9fa; stroke: #b8c0c8; } .box.joins rect { stroke-width: 2.5; } .head { fill: #8a94a0; }"
        " .said { fill: #59636e; font-size: 10px; }"
        " .box rect { fill: #ffffff; stroke: #6e7884; } .box rect.inner { fill: none; } .box text { text-anchor: middle; fill: #1b1f24; }"
        f" .first {{ font-weight: 600; }} .more {{ font-size: 10px; }} {' '.join(fills)}"
    )


def _said(picture: Picture, spots: Mapping[str, Spot]) -> Iterator[tuple[float, float, str]]:
    """Yield where to say what types flow, and the text: below what makes them, each once."""
    found: dict[str, dict[str, None]] = {}
    for a in picture.arrows:
        if a.shown and not a.order and a.source in spots:
            texts = dict.fromkeys(str(d.type) for d in a.data if d.type)
            # More types than that would cover the boxes.
            found.setdefault(a.source, {}).update(texts if len(texts) <= MOST_TYPES else {f"{len(a.data)} variables": None})
    for key, lines in found.items():
        spot = spots[key]
        for i, text in enumerate(lines):
            yield spot.x + 6, spot.y + spot.height / 2 + 12 * (i + 1) + 2, text


def _texts(box: Box) -> list[str]:
    lines = [plain(line).replace("\n", " ") for line in (box.title, *box.lines)]
    return [line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS - 1]}…" for line in lines if line] or [" "]


def _curve(a: Spot, way: Sequence[Spot], b: Spot) -> str:
    """Return the path from one box to another, straight down through the layers that it passes."""
    x, y = a.x, a.y + a.height / 2
    parts = [f"M{x:.1f} {y:.1f}"]
    for spot in (*way, b):
        top = spot.y - spot.height / 2
        bend = max(20.0, (top - y) / 2)
        parts.append(f"C{x:.1f} {y + bend:.1f} {spot.x:.1f} {top - bend:.1f} {spot.x:.1f} {top:.1f}")
        x, y = spot.x, top + spot.height
        parts.append(f"V{y:.1f}" if spot is not b else "")
    return "".join(parts)


def _line(a: Spot, b: Spot) -> str:
    """Return a straight line from one box to another, which may lie above it."""
    down = 0.5 if b.y >= a.y else -0.5
    return f"M{a.x:.1f} {a.y + down * a.height:.1f}L{b.x:.1f} {b.y - down * b.height:.1f}"


def _box(box: Box, spot: Spot, lines: list[str]) -> str:
    look = f"role-{re.sub(r'[^a-z_]', '', box.role)}" if box.is_op else f"kind-{box.kind}"
    look += " joins" * (box.kind == "collective")
    left, top = spot.x - spot.width / 2, spot.y - spot.height / 2
    corner = 4 if box.is_op else spot.height / 2
    rows = "".join(
        f'<text class="{"first" if i == 0 else "more"}" x="{spot.x:.1f}" y="{top + ROW * i + 16:.1f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    tip = escape(plain(box.tip or box.title))
    inner = (
        f'<rect class="inner" x="{left + 2.5:.1f}" y="{top + 2.5:.1f}" width="{spot.width - 5:.1f}" height="{spot.height - 5:.1f}"'
        f' rx="{max(0.0, corner - 2):.1f}"/>'
    )
    return (
        f'<g class="box {look}"><title>{tip}</title><rect x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}"'
        f' height="{spot.height:.1f}" rx="{corner:.1f}"/>{inner * box.fused}{rows}</g>'
    )
