"""Feeds: how a field of a data set becomes an input of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.encoding import Affine, Cast, Check, OneHot, Reshape, Step
from pe_cli.core.errors import ExitCode, PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import DTYPES, FLOATS, TensorType
from pe_cli.data.dataset import Array

INTEGERS = ("int64", "int32", "uint8")
# these and their products with a float32 are exact or correctly rounded in float32
_NARROW = ("float32", "uint8", "bool")


@dataclass(frozen=True)
class Feed:
    """What a model's feed is made of: one_hot(dtype(field) * scale + shift), reshaped.

    Args:
        from_: field of the data set.
        scale: factor, no unit.
        shift: added after scaling, no unit.
        reshape: shape of one sample, one size may be -1; None keeps it.
        one_hot: number of classes, when class indices become rows of 0 and 1; None leaves them.
        dtype: convert the field to this element type first; needed where that may lose something (float to integer).
        at: place in the config, where one is known.
        places: key -> where its value is written, of those that are.
    """

    from_: str
    scale: float = 1.0
    shift: float = 0.0
    reshape: tuple[int, ...] | None = None
    one_hot: int | None = None
    dtype: str | None = None
    at: Span | None = field(default=None, compare=False)
    places: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Conversion:
    """A feed whose types have been checked.

    Args:
        name: of the model's feed.
        feed: what to do.
        source: type of the field, per sample.
        target: type of the feed, per sample; every size is known.
    """

    name: str
    feed: Feed
    source: TensorType
    target: TensorType

    def apply(self, values: Array, indices: NDArray[np.int64], copy: bool = False) -> Array:
        """Convert a batch.

        Args:
            values: [batch, *source.shape] of the source's type.
            indices: int64 [batch], which samples these are, for messages.
            copy: whether the result may not share memory with values.

        Returns:
            [batch, *target.shape] of the target's type, C-contiguous.

        Raises:
            PeError: a value that the target's type or `one_hot` has no room for; the message names the sample.
        """
        try:
            # An overflow is the data's mistake and told with its row, and not a warning of NumPy's.
            with np.errstate(over="raise"):
                out = self._cast(values, self.feed.dtype or values.dtype.name, indices)
                out = self._one_hot(out, indices) if self.feed.one_hot is not None else self._scale(out)
                out = self._cast(out, self.target.dtype, indices)
        except FloatingPointError:
            raise _error(
                self.feed,
                f"feed '{self.name}': a value of field '{self.feed.from_}' is too large for {self.target.dtype}",
                "use a smaller scale, or float64",
            ) from None
        out = np.ascontiguousarray(out.reshape(len(indices), *self.target.shape))
        # A caller that keeps the batch must not see the data set change it.
        return out.copy() if copy and np.may_share_memory(out, values) else out

    def steps(self) -> tuple[Step, ...]:
        """Return the conversion as steps, for models that other runtimes run; see `pe_cli.core.encoding`."""
        feed, kind = self.feed, self.source
        found: list[Step] = []

        def cast(dtype: str) -> None:
            nonlocal kind
            if dtype != kind.dtype:
                if kind.dtype in FLOATS and dtype in INTEGERS:
                    found.append(Check("whole", f"feed '{self.name}': a value that is no {dtype}"))
                found.append(Cast(dtype))
                kind = TensorType(kind.shape, dtype)

        if feed.dtype is not None:
            cast(feed.dtype)
        if feed.one_hot is not None:
            cast("int64")
            if self._scaled:
                found.append(Affine((feed.scale,), (feed.shift,)))
            said = f"feed '{self.name}': an index that one_hot: {feed.one_hot} has no place for"
            found += [Check("index", said, feed.one_hot), OneHot(feed.one_hot, self.target.dtype)]
            kind = TensorType(kind.shape, self.target.dtype)
        elif self._scaled:
            narrow = self.target.dtype == "float32" and kind.dtype in _NARROW
            cast("int64" if self.target.dtype not in FLOATS else "float32" if narrow else "float64")
            found.append(Affine((feed.scale,), (feed.shift,)))
        cast(self.target.dtype)
        return (*found, Reshape(self.target.shape))

    @property
    def _scaled(self) -> bool:
        return self.feed.scale != 1 or self.feed.shift != 0

    def _scale(self, values: Array) -> Array:
        if not self._scaled:
            return values
        if self.target.dtype not in FLOATS:
            return values.astype(np.int64) * int(self.feed.scale) + int(self.feed.shift)
        # one pass, straight into the target's type: NumPy converts in small blocks that stay in cache
        out = np.empty(values.shape, self.target.dtype)
        narrow = self.target.dtype == "float32" and values.dtype.name in _NARROW
        np.multiply(values, self.feed.scale, out=out, dtype="float32" if narrow else "float64", casting="same_kind")
        if self.feed.shift:
            np.add(out, self.feed.shift, out=out)
        return out

    def _one_hot(self, values: Array, indices: NDArray[np.int64]) -> Array:
        classes = self.feed.one_hot
        assert classes is not None
        # Labels of files often begin at 1, so that scale and shift come before.
        labels = values.astype(np.int64) * int(self.feed.scale) + int(self.feed.shift)
        bad = (labels < 0) | (labels >= classes)
        if bad.any():
            raise self._bad_value(
                labels,
                bad,
                indices,
                f"is not in [0, {classes}), so one_hot: {classes} has no place for it",
                "raise one_hot, or correct the labels (shift: -1 when they start at 1)",
            )
        out = np.zeros((labels.size, classes), self.target.dtype)
        out[np.arange(labels.size), labels.reshape(-1)] = 1
        return out.reshape(len(indices), -1)

    def _cast(self, values: Array, dtype: str, indices: NDArray[np.int64]) -> Array:
        if values.dtype.name == dtype:
            return values
        if dtype == "bool":
            return np.not_equal(values, 0)
        if dtype in FLOATS:
            return values.astype(dtype)
        if values.dtype.name in INTEGERS or values.dtype.name in FLOATS:
            limits = np.iinfo(dtype)
            # float(2**63 - 1) is 2**63, which does not fit: hence < and the next number up
            bad = (
                ~((values >= limits.min) & (values < float(limits.max) + 1))
                if values.dtype.kind == "f"
                else ((values < limits.min) | (values > limits.max))
            )
            if values.dtype.kind == "f":
                bad |= values != np.rint(values)
            if bad.any():
                raise self._bad_value(values, bad, indices, f"is no {dtype}", "correct the data, or use another dtype")
        return values.astype(dtype)

    def _bad_value(self, values: Array, bad: Array, indices: NDArray[np.int64], said: str, hint: str) -> PeError:
        row = int(np.flatnonzero(bad.reshape(len(indices), -1).any(axis=1))[0])
        value = values[row][bad[row]].reshape(-1)[0] if values.ndim > 1 else values[row]
        return _error(
            self.feed,
            f"feed '{self.name}': sample {indices[row]} of field '{self.feed.from_}' has {value}, which {said}",
            hint,
        )


def check_feed(name: str, feed: Feed, fields: Mapping[str, TensorType], target: TensorType) -> Conversion:
    """Check a feed's types without reading data.

    Args:
        name: of the model's feed.
        feed: what the config says about it.
        fields: what the data set has.
        target: type of one sample that the model wants; a size of -1 takes any.

    Returns:
        The conversion, with every size of its target known.

    Raises:
        PeError: an unknown field, an impossible option, or a field that cannot become the target; it names both types.
    """
    source = fields.get(feed.from_)
    if source is None:
        raise _error(
            feed,
            f"feed '{name}': the data has no field '{feed.from_}'",
            did_you_mean(feed.from_, fields) or f"it has {', '.join(fields)}",
        )
    both = f"feed '{name}' is {target}, but field '{feed.from_}' is {source}"
    _check_numbers(name, feed)
    _check_dtype(feed, source, target, both)
    shape = source.shape
    # A last axis of 1 is the class index itself, and becomes the row of its classes.
    if feed.one_hot is not None:
        shape = (*(shape[:-1] if shape and shape[-1] == 1 else shape), feed.one_hot)
        both += f", with one_hot {list(shape)}"
    if feed.reshape is not None:
        shape = _reshape(name, feed, feed.reshape, shape)
        both += f", with reshape {list(shape)}"
    fitted = _fit(shape, target.shape)
    if fitted is None:
        raise _error(feed, f"{both}: the shapes differ", _shape_remedy(shape, source, target))
    return Conversion(name, feed, source, TensorType(fitted, target.dtype))


def check_level(name: str, feed: Feed, wanted: int, there: int) -> None:
    """Check that a feed and its field agree on sequences.

    Args:
        name: of the model's feed.
        feed: what the config says about it.
        wanted: levels of the feed's sequences.
        there: levels of the field's.

    Raises:
        PeError: they differ.
    """
    if wanted == there:
        return
    if there:
        hint = "declare the model's feed with lod_level: 1, or make the slot dense"
        raise _error(feed, f"field '{feed.from_}' holds sequences, but feed '{name}' has lod_level {wanted}", hint)
    what = f"feed '{name}' has lod_level {wanted}, but samples of field '{feed.from_}' are no sequences"
    raise _error(feed, what, "feed a sparse slot of reader multi_slot, or leave lod_level out of the model")


# The message names the option that is wrong: the error stands at that option's place.
def _error(feed: Feed, message: str, hint: str | None) -> PeError:
    """Return an error at the key of the feed that it names, which may be written elsewhere than the feed, else at the feed."""
    said = re.findall(r"\w+", message.partition(": ")[2])
    at = next((feed.places[key] for key in said if key in feed.places and key != "from"), feed.at)
    return PeError(message, at=at, hint=hint, code=ExitCode.DATA)


def _check_numbers(name: str, feed: Feed) -> None:
    for option, value in (("scale", feed.scale), ("shift", feed.shift)):
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise _error(feed, f"feed '{name}': {option} must be a finite float32 number, got {value}", None)
    if feed.one_hot is not None and feed.one_hot < 1:
        raise _error(feed, f"feed '{name}': one_hot must be at least 1 class, got {feed.one_hot}", None)
    if feed.dtype is not None and feed.dtype not in DTYPES:
        hint = did_you_mean(feed.dtype, DTYPES) or f"one of {', '.join(DTYPES)}"
        raise _error(feed, f"feed '{name}': unknown dtype '{feed.dtype}'", hint)


def _check_dtype(feed: Feed, source: TensorType, target: TensorType, both: str) -> None:
    start = feed.dtype or source.dtype
    whole = float(feed.scale).is_integer() and float(feed.shift).is_integer()
    scaled = feed.scale != 1 or feed.shift != 0
    if feed.one_hot is not None:
        if start not in INTEGERS:
            raise _error(feed, f"{both}: one_hot needs class indices, not {start}", "set dtype: int64 on the feed")
        if not whole:
            raise _error(
                feed,
                f"{both}: scale {feed.scale:g} and shift {feed.shift:g} make no class indices",
                "leave them out where one_hot is set",
            )
        return
    if target.dtype in FLOATS:
        return
    if scaled and (target.dtype == "bool" or not whole):
        raise _error(
            feed,
            f"{both}: scale {feed.scale:g} and shift {feed.shift:g} make numbers that {target.dtype} cannot hold",
            "leave scale and shift out, or declare the model's feed float32",
        )
    if start in FLOATS or (target.dtype == "bool" and start != "bool"):
        raise _error(
            feed,
            f"{both}: {start} becomes {target.dtype} only when asked to",
            f"set dtype: {target.dtype} on the feed (every value must fit)",
        )


def _resolve(shape: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    """Return shape with its one -1 replaced, or None when it cannot hold `size` elements."""
    if shape.count(-1) > 1 or any(length < -1 for length in shape):
        return None
    known = math.prod(length for length in shape if length != -1)
    if -1 not in shape:
        return shape if known == size else None
    if known == 0 or size % known:
        return None
    return tuple(size // known if length == -1 else length for length in shape)


def _fit(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the wanted shape with its sizes known, where getting there moves no element to another axis.

    Axes of size 1 come and go, and one axis may be split or all joined; [32, 32, 3] is no [3, 32, 32], although the
    sizes agree.
    """
    if len(shape) == len(wanted) and all(w in (-1, s) for s, w in zip(shape, wanted, strict=True)):
        return shape
    resolved = _resolve(wanted, math.prod(shape))
    if resolved is None:
        return None
    inner, outer = ([length for length in sizes if length != 1] for sizes in (shape, resolved))
    # An axis of 1 may be left out or put in; any other reshaping has to be asked for.
    return resolved if inner == outer or len(inner) <= 1 or len(outer) <= 1 else None


def _reshape(name: str, feed: Feed, wanted: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    resolved = _resolve(wanted, math.prod(shape))
    if resolved is None:
        raise _error(
            feed,
            f"feed '{name}': reshape {list(wanted)} cannot hold field '{feed.from_}' of shape {list(shape)}, "
            f"{math.prod(shape)} elements",
            "the product of the sizes must be the same; one of them may be -1",
        )
    return resolved


def _order(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[int] | None:
    """Return the axes of a picture in the order that is wanted, where channels are last instead of first or the other way round."""
    if len(shape) != 3 or shape == wanted:
        return None
    return next((axes for axes in ([2, 0, 1], [1, 2, 0]) if tuple(shape[axis] for axis in axes) == wanted), None)


def _shape_remedy(shape: tuple[int, ...], source: TensorType, target: TensorType) -> str:
    wanted = list(target.shape)
    axes = _order(shape, target.shape)
    if axes is not None:
        return (
            f"the same sizes in another order, and reshape moves no axes: declare the feed with shape {list(shape)} and put a layer "
            f"{{type: transpose, perm: {[0, *(axis + 1 for axis in axes)]}}} behind it"
        )
    if math.prod(shape) == target.size:
        return f"their sizes agree: set reshape: {wanted} on the feed if the order is right (it moves no axes)"
    if math.prod(shape) == 1 and source.dtype in INTEGERS and len(wanted) == 1:
        return f"set one_hot: {wanted[0]} on the feed if these are class indices"
    return f"declare the model's feed with shape {list(shape)}, or feed another field"
