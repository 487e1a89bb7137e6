"""How the values of a variable that batches and devices compute become one."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError


def how_joined(name: str, shape: Sequence[int]) -> str:
    """Return `concat` for a value with a row per sample, and `mean` for one that all samples of a batch share; see `merge`.

    Args:
        name: of the variable, for errors.
        shape: -1 for a size that the batch says.

    Raises:
        PeError: USAGE; its samples lie along another axis than the first: neither way gives what the model computes of each.

    >>> how_joined("prob", [-1, 3]), how_joined("loss", [1])
    ('concat', 'mean')
    """
    if tuple(shape[:1]) == (-1,):
        return "concat"
    if -1 not in shape:
        return "mean"
    axis = list(shape).index(-1)
    front = [axis, *(one for one in range(len(shape)) if one != axis)]
    said = ", ".join("batch" if size < 0 else str(size) for size in shape)
    text = f"'{name}' is [{said}]: its samples are not along its first axis, along which those of batches and devices are joined"
    raise PeError(text, hint=f"fetch {{type: transpose, x: {name}, perm: {front}}}, a layer behind it")
