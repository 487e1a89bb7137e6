"""The type of every variable of a program once a batch is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Graph
from pe_cli.program.ir import EMPTY, Program

#: Name of a feed -> its type on a device.
Feeds = Mapping[str, TensorType]


def device_types(graph: Graph, feeds: Sequence[Feeds], whole: Sequence[tuple[Feeds, int]] = ()) -> list[dict[str, TensorType]]:
    """Return the type of every variable on every device.

    Args:
        graph: over devices.
        feeds: of each device, as of `concrete_types`.
        whole: feeds and samples of the devices of all processes, where there are several.
    """
    types = [concrete_types(graph.program, given) for given in feeds]
    if not graph.gathered:
        return types
    # Rows that are merged over devices follow from all of them: types are inferred once for that, and again with it.
    everyone = [concrete_types(graph.program, given) for given, samples in whole if samples] or [types[d] for d in graph.active]
    return joined_types(graph, feeds, types, {name: sum(of[name].shape[0] for of in everyone) for name in graph.gathered})


def joined_types(
    graph: Graph, feeds: Sequence[Feeds], types: Sequence[Mapping[str, TensorType]], rows: Mapping[str, int]
) -> list[dict[str, TensorType]]:
    """Return the type of every variable on every device, where devices make some of them together.

    Args:
        graph, feeds: as for `device_types`.
        types: what each device would have alone.
        rows: of each variable that they make together.
    """
    joined = {name: types[0][name].with_shape(count, *types[0][name].shape[1:]) for name, count in rows.items()}
    return [concrete_types(graph.program, given, joined) for given in feeds]


def concrete_types(
    program: Program, feeds: Mapping[str, TensorType], joined: Mapping[str, TensorType] | None = None
) -> dict[str, TensorType]:
    """Return the type of every variable for a batch.

    Args:
        program: checked by inference when it was built.
        feeds: types of the data variables, all sizes known.
        joined: types of variables that several devices make together.

    Raises:
        PeError: sizes that only the batch shows do not fit, with the layer's place.
    """
    block = program.main_block
    # Feeds are typed by the batch and never by their declaration, whose sizes may be open.
    types = {name: v.type for name, v in block.vars.items() if v.type.known and (v.persistable or not v.is_data)}
    types |= feeds
    fixed = set(types)

    def known(name: str) -> TensorType:
        if name not in types:
            raise PeError(f"'{name}' is read before anything gives it a value", hint="feed it, or let an op write it first")
        return types[name]

    for op in block.ops:
        try:
            found = block.infer(op, known)
        except PeError as error:
            error.at = error.at or op.at
            raise
        for slot, names in op.outputs.items():
            for name, kind in zip(names, found.get(slot, ()), strict=False):
                if name == EMPTY:
                    continue
                made = kind if joined is None else joined.get(name, kind)
                # One variable has one memory: a second writer of another size would overrun it.
                if name in fixed and types[name] != made:
                    raise PeError(f"op '{op.type}' writes {made} to '{name}', which is {types[name]} elsewhere in the step", at=op.at)
                types[name] = made
                fixed.add(name)
    return types
