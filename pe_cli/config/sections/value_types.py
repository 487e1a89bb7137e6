"""Kinds of values that several sections have: numbers in bounds, names, patterns, element types."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

Int = Annotated[int, Field(strict=True)]
#: Numbers beyond these are no counts of anything, and sums of a few of them still have 64 bits.
Count = Annotated[int, Field(strict=True, ge=1, le=1 << 53)]
Natural = Annotated[int, Field(strict=True, ge=0, le=1 << 61)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, min_length=1)]


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold a NUL character, which no path can")
    return value


def _distinct(classes: list[str | int]) -> list[str | int]:
    # By their text: a table's file has no types, so class 1 and class "1" would be one.
    names = [str(name) for name in classes]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"class '{repeated[0]}' is listed twice")
    return classes


#: Classes in the order of their indices.
Classes = Annotated[list[Annotated[str, Field(strict=True)] | Int], Field(min_length=1), AfterValidator(_distinct)]
#: A file or a folder.
PathName = Annotated[Name, AfterValidator(_no_nul)]
DtypeName = Literal["float32", "float64", "int64", "int32", "uint8", "bool"]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)]


def _patterns(value: object) -> str | list[str]:
    if (isinstance(value, str) and value) or (isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)):
        return value
    raise ValueError("must be a pattern, or a list of patterns", "for example encoder/*")


Patterns = Annotated[
    str | list[str],
    PlainValidator(_patterns),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
