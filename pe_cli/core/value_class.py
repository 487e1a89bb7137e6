"""A base for small immutable classes that inherit their form: no decorator for each, and a hash whatever their fields are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, dataclass_transform

#: Stands for a field that has to be given.
_REQUIRED: Any = object()


@dataclass_transform(frozen_default=True)
class Value:
    """Base of small values: the annotations of a subclass are its fields, as of a frozen dataclass.

    Raises:
        TypeError: a field is missing, or there is no such field.
    """

    _fields: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Annotations are looked at and never evaluated: with postponed evaluation they are texts, which is enough for names.
        own = vars(cls).get("__annotations__", {})
        cls._fields = {**cls._fields, **{name: vars(cls).get(name, _REQUIRED) for name in own}}

    def __init__(self, *args: Any, **given: Any) -> None:
        found = {**self._fields, **dict(zip(self._fields, args, strict=False)), **given}
        if len(args) > len(self._fields) or len(found) > len(self._fields) or _REQUIRED in found.values():
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields) or 'nothing'}, got {args} {given}")
        vars(self).update(found)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        # Values of unhashable fields, such as mappings, must hash as well; few values of one class meet in a set.
        return hash((type(self), tuple(vars(self))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"
