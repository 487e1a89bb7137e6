"""A whole run file."""

from typing import Any

from pydantic import Field

from pe_cli.config.sections.data import DataSections
from pe_cli.config.sections.distributed import DistributedSection
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.fetch import FetchSection
from pe_cli.config.sections.model import ModelSection
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.strategies import BuildSection, ExecSection
from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.sections.value_types import Name, Patterns


class RunFile(Section):
    """With what a model is run, on what, and what is kept."""

    extends: Patterns | None = Field(
        default=None, description="config, or list of configs, that this one differs from; relative to this file's folder"
    )
    args: dict[str, Any] = Field(default_factory=dict, description="constants, used as ${name} anywhere in this file")
    plugins: list[Name] = Field(
        default_factory=list, description="installed packages whose readers, metrics, layers and observers may be used"
    )
    # Required, but it may stand in a file that this one extends: files are merged before they are checked.
    model: ModelSection
    data: DataSections = Field(default_factory=DataSections)
    feeds: dict[str, FeedSection] = Field(default_factory=dict, description="feed of the model -> field of the data")
    train: TrainSection | None = None
    fetches: dict[str, FetchSection] = Field(default_factory=dict, description="variable -> what is kept of it")
    metrics: dict[str, Any] = Field(
        default_factory=dict, description="name -> type and its options: computed of all rows of the evaluation data"
    )
    executor: ExecutorSection = Field(default_factory=ExecutorSection)
    distributed: DistributedSection | None = None
    build_strategy: BuildSection = Field(default_factory=BuildSection)
    exec_strategy: ExecSection = Field(default_factory=ExecSection)
    output: OutputSection = Field(default_factory=OutputSection)
    sweep: SweepSection | None = None
