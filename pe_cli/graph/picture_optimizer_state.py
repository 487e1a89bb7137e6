"""Optimizer state in pictures: variables that one op alone reads and writes are listed in its box."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from pe_cli.graph.dot import size_text
from pe_cli.graph.picture import Box, Datum, Picture

#: Variables of an op's own that are still drawn.
MOST = 2


def fold_state(picture: Picture, most: int = MOST) -> Picture:
    """Return a picture in which ops with more variables of their own name them, and those variables have no boxes.

    A variable is an op's own if it stays between steps and no other op touches it, in whatever version: a moment of Adam, not
    a parameter.

    Args:
        picture: of any stage.
        most: variables of an op's own that are still drawn.
    """
    boxes = {box.key: box for box in picture.boxes}
    touched: dict[tuple[str, int | None], set[str]] = defaultdict(set)
    types: dict[tuple[str, int | None], Datum] = {}
    for arrow in picture.arrows:
        for key, op in ((arrow.source, arrow.target), (arrow.target, arrow.source)):
            # By title, not by version: all versions of a moment are the same variable to a reader.
            box = boxes.get(key)
            if box is not None and box.kind == "persistable" and not arrow.order:
                touched[box.title, box.cluster].add(op)
                types[box.title, box.cluster] = arrow.data[0]
    own: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
    for variable, ops in touched.items():
        # A parameter that its update alone touches would be folded, too, were there no forward op that reads it.
        if len(ops) == 1:
            own[next(iter(ops))].append(variable)
    folded = {op: found for op, found in own.items() if len(found) > most and boxes[op].is_op}
    gone = {variable for found in folded.values() for variable in found}
    left = [box for box in picture.boxes if box.kind != "persistable" or (box.title, box.cluster) not in gone]
    kept = {box.key for box in left}
    arrows = tuple(arrow for arrow in picture.arrows if arrow.source in kept and arrow.target in kept)
    made = tuple(_with_state(box, [types[v] for v in folded[box.key]]) if box.key in folded else box for box in left)
    return replace(picture, boxes=made, arrows=arrows)


def _with_state(box: Box, state: list[Datum]) -> Box:
    sizes = [datum.type.nbytes if datum.type else -1 for datum in state]
    size = f", {size_text(sum(sizes))}" if min(sizes) >= 0 else ""
    names = "\n".join(datum.name for datum in state)
    return replace(box, lines=(*box.lines, f"keeps {len(state)} variables{size}"), tip=f"{box.tip}\n{names}".strip())
