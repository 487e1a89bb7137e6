"""Pictures: a cell is the path of one, or a file of arrays holds their bytes."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.encoding import Cast, ChannelsFirst, Lane, Source, Standardise, Step
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.fields import Rows
from pe_cli.data.pictures.decode import CHANNELS, Mode, Recipe, Resize
from pe_cli.data.pictures.field import ImageField, byte_table
from pe_cli.data.pictures.picture_checks import MOST_SIDE, pillow
from pe_cli.data.pictures.sources import Files, Stored, Survey, moments
from pe_cli.data.pictures.transform_programs import Shape

Pixels = Annotated[int, Field(strict=True, ge=1, le=16384)]
Size = tuple[Pixels, Pixels]
Unit = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Deviation = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class ImageOptions(ColumnOptions):
    """Options of image columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    folder: str | None = Field(
        None, description="folder that paths start from and may not leave; that of the table, or of the config, when absent"
    )
    size: Size | None = Field(
        None, description="[height, width] of a sample; the size of the training pictures when absent, which must all have one"
    )
    crop_from: Size | None = Field(
        None,
        description="pictures are resized to this [height, width], and the middle of `size` is cut out; augmentation sees the whole",
    )
    mode: Mode = Field("rgb", description="3, 1 or 4 channels")
    resize: Resize = Field(
        "stretch",
        description="how another shape becomes the size: stretch; cover it and cut the middle; or contain the whole, with black borders",
    )
    scale: Literal["unit", "standard", "none"] = Field(
        "unit",
        description="unit: bytes become 0 to 1; standard: mean 0 and deviation 1 per channel over the training pixels; none: uint8",
    )
    mean: list[Unit] | None = Field(
        None, description="one number per channel, in units of 255, for scale: standard; measured on the training rows when absent"
    )
    std: list[Deviation] | None = Field(None, description="deviation per channel, likewise")
    layout: Literal["chw", "hwc"] = Field("chw", description="axes of a sample: [channels, height, width], or [height, width, channels]")
    stored: Literal["chw", "hwc"] | None = Field(
        None, description="axes of the pictures of a file of arrays; the axis of 1, 3 or 4 is that of channels when absent"
    )
    broken: Literal["error", "skip"] = Field(
        "error", description="a picture that cannot be read: an error, or a row that is left out and counted"
    )

    @model_validator(mode="after")
    def _fits(self) -> ImageOptions:
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std are given together, or both are measured")
        if self.mean is not None and self.scale != "standard":
            raise ValueError("mean and std are for scale: standard")
        channels = CHANNELS[self.mode]
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if numbers is not None and len(numbers) != channels:
                raise ValueError(f"{name} has {len(numbers)} numbers, and mode {self.mode} has {channels} channels")
        if self.crop_from is not None:
            if self.size is None:
                raise ValueError("crop_from needs size, what is cut out of it")
            if self.crop_from[0] < self.size[0] or self.crop_from[1] < self.size[1]:
                raise ValueError("crop_from must be at least as large as size")
        return self


class ImageState(BaseModel):
    """What an image column has learned: the size of a sample, and `(byte / 255 - mean) / std` per channel; both empty for bytes."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    size: list[Pixels] = Field(min_length=2, max_length=2)
    mean: list[Unit]
    std: list[Deviation]


@column
class Image(ColumnType[ImageOptions]):
    """A picture per row: PNG, JPEG, WebP or BMP by Pillow (`pip install 'pe-cli[images]'`), or uint8 in a file of arrays."""

    name = "image"
    options = ImageOptions
    learned = ImageState
    view = "codes"
    shares = True

    def sources(self, name: str, options: ImageOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: ImageOptions, context: Context, rows: Rows | None) -> State:
        """Find the size, and measure mean and deviation.

        Raises:
            PeError: no training row has a picture that can be read; with its place.
        """
        found, survey = _open(options, context, rows, options.crop_from or options.size)
        chosen = survey.usable if rows is None else survey.usable[rows]
        # Learned from training rows alone; others may be of another size, and are told.
        if not chosen.any():
            raise context.error(0, "no training row has a picture that can be read", "set broken: error to see why", options.of)
        size = options.size or _one_size(options, context, found, survey)
        channels = CHANNELS[options.mode]
        mean, deviation = [0.0] * channels, [1.0] * channels
        if options.scale == "none":
            mean, deviation = [], []
        elif options.mean is not None and options.std is not None:
            mean, deviation = list(options.mean), list(options.std)
        elif options.scale == "standard":
            # Deviations are of pictures that can be read to their end.
            if options.broken == "skip" and isinstance(found, Files):
                found.verify(survey, context.peers)
                if not survey.usable.any():
                    raise context.error(0, "no training row has a picture that is whole", "set broken: error to see why", options.of)
            mean, deviation = moments(found, np.flatnonzero(survey.usable).tolist(), channels, context.peers)
            flat = [i for i, value in enumerate(deviation) if value == 0]
            if flat:
                context.notes.append(f"column '{context.name}': channel {flat[0]} has one value in all training pictures")
            deviation = [value or 1.0 for value in deviation]
        return {"size": list(size), "mean": mean, "std": deviation}

    def encode(self, options: ImageOptions, state: State, context: Context) -> FieldOf:
        """Return the pictures; they are decoded as they are taken.

        Raises:
            KeyError: the state has statistics of another number of channels.
        """
        height, width = state["size"]
        channels = CHANNELS[options.mode]
        stored = options.crop_from or (height, width)
        found, survey = _open(options, context, None, stored)
        for sentence, number in sorted(survey.notes.items()):
            context.notes.append(f"column '{context.name}': {number:,} pictures {sentence}")
        if options.size is None:
            _same_size(context, found, survey, stored)
        if options.broken == "skip" and isinstance(found, Files):
            cut = found.verify(survey)
            gone = len(found) - int(survey.usable.sum())
            if gone:
                said = f", {cut:,} of them cut off or damaged behind their header" if cut else ""
                context.notes.append(f"column '{context.name}': {gone:,} rows have no picture that can be read and are left out{said}")
        table = byte_table(state["mean"], state["std"]) if options.scale != "none" else None
        # The table has a row for each channel: a checkpoint of another mode would be applied to the wrong ones.
        if table is not None and table.shape != (channels, 256):
            raise KeyError(f"mean for {len(state['mean'])} channels")
        return ImageField(
            found,
            Shape(stored[0], stored[1], channels),
            Shape(height, width, channels),
            table,
            options.layout == "hwc",
            None if survey.usable.all() else survey.usable,
        )

    def cell(self, source: str, options: ImageOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source
        height, width = state["size"]
        any_size = "any size" if options.size else f"{width} x {height} pixels"
        # An example that any client can send, so that a schema is tried in one step.
        black = pillow().Image.new("L", (width, height))
        file = io.BytesIO()
        black.save(file, "png")
        said = f"the base64 text of a PNG, JPEG, WebP or BMP file of {any_size}"
        return {"format": said, "height": height, "width": width, "example": base64.b64encode(file.getvalue()).decode()}

    def lanes(self, name: str, options: ImageOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps, from pictures of the size that training had; see `ColumnType.lanes`."""
        height, width = state["size"]
        channels = CHANNELS[options.mode]
        steps: list[Step] = []
        if options.scale != "none":
            shift = tuple(255 * value for value in state["mean"])
            steps += [Cast("float32"), Standardise(shift, tuple(255 * value for value in state["std"]))]
        if options.layout == "chw":
            steps.append(ChannelsFirst())
        said = f"pixels, decoded as {options.mode}, resized by '{options.resize}'"
        if options.crop_from:
            said += f" to {list(options.crop_from)}, the middle of it cut out"
        kind = TensorType((height, width, channels), "uint8")
        return (Lane(Source(options.of or name, kind, f"{said}: [height, width, channels]", raw=False), tuple(steps)),)


def _open(
    options: ImageOptions, context: Context, rows: Rows | None, size: tuple[int, int] | None
) -> tuple[Files | Stored, Survey]:
    """Return the pictures of a column, in the mode and size that are wanted, and what their headers say."""
    source = options.of or context.name
    recipe = Recipe(size, options.mode, options.resize)
    array = context.table.cells(source).array()
    if array is None:
        files = Files(context, source, _folder(options, context), recipe)
        return files, files.survey(rows, options.broken)
    stored = Stored(array, _channels_last(options, context, array), recipe)
    sizes = np.zeros((len(array), 2), np.int64)
    sizes[slice(None) if rows is None else rows] = stored.size
    return stored, Survey(sizes)


def _folder(options: ImageOptions, context: Context) -> Path:
    """Return the folder that paths start from."""
    if options.folder is None:
        found: Path = getattr(context.table, "folder", context.base)
        return found
    folder = context.base / Path(options.folder).expanduser()
    if not folder.is_dir():
        raise PeError(f"column '{context.name}': there is no folder {folder}", at=context.at, hint="correct folder", code=ExitCode.DATA)
    return folder


def _channels_last(options: ImageOptions, context: Context, array: Array) -> bool:
    """Return whether channels are the last axis of an array of pictures.

    Raises:
        PeError: DATA; it holds no pictures, or it is not clear which axis that is.
    """
    shape = list(array.shape[1:])
    if array.dtype != np.uint8:
        raise context.error(
            0,
            f"pictures are uint8, from 0 to 255, and this array is {array.dtype.name}",
            "declare the column as number, or store the pictures as uint8",
        )
    if max(shape, default=0) > MOST_SIDE:
        raise context.error(0, f"pictures have {MOST_SIDE:,} pixels along one side at most, and these are {shape}", "cut them")
    kinds = {}
    if len(shape) == 2:
        return True
    if len(shape) == 3:
        kinds = {"hwc": shape[2] in (1, 3, 4), "chw": shape[0] in (1, 3, 4)}
    if options.stored is not None and kinds.get(options.stored):
        return options.stored == "hwc"
    possible = [kind for kind, fits in kinds.items() if fits]
    # An axis of 3 that may be either is asked about, because guessing wrong would train on stripes.
    if len(possible) == 1 and options.stored is None:
        return possible[0] == "hwc"
    if possible and options.stored is None:
        raise context.error(0, f"which axis of {shape} is that of channels is not clear", "set stored: chw or hwc on the column")
    flat = math.isqrt(math.prod(shape))
    hint = f"store them as [rows, {flat}, {flat}]" if len(shape) == 1 and flat * flat == shape[0] else "save [rows, height, width, 3]"
    said = f", with channels as {options.stored}" if options.stored else ""
    raise context.error(0, f"samples of shape {shape} are no pictures{said}: they have 1, 3 or 4 channels", hint)


def _one_size(options: ImageOptions, context: Context, found: Files | Stored, survey: Survey) -> tuple[int, int]:
    """Return the size that all training pictures have.

    Raises:
        PeError: DATA; they have several.
    """
    if isinstance(found, Stored):
        return found.size
    usable = np.flatnonzero(survey.usable)
    sizes = survey.sizes[usable]
    other = np.flatnonzero((sizes != sizes[0]).any(axis=1))
    if len(other):
        middle = [int(size) for size in np.median(sizes, axis=0)]
        raise _differs(context, found, int(usable[other[0]]), survey, f"and the one of row {int(usable[0]) + 1}", sizes[0], middle)
    height, width = (int(size) for size in sizes[0])
    if max(height, width) > 16384:
        raise context.error(int(usable[0]), f"pictures of {height} x {width} pixels", "set size: [height, width]", options.of)
    return height, width


def _same_size(context: Context, found: Files | Stored, survey: Survey, size: tuple[int, int]) -> None:
    """Check that pictures have the size that those of training had."""
    wrong = np.flatnonzero(survey.usable & (survey.sizes != np.array(size)).any(axis=1))
    if len(wrong):
        if isinstance(found, Stored):
            said = f"pictures are {list(found.size)} (height, width), and those of training {list(size)}"
            raise context.error(0, said, "set size: [height, width] on the column, so that pictures are resized")
        raise _differs(context, found, int(wrong[0]), survey, "and those of training", np.array(size), list(size))


def _differs(
    context: Context, found: Files, row: int, survey: Survey, other: str, size: NDArray[np.int64], hint: list[int]
) -> PeError:
    path = found.path(int(found.codes[row]))
    said = f"{path} is {survey.sizes[row].tolist()} (height, width), {other} {size.tolist()}"
    return context.error(row, said, f"set size: {hint} on the column, so that pictures are resized")
