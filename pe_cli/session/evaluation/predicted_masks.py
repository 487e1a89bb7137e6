"""Predicted masks as PNG files, a file for each picture, of its size."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column import Context
from pe_cli.data.feed_samples import TableDataset
from pe_cli.data.pictures.decode import Recipe, resized
from pe_cli.data.pictures.mask_values import COLOR
from pe_cli.data.pictures.picture_checks import pillow
from pe_cli.data.pictures.sources import Files
from pe_cli.data.raw_cells import Table
from pe_cli.io import atomic
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.evaluation.output_meaning import Answer
from pe_cli.session.job import Job


def write_masks(job: Job, use: str, answers: Sequence[Answer], folder: Path) -> int:
    """Write the mask of every picture of some data, with the values that masks had in training, and return how many.

    Args:
        job: whose model says masks.
        use: of the data.
        answers: of the model.
        folder: that files are written into; they are called like the pictures, and end in .png.

    Raises:
        PeError: USAGE, the model says no masks; DATA, a picture's path leads out of the folder.
    """
    drawn = [answer for answer in answers if answer.pixels]
    dataset = job.data.dataset(use)
    if len(drawn) != 1 or not isinstance(dataset, TableDataset):
        raise PeError(f"--out {folder}: a folder is for masks, and the model says none", hint="--out FILE.csv, FILE.jsonl or FILE.npz")
    (answer,) = drawn
    assert answer.column is not None
    found, rows = job.data.sample_rows(use), 0
    pictures = _files(job, answer, dataset.table)
    sizes = pictures.survey(None, "skip").sizes
    for batch in Evaluator(job).predict(use, [answer.variable]):
        for scores in batch[answer.variable]:
            row = rows if found is None else int(found[rows])
            name = pictures.words[int(pictures.codes[row])]
            size = (int(sizes[row][0]), int(sizes[row][1]))
            path = folder / _name(name, row)
            atomic.make_folder(path.parent)
            atomic.write_bytes(path, _png(scores.argmax(axis=-1).astype(np.uint8), size, answer.column.state))
            rows += 1
    return rows


def _files(job: Job, answer: Answer, table: Table) -> Files:
    assert answer.column is not None
    over = getattr(answer.column.checked, "over")  # noqa: B009 - options of a column of masks
    source = job.data.fitted.columns[over].sources[0] if over in job.data.fitted.columns else over
    context = Context(table, over, base=job.run.path.parent)
    return Files(context, source, getattr(table, "folder", context.base), Recipe(None, "gray"))


def _name(picture: str, row: int) -> str:
    """Return what the mask of a picture is called.

    Raises:
        PeError: DATA; its path leads elsewhere.
    """
    path = PurePosixPath(picture)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise PeError(
            f"row {row + 1}: the path {picture} leads out of the folder of pictures, and its mask would, too",
            hint="name pictures by paths in one folder",
            code=ExitCode.DATA,
        )
    return str(path.with_suffix(".png"))


def _png(classes: NDArray[np.uint8], size: tuple[int, int], state: Mapping[str, Any]) -> bytes:
    """Return a mask as a PNG: gray where the values of classes are numbers up to 255, else in their colours."""
    pil = pillow()
    # Between two classes lies no third one, as it does between two brightnesses.
    image = resized(pil.Image.fromarray(classes), size, "stretch", nearest=True)
    values = np.array([values[0] for values in state["values"]], np.int32)
    pixels = values[np.asarray(image)]
    file = io.BytesIO()
    if (values < 256).all():
        made = pil.Image.fromarray(pixels.astype(np.uint8))
    elif (values < COLOR).all():
        made = pil.Image.fromarray(pixels.astype(np.uint16))
    else:
        made = pil.Image.fromarray(np.stack([pixels >> shift & 255 for shift in (16, 8, 0)], axis=2).astype(np.uint8))
    made.save(file, "png")
    return file.getvalue()
