"""Pictures of a starter: what their files are like, and the convolutions that look at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow
from pe_cli.data.column import Context
from pe_cli.data.pictures.decode import COLORS, SUFFIXES, Recipe
from pe_cli.data.pictures.sources import Files
from pe_cli.data.raw_cells import Table
from pe_cli.data.readers.images import TableOfPictures
from pe_cli.session.starters.files import Lines, Settings
from pe_cli.session.starters.guesses import three
from pe_cli.session.starters.names import said
from pe_cli.session.starters.training_plan import Plan, plan

#: Heights and widths that pictures are made, the largest that is not above the usual one.
SIZES = (16, 24, 32, 48, 64, 96, 128)
#: Pixels that are left of a side before the mean over all of them is taken, at least; and stages at most.
LEFT, STAGES = 4, 5
#: Pictures that are decoded to see whether they are whole.
DECODED = 1000
#: Steps that training may take, before epochs are bounded.
STEPS = 3000
#: Filters of the first stage, doubled at every second one.
FILTERS = 16
#: Share of a column's texts that end like the names of pictures, from which it holds paths; and texts that are looked for as files.
PATHS, TRIED = 0.9, 20


@dataclass(frozen=True)
class Pictures:
    """What the pictures of a column are like.

    Args:
        shown: how many there are and of which sizes, for people.
        size: height and width that they are made.
        gray: whether none has colours.
        broken: how many cannot be read, and why; empty where all can.
    """

    shown: str
    size: int
    gray: bool
    broken: str

    @property
    def options(self) -> dict[str, Any]:
        """The column, without its type."""
        gray, broken = {"mode": "gray"} if self.gray else {}, {"broken": "skip"} if self.broken else {}
        return {"size": [self.size, self.size], **gray, "scale": "standard", **broken}

    @property
    def shape(self) -> list[int]:
        """Shape of a sample."""
        return [1 if self.gray else 3, self.size, self.size]


def survey(table: Table, column: str, folder: Path, base: Path) -> Pictures:
    """Return what the pictures of a column are like.

    Args:
        table: has the column.
        column: of paths.
        folder: that paths start from.
        base: folder of the config.

    Raises:
        PeError: DATA; none can be read.
    """
    files = Files(Context(table, column, False, None, None, base), column, folder, Recipe(None, "gray"))
    found = files.survey(None, "skip")
    files.verify(found, most=DECODED)
    gone = np.flatnonzero(~found.usable)
    why = f"pictures that cannot be read are left out, {len(gone):,} of {len(table):,}: {_why(files, int(gone[0]))}" if len(gone) else ""
    sizes = found.sizes[found.usable]
    if not len(sizes):
        raise table.error(0, column, f"no picture can be read: {_why(files, 0)}", "correct the paths, or take the column out: --drop")
    gray = found.notes[COLORS] == 0
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    heights = f"{low[0]} x {low[1]}" + (f" to {high[0]} x {high[1]}" if (low != high).any() else "")
    shown = f"{len(table):,} pictures of {heights} pixels (height x width){', without colours' if gray else ''}"
    return Pictures(shown, _size(sizes), gray, why)


def _why(files: Files, row: int) -> str:
    try:
        files.load(row)
    except PeError as error:
        return error.message
    return "it has been changed since"


def _size(sizes: NDArray[np.int64]) -> int:
    """Return the side that pictures are made: that of small squares of one size, else the largest of a few that is not above the usual."""
    usual = int(np.median(sizes.min(axis=1)))
    if (sizes == usual).all() and 2 * LEFT <= usual <= SIZES[-1]:
        return usual
    return max((size for size in SIZES if size <= usual), default=SIZES[0])


# --- a column of paths ------------------------------------------------------------------------------------------------


def with_pictures(
    table: Table, names: Sequence[str], source: dict[str, Any], settings: Settings
) -> tuple[Table, dict[str, Any], list[str]]:
    """Return a table whose column of paths holds pictures, the source that reads it so, and what to say; the same where it has none.

    Args:
        table: as it was read.
        names: columns that may have paths.
        source: reader and options of the table.
        settings: of the user.

    Raises:
        PeError: DATA; a column has paths, and none of the files is there, or none is a picture.
    """
    columns = [name for name in names if name not in settings.columns and _are_paths(table, name)]
    if not columns:
        return table, source, []
    column, start = columns[0], settings.source if settings.source.is_dir() else settings.source.parent
    folder = _folder_of(table, column, start)
    found = survey(table, column, folder, settings.base)
    options = {key: value for key, value in source.items() if key != "reader"}
    inner: Any = options["files"] if set(options) == {"files"} else options
    made: dict[str, Any] = {"reader": "images", "table": inner, "path": column}
    if folder != start:
        path = Path(settings.path) if settings.source.is_dir() else Path(settings.path).parent
        made["folder"] = str(path / folder.relative_to(start))
    opened = TableOfPictures(table, column, folder, "skip" if found.broken else "error")
    opened.implied = {**opened.implied, column: {"type": "image", **found.options}}
    notes = [f"'{said(column, 30)}': {found.shown}, which are made {found.size} x {found.size}", *([found.broken] if found.broken else [])]
    notes += [f"'{said(name, 30)}' has paths of pictures, too, and one column of them is looked at" for name in columns[1:]]
    return opened, made, notes


def _are_paths(table: Table, name: str) -> bool:
    if not table.cells(name).numbers().bad_count:
        return False
    words = table.cells(name).codes().words
    return bool(words) and sum(word.lower().endswith(SUFFIXES) for word in words) >= PATHS * len(words)


def _folder_of(table: Table, column: str, start: Path) -> Path:
    """Return the folder that paths start from: that of the table, or one in it.

    Raises:
        PeError: DATA; no file is there.
    """
    words = table.cells(column).codes().words[:TRIED]
    inside = sorted(path for path in start.iterdir() if path.is_dir() and not path.name.startswith("."))
    counts = [sum((folder / word).is_file() for word in words) for folder in (start, *inside)]
    best = max(range(len(counts)), key=counts.__getitem__)
    if not counts[best]:
        raise PeError(
            f"'{said(column)}' has paths of pictures, such as {three(words)}, and none of them is in {start} or a folder in it",
            hint=f"put the pictures there, or leave the column out: --drop '{said(column)}'",
            code=ExitCode.DATA,
        )
    return (start, *inside)[best]


# --- the model --------------------------------------------------------------------------------------------------------

#: A part of a model that is used several times.
BLOCK = [
    "# A part that is used several times.",
    "blocks:",
    "  stage:",
    "    args: {x: null, filters: null}",
    "    layers:",
    '      conv: {type: conv2d, input: "${x}", num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
    "      norm: {type: batch_norm, act: relu}",
    "      pool: {type: pool2d, pool_size: 2, pool_stride: 2, pool_type: max}",
]


def stages(feed: str, size: int, prefix: str = "") -> Lines:
    """Return the layers that look at pictures, the last of which, `PREFIXmean`, has a number for each filter.

    Args:
        feed: of the pictures.
        size: height and width.
        prefix: of the names of the layers.
    """
    count, side = 0, size
    while side // 2 >= LEFT and count < STAGES:
        count, side = count + 1, side // 2
    layers: Lines = []
    before = feed
    for i in range(count):
        left = size >> (i + 1)
        declared = {"block": "stage", "x": before, "filters": FILTERS << ((i + 1) // 2)}
        before = f"{prefix}stage{i + 1}"
        layers.append((f"{before}:", flow(declared), f"{left} x {left} pixels are left"))
    pool = {"type": "pool2d", "input": before, "global_pooling": True, "pool_type": "avg"}
    return [*layers, (f"{prefix}mean:", flow(pool), "over all pixels that are left")]


def augmentation(size: int) -> list[str]:
    """Return the lines that change training pictures."""
    return [
        "  # Changes of training pictures, drawn anew for every picture and epoch; evaluation never changes a picture.",
        "  augment:",
        "    - flip: {p: 0.5}  # left to right; take it out where that makes another class of a picture (digits, texts)",
        f"    - random_crop: {{size: [{size}, {size}], padding: {max(1, size // 10)}}}",
        "    - color: {brightness: 0.2, contrast: 0.2}",
    ]


def picture_plan(rows: int) -> Plan:
    """Return the numbers of a model that looks at pictures."""
    made = plan(rows, STEPS)
    batch = min(64, made.batch_size)
    epochs = min(120, max(8, -(-STEPS * batch // rows)))
    return Plan(batch, epochs, 0.004, max(5, epochs // 4), made.hidden, made.dropout)
