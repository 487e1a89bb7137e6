"""A layered layout of graphs from top to bottom, in time linear in the number of boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from pe_cli.core.lazy_dataclass import dataclass

#: Rounds of ordering and of straightening.
ROUNDS = 8
#: Room between boxes of a layer and between layers.
ACROSS, DOWN = 18.0, 46.0
#: Width of an arrow that passes a layer: negative, so that arrows may come closer to each other than boxes.
PASSING = -10.0
#: Room between columns.
BESIDE = 60.0
#: Places that all arrows together may have in the layers that they pass, about a second's work; the longest arrows go straight then.
PLACES = 20_000


@dataclass(frozen=True)
class Spot:
    """Where a box lies: its middle and its size."""

    x: float
    y: float
    width: float
    height: float


def place(
    sizes: Mapping[str, tuple[float, float]], arrows: Sequence[tuple[str, str]], columns: Mapping[str, int] | None = None
) -> tuple[dict[str, Spot], dict[tuple[str, str], list[Spot]]]:
    """Return where boxes lie, each below all that point to it, and where arrows pass the layers between their ends.

    Args:
        sizes: box -> width and height.
        arrows: (from, to); those that would close a circle don't count, and go straight.
        columns: box -> the column that it lies in, from 0 at the left, where not all lie in one.
    """
    columns = columns or {}
    before, after = _neighbours(sizes, arrows)
    rank = _ranks(sizes, before)
    layers: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for key in sizes:
        layers[rank[key]].append(key)
    ways = _pass(rank, layers, before, after)
    widths = {key: sizes[key][0] if key in sizes else PASSING for layer in layers for key in layer}
    x: dict[str, float] = {}
    right = 0.0
    for column in sorted({columns.get(key, 0) for key in sizes}):
        own = [[k for k in layer if columns.get(k.partition("\0")[0], 0) == column] for layer in layers]
        inside = {k for layer in own for k in layer}
        links = [{k: [n for n in found[k] if n in inside] for k in inside} for found in (before, after)]
        _order(own, *links)
        placed = _straighten(own, widths, *links)
        x |= {k: right + at for k, at in placed.items()}
        right += max((at + widths[k] / 2 for k, at in placed.items()), default=0.0) + BESIDE
    spots: dict[str, Spot] = {}
    top = 0.0
    for layer in layers:
        tall = max(sizes[k][1] for k in layer if k in sizes)
        for k in layer:
            width, height = sizes.get(k, (0.0, tall))
            spots[k] = Spot(x[k], top + tall / 2, width, height)
        top += tall + DOWN
    return {k: spots[k] for k in sizes}, {ends: [spots[k] for k in way] for ends, way in ways.items()}


Links = dict[str, list[str]]


def _pass(
    rank: Mapping[str, int], layers: list[list[str]], before: Links, after: Links
) -> dict[tuple[str, str], list[str]]:
    """Put a place into every layer that an arrow passes; return arrow -> its places. Where there were too many, the longest have none."""
    ways: dict[tuple[str, str], list[str]] = {}
    lengths = sorted(rank[b] - rank[a] - 1 for a, found in after.items() for b in found)
    too_long = next((n for n, whole in zip(lengths, accumulate(lengths), strict=True) if whole > PLACES), None)
    for a in list(after):
        for i, b in enumerate(after[a]):
            way = [f"{a}\0{b}\0{r}" for r in range(rank[a] + 1, rank[b])]
            if not way or (too_long is not None and len(way) >= too_long):
                continue
            ways[a, b] = way
            for r, key in enumerate(way, rank[a] + 1):
                layers[r].append(key)
            for first, second in pairwise([a, *way, b]):
                if first != a:
                    after.setdefault(first, []).append(second)
                if second != b:
                    before.setdefault(second, []).append(first)
            after[a][i] = way[0]
            before[b][before[b].index(a)] = way[-1]
    return ways


def _neighbours(sizes: Mapping[str, object], arrows: Sequence[tuple[str, str]]) -> tuple[Links, Links]:
    """Return what points to each box and what it points to, without arrows that close circles."""
    follow: Links = {k: [] for k in sizes}
    for a, b in dict.fromkeys(arrows):
        if a in follow and b in follow and a != b:
            follow[a].append(b)
    before: Links = {k: [] for k in sizes}
    after: Links = {k: [] for k in sizes}
    state: dict[str, int] = {}
    for start in sizes:
        stack = [(start, iter(follow[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            at, rest = stack[-1]
            b = next(rest, "")
            if b not in follow:
                state[at] = 2
                stack.pop()
            elif state.get(b) != 1:
                after[at].append(b)
                before[b].append(at)
                if b not in state:
                    state[b] = 1
                    stack.append((b, iter(follow[b])))
    return before, after


def _ranks(sizes: Mapping[str, object], before: Links) -> dict[str, int]:
    """Return the layer of every box: the longest way to it."""
    rank: dict[str, int] = {}
    for start in sizes:
        stack = [start]
        while stack:
            at = stack[-1]
            missing = [b for b in before[at] if b not in rank]
            if missing:
                stack += missing
                continue
            rank[at] = max((rank[b] + 1 for b in before[at]), default=0)
            stack.pop()
    # what nothing points to stands above what it points to first, not at the very top
    after: Links = {k: [] for k in sizes}
    for k, found in before.items():
        for b in found:
            after[b].append(k)
    for k in sizes:
        if not before[k] and after[k]:
            rank[k] = min(rank[b] for b in after[k]) - 1
    return rank


def _order(layers: list[list[str]], before: Links, after: Links) -> None:
    """Order every layer by the mean place of neighbours, down and up again."""
    place_of = {k: i / max(1, len(layer)) for layer in layers for i, k in enumerate(layer)}
    for turn in range(ROUNDS):
        down = turn % 2 == 0
        for layer in layers if down else reversed(layers):
            links = before if down else after
            mean = {k: _mean([place_of[n] for n in links[k]], place_of[k]) for k in layer}
            layer.sort(key=mean.__getitem__)
            place_of |= {k: (i + 0.5) / len(layer) for i, k in enumerate(layer)}


def _straighten(
    layers: Sequence[Sequence[str]], widths: Mapping[str, float], before: Links, after: Links
) -> dict[str, float]:
    """Return the middles of boxes: near their neighbours', in the order of the layer, and not over each other."""
    x: dict[str, float] = {}
    for layer in layers:
        x |= _packed(layer, widths, dict.fromkeys(layer, 0.0))
    for turn in range(ROUNDS):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            links = before if turn % 2 == 0 else after
            x |= _packed(layer, widths, {k: _mean([x[n] for n in links[k]], x[k]) for k in layer})
    lone = {k for k in x if not before[k] and not after[k]}
    middle = _mean([x[k] for k in x if k not in lone], 0.0)
    for layer in layers if lone else ():
        x |= _packed(layer, widths, {k: middle if k in lone else x[k] for k in layer})
    left = min((x[k] - widths[k] / 2 for k in x), default=0.0)
    return {k: value - left for k, value in x.items()}


def _packed(layer: Sequence[str], widths: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
    """Return places as close to those wanted as order and widths allow: the mean of packing from either side."""
    left: dict[str, float] = {}
    right: dict[str, float] = {}
    for found, keys, sign in ((left, list(layer), 1), (right, list(reversed(layer)), -1)):
        edge: float | None = None
        for k in keys:
            half = widths[k] / 2
            at = wanted[k] if edge is None else sign * max(sign * wanted[k], sign * edge + half)
            found[k] = at
            edge = at + sign * (half + ACROSS)
    return {k: (left[k] + right[k]) / 2 for k in layer}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
