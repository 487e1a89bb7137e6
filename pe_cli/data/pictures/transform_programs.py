"""Per-sample programs of picture transforms (crop, flip, resize, colour) that native code runs on a batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.dataset import Array
from pe_cli.kernels.images import transforms
from pe_cli.kernels.images.views import VIEW

if TYPE_CHECKING:
    from ctypes import _FuncPointer

WORDS = transforms.WORDS
#: An instruction for every picture of a batch, float64 [batch, WORDS].
Step = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """Sizes of a picture, in pixels."""

    height: int
    width: int
    channels: int

    @property
    def bytes(self) -> int:
        """Bytes of the picture's pixels."""
        return self.height * self.width * self.channels

    def __str__(self) -> str:
        return f"[{self.height}, {self.width}]"


def instruction(kind: int, batch: int, *words: Any) -> Step:
    """Return an instruction for every picture of a batch.

    Args:
        kind: of `pe_cli.kernels.images.transforms`.
        batch: number of pictures.
        words: numbers, or one for each picture.
    """
    step = np.zeros((batch, WORDS))
    step[:, 0] = kind
    for i, word in enumerate(words):
        step[:, i + 1] = word
    return step


def only(step: Step, chosen: NDArray[np.bool_]) -> Step:
    """Return an instruction that is carried out where it was chosen, and does nothing to other pictures."""
    step[~chosen, 0] = transforms.NOTHING
    return step


def middle(start: Shape, end: Shape, batch: int) -> Step:
    """Return the instruction that cuts the middle out; where the rest is odd, it is one pixel up and to the left."""
    top, left = (start.height - end.height) // 2, (start.width - end.width) // 2
    return instruction(transforms.CROP, batch, top, left, end.height, end.width)


@dataclass(frozen=True)
class Program:
    """What is done with the pictures of a batch.

    Args:
        steps: instructions in order.
        shapes: of a picture before the first, and after each of them: one more than there are steps.
    """

    steps: Sequence[Step]
    shapes: Sequence[Shape]
    words: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.shapes) == len(self.steps) + 1
        words = np.stack(self.steps, axis=1) if self.steps else np.zeros((0, 0, WORDS))
        object.__setattr__(self, "words", np.ascontiguousarray(words, np.float64))

    @property
    def shape(self) -> Shape:
        """Sizes of a picture when the program has ended."""
        return self.shapes[-1]


@functools.cache
def _native() -> tuple[_FuncPointer, _FuncPointer]:
    from pe_cli.devices.thread_pool import native_function

    return native_function(transforms.render), native_function(transforms.count_bytes)


def render(sources: Sequence[Array], program: Program, start: int, table: Array | None, out: Array, last: bool) -> None:
    """Run the part of a program that belongs to some pictures; the GIL is not held meanwhile.

    Args:
        sources: uint8 [height, width, channels], C-contiguous, of the program's first shape.
        program: of a batch.
        start: place of the first source in the batch.
        table: float32 [channels, 256], the number of every byte; None writes bytes.
        out: [batch, ...] of the program's last shape, channels first or last; rows start to start + len(sources) are written.
        last: whether channels are its last axis.
    """
    first, steps = program.shapes[0], len(program.steps)
    # a resize lies between two shapes: its first pass has the height of one and the width of the other
    size = max(a.channels * max(a.height, b.height) * max(a.width, b.width) for a, b in _pairs(program.shapes)) + 64
    buffers = np.empty(3 * size, np.uint8)
    weights = np.empty(max(_room(a, b) for a, b in _pairs(program.shapes)), np.int32)
    view = np.zeros(VIEW, np.int64)
    addresses = np.array([source.__array_interface__["data"][0] for source in sources], np.int64)
    words = program.words[start : start + len(sources)]
    part = out[start : start + len(sources)]
    assert part.flags.c_contiguous
    record = np.array(
        [
            addresses.ctypes.data, len(sources), first.height, first.width, first.channels,
            words.ctypes.data if steps else 0, steps, part.ctypes.data, 0 if table is None else table.ctypes.data, int(last),
            buffers.ctypes.data, size, weights.ctypes.data, view.ctypes.data,
        ],
        np.int64,
    )  # fmt: skip
    _native()[0](record.ctypes.data)


def _pairs(shapes: Sequence[Shape]) -> list[tuple[Shape, Shape]]:
    return list(zip(shapes, [*shapes[1:], shapes[-1]], strict=True))


def _room(before: Shape, after: Shape) -> int:
    """Return the int32 words that a resize needs for its weights."""
    down = 2 * math.ceil(max(before.height / after.height, 1)) + 3
    across = 2 * math.ceil(max(before.width / after.width, 1)) + 3
    return after.height * (down + 2) + after.width * max(across + 2, after.channels) + 64


def count_bytes(picture: Array, counts: NDArray[np.int64]) -> None:
    """Add to counts, int64 [channels, 256], how often every channel of a picture has each byte."""
    height, width, channels = picture.shape
    record = np.array([picture.ctypes.data, height * width, channels, counts.ctypes.data], np.int64)
    _native()[1](record.ctypes.data)
