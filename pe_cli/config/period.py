"""How often something happens: `50 steps`, `1 epoch`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

_TEXT = re.compile(r"([1-9][0-9]{0,11}) +(step|epoch)s?")


@dataclass(frozen=True)
class Period:
    """Every so many steps or epochs.

    Args:
        count: at least 1.
        unit: what is counted.
    """

    count: int
    unit: Literal["step", "epoch"]

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'s' if self.count > 1 else ''}"


def parse_period(value: object) -> Period:
    """Return the period that a config writes.

    Raises:
        ValueError: not of the form `50 steps` or `1 epoch`; the sentence goes on after the name of the key.

    >>> str(parse_period("50 steps"))
    '50 steps'
    """
    if isinstance(value, Period):
        return value
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be like '50 steps' or '1 epoch'")
    return Period(int(found[1]), "step" if found[2] == "step" else "epoch")


PeriodField = Annotated[
    Period,
    PlainValidator(parse_period),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": f"^{_TEXT.pattern}$", "examples": ["50 steps", "1 epoch"]}),
]
