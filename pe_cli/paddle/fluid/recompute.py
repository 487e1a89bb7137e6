"""fluid.optimizer.RecomputeOptimizer: segments of the forward pass that the backward pass computes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.program.ir import Operator, Program, Role, Variable
from pe_cli.program.segments import cut


class RecomputeOptimizer:
    """Wraps an optimizer: what lies between checkpoints is not kept for the backward pass, but computed again there.

    Args:
        optimizer: appends gradients and updates.

    Source:
        fluid.optimizer.RecomputeOptimizer; Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._checkpoints: Sequence[Variable | str] | None = None

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str]) -> None:
        """Name the variables that are kept and that end segments.

        Raises:
            FluidTypeError: they are no list of variables or names.
        """
        if not isinstance(checkpoints, (list, tuple)) or not all(isinstance(c, (Variable, str)) for c in checkpoints):
            raise FluidTypeError(f"checkpoints must be a list of variables, got {type(checkpoints).__name__}", hint="[fc_1, fc_2]")
        self._checkpoints = checkpoints

    def load(self, stat_dict: Any) -> None:
        """Refused, as in the original: fluid.io loads what programs keep.

        Raises:
            NotThereYet: always; a NotImplementedError.
        """
        text = "RecomputeOptimizer.load: the variables of a static program are loaded from files"
        raise NotThereYet(text, hint="use fluid.io.load_persistables")

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """Part the program before the loss at the checkpoints and append gradients; arguments of the wrapped optimizer's `backward`.

        Returns:
            (parameter, gradient) pairs.

        Raises:
            FluidValueError: no checkpoints were set, or one is not computed before the loss.
        """
        if self._checkpoints is None:
            raise FluidValueError("RecomputeOptimizer has no checkpoints", hint="call _set_checkpoints([...]) first")
        ops = loss.block.ops
        # Only ops of the forward pass make checkpoints; gradients may write variables of the same names.
        makers = {name: place for place, op in enumerate(ops) if op.role is Role.FORWARD for name in op.output_names()}
        names = [c if isinstance(c, str) else c.name for c in self._checkpoints]
        for name in names:
            if name not in makers:
                raise FluidValueError(f"no operator computes the checkpoint '{name}'", hint=did_you_mean(name, makers))
        cut(loss.block.program, [makers[name] for name in names])
        return self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Any) -> list[Operator]:
        """Append clipping, weight decay and updates by the wrapped optimizer."""
        made: list[Operator] = self._optimizer.apply_gradients(params_grads)
        return made

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Any) -> list[Operator]:
        """Append clipping, weight decay and updates to the loss's program by the wrapped optimizer."""
        made: list[Operator] = self._optimizer.apply_optimize(loss, startup_program, params_grads)
        return made

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        grad_clip: Any = None,
    ) -> tuple[list[Operator], Any]:
        """Append everything that makes the loss smaller.

        Returns:
            Update operators, and (parameter, gradient) pairs.

        Raises:
            FluidValueError: see `backward`.
        """
        if grad_clip is not None:
            self._optimizer.grad_clip = grad_clip
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def __getattr__(self, name: str) -> Any:
        # Whatever else scripts ask of an optimizer, the wrapped one answers; there is none yet in what copy and pickle make.
        if name == "_optimizer":
            raise AttributeError(name)
        return getattr(self._optimizer, name)
