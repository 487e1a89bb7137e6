"""Reads dicts of arrays out of pickles without executing them: opcodes are interpreted one by one, and dangerous ones are refused.

Source:
    CPython, `pickletools`; NumPy, `ndarray.__reduce__`.
"""

from __future__ import annotations

import math
import pickletools
import re
from typing import Any

import numpy as np

#: Values of a pickle, with those that it names more than once.
MOST_VALUES = 1_000_000
_TYPE = re.compile(r"[biuf][1248]")
#: What arrays are made of, by the name that a pickle has for it.
_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
_ARRAY, _DTYPE, _ENCODE, _NOTHING = ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"), ("__builtin__", "bytes")
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
}  # fmt: skip
#: Strings of Python 2, which are bytes.
_BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SIZES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Mark:
    """Where the elements of a list, dict or tuple begin on the stack."""


class _Made:
    """A type or an array whose state is still to come."""

    def __init__(self, what: tuple[str, str], code: str = "") -> None:
        self.what, self.code, self.order = what, code, "|"
        self.array: np.ndarray[Any, Any] | None = None


class _Stack:
    """What instructions have made so far."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        if not self.values or self.values[-1] is _Mark:
            raise ValueError("an instruction takes more than there is")
        return self.values.pop()

    def popped(self, size: int | None = None) -> list[Any]:
        """Return the last values, in order: so many, or all behind the last mark."""
        if size is not None:
            return [self.pop() for _ in range(size)][::-1]
        found = []
        while self.values and self.values[-1] is not _Mark:
            found.append(self.values.pop())
        if not self.values:
            raise ValueError("an instruction takes more than there is")
        self.values.pop()
        return found[::-1]


def read(data: bytes) -> Any:
    """Return what a pickle holds: dicts, lists, tuples, numbers, texts, bytes and arrays of numbers.

    Raises:
        ValueError: it is cut off or damaged, or holds or calls anything else.
    """
    stack = _Stack()
    for code, given, _ in pickletools.genops(data):
        if code.name == "STOP":
            return _whole(stack.pop(), [MOST_VALUES])
        _step(stack, code.name, given)
    raise ValueError("a pickle is cut off")


def _step(stack: _Stack, name: str, given: Any) -> None:  # noqa: C901, PLR0912 - one case per instruction
    values = stack.values
    if name in _VALUES:
        values.append(given)
    elif name in _BYTES:
        values.append(given.encode("latin-1"))
    elif name in _CONSTANTS:
        values.append(_CONSTANTS[name])
    elif name in _SIZES:
        values.append(tuple(stack.popped(_SIZES[name])))
    elif name in ("MARK", "EMPTY_DICT", "EMPTY_LIST"):
        values.append({"MARK": _Mark, "EMPTY_DICT": {}, "EMPTY_LIST": []}[name])
    elif name in ("TUPLE", "LIST"):
        values.append((tuple if name == "TUPLE" else list)(stack.popped()))
    elif name == "DICT":
        values.append(_paired({}, stack.popped()))
    elif name in ("SETITEM", "SETITEMS"):
        found = stack.popped(2 if name == "SETITEM" else None)
        _paired(_top(stack, dict), found)
    elif name in ("APPEND", "APPENDS"):
        found = stack.popped(1 if name == "APPEND" else None)
        _top(stack, list).extend(found)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
        stack.memo[len(stack.memo) if given is None else given] = _top(stack, object)
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        if given not in stack.memo:
            raise ValueError("an instruction names what is not there")
        values.append(stack.memo[given])
    elif name in ("GLOBAL", "STACK_GLOBAL"):
        module, what = given.split(" ", 1) if name == "GLOBAL" else stack.popped(2)
        values.append(_known((module, what)))
    elif name == "REDUCE":
        arguments, what = stack.pop(), stack.pop()
        values.append(_called(what, arguments))
    elif name == "BUILD":
        state = stack.pop()
        _build(_top(stack, _Made), state)
    elif name not in ("PROTO", "FRAME"):
        raise ValueError(f"the instruction {name} is none of a dict of arrays")


def _top(stack: _Stack, kind: type) -> Any:
    if not stack.values or stack.values[-1] is _Mark or not isinstance(stack.values[-1], kind):
        raise ValueError("an instruction does not fit what is there")
    return stack.values[-1]


def _paired(into: dict[Any, Any], found: list[Any]) -> dict[Any, Any]:
    keys = found[::2]
    if len(found) % 2 or not all(isinstance(key, (str, bytes, int)) for key in keys):
        raise ValueError("a dict has keys that are no names")
    into.update(zip(keys, found[1::2], strict=True))
    return into


def _known(name: tuple[Any, Any]) -> _Made:
    if not all(isinstance(part, str) for part in name) or name not in {_ARRAY, _DTYPE, _ENCODE, _NOTHING} | _RECONSTRUCT:
        raise ValueError(f"it would call {name[0]}.{name[1]}")
    return _Made(name)


def _called(what: Any, arguments: Any) -> Any:
    if isinstance(what, _Made) and what.what == _NOTHING and arguments == ():
        return b""
    if not isinstance(what, _Made) or not isinstance(arguments, tuple) or not arguments:
        raise ValueError("an instruction calls what is no function")
    first = arguments[0]
    if what.what == _ENCODE and isinstance(first, str) and arguments[1:] in (("latin1",), ("latin-1",)):
        return first.encode("latin-1")
    if what.what in _RECONSTRUCT and isinstance(first, _Made) and first.what == _ARRAY:
        return _Made(_ARRAY)
    if what.what == _DTYPE:
        code = first.decode("latin-1") if isinstance(first, bytes) else first
        if isinstance(code, str) and _TYPE.fullmatch(code):
            return _Made(_DTYPE, code)
        raise ValueError("an array holds no numbers")
    raise ValueError("an instruction calls a function with what it does not take")


def _build(made: _Made, state: Any) -> None:
    if not isinstance(state, tuple) or len(state) < 2:
        raise ValueError("an array has no state")
    if made.what == _DTYPE:
        order = state[1].decode("latin-1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError("an array has no order of bytes")
        made.order = order
        return
    if made.what != _ARRAY or len(state) != 5:
        raise ValueError("an array has no state")
    _, shape, kind, fortran, data = state
    sized = isinstance(shape, tuple) and len(shape) <= 8 and all(isinstance(size, int) and size >= 0 for size in shape)
    # The class of element types itself may stand where one of them has to.
    if not sized or not isinstance(kind, _Made) or kind.what != _DTYPE or not kind.code or not isinstance(data, bytes):
        raise ValueError("an array has no numbers")
    type_ = np.dtype(kind.order + kind.code)
    if math.prod(shape) * type_.itemsize != len(data):
        raise ValueError(f"an array of shape {list(shape)} has {len(data)} bytes")
    made.array = np.frombuffer(data, type_).reshape(shape, order="F" if fortran else "C")


def _whole(value: Any, left: list[int], level: int = 0) -> Any:
    """Return a value with its arrays, which are whole now.

    Args:
        value: of the pickle.
        left: one number, how many values may still be looked at: what a pickle names again and again is written out each time.
        level: of lists and dicts around it.
    """
    left[0] -= 1
    if level > 8 or left[0] < 0:
        raise ValueError("a pickle has too many levels, or too many values")
    if isinstance(value, _Made):
        if value.array is None:
            raise ValueError("an array has no numbers")
        return value.array
    if isinstance(value, dict):
        return {key: _whole(each, left, level + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(each, (_Made, dict, list, tuple)) for each in value):
        return [_whole(each, left, level + 1) for each in value]
    return value
