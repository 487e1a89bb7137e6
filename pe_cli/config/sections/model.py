"""`model`: which model."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name, PathName

#: What `classes` says where the data says how many there are.
FROM_DATA = "from data"
_MOST = 1 << 31


def _number_of_classes(value: object) -> int | str:
    if value == FROM_DATA or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST):
        return value
    raise ValueError("must be a whole number from 1, or `from data`", "for example classes: 5")


NumberOfClasses = Annotated[
    int | str,
    PlainValidator(_number_of_classes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MOST}, {"const": FROM_DATA}]}),
]


class HeadSection(Section):
    """A last layer for other classes, which begins anew."""

    replace: Name = Field(description="layer of the model that makes the scores of classes, such as an `fc` or a `conv2d`")
    classes: NumberOfClasses = Field(
        default=FROM_DATA, description="how many it tells apart; `from data`: as many as the label has in the training rows"
    )

    @property
    def waits(self) -> bool:
        """Whether the data has to be read before the number of classes is known."""
        return self.classes == FROM_DATA


class ModelSection(Section):
    """Which model."""

    file: PathName = Field(description="the model file, relative to this file's folder")
    args: dict[str, Any] = Field(default_factory=dict, description="constants of the model that differ from its own")
    head: HeadSection | None = Field(default=None, description="give a layer another number of classes, and let it begin anew")
