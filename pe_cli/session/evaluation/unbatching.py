"""Splits batched values with sequences into samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.graph.lod_resolution import declared_levels
from pe_cli.ops.define.lod import offsets_name

if TYPE_CHECKING:
    from pe_cli.execute.executor import Executor
    from pe_cli.session.job import Job

Array = np.ndarray[Any, Any]


class SequenceEnds:
    """Where the sequences of some variables end.

    Args:
        job: with the model.
        executor: of the program that computes them.
        variables: name -> variable; those without sequences are left out.

    Raises:
        PeError: USAGE; a variable has sequences of sequences.
    """

    def __init__(self, job: Job, executor: Executor, variables: Mapping[str, str]) -> None:
        self._sequences = executor.sequences
        levels = declared_levels(job.built.eval)
        self._of: dict[str, str] = {}
        for name, variable in variables.items():
            lod = self._sequences.lods.get(variable) or tuple(offsets_name(variable, k) for k in range(levels.get(variable, 0)))
            if len(lod) > 1:
                hint = "a layer of type sequence_pool makes one row of a sequence"
                raise PeError(f"'{name}' has sequences of sequences, and a prediction is one row or one sequence per sample", hint=hint)
            if lod:
                self._of[variable] = lod[0]

    def __bool__(self) -> bool:
        return bool(self._of)

    def lengths(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Return the rows of every sample of a batch, for each of the variables: int64 [samples]."""
        if not self._of:
            return {}
        (made,) = self._sequences.complete([feed])
        return {variable: np.diff(made[offsets]) for variable, offsets in self._of.items()}


def unbatch(rows: Array, lengths: Array) -> Array:
    """Return the rows of each sample, [all rows, ...] as [samples] arrays.

    >>> [part.tolist() for part in unbatch(np.array([[7], [8], [9]]), np.array([1, 2]))]
    [[[7]], [[8], [9]]]
    """
    ends = np.cumsum(lengths)
    return _of_arrays([rows[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)])


def without_padding(rows: Array, lengths: Array) -> Array:
    """Return the first rows of each sample, [samples, rows at most, ...] as [samples] arrays.

    >>> [part.tolist() for part in without_padding(np.array([[7, 0, 0], [8, 9, 0]]), np.array([[1], [2]]))]
    [[7], [8, 9]]
    """
    return _of_arrays([row[:length] for row, length in zip(rows, lengths.reshape(-1).tolist(), strict=True)])


def _of_arrays(parts: Sequence[Array]) -> Array:
    found = np.empty(len(parts), object)
    for i, part in enumerate(parts):  # a slice would take parts of one length for a matrix
        found[i] = part
    return found
