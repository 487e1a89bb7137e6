"""Recurrent layers: StaticRNN, and rnn, which repeats a cell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.layers.control.loops import Scan, scan
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError, raised_as
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.constant_sizes import OPEN
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.cells import GRUCell, LSTMCell, RNNCell
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import less_equal
from pe_cli.paddle.fluid.layers.original_counts import KEPT_STATE, LENGTHS
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.paddle.fluid.layers.utils import flatten, like
from pe_cli.paddle.fluid.naming import apart, rename, temporary, use, use_outside
from pe_cli.program.ir import Variable


class StaticRNN:
    """Repeats the layers of its block for every step of its inputs, whose first axis is time."""

    def __init__(self, name: str | None = None) -> None:
        self._loop: Scan | None = None
        self._steps: int | None = None
        self._found: list[Variable] | None = None
        self._prefix = LayerHelper("static_rnn", name).name

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Build one step inside.

        Raises:
            FluidValueError: nothing is stepped through.
        """
        self._loop = Scan(default_main_program().global_block())
        OPEN.append(self._loop.outline)
        try:
            yield
        finally:
            OPEN.pop()
        if self._steps is None:
            raise FluidValueError("a StaticRNN needs a step_input")
        with raised_as(FluidValueError):
            self._found, _ = self._loop.close()
        use({"_generated_var": 1})
        for i, out in enumerate(self._found):
            rename(out.block, out, temporary(self._prefix, i))

    @property
    def _now(self) -> Scan:
        if self._loop is None or self._found is not None:
            raise FluidValueError("a StaticRNN is written inside its step", hint="with rnn.step(): ...")
        return self._loop

    def step_input(self, x: Variable) -> Variable:
        """Return one step of [time, batch, ...].

        Raises:
            FluidValueError: its number of steps is not that of other inputs.
        """
        if not x.shape or x.shape[0] == 0:
            raise FluidValueError(f"a StaticRNN goes through the first axis of its inputs, got {x}")
        if self._steps not in (None, -1, x.shape[0]) and x.shape[0] != -1:
            raise FluidValueError(f"inputs of one StaticRNN have {self._steps} and {x.shape[0]} steps")
        self._steps = x.shape[0]
        return self._now.input(x)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Return a variable that keeps a value from step to step; it starts as init, or as init_value.

        Raises:
            FluidValueError: neither init nor shape and batch_ref are given.
        """
        loop = self._now
        use({f"{self._prefix}@mem": 1})
        if init is not None:
            return loop.state(init)
        if shape is None or batch_ref is None:
            raise FluidValueError("a memory needs init, or shape and batch_ref")
        # A -1 stands for the batch, which the op fills in; any size does until then.
        sizes = [1 if s == -1 else s for s in shape]
        whole = loop.source(batch_ref)  # of one step of an input: the batch axis stands behind that of time
        ref, axis = (batch_ref, ref_batch_dim_idx) if whole is None else (whole, 1)
        use({f"{self._prefix}@memory_boot": 1})
        with apart("static_rnn"):
            start: Variable = loop.outline.outside(
                lambda: fill_constant_batch_size_like(ref, sizes, "float32", init_value, axis, init_batch_dim_idx)
            )
        return loop.state(start)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Say what a memory holds in the next step.

        Raises:
            FluidValueError: it is no memory of this one.
        """
        with raised_as(FluidValueError):
            self._now.update(mem, var)

    def step_output(self, o: Variable) -> None:
        """Collect a variable of every step."""
        self._now.output(o)

    def output(self, *outputs: Variable) -> None:
        """Collect variables of every step."""
        for o in outputs:
            self.step_output(o)

    def __call__(self) -> Any:
        if not self._found:
            raise EnforceNotMet("this StaticRNN has no step_output")
        return self._found[0] if len(self._found) == 1 else self._found


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **given: Any,
) -> tuple[Any, Any]:
    """Repeat a cell over the steps of [batch, time, ...], or [time, batch, ...] with time_major.

    Args:
        cell: one step.
        inputs: a variable, or a structure of lists of them.
        initial_states: a variable or a structure; zeros by default.
        sequence_length: [batch]: steps of each sample; its states stay what they are after that.
        time_major: the first axis is time.
        is_reverse: the last step first.
        given: passed on to the cell.

    Returns:
        Outputs of all steps, and the last states.
    """
    first = flatten(inputs)[0]
    states = cell.get_initial_states(first, batch_dim_idx=1 if time_major else 0) if initial_states is None else initial_states
    rows = [x if time_major else _swapped(x) for x in flatten(inputs)]
    masks = []
    # A mask of steps is an input like the others, so that the loop hands each step its row.
    if sequence_length is not None:
        with apart("rnn"):
            masks.append(steps_that_count(first, sequence_length, time_major=time_major, front=True))
        use_outside(LENGTHS)
    if is_reverse:
        use({"reverse": len(rows) + len(masks)})
    prefix = LayerHelper("static_rnn").name
    use({f"{prefix}@mem": len(flatten(states))})
    shape: dict[str, Any] = {}

    def step(each: list[Variable], held: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        out, after = cell(like(inputs, iter(each)), like(states, iter(held)), **given)
        shape["out"] = out
        new = flatten(after)
        if masks:
            with apart("rnn"):
                new = [_kept(a, b, each[-1]) for a, b in zip(new, held, strict=True)]
            use_outside({key: len(new) * count for key, count in KEPT_STATE.items()})
        return new, flatten(out)

    with raised_as(FluidValueError):
        outs, finals = scan(step, [*rows, *masks], flatten(states), backwards=is_reverse)
    use({"_generated_var": 1})
    for i, v in enumerate((*outs, *finals)):
        reverse = is_reverse and i < len(outs)
        last = f"{temporary(prefix, i)}_slice_0" if i >= len(outs) else temporary(prefix, i)
        name = temporary(unique_name.generate("reverse")) if reverse else last
        rename(v.block, v, name)
    found = [x if time_major else _swapped(x) for x in outs]
    # `scan` hands back flat lists: only the cell has said how its outputs are nested.
    return like(shape["out"], iter(found)), like(states, iter(finals))


def steps_that_count(x: Variable, lengths: Variable, *, time_major: bool, front: bool, dtype: str = "float32") -> Any:
    """Return 1 for steps of sequences that count and 0 for those behind them, with the steps in front: [time, batch], or behind.

    Args:
        x: [batch, time, ...], or [time, batch, ...] where time_major.
        lengths: [batch] or [batch, 1] integers.
        time_major: the first axis of x is time.
        front: the first axis of the result is time.
        dtype: of the result.
    """
    time = 0 if time_major else 1
    if x.shape[time] > 0:
        kept = call("sequence_mask", lengths, x.shape[time], dtype)
        return call("transpose", kept, [1, 0]) if front else kept
    # Sizes are only known in a step: a column of the input gives the batch and the steps.
    axes = list(range(2, len(x.shape)))
    one = call("squeeze", call("slice", x, axes, [0] * len(axes), [1] * len(axes)), axes) if axes else x
    row = one if time_major == front else call("transpose", one, [1, 0])
    ones = call("scale", call("zeros_like", call("cast", row, "float32")), 1.0, 1.0)
    # A running sum of ones numbers the steps from 1.
    places = call("cumsum", ones, 0 if front else 1)
    last = call("reshape", call("cast", lengths, "float32"), [1, -1] if front else [-1, 1])
    return call("cast", less_equal(places, call("elementwise_mul", ones, last)), dtype)


def _swapped(x: Variable) -> Variable:
    """Return a variable with its first two axes in the other order."""
    made: Variable = call("transpose", x, [1, 0, *range(2, len(x.shape))])
    return made


def _kept(after: Variable, before: Variable, mask: Variable) -> Variable:
    """Return a new state where a sample's step counts, else the old one."""
    new = call("elementwise_mul", after, mask, 0)
    old = call("elementwise_mul", before, call("scale", mask, -1.0, 1.0), 0)
    made: Variable = call("elementwise_add", new, old)
    return made


__all__ = ["GRUCell", "LSTMCell", "RNNCell", "StaticRNN", "rnn"]
