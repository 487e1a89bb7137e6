"""Masks: a cell is the path of a picture whose pixels are classes, which lies over another picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.fields import Rows
from pe_cli.data.pictures import decode_threads
from pe_cli.data.pictures.decode import Recipe, Resize, stamp
from pe_cli.data.pictures.mask_field import IGNORED, Maps, MaskField
from pe_cli.data.pictures.mask_values import COLOR, MOST_VALUES, Palette, palette_of, value_name, value_of, values_in
from pe_cli.data.pictures.picture_checks import Broken, Unreadable
from pe_cli.data.pictures.sources import Files
from pe_cli.data.pictures.transform_programs import Shape

Pixels = Annotated[int, Field(strict=True, ge=1, le=16384)]
Size = tuple[Pixels, Pixels]
Number = Annotated[int, Field(strict=True, ge=0, le=65535)]
Color = Annotated[str, Field(strict=True, pattern=r"^#[0-9a-fA-F]{6}$")]
Value = Number | Color
#: Values that a message names; masks whose pixels are counted for people.
SHOWN, LOOKED = 12, 200


class MaskOptions(ColumnOptions):
    """Options of mask columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    over: str = Field(description="column of pictures that the masks lie over: they have its sizes, and are augmented alike")
    folder: str | None = Field(None, description="folder that paths start from and may not leave; that of the table when absent")
    size: Size | None = Field(None, description="[height, width] of a sample, that of `over`; the size of all masks when absent")
    crop_from: Size | None = Field(None, description="that of `over`, where it has one")
    resize: Resize = Field("stretch", description="that of `over`; no value is mixed with another")
    classes: dict[str, Value | list[Value]] | None = Field(
        None,
        description="name of each class: value of its pixels, or a list: numbers, or '#rrggbb'; the values that there are when absent",
    )
    ignore: list[Value] = Field(default_factory=list, description="values of pixels that do not count; they become 255")
    palette: Palette = Field("index", description="of pictures with a palette: indices into it, or its colours")
    threshold: Annotated[int, Field(strict=True, ge=1, le=255)] | None = Field(
        None, description="brightness from which a pixel is of class 1, and below of class 0; for masks with soft edges"
    )

    @model_validator(mode="after")
    def _fits(self) -> MaskOptions:
        if self.crop_from is not None and self.size is None:
            raise ValueError("crop_from needs size, what is cut out of it")
        named = [value for given in (self.classes or {}).values() for value in (given if isinstance(given, list) else [given])]
        twice = [value for value, times in Counter([*named, *self.ignore]).items() if times > 1]
        if twice:
            raise ValueError(f"the value {twice[0]} is named twice")
        if self.classes is not None and len(self.classes) < 2:
            raise ValueError("classes names one class, and a mask tells two apart at least")
        return self


class MaskState(BaseModel):
    """What a mask column has learned: the size of a sample, the classes, and the values of each."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    size: list[Pixels] = Field(min_length=2, max_length=2)
    names: list[str] = Field(min_length=1, max_length=IGNORED)
    values: list[list[int]]

    @model_validator(mode="after")
    def _fits(self) -> MaskState:
        if len(self.values) != len(self.names):
            raise ValueError("names and values differ in length")
        return self


@column
class Mask(ColumnType[MaskOptions]):
    """A class for every pixel of a picture, int64 [height, width, 1], 255 where `ignore` says so.

    Masks are PNG or BMP, or JPEG and WebP with a `threshold`. Pixels are gray numbers, indices into a palette, or colours. The classes
    are in the order of their values, as long as `classes` names no other.
    """

    name = "mask"
    options = MaskOptions
    learned = MaskState
    view = "codes"
    shares = True

    def sources(self, name: str, options: MaskOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: MaskOptions, context: Context, rows: Rows | None) -> State:
        """Find the values of the classes in the training rows, and the size.

        Raises:
            PeError: DATA; a mask cannot be read, or its values are no classes; with its place.
        """
        files = _files(options, context)
        survey = files.survey(rows, "error")
        codes = np.unique(files.codes if rows is None else files.codes[rows])
        if options.size is None:
            sizes = survey.sizes[survey.usable]
            if (sizes != sizes[0]).any():
                row = int(np.flatnonzero(survey.usable & (survey.sizes != sizes[0]).any(axis=1))[0])
                text = f"masks have several sizes: {_said(survey.sizes[row])} and {_said(sizes[0])} (height x width)"
                raise context.error(row, text, f"set size: {sizes[0].tolist()} on this column and on '{options.over}'", options.of)
        size = list(options.size or (int(n) for n in sizes[0]))
        if options.classes is not None:
            given = [value if isinstance(value, list) else [value] for value in options.classes.values()]
            return {"size": size, "names": list(options.classes), "values": [[value_of(one) for one in values] for values in given]}
        _check_palettes(options, files, codes)
        seen: Counter[int] = Counter()
        for code, found in zip(codes.tolist(), _values(options, files, codes), strict=True):
            seen.update(dict(found))
            if len(seen) > MOST_VALUES:
                raise _no_classes(files, code, seen)
        kept = sorted(set(seen) - {value_of(value) for value in options.ignore})
        if options.threshold is not None:
            kept = [0, 1]
        if len(kept) < 2:
            text = f"all pixels of all training masks are {value_name(kept[0]) if kept else 'ignored'}: there is nothing to tell apart"
            raise context.error(0, text, "name the classes: classes: {ground: 0, thing: 1}", options.of)
        return {"size": size, "names": [value_name(value) for value in kept], "values": [[value] for value in kept]}

    def encode(self, options: MaskOptions, state: State, context: Context) -> FieldOf:
        """Return the masks; they are read as they are taken, and looked at before.

        Raises:
            PeError: DATA; a mask cannot be read, has another size than its picture, or values that are no classes; with its place.
        """
        files = _files(options, context)
        survey = files.survey(None, "error")
        _check_sizes(options, context, files, survey.sizes)
        known = {value: i for i, values in enumerate(state["values"]) for value in values}
        ignored = {value_of(value) for value in options.ignore}
        codes = np.unique(files.codes)
        for code, found in zip(codes.tolist(), _values(options, files, codes), strict=True):
            wrong = next((value for value, _ in found if value not in known and value not in ignored), None)
            if wrong is not None:
                raise _no_class(files, code, wrong, [*known], dict(found)[wrong])
        height, width = state["size"]
        stored = options.crop_from or (height, width)
        maps = Maps(files, known, options.palette, options.threshold, Recipe(stored, "gray", options.resize))
        return MaskField(maps, options.over, Shape(stored[0], stored[1], 1), Shape(height, width, 1))

    def cell(self, source: str, options: MaskOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source, options
        height, width = state["size"]
        return {"format": "the path of a mask", "height": height, "width": width, "classes": state["names"], "example": "mask.png"}


def _files(options: MaskOptions, context: Context) -> Files:
    source = options.of or context.name
    own: Path = getattr(context.table, "folder", context.base)
    folder: Path = getattr(context.table, "folders", {}).get(source, own)
    if options.folder is not None:
        folder = context.base / Path(options.folder).expanduser()
        if not folder.is_dir():
            text = f"column '{context.name}': there is no folder {folder}"
            raise PeError(text, at=context.at, hint="correct folder", code=ExitCode.DATA)
    return Files(context, source, folder, Recipe(None, "gray"))


def pixel_shares(options: MaskOptions, state: State, context: Context, rows: Rows) -> str:
    """Return the share of each class in the pixels of some masks, for people; nothing where they cannot be read."""
    try:
        files = _files(options, context)
        found = _values(options, files, np.unique(files.codes[rows[:LOOKED]]))
    except PeError:
        return ""
    counts: Counter[int] = Counter()
    for pairs in found:
        counts.update(dict(pairs))
    total = sum(counts.values()) or 1
    pairs_of = zip(state["names"], state["values"], strict=True)
    each = (f"{name} {sum(counts[value] for value in values) / total:.1%}" for name, values in pairs_of)
    return f"shares of the pixels: {', '.join(each)}"


def _values(options: MaskOptions, files: Files, codes: NDArray[Any]) -> list[tuple[tuple[int, int], ...]]:
    """Return the values in each of some masks, with their numbers of pixels.

    Raises:
        PeError: DATA; one cannot be read.
    """
    found: list[Any] = [()] * len(codes)

    def look(start: int, end: int) -> None:
        for i in range(start, end):
            path = files.path(int(codes[i]))
            try:
                found[i] = values_in(path, options.palette, options.threshold, stamp(path))
            except Unreadable as error:
                found[i] = error.broken

    decode_threads.in_parts(look, len(codes))
    broken = next((i for i, one in enumerate(found) if isinstance(one, Broken)), None)
    if broken is not None:
        raise files.error(_row(files, int(codes[broken])), found[broken])
    return found


def _row(files: Files, code: int) -> int:
    return int(np.flatnonzero(files.codes == code)[0])


def _said(size: Any) -> str:
    return f"{size[0]} x {size[1]}"


def _check_palettes(options: MaskOptions, files: Files, codes: NDArray[Any]) -> None:
    """Refuse palettes of which an index stands for one colour in one mask, and another in another one.

    Raises:
        PeError: DATA; says which.
    """
    if options.palette == "color" or options.threshold is not None:
        return
    seen: dict[int, tuple[int, str]] = {}
    for code in codes.tolist():
        path = files.path(code)
        for index, color in palette_of(path, stamp(path)).items():
            before = seen.setdefault(index, (color, path))
            if before[0] != color:
                names = value_name(COLOR + color), value_name(COLOR + before[0])
                why = f"has a palette in which {index} is {names[0]}, and it is {names[1]} in {before[1]}"
                raise files.error(_row(files, code), Broken(why, "set palette: color on the column, so that colours are the classes"))


def _check_sizes(options: MaskOptions, context: Context, files: Files, sizes: NDArray[np.int64]) -> None:
    """Compare the sizes of masks with those of the pictures that they lie over.

    Raises:
        PeError: DATA; says which differ, and how many more.
    """
    if options.over not in context.table.names or context.table.cells(options.over).array() is not None:
        return
    pictures = Files(context, options.over, getattr(context.table, "folder", context.base), Recipe(None, "gray"))
    under = pictures.survey(None, "skip")
    wrong = np.flatnonzero(under.usable & (under.sizes != sizes).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        picture = pictures.path(int(pictures.codes[row]))
        why = f"is {_said(sizes[row])} (height x width), and its picture {picture} {_said(under.sizes[row])}"
        error = files.error(row, Broken(why, "draw the mask over the picture in its own size, or take both out"))
        error.message += f"; {len(wrong) - 1:,} more masks differ" if len(wrong) > 1 else ""
        raise error


def _no_classes(files: Files, code: int, seen: Counter[int]) -> PeError:
    some = ", ".join(value_name(value) for value in sorted(seen)[:SHOWN])
    why = f"and those before it have more than {MOST_VALUES} different values ({some}, ...), which are no classes"
    hint = "threshold: 128 on the column takes bright pixels for one class and dark ones for another; more classes are saved as PNG"
    return files.error(_row(files, code), Broken(why, hint))


def _no_class(files: Files, code: int, value: int, known: list[int], pixels: int) -> PeError:
    listed = ", ".join(value_name(one) for one in known[:SHOWN])
    why = f"has the value {value_name(value)} in {pixels:,} pixel{'s' * (pixels > 1)}, which is no class: those are {listed}"
    shown = f"'{value_name(value)}'" if value >= COLOR else value_name(value)
    hint = f"correct the mask, or set ignore: [{shown}] on the column, or name the value under classes"
    return files.error(_row(files, code), Broken(why, hint))
