"""Feeds of scripts: checked against the program, converted where that loses nothing, and split over devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.execute.batch_split import cut_sequences, split_sizes
from pe_cli.execute.plan.program_parts import unseen
from pe_cli.ops.define.lod import Leveled, offsets_name
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.constant_sizes import lasts
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, to_lengths
from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]
#: Feed and levels of its sequences, sorted.
Levels = tuple[tuple[str, int], ...]

_NEEDED: WeakKeyDictionary[Program, tuple[Any, list[str]]] = WeakKeyDictionary()


def needed(program: Program) -> list[str]:
    """Return what a program reads that no scope has and that is not written before; kept until the program changes."""
    state = getattr(program, "version", None), len(program.global_block().ops)
    if program not in _NEEDED or _NEEDED[program][0] != state:
        _NEEDED[program] = state, _find_needed(program)
    return _NEEDED[program][1]


def _find_needed(program: Program) -> list[str]:
    block = program.global_block()
    written: set[str] = set()
    found: dict[str, None] = {}
    for op in block.ops:
        # `free` names are what a loop's body writes before it reads them.
        free = unseen(op)
        for name in op.input_names():
            if name not in written and name not in free and not lasts(block.vars[name]):
                found[name] = None
        written.update(op.output_names())
    return list(found)


def check(program: Program, feed: Mapping[str, Any], devices: int = 1) -> dict[str, LoDTensor]:
    """Return what a program is fed, of its types.

    Args:
        program: its variables say what fits.
        feed: name -> value.
        devices: that the batch is for: what has no batch axis may be given once for each.

    Raises:
        FluidValueError: an unknown or missing name, or a shape that does not fit; a ValueError.
        FluidTypeError: an element type that would lose something; a TypeError.
    """
    block = program.global_block()
    out = {}
    for name, value in feed.items():
        if name not in block.vars:
            known = [v.name for v in block.vars.values() if v.is_data]
            hint = did_you_mean(str(name), known) or f"it has {', '.join(known) or 'none'}"
            raise FluidValueError(f"the program has no feed '{name}'", hint=hint)
        out[str(name)] = _converted(block.vars[name], value, devices)
    for name in needed(program):
        if name not in out:
            _missing(program, name)
    return out


def _missing(program: Program, name: str) -> None:
    source, gradient, _ = name.partition("@GRAD")
    if gradient:
        hint = f"gradient_scale_strategy Customized: feed '{name}', of the shape of '{source}', for every device"
        raise FluidValueError(f"'{name}' is neither fed nor computed", hint=hint)
    if program.global_block().vars[name].is_data:
        raise FluidValueError(f"feed '{name}' is missing", hint=f"feed={{'{name}': ...}}")
    raise FluidValueError(f"'{name}' is read before any op writes it", hint="feed it, or make it persistable")


def levels_of(parts: Sequence[Mapping[str, Any]]) -> Levels:
    """Return the levels of the sequences that are fed.

    Args:
        parts: per device: name -> array, or a `Leveled` one.

    Raises:
        FluidValueError: devices are fed different ones; a ValueError.
    """
    found = [tuple(sorted((name, len(v.lod)) for name, v in part.items() if isinstance(v, Leveled) and v.lod)) for part in parts]
    if len(set(found)) > 1:
        raise FluidValueError(f"devices are fed sequences of different levels: {', '.join(map(str, found))}")
    return found[0]


def arrays_of(part: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of what a device is fed, arrays or `Leveled` ones, and those of the offsets of its sequences."""
    out = {}
    for name, value in part.items():
        if not isinstance(value, Leveled):
            out[name] = value
            continue
        out[name] = value.array
        for k, offsets in enumerate(value.lod):
            out[offsets_name(name, k)] = np.asarray(offsets, np.int64)
    return out


def _is_whole(array: Array, dtype: Any) -> bool:
    """Return whether an array holds whole numbers that an integer type has, too."""
    if dtype.kind not in "iu" or array.dtype.kind not in "iuf":
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(array.astype(dtype), array))


def _converted(v: Any, value: Any, devices: int) -> LoDTensor:
    name, kind = v.name, v.type
    lengths = value.recursive_sequence_lengths() if isinstance(value, LoDTensor) else []
    if lengths and not value.has_valid_recursive_sequence_lengths():
        hint = "the last level adds up to the rows, others to the next level's sequences"
        raise FluidValueError(f"feed '{name}' has {len(value)} rows, but lengths {lengths}", hint=hint)
    plain = not isinstance(value, (np.ndarray, np.generic, LoDTensor))
    array = np.asarray(value)
    wanted = kind.shape
    # A fixed first axis may also be given once for each device, one behind the other.
    if devices > 1 and wanted[:1] != (-1,) and array.shape[:1] == tuple(devices * w for w in wanted[:1]):
        wanted = array.shape[:1] + wanted[1:]
    fits = array.ndim == len(wanted) and all(w in (-1, g) for w, g in zip(wanted, array.shape, strict=True))
    if not fits:
        raise FluidValueError(f"feed '{name}' should be {kind}, got {list(array.shape)}", hint="reshape it")
    if array.dtype != kind.numpy:
        # Python's numbers have no element type, so they take that of the feed unless a fraction would be lost; arrays have one, and only
        # widen.
        numbers = plain and array.dtype.kind in "biuf" and not (array.dtype.kind == "f" and kind.numpy.kind in "biu")
        widens = array.dtype.kind in "iub" and kind.numpy.kind in "iu" and np.can_cast(array.dtype, kind.numpy)
        # What `layers.data` declares is not checked in the original: scripts feed labels that they have scaled as pictures.
        whole = getattr(v, "any_sizes", False) and _is_whole(array, kind.numpy)
        if not (numbers or widens or whole or (plain and array.size == 0)):
            hint = f"feed {name}.astype('{kind.dtype}')"
            raise FluidTypeError(f"feed '{name}' should be {kind.dtype}, got {array.dtype}", hint=hint)
        array = array.astype(kind.numpy)
    return LoDTensor(array, lengths)


def samples_of(program: Program, feed: Mapping[str, LoDTensor]) -> int:
    """Return how many samples a batch has: top-level sequences, or rows, of the first feed that has a batch axis; 1 without any."""
    return next((_count(t) for name, t in feed.items() if _batched(program, name, t)), 1)


def _batched(program: Program, name: str, tensor: LoDTensor) -> bool:
    return bool(tensor.lod()) or program.global_block().vars[name].shape[:1] == (-1,)


def _count(tensor: LoDTensor) -> int:
    return len(tensor.lod()[0]) - 1 if tensor.lod() else len(tensor)


def parts_of(program: Program, feed: Any, devices: int, *, partial: bool = False) -> list[dict[str, LoDTensor]]:
    """Return what each device is fed, of the program's types.

    Args:
        program: its variables say what fits.
        feed: name -> batch, which is cut for the devices, or a list with such a dict for each device.
        devices: how many there are.
        partial: whether the last devices may have no dict in a list, as for a program without gradients.

    Raises:
        FluidValueError: a name, a shape or a length that does not fit; a ValueError.
        FluidTypeError: an element type that would lose something, or something that is no dict; a TypeError.
    """
    if isinstance(feed, (list, tuple)):
        _check_list(feed, devices, partial=partial)
        return [check(program, part) for part in feed]
    if not isinstance(feed, dict):
        hint = "feed a dict of name -> batch, or a list with a dict for each device"
        raise FluidValueError(f"feed is {type(feed).__name__}", hint=hint)
    checked = check(program, feed, devices)
    return [checked] if devices == 1 else _split(program, checked, devices)


def _split(program: Program, feed: Mapping[str, LoDTensor], devices: int) -> list[dict[str, LoDTensor]]:
    """Cut a batch for devices along axis 0, the remainder to the later ones, never inside a top-level sequence.

    Each feed is cut by its own length, as in the original: rows of sentences and the rows of all their words may be fed side by side.
    What has no batch axis goes to every device whole, or in equal parts where it is given once for each.

    Raises:
        FluidValueError: a feed has fewer samples than there are devices; a ValueError.
    """
    parts: list[dict[str, LoDTensor]] = [{} for _ in range(devices)]
    for name, tensor in feed.items():
        batched = _batched(program, name, tensor)
        samples = _count(tensor) if batched else len(tensor)
        if batched and samples < devices:
            hint = "leave this batch out, or use fewer devices"
            raise FluidValueError(f"'{name}' has {samples} samples for {devices} devices", hint=hint)
        # A feed without a batch axis goes to all devices whole, or in parts where it holds one for each.
        fixed = program.global_block().vars[name].shape[:1]
        whole = not batched and (not fixed or samples == fixed[0])
        begin = 0
        for part, n in zip(parts, split_sizes(0 if whole else samples, devices), strict=True):
            part[name] = tensor if whole else _cut(tensor, begin, begin + n)
            begin += n
    return parts


def _cut(tensor: LoDTensor, begin: int, end: int) -> LoDTensor:
    """Return some rows of a tensor, or some of its outermost sequences."""
    # A number has no rows to cut.
    if tensor.array.ndim == 0:
        return tensor
    levels = tuple(offsets_name("part", k) for k in range(len(tensor.lod())))
    offsets = {level: np.asarray(o, np.int64) for level, o in zip(levels, tensor.lod(), strict=True)}
    found = cut_sequences("part", levels, {"part": tensor.array, **offsets}, begin, end)
    return LoDTensor(found["part"], to_lengths([found[level].tolist() for level in levels]))


def _check_list(feed: Sequence[Any], devices: int, *, partial: bool = False) -> None:
    """Check that a list feed has one dict per device; with partial, for a program without gradients, the last devices may have none.

    Raises:
        FluidValueError: another length; a ValueError.
        FluidTypeError: an element is no dict; a TypeError.
    """
    for i, part in enumerate(feed):
        if not isinstance(part, dict):
            hint = "feed a list of {name: value}, one for each device"
            raise FluidTypeError(
                f"each element of a feed list should be a dict, element {i} is {type(part).__name__}", hint=hint
            )
    if len(feed) != devices and not (partial and 0 < len(feed) < devices):
        raise FluidValueError(
            f"the feed list has {len(feed)} elements for {devices} devices", hint="one for each device"
        )
