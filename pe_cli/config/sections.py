"""The sections of a run file: names, types, bounds and defaults. JSON Schema and checks both come from here."""

# annotations are types here, not texts: pydantic would compile each of them at every start
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    StrictBool,
    WithJsonSchema,
)

from pe_cli.config.domain import Domain
from pe_cli.config.period import Period, PeriodField, TimedPeriodField
from pe_cli.core.errors import Span

Int = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, min_length=1)]
LogName = Literal["jsonl", "csv", "tensorboard"]
DtypeName = Literal["float32", "float64", "int64", "int32", "uint8", "bool"]


#: Devices and threads that a run may ask for; every one takes memory and a thread.
MAX_DEVICES = 256


def _devices(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEVICES:
        return value
    raise ValueError(f"must be auto or a number of devices, 1 to {MAX_DEVICES}")


def _processes(value: object) -> Literal[1, "mpi"]:
    if value == "mpi":
        return "mpi"
    if value == 1 and isinstance(value, int) and not isinstance(value, bool):
        return 1
    raise ValueError("must be 1 or mpi (mpiexec -n says how many)")


def _patterns(value: object) -> str | list[str]:
    if (isinstance(value, str) and value) or (isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)):
        return value
    raise ValueError("must be a pattern, or a list of patterns", "for example encoder/*")


def _fields(value: object) -> str | list[str]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return value
    raise ValueError("must be the name of a field, or a list of names", "for example x: [age, hours]")


def _always(value: object) -> bool:
    if value is True:
        return True
    if value is False:
        raise ValueError("can only be true: one seed always gives one result")
    raise ValueError("must be true")


#: A factor as a config writes it.
_FACTOR = re.compile(r"([0-9]+\.?[0-9]*(e-?[0-9]+)?)x")


def _factor(value: object) -> str:
    if isinstance(value, str) and (found := _FACTOR.fullmatch(value)) and 0 < float(found[1]) < 1e9:
        return value
    raise ValueError("must be a factor of the optimizer's rate", "for example 10x or 0.1x; freeze: true trains nothing")


@dataclass(frozen=True)
class Term:
    """One of several losses.

    Args:
        weight: what it is multiplied by, no unit.
        ramp: steps in which the weight grows from 0 in a line; None: it is there from the first step.
    """

    weight: float
    ramp: int | None = None


_STEPS = re.compile(r"([1-9][0-9]{0,11}) +steps?")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _term(name: str, value: object) -> Term:
    if isinstance(value, Term):
        return value
    if _is_number(value):
        return Term(float(cast(float, value)))
    if not isinstance(value, dict) or not value or not value.keys() <= {"weight", "ramp"} or not _is_number(value.get("weight", 1.0)):
        raise ValueError(f"needs a weight for '{name}'", f"for example {name}: 0.5, or {name}: {{weight: 0.5, ramp: 1000 steps}}")
    ramp = value.get("ramp")
    found = _STEPS.fullmatch(ramp) if isinstance(ramp, str) else None
    if ramp is not None and found is None:
        raise ValueError(f"needs a ramp for '{name}' that is a number of steps", f"for example {name}: {{weight: 0.5, ramp: 1000 steps}}")
    return Term(float(value.get("weight", 1.0)), int(found[1]) if found else None)


def _losses(value: object) -> str | dict[str, Term]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value and all(isinstance(name, str) and name for name in value):
        return {name: _term(name, term) for name, term in value.items()}
    raise ValueError("must be the name of a variable, or a mapping of names to weights", "for example loss: {recon: 1.0, kl: 0.1}")


def _written_losses(value: str | dict[str, Term]) -> object:
    if isinstance(value, str):
        return value
    return {n: t.weight if t.ramp is None else {"weight": t.weight, "ramp": f"{t.ramp} steps"} for n, t in value.items()}


#: What a file of fetched values may be called.
_FETCHED = re.compile(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,199}\.(npz|csv|jsonl)")


def _fetched(value: object) -> str:
    if isinstance(value, str) and _FETCHED.fullmatch(value):
        return value
    raise ValueError(
        "must be a file name that ends in .npz, .csv or .jsonl", "for example values.npz: it goes to the run's fetches folder"
    )


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


def _inside(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    if value.startswith(("/", "~")) or "\0" in value or ".." in value.split("/"):
        raise ValueError("must stay in the run's folder", "a relative path without '..', for example graphs/")
    return value


FetchedFile = Annotated[
    str, PlainValidator(_fetched), WithJsonSchema({"type": "string", "pattern": f"^{_FETCHED.pattern}$"})
]
InsideRun = Annotated[
    str, PlainValidator(_inside), WithJsonSchema({"type": "string", "pattern": r"^(?![/~])(?!(.*/)?\.\.(/|$))"})
]
Tags = Annotated[
    list[str],
    PlainValidator(_tags),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG}, "minItems": 1, "maxItems": MAX_TAGS}
    ),
]
Note = Annotated[str, PlainValidator(_note), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NOTE})]
Devices = Annotated[
    int | Literal["auto"],
    PlainValidator(_devices),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_DEVICES}]}),
]
Processes = Annotated[
    Literal[1, "mpi"], PlainValidator(_processes), WithJsonSchema({"anyOf": [{"const": 1}, {"const": "mpi"}]})
]
Fields = Annotated[
    str | list[str],
    PlainValidator(_fields),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Losses = Annotated[
    str | dict[str, Term],
    PlainValidator(_losses),
    PlainSerializer(_written_losses),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {
                        "anyOf": [
                            {"type": "number"},
                            {
                                "type": "object",
                                "properties": {"weight": {"type": "number"}, "ramp": {"type": "string", "pattern": f"^{_STEPS.pattern}$"}},
                                "additionalProperties": False,
                                "minProperties": 1,
                            },
                        ]
                    },
                },
            ]
        }
    ),
]
Patterns = Annotated[
    str | list[str],
    PlainValidator(_patterns),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Factor = Annotated[str, PlainValidator(_factor), WithJsonSchema({"type": "string", "pattern": f"^{_FACTOR.pattern}$"})]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)]
Threads = Annotated[int, Field(strict=True, ge=0, le=MAX_DEVICES)]
Always = Annotated[bool, PlainValidator(_always), WithJsonSchema({"const": True})]


class Section(BaseModel):
    """A mapping of a run file, which knows where it and its values are written.

    Class attributes:
        UNAVAILABLE: keys of fluid's that this version cannot act on, so that they are refused and not ignored.
        UNAVAILABLE_VALUES: key -> such values.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, arbitrary_types_allowed=True)
    UNAVAILABLE: ClassVar[tuple[str, ...]] = ()
    UNAVAILABLE_VALUES: ClassVar[dict[str, tuple[Any, ...]]] = {}
    _at: Span | None = PrivateAttr(default=None)
    _places: dict[str, Span] = PrivateAttr(default_factory=dict)

    @property
    def at(self) -> Span | None:
        """Place of the section, None where the file has none."""
        return self._at

    def at_of(self, key: str) -> Span | None:
        """Return the place of a key's value, or of the section where the key is not written."""
        return self._places.get(key, self._at)

    def locate(self, at: Span, places: dict[str, Span]) -> None:
        """Set the places; called once, by `check`."""
        self._at, self._places = at, places


class ModelSection(Section):
    """Which model."""

    file: Name = Field(description="the model file, relative to this file's folder")
    args: dict[str, Any] = Field(default_factory=dict, description="constants of the model that differ from its own")


class DataSection(Section):
    """Where samples come from. Keys besides these are the reader's."""

    model_config = ConfigDict(extra="allow")

    reader: Name = Field(description="kind of file: table, images, text, windows, npz, npy, csv, idx, multi_slot, synthetic")
    shuffle: StrictBool | None = Field(
        default=None, description="another order of the training samples in every epoch; true for source, else false, when absent"
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


class DataSections(Section):
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


class FeedSection(Section):
    """How a field of the data becomes a feed of the model: one_hot(field * scale + shift), reshaped."""

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

    from_: Name = Field(alias="from", description="a run, a checkpoint, a .safetensors, .npz or .onnx file")
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
    strict: StrictBool = Field(
        default=False, description="refuse values that only one side has, and values of another shape, instead of naming them"
    )


class GroupSection(Section):
    """Parameters that are trained otherwise than the rest."""

    match: Patterns = Field(description="patterns of parameters or layers, such as `encoder/*` or `*.b_0`")
    freeze: StrictBool = Field(default=False, description="leave them as they begin; what only they need is not computed")
    running_statistics: StrictBool = Field(
        default=False, description="batch_norm among them uses its running statistics in training, too, and leaves them as they are"
    )
    learning_rate: Factor | None = Field(default=None, description="times the optimizer's rate: `10x`, `0.1x`")
    weight_decay: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="instead of the optimizer's: of one that decays apart from the gradient, else of an L2Decay"
    )

    @property
    def patterns(self) -> list[str]:
        """What `match` says, as a list."""
        return [self.match] if isinstance(self.match, str) else self.match


class TrainSection(Section):
    """How the model is trained."""

    loss: Losses = Field(description="the variable that is minimised, one number; or several with their weights")
    epochs: Count | None = Field(default=None, description="passes over the training data")
    steps: Count | None = Field(
        default=None, description="stop after so many steps in all; with epochs, whichever comes first"
    )
    batch_size: Count = Field(description="samples per step, over all devices")
    optimizer: dict[str, Any] = Field(description="type, learning_rate and the optimizer's own arguments")
    drop_last: StrictBool = Field(default=False, description="leave out a last batch that is smaller")
    eval_every: PeriodField = Field(default=Period(1, "epoch"), description="how often the eval data is run")
    accumulate: Count = Field(
        default=1,
        description="parts of batch_size samples whose gradients make one step, as a batch so many times larger",
    )
    ema: EmaSection | None = Field(default=None, description="evaluate with a moving average of the parameters")
    early_stopping: EarlyStoppingSection | None = Field(default=None, description="end when a metric gets no better")
    plateau: PlateauSection | None = Field(default=None, description="lower a constant learning rate when a metric gets no better")
    init: StartSection | None = Field(default=None, description="first values from another run or a file")
    groups: list[GroupSection] = Field(default_factory=list, description="parameters that are frozen, or trained otherwise than the rest")


class FetchSection(Section):
    """What is kept of a variable."""

    every: PeriodField = Field(default=Period(1, "epoch"), description="how often")
    merge: Literal["mean", "sum", "concat", "list"] | None = Field(
        default=None,
        description="how the devices' values are joined; mean for scalars and concat for the rest when absent",
    )
    to: FetchedFile | None = Field(
        default=None, description="file in the run's fetches folder: .npz, .csv or .jsonl; metrics.jsonl when absent"
    )


class ExecutorSection(Section):
    """On what it runs."""

    type: Literal["parallel", "async"] = Field(
        default="parallel",
        description="parallel: devices share every batch; async: threads train one set of parameters on files of their own, "
        "without locks",
    )
    files: list[Name] | None = Field(
        default=None, min_length=1, description="async: training files that threads take, instead of data.train.files"
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=MAX_DEVICES)] | None = Field(
        default=None, description="async: threads; one per core when absent, and no more than files"
    )
    place: Literal["cpu", "cuda"] = Field(default="cpu", description="kind of device")
    devices: Devices = Field(
        default="auto", description="number of devices; auto: CPU_NUM, or else what is fastest on the cores of this process"
    )
    processes: Processes = Field(
        default=1,
        description="pe train: 1, or mpi: all processes that mpiexec has started train one model and share every batch",
    )
    peer_timeout: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = Field(
        default=60.0,
        description="with processes: mpi, seconds without an answer after which another process counts as lost (exit code 6)",
    )
    num_threads: Threads | None = Field(default=None, description="the same as exec_strategy.num_threads")
    uneven_batch: Literal["weighted", "drop", "error"] = Field(
        default="weighted", description="what happens with a batch that cannot be split evenly"
    )
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = Field(
        default=0, description="of initial values, dropout and shuffling"
    )
    watchdog: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="seconds without progress after which a step is ended and what hangs is told (exit code 7); 0: never",
    )
    check_nan_inf: StrictBool = Field(
        default=False,
        description="look at every result of every op, and end at the first NaN or infinity with its name",
    )
    deterministic: Always = Field(default=True, description="always: the same seed gives the same bits")
    instructions: Literal["native", "portable"] = Field(
        default="native",
        description="native: all that this processor has; portable: those of x86-64-v3 alone, which give the same bits on any processor "
        "of Intel and AMD that has AVX2",
    )


class BuildSection(Section):
    """How the multi-device graph is built; names and defaults are fluid's."""

    UNAVAILABLE = (
        "num_trainers", "trainer_id", "use_hierarchical_allreduce",
        "hierarchical_allreduce_inter_nranks", "nccl_comm_num", "enable_cuda_graph",
    )  # fmt: skip
    reduce_strategy: Literal["AllReduce", "Reduce"] = Field(
        default="AllReduce",
        description="AllReduce: every device updates its copy; Reduce: each parameter has one owner",
    )
    gradient_scale_strategy: Literal["CoeffNumDevice", "One", "Customized"] = Field(
        default="CoeffNumDevice", description="the loss's gradient on each device: its share of the batch, 1, or a feed"
    )
    fuse_all_optimizer_ops: StrictBool = Field(
        default=True, description="one op updates all parameters of a kind; not with Reduce; fluid's default is false"
    )
    fuse_broadcast_ops: StrictBool | None = Field(
        default=None, description="join the broadcasts of Reduce; no graph has any, and true is a mistake"
    )
    fuse_bn_add_act_ops: StrictBool = Field(
        default=True, description="batch_norm, the sum with another image and relu become one; fluid's default is false"
    )
    fuse_bn_act_ops: StrictBool = Field(
        default=True, description="batch_norm and relu become one; fluid's default is false"
    )
    fuse_bn_statistics: StrictBool = Field(
        default=True, description="a convolution takes the statistics for the batch_norm after it; on CPUs"
    )
    fuse_bn_conv: StrictBool = Field(
        default=True,
        description="1x1 and depthwise convolutions apply the batch_norm and relu before them; on CPUs, after fuse_bn_statistics",
    )
    fuse_conv_bn: StrictBool = Field(
        default=True,
        description="in evaluation, convolutions apply the batch_norm after them, with relu and what is added before that; on CPUs",
    )
    fuse_relu_depthwise_conv: StrictBool = Field(default=False, description="relu and depthwise_conv2d become one op")
    fuse_elewise_add_act_ops: StrictBool = Field(
        default=False, description="elementwise_add and the activation after it become one op"
    )
    simplify: StrictBool = Field(
        default=True,
        description="operators without effect are left out, repeated ones done once, constants known before",
    )
    fuse_gemm_epilogue: StrictBool = Field(
        default=True, description="mul or conv2d, the bias after it and relu become one; fluid's default is false"
    )
    enable_auto_fusion: StrictBool = Field(
        default=True, description="pointwise operators that feed one another become one; fluid's default is false"
    )
    enable_addto: StrictBool = Field(
        default=True,
        description="gradients of a variable that several ops read are added where they are made; fluid's default is false",
    )
    fuse_grad_update: StrictBool = Field(
        default=True, description="gradients of weights are subtracted where they are made, those of tables also by Adam; on one CPU device"
    )
    enable_inplace: StrictBool = Field(default=True, description="ops may overwrite inputs that nobody needs any more")
    sync_batch_norm: StrictBool = Field(default=False, description="batch_norm over the samples of all devices")
    enable_sequential_execution: StrictBool = Field(default=False, description="every device keeps the program's order")
    enable_backward_optimizer_op_deps: StrictBool = Field(
        default=True, description="no parameter is updated before all gradients are there, but those of fuse_grad_update"
    )
    memory_optimize: StrictBool = Field(default=True, description="temporaries share memory")
    debug_graphviz_path: InsideRun = Field(
        default="",
        description="what the names of the drawn graphs, in dot, begin with, in the run's folder: graphs/ is a folder there",
    )
    data_layout: Literal["auto", "keep"] = Field(
        default="auto", description="auto: images run channels-last inside; keep: as the model writes them"
    )
    remove_unnecessary_lock: StrictBool = Field(
        default=True, description="false: steps of different executors never run at the same time"
    )
    cache_runtime_context: StrictBool = Field(
        default=False, description="keep what was prepared for batch shapes that are not in use"
    )
    fuse_all_reduce_ops: StrictBool = Field(default=True, description="gradients are summed in buckets")
    fuse_all_reduce_bytes: Count = Field(default=4 << 20, description="bytes of a bucket")


class ExecSection(Section):
    """How the graph is scheduled; names and defaults are fluid's."""

    UNAVAILABLE = ("use_thread_barrier",)

    num_threads: Threads = Field(default=0, description="native threads; 0: one per device, but no more than cores")
    num_iteration_per_drop_scope: Count = Field(default=100, description="steps between drops of temporaries")
    num_iteration_per_run: Count = Field(default=1, description="steps that are done with each batch")
    allow_op_delay: StrictBool = Field(default=False, description="sums over devices wait for all other ready work")
    dry_run: StrictBool = Field(default=False, description="schedule without computing, to measure the scheduler")


class BestSection(Section):
    """Which checkpoint is the best."""

    by: Name = Field(description="a metric, for example eval/acc")
    mode: Literal["max", "min"] = Field(description="whether more or less is better")


class CheckpointSection(Section):
    """When the state is saved."""

    every: TimedPeriodField = Field(default=Period(1, "epoch"), description="how often")
    keep: Count = Field(default=3, description="newest checkpoints that are kept")
    best: BestSection | None = Field(default=None, description="also keep the best: saved whenever it is measured")


class OutputSection(Section):
    """Where a run's folder is made, and what is kept in it."""

    dir: Name = Field(default="runs", description="folder of the runs' folders")
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
    tags: Tags | None = Field(default=None, description="words that pe runs shows and chooses by")
    note: Note | None = Field(default=None, description="what the run is for, in your words; pe runs shows it")


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


class RunFile(Section):
    """With what a model is run, on what, and what is kept."""

    extends: Patterns | None = Field(
        default=None, description="config, or list of configs, that this one differs from; relative to this file's folder"
    )
    args: dict[str, Any] = Field(default_factory=dict, description="constants, used as ${name} anywhere in this file")
    model: ModelSection
    data: DataSections = Field(default_factory=DataSections)
    feeds: dict[str, FeedSection] = Field(default_factory=dict, description="feed of the model -> field of the data")
    train: TrainSection | None = None
    fetches: dict[str, FetchSection] = Field(default_factory=dict, description="variable -> what is kept of it")
    metrics: dict[str, Any] = Field(
        default_factory=dict, description="name -> type and its options: computed of all rows of the evaluation data"
    )
    executor: ExecutorSection = Field(default_factory=ExecutorSection)
    build_strategy: BuildSection = Field(default_factory=BuildSection)
    exec_strategy: ExecSection = Field(default_factory=ExecSection)
    output: OutputSection = Field(default_factory=OutputSection)
    sweep: SweepSection | None = None
