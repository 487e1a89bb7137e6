"""`sweep`: trials of other values."""

from typing import Annotated, Literal

from pydantic import Field

from pe_cli.config.period import PeriodField
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name, Natural
from pe_cli.config.sweep_domain import Domain


class HalvingSection(Section):
    """Which trials are stopped early: after `first`, and then `factor` times as long each time, the better ones go on."""

    # Li et al. 2018, "Hyperband", suggest 3 or 4, and find that results depend little on it.
    factor: Annotated[int, Field(strict=True, ge=2, le=100)] = Field(
        default=3, description="one of so many trials goes on, and is trained so many times as long"
    )
    first: PeriodField = Field(description="how long every trial is trained, in the unit of `train.epochs` or `train.steps`")


class SweepSection(Section):
    """Trials of other values, for `pe sweep`; `pe train` trains the config as it is."""

    by: Name = Field(description="the metric that trials are compared by, for example eval/acc")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")
    method: Literal["grid", "random", "tpe"] = Field(
        default="grid",
        description="grid: every combination of the values once; random: so many draws as `trials` says; "
        "tpe: draws that go by the results so far (needs the extra `search`)",
    )
    trials: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = Field(
        default=None, description="with random and tpe, number of draws"
    )
    seed: Natural = Field(default=0, description="with random and tpe, another seed draws other values")
    together: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        default=4, description="with tpe, draws that are made at a time, by the results of those before; so many trials can go side by side"
    )
    halving: HalvingSection | None = Field(default=None, description="stop the worse trials early")
    over: dict[Name, Domain] = Field(
        min_length=1,
        description="key as after `-o` -> its values: a list, `{log: [a, b]}`, `{uniform: [a, b]}` or `{int: [a, b]}`",
    )
