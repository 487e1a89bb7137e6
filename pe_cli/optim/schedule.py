"""Learning-rate schedules.

The classes describe one and append nothing before they are asked; the functions have fluid's names and append to the
default programs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.program.defaults import default_main_program, default_startup_program
from pe_cli.program.epoch_attributes import Epochs
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Program, Role, Variable

#: Counts steps: 0 in the first. All schedules of a program read the same one.
COUNTER = "@LR_DECAY_COUNTER@"
#: A number of steps, or of epochs whose length is not known yet.
Steps = int


def step_counter(main: Program, startup: Program) -> Variable:
    """Return the counter of steps, int64 [1]; the first call makes it, and appends what counts it up once a step."""
    block, name = main.main_block, counter_name(main)
    if name not in block.vars:
        made = block.create_var(name, TensorType((1,), "int64"), persistable=True, stop_gradient=True)
        # The op that counts runs before the schedules: it starts one below the first step.
        Constant(-1.0)(made, startup.main_block)
        with main.role(Role.LR_SCHED), main.name_scope("learning_rate"):
            # All schedules of a program read the same count, whichever of them was made first.
            block.append_op("increment", {"X": name}, {"Out": name}, {"step": 1.0})
    return block.var(name)


def counter_name(main: Program) -> str:
    """Return the name of a program's counter of steps."""
    return f"{main.prefix}{COUNTER}"


@dataclass(frozen=True)
class Schedule:
    """Base: one op that computes the rate from the counter."""

    op: ClassVar[str] = ""

    def append(
        self,
        main: Program | None = None,
        startup: Program | None = None,
        dtype: str = "float32",
        counter: Variable | None = None,
    ) -> Variable:
        """Append the op.

        Args:
            main: gets the op; default: the default main program.
            startup: gets the counter's first value; default: the default startup program.
            dtype: of the rate.
            counter: of steps, int64 [1]; default: the program's.

        Returns:
            The rate, [1].

        Raises:
            PeError: the schedule's numbers don't fit.
        """
        main, startup = main or default_main_program(), startup or default_startup_program()
        counter = counter or step_counter(main, startup)
        name = main.unique_own("learning_rate")
        # A schedule's constants are attributes of one op: no variables, and nothing to compute but the rate.
        attrs: dict[str, Any] = {"dtype": dtype}
        inputs: dict[str, Any] = {"Step": counter}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.metadata.get("slot"):
                inputs[f.metadata["slot"]] = as_rate(value, main, startup, dtype, self.counter_within(counter))
            elif f.metadata.get("attribute", True):
                attrs[f.name] = list(value) if isinstance(value, (list, tuple)) else value
        with main.role(Role.LR_SCHED), main.name_scope("learning_rate"):
            op = main.main_block.append_op(self.op, inputs, {"Out": name}, {k: _numbers(v) for k, v in attrs.items()})
        # Epochs are put back after the types were inferred with numbers: they become steps when the data is known.
        op.attrs |= {name: value for name, value in attrs.items() if _in_epochs(value)}
        made = main.var(name)
        # No gradient flows to a rate.
        made.stop_gradient = True
        return made

    def counter_within(self, counter: Variable) -> Variable:
        """Return the counter of a schedule that this one hands over to."""
        return counter


def _in_epochs(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, Epochs) for each in value)


def _numbers(value: Any) -> Any:
    """Return a value that an op takes before it is known how long epochs are: of a list with some, numbers that increase."""
    if not _in_epochs(value):
        return value
    whole = all(isinstance(each, Epochs) for each in value)
    # Increasing numbers satisfy every check on boundaries until the real ones are known.
    return [int(each) for each in value] if whole else list(range(1, len(value) + 1))


def as_rate(
    given: float | Schedule | Variable, main: Program, startup: Program, dtype: str, counter: Variable | None = None
) -> Variable:
    """Return the variable of a rate; a number becomes a constant of the step, a schedule counts by the given counter."""
    if isinstance(given, Variable):
        return given
    if isinstance(given, Schedule):
        return given.append(main, startup, dtype, counter)
    name = main.unique_own("learning_rate")
    with main.role(Role.LR_SCHED), main.name_scope("learning_rate"):
        main.main_block.append_op(
            "fill_constant", {}, {"Out": name}, {"shape": [1], "dtype": dtype, "value": float(given)}
        )
    return main.var(name)


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """learning_rate * decay_rate^(step / decay_steps); arguments of the op of that name."""

    op: ClassVar[str] = "exponential_decay"
    learning_rate: float
    decay_steps: Steps
    decay_rate: float
    staircase: bool = False


@dataclass(frozen=True)
class NaturalExpDecay(Schedule):
    """learning_rate * exp(-decay_rate * step / decay_steps); arguments of the op of that name."""

    op: ClassVar[str] = "natural_exp_decay"
    learning_rate: float
    decay_steps: Steps
    decay_rate: float
    staircase: bool = False


@dataclass(frozen=True)
class InverseTimeDecay(Schedule):
    """learning_rate / (1 + decay_rate * step / decay_steps); arguments of the op of that name."""

    op: ClassVar[str] = "inverse_time_decay"
    learning_rate: float
    decay_steps: Steps
    decay_rate: float
    staircase: bool = False


@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """(learning_rate - end) * (1 - step / decay_steps)^power + end; arguments of the op of that name."""

    op: ClassVar[str] = "polynomial_decay"
    learning_rate: float
    decay_steps: Steps
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False


@dataclass(frozen=True)
class PiecewiseDecay(Schedule):
    """values[k] from step boundaries[k - 1] on; arguments of the op of that name."""

    op: ClassVar[str] = "piecewise_decay"
    boundaries: Sequence[Steps]
    values: Sequence[float]


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """learning_rate / 2 * (cos(pi * epoch / epochs) + 1); arguments of the op of that name."""

    op: ClassVar[str] = "cosine_decay"
    learning_rate: float
    step_each_epoch: Steps
    epochs: int


@dataclass(frozen=True)
class NoamDecay(Schedule):
    """learning_rate / sqrt(d_model) * min(t^-0.5, t * warmup_steps^-1.5), t from 1; arguments of `noam_decay`."""

    op: ClassVar[str] = "noam_decay"
    d_model: int
    warmup_steps: Steps
    learning_rate: float = 1.0


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up from max_lr / div_factor to max_lr in pct_start of total_steps, then down to almost 0; arguments of `one_cycle`."""

    op: ClassVar[str] = "one_cycle"
    max_lr: float
    total_steps: Steps
    pct_start: float = 0.3
    anneal_strategy: str = "cos"
    div_factor: float = 25.0
    final_div_factor: float = 1e4


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Half a cosine from learning_rate to eta_min, again and again, each T_mult times as long; arguments of `cosine_restarts`."""

    op: ClassVar[str] = "cosine_restarts"
    learning_rate: float
    T_0: Steps
    T_mult: int = 1
    eta_min: float = 0.0


@dataclass(frozen=True)
class LinearLrWarmup(Schedule):
    """A line from start_lr to end_lr during warmup_steps, then learning_rate: a number, a schedule or a variable.

    A schedule counts on from the first step of all, as fluid's; with delay it starts, at its step 0, when the line ends.
    """

    op: ClassVar[str] = "linear_lr_warmup"
    learning_rate: float | Schedule | Variable = field(metadata={"slot": "LearningRate"})
    warmup_steps: Steps
    start_lr: float
    end_lr: float
    delay: bool = field(default=False, metadata={"attribute": False})

    def counter_within(self, counter: Variable) -> Variable:
        """Return the counter itself, or with delay one that starts at the end of the line."""
        if not self.delay:
            return counter
        program = counter.block.program
        name = program.unique(f"{COUNTER}DELAYED")
        with program.role(Role.LR_SCHED), program.name_scope("learning_rate"):
            counter.block.append_op("delayed_step", {"Step": counter}, {"Out": name}, {"begin": self.warmup_steps})
        made = counter.block.var(name)
        made.stop_gradient = True
        return made


#: Schedules by the type that a config names, the op's; keyword arguments only.
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    made.op: made
    for made in (
        ExponentialDecay,
        NaturalExpDecay,
        InverseTimeDecay,
        PolynomialDecay,
        PiecewiseDecay,
        CosineDecay,
        NoamDecay,
        OneCycle,
        CosineRestarts,
        LinearLrWarmup,
    )
}


def exponential_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """Append `ExponentialDecay` to the default programs and return the rate."""
    return ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase).append()


def natural_exp_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """Append `NaturalExpDecay` to the default programs and return the rate."""
    return NaturalExpDecay(learning_rate, decay_steps, decay_rate, staircase).append()


def inverse_time_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """Append `InverseTimeDecay` to the default programs and return the rate."""
    return InverseTimeDecay(learning_rate, decay_steps, decay_rate, staircase).append()


def polynomial_decay(
    learning_rate: float, decay_steps: int, end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False
) -> Variable:
    """Append `PolynomialDecay` to the default programs and return the rate."""
    return PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle).append()


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """Append `PiecewiseDecay` to the default programs and return the rate."""
    return PiecewiseDecay(boundaries, values).append()


def cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Variable:
    """Append `CosineDecay` to the default programs and return the rate."""
    return CosineDecay(learning_rate, step_each_epoch, epochs).append()


def noam_decay(d_model: int, warmup_steps: int, learning_rate: float = 1.0) -> Variable:
    """Append `NoamDecay` to the default programs and return the rate."""
    return NoamDecay(d_model, warmup_steps, learning_rate).append()


def one_cycle(
    max_lr: float,
    total_steps: int,
    pct_start: float = 0.3,
    anneal_strategy: str = "cos",
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Variable:
    """Append `OneCycle` to the default programs and return the rate."""
    return OneCycle(max_lr, total_steps, pct_start, anneal_strategy, div_factor, final_div_factor).append()


def cosine_restarts(learning_rate: float, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> Variable:
    """Append `CosineRestarts` to the default programs and return the rate."""
    return CosineRestarts(learning_rate, T_0, T_mult, eta_min).append()


def linear_lr_warmup(
    learning_rate: float | Schedule | Variable, warmup_steps: int, start_lr: float, end_lr: float, delay: bool = False
) -> Variable:
    """Append `LinearLrWarmup` to the default programs and return the rate."""
    return LinearLrWarmup(learning_rate, warmup_steps, start_lr, end_lr, delay).append()
