"""fluid.optimizer.GradientMergeOptimizer: the gradients of several runs are added up for one update."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.layers.control.loops import branch
from pe_cli.optim.optimizer import Optimizer, Pairs
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.framework import default_startup_program, program_guard
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Operator, Program, Role, Variable
from pe_cli.program.outline import Outline
from pe_cli.program.sparse import rows_of


class GradientMergeOptimizer:
    """Wraps an optimizer: every run adds its gradients to sums, and every k-th run updates with them and clears them.

    Args:
        inner_optimizer: updates; learning rate, clipping and weight decay are its own.
        k_steps: runs for one update, at least 1.
        avg: update with the mean of the runs' gradients; else with their sum.

    Source:
        fluid.optimizer.GradientMergeOptimizer.

    Raises:
        FluidTypeError: inner_optimizer is no optimizer.
    """

    def __init__(self, inner_optimizer: Any, k_steps: int = 1, avg: bool = True) -> None:
        if not isinstance(inner_optimizer, Optimizer):
            raise FluidTypeError(f"GradientMergeOptimizer: inner_optimizer must be an optimizer, got {type(inner_optimizer).__name__}")
        self.inner_optimizer = inner_optimizer
        self._set_k_steps(k_steps)
        self._set_avg(avg)

    def _set_k_steps(self, k_steps: int) -> None:
        """Say how many runs there are for one update.

        Raises:
            FluidValueError: no whole number of at least 1.
        """
        if isinstance(k_steps, bool) or not isinstance(k_steps, int) or k_steps < 1:
            raise FluidValueError(f"GradientMergeOptimizer: k_steps is {k_steps!r}", hint="a whole number of at least 1")
        self.k_steps = k_steps

    def _set_avg(self, avg: bool) -> None:
        """Say whether updates are with the mean."""
        self.avg = bool(avg)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Pairs:
        """Append gradient ops and return (parameter, gradient) pairs."""
        inner: Any = self.inner_optimizer
        pairs: Pairs = inner.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs

    def apply_gradients(self, params_grads: Pairs) -> list[Operator]:
        """Append the sums, and what happens in every k-th run; see `apply_optimize`."""
        return self._apply(params_grads, default_startup_program())

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Pairs) -> list[Operator]:
        """Append the sums to the loss's program, and what happens in every k-th run.

        Returns:
            Operators that update.

        Raises:
            FluidValueError: a gradient is row-sparse.
        """
        startup = startup_program or default_startup_program()
        with program_guard(loss.block.program, startup):
            return self._apply(params_grads, startup)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], Pairs]:
        """Append everything that makes the loss smaller, once every k runs.

        Returns:
            Update operators, and (parameter, gradient) pairs of one run.
        """
        startup = startup_program or default_startup_program()
        with program_guard(loss.block.program, startup):
            pairs = self.backward(loss, startup, parameter_list, no_grad_set)
            return self._apply(pairs, startup), pairs

    def _apply(self, pairs: Pairs, startup: Program) -> list[Operator]:
        if not pairs:
            raise FluidValueError("there is no gradient to apply")
        for parameter, gradient in pairs:
            if rows_of(parameter.block, gradient.name) is not None:
                message = f"GradientMergeOptimizer adds up no row-sparse gradient, and '{parameter.name}' has one"
                # A sum of row-sparse gradients would have to hold all rows that any of the runs touched.
                raise FluidValueError(message, hint="set is_sparse=False at its embedding")
        program = pairs[0][0].block.program
        block, inner = program.global_block(), self.inner_optimizer
        if inner.takes_rate:  # schedules go on with every run, as in the original
            for parameter, _ in pairs:
                inner._rate_of(parameter, program, startup)
        with program.role(Role.OPTIMIZE), program.name_scope("gradient_merge"):
            # Sums outlive a run; they are cleared by the branch that updates, not when a run begins.
            sums = [_zeros(p.name, p.type, startup, p) for p, _ in pairs]
            for (parameter, gradient), kept in zip(pairs, sums, strict=True):
                block.append_op("sum", {"X": [kept.name, gradient.name]}, {"Out": kept.name}, at=parameter.at)
            now = self._now(program, startup)
            # What is appended from here on, until `cut`, becomes the branch of every k-th run.
            yes = Outline(block)
            made = inner.apply_gradients([(p, self._total(kept)) for (p, _), kept in zip(pairs, sums, strict=True)], startup)
            for kept in sums:
                attrs = {"shape": list(kept.shape), "dtype": kept.dtype, "value": 0.0}
                block.append_op("fill_constant", {}, {"Out": kept}, attrs, at=kept.at)
            yes.cut()
            # The other branch is empty: nothing but the sums changes in it.
            no = Outline(block)
            no.cut()
            branch(now, yes, no, ([], []))
        return made

    def _now(self, program: Program, startup: Program) -> Variable:
        """Append the counter of runs; return whether this one updates, one bool."""
        block = program.global_block()
        step = _zeros("gradient_merge_step", TensorType((1,), "int64"), startup, block=block)
        names = [program.unique(f"gradient_merge_{what}") for what in ("k", "place", "zero", "now")]
        block.append_op("increment", {"X": step}, {"Out": step}, {"step": 1.0})
        for name, value in ((names[0], self.k_steps), (names[2], 0)):
            block.append_op("fill_constant", {}, {"Out": name}, {"shape": [1], "dtype": "int64", "value": float(value)})
        block.append_op("elementwise_mod", {"X": step, "Y": names[0]}, {"Out": names[1]})
        block.append_op("equal", {"X": names[1], "Y": names[2]}, {"Out": names[3]})
        return block.var(names[3])

    def _total(self, kept: Variable) -> Variable:
        """Append what the update gets of a sum."""
        block = kept.block
        name = block.program.unique(f"{kept.name}@TOTAL")
        # Scaled once per update instead of at every addition: one rounding, as in the original.
        block.append_op("scale", {"X": kept}, {"Out": name}, {"scale": 1.0 / self.k_steps if self.avg else 1.0}, at=kept.at)
        return block.var(name)

    def __getattr__(self, name: str) -> Any:
        # Whatever else scripts ask of an optimizer, the wrapped one answers; there is none yet in what copy and pickle make.
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


def _zeros(name: str, kind: TensorType, startup: Program, of: Any = None, block: Any = None) -> Variable:
    """Make a variable that lives between runs, 0 at first: `<parameter>@GradientMerge`, or of its own name."""
    where = block or of.block
    own = where.program.unique(name if of is None else f"{name}@GradientMerge")
    made: Variable = where.create_var(own, kind, persistable=True, stop_gradient=True, at=of.at if of is not None else None)
    Constant(0.0)(made, startup.global_block())
    return made
