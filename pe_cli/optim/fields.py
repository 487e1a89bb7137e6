"""Optimizers as lists of fields: the constructor, its checks and the update op's attributes come from the fields of a class.

    class AdamW(Declared):
        op, decay_attr = "adamw", "weight_decay"
        keeps = (State("Moment1", "moment1"), State("Moment2", "moment2"))

        learning_rate: Rate = 0.001
        beta1: float = part(default=0.9)
        epsilon: float = least(default=1e-8)
        ...

A field whose name, or `attr`, is an attribute of the update op is handed to it. Editors and type checkers know the constructor (PEP 681).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, dataclass_transform

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import find
from pe_cli.optim.optimizer import Optimizer, State

_REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Field:
    """What a class says of one argument of its constructor, beside its name and its type.

    Args:
        default: of the argument; none where it is required.
        attr: the update op's attribute; default: that of the argument's name, if there is one.
        check: raises PeError for values that make no sense: `check(optimizer, **{name: value})`.
    """

    default: Any = _REQUIRED
    attr: str = ""
    check: Callable[..., None] | None = None


def number(*, default: Any = _REQUIRED, attr: str = "") -> Any:
    """Declare a number or switch that is not checked."""
    return Field(default, attr)


def part(*, default: Any = _REQUIRED, attr: str = "") -> Any:
    """Declare which part of something stays each step, in [0, 1)."""
    return Field(default, attr, Optimizer.check_part)


def least(*, default: Any = _REQUIRED, attr: str = "") -> Any:
    """Declare an epsilon, at least 0."""
    return Field(default, attr, lambda optimizer, **value: optimizer.check_epsilon(*value.values()))


def decay(*, default: Any = _REQUIRED, attr: str = "") -> Any:
    """Declare the coefficient of a weight decay apart from the gradient, finite and at least 0."""
    return Field(default, attr, lambda optimizer, **value: optimizer.check_decay(*value.values()))


def _constructor(signature: inspect.Signature, fields: Mapping[str, Field]) -> Callable[..., None]:
    """Return the `__init__` of a class with these arguments."""

    # Bound by the signature, so that wrong arguments get Python's usual message and not one about `**given`.
    def __init__(self: Declared, *args: Any, **given: Any) -> None:
        try:
            bound = signature.bind(self, *args, **given)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        values = dict(bound.arguments)
        del values["self"]
        # Arguments that all optimizers have are the base's; the rest becomes attributes of the same name.
        Optimizer.__init__(self, *(values.pop(key) for key in ("learning_rate", "regularization", "grad_clip", "name")))
        for name, field in fields.items():
            if field.check is not None:
                field.check(self, **{name: values[name]})
        for name, value in values.items():
            setattr(self, name, value)
        self._begin()

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


@dataclass_transform(field_specifiers=(number, part, least, decay))
class Declared(Optimizer):
    """Base of the optimizers that are lists of fields; a subclass that lists none has those of its base."""

    #: What the update op keeps for every parameter. A value that is text is the field that has it.
    keeps: ClassVar[Sequence[State]] = ()
    _fields: ClassVar[Mapping[str, tuple[str, bool]]] = {}

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # Annotations are texts here: none is evaluated, which saves the imports that they name.
        listed = {name: kind for name, kind in inspect.get_annotations(cls).items() if not kind.startswith("ClassVar")}
        if not listed:
            return
        said = {name: cls.__dict__.get(name, _REQUIRED) for name in listed}
        fields = {name: value if isinstance(value, Field) else Field(value) for name, value in said.items()}
        # A class attribute would hide a missing value, and show a Field where a number is meant.
        for name in [name for name in listed if name in cls.__dict__]:
            delattr(cls, name)  # an instance has the value
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(n, kind, default=f.default, annotation=listed[n]) for n, f in fields.items()]
        signature = inspect.Signature([inspect.Parameter("self", kind), *parameters], return_annotation="None")
        cls.__init__ = _constructor(signature, fields)  # type: ignore[method-assign]
        # Attributes of ops are typed: an int that a user gives for a float is converted.
        cls._fields = {f.attr or n: (n, listed[n] == "float") for n, f in fields.items()}

    def _begin(self) -> None:
        """Do what is left to do when all fields have their values, such as checks of several of them."""

    def states(self) -> Sequence[State]:
        """Return the state that the update op keeps for every parameter."""
        return [replace(s, value=float(getattr(self, s.value))) if isinstance(s.value, str) else s for s in self.keeps]

    def attrs(self) -> Mapping[str, Any]:
        """Return the update op's attributes: the fields that it knows."""
        known = find(self.op).attrs
        found = {attr: (getattr(self, name), real) for attr, (name, real) in self._fields.items() if attr in known}
        return {attr: float(value) if real else value for attr, (value, real) in found.items()}
