"""Finds parts of a model that are repeated: stretches of layers of the same kinds that read each other in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.importing.repeats.flat import FlatLayer, base_of
from pe_cli.session.importing.repeats.names import stems

#: Layers of a block at most; fewer where the model is so large that looking for longer ones takes seconds.
_LONGEST, _WORK = 400, 1_600_000
#: Layers of a block at least.
_SHORTEST = 3
#: Layers that are looked at while one block is chosen.
_MOST_LOOKED_AT = 500_000
#: Blocks of a model.
_MOST_BLOCKS = 40
#: Characters of a model file: a layer, what a block has besides its layers, the use of a block, and an argument of one.
_LAYER, _FRAME, _CALL, _ARGUMENT = 70, 150, 45, 20
#: A part begins and ends where names say so, and where one variable goes in and one comes out. These are what a layer counts whose name, or
#: that of its parameter, begins like those of the others, and a variable more.
_NAMED, _CROSSING = 10, 60
#: What a block makes a file shorter by, at least.
_LEAST = 3 * _LAYER


@dataclass(frozen=True)
class Repeat:
    """A part that is repeated.

    Args:
        length: number of its layers.
        starts: where it begins, in order.
        outside: for each repetition, the variables that it reads of what is around it, each once.
    """

    length: int
    starts: Sequence[int]
    outside: Sequence[Sequence[str]]


def repeats(layers: Sequence[FlatLayer]) -> list[Repeat]:
    """Return repeated parts that do not overlap, those first which make the model file shortest."""
    tokens: list[Hashable] = [layer.token for layer in layers]
    places = {layer.name: i for i, layer in enumerate(layers)}
    found: list[Repeat] = []
    while len(found) < _MOST_BLOCKS:
        best = _best(layers, tokens, places)
        if best is None:
            break
        found.append(best)
        for start in best.starts:
            for i in range(start, start + best.length):
                tokens[i] = ("taken", i)
    return found


def _best(layers: Sequence[FlatLayer], tokens: Sequence[Hashable], places: Mapping[str, int]) -> Repeat | None:
    """Return the part that makes the file shortest; None where no one makes it shorter."""
    candidates = sorted(_candidates(tokens), key=lambda one: (-one[0], one[1], one[2][0]))
    readers = defaultdict(list)
    for i, layer in enumerate(layers):
        for base in set(map(base_of, layer.reads)):
            readers[base].append(i)
    best, score, looked_at = None, 0, 0
    for bound, length, starts in candidates:
        if bound + 2 * _NAMED * length * len(starts) <= score or looked_at > _MOST_LOOKED_AT:
            continue
        looked_at += length * len(starts)
        for repeat in _alike(layers, starts, length, places):
            count = len(repeat.starts)
            saved = _bound(length, count) - _ARGUMENT * _arguments(layers, repeat) * count
            if saved < _LEAST or saved + 2 * _NAMED * length * count <= score:
                continue
            # A short part that is used often reads better than a long one that is used seldom.
            value = saved - length * _LAYER // 2 - _CROSSING * _crossings(layers, repeat, readers)
            value += _NAMED * _alike_names(layers, repeat) * count
            if value > score:
                best, score = repeat, value
    return best


def _bound(length: int, count: int) -> int:
    """Return how many characters a block saves that is given nothing."""
    return (count - 1) * length * _LAYER - _FRAME - count * _CALL


def _candidates(tokens: Sequence[Hashable]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield, for stretches that occur several times, what they save at most, their length, and where they begin."""
    numbers: dict[Hashable, int] = {}
    single = [numbers.setdefault(token, len(numbers)) for token in tokens]
    longest = max(2, min(_LONGEST, _WORK // max(1, len(tokens)), len(tokens) // 2))
    groups = [list(range(len(tokens)))]
    for length in range(1, longest + 1):
        longer = []
        for group in groups:
            split = defaultdict(list)
            for start in group:
                if start + length <= len(tokens):
                    split[single[start + length - 1]].append(start)
            longer += [starts for starts in split.values() if len(starts) > 1]
        groups = longer
        for starts in groups:
            count = len(_apart(starts, length))
            bound = _bound(length, count)
            if length >= _SHORTEST and bound > _LEAST:
                yield bound, length, starts


def _apart(starts: Sequence[int], length: int) -> list[int]:
    """Return those of some stretches that do not overlap, from the front."""
    found: list[int] = []
    for start in starts:
        if not found or start >= found[-1] + length:
            found.append(start)
    return found


def _alike(layers: Sequence[FlatLayer], starts: Sequence[int], length: int, places: Mapping[str, int]) -> Iterator[Repeat]:
    """Yield the parts among stretches of the same kinds of layers in which the same layers read each other."""
    kinds: dict[Hashable, list[tuple[int, list[str]]]] = defaultdict(list)
    for start in starts:
        outside: dict[str, int] = {}
        reads: list[Hashable] = []
        for layer in layers[start : start + length]:
            for name in layer.reads:
                place = places.get(base_of(name), -1)
                inside = start <= place < start + length
                reads.append((place - start, name.partition(".")[2]) if inside else (outside.setdefault(name, len(outside)),))
        kinds[tuple(reads)].append((start, list(outside)))
    for members in kinds.values():
        kept = set(_apart([start for start, _ in members], length))
        if len(kept) > 1:
            whole = [(start, outside) for start, outside in members if start in kept]
            yield Repeat(length, [start for start, _ in whole], [outside for _, outside in whole])


def _alike_names(layers: Sequence[FlatLayer], repeat: Repeat) -> int:
    """Return how many layers and parameters have names that begin alike, at most two for each layer."""
    rows = [layers[start : start + repeat.length] for start in repeat.starts]
    own = stems([[layer.name for layer in row] for row in rows], "_-").rest
    called = [[name for layer in row for name in list(layer.parameters.values())[:1]] for row in rows]
    return len(own) + len(stems(called, "./").rest if called[0] else ())


def _crossings(layers: Sequence[FlatLayer], repeat: Repeat, readers: Mapping[str, Sequence[int]]) -> int:
    """Return how many variables go into the repetitions of a part and come out of them, beyond one each."""
    into = sum(len(set(column)) > 1 for column in zip(*repeat.outside, strict=True))
    out = 0
    for start in repeat.starts:
        end = start + repeat.length
        read = sum(any(i >= end for i in readers.get(layer.name, ())) for layer in layers[start:end])
        out += max(0, read - 1)
    return max(0, into - 1) * len(repeat.starts) + out


def _arguments(layers: Sequence[FlatLayer], repeat: Repeat) -> int:
    """Return how many values differ between the repetitions of a part."""
    differing = {column for column in zip(*repeat.outside, strict=True) if len(set(column)) > 1}
    count = len(differing)
    vectors = set()
    for k in range(repeat.length):
        parts = [layers[start + k] for start in repeat.starts]
        vectors |= {tuple(repr(part.numbers[arg]) for part in parts) for arg in parts[0].numbers}
    return count + sum(len(set(vector)) > 1 for vector in vectors)
