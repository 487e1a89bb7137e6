"""The gradient of a scan or a while: a scan that runs backwards over rows that the loop collects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import find, forward_name, grad_name
from pe_cli.ops.define.traits import HasRegions, Runs, SumsRows
from pe_cli.program.ir import EMPTY, Operator, Role
from pe_cli.program.outline import copied
from pe_cli.program.region import Region
from pe_cli.program.region_gradient_parts import RegionGradient, flows, given_gradient, keep_only, own_variable


@dataclass(frozen=True)
class _Joint:
    """The gradient of what all rounds get alike, made of the rows of all of them at once.

    Args:
        type, attrs: of the gradient op.
        rows: input slot -> variable of a round.
        sizes: input slot -> sizes of its rows, one behind the other.
        shared: input slot -> what all rounds get alike.
        slot: of its output.
        constant: whose gradient it is.
    """

    type: str
    attrs: Mapping[str, Any]
    rows: Mapping[str, str]
    sizes: Mapping[str, Sequence[int]]
    shared: Mapping[str, str]
    slot: str
    constant: str


class LoopGradient(RegionGradient):
    """The gradient of a scan or a while: a scan the other way round."""

    def append(self) -> None:
        """Append it."""
        op = self.op
        self.xs, self.inits, self.captured = (op.inputs.get(slot, []) for slot in ("X", "Init", "Captured"))
        self.region: Region = op.attrs["body"]
        self._check_bound()
        region, n = self.region, len(self.xs)
        args = region.args
        self.x_args, self.states, self.constants = args[:n], args[n : n + len(self.inits)], args[n + len(self.inits) :]
        self.made = region.program.clone()
        self.inner = self.made.main_block
        forward = list(self.inner.ops)
        active = self._active(forward)
        # All ops from here on are appended behind the forward ops, and are told from them by their place.
        with self.made.role(Role.BACKWARD):
            starts = self._starts(active)
            found = self.walk(self.inner, active).run(list(starts), list(starts.values()))
            updates, outs = self._results(active, found)
        # Copies that the walk made among the forward ops moved the beginning of the gradient.
        begin = self.inner.ops.index(forward[-1]) + 1 if forward else 0
        self._forward(begin)
        backward = self.inner.ops[begin:]
        written = {n for o in backward for n in o.output_names()}
        # What the gradient reads and does not write comes from outside: collected rows, or what all rounds get alike.
        reads = dict.fromkeys(n for o in backward for n in o.input_names() if n not in written)
        self._append(active, updates, outs, reads, backward)
        self.join()

    def _forward(self, count: int) -> None:
        """Rebuild the op's region from its forward ops as they are now: loops among them may collect more."""
        program = self.made.clone()
        block = program.main_block
        keep_only(block, block.ops[:count], self.region.args)
        self.region = replace(self.region, program=program)
        self.op.attrs = {**self.op.attrs, "body": self.region}

    def _check_bound(self) -> None:
        if self.op.attrs.get("varying"):
            raise PeError(
                "no gradients flow through a while whose states change their sizes",
                at=self.op.at,
                hint="pad the states to one size, or end the gradients before it: stop_gradient",
            )
        if self.op.definition.get(HasRegions).runs is Runs.WHILE and not self.op.attrs["bound"]:  # type: ignore[union-attr]
            raise PeError(
                "gradients flow through a while without a bound, and what its rounds compute has to be kept",
                at=self.op.at,
                hint="give it a bound: the most rounds that there can be",
            )

    def _active(self, forward: list[Operator]) -> set[str]:
        """Return the arguments that gradients are computed for: the wanted ones, and states that depend on them."""
        outer = [*self.xs, *self.inits, *self.captured]
        found = {a for a, name in zip(self.region.args, outer, strict=True) if name in self.wanted and flows(self.inner.vars[a])}
        # A state depends on itself by way of earlier rounds: repeated until no state is added.
        while True:
            reach = self.walk(self.inner, found).reachable(forward)
            more = {s for s, u in zip(self.states, self.region.results, strict=False) if u in reach and flows(self.inner.vars[s])}
            if more <= found:
                return found
            found |= more

    def _starts(self, active: set[str]) -> dict[str, str]:
        """Return the results with a gradient, each with the argument that it is."""
        found: dict[str, str] = {}
        self.out_grads: list[tuple[str, str]] = []  # argument, rows outside
        self.state_grads: dict[str, str] = {}  # state -> argument
        results = self.region.results
        sums: list[tuple[str, str]] = []
        # Results begin with the new states, in the order of states.
        for state, update in zip(self.states, results, strict=False):
            if state in active:
                self.state_grads[state] = given_gradient(self.inner, update)
                sums.append((update, self.state_grads[state]))
        for result, name in zip(results[len(self.states) :], self.op.outputs.get("Out", []), strict=True):
            if name in self.grads:
                self.out_grads.append((given_gradient(self.inner, result), self.grads[name]))
                sums.append((result, self.out_grads[-1][0]))
        for result, start in sums:
            if result in found:  # collected and a state: both gradients count
                both = self.inner.program.unique(f"{grad_name(result)}@SUM")
                self.inner.append_op("sum", {"X": [found[result], start]}, {"Out": both})
                found[result] = both
            else:
                found[result] = start
        return found

    def _results(self, active: set[str], found: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return the variables that become the gradient's states, and those that it collects."""
        given = [*self.state_grads.values(), *(a for a, _ in self.out_grads)]
        updates = [own_variable(self.inner, found.get(s), s, given) for s in self.state_grads]
        self.sums: dict[str, str] = {}
        self.joint: list[_Joint] = []
        # What all rounds share has a gradient that is summed over rounds: as a state of the gradient, or at once over all rows.
        for c in self.constants:
            if c not in active:
                continue
            joint = self._joint_of(c, found.get(c))
            if joint is not None:
                self.joint.append(joint)
                continue
            total = self.inner.create_var(self.made.unique(f"{grad_name(c)}@TOTAL"), self.inner.vars[c].type, is_data=True).name
            self.sums[c] = total
            # No round changes the sum, but a state needs an update all the same.
            if found.get(c) is None:
                updates.append(copied(self.inner, total))
                continue
            made = self.made.unique(f"{grad_name(c)}@TOTAL")
            self.inner.append_op("sum", {"X": [total, found[c]]}, {"Out": made})
            updates.append(made)
        outs = []
        for a in self.x_args:
            if a in active:
                own = own_variable(self.inner, found.get(a), a, given)
                outs.append(copied(self.inner, own) if own in updates or own in outs else own)
        return updates, outs

    def _joint_of(self, constant: str, gradient: str | None) -> _Joint | None:
        """Take the gradient of what all rounds get alike out of the rounds, where it can be made of all their rows at once."""
        ops = self.inner.ops
        # Made by one op and read by none, it can leave the rounds.
        makers = [o for o in ops if gradient in o.output_names()]
        counted = "Count" in self.op.inputs or "Count" in self.op.outputs  # rows beyond are not written
        if counted or len(makers) != 1 or any(gradient in o.input_names() for o in ops):
            return None
        (maker,) = makers
        joint = self._joint(maker, next(s for s, names in maker.outputs.items() if gradient in names), constant)
        if joint is not None:
            maker.outputs = {s: names for s, names in maker.outputs.items() if s != joint.slot}
            if not maker.output_names():
                ops.remove(maker)
        return joint

    def _joint(self, maker: Operator, slot: str, constant: str) -> _Joint | None:
        """Return what an op is for all rounds at once, None where it is no such op."""
        trait = find(maker.definition.is_grad_of).get(SumsRows) if maker.definition.is_grad_of else None
        single = {s: names[0] for s, names in maker.inputs.items() if len(names) == 1}
        if trait is None or forward_name(slot) not in trait.slots or len(single) < len(maker.inputs) or len(maker.outputs[slot]) > 1:
            return None
        shapes = {forward_name(s): self.inner.vars[n].type.shape for s, n in single.items()}
        shapes[forward_name(slot)] = self.inner.vars[constant].type.shape
        rows = {s: n for s, n in single.items() if s not in trait.slots}
        shared = {s: n for s, n in single.items() if s in trait.slots}
        sizes = {s: shapes[forward_name(s)] for s in rows}
        fits = set(shared.values()) <= set(self.constants) and not set(rows.values()) & set(self.constants)
        if not fits or not trait.applies(maker.attrs, shapes) or any(not row or -1 in row[1:] for row in sizes.values()):
            return None
        # The first axis of the rows becomes rounds times rows: a product of all rounds at once instead of one in each.
        return _Joint(maker.type, maker.attrs, rows, {s: [-1, *row[1:]] for s, row in sizes.items()}, shared, slot, constant)

    def _append_joint(self, joint: _Joint, rows: Mapping[str, str], outer_of: Mapping[str, str]) -> None:
        """Append the gradient of what all rounds get alike, of all their rows at once."""
        ins: dict[str, str] = {slot: outer_of[name] for slot, name in joint.shared.items()}
        for slot, name in joint.rows.items():
            flat = self.block.program.unique(f"{rows[name]}@FLAT")
            self.block.append_op("reshape", {"X": rows[name]}, {"Out": flat}, {"shape": list(joint.sizes[slot])}, at=self.op.at)
            ins[slot] = flat
        self.block.append_op(joint.type, ins, {joint.slot: self.part(outer_of[joint.constant])}, joint.attrs, at=self.op.at)

    def _append(
        self,
        active: set[str],
        updates: Sequence[str],
        outs: Sequence[str],
        reads: Mapping[str, None],
        backward: Sequence[Operator],
    ) -> None:
        block, op = self.block, self.op
        inner_grads = [*self.state_grads.values(), *(a for a, _ in self.out_grads), *self.sums.values()]
        fixed = [c for c in self.constants if c in reads]
        outer_of = dict(zip(self.region.args, [*self.xs, *self.inits, *self.captured], strict=True))
        rows: dict[str, str] = {a: outer_of[a] for a in self.x_args if a in reads}
        kept = [n for n in reads if n not in rows and n not in fixed and n not in inner_grads]
        every = {a: outer_of[a] for a in self.x_args} | dict(self.out_grads)
        made = {n for o in backward for n in o.output_names()}
        # What the joint gradient needs of each round has to be collected by the forward loop or by this one.
        wanted = dict.fromkeys(n for joint in self.joint for n in joint.rows.values() if n not in every)
        collected = {n: n if n in made else copied(self.inner, n) for n in wanted if n in made or n in inner_grads}
        backward = self.inner.ops[self.inner.ops.index(backward[0]) :] if backward else ()
        found = self._keep([*kept, *(n for n in wanted if n not in collected and n not in kept)])
        rows |= {n: found[n] for n in kept}
        every |= found
        final = dict(zip(self.states, op.outputs.get("Final", []), strict=False))
        first = [self.grads.get(final.get(s, EMPTY)) or self.zeros(outer_of[s]) for s in self.state_grads]
        first += [self.zeros(outer_of[c]) for c in self.sums]
        # Arguments in the order in which a scan is given them: rows, states, constants.
        args = [*rows, *(a for a, _ in self.out_grads), *self.state_grads.values(), *self.sums.values(), *fixed]
        keep_only(self.inner, backward, args)
        more = {n: inner for n, inner in collected.items() if inner not in outs}
        region = Region(self.made, tuple(args), (*updates, *outs, *more.values()), self.region, len(self.xs))
        ins = {
            "X": [*rows.values(), *(name for _, name in self.out_grads)],
            "Init": first,
            "Captured": [outer_of[c] for c in fixed],
            "Count": op.inputs.get("Count") or op.outputs.get("Count", []),
            "Like": [*self.xs, *self.inits, *self.captured, *op.inputs.get("Like", [])],
        }
        x_grads = [self.part(outer_of[a]) for a in self.x_args if a in active]
        names = {n: block.program.unique(f"{n}@ROWS") for n in more}
        made_rows = dict(zip(outs, x_grads, strict=True)) | {more[n]: name for n, name in names.items()}
        every |= {n: made_rows[inner] for n, inner in collected.items()}
        results = {
            "Out": [*x_grads, *names.values()],
            "Final": [self.part(outer_of[a]) for a in (*self.state_grads, *self.sums)],
        }
        attrs = {
            "body": region,
            "backwards": not op.attrs.get("backwards", False),
            "steps": op.attrs.get("steps", 0) or op.attrs.get("bound", 0),
        }
        given = {slot: names for slot, names in ins.items() if names}
        if any(results.values()):
            block.append_op("scan", given, {slot: names for slot, names in results.items() if names}, attrs, at=op.at)
        for joint in self.joint:
            self._append_joint(joint, every, outer_of)

    def _keep(self, names: Sequence[str]) -> dict[str, str]:
        """Make the op collect variables of every iteration; return the variables with the collected rows."""
        op, region = self.op, self.region
        rows = dict(zip(region.results[len(self.states) :], op.outputs.get("Out", []), strict=True))
        # A second gradient of the same loop may ask for what is collected already.
        missing = [n for n in names if n not in rows]
        if missing:
            program = region.program.clone()
            inner = program.main_block
            written = {n for o in inner.ops for n in o.output_names()}
            # A result must be written by an op of the region; an argument is copied.
            results = [n if n in written else copied(inner, n) for n in missing]
            made = [self.block.program.unique(f"{n}@ROWS") for n in missing]
            # Rows for the most rounds that there can be: memory is planned before anybody knows how many there are.
            length = next((self.block.var(x).shape[0] for x in self.xs), op.attrs.get("steps", 0) or op.attrs.get("bound", 0))
            for n, name in zip(missing, made, strict=True):
                kind = inner.var(n).type
                rows_kind = kind.with_shape(length, *kind.shape)
                self.block.create_var(name, rows_kind, stop_gradient=inner.var(n).stop_gradient, at=op.at)
            op.outputs["Out"] = [*op.outputs.get("Out", []), *made]
            self.region = replace(region, program=program, results=(*region.results, *results))
            op.attrs = {**op.attrs, "body": self.region}
            rows |= dict(zip(missing, made, strict=True))
        return {n: rows[n] for n in names}
