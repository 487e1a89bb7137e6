"""What metrics of classes share: options, types, and the classes that scores and labels stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Int, Name, Number
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType

Array = NDArray[Any]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class ClassOptions(Section):
    """What metrics of scores and labels take."""

    scores: Name = Field(
        description="variable: [batch, classes], or [batch, 1] of the second of two; [batch, ..., classes] per position"
    )
    labels: Name = Field(
        description="variable: one class number for each row of scores; or 0 and 1 in the shape of scores, several classes at once"
    )


ClassNumber = Annotated[int, Field(strict=True, ge=0)]


class DecisionOptions(ClassOptions):
    """What metrics of the most probable class take."""

    threshold: Number | None = Field(
        default=None,
        description="score from which on a class is taken, where each has its own score: 0.5 when absent, for probabilities; 0 for logits",
    )
    axis: Annotated[int, Field(strict=True)] = Field(default=-1, description="axis of scores that the classes lie along")
    ignore_index: Int | None = Field(default=None, description="label that does not count")


def check_class(options: Section, number: int | None, found: Layout) -> None:
    """Check the number of the class that a metric is about, where one is written.

    Raises:
        PeError: USAGE; there is no such class, or an average is written, too.
    """
    if number is None:
        return
    if "average" in options.model_fields_set:
        raise PeError("class: a metric of one class has no average", at=options.at_of("class"), hint="leave class or average out")
    if number >= found.classes:
        text = f"class: {number}, and there are {found.classes} classes, numbered from 0"
        raise PeError(text, at=options.at_of("class"), hint=f"at most {found.classes - 1}; pe data names the classes in their order")


@dataclass(frozen=True)
class Layout:
    """How scores and labels lie.

    Args:
        classes: numbers of classes; 2 where there is one score per row.
        axis: of the classes, from 0; the rank of scores where they have no such axis.
        several: whether a row may be of several classes at once.
    """

    classes: int
    axis: int
    several: bool = False


def layout(scores: tuple[int, ...], labels: tuple[int, ...], axis: int = -1) -> Layout:
    """Return how scores and labels of these shapes belong together.

    Args:
        scores: shape; -1 is a size that is not known.
        labels: shape, likewise.
        axis: of the classes.

    Raises:
        PeError: USAGE; they do not.
    """
    rank = len(scores)
    if rank == 1:
        scores, rank = (*scores, 1), 2
    at = axis + rank if axis < 0 else axis
    if not 1 <= at < rank:
        text = f"scores have {rank} axes, and axis {axis} cannot be that of the classes"
        raise PeError(text, hint=f"from 1 to {rank - 1}, or from -1 down")
    width = scores[at]
    # Labels may leave the class axis out or keep it with size 1; both are the habit of some framework.
    if width < 1:
        raise PeError(f"scores are {_shown(scores)}: the number of classes, axis {axis}, must be known and at least 1")
    plain = (*scores[:at], *scores[at + 1 :])
    kept = (*scores[:at], 1, *scores[at + 1 :])
    # Before the test for several classes: of [batch, 1] and [batch, 1] a row has one label, not one flag.
    if _fits(labels, plain) or _fits(labels, kept):
        return Layout(max(2, width), at)
    if _fits(labels, scores):
        return Layout(width, at, several=True)
    hint = f"labels are {_shown(plain)} or {_shown(kept)}, one class for each row; or {_shown(scores)}, 0 or 1 for each class"
    raise PeError(f"labels are {_shown(labels)}, and scores are {_shown(scores)}", hint=hint)


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{', '.join('batch' if not i and size < 0 else str(size) for i, size in enumerate(shape))}]"


def _fits(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(given) == len(wanted) and all(-1 in (a, b) or a == b for a, b in zip(given, wanted, strict=True))


def check_classes(types: Mapping[str, TensorType], axis: int = -1) -> Layout:
    """Check the types of scores and labels.

    Raises:
        PeError: USAGE; scores are no floats, or the shapes do not belong together.
    """
    scores, labels = types["scores"], types["labels"]
    if not scores.dtype.startswith("float"):
        raise PeError(f"scores must be float32 or float64, got {scores}", hint="name what a softmax, a sigmoid or the last fc makes")
    return layout(scores.shape, labels.shape, axis)


def check_decisions(options: DecisionOptions, types: Mapping[str, TensorType], *, several: bool = False) -> Layout:
    """Check the options of a metric of the most probable class, and the types of its variables.

    Args:
        options: as written.
        types: by option.
        several: whether rows may be of several classes at once.

    Raises:
        PeError: USAGE; they do not fit.
    """
    found = check_classes(types, options.axis)
    if found.several and not several:
        raise PeError(f"labels are {types['labels']}, and this metric is of one class per row", hint="label with class numbers, [batch, 1]")
    shape = types["scores"].shape
    own = found.several or len(shape) == 1 or shape[found.axis] == 1
    if options.threshold is not None and not own:
        raise PeError(
            f"threshold: scores are {types['scores']}, and the class with the largest score is taken",
            at=options.at_of("threshold"),
            hint="leave threshold out",
        )
    if found.several and options.ignore_index is not None:
        raise PeError("ignore_index: labels are 0 and 1 for each class", at=options.at_of("ignore_index"), hint="leave ignore_index out")
    return found


def rows_of(scores: Array, labels: Array, axis: int = -1) -> tuple[Array, Ints, Layout]:
    """Return scores as [rows, width], and labels as whole numbers: [rows], or [rows, width] where several classes are possible.

    Args:
        scores: [batch, ...].
        labels: [batch, ...], of any element type.
        axis: of the classes.

    Raises:
        PeError: USAGE, the shapes do not belong together; DATA, labels are no whole numbers.
    """
    found = layout(scores.shape, labels.shape, axis)
    if scores.ndim == 1:
        scores = scores[:, None]
    flat = np.moveaxis(scores, found.axis, -1)
    flat = flat.reshape(-1, flat.shape[-1])
    whole = np.asarray(labels).astype(np.int64) if labels.dtype.kind != "f" else whole_numbers(labels)
    if found.several:
        moved = np.moveaxis(whole, found.axis, -1)
        return flat, moved.reshape(-1, moved.shape[-1]), found
    return flat, whole.reshape(-1), found


def whole_numbers(labels: Array) -> Ints:
    """Return labels that are stored as floats as whole numbers.

    Raises:
        PeError: DATA; one is something else.
    """
    # NaN and numbers beyond int64 have no whole number; they differ from what they become, and are found below.
    with np.errstate(invalid="ignore"):
        found = labels.astype(np.int64)
    wrong = np.flatnonzero((found != labels).reshape(-1))
    if wrong.size:
        value = labels.reshape(-1)[wrong[0]]
        raise PeError(f"a label is {value:.6g}, and labels are class numbers", hint="name the feed with the classes", code=ExitCode.DATA)
    return found


def check_range(labels: Ints, classes: int) -> None:
    """Check that labels are numbers of classes.

    Raises:
        PeError: DATA; one is not.
    """
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise PeError(
            f"a label is {wrong[0]}, and the scores are of classes 0 to {classes - 1}",
            hint="set ignore_index where the metric has it and such labels do not count; else look at the labels",
            code=ExitCode.DATA,
        )


def decide(options: DecisionOptions, values: Mapping[str, Array]) -> tuple[Ints, Ints, Layout]:
    """Return what a batch is labelled with, and what the scores say.

    Args:
        options: as written.
        values: scores and labels.

    Returns:
        Class numbers [rows] of both; or 0 and 1 [rows, classes] where several classes are possible.

    Raises:
        PeError: DATA; a label is no class.
    """
    scores, labels, found = rows_of(values["scores"], values["labels"], options.axis)
    if options.ignore_index is not None:
        counts = labels != options.ignore_index
        scores, labels = scores[counts], labels[counts]
    check_range(labels, 2 if found.several else found.classes)
    least = 0.5 if options.threshold is None else options.threshold
    if found.several:
        return labels, (scores >= least).astype(np.int64), found
    if scores.shape[1] == 1:
        return labels, (scores[:, 0] >= least).astype(np.int64), found
    return labels, scores.argmax(axis=1).astype(np.int64), found
