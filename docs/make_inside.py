"""Draw the pictures of docs/inside: `python docs/make_inside.py`. Boxes and arrows, or blocks over time, as the tables below have them."""

from __future__ import annotations

import textwrap
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parent / "pictures"
#: Pixels: width of a picture, of a character, height of a line of text, room around boxes and inside of them.
WIDTH, CHARACTER, LINE, GAP, PAD = 960, 6.3, 15, 34, 8

#: Picture -> title, rows of boxes (name: what stands in it), arrows (from, to, words).
BOXES: dict[str, tuple[str, list[dict[str, str]], list[tuple[str, str, str]]]] = {
    "inside_data.svg": (
        "From files to batches",
        [
            {"files": "files: CSV, Parquet, pictures, texts, arrays"},
            {"Table": "Table: cells as numbers, codes of texts, texts, arrays"},
            {"rows": "rows of train, eval and test", "columns": "column types: what cells mean"},
            {"Fields": "Fields: samples by row", "data.json": "data.json: states in the checkpoint"},
            {"Loader": "Loader: order, draws, augmentation"},
            {"batches": "batches of feeds"},
        ],
        [
            ("files", "Table", "reader"), ("Table", "rows", "split"), ("Table", "columns", ""), ("rows", "columns", "fit"),
            ("columns", "data.json", "state"), ("columns", "Fields", "encode"), ("Fields", "Loader", ""), ("Loader", "batches", ""),
        ],
    ),
    "inside_kernels.svg": (
        "From a kernel's text to a call",
        [
            {"text": "kernel: a Python function with plain loops", "ir": "microkernels as LLVM IR"},
            {"hash": "hash of the code that it reaches, of versions, of the processor"},
            {"kept": "object file in ~/.cache/pe/kernels", "made": "child processes: translator and LLVM"},
            {"call": "call: address, record of words, error report"},
            {"loop": "native loop of a step"},
        ],
        [
            ("text", "hash", ""), ("ir", "hash", ""), ("hash", "kept", "is kept"), ("hash", "made", "is missing"),
            ("made", "kept", "writes"), ("kept", "call", ""), ("call", "loop", ""),
        ],
    ),
    "inside_loops.svg": (
        "A loop in a step",
        [
            {"before": "op before the loop", "scan": "scan: an op with a region", "after": "op after the loop"},
            {
                "cpu": "CPU: one call, which runs a nested tape again and again",
                "gpu": "GPU: launches of every round, with flags for those that count",
            },
            {"moves": "before a round: write the addresses that move on", "graph": "part of the step's CUDA graph"},
        ],
        [
            ("before", "scan", ""), ("scan", "after", ""), ("scan", "cpu", ""), ("scan", "gpu", ""), ("cpu", "moves", ""),
            ("gpu", "graph", ""),
        ],
    ),
    "inside_passes.svg": (
        "Where passes work",
        [
            {"program": "program: forward, backward and update ops"},
            {"simplify": "simplify", "layout": "data_layout", "fuse": "fusions", "update": "updates", "cast": "autocast, sync_batch_norm"},
            {"fused": "fused program"},
            {"graph": "multi-device graph: a copy for each device, sums between them"},
            {"final": "share_updates, absorb_sums, copy_aliases, check_finite"},
            {"executed": "executed graph"},
        ],
        [
            ("program", "simplify", ""), ("simplify", "layout", ""), ("layout", "fuse", ""), ("fuse", "update", ""), ("update", "cast", ""),
            ("cast", "fused", ""), ("fused", "graph", "replicate"), ("graph", "final", ""), ("final", "executed", ""),
        ],
    ),
    "inside_cuda.svg": (
        "A step on CUDA",
        [
            {"text": "kernel text", "calls": "calls of a plan", "offers": "offers to a library"},
            {
                "ptx": "PTX and machine code for a capability, in the cache",
                "launches": "launches",
                "choice": "ours or the library's, by measuring",
            },
            {"joined": "joined launches: by tables, by blocks, by chains"},
            {"step": "one CUDA graph per step", "feeds": "feeds through pinned arrays"},
        ],
        [
            ("text", "ptx", "cuda_compiler"), ("calls", "launches", "cuda_maker"), ("offers", "choice", ""), ("ptx", "launches", ""),
            ("choice", "launches", ""), ("launches", "joined", "cuda_order"), ("joined", "step", ""), ("feeds", "step", ""),
        ],
    ),
    "inside_processes.svg": (
        "Processes that train together",
        [
            {"mpiexec": "mpiexec or pe launch"},
            {"o0": "overseer 0", "o1": "overseer 1", "o2": "overseer 2"},
            {"t0": "trainer 0: rows 0 to n/2 of a batch", "t1": "trainer 1: rows n/2 to n", "s0": "server: pieces of tables"},
        ],
        [
            ("mpiexec", "o0", ""), ("mpiexec", "o1", ""), ("mpiexec", "o2", ""), ("o0", "t0", "fork"), ("o1", "t1", "fork"),
            ("o2", "s0", "fork"), ("t0", "t1", "sums"), ("t1", "s0", "rows"),
        ],
    ),
    "inside_runs.svg": (
        "What starts trainings, and what reads runs",
        [
            {"sweep": "pe sweep: sweep.json", "config": "config and data", "proof": "pe verify, replay, compare"},
            {"training": "training loop"},
            {"run": "run: metrics.jsonl, checkpoints, env.json, inputs.json", "observers": "observers in processes of their own"},
        ],
        [
            ("sweep", "training", "trials"), ("config", "training", ""), ("proof", "training", "again"), ("training", "run", "writer"),
            ("training", "observers", "queue"),
        ],
    ),
}

#: Picture -> title, lanes, blocks (lane, how many lanes, begin, end, words, colour).
FORWARD, BACKWARD, SUMS, UPDATE, HELP = "#dbe8f8", "#f8e3d3", "#dff0dc", "#efe0f5", "#f3f3f3"
BLOCKS: dict[str, tuple[str, list[str], list[tuple[int, int, float, float, str, str]]]] = {
    "inside_scheduler.svg": (
        "One step of two devices with a thread each",
        ["thread 0", "thread 1"],
        [
            (0, 1, 0, 22, "forward, rows 0 to n/2", FORWARD), (0, 1, 22, 62, "backward", BACKWARD), (0, 1, 62, 70, "helps", HELP),
            (0, 1, 70, 82, "sums, first half", SUMS), (0, 1, 82, 96, "update, first half", UPDATE),
            (1, 1, 0, 26, "forward, rows n/2 to n", FORWARD), (1, 1, 26, 56, "backward", BACKWARD), (1, 1, 56, 62, "sum", SUMS),
            (1, 1, 62, 70, "backward", BACKWARD), (1, 1, 70, 82, "sums, second half", SUMS), (1, 1, 82, 96, "update, second half", UPDATE),
        ],
    ),
    "inside_memory.svg": (
        "An arena: places over the ops of a step",
        ["low offset", "", "", "high offset"],
        [
            (0, 2, 0, 60, "hidden: needed by its gradient", FORWARD), (2, 1, 14, 44, "logits", FORWARD), (3, 1, 30, 58, "prob", FORWARD),
            (2, 1, 44, 66, "xent, where logits were", SUMS), (3, 1, 58, 84, "gradient of logits", BACKWARD),
            (0, 2, 60, 96, "gradient of the weights, where hidden was", BACKWARD),
        ],
    ),
}


def boxes(name: str) -> str:
    """Return a picture of boxes as SVG."""
    title, rows, arrows = BOXES[name]
    places: dict[str, tuple[float, float, float, float]] = {}
    drawn, y = [], float(GAP)
    for row in rows:
        room = (WIDTH - GAP) / len(row) - GAP
        lines = {key: textwrap.wrap(text, max(14, int(min(room, 420) / CHARACTER) - 3)) for key, text in row.items()}
        tall = LINE * max(map(len, lines.values())) + 2 * PAD
        for k, (key, words) in enumerate(lines.items()):
            wide = max(map(len, words)) * CHARACTER + 4 * PAD
            x = GAP + k * (room + GAP) + (room - wide) / 2
            places[key] = (x, y, wide, tall)
            drawn += _box(words, *places[key])
        y += tall + GAP
    lines_drawn = [part for begin, end, words in arrows for part in _arrow(places[begin], places[end], words)]
    return _picture(title, y, [*lines_drawn, *drawn])


def blocks(name: str) -> str:
    """Return a picture of blocks over time as SVG."""
    title, lanes, found = BLOCKS[name]
    left, tall = 90, 44
    scale = (WIDTH - left - GAP) / 100
    out = [f'<text x="10" y="{GAP + k * tall + tall / 2 + 4:.0f}" fill="#333">{escape(lane)}</text>' for k, lane in enumerate(lanes)]
    for lane, lanes_taken, begin, end, words, colour in found:
        x, y, wide = left + begin * scale, GAP + lane * tall, (end - begin) * scale
        high = lanes_taken * tall - 6
        out.append(f'<rect x="{x:.0f}" y="{y}" width="{wide - 3:.0f}" height="{high}" rx="4" fill="{colour}" stroke="#5b7fae"/>')
        lines = textwrap.wrap(words, max(4, int(wide / CHARACTER) - 1))
        for n, text in enumerate(lines):
            middle = y + high / 2 + 4 + (n - (len(lines) - 1) / 2) * LINE
            out.append(f'<text x="{x + wide / 2:.0f}" y="{middle:.0f}" text-anchor="middle">{escape(text)}</text>')
    y = GAP + len(lanes) * tall + 6
    out += [
        f'<line x1="{left}" y1="{y}" x2="{WIDTH - GAP}" y2="{y}" stroke="#333" marker-end="url(#head)"/>',
        f'<text x="{WIDTH - GAP - 30}" y="{y + 18}" fill="#333">time</text>',
    ]
    return _picture(title, y + 28, out)


def _box(words: list[str], x: float, y: float, wide: float, tall: float) -> list[str]:
    made = [f'<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{tall:.0f}" rx="6" fill="#eef3fa" stroke="#5b7fae"/>']
    first = y + PAD + LINE - 3 + (tall - 2 * PAD - LINE * len(words)) / 2
    middle = x + wide / 2
    for n, text in enumerate(words):
        made.append(f'<text x="{middle:.0f}" y="{first + n * LINE:.0f}" text-anchor="middle">{escape(text)}</text>')
    return made


def _arrow(begin: tuple[float, float, float, float], end: tuple[float, float, float, float], words: str) -> list[str]:
    (x1, y1, w1, h1), (x2, y2, w2, h2) = begin, end
    if y1 == y2:
        right = x1 < x2
        ax, ay, bx, by = (x1 + w1 if right else x1), y1 + h1 / 2, (x2 if right else x2 + w2), y2 + h2 / 2
    else:
        ax, ay, bx, by = x1 + w1 / 2, y1 + h1, x2 + w2 / 2, y2
    line = f'<line x1="{ax:.0f}" y1="{ay:.0f}" x2="{bx:.0f}" y2="{by:.0f}" stroke="#5b7fae" marker-end="url(#head)"/>'
    if not words:
        return [line]
    x, y = (ax + bx) / 2 + 8, (ay + by) / 2 + (-6 if y1 == y2 else 4)
    halo = 'stroke="white" stroke-width="4" paint-order="stroke"'  # words stay readable where they cross a line
    return [line, f'<text x="{x:.0f}" y="{y:.0f}" fill="#555" font-size="11" {halo}>{escape(words)}</text>']


def _picture(title: str, height: float, parts: list[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    head = '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica,sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<defs>{head}<path d="M0 0 L8 4 L0 8 z" fill="#5b7fae"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def drawn() -> dict[str, str]:
    """Return all pictures: name -> SVG."""
    return {name: boxes(name) for name in BOXES} | {name: blocks(name) for name in BLOCKS}


if __name__ == "__main__":
    for name, text in drawn().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
