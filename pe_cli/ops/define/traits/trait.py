"""The base of all traits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, dataclass_transform

#: Stands for a field that has to be given.
_REQUIRED: Any = object()


class Named(Protocol):
    """What a trait looks at of an op."""

    name: str
    is_grad_of: str | None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by name."""

    def slot_names(self, *, outputs: bool) -> list[str]:
        """Return the names of input or of output slots."""


@dataclass_transform(frozen_default=True)
class Trait:
    """Something that an op can do. Its subclasses are values: annotations are their fields, as of a frozen dataclass.

    Dataclasses compile their methods, which takes a third of a millisecond for each class, in every start of the program.
    """

    _fields: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
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
        return hash((type(self), tuple(vars(self))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"

    def verify(self, op: Named) -> None:
        """Check that the trait fits the op.

        Raises:
            AssertionError: it names a slot or an attribute that the op does not have.
        """

    def says(self) -> tuple[str, str] | None:
        """Return a title and a sentence for the op's page; None where users need not know."""
        return None


def need(op: Named, names: Sequence[str], *, outputs: bool = False) -> None:
    known = op.slot_names(outputs=outputs)
    missing = [n for n in names if n not in known]
    assert not missing, f"{op.name} has no {'output' if outputs else 'input'} {', '.join(missing)}"
