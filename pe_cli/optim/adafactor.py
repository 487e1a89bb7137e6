"""Adafactor: second moments by rows and columns, so that the state of a matrix is as small as its sides."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared, decay, least
from pe_cli.optim.optimizer import Rate, State
from pe_cli.optim.regularizer import Regularizer
from pe_cli.program.ir import Parameter


class Adafactor(Declared):
    """The gradient over the root of its squares, kept by rows and columns; ops `adafactor` and, for vectors, `adafactor_whole`.

    Numbers and defaults are those of torch.optim.Adafactor. A step is relative to the size of the parameter.

    Args:
        beta2_decay: power of the step that a new square counts with, at most 0, no unit.
        epsilon1: least root that is divided by, unit of the gradient; 0 takes that of the element type.
        epsilon2: least size of a parameter, its unit.
        clip: root mean square of a direction above which it is shortened, above 0, no unit.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.

    Source:
        Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost".

    Raises:
        PeError: beta2_decay is above 0, or clip is not above 0.
    """

    op = "adafactor"
    decay_attr = "weight_decay"

    learning_rate: Rate = 0.01
    beta2_decay: float = -0.8
    epsilon1: float = least(default=0.0)
    epsilon2: float = least(default=0.001)
    clip: float = 1.0
    weight_decay: float = decay(default=0.0)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def _begin(self) -> None:
        """Check the decay's power and the limit of a direction."""
        if not (self.beta2_decay <= 0 and self.clip > 0):
            raise PeError(f"Adafactor needs beta2_decay <= 0 and clip > 0, got {self.beta2_decay} and {self.clip}")

    def op_of(self, parameter: Parameter) -> str:
        """Return the op with factors, but for vectors."""
        return self.op if len(parameter.shape) > 1 else "adafactor_whole"

    def states_of(self, parameter: Parameter) -> Sequence[State]:
        """Return the squares by rows and columns, or by elements, and the number of steps."""
        # Its decay depends on the number of steps, which every parameter counts by itself: parameters may join a training later.
        count, shape = State("Count", "step_count", single=True), parameter.shape
        if len(shape) < 2:
            return State("Variance", "variance"), count
        # The last two axes are factored: a convolution's kernel is a matrix for every pair of taps.
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return State("Row", "row_variance", shape=rows), State("Column", "column_variance", shape=columns), count
