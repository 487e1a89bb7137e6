"""Reads an ONNX file into a model: constants are folded, every other node becomes layers by its form."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.io.tensors import data_error
from pe_cli.layers.define.registry import discover as discover_layers
from pe_cli.session.importing.define import ImportedModel, ImportWish
from pe_cli.session.importing.onnx import file as onnx_file
from pe_cli.session.importing.onnx import inputs as graph_inputs
from pe_cli.session.importing.onnx.emit import Emitter
from pe_cli.session.importing.onnx.fold import FOLDS, UNFIT, folded
from pe_cli.session.importing.onnx.masked_rows import keep_from_nan
from pe_cli.session.importing.onnx.merged import separated
from pe_cli.session.importing.onnx.node import Attributes, Node, discover
from pe_cli.session.importing.onnx.origins import Origins
from pe_cli.session.importing.onnx.parameter_names import readable
from pe_cli.session.importing.onnx.subgraphs import INSIDE
from pe_cli.session.importing.onnx.values import NeedsConstant, Unimportable, Value, described, known

#: What exporters append to the names of values.
_TAIL = re.compile(r"_output_\d+$|@\d+$|:\d+$")
#: Kinds of nodes that are taken for what ONNX defines them by, each after a try without.
MOST_KINDS = 32
#: Characters of metadata that are kept, with their keys.
MOST_METADATA = 32_768


def read(wish: ImportWish) -> ImportedModel:
    """Read an ONNX file.

    Where all inputs have a first axis of one size, or of one name, it becomes that of the batch. A model in which that does not work out
    keeps the sizes of the file.

    Raises:
        PeError: see `pe_cli.session.importing.define.read_model`.
    """
    return import_model(graph_inputs.as_wished(onnx_file.with_initializers(onnx_file.load(wish.source)), wish), wish)


def import_model(model: Any, wish: ImportWish) -> ImportedModel:
    """Make a model of a loaded file; see `read`.

    A node without a layer, or of which the layer cannot do what it asks for, is taken for what ONNX itself defines it by, where it does.
    """
    whole, plain, own = replace(wish, partial=False), model, onnx_file.kinds_of(model)
    # What has neither a layer nor a way to be computed is written out at once; all else only when its layer refuses it.
    written = {kind for kind in own if kind not in discover() and kind[1] not in FOLDS and kind[1] not in INSIDE}
    first: Unimportable | None = None
    origins = Origins(plain)
    ties = separated(Path(wish.source), plain, origins)
    ties += readable(plain, origins)
    keep_from_nan(plain)

    def read(wish: ImportWish) -> ImportedModel:
        made = _in_batches(model, wish, origins)
        return replace(made, notes=[*ties, *made.notes]) if ties else made

    while True:
        model = onnx_file.written_out(plain, written, wish.source)
        try:
            return read(whole)
        except Unimportable as error:
            # The first failure is told: later ones may be about nodes that the file does not have.
            first = error if first is None or error.kind in own else first
            more = len(written) < MOST_KINDS and error.kind is not None and error.kind not in written
            if more and error.kind is not None and onnx_file.is_defined(plain, error.kind):
                written.add(error.kind)
            elif wish.partial:
                return read(wish)
            else:
                raise first from None


def _in_batches(model: Any, wish: ImportWish, origins: Origins) -> ImportedModel:
    """Make a model with a first axis for the batch, or, where that does not work out, with the sizes of the file."""
    axes = {} if wish.fixed else graph_inputs.batch_axes(model)
    try:
        return _Graph(model, wish, axes, origins).read()
    except PeError as error:
        several = axes and onnx_file.has_batches(model)
        only = not axes or graph_inputs.is_said(model)
        if only or (not several and (not onnx_file.has_fixed_batch(model) or isinstance(error, NeedsConstant))):
            raise
        why = error.message.removeprefix(f"{wish.source}: ")
    made = _Graph(model, wish, {}, origins).read()
    rows = onnx_file.first_sizes(model)[0].dim_value
    # Of one row, nothing says that the first axis counts rows at all.
    note = f"all inputs keep the sizes of the file, whose {rows} rows are no batch of any size: {why}; export it with a dynamic batch"
    return replace(made, notes=[note, *made.notes]) if rows > 1 else made


class _Graph:
    """One reading of a graph.

    Args:
        model: of ONNX's own class.
        wish: what is asked.
        axes: input -> which of its axes is that of the batch; empty where there is no batch.
        origins: of the initializers.
    """

    def __init__(self, model: Any, wish: ImportWish, axes: Mapping[str, int], origins: Origins) -> None:
        self.model, self.wish, self.path, self.axes, self.origins = model, wish, Path(wish.source), axes, origins
        self.opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
        self.emitter = Emitter(_name_of(model, self.path), origins.torch, wish.training)
        self.values: dict[str, Value] = {}
        self.missing: set[str] = set()
        self.failures: list[PeError] = []
        self.written_out = 0
        self.keys: dict[str, str] = {}
        self.uses: Counter[str] = Counter()
        self.takers: defaultdict[str, set[str]] = defaultdict(set)
        self.frontier: dict[str, None] = {}
        self.forms = discover()
        self.pending = {tensor.name: tensor for tensor in model.graph.initializer}

    def read(self) -> ImportedModel:
        graph = self.model.graph
        if graph.sparse_initializer:
            raise data_error(f"{self.path}: it has sparse tensors, which are not read", "write them as dense ones")
        self._check_names(graph)
        wanted = [given.name for given in graph.output]
        nodes = self._needed(graph, wanted)
        self.values |= graph_inputs.declared(self.path, self.model, self.emitter, self.axes)
        self._prepare(nodes, wanted)
        for node in nodes:
            self._one(node)
        return self._whole(wanted)

    def _prepare(self, nodes: Sequence[Any], wanted: Sequence[str]) -> None:
        """Give what nodes compute names, those of the outputs first, and see who reads what."""
        for name in (*wanted, *(name for node in nodes for name in node.output if name)):
            if name not in self.keys and name not in self.values:
                self.keys[name] = self.emitter.key(_wanted_name(name, nodes))
        self.uses.update(wanted)
        for name in wanted:
            self.takers[name].add("")
        for node in nodes:
            for name in {*(times := Counter(node.input)), *_read_inside(node)} - {""}:
                # A node that reads a value twice counts twice; graphs inside of it count once.
                self.uses[name] += times[name] or 1
                self.takers[name].add(node.op_type)

    # --- what there is ------------------------------------------------------------------------------------------------

    def _check_names(self, graph: Any) -> None:
        """Refuse a value that is made twice."""
        made = Counter(name for node in graph.node for name in node.output if name)
        made.update(given.name for given in onnx_file.fed(self.model))
        made.update(tensor.name for tensor in graph.initializer)
        twice = next((name for name, count in made.items() if count > 1), None)
        if twice is not None:
            raise data_error(f"{self.path}: the value '{twice}' is made twice")
        if not graph.output:
            raise data_error(f"{self.path}: the graph has no outputs")

    def _needed(self, graph: Any, wanted: Sequence[str]) -> list[Any]:
        """Return the nodes that outputs need, in order."""
        read, found = set(wanted), []
        for node in reversed(graph.node):
            if read.isdisjoint(node.output):
                continue
            found.append(node)
            read.update(name for name in node.input if name)
            read.update(_read_inside(node))
        return found[::-1]

    def _value(self, name: str) -> Value | None:
        """Return a value by its name in the graph."""
        if name in self.values:
            return self.values[name]
        if name in self.pending:
            tensor = self.pending.pop(name)
            array, said = onnx_file.array_of(self.path, tensor), onnx_file.element_type(tensor.data_type)[0]
            # Constants that pe's own export has made are no parameters of the model.
            own = name.startswith("const@") and self.model.producer_name == "pe"
            called = self.origins.names.get(name, name)
            trained = None if own else self.origins.told(name, array, self.takers[name], self.emitter)
            held = None if own else called
            self.values[name] = Value(array.dtype.name, constant=array, initializer=held, said=said, trained=trained is True)
            return self.values[name]
        return None

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _one(self, node: Any) -> None:
        """Give a node's outputs values."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = list(node.input)
        # Inputs that are left out at the end need not be written at all.
        while inputs and not inputs[-1]:
            inputs.pop()
        if any(name in self.missing for name in inputs):
            self.missing.update(node.output)
            self.frontier.update(dict.fromkeys(name for name in inputs if name in self.values))
            return
        try:
            values = [self._value(name) if name else None for name in inputs]
            lost = next((name for name, value in zip(inputs, values, strict=True) if name and value is None), None)
            if lost is not None:
                raise Unimportable(f"it reads '{lost}', which nothing before it has computed: a cycle, or nodes out of order")
            attributes = Attributes(onnx_file.attributes(self.path, node))
            found = Node(
                node.op_type, self.opsets.get(domain, 0), attributes, inputs, values, list(node.output), self.keys, self.emitter,
                self.uses, self.takers,
            )  # fmt: skip
            self._set(node, self._computed(found, domain))
        except PeError as error:
            inside = isinstance(error, Unimportable) and error.kind is not None  # of a branch: it says its node already
            failure = error if inside else self._failure(node, domain, error)
            if not self.wish.partial:
                raise failure from None
            self.failures.append(failure)
            self.missing.update(name for name in node.output if name)
            self.frontier.update(dict.fromkeys(name for name in inputs if name in self.values))

    def _computed(self, node: Node, domain: str) -> Sequence[Value | None]:
        """Return the values of a node's outputs.

        Raises:
            PeError: it has no form, or none with what it is given.
        """
        if domain not in self.opsets:
            raise Unimportable(f"the file says no version of the domain '{domain}'")
        if domain == "":
            found = folded(node)
            if found is not None:
                node.check_read(domain)
                return found
        inside, form = INSIDE.get(node.op) if domain == "" else None, self.forms.get((domain, node.op))
        if inside is None and form is None:
            raise Unimportable("it has no layer" if domain == "" else f"its domain '{domain}' is not known")
        try:
            made = inside(self, node) if inside is not None else form(node) if form is not None else []
            node.check_read(domain)
        except UNFIT as error:  # a node that its operator's definition does not allow
            raise Unimportable(f"its inputs or attributes do not fit: {error}", "check the file: onnx.checker.check_model") from None
        return [made] if isinstance(made, Value) else list(made)

    def take(self, graph: Any, names: Sequence[str]) -> list[Value | None]:
        """Read all nodes of an inner graph; return the values of some names; see `subgraphs`."""
        self.pending |= {tensor.name: tensor for tensor in graph.initializer}
        self._prepare(graph.node, names)
        for inner in graph.node:
            self._one(inner)
        return [self._value(name) for name in names]

    def _set(self, node: Any, made: Sequence[Value | None]) -> None:
        for name, value in zip(node.output, made, strict=False):
            if name and value is not None:
                self.values[name] = value
        left = [name for name in node.output if name and name not in self.values and self.uses[name]]
        if left:
            raise Unimportable(f"its output '{left[0]}' has no form")

    def _failure(self, node: Any, domain: str, error: PeError) -> Unimportable:
        """Return an error with the node, its version and the nearest layer."""
        version = f"{domain or 'ONNX'} opset {self.opsets.get(domain, 0)}"
        text = f"{self.path}: node '{node.name or (node.output[0] if node.output else '')}' ({node.op_type}, {version}): {error.message}"
        close = did_you_mean(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.op_type).lower(), discover_layers())
        said = graph_inputs.remedy(self.model, self.axes, error)
        hint = error.hint or said or (close and close.replace("did you mean", "the nearest layer is").rstrip("?"))
        hint = f"{hint}; --partial imports what comes before it" if hint else "--partial imports what comes before it"
        made = Unimportable(text, hint, (domain, node.op_type))
        if isinstance(error, NeedsConstant):
            made = NeedsConstant(error.value, "")
            made.message, made.hint = text, hint
        made.code = ExitCode.DATA
        return made

    # --- the model ----------------------------------------------------------------------------------------------------

    def _check_shape(self, name: str, value: Value) -> None:
        """Refuse an output whose sizes are not those that the file says: a layer that is not quite the node's.

        Raises:
            PeError: DATA; with both, where users have said nothing of where the batch lies.
        """
        said = next((given.type.tensor_type for given in self.model.graph.output if given.name == name), None)
        if said is None or not said.HasField("shape"):
            return
        theirs = [d.dim_value if d.HasField("dim_value") else -1 for d in said.shape.dim]
        ours = list(known(value.shape))
        fits = len(ours) == len(theirs) and all(a == b or -1 in (a, b) for a, b in zip(ours, theirs, strict=True))
        if not fits or (value.variable is not None and self._loses_batch(ours, theirs)):
            text = f"the output '{name}' would be {ours}, and the file says {theirs}"
            if not graph_inputs.is_said(self.model):
                raise data_error(f"{self.path}: {text}", "check the file with onnx.shape_inference; --fixed keeps its sizes")
            # A file that was written for one row may say so of what it computes.
            self.emitter.note(f"{text}, which was written for other inputs")

    def _loses_batch(self, ours: Sequence[int], theirs: Sequence[int]) -> bool:
        """Tell whether an output has the same number of rows for every batch: the one that the exporter saw is in the graph."""
        if not self.axes or not ours or -1 in ours:
            return False
        first = onnx_file.first_sizes(self.model)[0]
        return theirs[0] == (first.dim_value if first.HasField("dim_value") else -1)

    def _whole(self, wanted: Sequence[str]) -> ImportedModel:
        """Return what was read."""
        fetches: list[str] = []
        for name in [*(n for n in wanted if n not in self.missing), *self.frontier]:
            value = self._value(name)
            if value is None:
                raise data_error(f"{self.path}: nothing computes the output '{name}'")
            if name in self.frontier and name not in wanted and (value.variable is None or value.variable in self.emitter.feeds):
                continue
            try:
                held = self.emitter.variable(value, f"{self.keys.get(name, name)}_held")
            except PeError as error:
                raise data_error(f"{self.path}: the output '{name}': {error.message}", error.hint) from None
            self._check_shape(name, value)
            held = graph_inputs.batch_first(self.emitter, name, self.keys.get(name), held, self.uses[name] == 1) if self.axes else held
            # An output of the file keeps its name, whatever computes it.
            if name in wanted and held.variable != self.keys.get(name):
                held = self.emitter.layer("assign", self.keys.get(name, name), {"input": held}, own=name in self.keys)
            fetches.append(str(held.variable))
        if not self.emitter.layers:
            text = f"{self.path}: nothing of it can be imported" if self.failures else f"{self.path}: it computes nothing"
            raise data_error(text, self.failures[0].render() if self.failures else None)
        metadata = self._metadata()
        notes = list(self.emitter.notes)
        notes += graph_inputs.notes(self.model, self.axes)
        if self.emitter.constants:
            first, *more = self.emitter.constants
            called = f"'{first}'" + (f" and {len(more)} more" if more else "")
            notes.append(f"{called} stand in nodes and are not trained: without `trainable: false` in model.yaml they are")
        notes += [f"left out: {failure.message.removeprefix(f'{self.path}: ')}" for failure in self.failures]
        comments = {name: described(self.emitter.dims.get(name, self.emitter.dims.get(f"{name}.0", ()))) for name in self.emitter.layers}
        return ImportedModel(
            name=self.emitter.name, feeds=self.emitter.feeds, layers=self.emitter.layers, fetches=list(dict.fromkeys(fetches)),
            arrays=self.emitter.arrays, comments=comments, notes=notes, source=str(self.path), metadata=metadata,
        )  # fmt: skip

    def _metadata(self) -> dict[str, str]:
        """Return what the file says of itself, as far as a model file has room for it, without what an export says anew."""
        said = {entry.key: entry.value for entry in self.model.metadata_props if entry.key and not entry.key.startswith("pe.")}
        kept: dict[str, str] = {}
        room = MOST_METADATA
        for key, text in said.items():
            room -= len(key) + len(text)
            if room < 0:
                self.emitter.note(f"left out: {len(said) - len(kept)} entries of metadata: more than {MOST_METADATA:,} characters")
                break
            kept[key] = text
        return kept


def _read_inside(node: Any) -> set[str]:
    """Return what graphs inside of a node read."""
    found: set[str] = set()
    for inner in onnx_file.graphs_of(node):
        found.update(name for one in inner.node for name in one.input if name)
        found.update(given.name for given in inner.output)
        for one in inner.node:
            found |= _read_inside(one)
    return found


def _name_of(model: Any, path: Path) -> str:
    said, stem = (re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") for text in (model.graph.name, path.stem))
    return said if said and said not in ("main_graph", "torch_jit", "main") else stem or "model"


def _wanted_name(name: str, nodes: Sequence[Any]) -> str:
    """Return what a layer is called: as the value in the graph, without what exporters append to it."""
    short = _TAIL.sub("", name).strip("/")
    if short.isdigit():
        node = next((node for node in nodes if name in node.output), None)
        return f"{node.op_type.lower()}_{short}" if node is not None else short
    return short
