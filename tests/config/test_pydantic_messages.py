"""What is wrong with a value is said in plain words, also by sections that take numbers from texts."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from pe_cli.config.pydantic_messages import wanted


class Lax(BaseModel):
    """Fields that are not strict."""

    whole: int = 0
    number: float = 0.0
    flag: bool = False
    text: str = ""
    many: list[int] = []
    named: dict[str, int] = {}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("whole", "x", "must be a whole number"),
        ("whole", 1.5, "must be a whole number"),
        ("whole", [1], "must be a whole number"),
        ("number", "x", "must be a number"),
        ("number", None, "must be a number"),
        ("flag", "maybe", "must be true or false"),
        ("flag", [1], "must be true or false"),
        ("text", 3, "must be text"),
        ("many", 3, "must be a list"),
        ("named", 3, "must be a mapping"),
    ],
)
def test_plain_words(field: str, value: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Lax(**{field: value})
    (detail,) = caught.value.errors()
    assert wanted(detail, value)[0] == said
