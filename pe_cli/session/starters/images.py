"""A starter for a folder of pictures, one folder per class: convolutions with batch_norm, and changed pictures in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.column import Context
from pe_cli.data.pictures.decode import COLORS, Recipe
from pe_cli.data.pictures.sources import Files
from pe_cli.data.raw_cells import Table
from pe_cli.data.row_split import split_rows
from pe_cli.session.starters.files import Lines, Starter, Wish, aligned, data_section, head, text, training
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.table_columns import FEWEST
from pe_cli.session.starters.table_model import CLASSIFIER
from pe_cli.session.starters.training_plan import Plan, plan, shares

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
IMAGE, LABEL = "image", "label"


def starter(wish: Wish) -> Starter:
    """Return a starter for a folder of pictures.

    Raises:
        PeError: DATA; a picture cannot be read, or there are no folders of classes.
    """
    source: dict[str, Any] = {"reader": "images", "folder": wish.path}
    left_out = ""
    try:
        table = wish.open(source)
    except PeError as error:
        if "broken: skip" not in (error.hint or ""):
            raise
        source["broken"], left_out = "skip", f"files are left out that are no pictures: {error.message}"
        table = wish.open(source)
    if wish.target not in (None, LABEL):
        raise PeError(
            f"--target '{said(wish.target)}': a folder of pictures has the target 'label', the folder of a picture's class",
            hint="leave --target out; a table with a column of paths is read by the reader images",
        )
    if LABEL not in table.names:
        raise PeError(
            f"{wish.source} has pictures and no folders of classes: there is nothing to predict",
            hint=f"put the pictures of each class into a folder of their own, as {wish.source}/cat/1.jpg and {wish.source}/dog/1.jpg",
            code=ExitCode.DATA,
        )
    return _starter(table, source, wish, left_out)


def _starter(table: Table, source: dict[str, Any], wish: Wish, left_out: str) -> Starter:
    classes = sorted(table.cells(LABEL).codes().words)
    if len(classes) < 2 or len(table) < FEWEST:
        said_of = f"{len(table)} pictures of {len(classes)} class{'es' * (len(classes) != 1)}"
        raise table.error(
            0, LABEL, f"there are {said_of}, and a model needs 2 classes and {FEWEST} pictures at least", "add some"
        )
    files = Files(
        Context(table, IMAGE, False, None, None, wish.base),
        IMAGE,
        _folder(table),
        Recipe(None, "gray"),
    )
    survey = files.survey(None, "skip")
    files.verify(survey, most=DECODED)
    broken = np.flatnonzero(~survey.usable)
    if len(broken):
        source["broken"] = "skip"
        left_out = f"pictures that cannot be read are left out, {len(broken):,} of {len(table):,}: {_why(files, int(broken[0]))}"
    sizes = survey.sizes[survey.usable]
    if not len(sizes):
        raise table.error(0, IMAGE, "no picture can be read", "set broken: error on the reader to see why")
    gray = survey.notes[COLORS] == 0
    size = _size(sizes)
    split: dict[str, Any] = {**shares(len(table)), "stratify": LABEL, "seed": 1}
    parts = split_rows(table, np.arange(len(table), dtype=np.int64), SplitSection.model_validate(split))
    rows = len(parts["train"])
    made = _plan(rows)
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    heights = f"{low[0]} x {low[1]}" + (f" to {high[0]} x {high[1]}" if (low != high).any() else "")
    shown = f"{len(table):,} pictures of {heights} pixels (height x width){', without colours' if gray else ''}, {len(classes):,} classes"
    config = _config(wish, source, split, shown, size, gray, made, rows)
    model = _model(wish, size, gray, classes, made)
    facts = (shown, f"classes: {said(', '.join(classes), 200)}", f"pictures are made {size} x {size}")
    return Starter(config, model, (*facts, *([said(left_out, 300)] if left_out else [])))


def _why(files: Files, row: int) -> str:
    try:
        files.load(row)
    except PeError as error:
        return error.message
    return "it has been changed since"


def _folder(table: Table) -> Any:
    return getattr(table, "folder")  # noqa: B009 - the reader images gives such a table


def _size(sizes: np.ndarray[Any, Any]) -> int:
    """Return the side that pictures are made: that of small squares of one size, else the largest of a few that is not above the usual."""
    usual = int(np.median(sizes.min(axis=1)))
    if (sizes == usual).all() and 2 * LEFT <= usual <= SIZES[-1]:
        return usual
    return max((size for size in SIZES if size <= usual), default=SIZES[0])


def _plan(rows: int) -> Plan:
    made = plan(rows, STEPS)
    batch = min(64, made.batch_size)
    epochs = min(120, max(8, -(-STEPS * batch // rows)))
    return Plan(batch, epochs, 0.004, max(5, epochs // 4), made.hidden, made.dropout)


def _config(
    wish: Wish, source: dict[str, Any], split: dict[str, Any], shown: str, size: int, gray: bool, made: Plan, rows: int
) -> str:
    image = {"type": "image", "size": [size, size], **({"mode": "gray"} if gray else {}), "scale": "standard"}
    if source.get("broken") == "skip":
        image["broken"] = "skip"
    columns = [
        (f"{IMAGE}:", flow(image), "mean 0 and deviation 1 per channel, measured on the training pictures"),
        (f"{LABEL}:", "{type: category}", "the folder of the picture's class"),
    ]
    augment = [
        "  # Changes of training pictures, drawn anew for every picture and epoch; evaluation never changes a picture.",
        "  augment:",
        "    - flip: {p: 0.5}  # left to right; take it out where that makes another class of a picture (digits, texts)",
        f"    - random_crop: {{size: [{size}, {size}], padding: {max(1, size // 10)}}}",
        "    - color: {brightness: 0.2, contrast: 0.2}",
    ]
    decay = {
        "type": "cosine_decay",
        "learning_rate": made.learning_rate,
        "step_each_epoch": -(-rows // made.batch_size),
        "epochs": made.epochs,
    }
    rate = [
        "    type: Adam",
        f"    learning_rate: {flow(decay)}  # falls to 0 over so many epochs of {decay['step_each_epoch']} steps",
    ]
    lines = [
        *head(f"Sorts the pictures of {said(wish.source.name)} into classes."),
        *data_section(
            source, split, [f"{shown}.", "stratify: every part has its share of every class."], columns, augment
        ),
        "",
        "# Feed of the model: column of the data.",
        "feeds: {image: image, label: label}",
        *training(made, rows, best="eval/acc", mode="max", metrics=("loss", "acc"), rest=rate),
    ]
    return text(lines)


def _model(wish: Wish, size: int, gray: bool, classes: Sequence[str], made: Plan) -> str:
    stages, side = 0, size
    while side // 2 >= LEFT and stages < STAGES:
        stages, side = stages + 1, side // 2
    layers: Lines = []
    before = IMAGE
    for i in range(stages):
        key = f"stage{i + 1}"
        left = size >> (i + 1)
        declared = {"block": "stage", "x": before, "filters": FILTERS << ((i + 1) // 2)}
        layers.append((f"{key}:", flow(declared), f"{left} x {left} pixels are left"))
        before = key
    layers += [
        (
            "mean:",
            flow({"type": "pool2d", "input": before, "global_pooling": True, "pool_type": "avg"}),
            "over all pixels that are left",
        ),
        ("drop:", flow({"type": "dropout", "dropout_prob": made.dropout}), "in training only"),
        (
            "logits:",
            flow({"type": "fc", "size": len(classes)}),
            f"{len(classes)} classes: {said(', '.join(classes), 100)}",
        ),
        *CLASSIFIER,
    ]
    channels = 1 if gray else 3
    lines = [
        f"# What is computed for {said(wish.config.name)}: convolutions, each with batch_norm and a pool that halves the picture.",
        "# `pe ops` lists every type of layer, `pe ops conv2d` explains one of them.",
        f"name: {quoted(safe(wish.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        f"  image: {{shape: [{channels}, {size}, {size}]}}  # channels, height, width; as `size` and `mode` of the column image say",
        "  label: {shape: [1], dtype: int64}",
        "",
        "# A part that is used several times.",
        "blocks:",
        "  stage:",
        "    args: {x: null, filters: null}",
        "    layers:",
        '      conv: {type: conv2d, input: "${x}", num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
        "      norm: {type: batch_norm, act: relu}",
        "      pool: {type: pool2d, pool_size: 2, pool_stride: 2, pool_type: max}",
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        "fetches: [loss, acc, prob]",
    ]
    return text(lines)
