"""Reads an ONNX file and looks at it: bounded, whole, of versions that are known, and with its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import HOLDS
from pe_cli.io.onnx.initializers import MOST_BYTES
from pe_cli.io.regular_files import open_regular, read_regular
from pe_cli.io.tensors import data_error
from pe_cli.session.importing.onnx.expansion import ExpansionError, expanded

Array = np.ndarray[Any, Any]
#: Oldest version of ONNX's operators that is read.
OLDEST = 7
#: Nodes of a file, with those of functions and branches.
MOST_NODES = 50_000
#: Nodes that are taken for what ONNX defines them by.
MOST_WRITTEN_OUT = 2_000
#: Graphs inside graphs.
DEEPEST = 16
#: Elements of one value, of those of a layer without the axes that are not known.
MOST_ELEMENTS = 1 << 31
#: Axes of one value.
MOST_AXES = 32
#: Element types of ONNX that none of ours is named like, and the one that holds their numbers.
_HOLDS = {**HOLDS, "bfloat16": "float32", "int4": "int32", "uint4": "int32", "int2": "int32", "uint2": "int32", "uint64": "int64"}


def load(path: Path) -> Any:
    """Read a model with its functions written out.

    Returns:
        An `onnx.ModelProto`.

    Raises:
        PeError: DATA; the file is missing, damaged, too large, or of a version that is not known. USAGE; the package onnx is not installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        raise PeError("ONNX files need the package onnx", hint="pip install 'pe-cli[onnx]'") from None
    try:
        if path.stat().st_size > MOST_BYTES:
            raise data_error(f"{path}: more than {MOST_BYTES} bytes")
        model = onnx.ModelProto.FromString(read_regular(path))
    except FileNotFoundError:
        raise data_error(f"{path}: no such file") from None
    except (OSError, DecodeError, ValueError) as error:
        raise data_error(f"{path}: not a whole ONNX file: {error}") from None
    if not model.HasField("graph") or not model.opset_import:
        raise data_error(f"{path}: not an ONNX model: it has no graph, or says no version of operators")
    _check_size(path, model)
    _check_texts(path, model)
    _check_versions(path, model)
    if model.functions:
        _check_functions(path, model)
        try:
            model = expanded(model)
        except ExpansionError as error:
            raise data_error(f"{path}: its functions cannot be written out: {error}") from None
        _check_size(path, model)
    return model


def _refusals() -> tuple[type[Exception], ...]:
    """Return what the package onnx raises for a graph that is not as it should be."""
    import onnx

    return RuntimeError, ValueError, TypeError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError


def _check_versions(path: Path, model: Any) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not OLDEST <= entry.version <= newest:
            hint = "write it with an opset of this range" + ("; a newer package onnx may know it" if entry.version > newest else "")
            raise data_error(f"{path}: opset {entry.version} is not known, only {OLDEST} to {newest}", hint)


def _check_size(path: Path, model: Any) -> None:
    """Refuse a model with too many nodes, or graphs too deep inside graphs."""
    count, waiting = 0, [(model.graph, 0)] + [(function, 0) for function in model.functions]
    while waiting:
        graph, depth = waiting.pop()
        count += len(graph.node)
        if count > MOST_NODES:
            raise data_error(f"{path}: more than {MOST_NODES:,} nodes")
        if depth > DEEPEST:
            raise data_error(f"{path}: more than {DEEPEST} graphs inside graphs")
        waiting += [(inner, depth + 1) for node in graph.node for inner in graphs_of(node)]


def _check_texts(path: Path, model: Any) -> None:
    """Refuse a model with a name or text that is no UTF-8: such ones come as bytes, which no text can be compared with."""
    waiting = [model]
    while waiting:
        for field, value in waiting.pop().ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting += [value] if hasattr(value, "ListFields") else value
            elif field.type == field.TYPE_STRING:
                for text in [value] if isinstance(value, str | bytes) else value:
                    if isinstance(text, bytes):
                        raise data_error(f"{path}: not a whole ONNX file: its {field.name} {text[:40]!r} is no UTF-8")


def graphs_of(node: Any) -> list[Any]:
    """Return the graphs inside of a node."""
    return [inner for a in node.attribute for inner in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def kinds_of(model: Any) -> set[tuple[str, str]]:
    """Return domains and names of the operators that a model's nodes are of."""
    return {_kind(node) for node in model.graph.node}


def _kind(node: Any) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else str(node.domain), str(node.op_type)


def is_defined(model: Any, kind: tuple[str, str]) -> bool:
    """Tell whether ONNX defines an operator by others, in the version that a model uses."""
    import onnx

    version = next((entry.version for entry in model.opset_import if entry.domain in (kind[0], kind[0] or "ai.onnx")), 0)
    try:
        schema = onnx.defs.get_schema(kind[1], version, kind[0])
    except _refusals():
        return False
    return any(getattr(schema, name, False) for name in ("has_function", "has_context_dependent_function"))


def written_out(model: Any, kinds: Iterable[tuple[str, str]], path: Path) -> Any:
    """Return a model in which nodes of some kinds are those that ONNX defines them by.

    Raises:
        PeError: DATA; it becomes too large.
    """
    chosen = sorted(kind for kind in kinds if is_defined(model, kind))
    if not chosen or sum(_kind(node) in chosen for node in model.graph.node) > MOST_WRITTEN_OUT:
        return model
    try:
        made = expanded(model, chosen)
    except ExpansionError:
        return model
    _check_size(path, made)
    return made


def _check_functions(path: Path, model: Any) -> None:
    """Refuse functions that call themselves, and those that become too many nodes when they are written out."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(key: tuple[str, str], above: tuple[tuple[str, str], ...]) -> int:
        if key in above or len(above) > DEEPEST:
            raise data_error(f"{path}: the function '{key[1]}' calls itself, or calls go deeper than {DEEPEST}")
        if key not in sizes:
            sizes[key] = counted(bodies[key].node, (*above, key))
        return sizes[key]

    def counted(nodes: Iterable[Any], above: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            total += size((node.domain, node.op_type), above) if (node.domain, node.op_type) in bodies else 1
            total += sum(counted(inner.node, above) for inner in graphs_of(node))
            if total > MOST_NODES:
                raise data_error(f"{path}: more than {MOST_NODES:,} nodes, with functions written out")
        return total

    counted(model.graph.node, ())


def with_initializers(model: Any) -> Any:
    """Return a model whose values are initializers, of one that has them all in nodes, as Paddle2ONNX writes it; any other as it is.

    PyTorch's exporter keeps parameters as initializers, and what it has in nodes is none.
    """
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if model.producer_name == "pytorch" or any(tensor.data_type in floats and list(tensor.dims) for tensor in model.graph.initializer):
        return model
    made = type(model)()
    made.CopyFrom(model)
    held = {tensor.name for tensor in made.graph.initializer}
    for node in list(made.graph.node):
        tensor = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        name = node.output[0] if len(node.output) == 1 else ""
        if _kind(node) != ("", "Constant") or tensor is None or not name or name in held:
            continue
        if tensor.data_type in floats and any(size > 1 for size in tensor.dims):
            kept = made.graph.initializer.add()
            kept.CopyFrom(tensor)
            kept.name = name
            made.graph.node.remove(node)
    return made


def fed(model: Any) -> list[Any]:
    """Return the inputs of a graph that are no initializers."""
    held = {tensor.name for tensor in model.graph.initializer}
    return [given for given in model.graph.input if given.name not in held]


def batched(model: Any) -> bool:
    """Tell whether all inputs begin with one axis that may be the batch's."""
    said = {d.dim_value if d.HasField("dim_value") else d.dim_param for d in first_sizes(model)}
    return (len(said) == 1 and 0 not in said) or has_batches(model)


def has_batches(model: Any) -> bool:
    """Tell whether the first axes of inputs and outputs have several names and no sizes: the exporter has not seen that they are one."""
    shapes = [one.type.tensor_type.shape.dim for one in (*fed(model), *model.graph.output)]
    names = {shape[0].dim_param for shape in shapes if len(shape)}
    return len(names) > 1 and "" not in names and all(len(shape) > 1 for shape in shapes[: len(fed(model))])


def first_sizes(model: Any) -> list[Any]:
    """Return the first size of every input that has axes."""
    return [given.type.tensor_type.shape.dim[0] for given in fed(model) if len(given.type.tensor_type.shape.dim)]


def has_fixed_batch(model: Any) -> bool:
    """Tell whether the file says the size of an input's first axis."""
    return any(size.HasField("dim_value") for size in first_sizes(model))


def batch_notes(model: Any) -> list[str]:
    """Return what users are told of inputs whose first axes are taken for that of the batch."""
    if has_fixed_batch(model):
        return ["the first axis of all inputs, which has one size in the file, is the batch's here; --fixed keeps the size"]
    if has_batches(model):
        names = ", ".join(size.dim_param for size in first_sizes(model))
        return [f"the first axes of inputs, {names} in the file, are taken for one, that of the batch; --fixed keeps them apart"]
    return []


def element_type(number: int) -> tuple[str, str]:
    """Return ONNX's name of an element type, and that of the type which holds its numbers here; empty where none does."""
    from onnx import TensorProto, helper

    if number == TensorProto.STRING:
        return "string", ""
    try:
        name = TensorProto.DataType.Name(number).lower()
        own = helper.tensor_dtype_to_np_dtype(number).name
    except (KeyError, ValueError):
        return f"type {number}", ""
    ours = {"float": "float32", "double": "float64"}.get(name, name)
    if ours in ("float32", "float64", "int64", "int32", "uint8", "bool"):
        return name, ours
    if name.startswith(("float8", "float4")):
        return name, "float32"
    return name, _HOLDS.get(ours, _HOLDS.get(own, ""))


def array_of(path: Path, tensor: Any) -> Array:
    """Return a tensor of a file as an array of one of our types.

    Raises:
        PeError: DATA; it is damaged, lies outside of the file's folder, or has elements that no variable here holds.
    """
    from onnx import TensorProto, numpy_helper

    name, ours = element_type(tensor.data_type)
    if not ours:
        raise data_error(f"{path}: '{tensor.name}' holds {name}, which no variable can")
    sizes = list(tensor.dims)
    elements = 1
    for size in sizes:
        elements *= size
        if size < 0 or elements > MOST_ELEMENTS:
            raise data_error(f"{path}: '{tensor.name}' says to be {sizes}")
    if tensor.data_location == TensorProto.EXTERNAL:
        found = _external(path, tensor, name)
    else:
        try:
            found = np.array(numpy_helper.to_array(tensor))
        except (ValueError, TypeError, OverflowError, KeyError, RuntimeError) as error:
            raise data_error(f"{path}: '{tensor.name}' is damaged: {error}") from None
    if list(found.shape) != sizes:
        raise data_error(f"{path}: '{tensor.name}' says to be {sizes}, and is {list(found.shape)}")
    if found.dtype.name == "uint64" and found.size and found.max() >= 2**63:
        raise data_error(f"{path}: '{tensor.name}' has numbers above those of int64")
    return np.asarray(found, dtype=ours, order="C") if found.dtype.name != ours else found


def _external(path: Path, tensor: Any, kind: str) -> Array:
    """Read what lies in a file beside the model's; nothing outside of its folder, and no link."""
    from onnx import helper

    facts = {entry.key: entry.value for entry in tensor.external_data}
    named = facts.get("location", "")
    folder = path.parent.resolve()
    place = folder / named
    if not named or Path(named).is_absolute() or ".." in Path(named).parts or not place.resolve().is_relative_to(folder):
        hint = "put all files of the model into one folder"
        raise data_error(f"{path}: '{tensor.name}' lies in '{named}', which is not in the model's folder", hint)
    try:
        offset, length = int(facts.get("offset", 0)), int(facts["length"]) if "length" in facts else None
    except ValueError:
        raise data_error(f"{path}: '{tensor.name}' says no whole numbers for offset and length") from None
    own = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    count = int(np.prod(list(tensor.dims), dtype=np.int64))
    size = own.itemsize * count
    if kind in ("int4", "uint4", "int2", "uint2") or length not in (None, size) or offset < 0:
        raise data_error(f"{path}: '{tensor.name}' says {length} bytes from {offset} on for {list(tensor.dims)} of {kind}")
    try:
        with open_regular(place) as stream:
            stream.seek(offset)
            data = stream.read(size)
    except OSError as error:
        raise data_error(f"{place}: {error.strerror or error}", "copy all files of the model into one folder") from None
    if len(data) < size:
        raise data_error(f"{place}: cut off: '{tensor.name}' needs {size} bytes from {offset} on")
    return np.frombuffer(data, own).reshape(tuple(tensor.dims)).copy()


def attributes(path: Path, node: Any) -> Mapping[str, Any]:
    """Return a node's attributes as plain values: texts, numbers, lists, arrays; graphs as they are.

    Raises:
        PeError: DATA; one is damaged.
    """
    found: dict[str, Any] = {}
    for a in node.attribute:
        try:
            found[a.name] = _plain(path, a)
        except (KeyError, UnicodeDecodeError):
            raise data_error(f"{path}: node '{node.name or node.op_type}' has an attribute '{a.name}' of a kind that is not read") from None
    return found


def _plain(path: Path, a: Any) -> Any:
    """Return the value of an attribute."""
    from onnx import AttributeProto

    readers: dict[int, Callable[[], Any]] = {
        AttributeProto.FLOAT: lambda: float(a.f),
        AttributeProto.INT: lambda: int(a.i),
        AttributeProto.STRING: lambda: a.s.decode("utf-8"),
        AttributeProto.TENSOR: lambda: array_of(path, a.t),
        AttributeProto.GRAPH: lambda: a.g,
        AttributeProto.FLOATS: lambda: [float(v) for v in a.floats],
        AttributeProto.INTS: lambda: [int(v) for v in a.ints],
        AttributeProto.STRINGS: lambda: [v.decode("utf-8") for v in a.strings],
    }
    return readers[a.type]()
