"""A starter for a folder of pictures, one folder per class: convolutions with batch_norm, and changed pictures in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.folder_listing import files_in
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.session.starters.divided import Division, divided
from pe_cli.session.starters.files import Lines, Settings, Starter, aligned, data_section, head, text, training
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.pictures import BLOCK, Pictures, augmentation, picture_plan, stages, survey
from pe_cli.session.starters.table import tables_in
from pe_cli.session.starters.table_columns import FEWEST
from pe_cli.session.starters.table_heads import classifier
from pe_cli.session.starters.training_plan import Plan

IMAGE, LABEL = "image", "label"


def starter(settings: Settings) -> Starter:
    """Return a starter for a folder of pictures.

    Raises:
        PeError: DATA; a picture cannot be read, or there are no folders of classes.
    """
    source: dict[str, Any] = {"reader": "images", "folder": settings.path}
    left_out = ""
    try:
        table = settings.open(source)
    except PeError as error:
        if "broken: skip" not in (error.hint or ""):
            raise
        source["broken"] = "skip"
        table = settings.open(source)
        gone = sum(1 for _ in files_in(settings.source, Origin(settings.base), linked=True)) - len(table)
        left_out = f"{gone:,} file{'s are' if gone > 1 else ' is'} left out, no picture or damaged: {error.message}"
    if settings.target not in (None, LABEL):
        raise PeError(
            f"--target '{said(settings.target)}': a folder of pictures has the target 'label', the folder of a picture's class",
            hint="leave --target out, or name a table with a column of paths",
        )
    if LABEL not in table.names:
        at = settings.source
        folders = f"put the pictures of each class into a folder of their own, as {at}/cat/1.jpg and {at}/dog/1.jpg"
        raise PeError(
            f"{settings.source} has pictures and no folders of classes: there is nothing to predict",
            hint=_of_table(settings) or folders,
            code=ExitCode.DATA,
        )
    return _starter(table, source, settings, left_out)


def _of_table(settings: Settings) -> str:
    """Return what to do where a table lies beside pictures; nothing where none does."""
    tables = tables_in(settings.source)
    return f"if {tables[0].name} says what they are, name a column of it: --target COLUMN" if tables else ""


def _starter(table: Table, source: dict[str, Any], settings: Settings, left_out: str) -> Starter:
    classes = sorted(table.cells(LABEL).codes().words)
    if len(classes) < 2 or len(table) < FEWEST:
        said_of = f"{len(table)} pictures of {len(classes)} class{'es' * (len(classes) != 1)}"
        raise table.error(
            0, LABEL, f"there are {said_of}, and a model needs 2 classes and {FEWEST} pictures at least", _of_table(settings) or "add some"
        )
    found = survey(table, IMAGE, table.folder, settings.base)  # type: ignore[attr-defined] # the reader images gives such a table
    if found.broken:
        source["broken"], left_out = "skip", found.broken
    division = divided(settings, source, table, {"stratify": LABEL})
    made = picture_plan(division.rows)
    shown = f"{found.shown}, {len(classes):,} classes"
    config = _config(settings, division, shown, found, made)
    model = _model(settings, found, classes, made)
    facts = (shown, *division.told, f"classes: {said(', '.join(classes), 200)}", f"pictures are made {found.size} x {found.size}")
    return Starter(config, model, (*facts, *([said(left_out, 300)] if left_out else [])))


def _config(settings: Settings, division: Division, shown: str, found: Pictures, made: Plan) -> str:
    rows = division.rows
    skips = any(source.get("broken") == "skip" for source in division.sections.values())
    image = {"type": "image", **found.options, **({"broken": "skip"} if skips else {})}
    columns = [
        (f"{IMAGE}:", flow(image), "mean 0 and deviation 1 per channel, measured on the training pictures"),
        (f"{LABEL}:", "{type: category}", "the folder of the picture's class"),
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
    comments = [f"{shown}.", *division.told, *(["stratify: every part has its share of every class."] if division.split else [])]
    lines = [
        *head(f"Sorts the pictures of {said(settings.called)} into classes."),
        *data_section(division.sections, division.split, comments, columns, augmentation(found.size)),
        "",
        "# Feed of the model: column of the data.",
        "feeds: {image: image, label: label}",
        *training(made, rows, best="eval/acc", mode="max", metrics=("loss", "acc"), rest=rate),
    ]
    return text(lines)


def _model(settings: Settings, found: Pictures, classes: Sequence[str], made: Plan) -> str:
    layers: Lines = [
        *stages(IMAGE, found.size),
        ("drop:", flow({"type": "dropout", "dropout_prob": made.dropout}), "in training only"),
        (
            "logits:",
            flow({"type": "fc", "size": len(classes)}),
            f"{len(classes)} classes: {said(', '.join(classes), 100)}",
        ),
        *classifier(),
    ]
    lines = [
        f"# What is computed for {said(settings.config.name)}: convolutions, each with batch_norm and a pool that halves the picture.",
        "# `pe ops` lists every type of layer, `pe ops conv2d` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        f"  image: {flow({'shape': found.shape})}  # channels, height, width; as `size` and `mode` of the column image say",
        "  label: {shape: [1], dtype: int64}",
        "",
        *BLOCK,
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        "fetches: [loss, acc, prob]",
    ]
    return text(lines)
