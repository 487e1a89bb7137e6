"""`recurrent`, the loop of a StaticRNN over the steps of its inputs, for programs that become model files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.operator_reader import LayerCall, Reader
from pe_cli.io.fluid.program_desc import BlockDesc, OpDesc
from pe_cli.layers.control.loops import Scan
from pe_cli.ops.define.traits import FedSizes
from pe_cli.program.ir import Block
from pe_cli.program.outline import undo
from pe_cli.program.region import MAX_DEPTH


@dataclass
class Recurrent:
    """Reads the loops of a program.

    Args:
        blocks: of the file.
        newest: name in the file -> name of what was written last.
        once: returns an operator by the names here, whose outputs nothing else writes.
        append: appends an operator.

    Attributes:
        inside: first result of a loop -> layers that were called for the operators of a step, numbered from the first one.
        begun: blocks that were read.
    """

    blocks: Sequence[BlockDesc]
    newest: dict[str, str]
    once: Callable[[OpDesc, Block, dict[str, str]], OpDesc]
    append: Callable[[Reader], None]
    inside: dict[str, list[LayerCall]] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    depth: int = 0

    def read(self, o: Reader) -> None:
        """Append a loop.

        Raises:
            PeError: it says what does not fit, or an operator of a step is not read.
        """
        ops, names = list(o.block.ops), set(o.block.vars)
        newest, self.depth = dict(self.newest), self.depth + 1
        try:
            self._read(o)
        except PeError:
            undo(o.block, ops, names)
            raise
        finally:
            self.newest.clear()
            self.newest.update(newest)
            self.depth -= 1

    def _read(self, o: Reader) -> None:
        steps = self._steps(o)
        inputs, starts, outputs = o.names("inputs"), o.names("initial_states"), o.names("outputs", outputs=True)
        before, after = ([str(n) for n in o.op.attrs.get(name, [])] for name in ("ex_states", "states"))
        if not inputs or not outputs or not len(before) == len(after) == len(starts):
            raise PeError(f"it has {len(inputs)} inputs and {len(starts)} states, which are {len(before)} and {len(after)} names inside")
        loop, calls = Scan(o.block), list[LayerCall]()
        whole = {current: name for name, current in self.newest.items()}
        for name in inputs:
            # Inside, a step is called like the whole in the file.
            self.newest[whole.get(name, name)] = loop.input(o.block.var(name)).name
        held = [loop.state(o.block.var(name)) for name in starts]
        self.newest.update(zip(before, (v.name for v in held), strict=True))
        for number, op in enumerate(steps):
            self._step(o, op, number, calls)
        for state, name in zip(held, after, strict=True):
            loop.update(state, o.block.var(self.newest.get(name, name)))
        for name in outputs:
            loop.output(o.block.var(self.newest.get(name, name)))
        begin = loop.outline.begin
        outs, _ = loop.close(backwards=o.attr("reverse", False))
        for name, v in zip(outputs, outs, strict=True):
            o.block.rename_var(v.name, name, begin)
        self.inside[outputs[0]] = [
            LayerCall(call.layer, call.given, call.begin - begin, call.end - begin, call.result) for call in calls
        ]

    def _steps(self, o: Reader) -> Sequence[OpDesc]:
        """Return the operators of a step.

        Raises:
            PeError: there is no such block, or one that two operators run, or loops in too many others.
        """
        number = o.op.attrs.get("sub_block")
        if not isinstance(number, int) or not 0 < number < len(self.blocks):
            raise PeError(f"it runs block {number!r:.20}, and there are {len(self.blocks)}")
        if number in self.begun or self.depth > MAX_DEPTH:
            raise PeError(f"block {number} is run by two operators, or inside of more than {MAX_DEPTH} loops")
        self.begun.add(number)
        return self.blocks[number].ops

    def _step(self, o: Reader, op: OpDesc, number: int, calls: list[LayerCall]) -> None:
        if op.type == "rnn_memory_helper":
            names = op.inputs.get("X", []), op.outputs.get("Out", [])
            if [len(n) for n in names] != [1, 1]:
                raise PeError(f"operator {number} of its block, {op.type}, has other slots than one X and one Out")
            self.newest[names[1][0]] = self.newest.get(names[0][0], names[0][0])
            return
        inner = Reader(self.once(op, o.block, self.newest), o.block, number, len(o.block.ops), calls)
        self.append(inner)
        for made in o.block.ops[inner.begin :]:
            sizes = made.definition.get(FedSizes)
            if sizes is not None and any(made.inputs.get(slot) for slot in sizes.attrs):
                text = f"operator {number} of its block, {op.type}, takes a size from a variable"
                raise PeError(text, hint="write a number in its place", code=ExitCode.DATA)
