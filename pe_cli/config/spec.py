"""What a model file and a run file say, checked as far as that needs no catalogue; everything knows its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from pe_cli.config.byte_size import ByteSize
from pe_cli.config.extends import Composed
from pe_cli.config.nodes import MapNode, Node, ScalarNode, find, is_null, key_span
from pe_cli.config.scope import Scope
from pe_cli.config.sections.data import DataSection, SamplingSection, SplitSection, Window
from pe_cli.config.sections.distributed import DistributedSection
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.fetch import FetchSection
from pe_cli.config.sections.losses import Term
from pe_cli.config.sections.model import HeadSection
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.phase import PhaseSection
from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy

#: Name of the weighted sum of several losses, as a metric and as a variable.
TOTAL_LOSS = "total_loss"


@dataclass(frozen=True)
class FeedSpec:
    """An input of the model.

    Args:
        shape: sizes of one sample, without the batch axis; -1 is not known yet.
        dtype: element type.
        replicate: whether it has no batch axis, and goes to every device whole.
        lod_level: levels of nested sequences that the rows of a batch belong to.
    """

    shape: tuple[int, ...]
    dtype: str
    at: Span
    replicate: bool = False
    lod_level: int = 0


@dataclass(frozen=True)
class ArgSpec:
    """An argument as it is written: its value, and the place of its name."""

    value: Node
    at: Span


@dataclass(frozen=True)
class LayerSpec:
    """One layer, with blocks and `${...}` put in.

    Args:
        key: name of its output variable: `conv1`, or `stage1/0/a` in a block.
        type: of the catalogue of layers.
        args: by name, as written.
        at: place of `type: name`.
        scope: where the names of variables in it are looked up.
        previous: variable that an unnamed input takes; None for the first layer.
        calls: places where the blocks that it stands in are used, the outermost first.
    """

    key: str
    type: str
    args: Mapping[str, ArgSpec]
    at: Span
    scope: Scope
    previous: str | None = None
    calls: tuple[Span, ...] = ()


@dataclass(frozen=True)
class BodySpec:
    """A block that a step runs: a round of a loop, or a branch.

    Args:
        layers: in order.
        output: variable that it gives; None for none.
        given: argument -> the name that stands for what it is given.
        next: argument -> variable that it is in the next round.
        at: place where the block is named.
    """

    layers: tuple[LayerSpec, ...]
    output: str | None
    given: Mapping[str, str]
    next: Mapping[str, str]
    at: Span


@dataclass(frozen=True)
class RegionSpec(LayerSpec):
    """A layer that runs blocks: `type` is scan, while, if or beam, and `args` what it is written with beside arguments of the blocks.

    Args:
        bodies: for scan and beam the step; for while the condition and the round; for if both branches.
    """

    bodies: tuple[BodySpec, ...] = ()


@dataclass(frozen=True)
class ModelSpec:
    """What is computed.

    Args:
        name: of the model.
        path: the model file.
        args: its constants, with those that the run file gives.
        feeds: inputs by name.
        blocks: parametrised parts as written, by name; they are put into `layers` already.
        layers: in order.
        fetches: name as written -> place.
        scope: names that the run file may use: feeds, layers, and results of blocks.
        at: place of the model.
        broken: variables whose layers could not be put in, so that what needs them stays silent.
        metadata: what an exported model says of itself: key -> text.
        head: the layer that the run file gives another number of classes; None for none.
    """

    name: str
    path: Path
    args: Mapping[str, Node]
    feeds: Mapping[str, FeedSpec]
    blocks: Mapping[str, Node]
    layers: tuple[LayerSpec, ...]
    fetches: Mapping[str, Span]
    scope: Scope
    at: Span
    broken: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    head: HeadSection | None = None


@dataclass(frozen=True)
class DataSpec:
    """Where samples come from.

    Args:
        name: train, eval, test or predict.
        reader: kind of file.
        options: the reader's own, as written; they are checked where readers are known.
        section: the checked rest: shuffle, prefetch.
        at: place of the section.
        split: whether it is a part of `data.source`, which `data.split` divides.
    """

    name: str
    reader: str
    options: MapNode
    section: DataSection
    at: Span
    reader_at: Span
    split: bool = False

    @property
    def shuffle(self) -> bool:
        """Whether training takes the samples in another order in every epoch."""
        return (self.split and self.name == "train") if self.section.shuffle is None else self.section.shuffle is not False

    @property
    def window(self) -> int | None:
        """Samples that change places; None where all do."""
        return self.section.shuffle.samples if isinstance(self.section.shuffle, Window) else None


@dataclass(frozen=True)
class Preparation:
    """What is done with rows before they become feeds.

    Args:
        split: how the source is divided.
        columns: column -> its declaration as written, `type` and options; checked where column types are known.
        augment: changes of training samples as written; checked where they are known.
        sampling: how training samples are drawn.
        class_weights: class -> factor, or `balanced`; as written.
        cache: how much of files elsewhere is kept on the disk; None for the usual size.
        memory: how much of the data is kept in memory; None for a share of the machine's.
    """

    split: SplitSection | None = None
    columns: Mapping[str, ArgSpec] = field(default_factory=dict)
    augment: Node | None = None
    sampling: Literal["balanced"] | SamplingSection | None = None
    class_weights: Node | None = None
    cache: ByteSize | None = None
    memory: ByteSize | None = None


@dataclass(frozen=True)
class PhaseSpec:
    """What every step trains once, or several times; a run file without `train.phases` has one of them, without a name.

    Args:
        path: keys from the top of the run file to the mapping that has its loss and its optimizer.
        loss: name of the variable that is minimised, of several losses their sum; None where that is wrong.
        optimizer: as written; it is checked where optimizers are known.
        name: empty where there is only this one.
        terms: the losses that are added up, where there are several.
        summed: whether several are written, also where something is wrong with them.
        patterns: of the parameters that are trained; None for all that the loss depends on.
        repeat: updates in every step.
    """

    path: tuple[str | int, ...]
    loss: str | None
    optimizer: Node | None
    name: str = ""
    terms: Mapping[str, Term] = field(default_factory=dict)
    summed: bool = False
    patterns: Sequence[str] | None = None
    repeat: int = 1

    def called(self, name: str) -> str:
        """Return the name of something of this phase among those of all phases."""
        return f"{self.name}/{name}" if self.name else name


@dataclass(frozen=True)
class RunSpec:
    """With what, on what, and what to keep.

    Args:
        path: the run file.
        composed: it with what it extends and with overrides, before `${...}` is put in.
        tree: it, with `${...}` put in; `at_of` gives places in it.
        model_path: the model file.
        model_args: constants of the model that differ from its own.
        model: what is computed.
        data: by use.
        preparation: what is done with their rows.
        feeds: feed of the model -> field of the data.
        train: None when the file has no such section.
        fetches: variable -> what is kept of it.
        metrics: name -> its declaration as written, `type` and options; checked where metrics are known.
        executor, build_strategy, exec_strategy, output: as named, with defaults.
        sweep: None when the file has no such section.
        plugins: packages of others, which are loaded.
        distributed: None when the file has no such section.
    """

    path: Path
    composed: Composed
    tree: MapNode
    model_path: Path
    model_args: Mapping[str, Node]
    model: ModelSpec
    data: Mapping[str, DataSpec] = field(default_factory=dict)
    preparation: Preparation = field(default_factory=Preparation)
    feeds: Mapping[str, FeedSection] = field(default_factory=dict)
    train: TrainSection | None = None
    fetches: Mapping[str, FetchSection] = field(default_factory=dict)
    executor: ExecutorSection = field(default_factory=ExecutorSection)
    build_strategy: BuildStrategy = field(default_factory=BuildStrategy)
    exec_strategy: ExecutionStrategy = field(default_factory=ExecutionStrategy)
    output: OutputSection = field(default_factory=OutputSection)
    metrics: Mapping[str, ArgSpec] = field(default_factory=dict)
    sweep: SweepSection | None = None
    plugins: tuple[str, ...] = ()
    distributed: DistributedSection | None = None

    @property
    def has_servers(self) -> bool:
        """Whether some of the processes are parameter servers."""
        return self.distributed is not None and self.distributed.mode == "parameter_server"

    @property
    def text(self) -> str:
        """The run file, as written."""
        return self.composed.text

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.output.name or self.path.stem

    @property
    def at(self) -> Span:
        """Place of the file's beginning."""
        return self.tree.at

    @property
    def phases(self) -> tuple[PhaseSpec, ...]:
        """What a step trains, in order; also where another key of `train` is wrong, so that loss and optimizer are looked at."""
        written = find(self.tree, ("train",))
        if not isinstance(written, MapNode):
            return ()
        if is_null(written.get("phases")):
            terms = self.train.loss if self.train and isinstance(self.train.loss, dict) else {}
            loss, summed = _minimised(written.get("loss"), TOTAL_LOSS)
            return (PhaseSpec(("train",), loss, written.get("optimizer"), terms=terms, summed=summed),)
        return tuple(self._phase(i, section) for i, section in enumerate(self.train.phases if self.train else ()))

    def _phase(self, number: int, section: PhaseSection) -> PhaseSpec:
        path = ("train", "phases", number)
        made = PhaseSpec(path, None, find(self.tree, (*path, "optimizer")), section.name, patterns=section.patterns, repeat=section.repeat)
        loss, summed = _minimised(find(self.tree, (*path, "loss")), made.called(TOTAL_LOSS))
        return replace(made, loss=loss, summed=summed, terms=section.loss if isinstance(section.loss, dict) else {})

    def tree_key(self, *path: str | int) -> Span:
        """Return the place of a key itself, or of the nearest key above it that is written."""
        return key_span(self.tree, path)

    def at_of(self, *path: str | int) -> Span:
        """Return the place of a key's value, or of the nearest key above it that is written."""
        found = find(self.tree, path)
        return found.at if found is not None else key_span(self.tree, path)


def _minimised(node: Node | None, total: str) -> tuple[str | None, bool]:
    """Return the name of a loss as written, `total` where there are several, and whether there are."""
    if isinstance(node, MapNode):
        return total, True
    return node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else None, False
