"""`train.decide`: what the threshold of a classifier is chosen by."""

from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

_EXAMPLE = "for example decide: f1, decide: {precision: 0.9}, or decide: {cost: {missed: 10, false_alarm: 1}}"
_WITH_F1 = "for example decide: {f1: {precision: 0.5}}"
_COSTS = ("missed", "false_alarm")


def _number(value: object, least: float, most: float) -> bool:
    # NaN fails both comparisons, so it needs no test of its own.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def _precision(given: object) -> dict[str, float]:
    """Return what is wanted besides the best F1."""
    if not isinstance(given, dict) or given.keys() != {"precision"}:
        raise ValueError("must be a mapping of precision", _WITH_F1, ("f1",))
    if not _number(given["precision"], 0.0, 1.0):
        raise ValueError("must be a number from 0 to 1", _WITH_F1, ("f1", "precision"))
    return {"precision": float(given["precision"])}


def _decide(value: object) -> Literal["f1"] | dict[str, object]:
    if value == "f1":
        return "f1"
    if isinstance(value, dict) and len(value) == 1:
        ((key, given),) = value.items()
        if key in ("precision", "recall", "threshold"):
            if not _number(given, 0.0, 1.0):
                raise ValueError("must be a number from 0 to 1", f"for example decide: {{{key}: 0.3}}", (key,))
            return {key: float(given)}
        if key == "f1":
            return {key: _precision(given)}
        if key == "cost" and isinstance(given, dict) and given.keys() == set(_COSTS):
            # One cost may be 0, for mistakes that cost nothing; with both at 0 every threshold would be as good as any other.
            if not all(_number(given[name], 0.0, 1e12) for name in _COSTS) or not any(given.values()):
                raise ValueError("must be two numbers, at least 0 and not both 0", _EXAMPLE, (key,))
            return {key: {name: float(given[name]) for name in _COSTS}}
        if key == "cost":
            raise ValueError("must be a mapping of missed and false_alarm", _EXAMPLE, (key,))
    raise ValueError("must be f1, or a mapping with one of f1, precision, recall, cost and threshold", _EXAMPLE)


Decide = Annotated[
    Literal["f1"] | dict[str, object],
    PlainValidator(_decide),
    PlainSerializer(lambda value: value),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "f1"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": False,
                    "properties": {
                        **{name: {"type": "number", "minimum": 0, "maximum": 1} for name in ("precision", "recall", "threshold")},
                        "f1": {
                            "type": "object",
                            "properties": {"precision": {"type": "number", "minimum": 0, "maximum": 1}},
                            "required": ["precision"],
                            "additionalProperties": False,
                        },
                        "cost": {
                            "type": "object",
                            "properties": {name: {"type": "number", "minimum": 0} for name in _COSTS},
                            "required": list(_COSTS),
                            "additionalProperties": False,
                        },
                    },
                },
            ]
        }
    ),
]
