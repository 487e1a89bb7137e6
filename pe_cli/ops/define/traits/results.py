"""Traits about the meaning of results: losses, probabilities, classes, boxes."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any

from pe_cli.ops.define.traits.trait import Named, Trait, need


class Says(enum.Enum):
    """What a model says of a sample."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"


class Compares(Trait):
    """A loss: what the model says of each class against the class that it is.

    Args:
        scores, labels: input slots.
        are: what the scores are.
        several: scores of several classes, of which labels are numbers; else of one, which labels say yes or no to.
    """

    scores: str
    labels: str
    are: Says
    several: bool = True

    def verify(self, op: Named) -> None:
        need(op, [self.scores, self.labels])


class Weight(Trait):
    """Inputs may be weights, and frameworks keep the axes of such weights in different orders.

    Args:
        slots: input slots.
        kind: of the weight: `matrix`, `filters`, `transposed filters`, `table`; `elementwise` is kept alike by all.
        axes: a letter for each axis, in the order of the op: i(nputs), o(utputs), h(eight) and w(idth) of filters, v(ocabulary), d(epth).
        reversed_by: attribute where the axes are in the other order if it is set.
    """

    slots: tuple[str, ...]
    kind: str
    axes: str
    reversed_by: str = ""

    def verify(self, op: Named) -> None:
        need(op, self.slots)
        assert not self.reversed_by or self.reversed_by in op.attrs, op.name

    def order(self, attrs: Mapping[str, Any]) -> str:
        """Return the axes as an op with these attributes has them."""
        return self.axes[::-1] if self.reversed_by and attrs[self.reversed_by] else self.axes


class TagsRows(Trait):
    """The op compares labels with scores row by row, and each sequence as a whole: both have the same sequences.

    Args:
        scores, labels: input slots.
    """

    scores: str
    labels: str

    def verify(self, op: Named) -> None:
        need(op, [self.scores, self.labels])


class ToProbabilities(Trait):
    """The op makes probabilities of logits, or their logarithms.

    Args:
        several: of the classes that an axis lists; else of each element by itself.
        logarithms: whether it gives those.
    """

    several: bool = True
    logarithms: bool = False


class Bounded(Trait):
    """No value that the op makes lies outside a range, whatever it reads.

    Args:
        low, high: ends of the range, which belong to it; no unit.
    """

    low: float = -math.inf
    high: float = math.inf

    def verify(self, op: Named) -> None:
        assert self.low < self.high, f"{op.name}: an empty range"


class Best(Trait):
    """The op finds the classes with the highest scores.

    Args:
        scores: input slot.
        places: output slot: their numbers.
    """

    scores: str
    places: str

    def verify(self, op: Named) -> None:
        need(op, [self.scores])
        need(op, [self.places], outputs=True)


class Judges(Trait):
    """The op compares the numbers of classes that were found with those of labels.

    Args:
        found, labels: input slots.
    """

    found: str
    labels: str

    def verify(self, op: Named) -> None:
        need(op, [self.found, self.labels])


class FindsBoxes(Trait):
    """The op finds things in pictures.

    Args:
        boxes: output slot, [images, rows, 6]: class, score, left, top, right, bottom; class -1 where a row has none.
    """

    boxes: str

    def verify(self, op: Named) -> None:
        need(op, [self.boxes], outputs=True)


class Spells(Trait):
    """The op writes a sequence of classes: what a loss over whole sequences is taught.

    Args:
        ids: output slot, whole numbers: [rows, 1] with sequences, or a row of them for each sample.
        taught_by: type of the loss.
        scores: input slot, of which the loss takes the same variable; empty where it takes another form of it.
        lengths: slot, of an input or an output: how many of a row's ids count; absent where they have sequences.
        unless: input slot with which it writes something else; empty where there is none.
    """

    ids: str
    taught_by: str
    scores: str = ""
    lengths: str = ""
    unless: str = ""

    def verify(self, op: Named) -> None:
        need(op, [self.ids], outputs=True)
        need(op, [slot for slot in (self.scores, self.unless) if slot])
        if self.lengths not in op.slot_names(outputs=False):
            need(op, [slot for slot in (self.lengths,) if slot], outputs=True)
