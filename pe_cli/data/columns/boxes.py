"""Boxes in pictures: a cell is a JSON list of boxes in parts of a picture; and the classes of boxes, a JSON list of names."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column, selected
from pe_cli.data.dataset import Array
from pe_cli.data.fields import ArrayField, Rows
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.pictures.moved import moved_boxes
from pe_cli.data.pictures.transform_programs import Program

Count = Annotated[int, Field(strict=True, ge=1, le=10_000)]
#: Name of the class of what is in no box.
NOTHING = "(nothing)"


class BoxOptions(ColumnOptions):
    """Options of columns of boxes."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    over: str = Field(description="column of pictures that the boxes are in, which are augmented alike")
    most: Count | None = Field(None, description="boxes of a picture, at most; as many as the training rows have when absent")


class BoxState(BaseModel):
    """What a column of boxes has learned."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    most: Count


@column
class Boxes(ColumnType[BoxOptions]):
    """Boxes, float32 [most, 4]: left, top, right, bottom in parts of the picture; behind the last one are boxes without a size."""

    name = "boxes"
    options = BoxOptions
    learned = BoxState
    view = "codes"

    def sources(self, name: str, options: BoxOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: BoxOptions, context: Context, rows: Rows | None) -> State:
        """Find how many boxes a picture has at most.

        Raises:
            PeError: DATA; a cell is no list of boxes.
        """
        lists, codes = _lists(context, options.of, 4)
        counts = selected(np.array([len(one) for one in lists])[codes], rows)
        return {"most": options.most or max(1, int(counts.max()))}

    def encode(self, options: BoxOptions, state: State, context: Context) -> FieldOf:
        """Return the boxes.

        Raises:
            PeError: DATA; a cell is no list of boxes, or has more than there may be.
        """
        lists, codes = _lists(context, options.of, 4)
        _check_most(context, options.of, lists, codes, state["most"])
        found = np.zeros((len(lists), state["most"], 4))
        for i, boxes in enumerate(lists):
            found[i, : len(boxes)] = np.array(boxes, np.float64).reshape(-1, 4)
        return BoxField(found, codes, options.over)

    def cell(self, source: str, options: BoxOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source, options
        written = "a JSON list of boxes [left, top, right, bottom], in parts of the picture"
        return {"format": written, "most": state["most"], "example": "[]"}


class BoxField:
    """Samples made of boxes; see `pe_cli.data.fields.MovedField`.

    Args:
        boxes: [cells, most, 4] in parts of the picture.
        codes: int64 [rows], the cell of every row.
        over: column of the pictures.
    """

    sequences = False

    def __init__(self, boxes: NDArray[np.float64], codes: NDArray[np.int64], over: str) -> None:
        self._boxes, self._codes, self.over = boxes, codes, over
        self.type = TensorType((boxes.shape[1], 4), "float32")

    def __len__(self) -> int:
        return len(self._codes)

    def take(self, rows: Rows) -> tuple[Array, None]:
        """Return some samples; see `Field.take`."""
        return np.ascontiguousarray(self._boxes[self._codes[rows]], dtype=np.float32), None

    def take_moved(self, rows: Rows, program: Program) -> Array:
        """Return some samples, moved; see `MovedField.take_moved`."""
        found = self._boxes[self._codes[rows]]
        return np.stack([moved_boxes(boxes, program, i) for i, boxes in enumerate(found)]).astype(np.float32)


class BoxClassOptions(ColumnOptions):
    """Options of columns of the classes of boxes."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    classes: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="names, from number 1 on; those of the training rows in the order of the alphabet when absent"
    )
    most: Count | None = Field(None, description="boxes of a picture, at most, as the column of boxes has it")


class BoxClassState(BaseModel):
    """What a column of the classes of boxes has learned."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    most: Count
    names: list[str] = Field(min_length=1)
    counts: list[int]


@column
class BoxClasses(ColumnType[BoxClassOptions]):
    """Classes of boxes, int64 [most, 1], from 1 on: 0 is that of nothing, also behind the last box."""

    name = "box_classes"
    options = BoxClassOptions
    learned = BoxClassState
    view = "codes"

    def sources(self, name: str, options: BoxClassOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: BoxClassOptions, context: Context, rows: Rows | None) -> State:
        """Find the classes, and how many boxes a picture has at most.

        Raises:
            PeError: DATA; a cell is no list of names, or no picture has a box.
        """
        lists, codes = _lists(context, options.of, 0)
        used = selected(codes, rows)
        seen = Counter(name for code in used.tolist() for name in lists[code])
        names = options.classes or sorted(seen)
        if not names:
            raise context.error(0, "no training row has a box: there is nothing to learn", "annotate some pictures", options.of)
        most = options.most or max(1, max(len(lists[code]) for code in used.tolist()))
        return {"most": most, "names": names, "counts": [seen[name] for name in names]}

    def encode(self, options: BoxClassOptions, state: State, context: Context) -> FieldOf:
        """Return the classes.

        Raises:
            PeError: DATA; a cell is no list of names, has more than there may be, or a name that training had not.
        """
        lists, codes = _lists(context, options.of, 0)
        _check_most(context, options.of, lists, codes, state["most"])
        number = {name: i + 1 for i, name in enumerate(state["names"])}
        found = np.zeros((len(lists), state["most"], 1), np.int64)
        for i, names in enumerate(lists):
            strange = next((name for name in names if name not in number), None)
            if strange is not None:
                row = int(np.flatnonzero(codes == i)[0])
                text = f"'{strange}' is no class of the training rows: those are {', '.join(list(number)[:20])}"
                raise context.error(row, text, "correct it, or name all classes: classes: [...] on the column", options.of)
            found[i, : len(names), 0] = [number[name] for name in names]
        return ArrayField(found[codes], "int64")

    def cell(self, source: str, options: BoxClassOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source, options
        return {"format": "a JSON list of the names of classes", "classes": state["names"], "example": json.dumps(state["names"][:1])}


def _lists(context: Context, of: str | None, width: int) -> tuple[list[list[Any]], NDArray[np.int64]]:
    """Return what distinct cells hold, the last of which stands for a missing one, and the code of every row.

    Args:
        context: of the column.
        of: column of the table.
        width: numbers of an item; 0 for texts.

    Raises:
        PeError: DATA; a cell has another form.
    """
    found = context.table.cells(of or context.name).codes()
    lists: list[list[Any]] = []
    for i, word in enumerate(found.words):
        try:
            value = json.loads(word)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, list) or not all(_fits(item, width) for item in value):
            row = int(np.flatnonzero(found.codes == i)[0])
            wanted = "of boxes [left, top, right, bottom] in parts of the picture, from 0 to 1" if width else "of names"
            raise context.error(row, f"'{word[:60]}' is no JSON list {wanted}", "correct the cell; [] is a picture with nothing in it", of)
        lists.append(value)
    return [*lists, []], found.codes.astype(np.int64) % (len(lists) + 1)


def _fits(item: object, width: int) -> bool:
    if not width:
        return isinstance(item, str)
    if not isinstance(item, list) or len(item) != width or not all(isinstance(n, int | float) and 0 <= n <= 1 for n in item):
        return False
    return bool(item[0] < item[2] and item[1] < item[3])


def _check_most(context: Context, of: str | None, lists: list[list[Any]], codes: NDArray[np.int64], most: int) -> None:
    counts = np.array([len(one) for one in lists])[codes]
    over = np.flatnonzero(counts > most)
    if len(over):
        row = int(over[0])
        text = f"{counts[row]} boxes, and a picture has {most} at most; {len(over):,} rows have more"
        raise context.error(row, text, f"set most: {int(counts.max())} on the columns of boxes and of their classes, and in the model", of)
