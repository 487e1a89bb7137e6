"""The type of every variable of a program once a batch is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Graph
from pe_cli.ops.define.registry import forward_name
from pe_cli.program.ir import EMPTY, Operator, Program

#: Name of a feed -> its type on a device.
Feeds = Mapping[str, TensorType]


#: Operators of inferred types that are kept; beyond, all are forgotten.
MOST = 50_000


class Inferred:
    """The types that operators of a program gave for types that they were given: sizes come again, and inference takes far longer.

    Args:
        program: checked by inference when it was built; it does not change any more.
    """

    def __init__(self, program: Program) -> None:
        self.block = program.main_block
        # Feeds are typed by the batch and never by their declaration, whose sizes may be open.
        known = {name: v.type for name, v in self.block.vars.items() if v.type.known and (v.persistable or not v.is_data)}
        self.ops = [(op, _asked(op), op.varies) for op in self.block.ops]
        self._types: dict[tuple[tuple[int, ...], str], TensorType] = {}
        self._found: dict[tuple[int, ...], list[tuple[str, TensorType]]] = {}
        self.fixed = {name: self.one(kind) for name, kind in known.items()}

    def one(self, kind: TensorType) -> TensorType:
        """Return the object that stands for all types that are equal to one: they are told apart by identity, which is fast."""
        return self._types.setdefault((kind.shape, kind.dtype), kind)

    @property
    def varies(self) -> bool:
        """Whether attributes of some operator differ from device to device."""
        return any(varies for *_, varies in self.ops)

    def of(self, i: int, types: Mapping[str, TensorType], device: int) -> list[tuple[str, TensorType]]:
        """Return what an operator, by its index, writes: names with types.

        Args:
            i: the index.
            types: of all that it reads, each as of `one`.
            device: on which it runs.

        Raises:
            PeError: sizes that do not fit, or a variable without a type; with the operator's place.
        """
        op, asked, varies = self.ops[i]
        try:
            key = (i, device if varies else 0, *[id(types[name]) for name in asked])
        except KeyError as error:
            message = f"'{error.args[0]}' is read before anything gives it a value"
            raise PeError(message, at=op.at, hint="feed it, or let an op write it first") from None
        found = self._found.get(key)
        if found is None:
            try:
                slots = self.block.infer(op, types.__getitem__, device)
            except PeError as error:
                error.at = error.at or op.at
                raise
            if len(self._found) >= MOST:
                self._found.clear()
            named = [pair for slot, names in op.outputs.items() for pair in zip(names, slots.get(slot, ()), strict=False)]
            found = self._found[key] = [(name, self.one(kind)) for name, kind in named if name != EMPTY]
        return found


def _asked(op: Operator) -> tuple[str, ...]:
    """Return the variables whose types an operator's inference asks for; that of a gradient asks for the forward variables."""
    names = [name for row in op.inputs.values() for name in row]
    if op.definition.infer is None:
        names += [forward_name(name) for row in op.outputs.values() for name in row]
    return tuple(dict.fromkeys(name for name in names if name != EMPTY))


def device_types(
    graph: Graph, feeds: Sequence[Feeds], whole: Sequence[tuple[Feeds, int]] = (), inferred: Inferred | None = None
) -> list[dict[str, TensorType]]:
    """Return the type of every variable on every device.

    Args:
        graph: over devices.
        feeds: of each device, as of `concrete_types`.
        whole: feeds and samples of the devices of all processes, where there are several.
        inferred: what is known of the graph's program from other batches.
    """
    inferred = inferred or Inferred(graph.program)
    types = [concrete_types(graph.program, given, None, inferred, d) for d, given in enumerate(feeds)]
    if not graph.gathered:
        return types
    # Rows that are merged over devices follow from all of them: types are inferred once for that, and again with it.
    everyone = [concrete_types(graph.program, given, None, inferred) for given, samples in whole if samples]
    everyone = everyone or [types[d] for d in graph.active]
    return joined_types(graph, feeds, types, {name: sum(of[name].shape[0] for of in everyone) for name in graph.gathered}, inferred)


def joined_types(
    graph: Graph,
    feeds: Sequence[Feeds],
    types: Sequence[Mapping[str, TensorType]],
    rows: Mapping[str, int],
    inferred: Inferred | None = None,
) -> list[dict[str, TensorType]]:
    """Return the type of every variable on every device, where devices make some of them together.

    Args:
        graph, feeds: as for `device_types`.
        types: what each device would have alone.
        rows: of each variable that they make together.
        inferred: as for `device_types`.
    """
    joined = {name: types[0][name].with_shape(count, *types[0][name].shape[1:]) for name, count in rows.items()}
    return [concrete_types(graph.program, given, joined, inferred, d) for d, given in enumerate(feeds)]


def concrete_types(
    program: Program,
    feeds: Mapping[str, TensorType],
    joined: Mapping[str, TensorType] | None = None,
    inferred: Inferred | None = None,
    device: int = 0,
) -> dict[str, TensorType]:
    """Return the type of every variable for a batch.

    Args:
        program: checked by inference when it was built.
        feeds: types of the data variables, all sizes known.
        joined: types of variables that several devices make together.
        inferred: what is known of the program from other batches.
        device: on which it runs.

    Raises:
        PeError: sizes that only the batch shows do not fit, with the layer's place.
    """
    inferred = inferred or Inferred(program)
    types = {**inferred.fixed, **{name: inferred.one(kind) for name, kind in feeds.items()}}
    fixed = set(types)
    for i, (op, *_) in enumerate(inferred.ops):
        for name, kind in inferred.of(i, types, device):
            made = kind if joined is None or name not in joined else inferred.one(joined[name])
            # One variable has one memory: a second writer of another size would overrun it.
            if name in fixed and types[name] is not made:
                raise PeError(f"op '{op.type}' writes {made} to '{name}', which is {types[name]} elsewhere in the step", at=op.at)
            types[name] = made
            fixed.add(name)
    return types
