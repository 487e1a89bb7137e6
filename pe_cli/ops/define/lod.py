"""What an op's LoD rule works with: the offsets of its inputs' sequences, arrays made from them before a step, and the LoD of its outputs.

LoD (level of detail) says how the rows of a tensor group into sequences: for every level offsets, int64 [sequences + 1], the
outermost first, each but the last counting the next level's sequences. Kernels never see more of it than plain input arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import OpDef

Indices = NDArray[np.int64]
#: Numbers of a constant that are known on the host: lengths and offsets are not longer.
MAX_KNOWN = 1 << 16
#: Names of the offsets of every level, the outermost first.
Lod = tuple[str, ...]


def offsets_name(name: str, level: int) -> str:
    """Return the feed that holds a level's offsets of a feed, level 0 the outermost."""
    return f"{name}@LOD{level}"


@dataclass(frozen=True)
class Recipe:
    """An int64 array that is made before every step, on the host, from fed arrays and other made ones.

    Args:
        name: of the variable that it feeds.
        make: `make(*arrays, **attrs) -> array`, pure.
        sources: names of its arguments.
        attrs: keywords, sorted.
        rank: number of axes.
        common: every device gets the longest of the devices' arrays, so that shapes agree.
        op: type of the op that asked for it, for errors.
    """

    name: str
    make: Callable[..., Indices]
    sources: tuple[str, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    rank: int = 1
    common: bool = False
    op: str = ""

    @property
    def type(self) -> TensorType:
        """Its type, sizes not known."""
        return TensorType((-1,) * self.rank, "int64")

    def run(self, arrays: Mapping[str, Any]) -> Indices:
        """Make the array.

        Raises:
            PeError: lengths or offsets that do not fit (exit code 3).
        """
        try:
            made = self.make(*(arrays[s] for s in self.sources), **dict(self.attrs))
        except PeError as error:
            error.message = f"{self.op}: {error.message}"
            error.code = ExitCode.DATA
            raise
        return np.ascontiguousarray(made, np.int64)


class ComputedInStep(PeError):
    """Values that must be known before a step come from the step itself.

    Args:
        name: of the variable.
    """

    def __init__(self, message: str, name: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


@dataclass
class LodRequest:
    """One op for its rule; the rule may be called for the op and for its gradient op.

    Attributes:
        op: definition of the forward op.
        inputs, outputs: slot -> variables; outputs is empty for a gradient op.
        attrs: complete attributes.
        types: type of a variable, batch axes not known.
        lods: LoD of variables so far.
        add: registers an array that is made before a step.
        known: variables whose values are known on the host -> the array that has them.
        given, left_out: what the rule decided.
    """

    op: OpDef
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any]
    types: Callable[[str], TensorType]
    lods: dict[str, Lod]
    add: Callable[[Recipe], str]
    known: dict[str, str]
    given: dict[str, list[str]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def lod(self, slot: str) -> Lod:
        """Return the LoD of an input, () for plain rows."""
        return self.lods.get(self.inputs[slot][0], ()) if self.inputs.get(slot) else ()

    def each(self, slot: str) -> list[Lod]:
        """Return the LoD of every input of a slot.

        Raises:
            PeError: one has none.
        """
        return [self._needed(slot, name) for name in self.inputs[slot]]

    def offsets(self, slot: str) -> str:
        """Return the offsets of the innermost sequences of an input.

        Raises:
            PeError: it has none.
        """
        return self.need(slot)[-1]

    def need(self, slot: str) -> Lod:
        """Return the LoD of an input.

        Raises:
            PeError: it has none.
        """
        return self._needed(slot, self.inputs[slot][0])

    def _needed(self, slot: str, name: str) -> Lod:
        found = self.lods.get(name, ())
        if not found:
            raise PeError(
                f"{self.op.name} needs sequences, but its {slot} '{name}' has plain rows",
                hint="declare the feed it comes from with lod_level: 1, and feed sequences",
            )
        return found

    def derive(
        self, make: Callable[..., Indices], *sources: str, rank: int = 1, common: bool = False, **attrs: Any
    ) -> str:
        """Return the name of an array that is made before a step; equal ones are made once."""
        # Recipes are compared with one another, so that equal arrays are made once: lists would not be.
        facts = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attrs.items()))
        return self.add(Recipe("", make, sources, facts, rank, common, self.op.name))

    def host(self, slot: str) -> str:
        """Return the array that has the values of an input before the step: it is fed, or follows from feeds and constants.

        Raises:
            ComputedInStep: its values come from the step itself; a PeError.
        """
        name = self.inputs[slot][0]
        if name not in self.known:
            message = f"{self.op.name}: {slot} '{name}' is computed in the step, but sizes must be known before it"
            raise ComputedInStep(message, name, "feed it, or take it from sequence_pad")
        return self.known[name]

    def give(self, slot: str, *names: str) -> None:
        """Fill an input slot with arrays."""
        self.given[slot] = list(names)

    def leave_out(self, *slots: str) -> None:
        """Take inputs away that count by their LoD alone."""
        self.left_out.update(slots)

    def out(self, slot: str, *lod: str) -> None:
        """Say the LoD of an output."""
        for name in self.outputs.get(slot, ()):
            # No entry stands for plain rows.
            if lod:
                self.lods[name] = lod

    def know(self, slot: str, array: str) -> None:
        """Say that an output's values are those of an array."""
        for name in self.outputs.get(slot, ()):
            self.known[name] = array


# --- ops that run on the host -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leveled:
    """An array whose rows group into sequences.

    Args:
        array: the rows.
        lod: offsets of every level, the outermost first.
    """

    array: NDArray[Any]
    lod: tuple[Sequence[int], ...] = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)


@dataclass(frozen=True)
class Many:
    """A list of tensors of any sizes, as the value of one variable.

    Args:
        items: by place; None where nothing was written.
    """

    items: tuple[Leveled | None, ...]


@dataclass(frozen=True)
class HostRun:
    """One run of an op on the host.

    Args:
        op: its name, for errors.
        values: slot -> inputs; a list of tensors is a `Many`.
        attrs: complete attributes.
        seed: what its draws follow from: the same for a seed of the program, an op, a step and a device.
    """

    op: str
    values: Mapping[str, Sequence[Leveled]]
    attrs: Mapping[str, Any]
    seed: tuple[int, ...] = (0,)

    def one(self, slot: str) -> NDArray[Any]:
        """Return the only array of a slot."""
        (found,) = self.values[slot]
        return found.array

    def offsets(self, slot: str, sequences: int, k: int = 0) -> NDArray[Any]:
        """Return the offsets of the innermost sequences of an input; plain rows are one sequence.

        Raises:
            PeError: there are not as many sequences (exit code 3).
        """
        found = self.values[slot][k]
        offsets = np.asarray(found.lod[-1] if found.lod else [0, len(found.array)], np.int64)
        if len(offsets) - 1 != sequences:
            message = f"{self.op}: {slot} has {len(offsets) - 1} sequences for {sequences} images"
            raise PeError(message, hint="feed it with lod_level: 1, a sequence for each image", code=ExitCode.DATA)
        return offsets

    def parts(self, slot: str, sequences: int, k: int = 0) -> list[NDArray[Any]]:
        """Return the rows of every sequence of an input; see `offsets`."""
        offsets = self.offsets(slot, sequences, k)
        return [self.values[slot][k].array[a:b] for a, b in pairwise(offsets)]

    def generator(self) -> np.random.Generator:
        """Return the generator of this run's random numbers."""
        return np.random.default_rng(self.seed)


def listed(values: Sequence[Leveled | Many]) -> list[Leveled]:
    """Return the tensors of an input slot, with those of lists in their places."""
    return [item for v in values for item in (v.items if isinstance(v, Many) else (v,)) if item is not None]


# --- what arrays are made with ----------------------------------------------------------------------------------------


def lengths_of(offsets: Indices) -> Indices:
    """Return the sequences' lengths, int64 [sequences], of offsets [sequences + 1]."""
    return np.diff(offsets)


def offsets_of(lengths: Any) -> Indices:
    """Return offsets [sequences + 1] of lengths of any shape."""
    flat = np.asarray(lengths, np.int64).ravel()
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(flat)])


def owners(offsets: Indices) -> Indices:
    """Return for every row the number of its sequence, int64 [rows], of offsets [sequences + 1]."""
    return np.repeat(np.arange(len(offsets) - 1), lengths_of(offsets))


def ranges(starts: Any, lengths: Any) -> Indices:
    """Return start, start + 1, ..., start + length - 1 of every pair, one after the other."""
    begins, sizes = np.asarray(starts, np.int64).ravel(), np.asarray(lengths, np.int64).ravel()
    total = int(sizes.sum())
    # One count runs along all pairs; the part of each is moved to its start.
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)


def constant(*, values: Sequence[int]) -> Indices:
    """Return given numbers."""
    return np.asarray(values, np.int64)


# --- for declarations of ops ------------------------------------------------------------------------------------------


def sequence_count(offsets: TensorType | None) -> int:
    """Return the number of sequences that offsets are of, -1 where it is not known."""
    return offsets.shape[0] - 1 if offsets is not None and offsets.shape[0] > 0 else -1


def row_count(index: TensorType | None) -> int:
    """Return the number of rows that an index makes, -1 where it is not known."""
    return index.shape[0] if index is not None else -1


def fixed(values: Any) -> Callable[[Any], Indices]:
    """Return a sample's maker of given whole numbers."""
    return lambda rng: np.asarray(values, np.int64)
