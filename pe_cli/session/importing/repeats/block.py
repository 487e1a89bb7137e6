"""Makes a block of one repeated part: its layers, its arguments, and what each use of it is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.importing.repeats.flat import FlatLayer, base_of
from pe_cli.session.importing.repeats.names import Stems, free, inner_names, kind_name, plain, stems
from pe_cli.session.importing.repeats.search import Repeat


@dataclass
class Block:
    """A repeated part as a model file has it.

    Args:
        repeat: which part.
        name: of the block.
        uses: names of the layers that use it.
        inner: names of its layers.
        output: position of the layer that is its output.
        constant: what all uses read of the layers around them.
        layers: name -> layer.
        given: for each use, argument -> value; variables by their names in the model without blocks.
        variables: arguments that are variables.
    """

    repeat: Repeat
    name: str
    uses: list[str]
    inner: list[str]
    output: int
    constant: Collection[str]
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: list[dict[str, Any]] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)

    def entry(self) -> dict[str, Any]:
        """Return the block as a model file has it."""
        args = dict.fromkeys(self.given[0])
        return {**({"args": args} if args else {}), "layers": self.layers, "output": self.inner[self.output]}

    def argument(self, wanted: str, values: Sequence[Any]) -> str:
        """Return the argument that has these values, one for each use; it is made where there is none yet."""
        for arg in self.given[0]:
            if all(repr(given[arg]) == repr(value) for given, value in zip(self.given, values, strict=True)):
                return arg
        name = free(wanted, {*self.given[0], *self.inner, *self.constant})
        for given, value in zip(self.given, values, strict=True):
            given[name] = value
        return name


@dataclass(frozen=True)
class Around:
    """What is around a repeated part.

    Args:
        taken: names of layers and feeds; those of a block's uses are added.
        blocks: names of blocks.
        shared: names of parameters that several layers have.
        readers: layer -> the last place that reads it.
    """

    taken: set[str]
    blocks: set[str]
    shared: set[str]
    readers: Mapping[str, int]


def block_of(layers: Sequence[FlatLayer], repeat: Repeat, around: Around) -> Block:
    """Return the block of a repeated part of a model."""
    rows = [layers[start : start + repeat.length] for start in repeat.starts]
    names = [[layer.name for layer in row] for row in rows]
    slots = [(k, arg) for k, layer in enumerate(rows[0]) for arg in layer.parameters]
    stem = stems([[row[k].parameters[arg] for k, arg in slots] for row in rows], "./") if slots else Stems([], {})
    hints = {slots[i][0]: plain(tail.strip("./").rpartition(tail[0])[0].replace(".", "_")) for i, tail in stem.rest.items()}
    constant = {base_of(column[0]) for column in zip(*repeat.outside, strict=True) if len(set(column)) == 1}
    inner = inner_names(names, [str(layer.entry["type"]) for layer in rows[0]], hints, constant)
    wanted = [plain(one) for one in (stem.of or stems(names, "_-").of)]
    name = free(kind_name(wanted[0] if wanted else ""), around.blocks)
    around.blocks.add(name)
    if not wanted or not all(wanted) or len(set(wanted)) < len(wanted) or not around.taken.isdisjoint(wanted):
        wanted = [f"{name}_{i}" for i in range(len(rows))]
    uses = []
    for one in wanted:
        uses.append(free(one, around.taken))
        around.taken.add(uses[-1])
    made = Block(repeat, name, uses, inner, _output(rows, repeat, around.readers), constant, given=[{} for _ in rows])
    reads = _reads(made, rows)
    named = {}
    if stem.of:
        arg = made.argument("named", stem.of)
        named = {slots[i]: f"${{{arg}}}{tail}" for i, tail in stem.rest.items()}
    for k, name in enumerate(inner):
        made.layers[name] = _layer(made, [row[k] for row in rows], k, reads, named, around.shared)
    return made


def _output(rows: Sequence[Sequence[FlatLayer]], repeat: Repeat, readers: Mapping[str, int]) -> int:
    """Return the position of the layer that most others read, the last one of several."""
    ends = [start + repeat.length for start in repeat.starts]
    counts = [sum(readers.get(row[k].name, -1) >= end for row, end in zip(rows, ends, strict=True)) for k in range(repeat.length)]
    return max(range(repeat.length), key=lambda k: (counts[k], k))


def _reads(made: Block, rows: Sequence[Sequence[FlatLayer]]) -> dict[str, str]:
    """Return what each variable is called in the block that the layers of its first use read; arguments are made for those around it."""
    found: dict[str, str] = {}
    for column in zip(*made.repeat.outside, strict=True):
        found[column[0]] = column[0]
        if len(set(column)) > 1:
            arg = made.argument("input", column)
            made.variables.add(arg)
            found[column[0]] = f"${{{arg}}}"
    inside = {layer.name: made.inner[k] for k, layer in enumerate(rows[0])}
    for name in {name for layer in rows[0] for name in layer.reads} - found.keys():
        base, dot, rest = name.partition(".")
        found[name] = inside[base] + dot + rest
    return found


def _layer(
    made: Block,
    row: Sequence[FlatLayer],
    k: int,
    reads: Mapping[str, str],
    named: Mapping[tuple[int, str], str],
    shared: set[str],
) -> dict[str, Any]:
    """Return a layer of a block, with arguments for what differs between its uses, which are `row`."""
    first = row[0]
    numbers = {}
    for arg, value in first.numbers.items():
        values = [layer.numbers[arg] for layer in row]
        same = all(repr(one) == repr(value) for one in values)
        numbers[arg] = value if same else f"${{{made.argument(arg, values)}}}"
    parameters: dict[str, str | None] = {}
    for arg, name in first.parameters.items():
        names = [layer.parameters[arg] for layer in row]
        if (k, arg) in named:
            parameters[arg] = named[k, arg]
        elif len(set(names)) == 1:
            parameters[arg] = name
        elif shared.isdisjoint(names):
            parameters[arg] = None
        else:
            parameters[arg] = f"${{{made.argument(f'{made.inner[k]}_{arg}'.replace('-', '_'), names)}}}"
    return first.rewritten([reads[name] for name in first.reads], numbers, parameters)
