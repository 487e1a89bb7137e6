"""`output`: where a run's folder is, and what is written there."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, StrictBool, WithJsonSchema

from pe_cli.config.period import Period, TimedPeriodField
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count, Name, PathName

LogName = Literal["jsonl", "csv", "tensorboard"]

#: Tags of a run, and characters of a tag and of a note.
MAX_TAGS, MAX_TAG, MAX_NOTE = 20, 60, 2000


def _tags(value: object) -> list[str]:
    if isinstance(value, list) and 0 < len(value) <= MAX_TAGS and all(isinstance(tag, str) and 0 < len(tag) <= MAX_TAG for tag in value):
        return value
    raise ValueError(f"must be a list of 1 to {MAX_TAGS} texts of at most {MAX_TAG} characters", "for example [baseline, wide]")


def _note(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_NOTE:
        return value
    raise ValueError(f"must be a text of 1 to {MAX_NOTE} characters")


def _observers(value: object) -> dict[str, dict[str, Any]]:
    if isinstance(value, dict) and all(options is None or isinstance(options, dict) for options in value.values()):
        # `mlflow:` with nothing behind it is null in YAML, and means an observer with its defaults.
        return {name: options or {} for name, options in value.items()}
    raise ValueError("must be a mapping of observers with their options", "for example {mlflow: {experiment: digits}}")


Observers = Annotated[
    dict[str, Any],
    PlainValidator(_observers),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["object", "null"]}}),
]
Tags = Annotated[
    list[str],
    PlainValidator(_tags),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG}, "minItems": 1, "maxItems": MAX_TAGS}
    ),
]
Note = Annotated[str, PlainValidator(_note), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NOTE})]


class BestSection(Section):
    """Which checkpoint is the best."""

    by: Name = Field(description="a metric, for example eval/acc")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")
    use: StrictBool = Field(
        default=False, description="the folder of a run means its best checkpoint, where it is evaluated, used or exported"
    )


class CheckpointSection(Section):
    """When the state is saved."""

    every: TimedPeriodField = Field(default=Period(1, "epoch"), description="how often")
    keep: Count = Field(default=3, description="newest checkpoints that are kept")
    best: BestSection | None = Field(default=None, description="also keep the best: saved whenever it is measured")


class OutputSection(Section):
    """Where a run's folder is made, and what is kept in it."""

    dir: PathName = Field(default="runs", description="folder of the runs' folders")
    name: Name | None = Field(default=None, description="of the run; the run file's name when absent")
    checkpoint: CheckpointSection | None = Field(default_factory=CheckpointSection, description="null: none")
    log: list[LogName] = Field(
        default=["jsonl"],
        description="how metrics are written: jsonl (always), csv, tensorboard (needs the extra of that name)",
    )
    gradient_norms: StrictBool = Field(
        default=False, description="record the length of all gradients together, and of every parameter's, as metrics"
    )
    trace: Annotated[int, Field(strict=True, ge=0, le=1000)] = Field(
        default=0, description="steps whose kernels are timed after the last one, for trace.json; 0: none"
    )
    observers: Observers = Field(
        default_factory=dict,
        description="other programs that are told of the run, with their options: mlflow, wandb (extras of these names), those of plugins",
    )
    tags: Tags | None = Field(default=None, description="words that pe runs shows and chooses by")
    note: Note | None = Field(default=None, description="what the run is for, in your words; pe runs shows it")
