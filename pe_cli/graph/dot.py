"""Pictures as Graphviz dot text, and as SVG where a renderer is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.picture import Arrow, Box, Datum, Picture, picture_of
from pe_cli.graph.ssa import Graph, VarNode

#: Fill colour of an op's box by role.
COLOURS = {
    "forward": "#cfe2ff",
    "loss": "#f8d7da",
    "backward": "#ffe5b4",
    "optimize": "#d1e7dd",
    "lr_sched": "#e2d9f3",
    "dist": "#f5c2c7",
}
#: Shape and fill colour by kind; an op's colour is its role's.
SHAPES = {
    "op": ("box", ""),
    "group": ("folder", ""),
    "collective": ("octagon", ""),
    "variable": ("ellipse", "white"),
    "persistable": ("cylinder", "#eeeeee"),
    "feed": ("parallelogram", "#fff3cd"),
}
MEANINGS = {
    "op": "op",
    "group": "ops of a name scope",
    "collective": "joins devices",
    "variable": "variable",
    "persistable": "kept between steps",
    "feed": "fed",
}
#: Seconds that rendering may take.
RENDER_SECONDS = 120
#: Characters of a line in a label.
LINE = 60
#: Boxes from which Graphviz gets an easier task: sizes stand in the variables and not at arrows, devices are ranked apart, fewer rounds.
#: ResNet-20 on two devices, every op drawn: 13 s, and more than 120 s without.
MANY = 400


def plain(text: object) -> str:
    """Return text that XML can hold: control characters and lone surrogates are shown as U+FFFD."""
    # XML 1.0 knows no such characters, not even escaped: one of them in a name would make the whole picture unreadable.
    return "".join("\ufffd" if _hidden(c) else c for c in str(text))


def _hidden(c: str) -> bool:
    code = ord(c)
    return (code < 32 and c != "\n") or 127 <= code < 160 or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF)


def quote(text: object) -> str:
    r"""Return text as a quoted dot string that means exactly this text, as a name.

    >>> print(quote('a "b" -> c'))
    "a \"b\" -> c"
    """
    escaped = plain(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def quote_label(text: object) -> str:
    """Return text as a quoted dot string that is shown as exactly this text: labels know entities such as `&lt;`, names don't."""
    return quote(str(text).replace("&", "&amp;"))


def size_text(nbytes: int) -> str:
    """Return bytes for people: `3.1 MiB`."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def to_dot(graph: Graph, type_of: Callable[[VarNode], TensorType] | None = None, title: str = "") -> str:
    """Draw a graph, whole; see `picture_of` and `write_dot`."""
    return write_dot(picture_of(graph, type_of, title))


def write_dot(picture: Picture) -> str:
    """Return a picture as dot text: clusters for devices, colours for roles, sizes at arrows, and a legend.

    Names of nodes are stable, so that two pictures can be compared.
    """
    title = "\n".join([picture.title, *picture.notes])
    many = len(picture.boxes) > MANY
    if many:
        picture = sizes_inside(picture)
    # Graphviz's network simplex takes time that grows faster than the graph; with these limits large graphs end at all.
    effort = "nslimit=0.1, nslimit1=0.1, mclimit=0.2, splines=line" if many else "newrank=true"
    lines = [
        "digraph pe {",
        f"  graph [label={quote_label(title)}, labelloc=t, fontname=Helvetica, rankdir=TB, {effort}];",
        "  node [fontname=Helvetica, fontsize=10];",
        "  edge [color=gray40, fontname=Helvetica, fontsize=8];",
    ]
    split = len(picture.clusters) > 1
    for d, name in enumerate(picture.clusters):
        inside = [f"    {_box(b)}" for b in picture.boxes if b.cluster == d]
        if split and inside:
            lines += [f"  subgraph cluster_{d} {{", f"    label={quote_label(name)}; color=gray60; style=rounded;"]
            lines += [*inside, "  }"]
        else:
            lines += inside
    inside_any = range(len(picture.clusters))
    lines += [f"  {_box(b)}" for b in picture.boxes if b.cluster not in inside_any]
    lines += [f"  {_arrow(a)}" for a in picture.arrows]
    lines += _legend(picture.boxes)
    return "\n".join([*lines, "}"]) + "\n"


def sizes_inside(picture: Picture) -> Picture:
    """Return a picture whose variables show their sizes, and whose arrows don't."""
    ops = {b.key for b in picture.boxes if b.is_op}
    # One flow for each variable, whoever reads it: they all get the same bytes.
    flows = {a.source if a.source not in ops else a.target: _flow(a.data) for a in picture.arrows if a.data}
    boxes = tuple(
        b if b.is_op else replace(b, lines=tuple(dict.fromkeys((*b.lines, *flows.get(b.key, "").split("\n"))))) for b in picture.boxes
    )
    arrows = tuple(a if a.source in ops and a.target in ops else replace(a, shown=False) for a in picture.arrows)
    return replace(picture, boxes=boxes, arrows=arrows)


def _box(box: Box) -> str:
    text = "\n".join(_short(line) for line in (box.title, *box.lines))
    return f"{quote(box.key)} [{_look(box)}, label={quote_label(text)}, tooltip={quote_label(box.tip or box.title)}];"


def _look(box: Box) -> str:
    shape, colour = SHAPES[box.kind]
    if box.is_op:
        colour = COLOURS.get(box.role, "white")
    twice = ", peripheries=2" if box.fused else ""
    return f"shape={shape}, style=filled, fillcolor={quote(colour)}{twice}"


def _arrow(arrow: Arrow) -> str:
    ends = f"{quote(arrow.source)} -> {quote(arrow.target)}"
    if arrow.order:
        return f"{ends} [style=dashed, color=gray70, constraint=false];"
    text = _flow(arrow.data) if arrow.shown else ""
    if text and not _names_variable(arrow):
        text = f"{_short(arrow.data[0].name)}\n{text}" if len(arrow.data) == 1 else text
    return f"{ends} [label={quote_label(text)}];" if text else f"{ends};"


def _names_variable(arrow: Arrow) -> bool:
    """Whether a box at one of the ends is the variable, so that the arrow need not name it."""
    start = f"{arrow.data[0].name}/"
    return arrow.source.startswith(start) or arrow.target.startswith(start)


def _flow(data: Sequence[Datum]) -> str:
    """Return shapes and bytes of what flows."""
    sizes = [d.type.nbytes if d.type else -1 for d in data]
    total = size_text(sum(sizes)) if sizes and min(sizes) >= 0 else ""
    if len(data) == 1:
        kind = str(data[0].type) if data[0].type else ""
        return "\n".join(part for part in (kind, total) if part)
    return f"{len(data)} variables" + (f"\n{total}" if total else "")


# Both ends are kept: names of layers differ in their first part, those of gradients in their last.
def _short(line: str) -> str:
    return line if len(line) <= LINE else f"{line[: LINE // 2]}…{line[-LINE // 2 + 1 :]}"


def legend_rows(boxes: Sequence[Box]) -> list[Box]:
    """Return a box for every colour and shape that a picture uses, with what it means as its title."""
    ops = [b for b in boxes if b.is_op]
    rows = [Box("", role, "op", role) for role in COLOURS if any(b.role == role for b in ops)]
    kinds = [k for k in SHAPES if k != "op" and any(b.kind == k for b in boxes)]
    rows += [Box("", MEANINGS[kind], kind) for kind in kinds]
    if any(b.fused for b in ops):
        rows.append(Box("", "fused", "op", fused=True))
    return rows


def _legend(boxes: Sequence[Box]) -> list[str]:
    """Return a cluster with the colours and shapes that the picture uses."""
    rows = legend_rows(boxes)
    if not rows:
        return []
    lines = ["  subgraph cluster_legend {", "    label=legend; color=gray60; style=dotted; fontsize=10;"]
    for i, row in enumerate(rows):
        lines.append(f"    {quote(f'legend {i}')} [{_look(row)}, label={quote_label(row.title)}, fontsize=8, height=0.2];")
    # Invisible edges keep the rows of the legend below each other.
    links = " -> ".join(quote(f"legend {i}") for i in range(len(rows)))
    return [*lines, *([f"    {links} [style=invis];"] if len(rows) > 1 else []), "  }"]


def render_svg(dot: str) -> bytes:
    """Render dot text as SVG, by the `dot` command or by pygraphviz.

    Raises:
        PeError: neither is installed, it takes too long (exit code 2), or it failed.
    """
    command = shutil.which("dot")
    # The command is asked first, because it can be ended when it takes too long.
    if command:
        try:
            done = subprocess.run(
                [command, "-Tsvg"], input=dot.encode(), capture_output=True, timeout=RENDER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeError(
                f"Graphviz did not finish within {RENDER_SECONDS} s",
                hint="leave out --full, or draw a part with --only or --around",
            ) from None
        if done.returncode == 0:
            return done.stdout
        raise PeError(f"Graphviz failed: {done.stderr.decode(errors='replace').strip()[:200]}", code=ExitCode.BUG)
    try:
        import pygraphviz
    except ImportError:
        raise PeError(
            "an SVG needs a renderer, and none is installed",
            hint="install Graphviz, or pip install 'pe-cli[graphviz]'; --dot writes the graph as text without one",
        ) from None
    drawn: Any = pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot")
    return bytes(drawn)
