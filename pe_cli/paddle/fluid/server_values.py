"""Values that only parameter servers hold, such as tables and optimizer state: saved and loaded by a trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.core.types import TensorType
from pe_cli.execute.servers import connections
from pe_cli.execute.servers.trainer import SLACK, array_of
from pe_cli.graph.servers.server_program import Kept
from pe_cli.io.fluid.value_files import is_original, read_original
from pe_cli.io.table_pieces import room
from pe_cli.io.tensors import described, read_rows, read_safetensors
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError, raised_as
from pe_cli.paddle.fluid.flags import deadline

Array = np.ndarray[Any, Any]
#: Bytes of rows that are asked for at a time, and from which on a variable is put together in a file.
CHUNK, MAPPED = 1 << 24, 1 << 26


class RemoteValues:
    """What servers have of a trainer's program, and the trainer has not.

    Args:
        trainer: number of this trainer; the first one saves.
        find: `f()`: host:port -> what the server there keeps between steps.
        types: of whole variables.
        here: parameters that trainers have, too.
    """

    def __init__(
        self, trainer: int, find: Callable[[], Mapping[str, Sequence[Kept]]], types: Mapping[str, TensorType], here: frozenset[str]
    ) -> None:
        self._trainer, self._find, self._types, self._here = trainer, find, types, here

    @cached_property
    def _kept(self) -> Mapping[str, Sequence[Kept]]:
        return self._find()

    @property
    def names(self) -> list[str]:
        """Names of whole variables, in their order."""
        return sorted({k.whole for each in self._kept.values() for k in each} - self._here)

    def among(self, names: Collection[str]) -> RemoteValues:
        """Return those of these names."""

        def find() -> Mapping[str, Sequence[Kept]]:
            return {endpoint: [k for k in kept if k.whole in names] for endpoint, kept in self._kept.items()}

        return RemoteValues(self._trainer, find, self._types, self._here)

    @property
    def are_saved(self) -> bool:
        """Whether this trainer saves them: the first one does."""
        return self._trainer == 0

    def taken(self, folder: Path, owner: Any) -> Iterator[tuple[str, Array]]:
        """Yield each variable, whole, as servers have it now; of large ones a few megabytes at a time are in memory.

        Args:
            folder: where there is room for large ones while this goes on.
            owner: the executor that talks to servers.

        Raises:
            EnforceNotMet: a server is lost, or the disk is full; a RuntimeError.
        """
        # Answers are bounded by what was asked: a chunk of rows, or the largest variable that is asked for whole.
        most = max((self._types[n].nbytes for n in self.names if self._types[n].nbytes < CHUNK), default=0)
        with raised_as(EnforceNotMet):
            servers = connections.link(list(self._kept), self._trainer, 2 * max(CHUNK, most) + SLACK, owner, deadline())
            for name in self.names:
                yield name, self._whole(servers, name, folder)

    def _whole(self, servers: Servers, name: str, folder: Path) -> Array:
        kind = self._types[name]
        # Large variables are put together in a mapped file, so that memory holds a few chunks only.
        found = room(kind.shape, kind.numpy, folder, MAPPED)
        for endpoint, kept in self._kept.items():
            for each in (k for k in kept if k.whole == name):
                if each.begin is None:
                    return _asked(servers, endpoint, each, ())
                rows = each.type.shape[0]
                # Rows of a chunk; at least one, even where a row is larger than a chunk.
                step = max(1, CHUNK * max(1, rows) // max(1, each.type.nbytes))
                for first in range(0, rows, step):
                    last = min(rows, first + step)
                    found[each.begin + first : each.begin + last] = _asked(servers, endpoint, each, (first, last))
        return found


def _asked(servers: Servers, endpoint: str, kept: Kept, rows: tuple[int, ...]) -> Array:
    asked = Message("state", {}, {kept.name: np.asarray(rows, np.int64)})
    answer = servers.ask({endpoint: asked}, f"saves '{kept.whole}'")[endpoint]
    return array_of(answer, kept.name, (rows[1] - rows[0], *kept.type.shape[1:]) if rows else kept.type.shape, endpoint)


def rows_of(file: Path, kept: Kept) -> Array:
    """Return what a server keeps of a saved variable, a file of the original's or one of safetensors; of these no other rows are read.

    Raises:
        FluidValueError: the file is missing or damaged, or has another variable; a ValueError.
    """
    with raised_as(FluidValueError):
        whole = read_original(file, [kept.whole])[kept.whole] if is_original(file) else None
        dtype, shape = (whole.dtype, whole.shape) if whole is not None else described(file).get(kept.whole, (None, ()))
        begin, mine = kept.begin or 0, kept.type.shape
        fits = shape == mine if kept.begin is None else len(shape) == len(mine) and shape[1:] == mine[1:] and shape[0] >= begin + mine[0]
        if dtype != kept.type.numpy or not fits:
            raise FluidValueError(f"{file} has {dtype}{list(shape)} for '{kept.whole}', of which a server keeps {kept.type}")
        if whole is not None:
            return whole if kept.begin is None else whole[begin : begin + mine[0]]
        return read_rows(file, kept.whole, begin, begin + mine[0]) if mine else read_safetensors(file)[kept.whole]
