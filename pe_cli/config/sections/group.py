"""`train.groups`: parameters that are frozen, or trained otherwise than the rest."""

import re
from typing import Annotated

from pydantic import Field, PlainValidator, StrictBool, WithJsonSchema

from pe_cli.config.sections.kinds import Patterns
from pe_cli.config.sections.section import Section

#: A factor as a config writes it.
_FACTOR = re.compile(r"([0-9]+\.?[0-9]*(e-?[0-9]+)?)x")


def _factor(value: object) -> str:
    if isinstance(value, str) and (found := _FACTOR.fullmatch(value)) and 0 < float(found[1]) < 1e9:
        return value
    raise ValueError("must be a factor of the optimizer's rate", "for example 10x or 0.1x; freeze: true trains nothing")


Factor = Annotated[str, PlainValidator(_factor), WithJsonSchema({"type": "string", "pattern": f"^{_FACTOR.pattern}$"})]


class GroupSection(Section):
    """Parameters that are trained otherwise than the rest."""

    match: Patterns = Field(description="patterns of parameters or layers, such as `encoder/*` or `*.b_0`")
    freeze: StrictBool = Field(default=False, description="leave them as they begin; what only they need is not computed")
    running_statistics: StrictBool = Field(
        default=False, description="batch_norm among them uses its running statistics in training, too, and leaves them as they are"
    )
    learning_rate: Factor | None = Field(default=None, description="times the optimizer's rate: `10x`, `0.1x`")
    weight_decay: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="instead of the optimizer's: of one that decays apart from the gradient, else of an L2Decay"
    )

    @property
    def patterns(self) -> list[str]:
        """What `match` says, as a list."""
        return [self.match] if isinstance(self.match, str) else self.match
