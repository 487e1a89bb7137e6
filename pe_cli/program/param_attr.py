"""ParamAttr: what a user may say about a parameter."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.program.initializer import Initializer


@dataclass(frozen=True)
class ParamAttr:
    """Facts about one parameter.

    Args:
        name: default: made from the layer's.
        initializer: of its first value; default: the layer's own.
        learning_rate: factor on the optimizer's, no unit.
        regularizer: own weight decay instead of the optimizer's, an object of `pe_cli.optim.regularizer`.
        trainable: gets a gradient and an update.
        do_model_average: takes part in model averaging.
        gradient_clip: own clipping instead of the optimizer's, an object of `pe_cli.optim.clip`.

    Raises:
        PeError: a negative learning rate.
    """

    name: str | None = None
    initializer: Initializer | None = None
    learning_rate: float = 1.0
    regularizer: Any = None
    trainable: bool = True
    do_model_average: bool = True
    gradient_clip: Any = None

    def __post_init__(self) -> None:
        if not self.learning_rate >= 0:
            raise PeError(f"the learning_rate factor of a parameter must be >= 0, got {self.learning_rate}")


@dataclass(frozen=True)
class WeightNormParamAttr(ParamAttr):
    """A weight that is trained as lengths and directions: w = g v / ||v||, the norm over all axes but dim.

    The parameters are `<name>_v`, which starts as the weight would, and `<name>_g`, which starts as ||v||: w starts as without this.
    What is said of the weight (learning rate, regularizer, ...) goes for both. `ParamAttr` has the other arguments.

    Args:
        dim: axis that has a length for each of its indices, negative ones count from the last; None: one length.

    Source:
        Salimans and Kingma 2016, "Weight Normalization", eq. 2.
    """

    dim: int | None = None


#: What `type` in a config's `param_attr` may be.
PARAM_ATTRS: dict[str, type[ParamAttr]] = {"plain": ParamAttr, "weight_norm": WeightNormParamAttr}
