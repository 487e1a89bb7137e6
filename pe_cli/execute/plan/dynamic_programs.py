"""Programs with data-dependent sizes: they are cut where a size becomes known, and each part has plans for the sizes that occur.

An op that runs on the host (`OnHost`) is a part of its own, and so is a loop or a branch with such ops inside, which are cut programs.
An op with a fed size (`FedSizes`) begins a part, unless what it waits for is fed; it is lowered with the attribute's value of that
step. What parts hand on is copied out and in again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.execute.plan.program_parts import Part, fed_attributes, parts_of, unseen
from pe_cli.execute.seeds import seed_of
from pe_cli.ops.define.lod import HostRun, Leveled, Many
from pe_cli.ops.define.traits import OnHost, View
from pe_cli.program.ir import Operator, Program
from pe_cli.program.operator import ByDevice
from pe_cli.program.region import Region

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


class DynamicProgram:
    """A program in parts.

    Args:
        program: cut as it is now; it is not changed later.
        awaited: variables that sequences follow from, which begin a part as sizes do.

    Attributes:
        lasting: variables that live between steps.
    """

    def __init__(self, program: Program, awaited: Set[str] = frozenset()) -> None:
        self.program = program
        self.steps = 0
        self.seed = seed_of(program)
        self.lasting = {v.name for v in program.persistables()}
        self._parts = parts_of(program, awaited)
        self._directed = {id(part): _directed(part.ops[0], self) for part in self._parts if part.directed}
        self._wanted: dict[tuple[str, ...], list[list[str]]] = {}

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
            PeError: a variable without a number where a size is one, or what a host op raises; with its place.
        """
        values: list[Values] = [dict(feed) for feed in feeds]

        def leveled(name: str, device: int) -> Any:
            known = values[device]
            found = known[name] if name in known else kept(name)
            return found if isinstance(found, (Leveled, Many)) else Leveled(np.asarray(found))

        for part, wanted in zip(self._parts, self._leaving(fetches), strict=True):
            if part.host or part.directed:
                self._alone(part, values, leveled, once, kept, keep)
                continue
            form = self._form(part, values, leveled)
            reads = [n for n in (*part.reads, *part.likes) if n in values[0]]
            made = once(form, [{n: v[n] for n in reads} for v in values], wanted, self.steps)
            for known, new in zip(values, made, strict=True):
                known.update(new)
        # A fetched parameter is read after the last part, when its update is done.
        self.steps += 1
        return [{n: v[n] if n in v else kept(n) for n in fetches} for v in values]

    def _leaving(self, fetches: Sequence[str]) -> list[list[str]]:
        """Return for every part what somebody needs later: the rest stays in its temporary memory."""
        key = tuple(fetches)
        if key not in self._wanted:
            later, found = set(fetches), []
            for part in reversed(self._parts):
                found.append([n for n in part.writes if n in later and n not in self.lasting])
                later.update(part.reads, part.likes)
            if found:
                found[0] += [n for n in fetches if n in self.lasting]
            while len(self._wanted) >= MOST:
                del self._wanted[next(iter(self._wanted))]
            self._wanted[key] = found[::-1]
        return self._wanted[key]

    def _alone(
        self, part: Part, values: list[Values], value: Callable[[str, int], Any], once: Once, kept: Kept, keep: Keep | None
    ) -> None:
        """Run an op, go round a loop or take a branch, on the host.

        Raises:
            PeError: what it raises, or it writes what lives between steps on several devices.
        """
        if part.directed:
            self._directed[id(part)].run(values, value, once, kept, keep)
        else:
            _run_host(part.ops[0], values, value, self.program.main_block, (self.seed, part.places[0], self.steps))
        for name in part.writes:
            if name not in self.lasting:
                continue
            # Devices would keep different values of one variable, and none of them would be the right one.
            if keep is None or len(values) > 1:
                op = part.ops[0]
                message = f"{op.type}: '{name}' lives between steps, which it does on one device alone"
                raise PeError(message, at=op.at, hint="run it on one device")
            keep(name, np.asarray(values[0].pop(name)))

    def _form(self, part: Part, values: Sequence[Values], leveled: Callable[[str, int], Any]) -> Program:
        """Return a part as a program, with the values of fed sizes."""
        devices = range(len(values))
        sizes_now = [
            (i, slot, attribute_of(part.ops[i], attr, name, [leveled(name, d).array for d in devices]))
            for i, slot, attr, name in part.sized
        ]
        key = tuple((i, slot, tuple(v) if isinstance(v, list) else v) for i, slot, v in sizes_now)
        if key not in part.forms:
            made = self.program.clone()
            block = made.main_block
            block.ops = [block.ops[i] for i in part.places]
            give_sizes([(block.ops[i], slot, v) for i, slot, v in sizes_now])
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
    """Return a variable's values on devices as an attribute: one for all, or a `ByDevice`.

    Raises:
        PeError: there is no number where one is needed.
    """
    numbers = [tuple(int(n) for n in np.ravel(v)) for v in values]
    found: list[Any] = [*numbers] if isinstance(op.definition.attrs[attr].default, list) else [next(iter(n), None) for n in numbers]
    if None in found:
        raise PeError(f"{op.type}: '{name}' gives {attr}, but is empty", at=op.at)
    if any(value != found[0] for value in found):
        return ByDevice(tuple(found))
    return [*found[0]] if isinstance(found[0], tuple) else found[0]


def _directed(op: Operator, around: DynamicProgram) -> _Loop | _Branch:
    return _Branch(op, around) if "yes" in op.attrs else _Loop(op, around)


def _cut(region: Region, op: Operator, around: DynamicProgram) -> DynamicProgram:
    """Return a region as a program. What it only reads and lives between steps does so inside, too, and is not handed on."""
    made = region.program.clone()
    made.random_seed = around.seed
    # A captured variable that lives between steps is read from the scope in every round: fed once, it would keep its value of the first
    # round.
    for name in set(op.inputs.get("Captured", ())) & around.lasting & set(made.vars):
        made.vars[name].persistable, made.vars[name].is_data = True, False
    return DynamicProgram(made)


class _Branch:
    """A cond of which a region is a cut program; all devices take the same one.

    Args:
        op: it.
        around: the program that it belongs to.
    """

    def __init__(self, op: Operator, around: DynamicProgram) -> None:
        self.op = op
        self._cut = {name: _cut(op.attrs[name], op, around) for name in ("yes", "no")}

    def run(self, values: list[Values], value: Callable[[str, int], Any], once: Once, kept: Kept, keep: Keep | None) -> None:
        """Run one region, and write its results; arguments are those of `_Loop.run`.

        Raises:
            PeError: the condition differs from device to device; what the region raises.
        """
        op, devices = self.op, range(len(values))
        flags = {bool(np.ravel(value(op.inputs["Condition"][0], d).array)[0]) for d in devices}
        if len(flags) > 1:
            raise PeError("some devices take one branch and others the other", at=op.at, hint="run it on one device")
        name = "yes" if flags.pop() else "no"
        region, cut = op.attrs[name], self._cut[name]
        given = list(zip(region.args, op.inputs.get("Captured", ()), strict=True))
        fed = [{arg: value(n, d) for arg, n in given if arg not in cut.lasting} for d in devices]
        found = cut.run(fed, region.results, once, kept, keep)
        for known, made in zip(values, found, strict=True):
            known.update((n, made[r]) for n, r in zip(op.outputs.get("Out", ()), region.results, strict=True))


class _Loop:
    """A while whose rounds are steps of a cut program; all devices go round together.

    Args:
        op: it.
        around: the program that it belongs to.
    """

    def __init__(self, op: Operator, around: DynamicProgram) -> None:
        self.op = op
        self._test, self._body = (_cut(op.attrs[name], op, around) for name in ("condition", "body"))
        self._tested = _copied(op.attrs["condition"])

    def run(self, values: list[Values], value: Callable[[str, int], Any], once: Once, kept: Kept, keep: Keep | None) -> None:
        """Go round, and write the last states.

        Args:
            values: for each device: name -> value; gets the states.
            value: returns that of a variable on a device.
            once, kept, keep: see `DynamicProgram.run`.

        Raises:
            PeError: the condition differs from device to device, or there are more rounds than `bound`; what a round raises.
        """
        op, body = self.op, self.op.attrs["body"]
        before, free = op.inputs.get("Init", []), unseen(op)

        def start(arg: str, name: str, device: int) -> Any:
            if name in values[device] or name not in free:
                return value(name, device)
            kind = body.block.vars[arg].type
            return np.zeros([max(size, 0) for size in kind.shape], kind.numpy)

        # A state that is written before it is read begins as zeros of its declared type, open sizes as 0, because nobody looks at them.
        states = [[start(a, n, d) for a, n in zip(body.args, before, strict=False)] for d in range(len(values))]
        captured = [self._captured(d, value) for d in range(len(values))]
        rounds, bound = 0, int(op.attrs["bound"])
        while self._holds(states, captured, once, kept, keep):
            rounds += 1
            if bound and rounds > bound:
                raise PeError(f"while: its condition still holds after {bound} rounds", at=op.at, hint="raise its bound")
            fed = [dict(zip(body.args, now, strict=False)) | more for now, (_, more) in zip(states, captured, strict=True)]
            found = self._body.run(fed, body.results, once, kept, keep)
            states = [[v[n] for n in body.results[: len(before)]] for v in found]
        for known, after in zip(values, states, strict=True):
            known.update(zip(op.outputs.get("Final", []), after, strict=True))
            known.update(dict.fromkeys(op.outputs.get("Count", []), np.array([rounds], np.int64)))

    def _captured(self, device: int, value: Callable[[str, int], Any]) -> list[Values]:
        """Return what the condition and the body read from around the loop on a device, but for what lives between steps."""
        names, skipped = self.op.inputs.get("Captured", []), len(self.op.inputs.get("Init", []))
        found: list[Values] = []
        for region, cut in ((self.op.attrs["condition"], self._test), (self.op.attrs["body"], self._body)):
            given = zip(region.args[skipped:], names, strict=True)
            found.append({arg: value(name, device) for arg, name in given if arg not in cut.lasting})
        return found

    def _holds(
        self, states: Sequence[Sequence[Any]], captured: Sequence[list[Values]], once: Once, kept: Kept, keep: Keep | None
    ) -> bool:
        test = self.op.attrs["condition"]
        fed = [dict(zip(test.args, now, strict=False)) | more for now, (more, _) in zip(states, captured, strict=True)]
        if self._tested is None:
            fed = self._test.run(fed, test.results, once, kept, keep)
        flags = [bool(np.ravel(v[self._tested or test.results[0]])[0]) for v in fed]
        if len(set(flags)) > 1:
            raise PeError("the loop goes on on some devices and ends on others", at=self.op.at, hint="run it on one device")
        return flags[0]


def _copied(test: Region) -> str | None:
    """Return the argument that a condition hands on as it is; None where it computes something."""
    ops = test.program.top_ops
    copies = len(ops) == 1 and ops[0].definition.has(View) and ops[0].output_names() == [*test.results[:1]]
    source = ops[0].input_names()[0] if copies else test.results[0]
    return source if len(ops) == copies and source in test.args else None


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
