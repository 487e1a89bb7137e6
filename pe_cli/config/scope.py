"""Looks up names of a model file: in a block's own layers, then its arguments, then what surrounds the block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pe_cli.config.nodes import Lookup, Node, ScalarNode
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(eq=False)
class Scope:
    """Names that are visible at one place of a model.

    Args:
        outer: what is around, None for the whole model (and for names that are complete already).
        args: arguments of the block, by name; one whose value is text stands for the variable of that name.
        names: own layers and feeds -> name of the variable in the program.
        prefix: what names of own layers begin with in the program.
    """

    outer: Scope | None = None
    args: Mapping[str, Node] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    prefix: str = ""

    def find(self, name: str) -> str | None:
        """Return the variable that a name stands for, or None; `x.1` is the second output of `x`, `x/y` layer `y` of block `x`."""
        base, dot, rest = name.partition(".")
        found = self._find(base)
        return None if found is None else found + dot + rest

    def _find(self, name: str) -> str | None:
        if name in self.names:
            return self.names[name]
        value = self.args.get(name)
        # The name that an argument stands for was written where the block is used, and is looked up there.
        if isinstance(value, ScalarNode) and isinstance(value.value, str):
            where = value.scope or self.outer
            return where.find(value.value) if where else None
        if name.partition("/")[0] in self.names:
            return self.prefix + name
        return self.outer._find(name) if self.outer else None

    def written(self, name: str) -> tuple[str, Lookup]:
        """Return the name that stands where an argument of this name is given, and what is visible there; any other name as it is."""
        value = self.args.get(name)
        if name in self.names or not isinstance(value, ScalarNode) or not isinstance(value.value, str):
            return name, self
        where = value.scope or self.outer
        return where.written(value.value) if where else (value.value, self)

    def known(self) -> list[str]:
        """Return every name that could have been written here, for hints."""
        own = [*self.names, *(name for name in self.args if self._find(name))]
        return list(dict.fromkeys([*own, *(self.outer.known() if self.outer else [])]))


class Complete(Scope):
    """Looks nothing up: names in it are those of the program."""

    def _find(self, name: str) -> str | None:
        return name


COMPLETE = Complete()
