"""Programs with data-dependent sizes: they are cut where a size becomes known, and each part has plans for the sizes that occur.

An op that runs on the host (`OnHost`) is a part of its own, and so is a loop with such ops inside, whose rounds are steps of a cut
program. An op with a fed size (`FedSizes`) begins a part, unless what it waits for is fed; it is lowered with the attribute's value of
that step. What parts hand on is copied out and in again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.execute.seeds import seed_of
from pe_cli.ops.define.lod import HostRun, Leveled, Many
from pe_cli.ops.define.registry import forward_name
from pe_cli.ops.define.traits import FedSizes, HasRegions, OnHost, Runs
from pe_cli.program.ir import Operator, Program
from pe_cli.program.region import Region, regions_of

#: Name -> value, an array, or a `Leveled` one that has sequences.
Values = dict[str, Any]
#: Runs a program once: (program, values of what it reads for each device, names, number of the step) -> values of those for each device.
Once = Callable[[Program, list[Values], list[str], int], list[Values]]
#: Returns the value of a variable that lives between steps.
Kept = Callable[[str], Any]
#: Writes one.
Keep = Callable[[str, Any], None]
#: Forms of a part that are kept, one for each value of its fed sizes.
MOST = 8


def is_dynamic(program: Program) -> bool:
    """Return whether a program has sizes that only values tell."""
    return any(op.definition.has(OnHost) or size_inputs(op) or _goes_round(op) for op in program.top_ops)


def _goes_round(op: Operator) -> bool:
    """Return whether an op is a loop that goes round on the host, as its ops run there or its states change their sizes."""
    regions = op.definition.get(HasRegions)
    if regions is None or regions.runs is not Runs.WHILE:
        return False
    return bool(op.attrs.get("varying")) or any(is_dynamic(r.program) for r in regions_of(op).values())


def size_inputs(op: Operator) -> list[str]:
    """Return the variables whose values are attributes of an op."""
    return [name for slot in fed_attributes(op) for name in op.inputs.get(slot, ())]


def fed_attributes(op: Operator) -> Mapping[str, str]:
    """Return the slots of an op that give sizes, with their attributes."""
    sizes = op.definition.get(FedSizes)
    return sizes.attrs if sizes else {}


def unseen(op: Operator) -> set[str]:
    """Return the states of a loop that nobody reads before a round writes them: they need no value before the first round."""
    if not op.attrs.get("varying"):
        return set()
    regions = op.attrs["condition"], op.attrs["body"]
    reads = {name for region in regions for o in region.block.ops for name in o.input_names()}
    return {name for arg, name in zip(regions[1].args, op.inputs.get("Init", ()), strict=False) if arg not in reads}


@dataclass
class _Part:
    """Operators begin to end of a program.

    Args:
        ops: they.
        begin: number of the first.
        host: it is one that runs on the host.
        loop: it is one that goes round on the host.
    """

    ops: list[Operator]
    begin: int
    host: bool = False
    loop: _Loop | None = None
    forms: OrderedDict[tuple[Any, ...], Program] = field(default_factory=OrderedDict)

    @property
    def reads(self) -> list[str]:
        """What is read before it is written here, fed sizes too."""
        made: set[str] = set()
        found: dict[str, None] = {}
        for op in self.ops:
            found |= dict.fromkeys(n for n in op.input_names() if n not in made)
            made |= set(op.output_names())
        return list(found)

    @property
    def likes(self) -> list[str]:
        """What is not read here but gives its type to a gradient."""
        here = {*self.reads, *self.writes}
        grads = (n for op in self.ops if op.definition.is_grad_of for n in op.output_names())
        return [n for n in dict.fromkeys(map(forward_name, grads)) if n not in here]

    @property
    def writes(self) -> list[str]:
        """What is written."""
        return list(dict.fromkeys(n for op in self.ops for n in op.output_names()))


class DynamicProgram:
    """A program in parts.

    Args:
        program: cut as it is now.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps = 0
        self.seed = seed_of(program)
        self._parts: list[_Part] = []
        written: set[str] = set()
        for i, op in enumerate(program.top_ops):
            if op.definition.has(OnHost) or _goes_round(op):
                loop = _Loop(op, self) if _goes_round(op) else None
                # Behind an op of the host a new part begins even if it stays empty: what the host writes is fed to it like any other value.
                self._parts += [_Part([op], i, host=loop is None, loop=loop), _Part([], i + 1)]
                written = set()
                continue
            # A size that is made here must be known before the part that has it is planned.
            if not self._parts or written & set(size_inputs(op)):
                self._parts.append(_Part([], i))
                written = set()
            self._parts[-1].ops.append(op)
            written |= set(op.output_names())
        self._parts = [part for part in self._parts if part.ops]

    def run(
        self,
        feeds: Sequence[Mapping[str, Any]],
        fetches: Sequence[str],
        once: Once,
        kept: Kept,
        keep: Keep | None = None,
    ) -> list[Values]:
        """Run one step.

        Args:
            feeds: for each device.
            fetches: names.
            once: runs a part.
            kept: returns the value of a variable that lives between steps.
            keep: writes one that an op on the host made.

        Returns:
            For each device: name -> value.

        Raises:
            PeError: a size that is not the same on all devices, or what a host op raises; with its place.
        """
        block = self.program.main_block
        lasting = {v.name for v in self.program.persistables()}
        values: list[Values] = [dict(feed) for feed in feeds]

        def leveled(name: str, device: int) -> Any:
            found = values[device][name] if name in values[device] else kept(name)
            return found if isinstance(found, (Leveled, Many)) else Leveled(np.asarray(found))

        def value(name: str, device: int) -> Any:
            return leveled(name, device).array

        for i, part in enumerate(self._parts):
            # Only what somebody needs later leaves a part: the rest stays in its temporary memory.
            # Everything else is an activation of one part, and would be copied to the host and back for nothing.
            later = {n for other in self._parts[i + 1 :] for n in (*other.reads, *other.likes)} | set(fetches)
            if part.host or part.loop:
                if part.loop:
                    part.loop.run(values, leveled, once, kept, keep)
                else:
                    _run_host(part.ops[0], values, leveled, block, (self.seed, part.begin, self.steps))
                for name in lasting.intersection(part.writes):
                    # Devices would keep different values of one variable, and none of them would be the right one.
                    if keep is None or len(values) > 1:
                        op = part.ops[0]
                        message = f"{op.type}: '{name}' lives between steps, which it does on one device alone"
                        raise PeError(message, at=op.at, hint="run it on one device")
                    keep(name, np.asarray(values[0].pop(name)))
                continue
            shapes = {n: {np.shape(leveled(n, d).array) for d in range(len(values))} for n in part.likes if n in values[0]}
            # A variable that lives between steps lies in the scope; parts that follow read it there, so it does not go on as a value of
            # this step.
            form = self._form(part, lambda name: [value(name, d) for d in range(len(values))], shapes)
            reads = [n for n in part.reads if n in values[0]]
            wanted = [n for n in part.writes if n in later and n not in lasting]
            if i + 1 == len(self._parts):
                wanted += [n for n in fetches if n in lasting]
            made = once(form, [{n: v[n] for n in reads} for v in values], wanted, self.steps)
            for known, new in zip(values, made, strict=True):
                known.update(new)
        # A fetched parameter is read after the last part, when its update is done.
        self.steps += 1
        return [{n: v[n] if n in v else kept(n) for n in fetches} for v in values]

    def _form(self, part: _Part, values: Callable[[str], list[Any]], shapes: Mapping[str, set[tuple[int, ...]]]) -> Program:
        """Return a part as a program, with the values of fed sizes, and the types of what only gives a type."""
        sizes_now: list[tuple[int, str, Any]] = []
        for i, op in enumerate(part.ops):
            for slot, attr in fed_attributes(op).items():
                for name in op.inputs.get(slot, ()):
                    sizes_now.append((i, slot, attribute_of(op, attr, name, values(name))))
        # Where devices differ the declared type stays, which leaves the size open.
        alike = {name: next(iter(found)) for name, found in shapes.items() if len(found) == 1}
        # The key has values and not types alone: the number becomes an attribute, and with it a constant of the kernels' calls.
        key = (*((i, slot, tuple(v) if isinstance(v, list) else v) for i, slot, v in sizes_now), *alike.items())
        if key not in part.forms:
            made = self.program.clone()
            block = made.main_block
            block.ops = block.ops[part.begin : part.begin + len(part.ops)]
            give_sizes([(block.ops[i], slot, v) for i, slot, v in sizes_now])
            for name, shape in alike.items():
                # With the size known, a gradient that is typed after this variable is inferred though no op of the part writes it.
                block.vars[name].type, block.vars[name].is_data = block.vars[name].type.with_shape(*shape), False
            part.forms[key] = made
            while len(part.forms) > MOST:
                part.forms.popitem(last=False)
        part.forms.move_to_end(key)
        return part.forms[key]


def give_sizes(sizes: Sequence[tuple[Operator, str, Any]]) -> None:
    """Put numbers in place of variables that give sizes: an op, the slot, and what becomes of its attribute."""
    for op, slot, value in sizes:
        del op.inputs[slot]
        op.attrs[fed_attributes(op)[slot]] = value


def attribute_of(op: Operator, attr: str, name: str, values: list[Any]) -> Any:
    """Return a variable's value as an attribute.

    Raises:
        PeError: devices have different ones, or it is not one number where one is needed.
    """
    numbers = [[int(n) for n in np.ravel(v)] for v in values]
    if any(n != numbers[0] for n in numbers):
        raise PeError(f"{op.type}: '{name}' gives {attr}, but is not the same on all devices: {numbers}", at=op.at)
    if isinstance(op.definition.attrs[attr].default, list):
        return numbers[0]
    if not numbers[0]:
        raise PeError(f"{op.type}: '{name}' gives {attr}, but is empty", at=op.at)
    return numbers[0][0]


class _Loop:
    """A while whose rounds are steps of a cut program; all devices go round together.

    Args:
        op: it.
        around: the program that it belongs to.
    """

    def __init__(self, op: Operator, around: DynamicProgram) -> None:
        self.op = op
        lasting = {v.name for v in around.program.persistables()}
        self._test, self._body = (self._program(op.attrs[name], lasting, around.seed) for name in ("condition", "body"))

    def _program(self, region: Region, lasting: set[str], seed: int) -> DynamicProgram:
        """Return a region as a program. What it only reads and lives between steps does so inside, too, and is not handed on."""
        made = region.program.clone()
        made.random_seed = seed
        # A captured variable that lives between steps is read from the scope in every round: fed once, it would keep its value of the first
        # round.
        for name in set(self.op.inputs.get("Captured", ())) & lasting & set(made.vars):
            made.vars[name].persistable, made.vars[name].is_data = True, False
        return DynamicProgram(made)

    def run(self, values: list[Values], value: Callable[[str, int], Any], once: Once, kept: Kept, keep: Keep | None) -> None:
        """Go round, and write the last states.

        Args:
            values: for each device: name -> value; gets the states.
            value: returns that of a variable on a device.
            once, kept, keep: see `DynamicProgram.run`.

        Raises:
            PeError: the condition differs from device to device, or there are more rounds than `bound`; what a round raises.
        """
        op, test, body = self.op, self.op.attrs["condition"], self.op.attrs["body"]
        before = op.inputs.get("Init", [])
        given = [*before, *op.inputs.get("Captured", [])]

        def fed(region: Region, cut: DynamicProgram, states: list[list[Any]]) -> list[Values]:
            fixed = {v.name for v in cut.program.persistables()}
            each = [[*now, *(value(n, d) for n in given[len(now) :])] for d, now in enumerate(states)]
            return [{n: v for n, v in zip(region.args, found, strict=True) if n not in fixed} for found in each]

        free = unseen(op)

        def start(arg: str, name: str, device: int) -> Any:
            if name in values[device] or name not in free:
                return value(name, device)
            kind = body.block.vars[arg].type
            return np.zeros([max(size, 0) for size in kind.shape], kind.numpy)

        # A state that is written before it is read begins as zeros of its declared type, open sizes as 0, because nobody looks at them.
        states = [[start(a, n, d) for a, n in zip(body.args, before, strict=False)] for d in range(len(values))]
        rounds, bound = 0, int(op.attrs["bound"])
        while self._holds(test, fed(test, self._test, states), once, kept, keep):
            rounds += 1
            if bound and rounds > bound:
                raise PeError(f"while: its condition still holds after {bound} rounds", at=op.at, hint="raise its bound")
            found = self._body.run(fed(body, self._body, states), body.results, once, kept, keep)
            states = [[v[n] for n in body.results[: len(before)]] for v in found]
        for known, after in zip(values, states, strict=True):
            known.update(zip(op.outputs.get("Final", []), after, strict=True))
            known.update(dict.fromkeys(op.outputs.get("Count", []), np.array([rounds], np.int64)))

    def _holds(self, test: Region, feeds: list[Values], once: Once, kept: Kept, keep: Keep | None) -> bool:
        flags = [bool(np.ravel(v[test.results[0]])[0]) for v in self._test.run(feeds, test.results, once, kept, keep)]
        if len(set(flags)) > 1:
            raise PeError("the loop goes on on some devices and ends on others", at=self.op.at, hint="run it on one device")
        return flags[0]


def _run_host(op: Operator, values: list[Values], value: Callable[[str, int], Any], block: Any, seed: tuple[int, ...]) -> None:
    """Run an op on the host, device by device."""
    host = op.definition.get(OnHost)
    assert host is not None
    for device, known in enumerate(values):
        inputs = {slot: [value(n, device) for n in names] for slot, names in op.inputs.items()}
        try:
            if host.whole:
                made = host.compute(HostRun(op.type, inputs, op.attrs, (*seed, device)))
            else:
                made = host.compute({slot: [v.array for v in found] for slot, found in inputs.items()}, op.attrs)
        except PeError as error:
            error.at = error.at or op.at
            raise
        for slot, names in op.outputs.items():
            for name, found in zip(names, made[slot], strict=True):
                if isinstance(found, Many):
                    known[name] = found
                    continue
                array = np.ascontiguousarray(found, block.vars[name].type.numpy)
                known[name] = Leveled(array, found.lod) if isinstance(found, Leveled) and found.lod else array
