"""Programs whose shapes depend on variables: their values are computed first, and each combination of sizes gets its own executor.

The program that runs has numbers in place of those variables, and is one program: it is fused, replicated and planned like any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.devices.protocol import Timeline
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch import Batch, StepResult
from pe_cli.execute.executor import Executor, Feed
from pe_cli.execute.plan.dynamic_programs import MOST, attribute_of, give_sizes
from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.plan.program_parts import fed_attributes, size_inputs
from pe_cli.ops.define.traits import OnHost, Random
from pe_cli.program.ir import Operator, Program
from pe_cli.program.prune import prune
from pe_cli.program.region import with_inner


def has_dynamic_sizes(program: Program) -> bool:
    """Return whether variables give sizes of a program's ops."""
    return any(size_inputs(op) for op in program.top_ops)


def executor_of(program: Program, scope: Scope, **wishes: Any) -> Executor:
    """Return what runs a program: an `Executor`, or a `DynamicSizesExecutor` where variables give sizes; arguments are those of `Executor`.

    Raises:
        PeError: see `DynamicSizesExecutor`.
    """
    return DynamicSizesExecutor(program, scope, **wishes) if has_dynamic_sizes(program) else Executor(program, scope, **wishes)


@dataclass(frozen=True, slots=True)
class DynamicBatch(Batch):
    """A batch, and the executor of the program with its sizes."""

    executor: Executor


class DynamicSizesExecutor(Executor):
    """Runs a program in which variables give sizes.

    Args:
        program: as for `Executor`.
        scope: as for `Executor`.
        wishes: as for `Executor`.

    Attributes:
        forms: sizes -> executor of the program with these; the ones that were used last.

    Raises:
        PeError: several processes share batches, or a size depends on what is drawn, or on an op that keeps something between steps.
    """

    def __init__(self, program: Program, scope: Scope, **wishes: Any) -> None:
        self._written, self._wishes = program, wishes
        self._sized = [op for op in program.top_ops if size_inputs(op)]
        first = self._sized[0]
        if wishes.get("peers") is not None:
            # Sizes come from values that each process has of its own part: plans would differ, and with them the order of sums over
            # processes.
            message = f"{first.type}: '{size_inputs(first)[0]}' gives a size, and several processes share a batch"
            raise PeError(message, at=first.at, hint="run it in one process, or give numbers")
        super().__init__(program, scope, **wishes)
        self.forms: OrderedDict[tuple[Any, ...], Executor] = OrderedDict()
        names = list(dict.fromkeys(n for op in self._sized for n in size_inputs(op)))
        fed = {v.name for v in program.list_vars() if v.is_data or v.persistable}
        made = [n for n in names if n not in fed]
        self._fed = [n for n in names if n in fed]
        self._before = self._sizes_alone(program, made) if made else None
        self._made = made

    def _sizes_alone(self, program: Program, names: Sequence[str]) -> Executor:
        """Return an executor of the part of the program that makes sizes."""
        part = prune(program, names)
        for op in part.top_ops:
            kept = [n for n in op.output_names() if program.var(n).persistable]
            # The part runs once more for its sizes: what it changes or draws would be changed or drawn twice in one step.
            if kept or any(o.definition.has(Random) or o.definition.has(OnHost) for o in with_inner(op)):
                why = f"op '{op.type}' writes '{kept[0]}', which lives between steps" if kept else f"op '{op.type}' draws numbers"
                raise PeError(f"a size depends on this: {why}", at=op.at, hint="compute sizes from feeds, shapes or constants alone")
        levels = {k: v for k, v in (self._wishes.get("levels") or {}).items() if k in part.vars}
        # An arena of its own: while this part's values are read, the main program's step may already use the shared one.
        return executor_of(part, self.scope, **{**self._wishes, "levels": levels or None, "arenas": None, "check_nan_inf": False})

    def batch(self, feed: Feed | Sequence[Feed], fetches: Sequence[str] = (), samples: int | None = None) -> Batch:
        """Compute the sizes, and find or make the plan for them; see `Executor.batch`.

        Raises:
            PeError: as there, or a variable without a number where a size is one.
        """
        parts, counts = self.split(feed)
        active = [d for d, n in enumerate(counts) if n] or [0]
        # Devices without samples have the sizes of the first that has some: nothing of theirs is read.
        asked = [d if d in active else active[0] for d in range(len(counts))]
        values = {n: [np.asarray(parts[d][n] if n in parts[d] else self.scope.get(n)) for d in asked] for n in self._fed}
        if self._before is not None:
            # It reads fewer feeds than the whole program, and feeds that a program does not know are refused.
            found = self._before.run(self._before.known(feed) if not isinstance(feed, Sequence) else feed, self._made).values
            values |= {n: [np.asarray(found[active.index(d)][n]) for d in asked] for n in self._made}
        made = self._form(values).batch(feed, fetches, samples)
        form = next(reversed(self.forms.values()))
        return DynamicBatch(made.plan, made.request, made.parts, made.samples, form)

    def _form(self, values: dict[str, list[Any]]) -> Executor:
        """Return the executor of the program with sizes, which becomes the last of `forms`."""
        sizes = [(i, slot, v) for i, op in enumerate(self._sized) for slot, v in _sizes(op, values)]
        key = tuple((i, slot, tuple(v) if isinstance(v, list) else v) for i, slot, v in sizes)
        if key not in self.forms:
            program = self._written.clone()
            ops = [op for op in program.top_ops if size_inputs(op)]
            give_sizes([(ops[i], slot, v) for i, slot, v in sizes])
            self.forms[key] = Executor(program, self.scope, **self._wishes)
            while len(self.forms) > MOST:
                self.forms.popitem(last=False)
        self.forms.move_to_end(key)
        return self.forms[key]

    def step(self, batch: Batch, number: int = 0, *, late: bool = False) -> StepResult:
        """Run a batch; it has ended when this returns. See `Executor.step`."""
        assert isinstance(batch, DynamicBatch)
        return batch.executor.step(batch, number)

    def step_timed(self, batch: Batch, number: int = 0) -> tuple[StepResult, Timeline]:
        """Run a batch once, and return when every kernel ran, too; arguments as for `step`."""
        assert isinstance(batch, DynamicBatch)
        return batch.executor.step_timed(batch, number)

    def all_plans(self) -> list[Plan]:
        """Return the plans that are kept, for all sizes."""
        made = [each for form in self.forms.values() for each in form.all_plans()]
        return made + (self._before.all_plans() if self._before is not None else [])

    def drop_unused(self) -> None:
        """Forget the plans, with their temporaries, that have not run since this was last called."""
        for each in self.forms.values():
            each.drop_unused()

    def drop(self) -> None:
        """Forget all plans and their temporaries."""
        for each in self.forms.values():
            each.drop()


def _sizes(op: Operator, values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """Return the sizes of an op that variables give: slots, with numbers."""
    found = ((slot, attr, name) for slot, attr in fed_attributes(op).items() for name in op.inputs.get(slot, ()))
    return [(slot, attribute_of(op, attr, name, values[name])) for slot, attr, name in found]
