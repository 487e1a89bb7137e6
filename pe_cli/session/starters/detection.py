"""A starter for pictures with boxes: an SSD that draws a box around each thing and says what it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.annotations.kinds import kind_of
from pe_cli.data.annotations.yolo import NAMES
from pe_cli.data.pictures.decode import SUFFIXES
from pe_cli.data.raw_cells import Table
from pe_cli.data.readers.annotations import BOX, CLASS, COUNT
from pe_cli.data.readers.images import IMAGE
from pe_cli.session.starters.divided import Division, divided, uses_of
from pe_cli.session.starters.files import Lines, Settings, Starter, aligned, data_section, head, text, training
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.pictures import Pictures, survey
from pe_cli.session.starters.table_columns import FEWEST
from pe_cli.session.starters.training_plan import Plan

#: What kinds of annotations are called.
_CALLED = {"coco": "COCO", "voc": "Pascal VOC", "yolo": "YOLO", "label_studio": "Label Studio", "cvat": "CVAT"}
#: Files that are looked at, of each folder and in all; sides of a sample; samples of a step; and steps, before epochs are bounded.
EACH, LOOKED, SIDES, BATCH, STEPS = 200, 20_000, (48, 64, 96, 128), 16, 2500
#: Pixels that the least boxes have along a side at least, so that the side of a sample is chosen.
SEEN = 8.0
#: Parts of the boxes, by size, that each map is for, and the filters of the maps.
_PARTS, _FILTERS = (15, 50, 85), (16, 24, 32, 48, 48)


@dataclass(frozen=True)
class Annotations:
    """Where boxes and their pictures are said.

    Args:
        path: file or folder of annotations.
        kind: of them.
        pictures: folder.
        divided: whether `path` is the part to train of several.
    """

    path: Path
    kind: str
    pictures: Path
    divided: bool = False


def annotations_in(folder: Path) -> Annotations | None:
    """Return the annotations in a folder; None where it has none.

    Args:
        folder: of pictures and annotations, in any folders in it.
    """
    files = [path for path in islice(_some_of_each(folder), LOOKED) if path.name not in NAMES]
    pictures = [path for path in files if path.suffix.lower() in SUFFIXES]
    stems = {path.stem for path in pictures}
    kinds: dict[str, list[Path]] = {}
    for path in files:
        if path.suffix.lower() in (".json", ".xml") or (path.suffix.lower() == ".txt" and path.stem in stems):
            kind = kind_of(path)
            if kind:
                kinds.setdefault(kind, []).append(path)
    if not kinds or not pictures:
        return None
    kind, found = max(kinds.items(), key=lambda pair: len(pair[1]))
    # VOC and YOLO have a file for each picture, so folders are what may be divided; the others have all in one file.
    places = sorted({path.parent for path in found}) if kind in ("voc", "yolo") else found
    named = {str(place.relative_to(folder)): place for place in places}
    uses = uses_of(named)
    if uses:
        of_pictures = uses_of(dict.fromkeys(str(path.parent.relative_to(folder)) for path in pictures))
        return Annotations(named[uses["train"]], kind, folder / of_pictures.get("train", "."), divided=True)
    return Annotations(folder if kind in ("voc", "yolo") and len(places) > 1 else places[0], kind, folder)


def pictures_beside(file: Path) -> Path:
    """Return the folder that holds the pictures of a file of annotations: its own, or that around it.

    Raises:
        PeError: DATA; neither has pictures.
    """
    home = file.absolute().parent
    for folder in (home, home.parent):
        if any(path.suffix.lower() in SUFFIXES for path in islice(_some_of_each(folder), LOOKED)):
            return file.parent if folder == home else Path(os.path.normpath(file.parent / ".."))
    what = f"{file} is a file of annotations, and neither its folder nor that around it has pictures"
    raise PeError(what, hint="name the folder that holds both: --from FOLDER", code=ExitCode.DATA)


def _some_of_each(folder: Path) -> Iterator[Path]:
    """Yield the first files of every folder, so that many pictures hide no annotations."""
    for at, inside, names in os.walk(folder):
        inside.sort()
        yield from (Path(at, name) for name in sorted(names)[:EACH])


def starter(settings: Settings, found_at: Annotations) -> Starter:
    """Return a starter for annotated pictures.

    Args:
        settings: of the user.
        found_at: annotations and pictures.

    Raises:
        PeError: DATA; annotations or pictures cannot be read, or there are too few.
    """
    if settings.target is not None:
        raise PeError(f"--target '{said(settings.target)}': annotated pictures have boxes as their target", hint="leave --target out")
    annotations, kind = found_at.path, found_at.kind
    if found_at.divided and settings.whole is None:
        settings = replace(settings, whole=settings.source)
    source: dict[str, Any] = {"reader": "annotations", "files": _path(settings, annotations)}
    if found_at.pictures != annotations.parent or annotations.is_dir():
        source["folder"] = _path(settings, found_at.pictures)
    source["format"] = kind
    table, notes = _opened(settings, source)
    boxes, labels = ([_listed(table, name, row) for row in range(len(table))] for name in (BOX, CLASS))
    division = divided(settings, source, table)
    rows = division.rows
    names = sorted({name for row in labels for name in row})
    if len(table) < FEWEST or not names:
        what = f"and a model needs {FEWEST} pictures at least" if names else "and there is nothing to find"
        said_of = f"{annotations} has {sum(map(len, boxes))} boxes in {len(table)} pictures, {what}"
        raise PeError("; ".join([said_of, *_left_out(notes)]), hint="draw boxes around things, and export them again", code=ExitCode.DATA)
    found = survey(table, IMAGE, table.folder, settings.base)  # type: ignore[attr-defined] # the reader gives such a table
    sizes = np.array([(box[2] - box[0], box[3] - box[1]) for row in boxes for box in row])
    most = max(len(_listed(one, BOX, row)) for one in (table, *division.others) for row in range(len(one)))
    side = _side(sizes)
    batch = min(BATCH, max(2, rows // 4))
    made = Plan(batch, min(100, max(10, -(-STEPS * batch // rows))), 0.005, 0, 0, 0.0)
    bare = sum(not row for row in boxes)
    shown = f"{found.shown}, with {len(sizes):,} boxes of {len(names)} classes: {', '.join(said(name, 20) for name in names[:12])}"
    facts = (
        f"{_CALLED[kind]}: {shown}",
        f"pictures are made {side} x {side}; the most boxes in one are {most}{_bare(bare)}",
        *division.told,
        *_left_out(notes),
        *_lists(found_at),
    )
    config = _config(settings, division, shown, _columns(found, side, most, names), made)
    return Starter(config, _model(settings, found, side, most, names, sizes), facts)


def _bare(pictures: int) -> str:
    return f"; {pictures:,} picture{'s have' if pictures > 1 else ' has'} none" if pictures else ""


def _left_out(notes: Mapping[str, int]) -> list[str]:
    """Return sentences on what was left out or cut."""
    found = []
    for what, count in notes.items():
        kind, first, where = what.partition(", the first: ")
        found.append(f"{kind}: {count:,}{f', the first: {said(where, 240)}' if first else ''}")
    return found


def _lists(found_at: Annotations) -> list[str]:
    """Return a sentence on lists of parts that Pascal VOC has beside its annotations, which are not read."""
    lists = sorted(found_at.pictures.glob("ImageSets/*/*.txt")) if found_at.kind == "voc" and not found_at.divided else []
    if not lists:
        return []
    named = ", ".join(said(str(path.relative_to(found_at.pictures)), 40) for path in lists[:3])
    return [f"lists of parts are not read ({named}): put the pictures of each part and their annotations into train/, val/ and test/"]


def _listed(table: Table, name: str, row: int) -> list[Any]:
    found: list[Any] = json.loads(table.cells(name).text(row))
    return found


def _path(settings: Settings, path: Path) -> str:
    if not settings.source.is_dir():  # the user has named the file of annotations
        beside = os.path.relpath(path, settings.source.parent)
        return settings.path if path == settings.source else os.path.normpath(Path(settings.path).parent / beside)
    return settings.path if path == settings.source else f"{settings.path}/{path.relative_to(settings.source)}"


def _opened(settings: Settings, source: dict[str, Any]) -> tuple[Table, dict[str, int]]:
    """Return the annotated pictures, and what was left out or cut, which is written into the source.

    Raises:
        PeError: DATA; they cannot be read.
    """
    while True:
        try:
            table = settings.open(source)
        except PeError as error:
            hint = error.hint or ""
            # The hint of an error names the option that leaves out what is wrong; each is set once, so the loop ends.
            option = next((o for o in (("broken", "skip"), ("outside", "clip")) if f"{o[0]}: {o[1]}" in hint and o[0] not in source), None)
            if option is None:
                raise
            source[option[0]] = option[1]
            continue
        return table, table.counts  # type: ignore[attr-defined] # the reader gives such a table


def _side(sizes: NDArray[np.float64]) -> int:
    """Return the side of a sample: the least of a few in which the smaller boxes are seen."""
    small = float(np.percentile(np.sqrt(sizes.prod(axis=1)), 20))
    return next((side for side in SIDES if side * small >= SEEN), SIDES[-1])


def _columns(found: Pictures, side: int, most: int, names: Sequence[str]) -> list[tuple[str, str, str]]:
    image = {"type": "image", **found.options, "size": [side, side]}
    boxes = {"type": "boxes", "over": IMAGE, "most": most}
    classes = {"type": "box_classes", "most": most, "classes": list(names)}
    return [
        (f"{IMAGE}:", flow(image), "larger sizes see smaller things, and take longer: multiples of 16, also as `side` of the model"),
        (f"{BOX}:", flow(boxes), "left, top, right and bottom of each thing, in parts of the picture"),
        (f"{CLASS}:", flow(classes), "what each thing is"),
        (f"{COUNT}:", "{type: number}", "how many things there are"),
    ]


def _config(settings: Settings, division: Division, shown: str, columns: Lines, made: Plan) -> str:
    rate = {"type": "one_cycle", "max_lr": made.learning_rate, "total_steps": f"{made.epochs} epochs"}
    changes = [
        "  # Changes of training pictures, drawn anew for every picture and epoch; boxes move along, and evaluation changes nothing.",
        "  augment:",
        "    - flip: {p: 0.5}  # left to right",
        "    - color: {brightness: 0.2, contrast: 0.2}",
    ]
    lines = training(
        made, division.rows, best="eval/map", mode="max",
        rest=["    type: Adam", f"    learning_rate: {flow(rate)}  # rises, and falls to 0 over the epochs"],
    )  # fmt: skip
    # the loss rises again while more boxes are found, so that nothing ends training early
    kept = [line.replace("  # at most: early_stopping ends training when the evaluation gets no better", "") for line in lines]
    return text([
        *head(f"Finds the things in the pictures of {said(settings.called)}, and says what they are."),
        *data_section(division.sections, division.split, [f"{shown}.", *division.told], columns, changes),
        "",
        "# Feed of the model: column of the data.",
        f"feeds: {{image: {IMAGE}, box: {BOX}, label: {CLASS}, count: {{from: {COUNT}, dtype: int64}}}}",
        "",
        "# Mean average precision: 1 where every thing is found, with nothing wrong before it.",
        "metrics:",
        "  map: {type: detection_map, detections: found, boxes: box, labels: label}",
        *(line for line in kept if "early_stopping" not in line),
    ])  # fmt: skip


def _priors(sizes: NDArray[np.float64], side: int) -> tuple[list[float], list[float]]:
    """Return the sides of the priors of each map, in pixels: those of the boxes that it is for, and larger ones."""
    pixels = np.sqrt(sizes.prod(axis=1)) * side
    least = [float(np.percentile(pixels, part)) for part in _PARTS]
    for i in range(len(least)):
        # Sizes rise from map to map even where all boxes are of one size.
        least[i] = round(max(least[i], least[i - 1] * 1.2 if i else 4.0), 1)
    most = [*least[1:], round(max(float(pixels.max()), least[-1] * 1.2), 1)]
    return least, most


def _model(settings: Settings, found: Pictures, side: int, most: int, names: Sequence[str], sizes: NDArray[np.float64]) -> str:
    least, largest = _priors(sizes, side)
    layers: Lines = []
    before = "image"
    for i, filters in enumerate(_FILTERS):
        name = f"map{i - 1}" if i >= 2 else f"seen{i + 1}"
        layers.append((f"{name}:", flow({"block": "twice", "x": before, "filters": filters}), f"{side >> i} x {side >> i} pixels"))
        before = f"half{i + 1}"
        if i + 1 < len(_FILTERS):
            layers.append((f"{before}:", flow({"type": "pool2d", "pool_size": 2, "pool_stride": 2, "pool_type": "max"}), ""))
    priors = {"min_sizes": least, "max_sizes": largest, "aspect_ratios": [2, 2, 2], "kernel_size": 3, "pad": 1}
    box = {"type": "multi_box_head", "inputs": ["map1", "map2", "map3"], "image": "image", "base_size": side, "num_classes": len(names) + 1}
    ends = {f"prior_{what}": f"head.{k}" for k, what in ((2, "box"), (3, "box_var"))}
    loss = {"type": "ssd_loss", "location": "head.0", "confidence": "head.1", "gt_box": "things", "gt_label": "kinds", **ends}
    thinned = {"nms_threshold": 0.45, "keep_top_k": max(10, 2 * most), "score_threshold": 0.1}
    layers += [
        ("head:", flow({**box, **priors}), "boxes of these sides at every pixel of the maps: what is in each, and how it has to be moved"),
        ("things:", flow({"type": "sequence_unpad", "x": "box", "length": "count"}), ""),
        ("kinds:", flow({"type": "sequence_unpad", "x": "label", "length": "count"}), ""),
        ("costs:", flow({**loss, "normalize": False}), "each thing with the priors that overlap it"),
        ("loss:", flow({"type": "mean", "x": "costs"}), ""),
        ("found:", flow({"type": "detection_output", "loc": "head.0", "scores": "head.1", **ends, **thinned}), "class, score, box"),
    ]
    listed = ", ".join(f"{i + 1} {said(name, 20)}" for i, name in enumerate(names[:20]))
    return text([
        f"# What is computed for {said(settings.config.name)}: an SSD, convolutions whose last maps say what is where.",
        "# `pe ops` lists every type of layer, `pe ops ssd_loss` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        f"  image: {flow({'shape': [found.shape[0], side, side]})}  # channels, height, width",
        f"  box:   {flow({'shape': [most, 4]})}  # of each thing; behind the last one boxes without a size",
        f"  label: {flow({'shape': [most, 1], 'dtype': 'int64'})}  # {said(listed, 100)}; 0 is nothing",
        "  count: {shape: [1], dtype: int64}  # boxes of a picture; what is behind them does not count",
        "",
        "# A part that is used several times: two convolutions that keep the size.",
        "blocks:",
        "  twice:",
        "    args: {x: null, filters: null}",
        "    layers:",
        '      conv1: {type: conv2d, input: "${x}", num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
        "      norm1: {type: batch_norm, act: relu}",
        '      conv2: {type: conv2d, num_filters: "${filters}", filter_size: 3, padding: 1, bias_attr: false}',
        "      norm2: {type: batch_norm, act: relu}",
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        "fetches: [loss, found]",
    ])  # fmt: skip
