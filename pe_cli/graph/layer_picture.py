"""The layers of a model as a picture: a box per layer, blocks folded where there are many, and shapes where data flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.picture import Arrow, Box, Datum, Picture
from pe_cli.program.ir import Operator, Parameter, Program

#: Boxes of layers that are still drawn one by one; where there are more, blocks are.
LIMIT = 40
#: Types of layers that a block's box names.
SHOWN = 4


def owner(op: Operator, keys: Collection[str]) -> str:
    """Return the layer that an op was appended by: the longest that its scope begins with; empty for none."""
    parts = op.scope.split("/")
    # Scopes nest: the longest key is the innermost layer, the one that a reader looks for.
    for n in range(len(parts), 0, -1):
        key = "/".join(parts[:n])
        if key in keys:
            return key
    return ""


def several_outputs(program: Program) -> dict[str, list[str]]:
    """Return the names of what each layer with several outputs makes, `key.0` and so on in order; layers with one are not among them."""
    numbers: dict[str, list[int]] = {}
    for name in program.vars:
        key, dot, number = name.rpartition(".")
        # A number behind a dot is an output of a layer only where it is a number: names of variables may have dots, too.
        if dot and number.isascii() and number.isdecimal():
            numbers.setdefault(key, []).append(int(number))
    return {key: [f"{key}.{n}" for n in sorted(found)] for key, found in numbers.items()}


@dataclass
class _Group:
    """What one box shows: its layers, the parameters they are the first to read, and what they make for others."""

    layers: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    given: dict[str, None] = field(default_factory=dict)


def model_picture(program: Program, layers: Mapping[str, str], title: str, *, limit: int | None = LIMIT) -> Picture:
    """Return the picture of a model's layers from its feeds on.

    Args:
        program: without gradients.
        layers: name, such as `stage1/0/conv`, -> type, in order.
        title: over the picture.
        limit: boxes up to which layers are drawn one by one; of more, as few levels of blocks are folded as that needs, or all.
            None folds nothing.
    """
    depth = _depth(layers, limit)
    # Groups are made in the order of layers, which is the order in which boxes are laid out.
    groups: dict[str, _Group] = {}
    for key, kind in layers.items():
        groups.setdefault(_group(key, depth), _Group()).layers[key] = kind
    flows = _flows(program, layers, groups, depth)
    for (source, _), names in flows.items():
        if source in groups:
            groups[source].given |= names
    types = {name: v.type for name, v in program.vars.items()}
    fed = dict.fromkeys(source for source, _ in flows if source not in groups)
    boxes = [Box(key, key.removeprefix("feed "), "feed", lines=(str(types[key.removeprefix("feed ")]),)) for key in fed]
    several = several_outputs(program)
    boxes += [_box(name, group, program, several) for name, group in groups.items()]
    arrows = tuple(Arrow(s, t, tuple(Datum(name, types[name]) for name in names)) for (s, t), names in flows.items())
    folded = len(layers) - sum(len(group.layers) == 1 for group in groups.values())
    notes = (f"{len(layers)} layers in {len(groups)} boxes by block",) if folded else ()
    return Picture(title, (), tuple(boxes), arrows, notes)


def _flows(
    program: Program, layers: Mapping[str, str], groups: Mapping[str, _Group], depth: int
) -> dict[tuple[str, str], dict[str, None]]:
    """Return what flows between boxes, and note the parameters of each: (who makes it, who reads it) -> variables."""
    given = [name for name in layers if isinstance(program.find_var(name), Parameter)]  # layers that are a parameter
    made = {name: _group(name, depth) for name in given}
    for name, group in made.items():
        groups[group].parameters[name] = program.vars[name].type.size
    read: set[str] = set()
    flows: dict[tuple[str, str], dict[str, None]] = {}
    for op in program.top_ops:
        key = owner(op, layers)
        if not key:
            continue
        group = _group(key, depth)
        for name in op.input_names():
            variable = program.vars[name]
            if isinstance(variable, Parameter) and name not in given:
                # A parameter that several layers read is counted where it is read first: elsewhere the sum would be more than the model
                # has.
                if name not in read:
                    groups[group].parameters[name] = variable.type.size
                read.add(name)
            elif variable.is_data or made.get(name, group) != group:
                flows.setdefault((f"feed {name}" if variable.is_data else made[name], group), {})[name] = None
        made |= dict.fromkeys(op.output_names(), group)
    return flows


def _depth(layers: Collection[str], limit: int | None) -> int:
    """Return the most names of a path that one box is made of."""
    deepest = max((key.count("/") + 1 for key in layers), default=1)
    if limit is None:
        return deepest
    # The deepest paths that still fit show most; one name of a path is the least that a box can stand for.
    return next((d for d in range(deepest, 1, -1) if len({_group(key, d) for key in layers}) <= limit), 1)


def _group(key: str, depth: int) -> str:
    return "/".join(key.split("/")[:depth])


def _box(name: str, group: _Group, program: Program, several: Mapping[str, list[str]]) -> Box:
    """Return the box of a layer, or of a block: what it is, how many parameters it has, and what it makes that no arrow says."""
    variables = program.vars
    if name in group.layers and len(group.layers) == 1:
        kinds = group.layers[name]
        outputs = several.get(name) or [n for n in (name,) if n in variables]
    else:
        counts = Counter(group.layers.values())
        listed = ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in counts.most_common(SHOWN))
        kinds = f"{len(group.layers)} layers: {listed}{', ...' if len(counts) > SHOWN else ''}"
        outputs = []
    lines = [kinds, *(str(variables[n].type) for n in outputs if n not in group.given)]
    if numbers := sum(group.parameters.values()):
        lines.append(f"{numbers:,} parameters")
    tip = "\n".join(f"{key}: {kind}" for key, kind in group.layers.items())
    kind = "op" if len(group.layers) == 1 else "group"
    return Box(name, name, kind, "forward", lines=tuple(lines), tip=tip, names=frozenset([*outputs, *group.given]))
