"""Layers of an imported model taken apart: what each reads, its numbers, its parameters, and what has to be the same in a repetition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.registry import find

#: Layers that read nothing and whose place among the others says nothing.
_CONSTANTS = frozenset({"create_parameter", "fill_constant"})
#: Arguments that are the names of statistics.
_STATISTICS = frozenset({"moving_mean_name", "moving_variance_name"})


@dataclass(frozen=True)
class FlatLayer:
    """One layer of a model.

    Args:
        name: of the layer.
        entry: as a model file has it.
        reads: names of variables, in the order of the arguments.
        numbers: argument -> a number, or a list of them; with the defaults of arguments that other layers of the type have.
        parameters: argument -> name of the parameter that it has.
        token: everything else; layers with the same one can be one layer of a block.
    """

    name: str
    entry: Mapping[str, Any]
    reads: Sequence[str]
    numbers: Mapping[str, Any]
    parameters: Mapping[str, str]
    token: Hashable

    def is_variable(self, arg: str) -> bool:
        """Tell whether an argument is a variable or a list of them."""
        return _kind(self.entry, arg) in ("variable", "variables") and _is_read(self.entry[arg])

    def rewritten(self, reads: Sequence[str], numbers: Mapping[str, Any], parameters: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the layer with other variables, numbers and names of parameters; None for the name that the layer itself gives."""
        waiting = iter(reads)
        made: dict[str, Any] = {}
        for arg, value in self.entry.items():
            if self.is_variable(arg):
                made[arg] = [next(waiting) for _ in value] if isinstance(value, list) else next(waiting)
            elif arg in self.numbers:
                made[arg] = numbers[arg]
            elif arg not in self.parameters:
                made[arg] = value
            elif parameters[arg] is not None:
                made[arg] = parameters[arg] if arg in _STATISTICS else {**value, "name": parameters[arg]}
            elif arg not in _STATISTICS and len(value) > 1:
                made[arg] = {key: one for key, one in value.items() if key != "name"}
        # A default is written only where another repetition has another number.
        added = {arg: value for arg, value in numbers.items() if arg not in self.entry and repr(value) != repr(self.numbers[arg])}
        return {**made, **added}


def taken_apart(layers: Mapping[str, Mapping[str, Any]], feeds: Mapping[str, Any]) -> list[FlatLayer]:
    """Return all layers in an order in which constants stand before what alone reads them, and shared ones before everything."""
    written: dict[str, dict[str, Any]] = defaultdict(dict)
    for entry in layers.values():
        for arg, value in entry.items():
            default = find(entry["type"]).args[arg].default if arg != "type" else None
            if _is_number(default) and (_is_number(value) or _are_numbers(value)):
                written[entry["type"]][arg] = default
    found = {name: _layer(name, entry, written[entry["type"]]) for name, entry in layers.items()}
    readers = Counter(base for layer in found.values() for base in {base_of(name) for name in layer.reads})
    alone = {name for name, layer in found.items() if layer.entry["type"] in _CONSTANTS and readers[name] == 1 and not layer.reads}
    shared = [layer for name, layer in found.items() if layer.entry["type"] in _CONSTANTS and readers[name] > 1 and not layer.reads]
    first = {layer.name for layer in shared}
    made = list(shared)
    for layer in found.values():
        if layer.name not in alone and layer.name not in first:
            made += [found[base] for base in dict.fromkeys(map(base_of, layer.reads)) if base in alone and base not in feeds]
            made.append(layer)
    return made


def base_of(name: str) -> str:
    """Return the layer or feed that a variable is of: `x` for its second output `x.1`."""
    return name.partition(".")[0]


def _layer(name: str, entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> FlatLayer:
    """Return a layer; `defaults` are those of arguments that are numbers in some layer of its type."""
    reads: list[str] = []
    numbers, parameters, rest = {arg: value for arg, value in defaults.items() if arg not in entry}, {}, []
    for arg, value in entry.items():
        kind = _kind(entry, arg)
        if kind in ("variable", "variables") and _is_read(value):
            names = value if isinstance(value, list) else [value]
            reads += names
            rest.append((arg, len(names) if isinstance(value, list) else "one"))
        elif kind == "param_attr" and isinstance(value, Mapping) and "name" in value:
            parameters[arg] = str(value["name"])
            rest.append((arg, repr({key: one for key, one in value.items() if key != "name"})))
        elif arg in _STATISTICS and isinstance(value, str):
            parameters[arg] = value
            rest.append((arg, "named"))
        elif _is_number(value) or _are_numbers(value):
            numbers[arg] = value
        else:
            rest.append((arg, repr(value)))
    # An argument of the model stands for another number in each run: such a layer is like no other.
    own = name if "${" in repr(dict(entry)).replace("$${", "") else ""
    return FlatLayer(name, entry, reads, numbers, parameters, (own, *sorted(map(repr, [*rest, *numbers]))))


def _kind(entry: Mapping[str, Any], arg: str) -> str:
    return "" if arg == "type" else find(entry["type"]).args[arg].kind


def _is_read(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
