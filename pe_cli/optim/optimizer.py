"""Optimizer: appends backward, clipping, weight decay and one update op per parameter; computes nothing itself.

Weight decay has two places. A regularizer adds to the gradient, before the update. An optimizer whose decay is apart from the gradient
has an update op with an attribute for it (`Optimizer.decay_attr`). `Parameter.weight_decay` goes before the optimizer's own in both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find
from pe_cli.optim.clip import GradientClip, clip_gradients
from pe_cli.optim.regularizer import Regularizer, own_decay, regularize
from pe_cli.optim.schedule import Schedule
from pe_cli.program.backward import append_backward
from pe_cli.program.defaults import default_startup_program
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Operator, Parameter, Program, Role, Variable
from pe_cli.program.sparse import rows_of

Pairs = list[tuple[Parameter, Variable]]
Rate = float | Schedule | Variable


@dataclass(frozen=True)
class State:
    """A variable that an update op keeps for every parameter.

    Args:
        slot: of the op.
        name: part of the variable's name: `<parameter>_<name>_0`.
        value: first value of every element; text names the argument of the optimizer that is it.
        single: [1] instead of the parameter's shape.
        out: output slot; default: `<slot>Out`.
        shape: another one than the parameter's.
    """

    slot: str
    name: str
    value: float | str = 0.0
    single: bool = False
    out: str = ""
    shape: tuple[int, ...] | None = None


class Optimizer:
    """Base of all optimizers.

    Args:
        learning_rate: a number, a schedule, or a [1] variable.
        regularization: weight decay of parameters that have none of their own.
        grad_clip: clipping of parameters that have none of their own.
        name: prefix of the variables that this makes; default: none.

    Raises:
        PeError: a learning rate that is not above 0.
    """

    op: ClassVar[str] = ""
    #: The update op's attribute with the coefficient of a weight decay apart from the gradient; empty where there is none.
    decay_attr: ClassVar[str] = ""

    def __init__(
        self,
        learning_rate: Rate,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        # A bool is an int in Python, and True would pass as a rate of 1.
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, (int, float, Schedule, Variable)):
            raise PeError(f"learning_rate must be a number, a schedule or a variable, got {learning_rate!r}")
        if isinstance(learning_rate, (int, float)):
            self.check_rate(learning_rate)
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.grad_clip = grad_clip
        self.name = name
        # By program, because one optimizer may be used for several, each with variables of its own.
        self._rates: dict[tuple[int, float], Variable] = {}
        self._states: dict[tuple[int, str, str], Variable] = {}

    # --- what an optimizer says ---------------------------------------------------------------------------------------

    def states(self) -> Sequence[State]:
        """Return the state that the update op keeps for every parameter."""
        return ()

    def states_of(self, parameter: Parameter) -> Sequence[State]:
        """Return what the update op keeps for a parameter, where that depends on its shape."""
        del parameter
        return self.states()

    def follows(self) -> Sequence[str]:
        """Return the slots of states that have the parameter's value when training it begins, whatever the startup program says."""
        return ()

    def op_of(self, parameter: Parameter) -> str:
        """Return the update op of a parameter."""
        del parameter
        return self.op

    def attrs(self) -> Mapping[str, Any]:
        """Return the update op's attributes."""
        return {}

    def decay_of(self, parameter: Parameter) -> float:
        """Return the coefficient of a parameter's weight decay apart from the gradient, no unit: its own, or the optimizer's.

        Returns:
            At least 0; 0 where the decay is a part of the gradient, and `regularize` appends it.

        Raises:
            PeError: the parameter's own is negative.
        """
        if not self.decay_attr:
            return 0.0
        own = own_decay(parameter)
        return float(self.attrs()[self.decay_attr] if own is None else own)

    @property
    def takes_rate(self) -> bool:
        """Whether the update op has a learning rate."""
        return True

    @property
    def evaluations(self) -> int:
        """How often a step computes a gradient."""
        return 1

    def check_rate(self, learning_rate: float) -> None:
        """Check a learning rate that is a number.

        Raises:
            PeError: it is not above 0, or not finite.
        """
        if not (learning_rate > 0 and math.isfinite(learning_rate)):
            raise PeError(f"learning_rate must be > 0, got {learning_rate}")

    def check_part(self, **values: float) -> None:
        """Check numbers that say which part of something stays.

        Raises:
            PeError: one is outside [0, 1).
        """
        for name, value in values.items():
            if not 0 <= value < 1:
                raise PeError(f"{type(self).__name__}: {name} must be in [0, 1), got {value}")

    def check_decay(self, weight_decay: float) -> None:
        """Check the coefficient of a weight decay.

        Raises:
            PeError: it is negative or not finite.
        """
        if not (weight_decay >= 0 and math.isfinite(weight_decay)):
            raise PeError(f"{type(self).__name__}: weight_decay must be >= 0, got {weight_decay}")

    def check_epsilon(self, epsilon: float) -> None:
        """Check an epsilon.

        Raises:
            PeError: it is negative.
        """
        if not epsilon >= 0:
            raise PeError(f"{type(self).__name__}: epsilon must be >= 0, got {epsilon}")

    # --- what is appended ---------------------------------------------------------------------------------------------

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[str | Variable] | None = None,
        no_grad_set: Collection[str | Variable] | None = None,
    ) -> tuple[list[Operator], Pairs]:
        """Append everything that makes the loss smaller, once a step.

        Args:
            loss: one number.
            startup_program: gets the first values of the optimizer's variables; default: the default startup program.
            parameter_list: parameters to update; default: all trainable ones.
            no_grad_set: variables that gradients do not flow through.

        Returns:
            The update ops, and (parameter, gradient) pairs before clipping and weight decay.

        Raises:
            PeError: the loss is not one number, or depends on no trainable parameter.
        """
        pairs = self.backward(loss, parameter_list, no_grad_set)
        return self.apply_gradients(pairs, startup_program), pairs

    def backward(
        self,
        loss: Variable,
        parameter_list: Sequence[str | Variable] | None = None,
        no_grad_set: Collection[str | Variable] | None = None,
    ) -> Pairs:
        """Append the gradient ops and return (parameter, gradient) pairs; arguments of `minimize`."""
        wanted = None if parameter_list is None else [_name(p) for p in parameter_list]
        return append_backward(loss, wanted, {_name(v) for v in no_grad_set or ()})

    def apply_gradients(self, pairs: Pairs, startup_program: Program | None = None) -> list[Operator]:
        """Append clipping, weight decay and updates, in this order.

        Args:
            pairs: (parameter, gradient).
            startup_program: as for `minimize`.

        Returns:
            The update ops.

        Raises:
            PeError: no pair, or types that do not fit.
        """
        if not pairs:
            raise PeError("there is no gradient to apply")
        startup = startup_program or default_startup_program()
        # A parameter with a rate of its own takes plain steps: the optimizer's state and clipping would change their size.
        made = [_descend(p, g, p.own_rate) for p, g in pairs if p.own_rate is not None]
        pairs = [(p, g) for p, g in pairs if p.own_rate is None]
        if not pairs:
            return made
        # Roles name the gradient before clipping and decay: that is the one that is summed over devices.
        raw = [g for _, g in pairs]
        clipped = clip_gradients(pairs, self.grad_clip)
        ready = regularize(clipped, self.regularization, raw, apart=bool(self.decay_attr))
        program = pairs[0][0].block.program
        rates = {p.name: self._rate_of(p, program, startup) for p, _ in ready} if self.takes_rate else {}
        for (parameter, gradient), before in zip(ready, raw, strict=True):
            with program.role(Role.OPTIMIZE, [parameter.name, before.name]), program.name_scope("optimizer"):
                made.append(self._update(parameter, gradient, rates.get(parameter.name), startup))
        return made

    def _update(self, parameter: Parameter, gradient: Variable, rate: Variable | None, startup: Program) -> Operator:
        states = {s.slot: self._state(s, parameter, startup) for s in self.states_of(parameter)}
        inputs: dict[str, Variable | str] = {"Param": parameter, "Grad": gradient, **states}
        rows = rows_of(parameter.block, gradient.name)
        if rows is not None:
            self._check_rows(parameter)
            inputs["Rows"] = rows
        if rate is not None:
            inputs["LearningRate"] = rate
        outputs: dict[str, Variable] = {"ParamOut": parameter}
        outputs |= {s.out or f"{s.slot}Out": states[s.slot] for s in self.states_of(parameter)}
        attrs = dict(self.attrs())
        if self.decay_attr:
            attrs[self.decay_attr] = self.decay_of(parameter)
        return parameter.block.append_op(self.op_of(parameter), inputs, outputs, attrs, at=parameter.at)

    def _check_rows(self, parameter: Parameter) -> None:
        if "Rows" not in {s.name for s in find(self.op).inputs}:
            # A dense update of a row-sparse gradient would move rows by the momentum of rows that nobody looked up.
            raise PeError(
                f"{type(self).__name__} has no update for row-sparse gradients, and '{parameter.name}' has one",
                at=parameter.at,
                hint="set is_sparse: false at its embedding, or use SGD, Momentum, Adagrad or Adam",
            )

    def _state(self, state: State, parameter: Parameter, startup: Program) -> Variable:
        block = parameter.block
        key = id(block.program), state.slot, parameter.name
        if key not in self._states:
            shape = (1,) if state.single else parameter.shape if state.shape is None else state.shape
            # Named like fluid's, so that checkpoints of both have the same names.
            kind = parameter.type.with_shape(*shape)
            made = block.create_var(
                self._name_of(block.program, parameter.name, state.name),
                kind,
                persistable=True,
                stop_gradient=True,
                at=parameter.at,
            )
            Constant(float(state.value))(made, startup.main_block)
            self._states[key] = made
        return self._states[key]

    def state(self, slot: str, parameter: Parameter) -> Variable:
        """Return the variable that an update op keeps in a slot for a parameter.

        Raises:
            PeError: it was not made, or there is no such slot.
        """
        key = id(parameter.block.program), slot, parameter.name
        if key not in self._states:
            raise PeError(f"{type(self).__name__} keeps no {slot} for '{parameter.name}'", hint="call minimize first")
        return self._states[key]

    # --- learning rate ------------------------------------------------------------------------------------------------

    def rate(self, program: Program) -> Variable | None:
        """Return the learning rate's variable of a program, None before `minimize`."""
        return self._rates.get((id(program), 1.0))

    def _rate_of(self, parameter: Parameter, program: Program, startup: Program) -> Variable:
        key = id(program), parameter.learning_rate
        # One variable for each factor: parameters that share a factor share the op.
        if key not in self._rates:
            common = self._common_rate(program, startup, parameter.dtype)
            if parameter.learning_rate == 1.0:
                return common
            name = program.unique(f"{common.name}@SCALED")
            with program.role(Role.LR_SCHED), program.name_scope("learning_rate"):
                program.main_block.append_op(
                    "scale", {"X": common}, {"Out": name}, {"scale": parameter.learning_rate}, at=parameter.at
                )
            self._rates[key] = program.var(name)
        return self._rates[key]

    def _common_rate(self, program: Program, startup: Program, dtype: str) -> Variable:
        key = id(program), 1.0
        if key not in self._rates:
            given = self.learning_rate
            if isinstance(given, Schedule):
                self._rates[key] = given.append(program, startup, dtype)
            elif isinstance(given, Variable):
                self._rates[key] = given
            else:
                # A variable between steps and no constant, so that a script may set the rate while it trains.
                made = program.main_block.create_var(
                    self._name_of(program, "", "learning_rate"),
                    TensorType((1,), dtype),
                    persistable=True,
                    stop_gradient=True,
                )
                Constant(float(given))(made, startup.main_block)
                self._rates[key] = made
        return self._rates[key]

    def _name_of(self, program: Program, parameter: str, what: str) -> str:
        """Return a name for what the optimizer keeps of a parameter, or, where that is empty, of all."""
        return program.unique_own("_".join(part for part in (self.name, parameter, what) if part))


def _descend(parameter: Parameter, gradient: Variable, rate: float) -> Operator:
    """Append the update of a parameter that has a rate of its own."""
    block = parameter.block
    with block.program.role(Role.OPTIMIZE, [parameter.name, gradient.name]), block.program.name_scope("optimizer"):
        name = block.program.unique(f"{parameter.name}@RATE")
        block.append_op("fill_constant", {}, {"Out": name}, {"shape": [1], "dtype": parameter.dtype, "value": rate}, at=parameter.at)
        inputs = {"Param": parameter, "Grad": gradient, "LearningRate": block.var(name)}
        return block.append_op("sgd", inputs, {"ParamOut": parameter}, at=parameter.at)


def _name(given: str | Variable) -> str:
    return given.name if isinstance(given, Variable) else given
