"""Pictures: a graph as Graphviz dot text, and as SVG where a renderer is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Graph, OpNode, VarNode, label_of

#: Fill colour of an op's box by role.
COLOURS = {
    "forward": "#cfe2ff",
    "loss": "#f8d7da",
    "backward": "#ffe5b4",
    "optimize": "#d1e7dd",
    "lr_sched": "#e2d9f3",
    "dist": "#f5c2c7",
}
#: Seconds that rendering may take.
RENDER_SECONDS = 120


def quote(text: object) -> str:
    """Return text as a quoted dot string."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def size_text(nbytes: int) -> str:
    """Return bytes for people: `3.1 MiB`."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def to_dot(graph: Graph, type_of: Callable[[str], TensorType] | None = None, title: str = "") -> str:
    """Draw a graph: ops are boxes coloured by role, variables ellipses with shapes, devices clusters, collectives between them.

    Args:
        graph: of any stage.
        type_of: type of a variable by name; default: as the program declares it.
        title: over the picture.

    Returns:
        Dot text; node names are stable, so that two pictures can be compared.
    """
    variables = graph.program.global_block().vars
    kind_of = type_of or (lambda name: variables[name].type)
    lines = [
        "digraph pe {",
        f"  graph [label={quote(title or graph.program.name or 'program')}, labelloc=t, fontname=Helvetica, rankdir=TB, newrank=true];",
        "  node [fontname=Helvetica, fontsize=10];",
        "  edge [color=gray40, fontname=Helvetica, fontsize=8];",
    ]
    nodes = list(graph.nodes)
    seen = {v for node in nodes for v in (*node.inputs, *node.outputs)}
    for d, place in enumerate(graph.places):
        inside = [
            *(f"    {_op(node)}" for node in nodes if node.device == d and not _joins(node)),
            *(f"    {_variable(v, kind_of)}" for v in sorted(seen, key=str) if v.device == d),
        ]
        if len(graph.places) > 1:
            lines += [
                f"  subgraph cluster_{d} {{",
                f"    label={quote(place)}; color=gray60; style=rounded;",
                *inside,
                "  }",
            ]
        else:
            lines += inside
    lines += [f"  {_op(node)}" for node in nodes if _joins(node)]
    for node in nodes:
        lines += [f"  {_name(v)} -> op{node.index};" for v in node.inputs]
        lines += [f"  op{node.index} -> {_name(v)};" for v in node.outputs]
        lines += [
            f"  op{before} -> op{node.index} [style=dashed, color=gray70, constraint=false];" for before in node.after
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _joins(node: OpNode) -> bool:
    return node.kind.endswith("all_reduce")


def _op(node: OpNode) -> str:
    label = label_of(node)
    text = label["title"] + (f"\n{label['scope'].strip('/')}" if label["scope"] else "")
    shape = "box" if node.kind == "computation" else "octagon"
    colour = COLOURS.get(label["role"], "white")
    tip = label["at"] or text
    look = f"shape={shape}, style=filled, fillcolor={quote(colour)}"
    return f"op{node.index} [{look}, label={quote(text)}, tooltip={quote(tip)}];"


def _name(v: VarNode) -> str:
    return quote(f"{v.name}/{v.device}/{v.version}")


def _variable(v: VarNode, kind_of: Callable[[str], TensorType]) -> str:
    try:
        kind = kind_of(v.name)
    except KeyError:
        return f"{_name(v)} [shape=ellipse, label={quote(v.name)}];"
    sizes = "x".join("batch" if s < 0 else str(s) for s in kind.shape)
    bytes_ = f"\n{size_text(kind.nbytes)}" if kind.nbytes >= 0 else ""
    version = f" v{v.version}" if v.version else ""
    return f"{_name(v)} [shape=ellipse, label={quote(f'{v.name}{version}')}, xlabel={quote(f'{kind.dtype} {sizes}{bytes_}')}];"


def render_svg(dot: str) -> bytes:
    """Render dot text as SVG, by the `dot` command or by pygraphviz.

    Raises:
        PeError: neither is installed (exit code 2), or it failed.
    """
    command = shutil.which("dot")
    if command:
        done = subprocess.run(
            [command, "-Tsvg"], input=dot.encode(), capture_output=True, timeout=RENDER_SECONDS, check=False
        )
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
