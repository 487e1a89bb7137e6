"""`train.groups`: parameters that are frozen, or trained otherwise than the rest."""

import re
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, StrictBool, WithJsonSchema, model_validator

from pe_cli.config.period import Period, parse_period
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Patterns

#: A factor as a config writes it.
#: The x keeps a factor apart from a rate: `learning_rate: 0.1` would be read as either.
_FACTOR = re.compile(r"([0-9]+\.?[0-9]*(e-?[0-9]+)?)x")


def _factor(value: object) -> str:
    if isinstance(value, str) and (found := _FACTOR.fullmatch(value)) and 0 < float(found[1]) < 1e9:
        return value
    raise ValueError("must be a factor of the optimizer's rate", "for example 10x or 0.1x; freeze: true trains nothing")


Factor = Annotated[str, PlainValidator(_factor), WithJsonSchema({"type": "string", "pattern": f"^{_FACTOR.pattern}$"})]


def _freeze(value: object) -> bool | Period:
    if isinstance(value, (bool, Period)):
        return value
    until = value.get("until") if isinstance(value, dict) and value.keys() == {"until"} else None
    if isinstance(value, str):
        until = value.removeprefix("until ").strip() if value.startswith("until ") else None
    try:
        # None is no period, so that what is neither text nor mapping ends in the same sentence as a wrong number of steps.
        return parse_period(until)
    except ValueError:
        example = "for example freeze: until 3 epochs, or freeze: {until: 500 steps}"
        raise ValueError("must be true, false, or until so many steps or epochs", example) from None


def _written_freeze(value: bool | Period) -> bool | str:
    return f"until {value}" if isinstance(value, Period) else value


Freeze = Annotated[
    bool | Period,
    PlainValidator(_freeze),
    PlainSerializer(_written_freeze),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "string", "pattern": "^until [1-9][0-9]{0,11} +(step|epoch)s?$"},
                {
                    "type": "object",
                    "properties": {"until": {"type": "string", "pattern": "^[1-9][0-9]{0,11} +(step|epoch)s?$"}},
                    "additionalProperties": False,
                    "required": ["until"],
                },
            ]
        }
    ),
]


class GroupSection(Section):
    """Parameters that are trained otherwise than the rest."""

    match: Patterns = Field(description="patterns of parameters or layers, such as `encoder/*` or `*.b_0`")
    freeze: Freeze = Field(
        default=False,
        description="leave them as they begin, for good or `until 3 epochs` (or steps) are done; what only they need is not computed",
    )
    running_statistics: StrictBool = Field(
        default=False, description="batch_norm among them uses its running statistics in training, too, and leaves them as they are"
    )
    learning_rate: Factor | None = Field(default=None, description="times the optimizer's rate: `10x`, `0.1x`")
    weight_decay: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="instead of the optimizer's: of one that decays apart from the gradient, else of an L2Decay"
    )

    @model_validator(mode="after")
    def _says_something(self) -> "GroupSection":
        # `match` alone would make a group that trains as all others do, which is more likely a key that was forgotten.
        if self.model_fields_set <= {"match"}:
            raise ValueError("must say what its parameters have of their own", "add freeze: true, learning_rate: 10x or weight_decay: 0")
        return self

    @property
    def patterns(self) -> list[str]:
        """What `match` says, as a list."""
        return [self.match] if isinstance(self.match, str) else self.match
