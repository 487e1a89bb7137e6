"""Layers that run blocks in a step: scan, while, if and beam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pe_cli.build.values import convert
from pe_cli.config.block_expansion import REGIONS
from pe_cli.config.nodes import MapNode, Node, ScalarNode, describe
from pe_cli.config.spec import BodySpec, LayerSpec, RegionSpec
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.types import FLOATS, check_dtype
from pe_cli.layers.control.beam_search import BeamSearch
from pe_cli.layers.control.loops import Scan, append_while, branch
from pe_cli.layers.define.registry import find
from pe_cli.ops.define.traits import FedSizes
from pe_cli.program.ir import Block, Variable
from pe_cli.program.outline import Outline
from pe_cli.program.region import Region, regions_of

_START_KEYS = ("shape", "value", "dtype")


class BrokenError(Exception):
    """A variable does not exist because of a mistake that is reported already."""


class Layers(Protocol):
    """What appends layers, see `pe_cli.build.model`."""

    block: Block
    broken: set[str]
    aliases: dict[str, str]

    def append(self, layer: LayerSpec) -> None:
        """Append a layer; mistakes are collected."""

    def variable(self, node: Node, layer: LayerSpec, what: str) -> Variable:
        """Return the variable that a value of a layer names."""


def append_region(layers: Layers, layer: RegionSpec) -> list[Variable]:
    """Append a layer that runs blocks.

    Args:
        layers: what is appended to.
        layer: scan, while, if or beam.

    Returns:
        Its outputs: of a scan what it collects, then the states after the last step; of a while the states; of an if the
        result; of a beam the best sequences, all of them, and their scores.

    Raises:
        BrokenError: a layer of a block has a mistake that is reported already.
        PeError: arguments that do not fit, or a size inside that a variable gives.
    """
    first = len(layers.block.ops)
    made = {"scan": _scan, "while": _while, "if": _if, "beam": _beam}[layer.type](layers, layer)
    for op in layers.block.ops[first:]:
        for region in regions_of(op).values():
            _check_sizes(layer, region)
    return made


def _check_sizes(layer: RegionSpec, region: Region) -> None:
    """Raise where a variable gives a size: a loop or branch is planned with the step around it."""
    for op in region.program.top_ops:
        sizes = op.definition.get(FedSizes)
        if sizes is not None and any(op.inputs.get(slot) for slot in sizes.attrs):
            text = f"op '{op.type}' takes a size from a variable, which it cannot inside {layer.type}"
            raise PeError(text, at=op.at, hint="write a number, or move the layer out")


def _flag(layer: RegionSpec, name: str) -> bool:
    return bool(convert("bool", layer.args[name].value, f"{layer.type}: {name}")) if name in layer.args else False


def _inside(layers: Layers, body: BodySpec, given: dict[str, str]) -> Variable:
    """Append the layers of a block and return its output; given: argument -> variable that stands for it."""
    # While the layers of the block are appended, its arguments are other names of these variables.
    layers.aliases.update({body.given[arg]: name for arg, name in given.items() if arg in body.given})
    for layer in body.layers:
        layers.append(layer)
    if any(layer.key in layers.broken for layer in body.layers):
        raise BrokenError
    return _variable(layers, body.output or "", body)


def _variable(layers: Layers, name: str, body: BodySpec) -> Variable:
    full = layers.aliases.get(name, name)
    if full not in layers.block.vars:
        raise PeError(f"the block has no variable '{name}'", at=body.at)
    return layers.block.vars[full]


def _next(layers: Layers, body: BodySpec, states: Sequence[str]) -> list[Variable]:
    return [_variable(layers, body.next[arg], body) for arg in states]


def _scan(layers: Layers, layer: RegionSpec) -> list[Variable]:
    (body,) = layer.bodies
    if "input" in layer.args:
        x = layers.variable(layer.args["input"].value, layer, "scan: input")
    elif layer.previous is not None:
        x = layers.variable(ScalarNode(layer.previous, layer.at), layer, "scan: input")
    else:
        raise PeError("scan needs an input, as it is the first layer", at=layer.at, hint="add input: and the name of a feed")
    if len(x.shape) < 2:
        raise PeError(f"scan goes through [batch, time, ...], and '{x.name}' is {x.type}", at=layer.at)
    swap = not _flag(layer, "time_major")
    rows = _swapped(x) if swap else x
    starts = _starts(layers, layer, rows)
    loop = Scan(layers.block)
    given = {"input": loop.input(rows).name} if "input" in body.given else {}
    held = {arg: loop.state(v) for arg, v in starts.items()}
    # A block that does not read the input still runs once for each of its steps.
    if not given:
        loop.input(rows)
    out = _inside(layers, body, {**given, **{arg: v.name for arg, v in held.items()}})
    for arg, after in zip(held, _next(layers, body, list(held)), strict=True):
        loop.update(held[arg], after)
    loop.output(out)
    (found,), finals = loop.close(backwards=_flag(layer, "backwards"))
    return [_swapped(found) if swap and len(found.shape) > 1 else found, *finals]


def _swapped(x: Variable) -> Variable:
    made: Variable = find("transpose").fn(x, [1, 0, *range(2, len(x.shape))])
    return made


def _starts(layers: Layers, layer: RegionSpec, rows: Variable | None, axis: int = 1) -> dict[str, Variable]:
    """Return the variables that states begin as.

    Args:
        layers: what is appended to.
        layer: of the states.
        rows: gives a state as many rows as there are samples; None where states have no batch axis.
        axis: of the samples in `rows`.
    """
    node = layer.args["start"].value if "start" in layer.args else None
    if node is None:
        return {}
    assert isinstance(node, MapNode)
    found = {}
    for arg, entry in node.entries.items():
        if isinstance(entry.value, MapNode):
            found[arg] = _filled(entry.value, f"{layer.type}: start of '{arg}'", rows, axis)
        else:
            found[arg] = layers.variable(entry.value, layer, f"{layer.type}: start of '{arg}'")
    return found


def _filled(node: MapNode, what: str, rows: Variable | None, axis: int) -> Variable:
    for key, entry in node.entries.items():
        if key not in _START_KEYS:
            raise PeError(f"{what} has no key '{key}'", at=entry.at, hint=did_you_mean(key, _START_KEYS) or "shape, value and dtype")
    shape = node.get("shape")
    if shape is None:
        raise PeError(f"{what} needs a shape", at=node.at, hint="{shape: [64]}, without the batch axis" if rows else "{shape: [1]}")
    sizes = convert("ints", shape, f"{what}: shape")
    value = convert("float", node.entries["value"].value, f"{what}: value") if "value" in node.entries else 0.0
    kind = node.get("dtype")
    if kind is not None and not (isinstance(kind, ScalarNode) and isinstance(kind.value, str)):
        raise PeError(f"{what}: dtype must be a name, got {describe(kind)}", at=kind.at)
    default = rows.dtype if rows is not None and rows.dtype in FLOATS else "float32"
    dtype = check_dtype(str(kind.value)) if isinstance(kind, ScalarNode) else default
    made: Any = (
        find("fill_constant").fn(sizes, dtype, value)
        if rows is None
        else find("fill_constant_batch_size_like").fn(rows, [-1, *sizes], dtype, value, axis, 0)
    )
    return made  # type: ignore[no-any-return]


def _beam(layers: Layers, layer: RegionSpec) -> list[Variable]:
    (body,) = layer.bodies
    start = layer.args["start"].value if "start" in layer.args else None
    named = [e.value for e in start.entries.values() if not isinstance(e.value, MapNode)] if isinstance(start, MapNode) else []
    if not named:
        hint = "add start: {state: variable}"
        raise PeError("beam needs a state that begins as a variable, which says how many samples there are", at=layer.at, hint=hint)
    starts = _starts(layers, layer, layers.variable(named[0], layer, "beam: start"), 0)
    for arg, v in starts.items():
        if v.shape[:1] != (-1,):
            raise PeError(f"beam: '{arg}' begins as '{v.name}', {v.type}, which has no row per sample", at=layer.at)
    numbers = [int(convert("int", layer.args[name].value, f"beam: {name}") or 0) for name in REGIONS["beam"][1:]]

    def step(token: Variable, states: Mapping[str, Variable]) -> tuple[Variable, dict[str, Variable]]:
        given = {"input": token.name, **{arg: v.name for arg, v in states.items()}}
        logits = _inside(layers, body, given)
        return logits, dict(zip(states, _next(layers, body, list(states)), strict=True))

    return BeamSearch(*numbers).run(layers.block, starts, step)


def _while(layers: Layers, layer: RegionSpec) -> list[Variable]:
    test, body = layer.bodies
    starts = _starts(layers, layer, None)
    if not starts:
        raise PeError("while needs states, which a round changes", at=layer.at, hint="add start: {state: variable}")
    outlines, held = [], []
    found: list[Variable] = []
    for of in (test, body):
        outline = Outline(layers.block)
        given = {arg: outline.give(v.name, v.type, stop_gradient=v.dtype not in FLOATS) for arg, v in starts.items()}
        found.append(_inside(layers, of, {arg: v.name for arg, v in given.items()}))
        after = _next(layers, of, list(starts)) if of is body else []
        outline.cut()
        outlines.append(outline)
        held.append([v.name for v in given.values()])
    bound = convert("int", layer.args["bound"].value, "while: bound") if "bound" in layer.args else 0
    return append_while(
        layers.block, outlines[0], found[0], held[0], outlines[1], held[1], after, list(starts.values()), int(bound or 0)
    )[0]


def _if(layers: Layers, layer: RegionSpec) -> list[Variable]:
    condition = layers.variable(layer.args["if"].value, layer, "if")
    outlines, results = [], []
    for body in layer.bodies:
        outline = Outline(layers.block)
        results.append([_inside(layers, body, {})])
        outline.cut()
        outlines.append(outline)
    return branch(condition, outlines[0], outlines[1], (results[0], results[1]))
