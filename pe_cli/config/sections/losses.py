"""`train.loss`: one variable, or several with weights that may grow."""

from typing import Annotated, cast

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from pe_cli.config.period import Period, parse_period
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Term:
    """One of several losses.

    Args:
        weight: what it is multiplied by, no unit.
        ramp: steps or epochs in which the weight grows from 0 in a line; None: it is there from the first step.
    """

    weight: float
    ramp: Period | None = None


_RAMP = "^[1-9][0-9]{0,11} +(step|epoch)s?$"


def _is_number(value: object) -> bool:
    # Negative weights are allowed, to make a term larger; NaN and infinities fail the comparison.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _term(name: str, value: object) -> Term:
    if isinstance(value, Term):
        return value
    if _is_number(value):
        return Term(float(cast(float, value)))
    # {ramp: ...} alone has weight 1, but an empty mapping says nothing and is refused.
    if not isinstance(value, dict) or not value or not value.keys() <= {"weight", "ramp"} or not _is_number(value.get("weight", 1.0)):
        example = f"for example {name}: 0.5, or {name}: {{weight: 0.5, ramp: 1000 steps}}"
        raise ValueError("must be a weight, or a mapping of weight and ramp", example, (name,))
    ramp = value.get("ramp")
    try:
        period = None if ramp is None else parse_period(ramp)
    except ValueError:
        example = f"for example {name}: {{weight: 0.5, ramp: 1000 steps}}"
        raise ValueError("must be a number of steps or epochs", example, (name, "ramp")) from None
    return Term(float(value.get("weight", 1.0)), period)


def _losses(value: object) -> str | dict[str, Term]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value and all(isinstance(name, str) and name for name in value):
        return {name: _term(name, term) for name, term in value.items()}
    raise ValueError("must be the name of a variable, or a mapping of names to weights", "for example loss: {recon: 1.0, kl: 0.1}")


def _written_losses(value: str | dict[str, Term] | None) -> object:
    if value is None or isinstance(value, str):
        return value
    return {n: t.weight if t.ramp is None else {"weight": t.weight, "ramp": str(t.ramp)} for n, t in value.items()}


Losses = Annotated[
    str | dict[str, Term],
    PlainValidator(_losses),
    PlainSerializer(_written_losses),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {
                        "anyOf": [
                            {"type": "number"},
                            {
                                "type": "object",
                                "properties": {"weight": {"type": "number"}, "ramp": {"type": "string", "pattern": _RAMP}},
                                "additionalProperties": False,
                                "minProperties": 1,
                            },
                        ]
                    },
                },
            ]
        }
    ),
]
