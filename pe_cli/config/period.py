"""How often something happens: `50 steps`, `1 epoch`, and where time may count too `10 minutes`."""

from __future__ import annotations

import re
from typing import Annotated, Literal, cast

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from pe_cli.core.lazy_dataclass import dataclass

Unit = Literal["step", "epoch", "second", "minute", "hour"]
_TEXT = re.compile(r"([1-9][0-9]{0,11}) +(step|epoch)s?")
_TIMED = re.compile(r"([1-9][0-9]{0,11}) +(step|epoch|second|minute|hour)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}


@dataclass(frozen=True)
class Period:
    """Every so many steps, epochs or minutes.

    Args:
        count: at least 1.
        unit: what is counted.
    """

    count: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'s' if self.count > 1 else ''}"

    @property
    def seconds(self) -> int | None:
        """Length of a period of time, in seconds; None for steps and epochs."""
        return self.count * _SECONDS[self.unit] if self.unit in _SECONDS else None


def parse_period(value: object) -> Period:
    """Return the period that a config writes.

    Raises:
        ValueError: not of the form `50 steps` or `1 epoch`; the sentence goes on after the name of the key.

    >>> str(parse_period("50 steps"))
    '50 steps'
    """
    return _parse(value, _TEXT, "'50 steps' or '1 epoch'")


def parse_timed_period(value: object) -> Period:
    """Return a period that may also be one of time.

    Raises:
        ValueError: as for `parse_period`.

    >>> parse_timed_period("10 minutes").seconds
    600
    """
    return _parse(value, _TIMED, "'50 steps', '1 epoch' or '10 minutes'")


def _parse(value: object, form: re.Pattern[str], examples: str) -> Period:
    if isinstance(value, Period):
        return value
    found = form.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"must be like {examples}")
    return Period(int(found[1]), cast(Unit, found[2]))


PeriodField = Annotated[
    Period,
    PlainValidator(parse_period),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": f"^{_TEXT.pattern}$", "examples": ["50 steps", "1 epoch"]}),
]
TimedPeriodField = Annotated[
    Period,
    PlainValidator(parse_timed_period),
    PlainSerializer(str),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{_TIMED.pattern}$", "examples": ["50 steps", "1 epoch", "10 minutes"]}
    ),
]
