"""`train.phases`: parts of a training step that run one after the other, each with its own loss and optimizer."""

import re
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from pe_cli.config.sections.losses import Losses
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count, Patterns

#: Names of phases: they begin names of metrics and of variables.
_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"


def _name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(_NAME, value):
        return value
    raise ValueError("must be a name of letters, digits, _ and -", "for example critic")


PhaseName = Annotated[str, PlainValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})]


class PhaseSection(Section):
    """A part of every step: it makes its own loss smaller by its own parameters, with its own optimizer."""

    name: PhaseName = Field(description="what metrics and state of the phase are called by")
    loss: Losses = Field(description="the variable that is minimised, one number; or several with their weights")
    parameters: Patterns | None = Field(
        default=None,
        description="patterns of the parameters or layers that are trained, such as `critic/*`; all that the loss depends on when absent",
    )
    # Required here, unlike in `train`: there the phases may bring it.
    optimizer: dict[str, Any] = Field(description="type, learning_rate and the optimizer's own arguments")
    repeat: Count = Field(default=1, description="updates in every step, each with a batch of its own")

    @property
    def patterns(self) -> list[str] | None:
        """What `parameters` says, as a list; None where it says nothing."""
        return [self.parameters] if isinstance(self.parameters, str) else self.parameters
