"""`train.recompute`: which values of the forward pass are computed again instead of being kept."""

from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema


class Every(int):
    """A checkpoint behind every so many layers."""


def _recompute(value: object) -> Literal["blocks"] | Every | list[str]:
    if value == "blocks":
        return "blocks"
    if isinstance(value, dict) and value.keys() == {"every"}:
        count = value["every"]
        if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
            return Every(count)
    # A name given as plain text would be one letter away from `blocks`: single layers are listed, too.
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return value
    if isinstance(value, Every):
        return value
    raise ValueError("must be blocks, {every: N}, or a list of layers", "for example recompute: blocks, or recompute: {every: 3}")


def _written(value: Literal["blocks"] | Every | list[str]) -> object:
    return {"every": int(value)} if isinstance(value, Every) else value


Recompute = Annotated[
    Literal["blocks"] | Every | list[str],
    PlainValidator(_recompute),
    PlainSerializer(_written),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "blocks"},
                {
                    "type": "object",
                    "properties": {"every": {"type": "integer", "minimum": 1}},
                    "required": ["every"],
                    "additionalProperties": False,
                },
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
