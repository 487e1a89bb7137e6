"""`train`: how the model is trained."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from pe_cli.config.period import Period, PeriodField
from pe_cli.config.sections.adapt import AdaptSection, ByDepthSection
from pe_cli.config.sections.decide import Decide
from pe_cli.config.sections.group import GroupSection
from pe_cli.config.sections.losses import Losses
from pe_cli.config.sections.phase import PhaseSection
from pe_cli.config.sections.recompute import Recompute
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count, Name, PathName


class EarlyStoppingSection(Section):
    """When training ends because it gets no better."""

    by: Name = Field(description="a metric, for example eval/loss")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")
    patience: Count = Field(default=5, description="measurements without improvement after which training ends")
    min_delta: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="what a measurement must be better by, unit of the metric"
    )


class PlateauSection(Section):
    """When the learning rate is lowered because it gets no better; numbers are those of PyTorch's ReduceLROnPlateau."""

    by: Name = Field(description="a metric, for example eval/loss")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")
    # A patience of 0 is PyTorch's for lowering at the first measurement without improvement; early stopping counts from 1.
    patience: Annotated[int, Field(strict=True, ge=0)] = Field(
        default=10, description="measurements without improvement that change nothing; the rate is lowered at the next one"
    )
    factor: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(default=0.1, description="the rate is multiplied by it")
    threshold: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=1e-4, description="part of the best measurement that a better one must differ by"
    )
    min_rate: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="the rate is never lowered below it"
    )


class EmaSection(Section):
    """A moving average of the parameters: decay * average + (1 - decay) * parameter, corrected for its start at 0."""

    decay: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(
        default=0.999, description="part of the average that stays each step, above 0 and below 1"
    )


class StartSection(Section):
    """Where first values of parameters come from, beside their initializers."""

    from_: PathName = Field(
        alias="from", description="a run, a checkpoint, a .safetensors file, the index of several, an .npz or .onnx file"
    )
    layout: Literal["paddle", "torch", "keras", "flax"] | None = Field(
        default=None,
        description="whose order of axes the weights of a .safetensors or .npz file have; an .onnx file and a run say it themselves",
    )
    only: list[Name] | None = Field(
        default=None, min_length=1, description="patterns of names in the model that take a value; all when absent"
    )
    rename: dict[str, Name] = Field(
        default_factory=dict,
        description="pattern of the file's names -> the model's: `backbone/*: encoder/*`; each * stands for the same text",
    )
    match: dict[str, Name] = Field(
        default_factory=dict, description="name in the model -> name in the file, where a pattern does not say it"
    )
    strict: StrictBool | None = Field(
        default=None,
        description="refuse values that only one side has, of another shape or of an unknown layout, instead of naming them; "
        "true when absent, but for a run or a checkpoint",
    )


class TrainSection(Section):
    """How the model is trained."""

    loss: Losses | None = Field(
        default=None, description="the variable that is minimised, one number; or several with their weights; required without phases"
    )
    epochs: Count | None = Field(default=None, description="passes over the training data")
    steps: Count | None = Field(
        default=None, description="stop after so many steps in all; with epochs, whichever comes first"
    )
    batch_size: Count = Field(description="samples per step, over all devices")
    optimizer: dict[str, Any] | None = Field(
        default=None, description="type, learning_rate and the optimizer's own arguments; required without phases"
    )
    # Absent is no empty list: min_length refuses `phases: []` and does not look at the default.
    phases: list[PhaseSection] = Field(
        default_factory=list,
        min_length=1,
        description="what a step trains one after the other, each with loss, parameters and optimizer of its own, instead of those here",
    )
    drop_last: StrictBool = Field(default=False, description="leave out a last batch that is smaller")
    eval_every: PeriodField = Field(default=Period(1, "epoch"), description="how often the eval data is run")
    accumulate: Count = Field(
        default=1,
        description="parts of batch_size samples whose gradients make one step, as a batch so many times larger",
    )
    recompute: Recompute | None = Field(
        default=None,
        description="what backward needs is computed again instead of being kept, for less memory and the same bits, in a fifth to a third "
        "more time: blocks, keeping what every block of the model gives, `{every: 3}`, keeping every third layer, or a list of layers",
    )
    ema: EmaSection | None = Field(default=None, description="evaluate with a moving average of the parameters")
    early_stopping: EarlyStoppingSection | None = Field(default=None, description="end when a metric gets no better")
    plateau: PlateauSection | None = Field(default=None, description="lower a constant learning rate when a metric gets no better")
    decide: Decide | None = Field(
        default=None,
        description="what the threshold of two classes, or of each tag, is chosen by on the evaluation rows, and kept with the model: f1, "
        "`{f1: {precision: P}}` of those with at least so much, `{precision: P}` or `{recall: R}` of at least so much, "
        "`{cost: {missed: A, false_alarm: B}}`, or `{threshold: T}` itself; the most probable class when absent, and tags from 0.5 on",
    )
    calibrate: Literal["temperature", "isotonic"] | None = Field(
        default=None,
        description="make probabilities as large as what comes true in the evaluation rows, and keep that with the model: temperature "
        "divides logits by one number; isotonic, of two classes or tags, is any function that never falls",
    )
    init: StartSection | None = Field(default=None, description="first values from another run or a file")
    groups: list[GroupSection] = Field(default_factory=list, description="parameters that are frozen, or trained otherwise than the rest")
    adapt: AdaptSection | None = Field(
        default=None, description="train a few new parameters beside those of the model, which stay as they begin: LoRA and its like"
    )
    by_depth: ByDepthSection | None = Field(
        default=None, description="rates that fall from the last layers to the first, or first layers that stay"
    )
