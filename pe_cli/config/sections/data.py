"""`data`: where samples come from, how they are split, and what their columns mean."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema

from pe_cli.config.byte_size import SizeField
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count, Name, Natural, Share
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Window:
    """An order in which rows that lie together stay near each other, so that they are read together.

    Args:
        samples: that change places at random, at least 1.
    """

    samples: int


def _shuffle(value: object) -> bool | Window:
    if isinstance(value, bool | Window):
        return value
    size = value.get("window") if isinstance(value, dict) and set(value) == {"window"} else None
    # Truth values are whole numbers in Python, so {window: true} would pass as 1; 2^53 is where float64 no longer counts by one.
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 1 << 53:
        raise ValueError("must be true, false, or {window: N} with a whole number N of samples, at least 1", "for example {window: 10000}")
    return Window(size)


ShuffleField = Annotated[
    bool | Window,
    PlainValidator(_shuffle),
    PlainSerializer(lambda value: {"window": value.samples} if isinstance(value, Window) else value),
    # A validator of one's own hides the type from pydantic, so the schema for editors has to be written beside it.
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {
                    "type": "object",
                    "properties": {"window": {"type": "integer", "minimum": 1}},
                    "required": ["window"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class DataSection(Section):
    """Where samples come from. Keys besides these are the reader's."""

    # The one open section: which further keys there are only the reader knows, and it checks them.
    model_config = ConfigDict(extra="allow")

    reader: Name = Field(description="kind of file: table, images, tar, text, windows, npz, npy, csv, idx, multi_slot, synthetic")
    shuffle: ShuffleField | None = Field(
        default=None,
        description="another order of the training samples in every epoch; true for source, else false, when absent; "
        "{window: N}: an order for streams, in which N samples change places",
    )
    prefetch: Natural = Field(default=2, description="batches made ahead by a thread")


class SplitSection(Section):
    """Which rows of `data.source` are for what; the rest is for training."""

    eval: Share | None = Field(default=None, description="share of the rows for evaluation, above 0 and below 1")
    test: Share | None = Field(default=None, description="share of the rows for `pe eval --split test`, above 0 and below 1")
    stratify: Name | None = Field(default=None, description="column whose values have the same shares in every part")
    group: Name | None = Field(default=None, description="column whose rows with the same value stay in one part")
    time: Name | None = Field(
        default=None, description="column of moments or numbers: the earliest rows train, the latest test"
    )
    order: Literal["random", "position"] | None = Field(
        default=None,
        description="random: drawn by the seed; position: as stored, the last rows test; "
        "random when absent, but position for the blocks of a text",
    )
    folds: Annotated[int, Field(strict=True, ge=2, le=100)] | None = Field(
        default=None, description="number of parts of equal size that take turns as evaluation; instead of eval"
    )
    fold: Count | None = Field(default=None, description="which of the folds is for evaluation, from 1; `pe train --folds` runs all")
    seed: Natural = Field(default=0, description="another seed draws other parts")


class SamplingSection(Section):
    """How often rows are drawn for training: by their weight, with replacement."""

    weights: Name = Field(description="column of numbers, at least 0: a row is drawn in proportion to its number")


class DataBounds(Section):
    """How much disk and memory data may take."""

    cache: SizeField | None = Field(
        default=None, description="disk for files of web servers and object stores, such as 50 GB; 10 GB when absent"
    )
    memory: SizeField | None = Field(
        default=None, description="memory of each process for columns and pictures, such as 256 MB; a quarter of what there is when absent"
    )


class DataSections(DataBounds):
    """Data by its use, or one source that is split; and what the columns of it mean."""

    source: DataSection | None = Field(default=None, description="rows that `split` divides")
    split: SplitSection | None = Field(default=None, description="which rows of the source are for evaluation and for the test")
    train: DataSection | None = None
    eval: DataSection | None = None
    test: DataSection | None = None
    predict: DataSection | None = None
    columns: dict[str, Any] = Field(
        default_factory=dict, description="column -> type and its options; what a column learns, it learns from the training rows"
    )
    augment: list[Any] = Field(default_factory=list, description="changes of training samples, in order; never in evaluation")
    sampling: Literal["balanced"] | SamplingSection | None = Field(
        default=None, description="balanced: every class of the label is drawn as often; or weights: COLUMN; training only"
    )
    class_weights: Literal["balanced"] | dict[str, Any] | None = Field(
        default=None,
        description="class of the label -> factor of its samples' loss in training; balanced: in inverse proportion to its rows",
    )


#: What a split or a section of `data` is for.
USES = ("train", "eval", "test", "predict")
