"""Names of parameters that PyTorch's exporter has computed: it calls them by numbers, and the nodes that read them by their modules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pe_cli.session.importing.onnx.origins import Origins

#: A value that PyTorch's exporter has computed.
_NUMBERED = re.compile(r"onnx::\w+_\d+(?:_\d+)?")
#: How the exporter calls a node: path of its module, kind, and a number from the second one on.
_NODE = re.compile(r"/(.+)/[A-Za-z]+(?:_(\d+))?")
#: Kind of node -> what a module calls the parameters that are its inputs.
_SLOTS: dict[str, dict[int, str]] = {
    **{op: {1: "weight", 2: "bias"} for op in ("Conv", "ConvTranspose", "Gemm")},
    **{op: {1: "weight_ih", 2: "weight_hh", 3: "bias"} for op in ("LSTM", "GRU", "RNN")},
    "MatMul": {0: "weight", 1: "weight"},
    "PRelu": {1: "weight"},
    "Mul": {0: "weight", 1: "weight"},
    "Add": {0: "bias", 1: "bias"},
}
#: Those of which a module has a parameter for each layer.
_LAYERED = frozenset({"LSTM", "GRU", "RNN"})
#: Nodes whose weights the exporter computes only of several parameters: those of a product it may just have turned.
_WHOLE = frozenset({"Conv", "ConvTranspose", "Gemm"})
#: What PyTorch's newer exporter says of a node that it has put a norm into.
_RULES, _FOLDED_NORM = "pkg.onnxscript.rewriter.rule_name", "FuseBatchNorm"


def readable(model: Any, origins: Origins) -> list[str]:
    """Give numbered parameters the names of their modules, and return what there is to say of those that were computed of several.

    Args:
        model: of ONNX's own class.
        origins: of its initializers; names are added.
    """
    if not origins.torch:
        return []
    held = {tensor.name for tensor in model.graph.initializer}
    taken = held | set(origins.names.values())
    users: defaultdict[str, list[tuple[Any, int]]] = defaultdict(list)
    for node in model.graph.node:
        for slot, name in enumerate(node.input[:4]):
            if name in held:
                users[name].append((node, slot))
    computed = []
    for name, found in users.items():
        node, slot = found[0]
        numbered = _NUMBERED.fullmatch(name) is not None
        of_norm = any(entry.key == _RULES and _FOLDED_NORM in entry.value for entry in node.metadata_props)
        if slot == 1 and node.op_type in _WHOLE and (numbered or of_norm or name in origins.merged):
            computed.append(name)
        if numbered and len(found) == 1 and (wanted := _name(node, slot)) is not None:
            called = next(one for one in _numbered(wanted) if one not in taken)
            origins.names[name] = called
            taken.add(called)
    return [_told([origins.names.get(name, name) for name in computed])] if computed else []


def module_of(path: str) -> str:
    """Return the module that a path of scopes is about; a part that begins with all of the part before it stands for both.

    >>> module_of("layer1/layer1.0/conv1"), module_of("encoder/layer.0/attention")
    ('layer1.0.conv1', 'encoder.layer.0.attention')
    """
    made: list[str] = []
    for part in path.split("/"):
        if made and part.startswith(f"{made[-1]}."):
            made.pop()
        made.append(part)
    return ".".join(made)


def _name(node: Any, slot: int) -> str | None:
    path, slots = _NODE.fullmatch(node.name), _SLOTS.get(node.op_type, {})
    if path is None or slot not in slots:
        return None
    layer = f"_l{path[2] or 0}" if node.op_type in _LAYERED else ""
    return f"{module_of(path[1])}.{slots[slot]}{layer}"


def _numbered(name: str) -> Iterator[str]:
    yield name
    for i in range(2, 1 << 30):
        yield f"{name}_{i}"


def _told(names: list[str]) -> str:
    some = f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    return (
        f"the exporter has computed weights of several parameters, as a convolution's of its own and those of a norm: {some}; they are "
        "trained as they are, in other steps than those parameters. Exported by torch.onnx.export with do_constant_folding=False and "
        "training=TrainingMode.PRESERVE, or with dynamo=True and optimize=False, they stay apart"
    )
