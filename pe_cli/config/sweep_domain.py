"""The values that a sweep may give to a key: a list, or a range of numbers."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, cast

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from pe_cli.core.lazy_dataclass import dataclass

Scale = Literal["log", "uniform", "int"]
#: Values that a list of choices may have.
MOST_CHOICES = 1000
_EXAMPLE = "for example [64, 128], {log: [1e-4, 1e-1]}, {uniform: [0, 0.5]} or {int: [1, 8]}"


@dataclass(frozen=True)
class Choices:
    """Some values, in the order in which they are written.

    Args:
        values: as a config holds them; at least one, none twice.
    """

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """All numbers from one to another.

    Args:
        scale: `log` draws evenly in the number's logarithm, `uniform` in the number itself, `int` among whole numbers.
        low, high: the ends, which belong to it; whole numbers for `int`.
    """

    scale: Scale
    low: float
    high: float


def parse_domain(value: object) -> Choices | Range:
    """Return what a key of `sweep.over` may be set to.

    Raises:
        ValueError: neither a list of values nor a range; the sentence goes on after the name of the key.

    >>> parse_domain({"log": [1e-4, 0.1]})
    Range(scale='log', low=0.0001, high=0.1)
    """
    if isinstance(value, Choices | Range):
        return value
    if isinstance(value, list) and value:
        return _choices(value)
    if isinstance(value, dict) and len(value) == 1:
        (scale, ends), = value.items()
        if scale in ("log", "uniform", "int"):
            return _range(cast(Scale, scale), ends)
    raise ValueError("must be a list of values, or a range", _EXAMPLE)


def _choices(values: list[Any]) -> Choices:
    if len(values) > MOST_CHOICES:
        raise ValueError(f"must have at most {MOST_CHOICES} values")
    try:
        # As JSON, so that 1 and true, which are equal in Python, are two values.
        texts = [json.dumps(value, sort_keys=True, allow_nan=False) for value in values]
    except ValueError:
        raise ValueError("must have finite numbers only") from None
    if len(set(texts)) < len(texts):
        twice = next(text for i, text in enumerate(texts) if text in texts[:i])
        raise ValueError(f"has the value {twice} twice", "write every value once")
    return Choices(tuple(values))


def _range(scale: Scale, ends: object) -> Range:
    kinds = int if scale == "int" else (int, float)
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, kinds) and not isinstance(e, bool) for e in ends):
        raise ValueError(f"needs two {'whole ' * (scale == 'int')}numbers after {scale}", _EXAMPLE)
    low, high = ends
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"needs the smaller number first after {scale}", f"write {{{scale}: [SMALLEST, LARGEST]}}")
    if scale == "log" and low <= 0:
        raise ValueError("needs numbers above 0 after log", "a logarithmic range has no 0; write {uniform: [...]} for one that has")
    return Range(scale, low, high)


def written(domain: Choices | Range) -> object:
    """Return a domain as a config writes it."""
    return list(domain.values) if isinstance(domain, Choices) else {domain.scale: [domain.low, domain.high]}


def _ends(kind: str) -> dict[str, object]:
    return {"type": "array", "items": {"type": kind}, "minItems": 2, "maxItems": 2}


Domain = Annotated[
    Choices | Range,
    PlainValidator(parse_domain),
    PlainSerializer(written),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "maxItems": MOST_CHOICES},
                {
                    "type": "object",
                    "properties": {"log": _ends("number"), "uniform": _ends("number"), "int": _ends("integer")},
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ]
        }
    ),
]
