"""Kinds of augmentation, filled by discovering `pe_cli/data/augment/kinds/`.

A kind is one file: its options, what it needs, and what it does. There are three of them: those of pictures say an instruction for
every picture of a batch, which native code carries out; those of columns change an array of a field; those of batches mix the feeds of
several samples. All of them draw from `Draws` only.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.dataset import Array, Batch
from pe_cli.data.pictures.transform_programs import Shape, Step

Chance = Annotated[float, Field(strict=True, ge=0, le=1)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("the least must not be above the greatest")
    return pair


def _of_whole(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[1] > 1:
        raise ValueError("a share of the area is at most 1")
    return pair


#: The least and the greatest of what is drawn; and of shares of an area.
Range = Annotated[tuple[Positive, Positive], AfterValidator(_ordered)]
Area = Annotated[tuple[Positive, Positive], AfterValidator(_ordered), AfterValidator(_of_whole)]
Pixels = Annotated[int, Field(strict=True, ge=1, le=16384)]
Byte = Annotated[int, Field(strict=True, ge=0, le=255)]
#: A colour: one byte for all channels, or one for each.
Fill = Byte | list[Byte]


class AugmentOptions(BaseModel):
    """What every augmentation understands."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    column: str | None = Field(None, description="column that is changed; needed where several could be meant")


AnyOptions = TypeVar("AnyOptions", bound=AugmentOptions)


class Kind(Generic[AnyOptions]):
    """A kind of augmentation.

    Class attributes:
        name: what a config writes.
        options: pydantic model of its options.
    """

    name: ClassVar[str]
    options: ClassVar[type[AugmentOptions]]

    @property
    def doc(self) -> str:
        """What the augmentation does, as written at its class."""
        return inspect.getdoc(type(self)) or ""


class PictureKind(Kind[AnyOptions]):
    """One that changes pictures, before their bytes become numbers."""

    def plan(self, options: AnyOptions, shape: Shape) -> Shape:
        """Return the sizes that pictures of a shape get.

        Raises:
            ValueError: it cannot be done with such pictures; `args` are a message and a hint.
        """
        return shape

    def draw(self, options: AnyOptions, shape: Shape, draws: Draws) -> Step:
        """Return the instruction of every picture, float64 [batch, WORDS]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Column:
    """A field that is to be changed.

    Args:
        type: of a sample, or of a row of a sequence.
        sequences: whether a sample is a sequence.
        classes: number of its classes; None for one that has none.
    """

    type: TensorType
    sequences: bool
    classes: int | None


class ColumnKind(Kind[AnyOptions]):
    """One that changes the array of a field, before it becomes a feed."""

    def fits(self, column: Column) -> bool:
        """Return whether it can change such a field; those that it cannot are not meant where no column is named."""
        raise NotImplementedError

    #: Ends a sentence about a field that does not fit.
    needs: ClassVar[str]

    def check(self, options: AnyOptions, column: Column) -> None:
        """Check the options against the field.

        Raises:
            ValueError: they do not fit; `args` are a message and a hint.
        """

    def change(self, options: AnyOptions, values: Array, offsets: NDArray[np.int64] | None, draws: Draws) -> None:
        """Change the samples of a batch.

        Args:
            values: [batch, *shape], which is changed; of sequences the rows of all samples.
            offsets: int64 [batch + 1], of sequences.
        """
        raise NotImplementedError


class BatchKind(Kind[AnyOptions]):
    """One that mixes the samples of a batch, after they have become feeds; labels are mixed alike."""

    def check(self, options: AnyOptions, types: Mapping[str, TensorType], picture: str, last: bool) -> None:
        """Check the feeds, which are all of floats.

        Args:
            types: feed -> type of a sample.
            picture: which of them is made of the column that is named.
            last: whether its channels are the last axis.

        Raises:
            ValueError: it cannot be done; `args` are a message and a hint.
        """

    def mix(self, options: AnyOptions, batch: Batch, picture: str, draws: Draws) -> None:
        """Mix the feeds of a batch of at least two samples, in place; see `partners`."""
        raise NotImplementedError


def partners(values: Array) -> Array:
    """Return for each sample the one before it in the batch; for the first, the last."""
    # The sample before: a fixed partner costs no draw, and every sample has one.
    return np.roll(values, 1, axis=0)


KINDS: dict[str, Kind[Any]] = {}
AnyKind = TypeVar("AnyKind", bound=type[Kind[Any]])


def augmentation(cls: AnyKind) -> AnyKind:
    """Register a class as the augmentation of its name."""
    assert cls.name not in KINDS, f"two augmentations are named {cls.name}"
    KINDS[cls.name] = cls()
    return cls


def discover() -> dict[str, Kind[Any]]:
    """Import every module of augmentations once and return them."""
    package = importlib.import_module("pe_cli.data.augment.kinds")
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")
    return KINDS


def colour(fill: Fill, shape: Shape) -> list[int]:
    """Return a colour as one byte for each channel.

    Raises:
        ValueError: it is a list of another length.
    """
    if isinstance(fill, int):
        return [fill] * shape.channels
    if len(fill) != shape.channels:
        raise ValueError(f"a colour of {len(fill)} numbers, and pictures have {shape.channels} channels", "one number, or one per channel")
    return list(fill)
