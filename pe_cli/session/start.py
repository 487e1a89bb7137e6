"""Initial values from another run or a file: which variables take them, and what is left over on either side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.sections.train import StartSection
from pe_cli.core.errors import ExitCode, PeError, Span, did_you_mean
from pe_cli.core.patterns import matches, nearest, renamed
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.io.checkpoint import load_arrays
from pe_cli.io.onnx.values import read_values

Array = np.ndarray[Any, Any]
#: Names that a message lists.
MOST = 8


@dataclass(frozen=True)
class Start:
    """What a file gives a model.

    Args:
        file: as it is named to the user.
        values: name in the model -> value, of its shape and type.
        unused: names of the file that the model has not.
        random: variables of the model that keep their initial values, because the file has none.
        shapes: those that it has with another shape: name, shape in the file, shape in the model.
    """

    file: str
    values: Mapping[str, Array]
    unused: Sequence[str]
    random: Sequence[str]
    shapes: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]

    def lines(self) -> list[str]:
        """Return what users should know, one line for each remark."""
        total = len(self.values) + len(self.random) + len(self.shapes)
        said = [f"start values: {len(self.values)} of {total} from {self.file}: {some(list(self.values))}"]
        if self.random:
            said.append(f"not in the file, as initialised: {some(self.random)}")
        if self.unused:
            said.append(f"in the file, not in the model: {some(self.unused)}")
        if self.shapes:
            listed = [f"{name} is {list(theirs)} there and {list(ours)} here" for name, theirs, ours in self.shapes]
            said.append(f"of another shape, as initialised: {some(listed)}")
        return said


def read_start(section: StartSection, base: Path, types: Mapping[str, TensorType]) -> Start:
    """Read a file and find what each variable takes from it.

    Only what a model computes with takes a value: parameters, and statistics of batch_norm; an optimizer's state, steps and rates never do.

    Args:
        section: train.init.
        base: folder that a relative path starts at.
        types: name -> type of what a model computes with.

    Raises:
        PeError: DATA; the file cannot be read, nothing in it fits, or with `strict` something does not. USAGE; a pattern that fits nothing.
    """
    path = base / section.from_
    try:
        arrays = read_values(path) if path.suffix == ".onnx" else load_arrays(path)
    except PeError as error:
        error.at = error.at or section.at_of("from")
        raise
    theirs = _renamed(section, arrays, types)
    wanted = _wanted(section, types)
    values, random, shapes = {}, [], []
    for name in wanted:
        value, kind = theirs.get(name), types[name]
        if value is None:
            random.append(name)
        elif value.shape != kind.shape:
            shapes.append((name, value.shape, kind.shape))
        elif value.dtype != kind.numpy and not (value.dtype.name in FLOATS and kind.dtype in FLOATS):
            raise PeError(f"{path}: '{name}' is {value.dtype} and the model's is {kind.dtype}", code=ExitCode.DATA, at=section.at)
        else:
            values[name] = np.ascontiguousarray(value, kind.numpy)
    found = Start(str(path), values, [n for n in theirs if n not in types and not is_state(n, theirs)], random, shapes)
    if not values and shapes:
        raise PeError(f"{path}: nothing fits: {found.lines()[-1]}", code=ExitCode.DATA, at=section.at, hint="it belongs to another model")
    if not values:
        text = f"{path}: no name in the file is a variable of this model: {some(list(theirs))}"
        hint = did_you_mean(next(iter(theirs), ""), list(types)) or f"the model has {some(list(types))}; train.init.rename maps names"
        raise PeError(text, code=ExitCode.DATA, at=section.at, hint=hint)
    if section.strict and (found.random or found.unused or found.shapes):
        text = f"{path}: train.init.strict is true, and {'; '.join(found.lines()[1:])}"
        raise PeError(text, code=ExitCode.DATA, at=section.at_of("strict"), hint="rename or match them, or name in only what takes a value")
    return found


def is_state(name: str, among: Collection[str]) -> bool:
    """Tell whether a name of a run's checkpoint stands for what its training keeps: moments of a parameter, steps, learning rates."""
    if name.startswith(("@", "learning_rate_")) or "@" in name:
        return True
    return any(name[:i] in among for i, letter in enumerate(name) if letter == "_" and i)


def check_frozen(frozen: Collection[str], taken: Collection[str], at: Span | None) -> None:
    """Refuse to freeze what has random values.

    Raises:
        PeError: DATA; a parameter that is not trained keeps the value that chance gave it.
    """
    left = [name for name in frozen if name not in taken]
    if left:
        text = f"frozen, and with random values: {some(left)}"
        hint = "train.init takes them from a run or a file; see its rename, or do not freeze them"
        raise PeError(text, code=ExitCode.DATA, at=at, hint=hint)


def _wanted(section: StartSection, types: Mapping[str, TensorType]) -> list[str]:
    if section.only is None:
        return list(types)
    for pattern in section.only:
        if not any(matches(name, [pattern]) for name in types):
            text = f"train.init.only: no variable is called '{pattern}'"
            raise PeError(text, at=section.at_of("only"), hint=nearest(pattern, list(types)))
    return [name for name in types if matches(name, section.only)]


def _renamed(section: StartSection, arrays: Mapping[str, Array], types: Mapping[str, TensorType]) -> dict[str, Array]:
    """Return the arrays by the model's names."""
    found: dict[str, Array] = {}
    fitted: set[str] = set()
    for name, value in arrays.items():
        target = name
        for pattern, wish in section.rename.items():
            if (made := renamed(name, pattern, wish)) is not None:
                target = made
                fitted.add(pattern)
                break
        found[target] = value
    for pattern in section.rename:
        if pattern not in fitted:
            text = f"train.init.rename: the file has no name like '{pattern}'"
            raise PeError(text, at=section.at_of("rename"), hint=nearest(pattern, list(arrays)))
    for ours, name in section.match.items():
        for what, known, place in ((ours, types, "the model has no variable"), (name, arrays, "the file has no value")):
            if what not in known:
                text = f"train.init.match: {place} '{what}'"
                raise PeError(text, at=section.at_of("match"), hint=nearest(what, list(known)))
        found.pop(name, None)
        found[ours] = arrays[name]
    return found


def some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many there are beside."""
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
