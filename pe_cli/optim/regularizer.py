"""Weight decay: regularizers add their gradient to a parameter's, after clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import grad_name
from pe_cli.program.ir import Parameter, Role, Variable
from pe_cli.program.json_values import portable
from pe_cli.program.sparse import rows_of


@dataclass(frozen=True)
class Regularizer:
    """Base of the decays.

    Args:
        regularization_coeff: at least 0, no unit.

    Raises:
        PeError: a negative coefficient.
    """

    op: ClassVar[str] = ""
    regularization_coeff: float = 0.0

    def __post_init__(self) -> None:
        if not self.regularization_coeff >= 0:
            raise PeError(f"{type(self).__name__}: regularization_coeff must be >= 0, got {self.regularization_coeff}")

    def append(self, parameter: Parameter, gradient: Variable) -> Variable:
        """Append the op and return the new gradient."""
        block = parameter.block
        name = block.program.unique(f"{grad_name(parameter.name)}@DECAY")
        block.append_op(
            self.op,
            {"Grad": gradient, "Param": parameter, "Rows": rows_of(block, gradient.name)},
            {"Out": name},
            {"coeff": float(self.regularization_coeff)},
            at=parameter.at,
        )
        return block.var(name)


@portable
class L1Decay(Regularizer):
    """Add regularization_coeff * sign(parameter) to the gradient."""

    op = "l1_decay"


@portable
class L2Decay(Regularizer):
    """Add regularization_coeff * parameter to the gradient."""

    op = "l2_decay"


def own_decay(parameter: Parameter) -> float | None:
    """Return the coefficient of a parameter's own weight decay, None for the optimizer's.

    Raises:
        PeError: it is negative, not finite, or no number.
    """
    found = parameter.weight_decay
    if found is not None and not (isinstance(found, (int, float)) and found >= 0 and math.isfinite(found)):
        raise PeError(f"weight_decay of the parameter '{parameter.name}' must be >= 0, got {found!r}", at=parameter.at)
    return found


def _chosen(parameter: Parameter, common: Regularizer | None, *, apart: bool) -> Regularizer | None:
    """Return what decays a parameter by its gradient: its regularizer, its coefficient, or what is common to all."""
    # Where the decay is apart, the update op has the coefficient, and the gradient stays free of it.
    own = None if apart else own_decay(parameter)
    if parameter.regularizer is None and own is not None:
        return L2Decay(own)
    chosen: Regularizer | None = parameter.regularizer or common
    return chosen


def regularize(
    pairs: Sequence[tuple[Parameter, Variable]],
    common: Regularizer | None,
    raw: Sequence[Variable],
    *,
    apart: bool = False,
) -> list[tuple[Parameter, Variable]]:
    """Append the weight decay of every parameter that has one.

    Args:
        pairs: (parameter, gradient).
        common: of parameters without their own; a parameter's own goes first.
        raw: gradients as backward made them, for roles.
        apart: the update takes `Parameter.weight_decay`; else that is an `L2Decay` instead of the common one.

    Returns:
        The pairs with the new gradients.
    """
    out = []
    for (parameter, gradient), before in zip(pairs, raw, strict=True):
        chosen = _chosen(parameter, common, apart=apart)
        # A decay of 0 changes no bit, and leaves out a pass over the parameter.
        if chosen is not None and chosen.regularization_coeff:
            program = parameter.block.program
            # The role has the gradient before clipping, as for the update.
            with program.role(Role.OPTIMIZE, [parameter.name, before.name]), program.name_scope("regularization"):
                gradient = chosen.append(parameter, gradient)
        out.append((parameter, gradient))
    return out


#: Regularizers by the type that a config names, with and without fluid's suffix; keyword arguments only.
REGULARIZERS: dict[str, Callable[..., Regularizer]] = {
    "L1Decay": L1Decay,
    "L2Decay": L2Decay,
    "L1DecayRegularizer": L1Decay,
    "L2DecayRegularizer": L2Decay,
}
