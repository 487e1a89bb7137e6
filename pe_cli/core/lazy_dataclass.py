"""`dataclass` as in the standard library, but whose methods cost nothing until somebody uses them.

The standard library compiles the texts of up to six methods for every class, half a millisecond each. For the several hundred classes here
that is a fifth of the time in which the program starts, and most of them have no instance in most runs. Here comparing, hashing, printing
and refusing assignments are closures over names, and a constructor is compiled when the first instance is made.

What a class is, is the same: `fields`, `replace`, `asdict`, `is_dataclass`, `__match_args__`, pickles and copies, order and errors.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

#: Attribute of constructors that are compiled from fields: they are there once a class has had an instance.
OF_FIELDS = "of_fields"
_MISSING = dataclasses.MISSING


class _Factory:
    """Stands, in signatures, for a default that is made anew for each instance; printed as the standard library prints its own."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Constructor:
    """Stands for the `__init__` of a class until somebody asks for it, and puts the compiled one in its own place."""

    def __init__(self, cls: type, *, frozen: bool) -> None:
        self.cls = cls
        self.frozen = frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = _compiled(self.cls, frozen=self.frozen)
        self.cls.__init__ = made  # type: ignore[misc]
        return made.__get__(instance, owner)


def _compiled(cls: Any, *, frozen: bool) -> Any:
    """Return the constructor of a class: its arguments are the fields, in their order."""
    known: dict[str, Any] = {"_dataclass_factory": _FACTORY, "_dataclass_set": object.__setattr__}
    places: dict[bool, list[str]] = {False: [], True: []}  # fields by position, fields by keyword alone
    lines = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not _MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _dataclass_factory else {name}" if field.init else f"_make_{name}()"
        elif not field.init:
            continue  # the class has its value
        if field.init:
            given = name
            if field.default_factory is not _MISSING:
                given = f"{name}=_dataclass_factory"
            elif field.default is not _MISSING:
                known[f"_default_{name}"] = field.default
                given = f"{name}=_default_{name}"
            places[bool(field.kw_only)].append(given)
        lines.append(f"_dataclass_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join(["self", *places[False], *(["*", *places[True]] if places[True] else [])])
    text = f"def __init__({arguments}):\n    " + "\n    ".join(lines or ["pass"])
    # Of the class the text has the names of its fields alone, which Python has taken as names.
    exec(text, known)
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    setattr(made, OF_FIELDS, True)
    made.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    return made


def _collect_fields(cls: Any, *, frozen: bool, eq: bool, kw_only: bool) -> None:
    """Give a class what the standard library notes of fields: its own ones behind those of its bases."""
    annotations = inspect.get_annotations(cls)
    given = {name: vars(cls)[name] for name in annotations if name in vars(cls)}
    # A class without bases: which bases are frozen is for those of the standard library alone to compile methods by. Of a class that has no
    # docstring the standard library would write the signature, for which it copies the table of modules.
    alone = type(cls.__name__, (), {"__doc__": "fields", "__module__": cls.__module__, "__annotations__": annotations, **given})
    noted: Any = dataclasses.dataclass(alone, init=False, repr=False, eq=False, kw_only=kw_only)
    bases = [base for base in cls.__mro__[:0:-1] if "__dataclass_fields__" in vars(base)]
    if any(base.__dataclass_params__.frozen is not frozen for base in bases):
        raise TypeError(f"{cls.__name__} is {'' if frozen else 'not '}frozen, and a base of it is {'not' if frozen else 'frozen'}")
    fields = {name: field for found in (*bases, noted) for name, field in vars(found)["__dataclass_fields__"].items()}
    params = noted.__dataclass_params__
    params.init = params.repr = True
    params.eq, params.frozen = eq, frozen
    cls.__dataclass_fields__, cls.__dataclass_params__ = fields, params
    for name, value in given.items():
        if isinstance(value, dataclasses.Field):
            if value.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    if "__match_args__" not in vars(cls):
        cls.__match_args__ = tuple(f.name for f in dataclasses.fields(cls) if f.init and not f.kw_only)  # type: ignore[misc]
    if hasattr(noted, "__replace__"):  # since Python 3.13
        cls.__replace__ = noted.__replace__


def _values(names: list[str]) -> Callable[[Any], Any]:
    """Return what reads fields of an instance as a tuple."""
    if not names:
        return lambda _self: ()
    get = attrgetter(*names)
    # Of one name attrgetter gives the bare value, of which NaN is not equal to itself, as it is within tuples.
    return get if len(names) > 1 else lambda self: (get(self),)


def _give(cls: Any, name: str, method: Any) -> None:
    """Give a class a method that it has not written itself."""
    if name not in vars(cls):
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


def _give_comparison(cls: Any, *, frozen: bool) -> None:
    fields = dataclasses.fields(cls)
    values = _values([f.name for f in fields if f.compare])

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    # As in the standard library, a class that says when instances are equal says how they are hashed, or they are not.
    own_hash = vars(cls).get("__hash__") if "__eq__" not in vars(cls) or vars(cls).get("__hash__") is not None else None
    _give(cls, "__eq__", __eq__)
    if own_hash is not None:
        return
    hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    cls.__hash__ = __hash__ if frozen else None


def _give_text(cls: Any) -> None:
    names = [f.name for f in dataclasses.fields(cls) if f.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    _give(cls, "__repr__", __repr__)


def _freeze(cls: Any) -> None:
    names = frozenset(f.name for f in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    for name, method in (("__setattr__", __setattr__), ("__delattr__", __delattr__)):
        if name in vars(cls):
            raise TypeError(f"{cls.__name__} is frozen and has a {name} of its own")
        _give(cls, name, method)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False) -> Any:
        """Make a class of annotated fields, as the standard library's decorator of this name does.

        Args:
            cls: the class; None where options are given.
            frozen: instances do not change.
            eq: instances are equal whose fields are.
            kw_only: fields are given by name alone.

        Raises:
            TypeError: a field with a mutable default, or a frozen class that says how attributes are set.
        """
        if cls is None:
            return lambda found: dataclass(found, frozen=frozen, eq=eq, kw_only=kw_only)
        own = vars(cls).get("__init__")
        _collect_fields(cls, frozen=frozen, eq=eq, kw_only=kw_only)
        if own is None:
            cls.__init__ = _Constructor(cls, frozen=frozen)
        _give_text(cls)
        if eq:
            _give_comparison(cls, frozen=frozen)
        if frozen:
            _freeze(cls)
        return cls
