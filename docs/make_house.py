"""Draw the folders of the code, row by row as the import contract has them: `python docs/make_house.py`."""

from __future__ import annotations

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "house.svg"
#: Pixels: of the picture, of a name with the room around it, around boxes, of a line of text; and characters of a line per pixel.
WIDTH, HEAD, GAP, LINE, CHARACTERS = 1120, 34, 12, 15, 0.15


def rows() -> list[list[str]]:
    """Return the folders of each layer, the highest first, as pyproject.toml has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["containers"] == ["pe_cli"])["layers"]
    found = [[name.strip(" ()") for name in layer.split("|")] for layer in layers]
    return [row for row in found if row != ["__main__"]]


def about(folder: str) -> str:
    """Return the first line of a folder's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / "pe_cli" / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def render() -> str:
    """Return the picture as SVG."""
    found = [(row, (WIDTH - GAP) / len(row) - GAP) for row in rows()]
    heights = [HEAD + LINE * max(len(_lines(folder, width)) for folder in row) for row, width in found]
    height = sum(heights) + GAP * (len(heights) + 1)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica,sans-serif" font-size="12">',
        "<title>Folders in rows: each imports only from the rows below it</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    y = GAP
    for (row, width), tall in zip(found, heights, strict=True):
        for k, folder in enumerate(row):
            out += _box(folder, GAP + k * (width + GAP), y, width, tall)
        y += tall + GAP
    return "\n".join([*out, "</svg>"]) + "\n"


def _lines(folder: str, width: float) -> list[str]:
    return textwrap.wrap(about(folder).replace("`", ""), max(24, int(width * CHARACTERS)))


def _box(folder: str, x: float, y: float, width: float, tall: float) -> list[str]:
    lines = _lines(folder, width)
    made = [
        f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{tall}" rx="6" fill="#eef3fa" stroke="#5b7fae"/>',
        f'<text x="{x + 10:.0f}" y="{y + 20}" font-size="14" font-weight="bold">{escape(folder)}</text>',
    ]
    made += [f'<text x="{x + 10:.0f}" y="{y + 20 + (n + 1) * LINE}" fill="#333">{escape(text)}</text>' for n, text in enumerate(lines)]
    return made


if __name__ == "__main__":
    PICTURE.write_text(render(), encoding="utf-8")
