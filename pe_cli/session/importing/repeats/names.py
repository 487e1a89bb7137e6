"""Names of blocks, of their layers and of their uses, taken from what is alike in the names of a repeated part."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from pe_cli.core.lazy_dataclass import dataclass

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_STEM = re.compile(r"[A-Za-z0-9_./:-]+")


@dataclass(frozen=True)
class Stems:
    """What the names of a repeated part begin with.

    Args:
        of: for each repetition; empty for nothing that they have in common.
        rest: position -> what follows, the same in all repetitions, with the separator.
    """

    of: Sequence[str]
    rest: Mapping[int, str]


def stems(rows: Sequence[Sequence[str]], separators: str) -> Stems:
    """Return the beginnings with which most names of a part are the same in all repetitions, and of these the longest.

    Args:
        rows: for each repetition, its names in the same order.
        separators: characters before which a beginning may end.

    >>> stems([["a.0.x", "a.0.y", "q"], ["a.1.x", "a.1.y", "r"]], ".")
    Stems(of=['a.0', 'a.1'], rest={0: '.x', 1: '.y'})
    """
    best, score, seen = Stems([], {}), (0, 0), set()
    for k, name in enumerate(rows[0]):
        for cut in (i for i, c in enumerate(name) if c in separators and i):
            tail = name[cut:]
            made = tuple(row[k].removesuffix(tail) for row in rows)
            if made in seen or not all(_STEM.fullmatch(stem) and stem + tail == row[k] for stem, row in zip(made, rows, strict=True)):
                continue
            seen.add(made)
            rest = _rest(rows, made, separators)
            if len(set(made)) == len(made) and (len(rest), cut) > score:
                best, score = Stems(list(made), rest), (len(rest), cut)
    return best


def _rest(rows: Sequence[Sequence[str]], made: Sequence[str], separators: str) -> dict[int, str]:
    found = {}
    for k, name in enumerate(rows[0]):
        tail = name[len(made[0]) :]
        if tail and tail[0] in separators and all(row[k] == stem + tail for stem, row in zip(made, rows, strict=True)):
            found[k] = tail
    return found


def free(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that nothing has yet: as wanted, or with a number."""
    names = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(2)))
    return next(name for name in names if name not in taken)


def plain(text: str) -> str:
    """Return a text as the name of a layer; empty where nothing of it can be one."""
    made = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-")
    return made if _KEY.fullmatch(made) else ""


def kind_name(use: str) -> str:
    """Return what a block is called of which one use has this name.

    >>> kind_name("encoder_layer_0"), kind_name("layer1_0"), kind_name("")
    ('encoder_layer', 'layer', 'block')
    """
    words = [re.sub(r"[0-9]+", "", word) for word in use.split("_")]
    return plain("_".join(word for word, before in itertools.pairwise([*words, ""]) if word and word != before)) or "block"


def inner_names(rows: Sequence[Sequence[str]], types: Sequence[str], hints: Mapping[int, str], taken: Iterable[str]) -> list[str]:
    """Return the names of a block's layers.

    Args:
        rows: for each repetition, the names of its layers.
        types: of the layers.
        hints: position -> a name that its parameter suggests.
        taken: names that none may have.
    """
    common = stems(rows, "_-").rest
    found: list[str] = []
    for k, type in enumerate(types):
        own = plain(common.get(k, "").lstrip("_-")) if len({row[k] for row in rows}) > 1 else ""
        found.append(free(own or hints.get(k, "") or type, {*found, *taken}))
    return found
