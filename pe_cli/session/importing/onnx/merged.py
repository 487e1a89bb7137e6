"""Undoes what exporters do to equal values: parameters that were merged come apart, and copies of one parameter become one again.

Exporters keep one initializer for all parameters whose values are equal. Before a network has learned, all biases are 0 and all factors
of norms are 1: trained as one, they would make another network of it. And a table that is also the last layer of a language model is
written twice, once turned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.file import array_of, element_type, graphs_of
from pe_cli.session.importing.onnx.origins import Origins, has_module, same_form, scope_of, twins
from pe_cli.session.importing.onnx.values import is_filled

#: Nodes that are looked through for the weight which a parameter belongs to.
_NEAR = 12
#: Inputs of a node that are looked at: no layer has more parameters.
_MOST_INPUTS = 16


@dataclass(frozen=True)
class _Use:
    """A node reads an initializer: as which of its inputs, and as part of which module or beside which weight."""

    node: Any
    slot: int
    of: str | None


class _Merged:
    def __init__(self, path: Path, model: Any, origins: Origins) -> None:
        self.path, self.graph, self.origins = path, model.graph, origins
        self.held = {t.name: t for t in model.graph.initializer if element_type(t.data_type)[1] in FLOATS}
        self.taken = {t.name for t in model.graph.initializer} | {name for node in model.graph.node for name in (*node.input, *node.output)}
        self.outputs = {given.name for given in model.graph.output}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.numbers: defaultdict[str, int] = defaultdict(lambda: 1)
        self.apart: list[str] = []
        self.tied: list[str] = []
        # Graphs inside of nodes read values by their names, too; what they read stays as it is.
        self.inside = {name for node in self.graph.node for name in _read_inside(node)}

    def copy(self, name: str, wanted: str) -> str:
        """Add an initializer that is another's copy; return its name."""
        found = wanted
        while found in self.taken:
            self.numbers[wanted] += 1
            found = f"{wanted}_{self.numbers[wanted]}"
        made = self.graph.initializer.add()
        made.CopyFrom(self.held[name])
        made.name = found
        self.held[found] = made
        self.taken.add(found)
        self.apart.append(found)
        if name in self.origins.kinds:
            self.origins.kinds[found] = self.origins.kinds[name]
        return found

    def filled(self, name: str) -> bool:
        return is_filled(array_of(self.path, self.held[name]))

    # --- one for several ----------------------------------------------------------------------------------------------

    def named_again(self) -> None:
        """Put initializers in the place of the Identity nodes that have the names of merged parameters."""
        gone, renamed = set(), {}
        for node in self.graph.node:
            name, out = (node.input[0], node.output[0]) if node.op_type == "Identity" and node.input and node.output else ("", "")
            if name not in self.held or out in self.outputs or out in self.inside or self.held[name].dims == []:
                continue
            if has_module(out) and has_module(name) and (same_form(name, out) or self.filled(name)):
                gone.add(out)
                self.taken.discard(out)
                self.copy(name, out)
            else:
                gone.add(out)
                renamed[out] = name
                if has_module(out) and has_module(name):
                    self.tied.append(f"'{out}' is '{name}'")
        if gone:
            kept = [node for node in self.graph.node if not (node.op_type == "Identity" and node.output[0] in gone)]
            del self.graph.node[:]
            self.graph.node.extend(kept)
            self._rename(renamed)

    def by_module(self) -> None:
        """Give every module, or else every weight, parameters of its own, where all values of a merged one are alike."""
        uses: defaultdict[str, list[tuple[Any, int]]] = defaultdict(list)
        for node in self.graph.node:
            for slot, name in enumerate(node.input[:_MOST_INPUTS]):
                if name in self.held and list(self.held[name].dims) not in ([], [1]):
                    uses[name].append((node, slot))
        for name, found in uses.items():
            kind = self.origins.kinds.get(name, "PARAMETER")
            if len(found) > 1 and kind == "PARAMETER" and name not in self.inside and name not in self.outputs:
                self._separated(name, found)

    def _separated(self, name: str, found: list[tuple[Any, int]]) -> None:
        scopes = [scope_of(node) for node, _ in found]
        said = all(scope is not None for scope in scopes)
        groups: dict[tuple[str | None, int], list[_Use]] = {}
        for (node, slot), scope in zip(found, scopes, strict=True):
            of = scope if said else self._weight(node, name)
            # A node that reads it twice reads two parameters.
            again = list(node.input)[:slot].count(name)
            groups.setdefault((of, again), []).append(_Use(node, slot, of))
        own, _, leaf = name.rpartition(".")
        filled = len(groups) > 1 and self.filled(name)
        first = (own, 0) if (own, 0) in groups else next(iter(groups))
        for key, users in groups.items():
            if key == first or not (filled or (said and same_form(key[0] or "", own))):
                continue
            made = self.copy(name, f"{key[0]}.{leaf}" if said and leaf else name)
            for use in users:
                use.node.input[use.slot] = made

    def _weight(self, node: Any, name: str) -> str | None:
        """Return the matrix or the filters nearest before a node."""
        waiting, seen = [node], 0
        while waiting and seen < _NEAR:
            at = waiting.pop(0)
            seen += 1
            for given in at.input[:_MOST_INPUTS]:
                if given != name and given in self.held and len(self.held[given].dims) > 1:
                    return str(given)
            waiting += [self.makers[given] for given in at.input[:_MOST_INPUTS] if given in self.makers]
        return None

    # --- several of one -----------------------------------------------------------------------------------------------

    def one_again(self) -> None:
        """Let matrices that are copies of one be one parameter."""
        shapes = {name: tuple(t.dims) for name, t in self.held.items() if len(t.dims) == 2 and name not in self.inside | self.outputs}
        counts: defaultdict[frozenset[int], int] = defaultdict(int)
        for shape in shapes.values():
            counts[frozenset(shape)] += 1
        kinds = self.origins.kinds
        open_ = (
            (name, array_of(self.path, self.held[name]))
            for name, shape in shapes.items()
            if counts[frozenset(shape)] > 1 and kinds.get(name, "PARAMETER") == "PARAMETER"
        )
        ties: dict[str, tuple[str, bool]] = {}
        for first, second, turned in twins(open_):
            mine, theirs = self.origins.names.get(first, first), self.origins.names.get(second, second)
            if same_form(mine, theirs):
                continue  # layers that were made as copies, each of which learns for itself
            ties[second] = (first, turned)
            self.tied.append(f"'{second}' is '{first}'{', turned' if turned else ''}")
        if ties:
            self._tie(ties)

    def _tie(self, ties: Mapping[str, tuple[str, bool]]) -> None:
        """Let nodes read the first of each pair in the place of the second."""
        from onnx import helper

        left = [t for t in self.graph.initializer if t.name not in ties]
        del self.graph.initializer[:]
        self.graph.initializer.extend(left)
        turns = [helper.make_node("Transpose", [first], [name], perm=[1, 0]) for name, (first, turned) in ties.items() if turned]
        nodes = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*turns, *nodes])
        self._rename({name: first for name, (first, turned) in ties.items() if not turned})

    def _rename(self, renamed: Mapping[str, str]) -> None:
        for node in self.graph.node:
            for i, name in enumerate(node.input):
                if name in renamed:
                    node.input[i] = renamed[name]

    def notes(self) -> list[str]:
        found = []
        if self.apart:
            some = f"'{self.apart[0]}'" + (f" and {len(self.apart) - 1} more" if len(self.apart) > 1 else "")
            found.append(f"the exporter has merged parameters whose values are equal; each is trained for itself: {some}")
        return [*found, *(f"{text}: they are one parameter" for text in self.tied)]


def separated(path: Path, model: Any, origins: Origins) -> list[str]:
    """Give parameters of a model that an exporter has merged or copied the ties that they have in the network.

    Args:
        path: of the file, beside which values may lie.
        model: of ONNX's own class; it is changed.
        origins: of its initializers; new ones are added.

    Returns:
        Notes for users.

    Raises:
        PeError: DATA; a value is damaged.
    """
    if model.producer_name == "pe":
        return []
    merged = _Merged(path, model, origins)
    merged.named_again()
    merged.by_module()
    merged.one_again()
    return merged.notes()


def _read_inside(node: Any) -> set[str]:
    found: set[str] = set()
    for inner in graphs_of(node):
        found.update(name for one in inner.node for name in one.input)
        found.update(given.name for given in inner.output)
        found.update(name for one in inner.node for name in _read_inside(one))
    return found
