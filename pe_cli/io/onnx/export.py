"""A program with its values as an ONNX model, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli import __version__
from pe_cli.core.encoding import Around, Told, after
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.lod_resolution import Sequences, resolve
from pe_cli.io.onnx.pre_post_processing import ML, ML_OPSET, DataNodes
from pe_cli.io.onnx.writer import Inside, Lists, Named, Node, Writer, in_versions, read_by, without_copies, write
from pe_cli.ops.define.onnx import MADE, element_type
from pe_cli.program.ir import Operator, Program, Variable
from pe_cli.program.prune import prune

if TYPE_CHECKING:
    import onnx

#: Version of ONNX's set of operators that forms write, and files follow where nothing else is asked for: every runtime since the end of
#: 2022 reads it.
OPSET = 18
#: Version of the file format that came with it.
IR_VERSION = 8
#: Largest file that protobuf takes, bytes.
MAX_BYTES = 2**31 - 1


def export(
    program: Program,
    values: Mapping[str, np.ndarray[Any, Any]],
    targets: Sequence[str],
    name: str,
    around: Around | None = None,
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Write what targets need as an ONNX model whose batch axis stays open.

    Args:
        program: for evaluation; not changed.
        values: of its persistable variables.
        targets: names of variables, the model's outputs.
        name: of the model.
        around: the data's side, with its own outputs; the model takes its feeds and gives the targets when None.
        opset: version of ONNX's set of operators.
        metadata: what the file says of itself, beside what the data's side does.

    Returns:
        The file.

    Raises:
        PeError: an op has no ONNX form, with its layer's place, or none in this opset; the package onnx is not installed; or the model is
            too large.
    """
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise PeError("the Python package onnx is not installed", hint="pip install 'pe-cli[onnx]'") from None
    sequences = resolve(prune(program, targets))
    part = sequences.program
    block = part.main_block
    lists = Lists()
    ops, types = in_versions(block)
    for op in ops:
        write(op, types.__getitem__, lists)
    made = _made(sequences, types, lists)
    held = {v.name: values[v.name] for v in block.vars.values() if v.persistable and v.name in values}
    read = read_by(lists.nodes) | set(targets)
    outputs = [Told(target, target) for target in targets]
    side = DataNodes(around or Around({}, tuple(outputs)), lists, types, _rows(sequences))
    side.write()
    lists.nodes[:] = without_copies(lists.nodes, {one.name for one in side.around.outputs})
    model = _model(sequences, lists, {n: a for n, a in held.items() if n in read}, side, name, made)
    helper.set_model_props(model, {**(metadata or {}), **side.around.facts})
    if model.ByteSize() > MAX_BYTES:
        raise PeError("the model is larger than 2 GiB, which an ONNX file cannot hold", code=ExitCode.DATA)
    onnx.checker.check_model(model, full_check=True)
    from pe_cli.io.onnx.opsets import in_opset  # which the package onnx is needed for

    in_opset(model, opset)
    return bytes(model.SerializeToString())


def _rows(sequences: Sequences) -> dict[str, str]:
    """Return the name of the first axis of everything that has sequences."""
    offsets = {level: f"{name}_sequences_and_one" for name, levels in sequences.feeds.items() for level in levels}
    return {name: f"{name}_rows" for name in (*sequences.feeds, *sequences.lods)} | offsets


def _nodes(nodes: Sequence[Node]) -> list[Any]:
    """Return nodes in ONNX's own classes, with those inside them."""
    from onnx import helper

    def described(values: Sequence[Named]) -> list[Any]:
        return [helper.make_tensor_value_info(n, element_type(t.dtype), [None if s < 0 else s for s in t.shape]) for n, t in values]

    def attribute(value: Any) -> Any:
        if not isinstance(value, Inside):
            return value
        return helper.make_graph(_nodes(value.nodes), "body", described(value.inputs), described(value.outputs))

    made = []
    for i, (kind, ins, outs, attrs) in enumerate(nodes):
        given = {k.rstrip("_"): attribute(v) for k, v in attrs.items() if k != "name"}
        made.append(helper.make_node(kind, ins, outs, name=f"{attrs.get('name', kind)}_{i}", **given))
    return made


def _made(sequences: Sequences, types: Mapping[str, TensorType], lists: Lists) -> set[str]:
    """Put nodes for what is made of offsets before those that read it; return what is made so, or read by none: it is not given."""
    found = set()
    for recipe in reversed(sequences.recipes):
        form = MADE.get(recipe.make)
        if recipe.name in read_by(lists.nodes):
            if form is None:
                continue
            part, op = lists.inside(), Operator("assign", {"X": list(recipe.sources)}, {"Out": [recipe.name]}, dict(recipe.attrs))
            form(Writer(op, types.__getitem__, part))
            lists.nodes[:0] = part.nodes
        found.add(recipe.name)
    return found


def _model(
    sequences: Sequences, lists: Lists, held: Mapping[str, Any], side: DataNodes, name: str, made: Collection[str]
) -> onnx.ModelProto:
    from onnx import helper, numpy_helper

    program = sequences.program
    rows = _rows(sequences)

    def described(v: Variable, name: str = "", kind: TensorType | None = None) -> Any:
        first = rows.get(v.name, "batch")
        sizes = v.shape if kind is None else (-1, *kind.shape)
        shape = [first if i == 0 and s < 0 else None if s < 0 else s for i, s in enumerate(sizes)]
        return helper.make_tensor_value_info(name or v.name, element_type((kind or v.type).computed.dtype), shape)

    read = read_by(lists.nodes)
    named = {side.inner(n): a for n, a in held.items()} | {n: a for n, a in lists.constants.items() if n in read}
    tensors = [numpy_helper.from_array(np.asarray(a, order="C"), n) for n, a in named.items()]
    fed = {*side.around.feeds, *side.around.constants, *made}
    inputs = [helper.make_tensor_value_info(n, element_type(dtype), shape) for n, (dtype, shape) in side.inputs.items()]
    inputs += [described(v) for v in program.vars.values() if v.is_data and v.name not in fed]
    outputs = []
    for one in side.around.outputs:
        v = program.var(one.variable)
        outputs.append(described(v, one.name, after(v.type.with_shape(*v.shape[1:]), one.steps) if one.steps else None))
    graph = helper.make_graph(_nodes(lists.nodes), name, inputs, outputs, tensors)
    imports = [helper.make_opsetid("", OPSET)]
    if any(attrs.get("domain") == ML for _, _, _, attrs in lists.nodes):
        imports.append(helper.make_opsetid(ML, ML_OPSET))
    return helper.make_model(
        graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="pe", producer_version=__version__
    )
