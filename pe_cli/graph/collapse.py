"""Large pictures made small: the ops of a name scope become one box, and what flows between boxes one arrow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pe_cli.graph.picture import Arrow, Box, Datum, Picture

#: Ops of a picture that is still drawn op by op, and boxes that a collapsed one should not exceed.
LIMIT = 150
#: Boxes of ops and variables, for each op of the limit, that are still drawn.
BOXES = 2.5
#: Op types that a group's box names.
SHOWN = 3


def collapse_large(picture: Picture, limit: int = LIMIT) -> Picture:
    """Return a picture as it is, or collapsed where it has more ops than the limit, or ops with very many variables."""
    large = picture.ops() > limit or len(picture.boxes) > BOXES * limit
    return collapse(picture, limit) if large else picture


def collapse(picture: Picture, limit: int = LIMIT) -> Picture:
    """Join the ops of a device, a role and a name scope, as deep in the scopes as the limit allows.

    Feeds stay; other variables become arrows from the box that writes them to those that read them. Collectives stay.

    Args:
        picture: of any stage.
        limit: boxes wanted; where one level of scopes makes more, so many are drawn.
    """
    ops = [b for b in picture.boxes if b.is_op]
    depth = max((_depth(b) for b in ops), default=1)
    while depth > 1 and len({_group(b, depth) for b in ops}) > limit:
        depth -= 1
    members: dict[tuple[object, ...], list[Box]] = defaultdict(list)
    for b in ops:
        members[_group(b, depth)].append(b)
    owner: dict[str, str] = {}
    boxes = []
    for i, (group, inside) in enumerate(members.items()):
        box = inside[0] if len(inside) == 1 else _box(f"group {i}", group, inside)
        boxes.append(box)
        owner |= {b.key: box.key for b in inside}
    feeds = [b for b in picture.boxes if b.kind == "feed"]
    arrows = _arrows(picture, owner, {b.key for b in feeds})
    feeds = [b for b in feeds if any(a.source == b.key for a in arrows)]
    note = f"{len(ops)} ops in {len(boxes)} boxes by name scope"
    return replace(picture, boxes=(*feeds, *boxes), arrows=arrows, notes=(*picture.notes, note))


def _depth(box: Box) -> int:
    return len(box.scope.strip("/").split("/"))


def _prefix(box: Box, depth: int) -> str:
    return "/".join(box.scope.strip("/").split("/")[:depth])


def _group(box: Box, depth: int) -> tuple[object, ...]:
    if box.kind == "collective":
        return (box.key,)
    scope = _prefix(box, depth)
    return (box.cluster, box.role, scope or box.title)


def _box(key: str, group: tuple[object, ...], inside: Sequence[Box]) -> Box:
    kinds = Counter(b.title for b in inside)
    listed = ", ".join(f"{n} {t}" if n > 1 else t for t, n in kinds.most_common(SHOWN))
    lines = [f"{len(inside)} ops", listed + (", ..." if len(kinds) > SHOWN else "")]
    fused = sum(b.fused for b in inside)
    if fused:
        lines.append(f"{fused} fused")
    names = frozenset(name for b in inside for name in b.names)
    tip = "\n".join(f"{n} {t}" for t, n in kinds.most_common())
    return Box(
        key, str(group[2]), "group", inside[0].role, inside[0].cluster, inside[0].scope, tuple(lines), tip, names,
        fused > 0,
    )  # fmt: skip


def _arrows(picture: Picture, owner: dict[str, str], feeds: set[str]) -> tuple[Arrow, ...]:
    """Return one arrow for all data between two boxes."""
    writers: dict[str, dict[str, None]] = defaultdict(dict)
    flows: dict[tuple[str, str], dict[Datum, None]] = defaultdict(dict)
    for a in picture.arrows:
        if a.order:
            continue
        if a.source in owner and a.target in owner:
            flows[owner[a.source], owner[a.target]] |= dict.fromkeys(a.data)
        elif a.source in owner:
            writers[a.target][owner[a.source]] = None
    for a in picture.arrows:
        if a.order or a.source in owner or a.target not in owner:
            continue
        for source in [a.source] if a.source in feeds else writers[a.source]:
            flows[source, owner[a.target]] |= dict.fromkeys(a.data)
    return tuple(Arrow(s, t, tuple(data)) for (s, t), data in flows.items() if s != t)
