"""Optimizers of the core by the original's names, with and without its suffix."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.ops.define.registry import find
from pe_cli.optim import adaptive_moments, optimizers
from pe_cli.optim.optimizer import Optimizer
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import variable_betas
from pe_cli.paddle.fluid.averages import ExponentialMovingAverage, ModelAverage
from pe_cli.paddle.fluid.fed_rates import Fed, LRScheduler
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program, program_guard
from pe_cli.paddle.fluid.gradient_merge import GradientMergeOptimizer
from pe_cli.paddle.fluid.naming import use
from pe_cli.paddle.fluid.recompute import RecomputeOptimizer
from pe_cli.paddle.fluid.sparse_decay import Undone, sparse_tables
from pe_cli.paddle.fluid.update_counts import of_updates
from pe_cli.paddle.reference_names import missing
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Operator, Program, Variable

Pairs = list[tuple[Any, Variable]]


class _Adapter(Optimizer):
    """What the original's optimizers take beside the core's arguments."""

    #: Whether weight_decay is an argument of the core's optimizer: a number, and no regularizer.
    _own_decay = False
    #: Whether gradients of tables stay row-sparse where a decay moves all rows: servers do that.
    _for_rows = False
    #: Arguments in the original's order.
    _order: tuple[str, ...] = ()

    @raised_as(FluidValueError)
    def __init__(self, *args: Any, **given: Any) -> None:
        if len(args) > len(self._order):
            raise FluidTypeError(f"{type(self).__name__} takes {len(self._order)} arguments at most, got {len(args)}")
        # The original takes arguments by place; the core's optimizers, by name alone.
        for name, value in zip(self._order, args, strict=False):
            if name in given:
                raise FluidTypeError(f"{type(self).__name__} got '{name}' twice")
            given[name] = value
        self._parameters = given.pop("parameter_list", None)
        self._excludes = given.pop("exclude_from_weight_decay_fn", None) if isinstance(self, adaptive_moments.Lamb) else None
        given.pop("multi_precision", None)
        # Adam alone can leave rows without a gradient as they are.
        if not isinstance(self, adaptive_moments.Adam):
            given.pop("lazy_mode", None)
        if given.get("parameters") is not None:
            self._parameters = given.pop("parameters")
        given.pop("parameters", None)
        if "inner_optimizer" in given:
            given["inner"] = given.pop("inner_optimizer")
        decay = None if self._own_decay else given.pop("weight_decay", None)
        if decay is not None:
            from pe_cli.paddle.fluid.regularizer import L2Decay

            given["regularization"] = L2Decay(decay) if isinstance(decay, (int, float)) else decay
        if isinstance(given.get("learning_rate"), LRScheduler):
            given["learning_rate"] = Fed(given["learning_rate"])
        # Decays may be variables in scripts. The core's optimizer is made with the usual numbers, and `_update` reads the variables.
        self._betas = {name: given.pop(name) for name in variable_betas.FIRST if isinstance(given.get(name), Variable)}
        given |= {name: variable_betas.FIRST[name] for name in self._betas}
        super().__init__(**given)

    @property
    def type(self) -> str:
        """The type of the update op."""
        return self.op

    def attrs(self) -> Mapping[str, Any]:
        """Return the update op's attributes; Adam corrects row-sparse steps, and Ftrl takes l1 for l2, where the original does."""
        attrs = {**super().attrs(), **({"ahead": True} if self.op == "adam" else {})}
        return {**attrs, "l2": attrs["l1"]} if self.op == "ftrl" else attrs

    # What scripts call of the original's optimizers below their documented names.

    @property
    def _learning_rate(self) -> Any:
        return self.learning_rate

    @property
    def _name(self) -> str | None:
        return self.name or None

    @_name.setter
    def _name(self, name: str | None) -> None:
        """Give what is kept between steps another name, before `minimize`."""
        self.name = name or ""

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        program = default_main_program() if program is None else program
        given = self.learning_rate
        # A variable is known before `minimize`, too: scripts fetch it.
        return given if isinstance(given, Variable) and given.block.program is program else self.rate(program)

    def check_rate(self, learning_rate: float) -> None:
        """Check a learning rate: 0, which leaves parameters as they are, and rates below 0 are numbers of scripts, too.

        Raises:
            PeError: it is not finite.
        """
        if not math.isfinite(learning_rate):
            raise PeError(f"learning_rate must be finite, got {learning_rate}")

    def _keep_unread(self, parameter: Any, startup: Program) -> None:
        """Make what the original keeps and no update reads, so that its files have a place for everything."""
        program, start = parameter.block.program, startup.global_block()
        # One rate for the whole program, made with the first parameter.
        if not self.takes_rate and parameter is program.global_block().parameters()[0]:
            self._common_rate(program, startup, parameter.dtype)
        for what, value, shape in _unread(self, parameter):
            facts = {"persistable": True, "stop_gradient": True, "at": parameter.at}
            kind = parameter.type.with_shape(*shape)
            made = parameter.block.create_var(self._name_of(program, parameter.name, what), kind, **facts)
            Constant(value)(made, start)

    def _update(self, parameter: Any, gradient: Variable, rate: Variable | None, startup: Program) -> Operator:
        self._keep_unread(parameter, startup)
        if not self._betas:
            return super()._update(parameter, gradient, rate, startup)
        if not isinstance(self, adaptive_moments.Adam) or rate is None:
            raise FluidTypeError(f"{type(self).__name__} takes its decays as numbers", hint="Adam takes variables, too")
        block, like = parameter.block, parameter.dtype
        numbers = {name: float(getattr(self, name)) for name in variable_betas.FIRST if name not in self._betas}
        # Those that are numbers become constants, since the op that reads variables reads all of them so.
        fixed = {
            name: LayerHelper("adam").one("fill_constant", {}, {"shape": [1], "dtype": like, "value": value})
            for name, value in numbers.items()
        }
        states = {s.slot: self._state(s, parameter, startup) for s in self.states_of(parameter)}
        betas = {name: v if isinstance(v, Variable) else block.var(v) for name, v in {**self._betas, **fixed}.items()}
        return variable_betas.step(parameter, gradient, rate, states, betas, self.epsilon)

    def _name_of(self, program: Program, parameter: str, what: str) -> str:
        return program.unique_own("_".join(part for part in (parameter, self.name, what) if part) if parameter else what)

    def decay_of(self, parameter: Any) -> float:
        """Return the coefficient of a parameter's decay; 0 where `exclude_from_weight_decay_fn` says so."""
        return 0.0 if self._excludes is not None and self._excludes(parameter) else super().decay_of(parameter)

    @raised_as(FluidValueError)
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        grad_clip: Any = None,
    ) -> tuple[list[Operator], Pairs]:
        """Append everything that makes the loss smaller, once a step; arguments of the core's optimizer.

        Args:
            loss: one number.
            startup_program: gets first values; default: the default startup program.
            parameter_list: parameters or names; default: the constructor's, or all trainable ones.
            no_grad_set: variables or names that gradients do not flow through.
            grad_clip: the older place of the constructor's argument.
        """
        if grad_clip is not None:
            self.grad_clip = grad_clip
        startup, program = startup_program or default_startup_program(), loss.block.program
        tables = [] if self._for_rows else sparse_tables(loss.block, self.regularization)

        def append() -> tuple[list[Operator], Pairs]:
            with program_guard(program, startup):
                pairs = self.backward(loss, None, parameter_list, no_grad_set)
                return self.apply_gradients(pairs, startup), pairs

        def for_rows() -> None:
            self._for_rows = True
            self._rates, self._states = {}, {}
            append()

        if not tables:
            return append()
        # A program that servers take over needs the update for rows of tables: what is appended here can be taken back and appended anew.
        program.undone = undone = Undone((program, startup), for_rows)  # type: ignore[attr-defined]
        made = append()
        undone.done(tables)
        return made

    def backward(  # type: ignore[override]  # the core takes parameters where the original takes the startup program
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Pairs:
        """Append gradient ops and return (parameter, gradient) pairs.

        Gradients of tables are whole where the update takes no rows alone, and where a decay moves all rows, as it does in the original.
        """
        takes_rows = "Rows" in {slot.name for slot in find(self.op).inputs}
        # The original makes whole gradients of tables wherever its update, or a decay, moves all rows; so the look-up is changed before
        # gradients are appended.
        if not (takes_rows and self._for_rows):
            for op in sparse_tables(loss.block, self.regularization if takes_rows else True):
                op.attrs["is_sparse"] = False
        return super().backward(loss, parameter_list or self._parameters, no_grad_set)

    def apply_gradients(self, params_grads: Pairs, startup_program: Program | None = None) -> list[Operator]:
        """Append clipping, weight decay and updates."""
        name = type(self).__name__
        use({name if name.endswith("Optimizer") else f"{name}Optimizer": 1})
        pairs = [pair for pair in params_grads if pair[1] is not None]
        use(of_updates(pairs, self.grad_clip, self.regularization, rates=self.takes_rate))
        return super().apply_gradients(params_grads, startup_program or default_startup_program())

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Pairs) -> list[Operator]:
        """Append clipping, weight decay and updates to the loss's program."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads, startup_program)


def _unread(optimizer: Any, parameter: Any) -> list[tuple[str, float, tuple[int, ...]]]:
    """Return name, first value and shape of what the original keeps of a parameter and no update reads."""
    if isinstance(optimizer, optimizers.RMSProp) and not optimizer.centered:
        return [("mean_grad", 0.0, parameter.shape)]
    if isinstance(optimizer, adaptive_moments.Lamb):
        return [("beta1_pow_acc", float(optimizer.beta1), (1,)), ("beta2_pow_acc", float(optimizer.beta2), (1,))]
    return []


def _adapted(base: type[Optimizer]) -> type[Optimizer]:
    names = list(inspect.signature(base).parameters)
    # parameter_list stands before these arguments in the original's signatures.
    at = next((i for i, name in enumerate(names) if name in ("use_nesterov", "regularization")), len(names))
    order = (*names[:at], "parameter_list", *names[at:])
    facts = {"__doc__": base.__doc__, "__module__": __name__, "_own_decay": "weight_decay" in names, "_order": order}
    return type(base.__name__, (_Adapter, base), facts)


for _name, _made in optimizers.OPTIMIZERS.items():
    if not _name.endswith("Optimizer"):
        globals()[_name] = globals()[f"{_name}Optimizer"] = _adapted(_made)


__all__ = ["ExponentialMovingAverage", "GradientMergeOptimizer", "ModelAverage", "RecomputeOptimizer"]
__getattr__ = missing("fluid.optimizer", lambda: globals())
