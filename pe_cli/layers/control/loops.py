"""Loops and branches: their bodies are functions that append ops, which become regions of one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS
from pe_cli.ops.define.region import either
from pe_cli.program.defaults import default_main_program
from pe_cli.program.ir import Block, Variable
from pe_cli.program.outline import Outline

Variables = Sequence[Variable]


class Scan:
    """A loop over the steps of its inputs that is being written: what is appended between `Scan()` and `close` is one step.

    Args:
        block: that ops are appended to; the main program's by default.
    """
    # No body of its own: layers append to the current block as everywhere, and `close` cuts what they have appended out into a region.

    def __init__(self, block: Block | None = None) -> None:
        self.outline = Outline(block or default_main_program().main_block)
        self.block = self.outline.block
        self._inputs: list[tuple[str, str]] = []  # outside, inside
        self._states: dict[str, tuple[str, str]] = {}  # state -> before the first step, after a step
        self._outputs: list[str] = []

    def input(self, x: Variable) -> Variable:
        """Return one step of [steps, ...].

        Raises:
            PeError: it has no axis to go through.
        """
        if not x.shape:
            raise PeError(f"a loop goes through the first axis of its inputs, and '{x.name}' is {x.type}")
        kind = x.type.with_shape(*x.shape[1:])
        made = self.outline.give(x.name, kind, stop_gradient=x.stop_gradient or x.dtype not in FLOATS)
        self._inputs.append((x.name, made.name))
        return made

    def source(self, each: Variable) -> Variable | None:
        """Return the input of which a variable is one step; None for others."""
        return next((self.block.var(x) for x, inside in self._inputs if inside == each.name), None)

    def state(self, init: Variable) -> Variable:
        """Return a variable that is handed on from step to step; it begins as another one from outside."""
        # A float state lets gradients through even if it begins as a constant: what a step makes of it may depend on parameters.
        made = self.outline.give(init.name, init.type, stop_gradient=init.dtype not in FLOATS)
        # A state that is never updated hands itself on.
        self._states[made.name] = init.name, made.name
        return made

    def update(self, state: Variable, value: Variable) -> None:
        """Say what a state is after a step.

        Raises:
            PeError: it is no state of this loop.
        """
        if state.name not in self._states:
            raise PeError(f"'{state.name}' is no state of this loop")
        self._states[state.name] = self._states[state.name][0], value.name

    def output(self, value: Variable) -> None:
        """Collect a variable of every step."""
        self._outputs.append(value.name)

    def close(
        self, *, backwards: bool = False, steps: int = 0, captured: Callable[[Variable], Variable] | None = None
    ) -> tuple[list[Variable], list[Variable]]:
        """Append the loop.

        Args:
            backwards: the last step first.
            steps: how many there are where there are no inputs.
            captured: makes what a step gets for a variable that it reads from outside, of the same type; itself when None.

        Returns:
            What was collected, [steps, ...] each, and the states after the last step.

        Raises:
            PeError: inputs of different lengths, no step at all, or a state that changes its type.
        """
        block, outline = self.block, self.outline
        outline.cut()
        # Variables from outside that the body writes are states as well, whose last value is written back.
        kept = outline.written
        # What the body only reads is handed in once; all others change from step to step.
        read = [n for n in outline.captured if n not in kept]
        inits = [*(init for init, _ in self._states.values()), *kept]
        args = [*(n for _, n in self._inputs), *self._states, *kept, *read]
        updates = [*(after for _, after in self._states.values()), *kept]
        region = outline.region(args, [*updates, *self._outputs], len(updates))
        program = block.program
        outs = [program.unique(f"{n}@ALL") for n in self._outputs]
        finals = [program.unique(f"{n}@LAST") for n in self._states]
        outside = [captured(block.var(n)).name for n in read] if captured else read
        ins = {"X": [n for n, _ in self._inputs], "Init": inits, "Captured": outside}
        given = {slot: names for slot, names in ins.items() if names}
        made = {slot: names for slot, names in (("Out", outs), ("Final", [*finals, *kept])) if names}
        block.append_op("scan", given, made, {"body": region, "backwards": backwards, "steps": steps})
        # Gradients flow out of a loop only where they flow into what it collects.
        for name, inner in zip((*outs, *finals), (*region.results[len(updates) :], *region.results), strict=False):
            block.vars[name].stop_gradient = region.block.vars[inner].stop_gradient
        return [block.var(n) for n in outs], [block.var(n) for n in finals]


def scan(
    body: Callable[[list[Variable], list[Variable]], tuple[Variables, Variables]],
    inputs: Variables,
    states: Variables,
    *,
    backwards: bool = False,
    steps: int = 0,
) -> tuple[list[Variable], list[Variable]]:
    """Repeat a function over the steps of inputs.

    Args:
        body: `body(inputs of one step, states) -> (next states, outputs)`; appends ops.
        inputs: [steps, ...] each.
        states: before the first step.
        backwards, steps: see `Scan.close`.

    Returns:
        Outputs of all steps, [steps, ...] each, and the states after the last one.
    """
    loop = Scan()
    each = [loop.input(x) for x in inputs]
    held = [loop.state(s) for s in states]
    after, outs = body(each, held)
    for state, value in zip(held, after, strict=True):
        loop.update(state, value)
    for out in outs:
        loop.output(out)
    return loop.close(backwards=backwards, steps=steps)


def while_loop(
    condition: Callable[[list[Variable]], Variable],
    body: Callable[[list[Variable]], Variables],
    states: Variables,
    *,
    bound: int = 0,
) -> list[Variable]:
    """Repeat a function as long as a condition of its states holds.

    Args:
        condition: `condition(states) -> one bool`; appends ops.
        body: `body(states) -> next states`; appends ops.
        states: before the first round.
        bound: rounds at most, needed where gradients flow through the loop; 0 for none.

    Returns:
        The states when the condition holds no more.

    Raises:
        PeError: another number of states, or a state that changes its type.
    """
    return collecting_while(condition, lambda held: (body(held), ()), states, bound=bound)[0]


def collecting_while(
    condition: Callable[[list[Variable]], Variable],
    body: Callable[[list[Variable]], tuple[Variables, Variables]],
    states: Variables,
    *,
    bound: int,
    varying: bool = False,
) -> tuple[list[Variable], list[Variable], Variable]:
    """Repeat a function as long as a condition of its states holds, and collect what it gives.

    Args:
        condition: `condition(states) -> one bool`; appends ops.
        body: `body(states) -> (next states, outputs)`; appends ops.
        states: before the first round.
        bound: rounds at most; 0 for none, where there are no outputs and no gradients.
        varying: states have other sizes from round to round: those axes are -1 in their types.

    Returns:
        The states when the condition holds no more; outputs, [bound, ...] each, whose rows beyond the rounds are not written; how
        many rounds there were, [1] int64.

    Raises:
        PeError: another number of states, or a state that changes its type.
    """
    block = default_main_program().main_block
    test, held = _with_states(block, states)
    # Condition and body are two regions over the same states, each with names of its own for them.
    flag = condition(held)
    test.cut()
    rounds, again = _with_states(block, states)
    found, outputs = body(again)
    after = list(found)
    if len(after) != len(states):
        raise PeError(f"the body of a while gives {len(after)} variables for {len(states)} states")
    rounds.cut()
    names = [v.name for v in held], [v.name for v in again]
    return append_while(block, test, flag, names[0], rounds, names[1], after, states, bound, outputs, varying=varying)


def _with_states(block: Block, states: Variables) -> tuple[Outline, list[Variable]]:
    outline = Outline(block)
    return outline, [outline.give(s.name, s.type, stop_gradient=s.dtype not in FLOATS) for s in states]


def append_while(
    block: Block,
    test: Outline,
    flag: Variable,
    tested: Sequence[str],
    rounds: Outline,
    held: Sequence[str],
    after: Variables,
    states: Variables,
    bound: int,
    outputs: Variables = (),
    *,
    varying: bool = False,
) -> tuple[list[Variable], list[Variable], Variable]:
    """Append a while; return its last states, what it collects and how many rounds there were.

    Args:
        block: gets it.
        test: cut, computes flag of the states `tested`.
        flag: one bool.
        tested: the states in there.
        rounds: cut, computes `after` of the states `held`.
        held: the states in there.
        after: what they become.
        states: before the first round.
        bound: rounds at most; 0 for no bound.
        outputs: collected, one row for each round.
        varying: states have other sizes from round to round.
    """
    kept = rounds.written
    # Both regions get the same arguments, whether they read them or not: the op hands one list to either.
    captured = [n for n in dict.fromkeys([*test.captured, *rounds.captured]) if n not in kept]
    results = [*(v.name for v in after), *kept, *(v.name for v in outputs)]
    body = rounds.region([*held, *kept, *captured], results, len(after) + len(kept))
    condition = test.region([*tested, *kept, *captured], [flag.name])
    program = block.program
    finals = [program.unique(f"{v.name}@LAST") for v in states]
    ins = {"Init": [*(v.name for v in states), *kept], "Captured": captured}
    rows, count = [program.unique(f"{v.name}@ROWS") for v in outputs], program.unique("while.count")
    outs = {"Final": [*finals, *kept], "Count": [count], **({"Out": rows} if rows else {})}
    given = {slot: names for slot, names in ins.items() if names}
    block.append_op("while", given, outs, {"condition": condition, "body": body, "bound": bound, "varying": varying})
    # Results begin with the states; what is kept follows them and needs no flag, as it is a variable from outside.
    inner = [*body.results[: len(finals)], *body.results[len(finals) + len(kept) :]]
    for name, of in zip([*finals, *rows], inner, strict=True):
        block.vars[name].stop_gradient = body.block.vars[of].stop_gradient
    return [block.var(n) for n in finals], [block.var(n) for n in rows], block.var(count)


def branch(
    condition: Variable, yes: Outline, no: Outline, results: tuple[Variables, Variables], varied: Set[str] = frozenset()
) -> list[Variable]:
    """Append one of two branches that a step takes; what either writes outside keeps its value where the other one runs.

    Args:
        condition: one bool.
        yes, no: cut; run where the condition holds and where it does not.
        results: what each of them gives.
        varied: variables outside that branches write with other types than they were declared with; the host takes the branch then.

    Raises:
        PeError: they give different numbers of results, or different types.
    """
    block = yes.block
    if len(results[0]) != len(results[1]):
        raise PeError(f"one branch gives {len(results[0])} variables, the other {len(results[1])}", hint="give as many from both")
    # What one branch writes outside is a result of both: where the other one runs, the old value is handed through.
    kept = list(dict.fromkeys([*yes.written, *no.written]))
    # A branch may return a variable from outside as it is; then it has to be handed in to be handed out.
    passed = [v.name for of, row in zip((yes, no), results, strict=True) for v in row if of.passes(v.name)]
    # What both branches write anew has no value before.
    fresh = varied & set(yes.written) & set(no.written)
    args = list(dict.fromkeys([*(n for n in kept if n not in fresh), *yes.captured, *no.captured, *passed]))
    regions = [of.region(args, [*(v.name for v in row), *kept]) for of, row in zip((yes, no), results, strict=True)]
    outs = [block.program.unique("cond.out") for _ in results[0]]
    given = {"Condition": condition.name, **({"Captured": args} if args else {})}
    for name in varied:
        place = len(outs) + kept.index(name)
        block.vars[name].type = either(*(r.block.vars[r.results[place]].type for r in regions))
    attrs = {"yes": regions[0], "no": regions[1], "varying": bool(varied)}
    block.append_op("cond", given, {"Out": [*outs, *kept]}, attrs)
    for i, name in enumerate(outs):
        # One branch that learns is enough: the other one gives a gradient of nothing.
        block.vars[name].stop_gradient = all(r.block.vars[r.results[i]].stop_gradient for r in regions)
    return [block.var(n) for n in outs]


def cond(condition: Variable, yes: Callable[[], Variables], no: Callable[[], Variables]) -> list[Variable]:
    """Run one of two functions in a step.

    Args:
        condition: one bool.
        yes: appends ops and gives what they compute; runs where the condition holds.
        no: runs where it does not, and gives variables of the same types.

    Returns:
        What the function that ran gives.
    """
    block = default_main_program().main_block
    made = []
    for fn in (yes, no):
        outline = Outline(block)
        made.append((outline, list(fn())))
        outline.cut()
    (first, a), (second, b) = made
    return branch(condition, first, second, (a, b))
