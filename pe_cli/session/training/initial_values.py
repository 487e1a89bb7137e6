"""Initial values from another run or a file: which variables take them, and what is left over on either side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.config.sections.train import StartSection
from pe_cli.core.errors import ExitCode, PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.patterns import matches, nearest, renamed
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.io.weight_layouts import Reading, fitting, turned
from pe_cli.io.weights import OWN, read_weights
from pe_cli.ops.define.traits import Weight
from pe_cli.program.ir import Program
from pe_cli.program.region import every_op, regions_of

Array = np.ndarray[Any, Any]
#: Names that a message lists.
MOST = 8


@dataclass(frozen=True)
class InitialValues:
    """What a file gives a model.

    Args:
        file: as it is named to the user.
        values: name in the model -> value, of its shape and type.
        unused: names of the file that the model has not.
        random: variables of the model that keep their initial values, because the file has none.
        shapes: those that it has with another shape: name, shape in the file, shape in the model.
        unread: those whose weights the file keeps in an order of axes that is not known to be the model's.
        anew: those of the layer that `model.head` replaces, which take nothing.
    """

    file: str
    values: Mapping[str, Array]
    unused: Sequence[str]
    random: Sequence[str]
    shapes: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]
    unread: Sequence[str] = ()
    anew: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return what users should know, one line for each remark."""
        total = len(self.values) + len(self.random) + len(self.shapes) + len(self.unread)
        said = [f"start values: {len(self.values)} of {total} from {self.file}: {some(list(self.values))}"]
        if self.anew:
            said.append(f"begin anew, as model.head says: {some(self.anew)}")
        if self.random:
            said.append(f"not in the file, as initialised: {some(self.random)}")
        if self.unused:
            said.append(f"in the file, not in the model: {some(self.unused)}")
        if self.shapes:
            listed = [f"{name} is {list(theirs)} there and {list(ours)} here" for name, theirs, ours in self.shapes]
            said.append(f"of another shape, as initialised: {some(listed)}")
        if self.unread:
            said.append(f"of a layout that is not known to be the model's, as initialised: {some(self.unread)}")
        return said


def read_initial_values(
    section: StartSection, base: Path, types: Mapping[str, TensorType], ours: Mapping[str, Reading], new: Collection[str] = (),
    anew: Sequence[str] = (),
) -> InitialValues:  # fmt: skip
    """Read a file and find what each variable takes from it.

    Only what a model computes with takes a value: parameters, and statistics of batch_norm; an optimizer's state, steps and rates never do.

    Args:
        section: train.init.
        base: folder that a relative path starts at.
        types: name -> type of what a model computes with.
        ours: name -> how the model reads it; see `readings`.
        new: names that the file need not have: those of `train.adapt`.
        anew: names that take nothing, whether the file has them or not.

    Raises:
        PeError: DATA; the file cannot be read, nothing in it fits, a weight may lie in two ways, or with `strict` something does not fit.
            USAGE; a pattern that fits nothing, or a layout of a file that says its own.
    """
    path = base / section.from_
    try:
        file = read_weights(path)
    except PeError as error:
        error.at = error.at or section.at_of("from")
        raise
    # A file that says its own layout is believed: a wrong `layout` would turn weights that lie right.
    if section.layout is not None and not file.layout_may_be_said:
        text = f"train.init.layout: {path} says itself how its weights lie"
        raise PeError(text, at=section.at_of("layout"), hint="leave layout out")
    # Named by what the model calls them, from here on.
    sources = _renamed(section, file.arrays, types)
    theirs = {name: file.arrays[source] for name, source in sources.items()}
    values, random, shapes, unread = {}, [], [], []
    for name in (name for name in _wanted(section, types) if name not in anew):
        value, kind = theirs.get(name), types[name]
        if value is None:
            random += [name] if name not in new else []
            continue
        made = _turned(value, file.reading(sources[name], section.layout), ours.get(name, {}), kind.shape, f"{path}: '{name}'", section)
        if made is None:
            unread.append(name)
        # Told together at the end, as most files of elsewhere differ in the last layer.
        elif made.shape != kind.shape:
            shapes.append((name, made.shape, kind.shape))
        # Between floats a conversion is meant; whole numbers are sizes or tables, where a float would be a mistake.
        elif made.dtype != kind.numpy and not (made.dtype.name in FLOATS and kind.dtype in FLOATS):
            raise PeError(f"{path}: '{name}' is {made.dtype} and the model's is {kind.dtype}", code=ExitCode.DATA, at=section.at)
        else:
            values[name] = np.ascontiguousarray(made, kind.numpy)
    left = [n for n in theirs if n not in types and not is_state(n, theirs)]
    # Constants of a graph are no weights that somebody could miss.
    if file.graph is not None:  # whole numbers are sizes and axes of its nodes
        left = [n for n in left if theirs[n].dtype.kind == "f"]
    found = InitialValues(str(path), values, left, random, shapes, unread, anew)
    _check_fits(found, path, section, list(theirs), types, strict=section.strict if section.strict is not None else not file.own)
    return found


def _check_fits(
    found: InitialValues, path: Path, section: StartSection, theirs: Sequence[str], types: Mapping[str, TensorType], *, strict: bool
) -> None:
    """Refuse a file of which nothing fits, or with `strict` not all.

    Raises:
        PeError: DATA; says what does not.
    """
    values, shapes, unread = found.values, found.shapes, found.unread
    if not values and (shapes or unread):
        raise PeError(f"{path}: nothing fits: {found.lines()[-1]}", code=ExitCode.DATA, at=section.at, hint="it belongs to another model")
    if not values:
        text = f"{path}: no name in the file is a variable of this model: {some(theirs)}"
        hint = did_you_mean(next(iter(theirs), ""), list(types)) or f"the model has {some(list(types))}; train.init.rename maps names"
        raise PeError(text, code=ExitCode.DATA, at=section.at, hint=hint)
    # A file of elsewhere has to fit whole, unless somebody says otherwise: a silent rest of random weights trains, and badly.
    if strict and (found.random or (found.unused and section.only is None) or found.shapes or found.unread):
        why = "train.init.strict is true" if section.strict else "a file of elsewhere is to fit"
        text = f"{path}: {why}, and {'; '.join(replace(found, anew=()).lines()[1:])}"
        hint = "rename or match them, or name in only what takes a value" + ("" if section.strict else "; strict: false names them alone")
        raise PeError(text, code=ExitCode.DATA, at=section.at_of("strict"), hint=hint)


def _turned(
    value: Array, theirs: Reading | None, ours: Reading, shape: tuple[int, ...], what: str, section: StartSection
) -> Array | None:
    """Return a value with its axes as the model has them; None where it is not known how it lies.

    Raises:
        PeError: DATA; nothing says how the file keeps it, and it may lie in two ways, or only as another framework keeps it.
    """
    if theirs == OWN:
        return value
    if theirs is not None:
        return turned(value, theirs, ours, shape)
    if value.ndim == len(shape) and not ours and value.ndim > 1:
        text = f"{what} lies in an order of its own, which other frameworks do not share"
        raise PeError(text, code=ExitCode.DATA, at=section.at, hint="layout: paddle takes it as it lies; train.init.only leaves it out")
    # A matrix that is square fits in both orders, and nothing in the file says which is meant.
    found = fitting(value, ours, shape)
    if found and (len(found) > 1 or found[0] != "paddle"):
        several = f"{list(value.shape)} may lie in {len(found)} ways" if len(found) > 1 else f"{list(value.shape)} lies as others keep it"
        text = f"{what}: {several}, and nothing says which framework has written it"
        hint = " or ".join(f"layout: {name}" for name in found) + ' in train.init; files of PyTorch are "torch"'
        raise PeError(text, code=ExitCode.DATA, at=section.at, hint=hint)
    return value


def start_of(section: StartSection, base: Path, built: Built) -> InitialValues:
    """Return what a file gives a model: of all that it computes with and that its startup program makes; see `read_initial_values`.

    Raises:
        PeError: see `read_initial_values`.
    """
    made = {name for op in built.startup.top_ops for name in op.output_names()}
    anew = sorted(built.anew & made)
    types = {v.name: v.type for v in built.eval.persistables() if v.name in made}
    new = built.adapted.new if built.adapted is not None else ()
    return read_initial_values(section, base, types, readings(built.eval, list(types)), new, anew)


def readings(program: Program, names: Sequence[str]) -> dict[str, Reading]:
    """Return how a program reads its weights: name -> kind -> axes; nothing for a weight that an op reads in a way of its own.

    Args:
        program: what is computed.
        names: of variables.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    own: set[str] = set()
    for op in every_op(program):
        if regions_of(op):  # it hands its inputs to ops that come by themselves
            # The loop itself hands its inputs on.
            continue
        weight = op.definition.get(Weight)
        for slot, slot_names in op.inputs.items():
            for name in slot_names:
                if name in found and weight is not None and slot in weight.slots:
                    found[name][weight.kind] = weight.order(op.attrs)
                elif name in found:
                    own.add(name)
    # An op that reads the variable as it is would read turned numbers.
    return {name: {} if name in own else kinds for name, kinds in found.items()}


def is_state(name: str, among: Collection[str]) -> bool:
    """Tell whether a name of a run's checkpoint stands for what its training keeps: moments of a parameter, steps, learning rates."""
    if name.startswith(("@", "learning_rate_")) or "@" in name:
        return True
    # State is named after its parameter: `w_velocity_0` belongs to `w`.
    return any(name[:i] in among for i, letter in enumerate(name) if letter == "_" and i)


def check_frozen(frozen: Collection[str], taken: Collection[str], at: Span | None) -> None:
    """Refuse to freeze what has random values.

    Raises:
        PeError: DATA; a parameter that is not trained keeps the value that chance gave it.
    """
    left = [name for name in frozen if name not in taken]
    if left:
        text = f"frozen, and with random values: {some(left)}"
        hint = "train.init takes them from a run or a file; see its rename, or do not freeze them (train.adapt.also trains a new layer)"
        raise PeError(text, code=ExitCode.DATA, at=at, hint=hint)


def _wanted(section: StartSection, types: Mapping[str, TensorType]) -> list[str]:
    if section.only is None:
        return list(types)
    for pattern in section.only:
        if not any(matches(name, [pattern]) for name in types):
            text = f"train.init.only: no variable is called '{pattern}'"
            raise PeError(text, at=section.at_of("only"), hint=nearest(pattern, list(types)))
    return [name for name in types if matches(name, section.only)]


def _renamed(section: StartSection, arrays: Collection[str], types: Mapping[str, TensorType]) -> dict[str, str]:
    """Return names of the model -> names of the file."""
    found: dict[str, str] = {}
    fitted: set[str] = set()
    for name in arrays:
        target = name
        # The first pattern that fits counts, in the order in which they are written.
        for pattern, wish in section.rename.items():
            if (made := renamed(name, pattern, wish)) is not None:
                target = made
                fitted.add(pattern)
                break
        found[target] = name
    for pattern in section.rename:
        if pattern not in fitted:
            text = f"train.init.rename: the file has no name like '{pattern}'"
            raise PeError(text, at=section.at_of("rename"), hint=nearest(pattern, list(arrays)))
    for ours, name in section.match.items():
        for what, known, place in ((ours, types, "the model has no variable"), (name, arrays, "the file has no value")):
            if what not in known:
                text = f"train.init.match: {place} '{what}'"
                raise PeError(text, at=section.at_of("match"), hint=nearest(what, list(known)))
        # What is matched by name is not taken a second time by a pattern.
        found.pop(name, None)
        found[ours] = name
    return found


def some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many there are beside."""
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
