"""Classes of `core/lazy_dataclass.py` do what the standard library's do, and compile nothing before there is an instance."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import math
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from pe_cli.core import lazy_dataclass

MAKERS = (dataclasses.dataclass, lazy_dataclass.dataclass)
OPTIONS = [
    {"frozen": frozen, "eq": eq, "kw_only": kw_only} for frozen, eq, kw_only in itertools.product((False, True), repeat=3)
]


def classes(maker: Any, options: dict[str, bool]) -> list[Any]:
    """Return classes of every shape that fields can have."""

    @maker(**options)
    class Empty:
        """Nothing."""

    @maker(**options)
    class One:
        """One number."""

        a: float

    @maker(**options)
    class Several:
        """Defaults of all kinds."""

        a: float
        b: str = "x"
        c: list[int] = field(default_factory=list)
        d: int = field(default=4, init=False)
        e: dict[str, int] = field(default_factory=dict, init=False, hash=False)
        f: int = field(default=5, compare=False, repr=False)
        shared: ClassVar[int] = 7

    @maker(**options)
    class Derived(One):
        """A class with a parent, which works on its fields."""

        b: int = 1
        by_name: int = field(default=2, kw_only=True)

        def __post_init__(self) -> None:
            if self.b < 0:
                raise ValueError("negative")

    @maker(**options)
    class Own:
        """What is written in the class stays."""

        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __hash__(self) -> int:
            return 3

    @maker(**options)
    class OwnEquality:
        """Says what is equal, and not how it is hashed."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    @maker(**options)
    class OwnConstructor:
        """Has a constructor."""

        a: int

        def __init__(self, double: int) -> None:
            object.__setattr__(self, "a", 2 * double)

    class Plain(Several):
        """No decorator."""

    return [Empty, One, Several, Derived, Own, OwnEquality, OwnConstructor, Plain]


def told(action: Any) -> Any:
    """Return a result, or the error that stands in its place."""
    try:
        return action()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error), str(error)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((), {"a": 1}),
    ((math.nan,), {}),
    ((1, 2), {}),
    ((1, -2), {}),
    ((1, "y", [3]), {}),
    ((), {"a": 1, "b": 3, "by_name": 9}),
    ((), {"a": 1, "nothing": 3}),
    ((1, 2, 3, 4, 5, 6), {}),
    ((), {"double": 3}),
]


def behaviour(cls: Any) -> list[Any]:
    """Return what instances of a class do, as far as it can be compared."""
    seen: list[Any] = [str(inspect.signature(cls)), cls.__match_args__, [(f.name, f.init, f.kw_only) for f in dataclasses.fields(cls)]]
    seen += [cls.__hash__ is None, cls.__doc__, cls.__qualname__]
    for args, given in CALLS:
        made = told(lambda args=args, given=given: cls(*args, **given))
        if isinstance(made, tuple):
            seen.append(made)
            continue
        # Python 3.13 looks at every field where others look at tuples, in which one and the same NaN is equal to itself.
        again = cls(*(math.nan + 0.0 if arg != arg else arg for arg in args), **given)
        other = told(lambda made=made: dataclasses.replace(made, a=8))
        seen += [repr(made), made == made, made == again, made != again, made == other, made == 3, str(vars(made))]
        seen += [told(lambda made=made: hash(made) == hash(copy.copy(made))), str(told(lambda made=made: dataclasses.asdict(made)))]
        seen += [isinstance(other, tuple) and other, repr(copy.deepcopy(made)) == repr(made)]
        for name in ("a", "new"):
            seen += [told(lambda made=made, name=name: setattr(made, name, 5)), told(lambda made=made, name=name: delattr(made, name))]
    return seen


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_like_the_standard_library(options: dict[str, bool]) -> None:
    for expected, found in zip(*(classes(maker, options) for maker in MAKERS), strict=True):
        assert behaviour(found) == behaviour(expected)


@lazy_dataclass.dataclass(frozen=True)
class Kept:
    """A class that pickles find."""

    a: int
    b: tuple[int, ...] = ()


def test_pickles() -> None:
    made = Kept(1, (2, 3))
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(pickle.loads(pickle.dumps(made))) == hash(made)


def test_nothing_is_compiled_before_an_instance() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Late:
        """Counted."""

        a: int = 1

    assert not inspect.isfunction(vars(Late)["__init__"])
    assert Late().a == 1
    assert inspect.isfunction(vars(Late)["__init__"])


def test_a_class_without_docstring_is_not_asked_for_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def signature(*_given: Any) -> None:
        raise AssertionError("the signature of a class was read while the class was made")

    monkeypatch.setattr(inspect, "signature", signature)

    @lazy_dataclass.dataclass
    class Undocumented:
        a: int = 1

    assert Undocumented().a == 1


def test_a_list_of_itself_is_printed() -> None:
    @lazy_dataclass.dataclass
    class Nested:
        """Holds itself."""

        inside: list[Any] = field(default_factory=list)

    made = Nested()
    made.inside.append(made)
    assert repr(made).endswith("Nested(inside=[...])")


@pytest.mark.parametrize("name", ["__setattr__", "__delattr__"])
def test_frozen_with_assignments_of_its_own(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        lazy_dataclass.dataclass(frozen=True)(type("Own", (), {"__doc__": "x", "__annotations__": {"a": int}, name: lambda *_: None}))


def test_mutable_default() -> None:
    with pytest.raises(ValueError, match="mutable default"):
        lazy_dataclass.dataclass(type("Mutable", (), {"__doc__": "x", "__annotations__": {"a": list}, "a": []}))


@pytest.mark.parametrize("first", [dataclasses.dataclass, lazy_dataclass.dataclass])
@pytest.mark.parametrize("second", [dataclasses.dataclass, lazy_dataclass.dataclass])
@pytest.mark.parametrize("frozen", [False, True])
def test_bases_of_either_kind(first: Any, second: Any, frozen: bool) -> None:
    @first(frozen=frozen)
    class Base:
        """Two fields."""

        a: int
        b: int = 2

    @second(frozen=frozen)
    class Derived(Base):
        """Another default, and a field."""

        b: int = 5
        c: tuple[int, ...] = ()

    assert Derived(1) == Derived(1, 5, ())
    assert repr(Derived(1)).endswith("Derived(a=1, b=5, c=())")
    assert [f.name for f in dataclasses.fields(Derived)] == ["a", "b", "c"]
    assert Derived.__match_args__ == ("a", "b", "c")
    with pytest.raises(TypeError, match="frozen"):
        second(frozen=not frozen)(type("Other", (Base,), {"__doc__": "x", "__annotations__": {"d": int}}))
