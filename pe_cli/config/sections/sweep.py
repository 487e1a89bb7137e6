"""`sweep`: trials of other values."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pe_cli.config.domain import Domain
from pe_cli.config.period import PeriodField
from pe_cli.config.sections.kinds import Name, Natural
from pe_cli.config.sections.section import Section


class HalvingSection(Section):
    """Which trials are stopped early: after `first`, and then `factor` times as long each time, the better ones go on."""

    factor: Annotated[int, Field(strict=True, ge=2, le=100)] = Field(
        default=3, description="one of so many trials goes on, and is trained so many times as long"
    )
    first: PeriodField = Field(description="how long every trial is trained, in the unit of `train.epochs` or `train.steps`")


class SweepSection(Section):
    """Trials of other values, for `pe sweep`; `pe train` trains the config as it is."""

    UNAVAILABLE_VALUES: ClassVar[dict[str, tuple[Any, ...]]] = {"method": ("tpe",)}

    by: Name = Field(description="the metric that trials are compared by, for example eval/acc")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")
    method: Literal["grid", "random"] = Field(
        default="grid", description="grid: every combination of the values once; random: so many draws as `trials` says"
    )
    trials: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = Field(default=None, description="with random, number of trials")
    seed: Natural = Field(default=0, description="with random, another seed draws other values")
    halving: HalvingSection | None = Field(default=None, description="stop the worse trials early")
    over: dict[Name, Domain] = Field(
        min_length=1,
        description="key as after `-o` -> its values: a list, `{log: [a, b]}`, `{uniform: [a, b]}` or `{int: [a, b]}`",
    )
