"""Encoding steps: how raw columns become a model's feeds, and how outputs are decoded, as plain values that exports can write.

Column types and feeds say it in these steps; what writes models for other runtimes (`pe_cli/io/onnx`) knows the steps alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.core.value_class import Value

#: Element type of texts; no variable of a program has it.
TEXT = "string"


class Step(Value):
    """What is done with a value; most steps keep its type."""

    def after(self, kind: TensorType) -> TensorType:
        """Return the type of one sample behind the step.

        Args:
            kind: before it.
        """
        return kind


class Fill(Step):
    """A number stands for NaN: the same for all elements, or one for each of the last axis."""

    value: float | tuple[float, ...]


class Empty(Step):
    """Some numbers, which stand for a missing cell, become NaN."""

    values: tuple[float, ...]


class Clip(Step):
    """Numbers outside are brought to the nearest limit."""

    low: float
    high: float


class Standardise(Step):
    """(x - shift) / divisor, with one number for all elements or one for each of the last axis."""

    shift: tuple[float, ...]
    divisor: tuple[float, ...]


class Affine(Step):
    """x * factor + shift, with one number for all elements or one for each of the last axis; of integers, whole numbers."""

    factor: tuple[float, ...]
    shift: tuple[float, ...]


class Logarithm(Step):
    """ln(x + added)."""

    added: float


class SignedLogarithm(Step):
    """asinh(x): x where it is small, and the logarithm of its double, with its sign, where it is large."""


class HyperbolicSine(Step):
    """sinh(x), which undoes `SignedLogarithm`."""


class Exponential(Step):
    """exp(x) - added."""

    added: float


class Check(Step):
    """What does not hold ends the run with an error.

    Args:
        test: finite: neither NaN nor infinite; whole: no fraction; index: at least 0 and below `limit`.
        said: the error, as what is wrong with the value.
        limit: of an index.
    """

    test: Literal["finite", "whole", "index"]
    said: str
    limit: int = 0


class Lookup(Step):
    """A text becomes its index, int64.

    Args:
        words: texts that have an index.
        indices: of each.
        unknown: index of all other texts.
        missing: index of the empty text, and of others that stand for a missing cell.
    """

    words: tuple[str, ...]
    indices: tuple[int, ...]
    unknown: int
    missing: int

    def after(self, kind: TensorType) -> TensorType:
        """Return indices; see `Step.after`."""
        return TensorType(kind.shape, "int64")


class OneHot(Step):
    """An index becomes a row of 0 and 1, along the last axis; an index outside becomes zeros."""

    width: int
    dtype: str

    def after(self, kind: TensorType) -> TensorType:
        """Return rows; see `Step.after`."""
        shape = kind.shape[:-1] if kind.shape and kind.shape[-1] == 1 else kind.shape
        return TensorType((*shape, self.width), self.dtype)


class Count(Step):
    """Indices of any number become a row that says how often each is there, float32; an index of `width` is none.

    Args:
        width: of the row.
        once: 1 for every index that is there, however often.
    """

    width: int
    once: bool

    def after(self, kind: TensorType) -> TensorType:
        """Return a row; see `Step.after`."""
        return TensorType((self.width,), "float32")


class Wave(Step):
    """A number that comes around again becomes the sine and the cosine of 2 pi (x - first) / period."""

    first: float
    period: float

    def after(self, kind: TensorType) -> TensorType:
        """Return two numbers; see `Step.after`."""
        return TensorType((*kind.shape[:-1], 2), kind.dtype)


class Cast(Step):
    """Another element type; of bool, whether the number is not 0."""

    dtype: str

    def after(self, kind: TensorType) -> TensorType:
        """Return the same shape; see `Step.after`."""
        return TensorType(kind.shape, self.dtype)


class Reshape(Step):
    """Another shape of a sample; every size is known."""

    shape: tuple[int, ...]

    def after(self, kind: TensorType) -> TensorType:
        """Return the shape; see `Step.after`."""
        return TensorType(self.shape, kind.dtype)


class ChannelsFirst(Step):
    """[height, width, channels] becomes [channels, height, width]."""

    def after(self, kind: TensorType) -> TensorType:
        """Return the other order; see `Step.after`."""
        height, width, channels = kind.shape
        return TensorType((channels, height, width), kind.dtype)


class Best(Step):
    """The index of the largest number of the last axis, int64 [1]."""

    def after(self, kind: TensorType) -> TensorType:
        """Return an index; see `Step.after`."""
        return TensorType((*kind.shape[:-1], 1), "int64")


class Above(Step):
    """Index 1 for a number above the limit and 0 for others, int64."""

    limit: float

    def after(self, kind: TensorType) -> TensorType:
        """Return an index; see `Step.after`."""
        return TensorType(kind.shape, "int64")


class Column(Step):
    """One number of the last axis."""

    index: int

    def after(self, kind: TensorType) -> TensorType:
        """Return it alone; see `Step.after`."""
        return TensorType((*kind.shape[:-1], 1), kind.dtype)


class Both(Step):
    """A probability [1] becomes those of two classes, of which it is the second."""

    def after(self, kind: TensorType) -> TensorType:
        """Return two numbers; see `Step.after`."""
        return TensorType((*kind.shape[:-1], 2), kind.dtype)


class Softmax(Step):
    """Logits of the last axis become probabilities that add up to 1."""


class Sigmoid(Step):
    """Every logit becomes a probability by itself."""


class Interpolate(Step):
    """Straight lines between points, constant outside; of float64.

    Args:
        at: points of each number of the last axis, rising.
        to: values at these points.
    """

    at: tuple[tuple[float, ...], ...]
    to: tuple[tuple[float, ...], ...]


class AtLeast(Step):
    """1 for numbers that are at least a limit and 0 for others, int64.

    Args:
        limits: one for all numbers, or one for each of the last axis.
    """

    limits: tuple[float, ...]

    def after(self, kind: TensorType) -> TensorType:
        """Return whether they are; see `Step.after`."""
        return TensorType(kind.shape, "int64")


class Names(Step):
    """An index becomes a text."""

    words: tuple[str, ...]

    def after(self, kind: TensorType) -> TensorType:
        """Return texts; see `Step.after`."""
        return TensorType(kind.shape, TEXT)


@dataclass(frozen=True)
class Source:
    """A raw value that a model is given.

    Args:
        column: of the table, or field of a file of arrays.
        kind: type of one sample, `TEXT` for texts; of sequences, that of a row. A size of -1 takes any.
        said: what it is, for people who feed it.
        part: which part of the cell it is, where that is not the whole.
        raw: whether it is the cell as it is in the file.
    """

    column: str
    kind: TensorType
    said: str
    part: str = ""
    raw: bool = True

    @property
    def name(self) -> str:
        """What a model's input is called."""
        return f"{self.column}.{self.part}" if self.part else self.column


@dataclass(frozen=True)
class Lane:
    """A raw value, and the steps that encode it."""

    source: Source
    steps: tuple[Step, ...] = ()

    @property
    def kind(self) -> TensorType:
        """Type of one sample behind all steps."""
        return after(self.source.kind, self.steps)


@dataclass(frozen=True)
class Fed:
    """How a feed of a model is made.

    Args:
        lanes: joined along their last axis.
        dtype: that lanes are joined in.
        steps: what is done then.
    """

    lanes: tuple[Lane, ...]
    dtype: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Told:
    """An output of a model with its data's side.

    Args:
        name: of the output.
        variable: of the program.
        steps: what is done with it.
    """

    name: str
    variable: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Around:
    """The data's side of a model.

    Args:
        feeds: how they are made, by name; others stay inputs.
        constants: feeds with one value for all samples: nested lists of numbers.
        outputs: in order.
        missing: texts that stand for a missing cell, besides the empty one.
        facts: for other programs: name -> text.
    """

    feeds: Mapping[str, Fed]
    outputs: tuple[Told, ...]
    constants: Mapping[str, object] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def after(kind: TensorType, steps: tuple[Step, ...]) -> TensorType:
    """Return the type of one sample behind some steps."""
    for step in steps:
        kind = step.after(kind)
    return kind
