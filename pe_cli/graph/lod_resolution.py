"""resolve: find the LoD of every variable, and give sequence ops the arrays that they need as plain feeds.

Programs say LoD in one place only: feeds declare `lod_level`. Resolving walks over the ops once, for given levels: an op with a LoD rule
(`pe_cli.ops.define.lod`) gets its arrays as inputs and says its outputs' LoD; any other hands on the LoD of an input whose rows it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import ComputedInStep, Lod, LodRequest, Recipe, offsets_name
from pe_cli.ops.define.registry import find, forward_name
from pe_cli.ops.define.traits import HasRegions, MergesRows, NamesOnly, Runs, Sequenced, View
from pe_cli.program.ir import EMPTY, Block, Operator, Program
from pe_cli.program.region import Region, given, regions_of

Array = np.ndarray[Any, Any]
#: Two sizes for an unknown number of rows, to see whether an op keeps it; primes that no layer's sizes make.
_PROBES = (1_000_003, 1_000_033)


@dataclass(frozen=True)
class Sequences:
    """A program whose sequence ops have their arrays, and how those are made.

    Args:
        program: with offsets and made arrays as data variables.
        feeds: feed with sequences -> the feeds of its offsets, the outermost first.
        lods: LoD of every variable that has one.
        recipes: arrays that are made before a step, in order.
    """

    program: Program
    feeds: Mapping[str, Lod] = field(default_factory=dict)
    lods: Mapping[str, Lod] = field(default_factory=dict)
    recipes: tuple[Recipe, ...] = ()

    def complete(
        self, parts: Sequence[Mapping[str, Array]], longest: Callable[[Sequence[Array]], Array] = lambda found: max(found, key=len)
    ) -> list[dict[str, Array]]:
        """Return every device's feeds with the made arrays.

        Args:
            parts: of every device.
            longest: returns the longest of arrays; those of other processes are looked at, too, where they have their own parts.

        Raises:
            PeError: lengths or offsets that do not fit (exit code 3).
        """
        out = [dict(part) for part in parts]
        for recipe in self.recipes:
            for part in out:
                part[recipe.name] = recipe.run(part)
            if recipe.common:
                common = longest([part[recipe.name] for part in out])
                for part in out:
                    part[recipe.name] = common
        return out


def declared_levels(program: Program) -> dict[str, int]:
    """Return the levels that a program's feeds declare, where there are any."""
    return {v.name: v.lod_level for v in program.list_vars() if v.is_data and v.lod_level}


def resolve(program: Program, levels: Mapping[str, int] | None = None) -> Sequences:
    """Return a program with the arrays of its sequence ops; the program itself where it has no sequences.

    Args:
        program: not changed.
        levels: feed -> levels of its sequences; default: as declared.

    Raises:
        PeError: an op needs sequences that its input does not have; with the op's place.
    """
    found = {name: n for name, n in (declared_levels(program) if levels is None else levels).items() if n}
    wanting = any((_rule_slots(op) and not _filled(op)) or _begins(op) for op in program.top_ops)
    # Programs without sequences are most: they are not even cloned.
    if not found and not wanting:
        return Sequences(program)
    made = program.clone()
    return _Walk(made.main_block, found).run()


def awaited(program: Program, levels: Mapping[str, int] | None = None) -> frozenset[str]:
    """Return the variables that a step computes and whose values sequences or sizes follow from: where they are made, a program is cut.

    Args:
        program: not changed.
        levels: as for `resolve`.
    """
    if not any(_value_slots(op) for op in program.top_ops):
        return frozenset()
    fed = declared_levels(program) if levels is None else levels
    walk = _Trial(program.clone().main_block, {name: n for name, n in fed.items() if n})
    walk.run()
    return frozenset(walk.awaited)


def _value_slots(op: Operator) -> bool:
    rule = op.definition.get(Sequenced)
    return rule is not None and any(op.inputs.get(slot) for slot in rule.value_slots)


def _rule_slots(op: Operator) -> tuple[str, ...]:
    definition = op.definition
    forward = find(definition.is_grad_of) if definition.is_grad_of else definition
    rule = forward.get(Sequenced)
    return tuple(s for s in (rule.host_slots if rule else ()) if s in definition.slot_names(outputs=False))


def _begins(op: Operator) -> bool:
    # An op that begins sequences makes some of what has none, so it counts though no feed has any.
    rule = op.definition.get(Sequenced)
    return rule is not None and rule.begins


def _filled(op: Operator) -> bool:
    return any(op.inputs.get(s) for s in _rule_slots(op))


class _Walk:
    """One walk over a block."""

    def __init__(self, block: Block, levels: Mapping[str, int]) -> None:
        self.block = block
        self.feeds = {name: tuple(offsets_name(name, k) for k in range(n)) for name, n in levels.items()}
        self.lods: dict[str, Lod] = dict(self.feeds)
        self.recipes: dict[Recipe, str] = {}
        self.given: dict[int, tuple[Region, tuple[str, ...]]] = {}  # region's id -> it with what its sequence ops are given, and that
        self.inner: dict[int, Mapping[str, Lod]] = {}  # region's id -> LoD of what is in it
        self.known = {v.name: v.name for v in block.vars.values() if v.is_data and v.dtype in ("int64", "int32")}
        # Offsets are feeds as well, so that an executor is given them like any other array.
        for name in (n for names in self.feeds.values() for n in names):
            self._declare(name, TensorType((-1,), "int64"))

    def run(self) -> Sequences:
        """Walk, and return what was found."""
        for op in self.block.ops:
            try:
                self._visit(op)
            except PeError as error:
                error.at = error.at or op.at
                raise
        return Sequences(self.block.program, self.feeds, self.lods, self._used())

    def _used(self) -> tuple[Recipe, ...]:
        """Return the recipes of arrays that an op reads or that say sequences, and forget the others."""
        needed = {n for op in self.block.ops for n in op.input_names()} | {n for lod in self.lods.values() for n in lod}
        found = []
        # Backwards: a recipe that only another recipe reads is needed where that one is.
        for recipe, name in reversed(self.recipes.items()):
            if name in needed:
                needed.update(recipe.sources)
                found.append(replace(recipe, name=name))
            else:
                del self.block.vars[name]
        return tuple(reversed(found))

    def _declare(self, name: str, kind: TensorType) -> None:
        if name not in self.block.vars:
            self.block.create_var(name, kind, is_data=True, stop_gradient=True)

    def _add(self, recipe: Recipe) -> str:
        """Return the name of a made array; equal recipes have one."""
        # Two ops that need the same array share it: it is computed once per batch on the host.
        if recipe not in self.recipes:
            source = recipe.sources[0] if recipe.sources else recipe.op
            name = f"{source}@{recipe.make.__name__.strip('_')}"
            # Different recipes may have one function and one source, and differ in numbers.
            if name in self.block.vars:
                name = f"{name}@{len(self.recipes)}"
            self.recipes[recipe] = name
            self._declare(name, recipe.type)
        return self.recipes[recipe]

    def _visit(self, op: Operator) -> None:
        definition = op.definition
        forward = find(definition.is_grad_of) if definition.is_grad_of else definition
        if definition.has(HasRegions):
            self._enter(op)
        if forward.has(Sequenced):
            if not _filled(op):
                self._apply(op, definition is forward)
        elif definition is forward and not definition.has(MergesRows):  # its rows are those of a table
            self._hand_on(op)
        if definition is not forward:  # a gradient has the sequences of what it is of
            # A gradient is typed after its variable, and its rows are that variable's rows.
            self.lods.update({n: self.lods[of] for n in op.output_names() if (of := forward_name(n)) in self.lods})

    def _enter(self, op: Operator) -> None:
        """Walk over the regions of an op; what their sequence ops are given becomes captured."""
        regions = regions_of(op)
        captured, seen = op.inputs.get("Captured", []), dict[str, None]()
        inner: dict[str, _Inner] = {}
        for attr, region in regions.items():
            inner[attr] = _Inner(self, region, given(op, region), len(op.inputs.get("X", ())))
            seen |= dict.fromkeys(inner[attr].more)
            self.inner[id(region)] = inner[attr].lods
        if not seen:
            return
        # Sequences inside of a region come from outside as arguments: what its ops need is made outside, and handed in.
        more = tuple(n for n in seen if n not in captured)
        for attr, walk in inner.items():
            made = walk.region(tuple(seen), self.given)
            self.given[id(regions[attr])] = made, tuple(seen)
            op.attrs = {**op.attrs, attr: made}
            like = regions[attr].like
            if like is not None and id(like) in self.given:
                n, row = len(like.args), op.inputs["Like"]
                op.inputs["Like"] = [*row[:n], *self.given[id(like)][1], *row[n:]]
        op.inputs["Captured"] = [*captured, *more]

    def _apply(self, op: Operator, is_forward: bool) -> None:
        forward = op.definition if is_forward else find(op.definition.is_grad_of or "")
        rule, named = forward.get(Sequenced), op.definition.get(NamesOnly)
        assert rule is not None
        request = LodRequest(
            forward,
            op.inputs,
            op.outputs if is_forward else {},
            op.attrs,
            lambda name: self.block.var(name).type,
            self.lods,
            self._add,
            self.known,
        )
        rule.rule(request)
        own = {slot.name for slot in op.definition.inputs}
        op.inputs.update({slot: names for slot, names in request.given.items() if slot in own})
        for slot in (*request.left_out, *(named.slots if named else ())):
            op.inputs.pop(slot, None)

    # --- ops without a rule -------------------------------------------------------------------------------------------

    def _hand_on(self, op: Operator) -> None:
        view = op.definition.get(View)
        for out, source in view.pairs.items() if view else ():
            for name, of in zip(op.outputs.get(out, ()), op.inputs.get(source, ()), strict=False):
                if of in self.known:  # the same numbers in another shape
                    self.known[name] = self.known[of]
        loop = op.definition.get(HasRegions)
        slots = ("X", "Init") if loop and loop.runs is not Runs.BRANCH else op.inputs  # what all rounds get alike has rows of its own
        rows = {n for slot in slots for n in op.inputs.get(slot, ())}
        lods = list(dict.fromkeys(self.lods[n] for n in op.input_names() if n in self.lods and n in rows))
        kept = {name: lod for lod in reversed(lods) for name in self._kept(op, lod)}
        # Several feeds with sequences of one structure: fluid takes the LoD of the first.
        if len(lods) > 1 and not kept:  # several feeds, row by row: the sequences are the first one's
            kept = dict.fromkeys(self._probe(op, self._alike(op, {n for n in op.input_names() if n in self.lods})), lods[0])
        for name, lod in kept.items():
            self.lods.setdefault(name, lod)

    def _kept(self, op: Operator, lod: Lod) -> set[str]:
        """Return the outputs that have as many rows as the inputs of a LoD, whatever their number."""
        rows = {n for n in op.input_names() if self.lods.get(n) == lod}
        # Inputs that share a declared size may be rows as well, though no LoD says so: tried only where the strict reading keeps nothing.
        return self._probe(op, rows) or self._probe(op, self._alike(op, rows))

    def _alike(self, op: Operator, rows: set[str]) -> set[str]:
        """Return these inputs and those without LoD that seem to have as many rows."""
        sizes = {self.block.var(n).shape[:1] for n in rows}
        alike = {n for n in op.input_names() if self.block.var(n).shape[:1] in sizes and n not in self.lods}
        return rows | {n for n in alike if not self.block.var(n).persistable}

    def _probe(self, op: Operator, rows: set[str]) -> set[str]:
        found: list[set[str]] = []
        # An output keeps the rows if it follows both sizes: one alone could be hit by chance.
        for size in _PROBES:

            def type_of(name: str, size: int = size) -> TensorType:
                kind = self.block.var(name).type
                return kind.with_shape(size, *kind.shape[1:]) if name in rows and kind.shape else kind

            try:
                types = self.block.infer(op, type_of)
            except PeError:
                # An op that refuses a size, because a layer declares another, keeps no rows of it.
                return set()
            pairs = [(n, t) for s, names in op.outputs.items() for n, t in zip(names, types.get(s, ()), strict=False)]
            found.append({n for n, t in pairs if n != EMPTY and t.shape[:1] == (size,)})
        return found[0] & found[1]


class _Trial(_Walk):
    """A walk that finds out which values must be known before a step and are not; other mistakes are told when the program is run.

    Attributes:
        awaited: names of variables.
    """

    def __init__(self, block: Block, levels: Mapping[str, int]) -> None:
        super().__init__(block, levels)
        self.awaited: set[str] = set()

    def _visit(self, op: Operator) -> None:
        try:
            super()._visit(op)
        except ComputedInStep as error:
            # Numbers of other types are no lengths, which the walk over the part tells.
            if error.name not in self.known and self.block.var(error.name).dtype in ("int64", "int32"):
                self.awaited.add(error.name)
                self.known[error.name] = error.name
                self._visit(op)
        except PeError:
            # Sequences that only an earlier part of the program makes are not there yet.
            return


class _Inner(_Walk):
    """A walk over a region.

    Args:
        outer: over the block of the op that has it.
        region: not changed.
        names: argument -> variable of the block.
        steps: as many of the arguments are one row of that, without sequences.

    Attributes:
        more: variables of the block that its sequence ops are given.
    """

    def __init__(self, outer: _Walk, region: Region, names: Mapping[str, str], steps: int) -> None:
        self.of, self.outer = region, outer
        program = region.program.clone()
        super().__init__(program.main_block, {})
        whole = dict(list(names.items())[steps:])
        # what a gradient is given of the rounds has the sequences that it had there
        forward = outer.inner.get(id(region.like), {})
        self.lods = {name: lod for name, lod in forward.items() if name in region.args}
        self.lods |= {arg: outer.lods[n] for arg, n in whole.items() if n in outer.lods}
        self.known = {arg: outer.known[n] for arg, n in whole.items() if n in outer.known}
        own = set(self.block.vars)
        # Without sequences from outside nothing inside can need their offsets.
        if self.lods:
            for op in self.block.ops:
                self._visit(op)
        read = dict.fromkeys(n for op in self.block.ops for n in op.input_names() if n != EMPTY)
        self.more = [n for n in read if n not in own]

    def _add(self, recipe: Recipe) -> str:
        return self.outer._add(recipe)

    def region(self, more: Sequence[str], given: Mapping[int, tuple[Region, tuple[str, ...]]]) -> Region:
        """Return the region with further arguments."""
        for name in more:
            self._declare(name, self.outer.block.var(name).type)
        like = self.of.like
        if like is not None and id(like) in given:
            like = given[id(like)][0]
        return replace(self.of, program=self.block.program, args=(*self.of.args, *more), like=like)
