"""What a program is fed: which names, of which types, and where sequences end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.execute.batch_split import check_offsets, cut, cut_parts
from pe_cli.graph.lod_resolution import Sequences
from pe_cli.ops.define.registry import forward_name

Array = np.ndarray[Any, Any]


class Feeds:
    """The feeds of a program.

    Args:
        sequences: the program, with the LoD of its variables.
        constants: feeds that are the same at every step; those that the program does not know are left out.

    Attributes:
        read: what ops read, what gives its type to a gradient, and the offsets that plans look at.
        batched: feeds that have a row per sample.
        grouped: feed -> the feeds of its offsets, of feeds that have sequences.
    """

    def __init__(self, sequences: Sequences, constants: Mapping[str, Array]) -> None:
        program = sequences.program
        ops = program.top_ops
        # A gradient is typed after the forward variable, even where no op reads that any more.
        grads = [n for op in ops if op.definition.is_grad_of for n in op.output_names()]
        self.read = {n for op in ops for n in op.input_names()} | set(map(forward_name, grads))
        made = {recipe.name for recipe in sequences.recipes}
        offsets = {level for levels in sequences.feeds.values() for level in levels}
        # Arrays that sequence ops need, such as padded indices, are made from offsets here and are not asked of the user.
        data = {v.name: v.type for v in program.list_vars() if v.is_data and v.name not in made}
        used = self.read | {source for recipe in sequences.recipes for source in recipe.sources}
        for name, levels in sequences.feeds.items():
            # Offsets of a feed count as used with it: where its sequences end decides how a batch is divided.
            if name in used or not used.isdisjoint(levels):
                used |= {*levels}
        self._known = set(data)
        self._constants = {name: value for name, value in constants.items() if name in data}
        self._wanted = {name: kind for name, kind in data.items() if name in used}
        self.grouped = {name: levels for name, levels in sequences.feeds.items() if used.issuperset(levels)}
        plain = {name for name, kind in self._wanted.items() if kind.shape[:1] == (-1,)}
        # Offsets have a first axis, too, but it counts sequences: dividing them like rows would cut in the wrong places.
        self.batched = plain - offsets - set(self.grouped)
        # a plan checks where sequences end, also of those whose offsets no op reads itself
        self.read |= {lod[-1] for lod in sequences.lods.values() if lod[-1] in made or lod[-1] in self._wanted}

    @property
    def divisible(self) -> bool:
        """Whether a batch has samples, which can be divided."""
        return bool(self.batched or self.grouped)

    def known(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the program knows of a batch that is fed to other programs, too."""
        return {name: array for name, array in feed.items() if name in self._known}

    def checked(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays that the program is fed, converted where that loses nothing.

        Raises:
            PeError: a missing or unknown name, a wrong shape or element type; names the feed, what it should be and what it is.
        """
        wanted, known = self._wanted, self._known
        feed = {**self._constants, **feed} if self._constants else feed
        for name in feed:
            if name not in known:
                raise PeError(f"the program has no feed '{name}'", hint=did_you_mean(name, known), code=ExitCode.DATA)
        out = {}
        for name, kind in wanted.items():
            if name not in feed:
                raise self._missing(name)
            out[name] = _converted(name, kind, feed[name])
        for name, levels in self.grouped.items():
            check_offsets(name, {level: out[level] for level in levels}, len(out[name]) if name in out else None)
        return out

    def _missing(self, name: str) -> PeError:
        owner = next((feed for feed, levels in self.grouped.items() if name in levels), None)
        if owner is None:
            hint = f"the program reads {', '.join(self._wanted)}"
            return PeError(f"feed '{name}' is missing", hint=hint, code=ExitCode.DATA)
        hint = f"feed '{name}': int64 [sequences + 1], from 0 to the number of rows"
        return PeError(f"feed '{owner}' has sequences, but their offsets are missing", hint=hint, code=ExitCode.DATA)

    def samples(self, arrays: Mapping[str, Array]) -> int:
        """Return the samples of checked arrays: rows, or outermost sequences; 1 where no feed has a batch axis.

        Raises:
            PeError: the feeds differ in length.
        """
        lengths = {name: a.shape[0] for name, a in arrays.items() if name in self.batched}
        lengths |= {name: len(arrays[levels[0]]) - 1 for name, levels in self.grouped.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise PeError(f"feeds of one batch differ in length: {listed}", code=ExitCode.DATA)
        return next(iter(lengths.values()), 1)

    def part(self, arrays: Mapping[str, Array], begin: int, end: int) -> dict[str, Array]:
        """Return the samples of checked arrays from one up to another, by their numbers."""
        return cut(arrays, self.grouped, self.batched, begin, end)

    def parts(self, arrays: Mapping[str, Array], sizes: Sequence[int]) -> list[dict[str, Array]]:
        """Split checked arrays into parts of the given numbers of samples; views, no copies."""
        return cut_parts(arrays, sizes, self.grouped, self.batched)


def _converted(name: str, kind: TensorType, value: Array) -> Array:
    array = np.asarray(value)
    fits = len(array.shape) == len(kind.shape) and all(w in (-1, g) for w, g in zip(kind.shape, array.shape, strict=True))
    if not fits:
        wanted = TensorType(kind.shape, kind.dtype)
        raise PeError(f"feed '{name}' should be {wanted}, got {list(array.shape)}", hint="reshape it", code=ExitCode.DATA)
    if array.dtype == kind.numpy:
        return array
    # Between floats a conversion may round, and is meant; integers are converted only where every value fits the new type.
    if array.dtype.kind != kind.numpy.kind or not (array.dtype.kind == "f" or np.can_cast(array.dtype, kind.numpy)):
        what = f"feed '{name}' should be {kind.dtype}, got {array.dtype}"
        raise PeError(what, hint=f"feed it as {kind.dtype}", code=ExitCode.DATA)
    return array.astype(kind.numpy)
