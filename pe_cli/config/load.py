"""Loads a model file and a run file into specs, and reports all mistakes that can be found without the catalogue of layers at once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pe_cli.config.async_checks import async_mistakes
from pe_cli.config.constants import fill
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.extends import Composed, compose, tidy
from pe_cli.config.model import read_model
from pe_cli.config.nodes import Entry, ListNode, MapNode, Node, ScalarNode, describe, is_null
from pe_cli.config.overrides import Override, apply_overrides, put
from pe_cli.config.paths import from_run_folder
from pe_cli.config.phase_checks import phase_mistakes, written_mistakes
from pe_cli.config.plugins import load_plugins
from pe_cli.config.precision_checks import numerics_mistakes
from pe_cli.config.process_checks import distributed_mistakes, process_mistakes
from pe_cli.config.section_check import check
from pe_cli.config.sections.data import USES, DataBounds, DataSection, DataSections, SamplingSection, SplitSection
from pe_cli.config.sections.distributed import DistributedSection
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.fetch import FetchSection
from pe_cli.config.sections.model import ModelSection
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.run_file import RunFile
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.strategies import BuildSection, ExecSection
from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import ArgSpec, DataSpec, ModelSpec, Preparation, RunSpec
from pe_cli.config.split_checks import split_mistakes
from pe_cli.config.substitute import literal
from pe_cli.config.sweep_checks import sweep_mistakes
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy

AnySection = TypeVar("AnySection", bound=Section)


def load_run(path: Path | str, overrides: Sequence[str] = ()) -> RunSpec:
    """Read a run file and the model file that it names.

    Args:
        path: the run file; its path is shown in errors as given.
        overrides: `key=value`, as after `-o`.

    Raises:
        PeError: any mistake in them; a `PeErrors` with all mistakes of both files where there are several.
    """
    mistakes = Mistakes()
    found = read_run(Path(path), overrides, mistakes)
    mistakes.raise_all()
    assert found is not None
    return found


def load_model(path: Path | str, args: Mapping[str, Node] | None = None) -> ModelSpec:
    """Read a model file.

    Args:
        path: the model file.
        args: constants that differ from its own, as nodes.

    Raises:
        PeError: any mistake in it; a `PeErrors` with all where there are several.
    """
    mistakes = Mistakes()
    found: ModelSpec | None = None
    try:
        found = read_model(Path(path), args or {}, mistakes)
    except PeError as error:
        mistakes.add(error)
    mistakes.raise_all()
    assert found is not None
    return found


def read_run(path: Path, overrides: Sequence[str], mistakes: Mistakes) -> RunSpec | None:
    """Read a run file and its model as far as they can be read; sections with mistakes are left at their defaults.

    Returns:
        None when there is no telling what is computed.
    """
    found = compose(path, mistakes)
    if found is None:
        return None
    tree = apply_overrides(found.tree, overrides, mistakes)
    late = tree.entries.get("extends")
    if late is not None:
        mistakes.say("extends is read before -o, which cannot set it", late.at, "write extends: into the file")
    with mistakes.catch_all():
        composed = dataclasses.replace(found, tree=tree.without("extends"))
        filled = _filled_in(composed, mistakes)
        if filled is not None:
            return _Run(path, composed, filled, mistakes).read()
    return None


def _filled_in(composed: Composed, mistakes: Mistakes) -> MapNode | None:
    """Return the tree with `${...}` put in and paths told from the run file's folder; None after mistakes."""
    filled = fill(composed.tree, composed.names, mistakes)
    return None if filled is None else from_run_folder(filled, composed.folders)


def read_variant(run: RunSpec, overrides: Sequence[Override], mistakes: Mistakes) -> RunSpec | None:
    """Read a run again with other values, and without its sweep; as `read_run`.

    Args:
        run: as it was read.
        overrides: values as they are meant: a `${` in one is no name.
        mistakes: where errors go.
    """
    before = mistakes.total
    composed = dataclasses.replace(run.composed, tree=run.composed.tree.without("sweep"))
    of_args = [override for override in overrides if override.parts[0][0] == "args"]
    # Other constants need the tree as it was written, before `${...}` was put in.
    tree = run.tree.without("sweep") if not of_args else _refilled(composed, of_args, mistakes)
    for override in overrides:
        with mistakes.catch():
            tree = put(tree, override) if tree and override not in of_args else tree
    return None if tree is None or mistakes.total > before else _Run(run.path, composed, tree, mistakes).read()


def _refilled(composed: Composed, overrides: Sequence[Override], mistakes: Mistakes) -> MapNode | None:
    """Return the tree with other constants put in; None after mistakes."""
    tree = composed.tree
    try:
        for override in overrides:
            tree = put(tree, dataclasses.replace(override, value=literal(override.value)))
        return _filled_in(dataclasses.replace(composed, tree=tree), mistakes)
    except PeError as error:
        mistakes.add(error)
        return None


@dataclass
class _Run:
    """One reading of a run file, section by section, so that a mistake in one hides none in another."""

    path: Path
    composed: Composed
    tree: MapNode
    mistakes: Mistakes

    def read(self) -> RunSpec | None:
        self.check_keys()
        # Before any section is checked: sections name kinds that plugins add.
        plugins = load_plugins(self.tree, self.mistakes)
        section = self.model_section()
        model_args = self.args(section)
        executor = self.section("executor", ExecutorSection)
        schedule = self.section("exec_strategy", ExecSection)
        execution = self.threads(schedule, executor)
        wishes = self.section("build_strategy", BuildSection)
        data, preparation = self.data()
        feeds, fetches = self.each("feeds", FeedSection, "from"), self.each("fetches", FetchSection)
        metrics = {name: ArgSpec(entry.value, entry.at) for name, entry in self.mapping("metrics").entries.items()}
        train = self.train()
        output = self.section("output", OutputSection)
        sweep = self.sweep(train, output)
        for text, at, hint in async_mistakes(executor, train, execution, data, output):
            self.mistakes.say(text, at, hint)
        for text, at, hint in numerics_mistakes(executor):
            self.mistakes.say(text, at, hint)
        for text, at, hint in phase_mistakes(train, executor, execution, self.tree):
            self.mistakes.say(text, at, hint)
        distributed = self.distributed()
        if distributed is not None:
            for text, at, hint in distributed_mistakes(distributed, executor, train, output, schedule):
                self.mistakes.say(text, at, hint)
            # Servers and trainers are several processes, whether executor.processes says so or not.
            executor = executor.model_copy(update={"processes": "auto"} if executor.processes == 1 else {})
        build = self.strategy(wishes, alone=executor.processes == 1)
        servers = distributed is not None and distributed.mode == "parameter_server"
        for text, at, hint in process_mistakes(executor, wishes, output, servers=servers):
            self.mistakes.say(text, at, hint)
        if section is None:
            return None
        model_path = tidy(self.path.parent / os.path.expanduser(section.file))  # noqa: PTH111 - Path's raises for no such user
        try:
            model = read_model(model_path, model_args, self.mistakes, section.at_of("file"), section.head)
        except PeError as error:
            self.mistakes.add(error)
            return None
        if model is None:
            return None
        return RunSpec(
            self.path, self.composed, self.tree, model_path, model_args, model, data, preparation, feeds, train, fetches,
            executor, build, execution, output, metrics, sweep, plugins, distributed,
        )  # fmt: skip

    def check_keys(self) -> None:
        known = list(RunFile.model_fields)
        for key, entry in self.tree.entries.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"one of {', '.join(known)}"
                self.mistakes.say(f"a config has no section '{key}'", entry.at, hint)

    def section(self, key: str, kind: type[AnySection]) -> AnySection:
        """Return a section, or its defaults where it is absent or wrong."""
        entry = self.tree.entries.get(key)
        if entry is None:
            return kind()
        return check(kind, _filled(entry), (key,), self.mistakes, entry.at) or kind()

    def distributed(self) -> DistributedSection | None:
        """Return the section, None where there is none."""
        entry = self.tree.entries.get("distributed")
        return None if entry is None or is_null(entry.value) else self.section("distributed", DistributedSection)

    def each(self, key: str, kind: type[AnySection], short: str | None = None) -> dict[str, AnySection]:
        """Return the sections of a mapping by name; a plain name may stand for one key."""
        found: dict[str, AnySection] = {}
        for name, entry in self.mapping(key).entries.items():
            node = _filled(entry)
            if short and (isinstance(node, ListNode) or (isinstance(node, ScalarNode) and isinstance(node.value, str))):
                node = MapNode({short: Entry(short, node.at, node)}, node.at)
            made = check(kind, node, (key, name), self.mistakes, entry.at)
            if made is not None:
                found[name] = made
        return found

    def mapping(self, key: str) -> MapNode:
        entry = self.tree.entries.get(key)
        node = _filled(entry) if entry else MapNode({}, self.tree.at)
        if isinstance(node, MapNode):
            return node
        self.mistakes.say(f"{key} must be a mapping, got {describe(node)}", node.at)
        return MapNode({}, node.at)

    def model_section(self) -> ModelSection | None:
        entry = self.tree.entries.get("model")
        if entry is None:
            self.mistakes.say(
                "a config needs a model",
                self.tree.at,
                "add model: FILE, relative to this file's folder",
            )
            return None
        node = entry.value
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            node = MapNode({"file": Entry("file", node.at, node)}, node.at)
        return check(ModelSection, node, ("model",), self.mistakes, entry.at)

    def args(self, section: ModelSection | None) -> dict[str, Node]:
        model = self.tree.get("model")
        args = model.get("args") if section and isinstance(model, MapNode) else None
        return {key: entry.value for key, entry in args.entries.items()} if isinstance(args, MapNode) else {}

    def train(self) -> TrainSection | None:
        entry = self.tree.entries.get("train")
        if entry is None or is_null(entry.value):
            return None
        node = entry.value
        found = check(TrainSection, node, ("train",), self.mistakes, entry.at)
        if isinstance(node, MapNode) and all(is_null(node.get(key)) for key in ("epochs", "steps")):
            self.mistakes.say("train needs epochs or steps", entry.at, "add epochs: 10, or steps: 1000")
        if isinstance(node, MapNode):
            for text, at, hint in written_mistakes(node, entry.at):
                self.mistakes.say(text, at, hint)
        return found

    def sweep(self, train: TrainSection | None, output: OutputSection) -> SweepSection | None:
        """Return the trials that are asked for; wishes that contradict each other are mistakes."""
        entry = self.tree.entries.get("sweep")
        if entry is None or is_null(entry.value):
            return None
        section = check(SweepSection, entry.value, ("sweep",), self.mistakes, entry.at)
        if section is None or (train is None and not is_null(self.tree.get("train"))):
            return section
        assert isinstance(entry.value, MapNode)
        for text, at, hint in sweep_mistakes(section, train, output, entry.value):
            self.mistakes.say(text, at, hint)
        return section

    def data(self) -> tuple[dict[str, DataSpec], Preparation]:
        found: dict[str, DataSpec] = {}
        known = list(DataSections.model_fields)
        entries = self.mapping("data").entries
        for name, entry in entries.items():
            if name not in known:
                self.mistakes.say(
                    f"data has no key '{name}'", entry.at, did_you_mean(name, known) or f"one of {', '.join(known)}"
                )
            elif name in (*USES, "source") and not is_null(entry.value):
                made = self.reader(name, entry)
                if made is not None:
                    found[name] = made
        split = self.split(entries.get("split"), found)
        return self.parts(found, split), self.preparation(entries, split)

    def reader(self, name: str, entry: Entry) -> DataSpec | None:
        """Return a section of `data` that names a reader."""
        made = check(DataSection, entry.value, ("data", name), self.mistakes, entry.at)
        if made is None:
            return None
        assert isinstance(entry.value, MapNode)
        options = entry.value.without(*DataSection.model_fields)
        at = made.at_of("reader")
        assert at
        return DataSpec(name, made.reader, options, made, entry.at, at)

    def split(self, entry: Entry | None, found: Mapping[str, DataSpec]) -> SplitSection | None:
        """Return how the source is divided; wishes that contradict each other are mistakes."""
        if entry is None or is_null(entry.value):
            return None
        section = check(SplitSection, entry.value, ("data", "split"), self.mistakes, entry.at)
        if section is None:
            return None
        if "source" not in found:
            self.mistakes.say("data.split divides data.source, and there is none", entry.at, "rename train: to source:")
        for text, at, hint in split_mistakes(section):
            self.mistakes.say(text, at, hint)
        for name, asked in (("eval", section.eval or section.folds), ("test", section.test)):
            if name in found and asked:
                self.mistakes.say(f"data.{name} and data.split both say what is for {name}", found[name].at, "keep one")
        return section

    def parts(self, found: dict[str, DataSpec], split: SplitSection | None) -> dict[str, DataSpec]:
        """Return the data by its use: a source stands for all parts that its split makes."""
        source = found.pop("source", None)
        if source is None:
            return found
        if "train" in found:
            self.mistakes.say("data.source and data.train both say what is for training", found["train"].at, "keep one")
        uses = ["train"]
        uses += ["eval"] if split and (split.eval or split.folds) else []
        uses += ["test"] if split and split.test else []
        return {use: dataclasses.replace(source, name=use, split=True) for use in uses} | found

    def preparation(self, entries: Mapping[str, Entry], split: SplitSection | None) -> Preparation:
        """Return what is done with rows; column types and augmentations are checked where they are known."""
        columns: dict[str, ArgSpec] = {}
        entry = entries.get("columns")
        node = _filled(entry) if entry else None
        if isinstance(node, MapNode):
            columns = {name: ArgSpec(inner.value, inner.at) for name, inner in node.entries.items()}
        elif node is not None:
            self.mistakes.say(f"data.columns must be a mapping, got {describe(node)}", node.at)
        augment, sampling, weights = (_given(entries.get(key)) for key in ("augment", "sampling", "class_weights"))
        if augment is not None and not isinstance(augment, ListNode):
            self.mistakes.say(f"data.augment must be a list, got {describe(augment)}", augment.at, "for example [flip: {p: 0.5}]")
        drawn: Literal["balanced"] | SamplingSection | None = None
        if isinstance(sampling, ScalarNode) and sampling.value == "balanced":
            drawn = "balanced"
        elif sampling is not None:
            drawn = check(SamplingSection, sampling, ("data", "sampling"), self.mistakes, entries["sampling"].at)
        if weights is not None and not isinstance(weights, MapNode) and getattr(weights, "value", None) != "balanced":
            hint = "write class_weights: balanced, or class_weights: {yes: 5, no: 1}"
            self.mistakes.say(f"data.class_weights must be balanced or a mapping, got {describe(weights)}", weights.at, hint)
        written = MapNode({key: entries[key] for key in DataBounds.model_fields if key in entries}, self.tree.at)
        bounds = check(DataBounds, written, ("data",), self.mistakes) or DataBounds()
        return Preparation(split, columns, augment, drawn, weights, bounds.cache, bounds.memory)

    def strategy(self, build: BuildSection, *, alone: bool) -> BuildStrategy:
        """Return the strategy; wishes that contradict each other, for one process alone or for several, are mistakes."""
        reduce = alone and build.reduce_strategy == "Reduce"
        if build.fuse_broadcast_ops:
            text = "fuse_broadcast_ops is true, but no graph has broadcasts: devices read parameters where they are"
            self.mistakes.say(text, build.at_of("fuse_broadcast_ops"), "leave fuse_broadcast_ops out")
        for key in ("fuse_all_optimizer_ops", "fuse_all_reduce_ops") if reduce else ():
            if key in build.model_fields_set and getattr(build, key):
                place = build.at_of("reduce_strategy") if "reduce_strategy" in build.model_fields_set else None
                notes = ((place, "the strategy is here"),) if place else ()
                text = f"{key} is true, but reduce_strategy {build.reduce_strategy} updates each parameter at its owner"
                self.mistakes.say(text, build.at_of(key), f"leave {key} out", notes)
        return BuildStrategy(**{f.name: getattr(build, f.name) for f in dataclasses.fields(BuildStrategy)})

    def threads(self, execution: ExecSection, executor: ExecutorSection) -> ExecutionStrategy:
        asked = executor.num_threads
        if asked is not None and "num_threads" in execution.model_fields_set and asked != execution.num_threads:
            self.mistakes.say(
                f"executor.num_threads is {asked}, and exec_strategy.num_threads is {execution.num_threads}",
                executor.at_of("num_threads"),
                "keep one of them",
                ((place, "the other is here"),) if (place := execution.at_of("num_threads")) else (),
            )
        given = {f.name: getattr(execution, f.name) for f in dataclasses.fields(ExecutionStrategy)}
        return ExecutionStrategy(**(given if asked is None else {**given, "num_threads": asked}))


def _given(entry: Entry | None) -> Node | None:
    """Return the value of a key, None where it is absent or empty."""
    return None if entry is None or is_null(entry.value) else entry.value


def _filled(entry: Entry) -> Node:
    """Return an entry's value; a key with nothing after it is an empty mapping."""
    return MapNode({}, entry.at) if is_null(entry.value) else entry.value
