"""The catalogue as text: lists, and one page per name, made from the registries alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pe_cli.cli.text_columns import columns
from pe_cli.core.yaml_inline import flow
from pe_cli.ops.define.onnx import NoOnnxForm
from pe_cli.ops.define.traits import View

if TYPE_CHECKING:
    from pe_cli.layers.define.registry import LayerArg, LayerDef
    from pe_cli.ops.define.registry import Attr, OpDef, Slot

#: What a value of a layer's argument is called.
WORDS = {
    "variable": "a variable",
    "variables": "a list of variables",
    "int": "int",
    "ints": "list of int",
    "size": "int, or a variable",
    "sizes": "list of int and variables, or a variable",
    "int_or_sizes": "int, list of int and variables, or a variable",
    "number": "float, or a variable",
    "int_or_ints": "int or list of int",
    "int_or_ints_or_str": "int, list of int, or text",
    "float": "float",
    "floats": "list of float",
    "float_lists": "list of lists of float",
    "bool": "bool",
    "str": "text",
    "strs": "list of text",
    "param_attr": "ParamAttr: a mapping, a name, true or false",
    "initializer": "initializer: a mapping with type",
}


#: Lines that begin a section of a docstring.
SECTIONS = ("Args:", "Returns:", "Raises:", "Source:")


def layers() -> dict[str, LayerDef]:
    """Return the layers, sorted by name."""
    from pe_cli.layers.define.registry import discover

    return dict(sorted(discover().items()))


def ops(*, gradients: bool = False) -> dict[str, OpDef]:
    """Return the ops, sorted by name; gradient ops only where asked for."""
    from pe_cli.ops.define.registry import discover

    found = discover()
    return {name: found[name] for name in sorted(found) if gradients or not name.endswith("_grad")}


def names() -> list[str]:
    """Return every name that has an entry."""
    return sorted({*layers(), *ops(gradients=True)})


def summary(doc: str) -> str:
    """Return the first line of a doc."""
    return doc.strip().partition("\n")[0]


def index(types: str) -> str:
    """Return the lists of layers and ops, one line per name.

    Args:
        types: lines with what configs name by a type.
    """
    lines = ["Layers, as a model file writes them:"]
    lines.append(columns([(name, summary(found.doc)) for name, found in layers().items()], indent="  "))
    lines += ["", "Ops, which layers append:"]
    lines.append(columns([(name, summary(found.doc)) for name, found in ops().items()], indent="  "))
    lines += ["", "What configs name by a type:", types]
    return "\n".join([*lines, "", "pe ops NAME prints one entry whole; names of PyTorch, Keras and ONNX are found, too."])


def page(name: str) -> str:
    """Return all that is known of a name, as Markdown."""
    parts = [f"# {name}"]
    found = ops(gradients=True)
    layer, op = layers().get(name), found.get(name)
    if layer is not None:
        parts.append(_layer(layer))
    if layer is not None and layer.made_of:
        parts.append(_op(found[layer.made_of], repeat=True))
    if op is not None:
        head = "Another op of this name, which the layer does not use" if layer is not None and layer.made_of else "Op"
        parts.append(_op(op, repeat=layer is None or layer.doc != op.doc, head=head))
    return "\n\n".join(parts) + "\n"


def _layer(layer: LayerDef) -> str:
    arguments = ", ".join(_signature(a) for a in layer.args.values())
    rows = [(a.name, _kind(a), "required" if a.required else flow(a.default)) for a in layer.args.values()]
    parts = [f"## Layer\n\n```\n{layer.name}({arguments})\n```", _doc(layer.doc)]
    if rows:
        parts.append(_table(("argument", "takes", "default"), rows))
    if layer.implied:
        parts.append(f"`{layer.implied}` is the previous layer's output where nothing is written.")
    if layer.example:
        parts.append(f"In a model file:\n\n```yaml\n{layer.example}```")
    return "\n\n".join(parts)


def _signature(argument: LayerArg) -> str:
    return argument.name if argument.required else f"{argument.name}={flow(argument.default)}"


def _kind(argument: LayerArg) -> str:
    return WORDS[argument.kind] + (", or null" if argument.optional else "")


def _op(op: OpDef, *, repeat: bool, head: str = "Op") -> str:
    parts = [f"## {head}\n\n```\n{_form(op)}\n```"]
    if op.is_grad_of:
        parts.append(f"The gradient of `{op.is_grad_of}`.")
    elif repeat:
        parts.append(_doc(op.doc))
    if op.attrs:
        rows = [(name, type(a.default).__name__, flow(a.default), _meaning(a)) for name, a in op.attrs.items()]
        parts.append(_table(("attribute", "type", "default", "meaning"), rows))
    parts.append(_table(("fact", "value"), list(_facts(op).items())))
    return "\n\n".join(parts)


def _form(op: OpDef) -> str:
    def written(slots: tuple[Slot, ...]) -> str:
        return ", ".join(map(str, slots))

    return f"{op.name}({written(op.inputs)}) -> {written(op.outputs)}"


def _meaning(attr: Attr) -> str:
    choices = f"one of {', '.join(map(str, attr.choices))}" if attr.choices else ""
    return "; ".join(part for part in (attr.doc, choices) if part)


def _facts(op: OpDef) -> dict[str, str]:
    """Return the facts of an op that the registry knows besides its doc."""
    devices = "all: it only gives memory another shape" if op.has(View) else ", ".join(sorted(op.lowerings))
    found = {"devices": devices or "none"}
    if op.is_grad_of is None:
        has = op.grad_op is not None or op.grad_maker is not None
        found["gradients"] = f"to {', '.join(op.differentiable)}" if has and op.differentiable else "none"
    found |= dict(said for trait in op.traits.values() if (said := trait.says()))
    found["declared in"] = op.module
    return found


def _doc(doc: str) -> str:
    """Return a docstring with its sections as headings, so that Markdown keeps the lines apart."""
    lines = []
    for line in doc.strip().splitlines():
        if line in SECTIONS:
            lines += [f"**{line.rstrip(':')}**", ""]
        elif line.startswith("    ") and not line.startswith("        "):
            lines.append(f"- {line.strip()}")
        else:
            lines.append(line.rstrip())
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_pages(folder: Path) -> int:
    """Write a page for every layer and op, and README.md as their index; the same bytes for the same catalogue.

    Returns:
        Number of pages.

    Raises:
        PeError: the folder can't be written.
    """
    from pe_cli.io import atomic

    atomic.make_folder(folder)
    found = sorted({*layers(), *ops()})
    for name in found:
        atomic.write_text(folder / f"{name}.md", page(name), sync=False)
    atomic.write_text(folder / "README.md", _index_page(), sync=False)
    return len(found)


def _index_page() -> str:
    def listed(entries: Mapping[str, Any]) -> str:
        return "\n".join(f"- [{name}]({name}.md): {summary(found.doc)}" for name, found in entries.items())

    return (
        "# Layers and ops\n\n"
        "Written by `pe ops --write` from the registries; change the docstrings, not these pages.\n\n"
        f"## Layers\n\n{listed(layers())}\n\n## Ops\n\n{listed(ops())}\n\n"
        f"## What `pe export` does not write\n\n{_not_exported()}\n"
    )


def _not_exported() -> str:
    """Return a table of why ops have no form in ONNX; all others have one."""
    whys: dict[str, list[str]] = {}
    for name, found in ops().items():
        if (missing := found.get(NoOnnxForm)) and not found.is_grad_of:
            whys.setdefault(missing.why, []).append(f"[{name}]({name}.md)")
    rows = [(", ".join(names), why) for why, names in sorted(whys.items(), key=lambda each: each[1])]
    return "Nor are gradients exported, which have the names of their ops and `_grad`.\n\n" + _table(("ops", "why"), rows)
