"""A starter for pictures beside masks: a U-Net that says a class for every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.column import Context, discover
from pe_cli.data.pictures.mask_field import IGNORED
from pe_cli.data.pictures.mask_values import COLOR
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.divided import Division, divided, folders_in
from pe_cli.session.starters.files import Lines, Settings, Starter, aligned, data_section, head, text, training
from pe_cli.session.starters.mask_folders import FEW, Masks
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.pictures import Pictures, survey
from pe_cli.session.starters.table_columns import FEWEST
from pe_cli.session.starters.training_plan import Plan

IMAGE, MASK = "image", "mask"
#: Pixels of the longer side of a sample, at most; samples of a step; and steps that training may take, before epochs are bounded.
LONGEST, BATCH, STEPS = 128, 8, 1500
#: Filters at full size, doubled at each size below, at most so often; and pixels that are left of the shorter side, at least.
FILTERS, DEEPEST, LEFT = 16, 3, 8


def starter(settings: Settings, masks: Masks) -> Starter:
    """Return a starter for pictures beside masks.

    Raises:
        PeError: USAGE, a target is named; DATA, a picture or a mask cannot be read, or the masks hold no classes.
    """
    if settings.target not in (None, MASK):
        raise PeError(f"--target '{said(settings.target)}': pictures beside masks have the target 'mask'", hint="leave --target out")
    settings, masks = _part_to_train(settings, masks)
    source: dict[str, Any] = {"reader": "images", "folder": _path(settings, masks.pictures)}
    if masks.masks is not None:
        source["masks"] = _path(settings, masks.masks)
    if masks.pattern != "*":
        source["mask_name"] = masks.pattern
    table, notes = _opened(settings, source)
    if len(table) < FEWEST:
        raise table.error(0, IMAGE, f"there are {len(table)} pictures with masks, and a model needs {FEWEST} at least", "add some")
    found = survey(table, IMAGE, table.folder, settings.base)  # type: ignore[attr-defined] # the reader images gives such a table
    if found.broken:
        source["broken"] = "skip"
        notes.append(found.broken)
    size = _size(table, settings)
    options, learned, told = _classes(table, settings, {"over": IMAGE, "size": size, **({"threshold": 128} if masks.soft else {})})
    division = divided(settings, source, table)
    made = _plan(division.rows)
    names = learned["names"]
    facts = (
        f"{found.shown}, each with a mask of {len(names)} classes: {', '.join(said(name, 20) for name in names[:12])}",
        f"pictures and masks are made {size[0]} x {size[1]} (height x width)",
        *(said(note, 300) for note in [*division.told, *told, *notes]),
    )
    columns = {IMAGE: {"type": "image", **found.options, "size": size}, MASK: {"type": "mask", **options}}
    config = _config(settings, division, facts[0], columns, made)
    return Starter(config, _model(settings, found, size, names, bool(options.get("ignore"))), facts)


def _part_to_train(settings: Settings, masks: Masks) -> tuple[Settings, Masks]:
    """Return the masks to train with, where the folders of pictures and masks are divided alike."""
    part = folders_in(masks.pictures).get("train") if settings.whole is None and masks.masks else None
    if part is None or masks.masks is None or not (masks.masks / part).is_dir():
        return settings, masks
    return replace(settings, whole=settings.source), replace(masks, pictures=masks.pictures / part, masks=masks.masks / part)


def _path(settings: Settings, folder: Any) -> str:
    return settings.path if folder == settings.source else f"{settings.path}/{folder.relative_to(settings.source)}"


def _opened(settings: Settings, source: dict[str, Any]) -> tuple[Table, list[str]]:
    """Return the pictures with their masks, and what is left out, which is written into the source.

    Raises:
        PeError: DATA; they cannot be read.
    """
    notes: list[str] = []
    while True:
        try:
            return settings.open(source), notes
        except PeError as error:
            hint = error.hint or ""
            if "unmasked: skip" not in hint or "unmasked" in source:
                raise
            source["unmasked"] = "skip"
            notes.append(f"pictures and masks that stand alone are left out: {error.message}")


def _size(table: Table, settings: Settings) -> list[int]:
    """Return height and width of a sample: those of the usual picture, made smaller, in steps that the U-Net can halve."""
    from pe_cli.data.pictures.decode import Recipe
    from pe_cli.data.pictures.sources import Files

    files = Files(Context(table, IMAGE, base=settings.base), IMAGE, table.folder, Recipe(None, "gray"))  # type: ignore[attr-defined]
    seen = files.survey(None, "skip")
    usual = np.median(seen.sizes[seen.usable], axis=0)
    scale = min(1.0, LONGEST / usual.max())
    step = 1 << DEEPEST
    return [max(2 * LEFT, round(float(side) * scale / step) * step) for side in usual]


def _classes(table: Table, settings: Settings, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the options of the column of masks, what it learns, and what is said of it.

    Raises:
        PeError: DATA; the masks hold no classes.
    """
    kind, notes = discover()["mask"], list[str]()
    if MASK in settings.columns:
        given = {key: value for key, value in settings.columns[MASK].items() if key != "type"}
        options = {**options, **given}

    def fit(more: dict[str, Any]) -> dict[str, Any]:
        checked = kind.options.model_validate({**options, **more})
        context = Context(table, MASK, base=settings.base)
        state = kind.fit(checked, context, None)
        kind.encode(checked, state, context)
        return state

    try:
        learned = fit({})
    except PeError as error:
        if "palette: color" not in (error.hint or ""):
            raise
        options["palette"] = "color"
        notes.append(f"colours of the masks are their classes: {error.message}")
        learned = fit({})
    values = [value for (value,) in learned["values"]] if "classes" not in options else []
    rest = values[:-1]
    if values[-1:] == [IGNORED] and len(rest) > 1 and rest == list(range(len(rest))):
        options["ignore"] = [IGNORED]
        notes.append(f"pixels of value {IGNORED} do not count, as other values are 0 to {rest[-1]}: ignore: [] takes them for a class")
        learned = fit({"ignore": [IGNORED]})
    if len(learned["names"]) > FEW:
        raise PeError(
            f"the masks of {settings.source} have {len(learned['names'])} different values, more than {FEW}: do they number single things?",
            hint="--columns 'mask={type: mask, over: image, threshold: 1}' tells things from the ground; classes: {...} there names values",
            code=ExitCode.DATA,
        )
    if options.get("threshold"):
        notes.append("masks have soft edges: pixels of a brightness from 128 on are class 1, others class 0")
    if any(value >= COLOR for value in values):
        notes.append("classes are colours; name them in the config: classes: {road: '#804080', ...}")
    return options, learned, notes


def _plan(rows: int) -> Plan:
    batch = min(BATCH, max(2, rows // 4))
    epochs = min(100, max(8, -(-STEPS * batch // rows)))
    return Plan(batch, epochs, 0.004, max(5, epochs // 4), 0, 0.0)


def _config(settings: Settings, division: Division, shown: str, columns: dict[str, dict[str, Any]], made: Plan) -> str:
    said_of = {
        IMAGE: f"other sizes are multiples of {1 << DEEPEST}, the same here, in the mask and in the model",
        MASK: "a class for every pixel; classes: {ground: 0, road: 1} names them",
    }
    rate = {"type": "one_cycle", "max_lr": made.learning_rate, "total_steps": f"{made.epochs} epochs"}
    ignored = {"ignore_index": IGNORED} if columns[MASK].get("ignore") else {}
    overlap = {"type": "mean_iou", "scores": "prob", "labels": MASK, **ignored}
    rows = [(f"{n}:", flow(given), said_of[n]) for n, given in columns.items()]
    lines = [
        *head(f"Says which class every pixel of the pictures in {said(settings.called)} belongs to."),
        *data_section(division.sections, division.split, [shown, *division.told], rows, _augmentation()),
        "",
        "# Feed of the model: column of the data.",
        "feeds: {image: image, mask: mask}",
        "",
        "# Over all pixels of the evaluation: the mean over the classes of intersection by union.",
        "metrics:",
        f"  iou: {flow(overlap)}",
        *training(
            made, division.rows, best="eval/iou", mode="max",
            rest=["    type: Adam", f"    learning_rate: {flow(rate)}  # rises, and falls to 0 over the epochs"],
        ),
    ]  # fmt: skip
    return text(lines)


def _augmentation() -> list[str]:
    return [
        "  # Changes of training pictures, drawn anew for every picture and epoch; masks move along, and evaluation changes nothing.",
        "  augment:",
        "    - flip: {p: 0.5}  # left to right",
        "    - color: {brightness: 0.2, contrast: 0.2}",
    ]


#: A part of the model that is used several times.
_BLOCK = [
    "# A part that is used several times: two convolutions that keep the size.",
    "blocks:",
    "  twice:",
    "    args: {x: null, filters: null}",
    "    layers:",
    '      conv1: {type: conv2d, input: "${x}", num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
    "      norm1: {type: batch_norm, act: relu}",
    '      conv2: {type: conv2d, num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
    "      norm2: {type: batch_norm, act: relu}",
]


def unet(feed: str, size: Sequence[int]) -> Lines:
    """Return the layers of a U-Net, the last of which, `seen`, has a row of numbers for every pixel of the feed.

    Args:
        feed: of the pictures.
        size: height and width, multiples of 2 ** DEEPEST.
    """
    depth = 0
    while depth < DEEPEST and min(size) >> (depth + 1) >= LEFT:
        depth += 1
    layers: Lines = []
    before = feed
    for i in range(depth):
        layers.append((f"down{i + 1}:", flow({"block": "twice", "x": before, "filters": FILTERS << i}), _said(size, i)))
        before = f"half{i + 1}"
        layers.append((f"{before}:", flow({"type": "pool2d", "pool_size": 2, "pool_stride": 2, "pool_type": "max"}), ""))
    layers.append(("bottom:", flow({"block": "twice", "x": before, "filters": FILTERS << depth}), _said(size, depth)))
    before = "bottom"
    for i in reversed(range(depth)):
        grown = {"type": "conv2d_transpose", "input": before, "num_filters": FILTERS << i, "filter_size": 2, "stride": 2}
        layers += [
            (f"grow{i + 1}:", flow(grown), ""),
            (f"both{i + 1}:", flow({"type": "concat", "input": [f"down{i + 1}", f"grow{i + 1}"], "axis": 1}), "what was seen at this size"),
        ]
        before = "seen" if i == 0 else f"up{i + 1}"
        layers.append((f"{before}:", flow({"block": "twice", "x": f"both{i + 1}", "filters": FILTERS << i}), _said(size, i)))
    return layers


def _said(size: Sequence[int], halved: int) -> str:
    return f"{size[0] >> halved} x {size[1] >> halved} pixels"


def _model(settings: Settings, found: Pictures, size: list[int], names: Sequence[str], ignore: bool) -> str:
    count = {"ignore_index": IGNORED} if ignore else {}
    layers: Lines = [
        *unet(IMAGE, size),
        ("scores:", flow({"type": "conv2d", "num_filters": len(names), "filter_size": 1}), f"{len(names)} classes"),
        ("logits:", flow({"type": "transpose", "x": "scores", "perm": [0, 2, 3, 1]}), "[height, width, classes]"),
        ("prob:", flow({"type": "softmax", "input": "logits"}), ""),
        ("xents:", flow({"type": "softmax_with_cross_entropy", "logits": "logits", "label": MASK, **count}), "every pixel counts alike"),
    ]
    # dice_loss knows no class that does not count.
    if ignore:
        layers.append(("loss:", flow({"type": "mean", "x": "xents"}), "pixels that do not count add nothing"))
    else:
        layers += [
            ("xent:", flow({"type": "mean", "x": "xents"}), ""),
            ("dice:", flow({"type": "dice_loss", "input": "prob", "label": MASK}), "overlap of areas, so that small things count, too"),
            ("loss:", flow({"type": "elementwise_add", "x": "xent", "y": "dice"}), ""),
        ]
    channels = found.shape[0]
    lines = [
        f"# What is computed for {said(settings.config.name)}: a U-Net. The way down sees what is there, the way up says where.",
        "# `pe ops` lists every type of layer, `pe ops conv2d` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        f"  image: {flow({'shape': [channels, *size]})}  # channels, height, width",
        f"  mask:  {flow({'shape': [*size, 1], 'dtype': 'int64'})}  # a class for every pixel",
        "",
        *_BLOCK,
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        "fetches: [loss, prob]",
    ]
    return text(lines)
