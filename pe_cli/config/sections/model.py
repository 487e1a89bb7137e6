"""`model`: which model."""

from typing import Any

from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import PathName


class ModelSection(Section):
    """Which model."""

    file: PathName = Field(description="the model file, relative to this file's folder")
    args: dict[str, Any] = Field(default_factory=dict, description="constants of the model that differ from its own")
