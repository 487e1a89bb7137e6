"""Collapses large pictures: the ops of a name scope become one box, and the data between two boxes one arrow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pe_cli.graph.picture import Arrow, Box, Datum, Picture

#: Ops of a picture that is still drawn op by op, and boxes that a collapsed one should not exceed.
LIMIT = 150
#: Boxes of ops and variables, for each op of the limit, that are still drawn.
BOXES = 4 / 3
#: Op types that a group's box names.
SHOWN = 3


def collapse_large(picture: Picture, limit: int = LIMIT, *, full: bool = False) -> Picture:
    """Return a picture as it is; where it has more ops than the limit, collapsed; where it has many variables, with arrows for them.

    Args:
        picture: of any stage.
        limit: ops that are still drawn as they are.
        full: keep every op, however many there are.
    """
    if picture.ops() > limit and not full:
        return collapse(picture, limit)
    return variables_as_arrows(picture) if len(picture.boxes) > BOXES * limit else picture


def variables_as_arrows(picture: Picture) -> Picture:
    """Return every op of a picture, with arrows from who writes a variable to who reads it; what ops read that stays stands in their boxes.

    A box per variable makes pictures that are many times as wide: values wait from the forward to the backward pass.
    """
    owner = {b.key: b.key for b in picture.boxes if b.is_op}
    feeds = {b.key for b in picture.boxes if b.kind == "feed"}
    # Feeds nobody reads any more, after a fusion, are left out with their arrows.
    arrows = _arrows(picture, owner, feeds)
    used = {a.source for a in arrows}
    kept: dict[str, dict[str, Datum]] = defaultdict(dict)
    stays = {b.key for b in picture.boxes if b.kind == "persistable"}
    for a in picture.arrows:
        if a.source in stays and a.target in owner and not a.order:
            kept[a.target] |= {datum.name: datum for datum in a.data}
    boxes = (_reading(b, list(kept[b.key].values())) for b in picture.boxes if b.is_op or b.key in feeds & used)
    return replace(picture, boxes=tuple(boxes), arrows=arrows, notes=(*picture.notes, "variables are arrows"))


def _reading(box: Box, read: Sequence[Datum]) -> Box:
    """Return the box of an op with what it reads of variables that stay."""
    if len(read) > SHOWN:
        return replace(box, lines=(*box.lines, f"reads {len(read)} variables that stay"))
    return replace(box, lines=(*box.lines, *(f"{d.name} {d.type or ''}".rstrip() for d in read)))


def collapse(picture: Picture, limit: int = LIMIT) -> Picture:
    """Join the ops of a device, a role and a name scope, as deep in the scopes as the limit allows.

    Ops that passes added, such as transposes between layouts, belong to no layer and stay by themselves.

    Feeds stay; other variables become arrows from the box that writes them to those that read them. Collectives stay.

    Args:
        picture: of any stage.
        limit: boxes wanted; where one level of scopes makes more, so many are drawn.
    """
    ops = [b for b in picture.boxes if b.is_op]
    depth = max((_depth(b) for b in ops), default=1)
    while depth > 1 and len({_group(b, depth) for b in ops}) > limit:
        # Less of a path joins more ops: the first depth that fits keeps most of the structure.
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
    # A sum over devices is never joined with others: where it stands shows whether it hides behind computation.
    if box.kind == "collective":
        return (box.key,)
    scope = _prefix(box, depth)
    # Ops without a scope, such as updates, have no layer to stand for and stay alone.
    return (box.cluster, box.role, scope) if scope else (box.key,)


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
    # What flows inside of a box is what the box hides.
    return tuple(Arrow(s, t, tuple(data)) for (s, t), data in flows.items() if s != t)
