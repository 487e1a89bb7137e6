"""`train.adapt` and `train.by_depth`: a large model is trained by few parameters, or by rates that fall towards its input."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name, Patterns

#: Keys that only some types have.
_OF = {
    "rank": ("lora", "dora"), "alpha": ("lora", "dora"), "dropout": ("lora", "dora"), "size": ("adapter",), "act": ("adapter",),
}  # fmt: skip
Width = Annotated[int, Field(strict=True, ge=1, le=65536)]


def listed(patterns: str | list[str]) -> list[str]:
    """Return patterns as a list."""
    return [patterns] if isinstance(patterns, str) else patterns


class AdaptSection(Section):
    """Few new parameters, or the biases, are trained; all others stay as they begin."""

    type: Literal["lora", "dora", "adapter", "bitfit"] = Field(
        description="lora: two small matrices beside a weight; dora: also the length of each output's weights; "
        "adapter: a small network behind a layer; bitfit: the biases that are there"
    )
    targets: Patterns | None = Field(
        default=None,
        description="patterns of layers or parameters, such as `*/query` or `*.query`; required but for bitfit, which takes all biases",
    )
    rank: Width | None = Field(default=None, description="columns of the first small matrix; 8 when absent; lora and dora")
    alpha: Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        default=None, description="the product of the two small matrices counts alpha / rank; rank when absent; lora and dora"
    )
    dropout: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] | None = Field(
        default=None, description="part of what the small matrices read that is left out in training; 0 when absent; lora and dora"
    )
    size: Width | None = Field(default=None, description="width of the small network; 16 when absent; adapter")
    act: Name | None = Field(default=None, description="its activation; relu when absent; adapter")
    also: Patterns | None = Field(
        default=None, description="patterns of layers or parameters that are trained as they are, such as a new last layer"
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> "AdaptSection":
        if self.targets is None and self.type != "bitfit":
            raise ValueError("must say which layers are adapted", 'for example targets: ["*/query", "*/value"]')
        for key, types in _OF.items():
            if getattr(self, key) is not None and self.type not in types:
                # Second and third: what to do, and the keys below this one that the mistake is in; `pydantic_messages` takes them apart.
                raise ValueError(f"is for type: {' or '.join(types)}", f"leave it out, {self.type} has none", (key,))
        return self

    @property
    def scale(self) -> float:
        """What the product of the small matrices counts, no unit."""
        # An absent alpha stands for the rank, so that the quotient of Hu et al. 2021 is 1.
        return 1.0 if self.alpha is None else self.alpha / self.columns

    @property
    def columns(self) -> int:
        """What `rank` says, or stands for."""
        return self.rank or 8


class ByDepthSection(Section):
    """Parameters near the input are trained less than those near the output, or not at all."""

    decay: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = Field(
        default=1.0, description="what the learning rate is multiplied by for each level below the last one"
    )
    freeze: Annotated[int, Field(strict=True, ge=0, le=100_000)] = Field(
        default=0, description="levels that are not trained, from the input"
    )
    levels: Annotated[list[Patterns], Field(min_length=1)] | None = Field(
        default=None,
        description="patterns of the parameters or layers of each level, from the input; when absent each repetition of a block is a "
        "level, and so is what stands before, between and behind them",
    )

    @model_validator(mode="after")
    def _says_something(self) -> "ByDepthSection":
        # What is written counts, not what it says: an explicit decay: 1.0 is a wish, too.
        if not self.model_fields_set & {"decay", "freeze"}:
            raise ValueError("must say what differs by depth", "add decay: 0.8 or freeze: 2")
        return self


