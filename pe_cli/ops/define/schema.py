"""What an op's declaration is made of: slots, attributes, samples for its tests; and an operator before it is appended."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any

from pe_cli.core.errors import PeError, WrongType
from pe_cli.core.lazy_dataclass import dataclass

#: Stands for a variable that a list slot leaves out.
EMPTY = "@EMPTY@"


@dataclass(frozen=True)
class Slot:
    """A named input or output of an op."""

    name: str
    optional: bool = False
    variadic: bool = False

    def __str__(self) -> str:
        return self.name + ("?" if self.optional else "") + ("*" if self.variadic else "")


def slots(text: str) -> tuple[Slot, ...]:
    """Parse `"X Bias? Rest*"`."""
    return tuple(Slot(w.rstrip("?*"), "?" in w, "*" in w) for w in text.split())


@dataclass(frozen=True)
class Attr:
    """An attribute: default, meaning with unit, and the values that are allowed.

    Args:
        default: its type is the attribute's type; a list means a list of that element type.
        doc: one phrase.
        choices: allowed values, empty for any.
    """

    default: Any
    doc: str = ""
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Inputs for the generated tests.

    Args:
        inputs: slot -> shape, or array maker `f(rng) -> ndarray`, or a list of those for `X*`.
        attrs: attributes that differ from the defaults.
        name: a sentence for the test's id.
        grad: whether gradients are checked on this sample.
        outputs: number of variables of an output slot, where it is not 1.
        keep: slots whose element type does not follow the others'.
    """

    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    grad: bool = True
    outputs: Mapping[str, int] = field(default_factory=dict)
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpDesc:
    """An operator before it is appended to a block: type, slot -> variable names, attributes."""

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def converted(op_name: str, name: str, value: Any, attr: Attr) -> Any:
    """Return the value of an attribute, with numbers of the type that its default has.

    Raises:
        PeError: a wrong type, or a value that is not among the choices.
    """
    default = attr.default
    if isinstance(value, tuple):
        value = list(value)
    # NumPy's numbers count as Python's: scripts work sizes and factors out with arrays. Numbers of Python's types stay the objects that
    # they are, as a schedule's steps are told later.
    if isinstance(default, float) and _is_number(value, Real) and not isinstance(value, float):
        value = float(value)
    elif type(default) is int and _is_number(value, Integral) and not isinstance(value, int):
        value = int(value)
    # A default of None leaves the type open: of regions and functions, which their ops check themselves.
    wanted = type(default)
    # True is a whole number for Python, but none for an op.
    if default is not None and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
        raise WrongType(f"op '{op_name}': attribute {name} must be {wanted.__name__}, got {value!r}")
    if isinstance(default, list):
        value = [_element(op_name, name, item, default) for item in value]
    if attr.choices and value not in attr.choices:
        listed = ", ".join(map(repr, attr.choices))
        raise PeError(f"op '{op_name}': attribute {name} is {value!r}", hint=f"one of {listed}")
    return value


def _is_number(value: Any, kind: type) -> bool:
    # A bool is a whole number for Python, but none for an op.
    return isinstance(value, kind) and not isinstance(value, bool)


def _element(op_name: str, name: str, item: Any, default: list[Any]) -> Any:
    """Return an element of a list, converted to the type of the default's."""
    if not default:
        return item
    wanted = type(default[0])
    if wanted is float and _is_number(item, Real) and not isinstance(item, float):
        return float(item)
    # NumPy's whole numbers are taken, too, but no float, even one without a fraction.
    if wanted is int and not isinstance(item, (bool, float)) and hasattr(item, "__index__"):
        return operator.index(item)
    if not isinstance(item, wanted) or (wanted is int and isinstance(item, bool)):
        raise PeError(f"op '{op_name}': attribute {name} holds {item!r:.40}, which is no {wanted.__name__}")
    return item
