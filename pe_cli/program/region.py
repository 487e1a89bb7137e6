"""Regions: ops that another op runs, such as a loop's body. A region is closed: it reads its arguments and nothing else.

So an op with regions is an op like any other to whoever looks at its block: what it reads and writes stands in its slots. Who has to see
the ops inside, too, walks over `every_op` or `blocks_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.traits import HasRegions
from pe_cli.program.ir import EMPTY, Block, Operator, Program

#: Levels of regions within regions.
MAX_DEPTH = 16


@dataclass(frozen=True, eq=False)
class Region:
    """Ops with arguments and results; never changed once it is made.

    Args:
        program: one block, whose variables have names of their own.
        args: variables that no op of it writes, in the order of what it is given.
        results: variables that its ops write, in the order of what it gives.
        like: of a gradient, the region that it is the gradient of: gradients are typed after variables of that.
        like_steps: how many of its arguments are rows of what is gone through.
    """

    program: Program
    args: tuple[str, ...]
    results: tuple[str, ...]
    like: Region | None = None
    like_steps: int = 0

    @property
    def block(self) -> Block:
        """Its ops."""
        return self.program.main_block

    def types(self, args: Sequence[TensorType], like: Sequence[TensorType] = ()) -> dict[str, TensorType]:
        """Return the types of all variables.

        Args:
            args: of the arguments.
            like: of what the region that this is the gradient of is given, and behind that of what its own is.

        Raises:
            PeError: an op does not fit, with its place.
        """
        types: dict[str, TensorType] = {}
        if self.like is not None:
            n, steps = len(self.like.args), self.like_steps
            # Variables of the forward region are typed first, because gradients inside are typed after them.
            types |= self.like.types([*(kind.with_shape(*kind.shape[1:]) for kind in like[:steps]), *like[steps:n]], like[n:])
        types |= dict(zip(self.args, args, strict=True))
        for op in self.block.ops:
            try:
                found = self.block.infer(op, types.__getitem__)
            except PeError as error:
                error.at = error.at or op.at
                raise
            for slot, names in op.outputs.items():
                types |= {n: kind for n, kind in zip(names, found.get(slot, ()), strict=False) if n != EMPTY}
        return types

    def for_test(self) -> Region:
        """Return the region with ops that evaluate; see `Program.clone`."""
        return replace(self, program=self.program.clone(for_test=True))


def regions_of(op: Operator) -> dict[str, Region]:
    """Return the regions that an op runs, by attribute; none for most ops."""
    found = op.definition.get(HasRegions)
    return {name: op.attrs[name] for name in found.attrs if isinstance(op.attrs[name], Region)} if found else {}


def given(op: Operator, region: Region) -> dict[str, str]:
    """Return what a region of an op is given: argument -> variable; an argument that is a row stands for what is gone through."""
    # Arguments are the last of these: a gradient's region is given fewer than the op reads.
    names = [n for slot in ("X", "Init", "Captured") for n in op.inputs.get(slot, ())]
    return dict(zip(region.args, names[-len(region.args) :] if region.args else (), strict=True))


def blocks_of(program: Program) -> Iterator[Block]:
    """Yield the blocks of a program and of all regions in it, the outermost first."""
    for block in program.blocks:
        yield block
        for op in block.ops:
            for region in regions_of(op).values():
                yield from blocks_of(region.program)


def with_inner(op: Operator) -> Iterator[Operator]:
    """Yield an op, and those of its regions and of regions in them."""
    yield op
    for region in regions_of(op).values():
        yield from every_op(region.program)


def every_op(program: Program) -> Iterator[Operator]:
    """Yield the ops of a program's main block in order, each followed by those of its regions.

    `Outline` keeps the names of what a region captures, so that a parameter is called the same in all of these ops.
    """
    for op in program.top_ops:
        yield from with_inner(op)


def changed(op: Operator, change: Callable[[Region], Region]) -> Operator:
    """Return an op with other regions.

    Args:
        op: not changed.
        change: `f(region) -> region`, for each that it has.
    """
    made = {name: change(region) for name, region in regions_of(op).items()}
    return replace(op, attrs={**op.attrs, **made}) if made else op
