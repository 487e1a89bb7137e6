"""Loops, which a step runs, beside branches and arrays of tensors.

A loop whose body changes sizes or reads arrays at places
that change is written out, if the program alone says how often it runs; else its rounds are steps of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.layers.control import loops
from pe_cli.ops.define.traits import OnHost
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.constant_sizes import CLOSED, OPEN
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program
from pe_cli.paddle.fluid.layers.branches import case, cond, known, switch_case
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.dynamic_rnn import (
    DynamicRNN,
    lod_rank_table,
    max_sequence_len,
    reorder_lod_tensor_by_rank,
)
from pe_cli.paddle.fluid.layers.selection import Switch
from pe_cli.paddle.fluid.layers.tensor_arrays import (
    MOST,
    array_length,
    array_read,
    array_write,
    create_array,
    tensor_array_to_tensor,
)
from pe_cli.paddle.fluid.layers.utils import flatten, like
from pe_cli.paddle.fluid.layers.varying import open_sizes, widen
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.paddle.reference_names import missing
from pe_cli.program.ir import Variable
from pe_cli.program.outline import Outline, undo

#: Rounds of a loop that are written out at most.
MAX_ROUNDS = 10_000


def while_loop(cond: Any, body: Any, loop_vars: Any, is_test: bool = False, name: str | None = None, bound: int = 0) -> Any:
    """Repeat body while cond of the variables holds; return the last ones.

    Args:
        cond: `cond(*variables) -> one bool`.
        body: `body(*variables) -> variables`, of the same types.
        loop_vars: at the beginning.
        is_test: without effect.
        name: without effect.
        bound: rounds at most, needed where gradients flow through the loop; not in the original, which keeps all rounds.

    Raises:
        FluidValueError: another number of variables, or variables that change their types while only a step knows the condition.
    """
    state = list(loop_vars)
    block = default_main_program().global_block()
    use({"while_loop": 1, "assign": sum(isinstance(v, Variable) for v in flatten(state)) + 1})
    # Four attempts, each after the last was taken back: a loop of fixed types, the rounds written out, a loop whose sizes vary, and the
    # block of a While, which may write arrays and append to the block around it.
    before, names = (list(block.ops), set(block.vars)), _Names(block)
    arrays = [(array, {**vars(array), "items": dict(array.items)}) for array in default_main_program().named_arrays.values()]

    def back() -> None:
        undo(block, *before)
        names.back()
        for array, kept in arrays:
            vars(array).update({**kept, "items": dict(kept["items"])})

    again = _Again(cond)
    try:
        return again.counted(_repeated(again, body, state, bound))
    except (PeError, NotThereYet) as error:
        back()
        with contextlib.suppress(NotThereYet):
            written = _written_out(cond, body, state)
            if written is not None:
                return written
        back()
        opened = _opened(body, state)
        if opened is not None:
            with contextlib.suppress(NotThereYet):
                again = _Again(cond)
                return again.counted(_repeated(again, body, list(like(state, iter(opened))), bound, varying=True))
        back()
        if isinstance(error, NotThereYet) and error.hint == "While":
            return _as_while(cond, body, state, bound)
        # The first error tells what the script's loop lacks; those of the other attempts would mislead.
        raise FluidValueError(getattr(error, "message", str(error)), hint=getattr(error, "hint", None)) from error


class _Again:
    """A condition of a loop: the original appends it twice, before the loop and behind a round."""

    def __init__(self, condition: Any) -> None:
        self.condition, self.calls = condition, 0
        self.used: dict[str, int] = {}

    def __call__(self, *given: Any) -> Any:
        before = unique_name.generator.ids.copy()
        made = self.condition(*given)
        self.used = dict(unique_name.generator.ids - before)
        self.calls += 1
        return made

    def counted(self, found: Any) -> Any:
        """Return a loop's result, with the names of the loop and of the second condition used up."""
        use({"while": 1, "_generated_var": 1})
        use(self.used if self.calls == 1 else {})
        return found


class _Names:
    """Names and parameters as they are now: `back` leaves no others, so that what is written again has the names of a first attempt."""

    def __init__(self, block: Any) -> None:
        self.blocks = block, default_startup_program().global_block()
        self.known = [(list(b.ops), set(b.vars)) for b in self.blocks]
        self.counts = unique_name.generator.ids.copy()

    def back(self) -> None:
        """Take back what was made since."""
        for block, (ops, names) in zip(self.blocks, self.known, strict=True):
            block.ops[:] = ops
            block.vars = {n: v for n, v in block.vars.items() if n in names}
        unique_name.generator.ids = self.counts.copy()


def _closed(body: Any, state: list[Any], states: Sequence[Variable]) -> list[Any]:
    """Return what a body gives for states, where it must not make anything before its loop."""
    CLOSED.append(default_main_program().global_block())
    try:
        return flatten(body(*like(state, iter(states))))
    finally:
        CLOSED.pop()


def _as_while(cond: Any, body: Any, state: list[Any], bound: int) -> list[Any]:
    """Append a loop whose body is the block of a While, which overwrites the variables as the original does."""
    # No copies: what a body appends to the block around the loop may write the variables themselves before the first round.
    held = flatten(state)
    for v in held:
        if isinstance(v, Variable) and v.is_data and 0 in v.shape:  # filled before the first round
            v.type = v.type.with_shape(*(size or -1 for size in v.shape))
    now = list(like(state, iter(held)))
    first = cond(*now)
    with apart("while_loop"):
        flag = call("assign", first)
    loop = While(flag, bound=bound)
    with loop.block():
        after = flatten(body(*now))
        if len(after) != len(held):
            raise FluidValueError(f"body of while_loop returns {len(after)} variables for {len(held)}")
        # All that changes place is copied first: assigned one by one, a variable would be lost before it is read.
        names = {v.name for v in held if isinstance(v, Variable)}
        with apart("while_loop"):
            moves = [isinstance(v, Variable) and v.name in names and v is not held[i] for i, v in enumerate(after)]
            new = [call("assign", v) if moved else v for v, moved in zip(after, moves, strict=True)]
            for old, v in zip(held, new, strict=True):
                if isinstance(old, Variable) and v is not old:
                    call("assign", v, old)
        goes_on = cond(*now)
        with apart("while_loop"):
            call("assign", goes_on, flag)
    return now


def _opened(body: Any, state: list[Any]) -> list[Variable] | None:
    """Return states with unknown sizes for the axes that a body changes; None where it changes something else."""
    block = default_main_program().global_block()
    if OPEN:
        return None
    try:
        return open_sizes(block, flatten(state), lambda states: _closed(body, state, states))
    except (PeError, NotThereYet):
        return None


def _repeated(cond: Any, body: Any, state: list[Any], bound: int, *, varying: bool = False) -> list[Any]:
    """Append a loop that a step runs."""

    def again(states: list[Variable]) -> tuple[list[Variable], tuple[()]]:
        return _closed(body, state, states), ()

    def holds(states: list[Variable]) -> Variable:
        found = cond(*like(state, iter(states)))
        if isinstance(found, bool):
            return call("fill_constant", [1], "bool", float(found))  # type: ignore[no-any-return]
        if not isinstance(found, Variable):
            raise FluidTypeError(f"while_loop: a condition is a bool variable, got {type(found).__name__}")
        return found

    found, _, _ = loops.collecting_while(holds, again, flatten(state), bound=bound, varying=varying)
    return list(like(state, iter(found)))


def _written_out(cond: Any, body: Any, state: list[Any]) -> list[Any] | None:
    """Append the ops of body, round after round; return None where only a step knows the condition."""
    for _ in range(MAX_ROUNDS):
        goes_on = known("while_loop", cond(*state))
        if goes_on is None:
            return None
        if not goes_on:
            return state
        made = body(*state)
        state_after = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(state_after) != len(state):
            raise FluidValueError(f"body of while_loop returns {len(state_after)} variables for {len(state)}")
        state = state_after
    raise FluidValueError(f"while_loop: its variables change their types, so it is written out: more than {MAX_ROUNDS} rounds")


class While:
    """Repeats the layers of its block while a variable holds, which they write: `with loop.block()`.

    Args:
        cond: one bool.
        is_test: without effect.
        name: without effect.
        bound: rounds at most, needed where gradients flow through the loop; not in the original, which keeps all rounds.

    Raises:
        FluidTypeError: cond is no bool variable; a TypeError.
    """

    def __init__(self, cond: Any, is_test: bool = False, name: str | None = None, bound: int = 0) -> None:
        if not isinstance(cond, Variable) or cond.dtype != "bool" or cond.type.size != 1:
            raise FluidTypeError(f"While: a condition is one bool, got {cond}")
        self.cond, self.bound = cond, bound
        use({"while": 1})

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Append inside what a round does.

        Raises:
            FluidValueError: the block does not write the condition, so that the loop would never end; a ValueError.
        """
        block = default_main_program().global_block()
        rounds = Outline(block)
        # Variables that rounds write with other sizes are collected here by `vary` while the block is built.
        rounds.varied = set()
        OPEN.append(rounds)
        try:
            yield
        finally:
            OPEN.pop()
        use({"_generated_var": 1})
        if any(op.definition.has(OnHost) for op in block.ops[rounds.begin :]):
            self._list_arrays(rounds)
        if rounds.varied:
            # What was appended with the sizes of the first round has to be inferred anew with unknown ones.
            self._check_alone(rounds.varied)
            widen(block, rounds.begin, rounds.varied)
        rounds.cut()
        if self.cond.name not in rounds.written:
            raise FluidValueError(f"While: its block does not write '{self.cond.name}'", hint="less_than(x=i, y=n, cond=cond)")
        with raised_as(FluidValueError):
            test = Outline(block)
            test.cut()
            array = any(n for op in rounds.ops for n in ("array_put", "array_get") if op.type == n)
            # Loops with arrays need a bound on their rounds, as an array's memory is planned before the step.
            most = self.bound or (MOST if array else 0)
            loops.append_while(block, test, self.cond, [], rounds, [], [], [], most, varying=bool(rounds.varied))

    @staticmethod
    def _check_alone(varied: set[str]) -> None:
        """Check that a loop whose variables change their sizes is in no other one.

        Raises:
            NotThereYet: it is.
        """
        if OPEN:
            names = ", ".join(sorted(varied))
            raise NotThereYet(f"a While that changes the sizes of {names}, inside of another loop", hint="keep sizes from round to round")

    @staticmethod
    def _list_arrays(rounds: Outline) -> None:
        """Make lists of the arrays that a loop with ops on the host uses.

        Raises:
            NotThereYet: it is inside of another loop.
        """
        if OPEN:
            raise NotThereYet("a While with ops that run on the host, inside of another loop", hint="write one of them out")
        arrays = default_main_program().arrays
        # A branch reads and writes arrays that it captures.
        names = (n for op in rounds.block.ops[rounds.begin :] for n in op.input_names() if n in arrays)
        for name in dict.fromkeys(names):
            if not arrays[name].listed:
                arrays[name].list(rounds)


__all__ = [
    "DynamicRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_write",
    "case",
    "cond",
    "create_array",
    "lod_rank_table",
    "max_sequence_len",
    "reorder_lod_tensor_by_rank",
    "switch_case",
    "tensor_array_to_tensor",
    "while_loop",
]  # fmt: skip
__getattr__ = missing("fluid.layers.control_flow", lambda: globals())
