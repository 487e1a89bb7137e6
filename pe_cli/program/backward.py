"""append_backward: gradient ops for a loss, in reverse order of the forward ops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS
from pe_cli.ops.define.registry import GradRequest, OpDef, OpDesc, grad_name
from pe_cli.ops.define.second_gradients import SECOND, Again, refuse
from pe_cli.ops.define.traits import HasRegions, PassesGradient, Table
from pe_cli.program.ir import EMPTY, Block, Operator, Parameter, Program, Role, Variable
from pe_cli.program.region_gradients import append_region_gradient
from pe_cli.program.sparse import MERGE, rows_name


def append_backward(
    loss: Variable,
    parameter_list: Sequence[str] | None = None,
    no_grad_set: Collection[str] | None = None,
    also: Collection[str] = (),
) -> list[tuple[Parameter, Variable]]:
    """Append the ops that compute the gradient of a scalar loss.

    A variable that several ops read gets the sum of their gradients, in the order of those ops. `stop_gradient`,
    `trainable=False` and `no_grad_set` cut the walk.

    Args:
        loss: one element.
        parameter_list: names of the parameters wanted; default: all trainable ones.
        no_grad_set: names of variables that gradients do not flow through.
        also: names of further variables that get a gradient, `<name>@GRAD`.

    Returns:
        (parameter, gradient) pairs in the order of the parameters' creation.

    Raises:
        PeError: the loss is not one number, or does not depend on a trainable parameter.
    """
    block = loss.block
    if loss.type.size != 1 or loss.dtype not in FLOATS:
        raise PeError(
            f"the loss '{loss.name}' must be one number, it is {loss.type}",
            at=loss.at,
            hint="put a layer of type mean after it",
        )
    # A frozen parameter stays out, so that no op is appended whose result nobody would use.
    free = [p for p in block.parameters() if p.trainable and not p.stop_gradient]
    wanted = [p for p in free if parameter_list is None or p.name in parameter_list]
    targets = {p.name for p in wanted} | set(also)
    found = _Walk(block, targets, set(no_grad_set or ())).run([loss.name], None)
    pairs = [(p, block.vars[found[p.name]]) for p in wanted if p.name in found]
    if not pairs and block.parameters() and not free:
        raise PeError("every parameter is frozen: there is nothing to train", at=loss.at, hint="leave some out of train.groups with freeze")
    if not pairs:
        raise PeError(
            f"the loss '{loss.name}' depends on no trainable parameter, or on none through ops with a gradient",
            at=loss.at,
            hint="name the mean of a cost, such as softmax_with_cross_entropy",
        )
    mark_role_vars(block.program, pairs)
    return pairs


def gradients(
    targets: Sequence[Variable],
    inputs: Sequence[Variable],
    target_gradients: Sequence[Variable | None] | None = None,
    no_grad_set: Collection[str] | None = None,
    *,
    shares: bool = False,
) -> list[Variable | None]:
    """Append the ops that compute the gradients of targets with respect to inputs; None where there is no dependence.

    What depends on a gradient may be a target too: gradient ops are differentiated again (`ops.define.second`).

    Args:
        targets: what is differentiated.
        inputs: with respect to what.
        target_gradients: gradients to begin with; ones where there is none.
        no_grad_set: names of variables that gradients do not flow through.
        shares: on several devices, gradients are shares of those of a mean over all devices, as of a loss; otherwise they are those of each
            device's targets, so that a loss may be made of them.

    Raises:
        PeError: a target depends on the gradient of an op that has no second one.
    """
    block = targets[0].block
    starts = [None if g is None else g.name for g in target_gradients or [None] * len(targets)]
    walk = _Walk(block, {v.name for v in inputs}, set(no_grad_set or ()), start=Role.LOSS if shares else Role.BACKWARD)
    found = walk.run([t.name for t in targets], starts)
    return [block.vars[found[v.name]] if v.name in found else None for v in inputs]


def mark_role_vars(program: Program, pairs: Sequence[tuple[Parameter, Variable]]) -> None:
    """Say of the ops that make gradients whose they are, so that devices add them up."""
    # The last writer has the complete gradient; earlier ones have parts of it.
    last = {gradient.name: parameter.name for parameter, gradient in pairs}
    for op in reversed(program.top_ops):
        for name in op.output_names():
            if name in last:
                op.role_vars += [last.pop(name), name]


def _differentiates(definition: OpDef) -> bool:
    """Whether gradients flow through an op."""
    if definition.grad_op or definition.grad_maker or definition.is_grad_of:
        return True
    return bool(definition.has(HasRegions) and definition.differentiable)


def _sources(op: Operator) -> list[str]:
    """Return the inputs that gradients may flow to: of a gradient op, all."""
    definition = op.definition
    return op.input_names() if definition.is_grad_of else [n for s in definition.differentiable for n in op.inputs.get(s, ())]


class _Walk:
    """One reverse walk over a block; inside a region the gradients of tables are whole."""

    def __init__(
        self, block: Block, targets: set[str], no_grad: set[str], *, inside: bool = False, start: Role = Role.LOSS
    ) -> None:
        self.block = block
        self.start = start
        self.inside = inside
        self.targets = targets
        self.no_grad = no_grad
        self.parts: dict[str, list[str]] = {}
        self.rows: dict[str, list[tuple[Operator, dict[str, str]]]] = {}  # table -> its sparse lookups, gradients of their outputs
        self.made = {n for op in block.ops for n in op.output_names()}
        self.clipped: set[str] = set()

    def run(self, losses: list[str], starts: list[str | None] | None) -> dict[str, str]:
        """Append everything; return variable -> name of its gradient."""
        # A copy: the walk appends to the same list.
        forward = list(self.block.ops)
        reach = self.reachable(forward)
        program = self.block.program
        # Ops that are appended take the scope of the op that they are the gradient of, so that pictures and profiles show them together.
        with program.role(Role.BACKWARD):
            for i, name in enumerate(losses):
                given = starts[i] if starts else None
                self.parts.setdefault(name, []).append(given or self._ones(name, forward))
            for op in reversed(forward):
                with program.marked(scope=op.scope):
                    self._differentiate(op, reach)
            for table, lookups in self.rows.items():
                self._join_rows(table, lookups)
            return {name: self._total(name) for name in list(self.parts)}

    def reachable(self, ops: Sequence[Operator], known: Collection[str] = ()) -> set[str]:
        """Return variables that depend on a target, or on others that do, and let gradients through."""
        reach = self.targets.union(known)
        for op in ops:
            if not reach.isdisjoint(_sources(op)) and _differentiates(op.definition):
                # Integers have no gradient, and a stopped variable cuts the path behind it.
                for name in op.output_names():
                    v = self.block.vars[name]
                    if not v.stop_gradient and name not in self.no_grad and v.type.computed.dtype in FLOATS:
                        reach.add(name)
        return reach - self.no_grad

    def _ones(self, name: str, forward: list[Operator]) -> str:
        gradient = grad_name(name)
        v = self.block.vars[name]
        source = next((op for op in reversed(forward) if name in op.output_names()), None)
        with self.block.program.role(self.start):
            # This one op has a role of its own, because devices scale it by their share of the batch.
            self.block.append_op(
                "fill_like", {"X": name}, {"Out": gradient}, {"value": 1.0}, at=source.at if source else v.at
            )
        return gradient

    def _total(self, name: str) -> str:
        """Return the gradient of a variable, summing its parts once."""
        parts = self.parts[name]
        if len(parts) > 1:
            total = grad_name(name)
            # The sum has the name that fluid gives a gradient, so a part of that name moves aside.
            if total in parts:
                first = self.block.program.unique(f"{total}@RENAME")
                self.block.rename_var(total, first)
                parts = [first if part == total else part for part in parts]
            elif total in self.block.vars:
                total = self.block.program.unique(f"{total}@SUM")
            self.block.append_op("sum", {"X": parts}, {"Out": total}, at=self.block.vars[name].at)
            self.parts[name] = [total]
        self._clip(name)
        return self.parts[name][0]

    def _clip(self, name: str) -> None:
        """Cut the gradient of a variable that has an error_clip, once."""
        bounds = self.block.vars[name].error_clip
        (found,) = self.parts[name]
        # fluid clips the whole gradient once, not each part.
        if bounds is None or found in self.clipped:
            return
        made = self.block.program.unique(f"{grad_name(name)}@CLIP")
        attrs = {"min": bounds[0], "max": bounds[1]}
        self.block.append_op("clip", {"X": found}, {"Out": made}, attrs, at=self.block.vars[name].at)
        self.clipped.add(made)
        self.parts[name] = [made]

    def _new_part(self, name: str) -> str:
        first = grad_name(name)
        taken = self.parts.setdefault(name, [])
        return first if not taken and first not in self.block.vars else self.block.program.unique(f"{first}@RENAME")

    def _differentiate(self, op: Operator, reach: set[str]) -> None:
        definition = op.definition
        if not _differentiates(definition):
            return
        outs = [n for n in op.output_names() if n in self.parts and n in reach]
        sources = reach.intersection(_sources(op))
        if not outs or not sources:
            return
        # All readers have been walked over by now, so that the total is complete.
        grads = {n: self._total(n) for n in dict.fromkeys(outs)}
        if definition.is_grad_of:
            self._again(op, grads, reach)
            return
        table = self._table(op, sources)
        if table:
            self.rows.setdefault(table, []).append((op, grads))
            return
        for name in grads:  # an op that overwrites its input: later parts belong to the earlier value
            if name in sources:
                del self.parts[name]
        if self.inside and definition.has(PassesGradient):
            sources = self._passed(op, grads, sources)
        if not sources:
            return
        if definition.grad_maker or not definition.grad_op:
            self._made(op, grads, sources)
        else:
            self._default(op, grads, sources)

    def _passed(self, op: Operator, grads: dict[str, str], sources: set[str]) -> set[str]:
        """Pass an output's gradient on without an op, which would copy it in every round; return the inputs that need one."""
        (out,) = op.output_names()
        passed = {n for n in sources if self.block.vars[n].type == self.block.vars[out].type}
        for name in op.input_names():
            if name in passed:
                self.parts.setdefault(name, []).append(grads[out])
        return sources - passed

    def _made(self, op: Operator, grads: dict[str, str], sources: set[str]) -> None:
        """Append the gradient of an op that has no gradient op of its own."""
        definition = op.definition
        wanted = {n: self._new_part(n) for n in dict.fromkeys(op.input_names()) if n in sources}
        if definition.grad_maker:
            # Descriptions instead of operators: a gradient maker knows no block.
            request = GradRequest(OpDesc(op.type, op.inputs, op.outputs, op.attrs), grads, wanted)
            for desc in definition.grad_maker(request):
                self.block.append_op(desc.type, desc.inputs, desc.outputs, desc.attrs, at=op.at)
        else:
            append_region_gradient(self.block, op, grads, wanted, lambda block, targets: _Walk(block, targets, set(), inside=True))
        for name, made in wanted.items():
            self.parts.setdefault(name, []).append(made)

    def _again(self, op: Operator, grads: dict[str, str], reach: set[str]) -> None:
        """Differentiate a gradient op by its rule."""
        block, first = self.block, len(self.block.ops)

        def append(desc: OpDesc) -> None:
            block.append_op(desc.type, desc.inputs, desc.outputs, desc.attrs, at=op.at)

        desc = OpDesc(op.type, op.inputs, op.outputs, op.attrs)
        request = Again(desc, grads, reach, append, block.program.unique, lambda name: block.var(name).type)
        try:
            SECOND.get(op.definition.is_grad_of or "", refuse)(request)
        except PeError as error:
            error.at = error.at or op.at
            raise
        made = block.ops[first:]
        for name, same in request.instead.items():
            self.parts.setdefault(same, []).append(grads[name])
        further = self.reachable(made, reach - request.constants) - request.constants
        for new in reversed(made):
            self._differentiate(new, further)
        for name, gradient in request.given:
            self.parts.setdefault(name, []).append(gradient)

    def _table(self, op: Operator, sources: set[str]) -> str:
        """Return the parameter that an op looks up and whose gradient may be its rows; empty: what an op made needs a whole gradient."""
        lookup = op.definition.get(Table)
        if self.inside or lookup is None or not op.attrs["is_sparse"]:
            return ""
        table = op.inputs[lookup.table][0]
        # Only a parameter that is looked up may have a row-sparse gradient; what an op made is an activation.
        return table if sources == {table} - self.made else ""

    def _join_rows(self, table: str, lookups: list[tuple[Operator, dict[str, str]]]) -> None:
        """Append the gradient of a table: its rows, or dense ones where other ops want a gradient for all rows."""
        program = self.block.program
        # Another op wants all rows: the lookups give theirs as dense gradients then.
        if table in self.parts:
            for op, grads in lookups:
                with program.marked(scope=op.scope):
                    self._default(op, grads, {table})
            return
        gradient = grad_name(table) if grad_name(table) not in self.block.vars else program.unique(f"{grad_name(table)}@SUM")
        first = lookups[0][0]
        lookup = first.definition.get(Table)
        assert lookup is not None
        ids, out = lookup.ids, lookup.out
        inputs = {
            "Ids": [op.inputs[ids][0] for op, _ in lookups],
            "X": [grads[op.outputs[out][0]] for op, grads in lookups],
        }
        rows = rows_name(table) if rows_name(table) not in self.block.vars else program.unique(rows_name(table))
        outputs = {"Out": [gradient], "Rows": [rows]}
        paddings = [op.attrs["padding_idx"] for op, _ in lookups]
        height = self.block.var(table).shape[0]
        with program.marked(scope=first.scope):
            self.block.append_op(MERGE, inputs, outputs, {"height": height, "padding_idx": paddings}, at=first.at)
        self.parts[table] = [gradient]

    def _default(self, op: Operator, grads: dict[str, str], sources: set[str]) -> None:
        definition = op.definition
        gradient = definition.grad_op
        assert gradient is not None
        inputs: dict[str, list[str]] = {}
        for slot in gradient.inputs:
            # A gradient op may read outputs as well as inputs of its forward op.
            names = op.inputs.get(slot.name) or op.outputs.get(slot.name)
            if names is not None:
                inputs[slot.name] = list(names)
        for out in definition.outputs:
            names = op.outputs.get(out.name, [])
            if any(n in grads for n in names):
                # An output that nobody used has a gradient of zeros: kernels get all they read.
                inputs[grad_name(out.name)] = [grads.get(n) or self._zeros(n, op) for n in names]
        outputs: dict[str, list[str]] = {}
        added: list[tuple[str, str]] = []
        for slot_name in definition.differentiable:
            made = []
            for n in op.inputs.get(slot_name, []):
                if n in sources:
                    part = (
                        self._new_part(n)
                        # The same variable twice in a slot has two parts.
                        if not any(a == n for a, _ in added)
                        else self.block.program.unique(f"{grad_name(n)}@RENAME")
                    )
                    added.append((n, part))
                    made.append(part)
                else:
                    made.append(EMPTY)
            if any(n != EMPTY for n in made):
                outputs[grad_name(slot_name)] = made
        self.block.append_op(gradient.name, inputs, outputs, op.attrs, at=op.at)
        for name, part in added:
            self.parts.setdefault(name, []).append(part)

    def _zeros(self, name: str, op: Operator) -> str:
        made = self.block.program.unique(f"{grad_name(name)}@ZERO")
        self.block.append_op("fill_like", {"X": name}, {"Out": made}, {"value": 0.0}, at=op.at)
        return made
