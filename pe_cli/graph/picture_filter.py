"""Filters pictures: ops of a role or type, or the neighbourhood of a variable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.graph.picture import Picture


def only(picture: Picture, wanted: Sequence[str]) -> Picture:
    """Return the ops of these roles or types with their variables.

    Args:
        picture: of any stage.
        wanted: roles (forward, backward, optimize, ...) and op types; what is one of them stays.

    Raises:
        PeError: the picture has no such role or type.
    """
    known = {name for b in picture.boxes if b.is_op for name in (b.role, b.title)}
    for name in wanted:
        if name not in known:
            roles = sorted({b.role for b in picture.boxes if b.is_op})
            raise PeError(
                f"no op here has the role or type '{name}'",
                hint=did_you_mean(name, known) or f"the roles are {', '.join(roles)}",
            )
    # A name may be a role or a type; no op type is called like a role.
    kept = {b.key for b in picture.boxes if b.is_op and (b.role in wanted or b.title in wanted)}
    return _part(picture, kept, f"only {', '.join(wanted)}")


def around(picture: Picture, variable: str, radius: int = 1) -> Picture:
    """Return the ops at most so many ops away from a variable, on every device and of every version.

    Args:
        picture: of any stage.
        variable: its name.
        radius: 1 for the ops that write or read it, 2 for their neighbours too, ...

    Raises:
        PeError: no op touches a variable of that name.
    """
    known = {name for b in picture.boxes for name in b.names}
    if variable not in known:
        hint = did_you_mean(variable, known) or "pe graph CONFIG --stage ssa lists the variables"
        raise PeError(f"no op here touches a variable '{variable}'", hint=hint)
    ops = {b.key: b for b in picture.boxes if b.is_op}
    near = _neighbours(picture, ops)
    kept = {key for key, b in ops.items() if variable in b.names}
    edge = set(kept)
    # Ring by ring, each op once: what was seen before is nearer.
    for _ in range(radius - 1):
        edge = {n for key in edge for n in near[key]} - kept
        kept |= edge
    return _part(picture, kept, f"around {variable}, {radius} op{'s' * (radius > 1)} far")


def _neighbours(picture: Picture, ops: Collection[str]) -> dict[str, set[str]]:
    """Return op -> ops that share a variable with it, or an arrow."""
    touching: dict[str, set[str]] = defaultdict(set)
    near: dict[str, set[str]] = defaultdict(set)
    for a in picture.arrows:
        if a.order:
            # Arrows of order carry no data: what waits for another op is no neighbour of its variables.
            continue
        if a.source in ops and a.target in ops:
            near[a.source].add(a.target)
            near[a.target].add(a.source)
        elif a.source in ops:
            touching[a.target].add(a.source)
        elif a.target in ops:
            touching[a.source].add(a.target)
    for group in touching.values():
        for key in group:
            near[key] |= group - {key}
    return near


def _part(picture: Picture, ops: Iterable[str], note: str) -> Picture:
    kept = set(ops)
    is_op = {b.key for b in picture.boxes if b.is_op}
    beside = {end for a in picture.arrows if {a.source, a.target} & kept for end in (a.source, a.target)}
    kept |= beside - is_op
    boxes = tuple(b for b in picture.boxes if b.key in kept)
    arrows = tuple(a for a in picture.arrows if a.source in kept and a.target in kept)
    # data whose writer is not shown is written at its readers
    made = {a.target for a in arrows if a.target not in is_op}
    arrows = tuple(replace(a, shown=a.source not in made) for a in arrows)
    return replace(picture, boxes=boxes, arrows=arrows, notes=(*picture.notes, note))
