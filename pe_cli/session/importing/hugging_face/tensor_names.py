"""Tensors of a folder: which parameter each becomes, which are left and why, and what does not fit."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.patterns import matches
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.io.weight_layouts import LAYOUTS, Reading, turned
from pe_cli.session.importing.hugging_face.config_values import bad
from pe_cli.session.importing.hugging_face.family import Family

Array = np.ndarray[Any, Any]
#: Last part of the name of a tensor of a module -> of our parameter. TensorFlow's norms have gamma and beta.
_PARTS = {"weight": "w_0", "bias": "b_0", "gamma": "w_0", "beta": "b_0", "running_mean": "w_1", "running_var": "w_2"}
#: Names that a message lists.
_MOST = 20
#: Tensors of a folder, at most: no model has as many, and each is looked up.
_MOST_TENSORS = 100_000
#: Why counters are left.
COUNTER = "a counter of batch norm, which nothing reads"


@dataclass(frozen=True)
class _Rule:
    """How one or more tensors are called here; `*` in both names stands for the same numbers.

    Args:
        theirs: name of a tensor; of the module, where `module` is true.
        ours: name of the parameter; of the layer, where `module` is true.
        layout: whose order of axes they have; empty where the parameter has the same.
        module: whether it is about all tensors of a module.
        shift: what is added to the numbers of theirs; nothing for none.
        insert: where the parameter has axes of size 1 that the tensor lacks; none for nowhere.
        flat: the tensor may have axes of size 1 behind those of the parameter.
    """

    theirs: str
    ours: str
    layout: str
    module: bool
    shift: tuple[int, ...] = ()
    insert: tuple[int, ...] = ()
    flat: bool = False

    def target(self, name: str) -> str | None:
        """Return the parameter that a tensor becomes; None where the rule is not about it."""
        stem, _, part = name.rpartition(".")
        if not self.module:
            return _renamed(name, self.theirs, self.ours, self.shift)
        made = _renamed(stem, self.theirs, self.ours, self.shift) if part in _PARTS else None
        return None if made is None else f"{made}.{_PARTS[part]}"

    def source(self, name: str) -> str | None:
        """Return the tensor that becomes a parameter; None where the rule is not about it."""
        stem, _, part = name.rpartition(".")
        back = tuple(-n for n in self.shift)
        if not self.module:
            return _renamed(name, self.ours, self.theirs, back)
        made = _renamed(stem, self.ours, self.theirs, back)
        theirs = next((key for key, value in _PARTS.items() if value == part), None)
        return None if made is None or theirs is None else f"{made}.{theirs}"


def _renamed(name: str, pattern: str, target: str, shift: Sequence[int]) -> str | None:
    """Return a name with the numbers of one pattern put into another; None where it does not fit, or a number would be below 0."""
    found = _compiled(pattern).fullmatch(name)
    if found is None:
        return None
    numbers = [int(each) for each in found.groups()]
    if shift:
        numbers = [number + step for number, step in zip(numbers, shift, strict=True)]
    if any(number < 0 for number in numbers):
        return None
    waiting = iter(numbers)
    return "".join(str(next(waiting)) if c == "*" else c for c in target)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("(0|[1-9][0-9]{0,5})".join(map(re.escape, pattern.split("*"))))


def _rules(modules: Mapping[str, Any], tensors: Mapping[str, Any]) -> list[_Rule]:
    """Return the rules of a trunk or a head: see `Family.modules`."""
    found = []
    for said, module in ((modules, True), (tensors, False)):
        for theirs, wish in said.items():
            given = wish if isinstance(wish, dict) else {"to": wish}
            layout, shift = given.get("layout", "torch" if module else ""), tuple(given.get("shift", ()))
            names = [given["to"]] if isinstance(given["to"], str) else given["to"]
            insert, flat = tuple(given.get("insert", ())), given.get("flat", False)
            found += [_Rule(theirs, ours, layout, module, shift, insert, flat) for ours in names]
    return found


@dataclass
class Taken:
    """What a folder gives a model.

    Args:
        arrays: parameter -> value.
        sources: parameter -> tensor that it was.
        new: parameters of a head that the folder has not, which begin at random.
        left: tensor -> why it is not taken.
        tied: tensor -> parameter that another tensor has given, too.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)


@dataclass
class _Unfit:
    """What keeps a folder from being taken; `found` are parameters whose tensors are there, but do not fit."""

    many: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    untied: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    found: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[str]:
        """Yield what is wrong, a phrase for each kind of mistake."""
        for what, names in (
            ("missing", self.missing),
            ("unknown", self.many),
            ("of another shape", self.shapes),
            ("no floats", self.kinds),
            ("tied and different", self.untied),
        ):
            if names:
                more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
                yield f"{what}: {', '.join(names[:_MOST])}{more}"


class TensorNames:
    """Names of one family with one head.

    Args:
        family: whose trunk it is.
        head: name of the head.
        fresh: layers that begin at random whatever the folder has.
        may_be_new: whether the head's parameters may begin at random.
    """

    def __init__(self, family: Family, head: str, fresh: Sequence[str], may_be_new: bool) -> None:
        self._family, self._fresh, self._new = family, fresh, may_be_new
        self._trunk = _rules(family.modules, family.tensors)
        self._heads = {name: _rules(each.modules, each.tensors) for name, each in family.heads.items()}
        self._head = head

    def take(self, tensors: Mapping[str, Array], types: Mapping[str, TensorType], ours: Mapping[str, Reading], where: str) -> Taken:
        """Find the value of every parameter.

        Args:
            tensors: of the folder.
            types: parameter -> type.
            ours: parameter -> how the model reads it; see `readings`.
            where: the folder, for errors.

        Raises:
            PeError: DATA; tensors are missing, unknown, of another shape or type, or differ where the model has one parameter.
        """
        if len(tensors) > _MOST_TENSORS:
            raise bad(f"{where} has {len(tensors):,} tensors, and models have {_MOST_TENSORS:,} at most", "name another folder")
        taken, unfit = Taken(), _Unfit()
        for full in sorted(tensors):
            found = self._found(self._bare(full), types)
            if found is None:
                why = self._why_left(self._bare(full))
                if why is None:
                    unfit.many.append(full)
                else:
                    taken.left[full] = why
            elif found[0].rpartition(".")[0] in self._fresh:
                taken.left[full] = "of another number of classes"
            else:
                _take(full, tensors[full], found, types[found[0]], ours.get(found[0], {}), taken, unfit)
        based = any(name.startswith(f"{self._family.base}.") for name in tensors)
        self._missing(taken, unfit, types, f"{self._family.base}." if based and self._family.base else "")
        said = "; ".join(unfit.lines())
        if said:
            raise bad(f"{where}: its tensors are not those of its config.json: {said}", "copy the folder again, or name another one")
        return taken

    def theirs(self, taken: Taken, tensors: Mapping[str, Array], types: Mapping[str, TensorType]) -> dict[str, dict[str, Any]]:
        """Return what each parameter is called there, with its shape and the layout of its axes there; see `weight_files.by_names`."""
        found = {}
        for name in types:
            own = [full for full in (taken.sources.get(name), *(full for full, ours in taken.tied.items() if ours == name)) if full]
            rules = [rule for rule in (*self._trunk, *self._heads[self._head]) if rule.source(name)]
            bare = {self._bare(full) for full in own}
            # What is tied may be in the folder once; a module of theirs has all of its names.
            of_head = [source for rule in self._heads[self._head] if (source := rule.source(name)) and source not in bare]
            tied = of_head if own and bare.isdisjoint(filter(None, (rule.source(name) for rule in self._heads[self._head]))) else []
            tied += [other for other in [self._family.heads[self._head].tied.get(name)] if other and other not in bare]
            rule = next((one for one in rules if one.source(name) in bare), rules[0] if rules else None)
            shape = list(tensors[own[0]].shape) if own else list(types[name].shape)
            found[name] = {"names": [*own, *tied] or of_head[:1], "shape": shape, "layout": rule.layout if rule is not None else ""}
        return found

    def _bare(self, name: str) -> str:
        base = f"{self._family.base}."
        return name.removeprefix(base) if self._family.base else name

    def _found(self, name: str, types: Mapping[str, TensorType]) -> tuple[str, _Rule] | None:
        for rule in (*self._trunk, *self._heads[self._head]):
            target = rule.target(name)
            if target is not None and target in types:
                return target, rule
        return None

    def _why_left(self, name: str) -> str | None:
        if name.endswith(".num_batches_tracked"):
            return COUNTER
        said = next((why for pattern, why in self._family.left.items() if matches(name, [pattern])), None)
        if said is not None:
            return said
        for head, rules in self._heads.items():
            if head != self._head and any(rule.target(name) for rule in rules):
                return f"of the head '{head}'"
        return None

    def _missing(self, taken: Taken, unfit: _Unfit, types: Mapping[str, TensorType], base: str) -> None:
        """Add what no tensor gives: it is new where it is of a head that the folder has not, and missing else."""
        own, trunk = self._heads[self._head], self._trunk
        for name in types:
            if name in unfit.found:
                continue
            of_head = any(rule.source(name) for rule in own) and not any(rule.source(name) for rule in trunk)
            if name.rpartition(".")[0] in self._fresh or (self._new and of_head):
                taken.new.append(name)
            else:
                of_trunk = next((f"{base}{found}" for rule in trunk if (found := rule.source(name))), None)
                unfit.missing.append(of_trunk or next((found for rule in own if (found := rule.source(name))), name))


def _take(
    full: str, given: Array, found: tuple[str, _Rule], kind: TensorType, ours: Reading, taken: Taken, unfit: _Unfit
) -> None:
    """Add one tensor to what is taken, or what is wrong with it to the rest."""
    target, rule = found
    value = _laid_out(given, rule, ours, kind.shape)
    unfit.found.add(target)
    if value is None:
        unfit.shapes.append(f"{full} is {list(given.shape)} there and makes {list(kind.shape)} here")
    elif value.dtype.name not in FLOATS:
        unfit.kinds.append(f"{full} is {value.dtype}")
    elif target not in taken.arrays:
        taken.arrays[target], taken.sources[target] = np.ascontiguousarray(value, kind.numpy), full
    elif np.array_equal(taken.arrays[target], value.astype(kind.numpy), equal_nan=True):
        taken.tied[full] = target
    else:
        unfit.untied.append(f"{full} and {taken.sources[target]}")


def _laid_out(value: Array, rule: _Rule, ours: Reading, shape: Sequence[int]) -> Array | None:
    """Return a tensor with its axes as the model has them; None where it has another shape."""
    if rule.insert and value.ndim > 1:
        value = np.expand_dims(value, rule.insert)
    if rule.flat and set(value.shape[len(shape) :]) <= {1}:
        value = value.reshape(value.shape[: len(shape)])
    made: Array | None = value
    if rule.layout and value.ndim > 1:
        made = turned(value, LAYOUTS[rule.layout], ours, tuple(shape)) if ours else value
    return made if made is not None and made.shape == tuple(shape) else None
