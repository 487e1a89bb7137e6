"""`feeds`: how fields of the data become feeds of the model."""

from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count, DtypeName, Int, Number


def _fields(value: object) -> str | list[str]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return value
    raise ValueError("must be the name of a field, or a list of names", "for example x: [age, hours]")


Fields = Annotated[
    str | list[str],
    PlainValidator(_fields),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class FeedSection(Section):
    """How a field of the data becomes a feed of the model: one_hot(field * scale + shift), reshaped."""

    # `from` is a word of Python's, so the attribute has an underscore and the key has none.
    from_: Fields | None = Field(
        default=None, alias="from", description="field of the data, or several that are joined along their last axis"
    )
    value: Number | list[Number] | None = Field(
        default=None, description="the same for every batch, instead of a field; for feeds with replicate: true"
    )
    scale: Number = Field(default=1.0, description="factor, no unit")
    shift: Number = Field(default=0.0, description="added after scaling, no unit")
    reshape: list[Int] | None = Field(default=None, min_length=1, description="shape of one sample; one size may be -1")
    one_hot: Count | None = Field(
        default=None, description="number of classes, when class indices become rows of 0 and 1"
    )
    dtype: DtypeName | None = Field(default=None, description="convert the field to this element type first")
