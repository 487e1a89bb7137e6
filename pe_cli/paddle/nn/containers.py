"""Layers of layers: Sequential, LayerList, LayerDict and ParameterList."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pe_cli.paddle.nn.layer import Layer


class _Row(Layer):
    """What has numbered members, reached by index."""

    #: Where the members are: _sub_layers or _parameters.
    _where = "_sub_layers"

    def _members(self) -> list[Any]:
        return [getattr(self, name) for name in self.__dict__[self._where]]

    def _replace(self, members: Iterable[Any]) -> None:
        self.__dict__[self._where].clear()
        for i, member in enumerate(members):
            self._add(str(i), member)

    def _add(self, name: str, member: Any) -> None:
        (self.add_sublayer if self._where == "_sub_layers" else self.add_parameter)(name, member)

    def __len__(self) -> int:
        return len(self.__dict__[self._where])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members())

    def __getitem__(self, index: Any) -> Any:
        found = self._members()[index]
        return type(self)(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, member: Any) -> None:
        name = list(self.__dict__[self._where])[index]
        held = self.__dict__[self._where]
        # A new member under an old name would come last in the dict, and the order of members is the order of parameters.
        order = list(held)
        self._add(name, member)
        self.__dict__[self._where] = {key: held[key] for key in order}

    def __delitem__(self, index: Any) -> None:
        # The members behind it move up: their names are their numbers.
        members = self._members()
        del members[index]
        self._replace(members)

    def append(self, member: Any) -> Any:
        """Add a member at the end."""
        self._add(str(len(self)), member)
        return self

    def extend(self, members: Iterable[Any]) -> Any:
        """Add members at the end."""
        for member in members:
            self.append(member)
        return self


class LayerList(_Row):
    """A list of layers, whose parameters count as those of the layer that holds it."""

    def __init__(self, sublayers: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def insert(self, index: int, sublayer: Any) -> None:
        """Put a layer before another."""
        members = self._members()
        members.insert(index, sublayer)
        self._replace(members)


class LayerDict(Layer):
    """Layers by name, whose parameters count as those of the layer that holds it.

    Args:
        sublayers: a mapping, or pairs of a name and a layer.
    """

    def __init__(self, sublayers: Any = None) -> None:
        super().__init__()
        self.update(sublayers or {})

    def update(self, sublayers: Any) -> None:
        """Add layers of a mapping, another LayerDict, or pairs of a name and a layer; a name that is there gets the new layer."""
        for name, layer in list(sublayers.items() if isinstance(sublayers, (Mapping, LayerDict)) else sublayers):
            self[name] = layer

    def __getitem__(self, key: str) -> Any:
        return self._sub_layers[key]

    def __setitem__(self, key: str, sublayer: Any) -> None:
        order = list(self._sub_layers)
        self.add_sublayer(key, sublayer)
        # As in `_Row`: a layer that is put in the place of another would come last in the dict.
        self.__dict__["_sub_layers"] = {n: self._sub_layers[n] for n in dict.fromkeys([*order, key])}

    def __delitem__(self, key: str) -> None:
        del self._sub_layers[key]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sub_layers)

    def __contains__(self, key: object) -> bool:
        return key in self._sub_layers

    def clear(self) -> None:
        """Remove all."""
        self._sub_layers.clear()

    def pop(self, key: str) -> Any:
        """Remove a layer and return it."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Any:
        """Return the names."""
        return self._sub_layers.keys()

    def items(self) -> Any:
        """Return the names and layers."""
        return self._sub_layers.items()

    def values(self) -> Any:
        """Return the layers."""
        return self._sub_layers.values()


class ParameterList(_Row):
    """A list of parameters, which count as those of the layer that holds it."""

    _where = "_parameters"

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(parameters or ())


class Sequential(Layer):
    """Layers one after the other.

    Args:
        layers: layers, or pairs of a name and a layer.
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        for i, given in enumerate(layers):
            name, layer = given if isinstance(given, (tuple, list)) else (str(i), given)
            self.add_sublayer(name, layer)

    def forward(self, input: Any) -> Any:
        """Append the layers in order."""
        for layer in self.children():
            input = layer(input)
        return input

    def __len__(self) -> int:
        return len(self._sub_layers)

    def _name(self, key: Any) -> str:
        return list(self._sub_layers)[key] if isinstance(key, int) else str(key)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Sequential(*list(self._sub_layers.items())[key])
        return self._sub_layers[self._name(key)]

    def __setitem__(self, key: Any, layer: Any) -> None:
        order = list(self._sub_layers)
        name = self._name(key)
        self.add_sublayer(name, layer)
        # As in `_Row`: a layer that is put in the place of another would come last in the dict.
        self.__dict__["_sub_layers"] = {n: self._sub_layers[n] for n in dict.fromkeys([*order, name])}

    def __delitem__(self, key: Any) -> None:
        del self._sub_layers[self._name(key)]


__all__ = ["LayerDict", "LayerList", "ParameterList", "Sequential"]
