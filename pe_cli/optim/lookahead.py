"""Lookahead: another optimizer runs ahead, and parameters follow a part of the way. What it computes stands at its two ops."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.optim.optimizer import Optimizer, Pairs, State
from pe_cli.optim.schedule import step_counter
from pe_cli.optim.wrappers import OptimizerWrapper
from pe_cli.program.defaults import default_startup_program
from pe_cli.program.ir import Operator, Program, Role

_SLOW = State("Slow", "slow")


class Lookahead(OptimizerWrapper):
    """Go alpha of the way that another optimizer went in k steps; op `lookahead`.

    Args:
        inner: the other optimizer; learning rate, clipping and weight decay are its own.
        alpha: part of the way, in (0, 1], no unit.
        k: steps of a round, at least 1.

    Raises:
        PeError: alpha is not in (0, 1], or k is below 1.
    """

    op = "lookahead"

    def __init__(self, inner: Optimizer, alpha: float = 0.5, k: int = 5, name: str | None = None) -> None:
        super().__init__(inner, name)
        if not 0 < alpha <= 1:
            raise PeError(f"Lookahead: alpha must be in (0, 1], got {alpha}")
        if k < 1:
            raise PeError(f"Lookahead: k must be >= 1, got {k}")
        self.alpha, self.k = alpha, k

    def states(self) -> Sequence[State]:
        """Return the parameter before the round."""
        return (_SLOW,)

    def follows(self) -> Sequence[str]:
        """Return the parameter before the round: what joins within a round has been as it is since it began."""
        return _SLOW.slot, *super().follows()

    def apply_gradients(self, pairs: Pairs, startup_program: Program | None = None) -> list[Operator]:
        """Append the other optimizer's ops, between those that keep the start and those that go a part of the way.

        Returns:
            The other optimizer's update ops.
        """
        startup = startup_program or default_startup_program()
        # Before the inner optimizer's ops, because it keeps what they are about to change.
        if pairs:
            self._append("lookahead_start", pairs, startup, {"k": self.k})
        made = self.inner.apply_gradients(pairs, startup)
        self._append(self.op, pairs, startup, {"k": self.k, "alpha": float(self.alpha)})
        return made

    def _append(self, op: str, pairs: Pairs, startup: Program, attrs: dict[str, float]) -> None:
        program = pairs[0][0].block.program
        counter = step_counter(program, startup)
        for parameter, gradient in pairs:
            slow = self._state(_SLOW, parameter, startup)
            # The same op keeps or moves, by the number of the step: a step has no branches.
            outputs = {"ParamOut": parameter} if op == self.op else {"SlowOut": slow}
            with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]), program.name_scope("lookahead"):
                inputs = {"Param": parameter, "Slow": slow, "Step": counter}
                parameter.block.append_op(op, inputs, outputs, attrs, at=parameter.at)
