"""Scope: name -> value for scripts, over the core's scopes: one for every set of places, kept in step by name.

A value lies in one or more *stores*: the host (what a script wrote) and the core scopes that programs ran in. Before a
run every variable that is newer elsewhere is copied; after a run what the program wrote is newest there. A training loop
on one set of places copies nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope as CoreScope
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, LoDTensorArray

#: Programs of whose variables a core scope remembers that they fit.
AGREED = 16
Places = tuple[Place, ...]
#: Which core scope: its places, and whether all devices share one copy of the parameters (Reduce on CPUs).
Key = tuple[Places, bool]


class ScopeTensor(LoDTensor):
    """The value of a variable of a scope: reads the newest, writes reach every device before the next run."""

    def __init__(self, scope: Scope, name: str) -> None:
        super().__init__()
        self._scope, self._name = scope, name

    def set(self, array: Any, place: Any = None) -> None:
        """Write a value; the next run has it on every device."""
        self._scope.write(self._name, np.array(array))

    def _value(self) -> np.ndarray[Any, Any]:
        return self._scope.read(self._name)

    def _is_initialized(self) -> bool:
        return self._scope.has_value(self._name)

    def _clear(self) -> None:
        self._scope.erase([self._name])


class ScopeVariable:
    """A variable of a scope."""

    def __init__(self, scope: Scope, name: str) -> None:
        self.name = name
        self._scope = scope
        self._tensor = ScopeTensor(scope, name)
        self._list = LoDTensorArray()

    def get_tensor(self) -> ScopeTensor:
        """Return its value."""
        return self._tensor

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """Return it as a list of tensors."""
        return self._list

    def is_initialized(self) -> bool:
        """Return whether it has a value."""
        return self._scope.has_value(self.name)


class Store:
    """A core scope with the executors prepared for it."""

    def __init__(self, places: Places) -> None:
        self.scope = CoreScope(places)
        self.executors: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
        self.agreed: list[Mapping[str, TensorType]] = []


class Scope:
    """Variables by name; a scope made by `new_scope` sees its parent's.

    Attributes:
        changes: counts what was written, or brought, to where it was not the newest.
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self._kids: list[Scope] = []
        self._variables: dict[str, ScopeVariable] = {}
        self._host: dict[str, np.ndarray[Any, Any]] = {}
        self._stores: dict[Key, Store] = {}
        self._newest: dict[str, set[Key | None]] = {}
        self.trained_on: Key | None = None
        self.changes = 0

    # --- what scripts call --------------------------------------------------------------------------------------------

    def var(self, name: str) -> ScopeVariable:
        """Return a variable of this scope, made on first need."""
        return self._variables.setdefault(name, ScopeVariable(self, name))

    def find_var(self, name: str) -> ScopeVariable | None:
        """Return a variable of this scope or of those above, None where there is none."""
        if name in self._variables:
            return self._variables[name]
        return self.parent.find_var(name) if self.parent else None

    def erase(self, names: list[str]) -> None:
        """Forget variables."""
        for name in names:
            self._variables.pop(name, None)
            self._host.pop(name, None)
            self._newest.pop(name, None)
        self.changes += 1

    def new_scope(self) -> Scope:
        """Return a scope below this one."""
        made = Scope(self)
        self._kids.append(made)
        return made

    def drop_kids(self) -> None:
        """Forget the scopes below."""
        self._kids.clear()

    def local_var_names(self) -> list[str]:
        """Return the names of this scope's own variables."""
        return list(self._variables)

    # --- values -------------------------------------------------------------------------------------------------------

    def root(self) -> Scope:
        """Return the topmost scope, where what lives between steps is kept."""
        return self.parent.root() if self.parent else self

    def has_value(self, name: str) -> bool:
        """Return whether a variable was ever written."""
        return bool(self._newest.get(name))

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Return a copy of a variable's newest value, device 0's.

        Raises:
            EnforceNotMet: it has none; a RuntimeError.
        """
        where = self._newest.get(name)
        if not where:
            hint = did_you_mean(name, [n for n in self._newest if n != name]) or "run the startup program first"
            raise EnforceNotMet(f"variable '{name}' has no value yet", hint=hint)
        # The host's value needs no copy from a device; where it is not the newest, `None` is not among the places.
        if None in where:
            return self._host[name].copy()
        return self._stores[next(iter(where))].scope.get(name)  # type: ignore[index]

    def rows(self, name: str, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return copies of some rows of a variable's newest value, device 0's, without a copy of all of them on CPUs."""
        where = self._newest.get(name) or {None}
        if None in where:
            # One may be there and not the newest; `read` then fetches it.
            whole = self._host[name] if name in self._host else self.read(name)
            return np.asarray(whole[numbers])
        scope = self._stores[next(iter(where))].scope  # type: ignore[index]
        spot = scope.spot(name, 0)
        view = getattr(spot.memory, "view", None)
        found: np.ndarray[Any, Any] = (view(spot.offset, scope.type(name)) if view else scope.get(name))[numbers]
        return found

    def put(self, name: str, begin: int, value: np.ndarray[Any, Any]) -> None:
        """Write some rows of a variable, from row `begin` on."""
        whole = self.read(name)
        whole[begin : begin + len(value)] = value
        self.write(name, whole)

    def write(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Write a value."""
        self.var(name)
        # Whatever cores held before is older from now on, and is brought again when a run needs it.
        self._host[name] = value
        self._newest[name] = {None}
        self.changes += 1

    def store(self, key: Key, types: Mapping[str, TensorType]) -> Store:
        """Return a core scope whose variables are of these types, or not there yet."""
        found = self._stores.get(key)
        # By identity: a step compares no types while the program stays the same.
        if found and any(types is known for known in found.agreed):  # as in a step before
            return found
        # The type changed: values that only this store has move to the host before it goes.
        if found and any(name in found.scope and found.scope.type(name) != kind for name, kind in types.items()):
            self._move_out(key)
            found = None
        if not found:
            found = self._stores[key] = Store(key[0])
        found.agreed = [types, *found.agreed[: AGREED - 1]]
        return found

    def _move_out(self, key: Key) -> None:
        """Keep what only one core scope has, and forget that: a variable changes its type."""
        for name, where in self._newest.items():
            if key in where:
                if where == {key}:
                    self._host[name] = self._stores[key].scope.get(name)
                    where.add(None)
                where.discard(key)
        del self._stores[key]
        self.changes += 1

    def bring(self, key: Key, names: Mapping[str, TensorType]) -> None:
        """Copy the newest values of variables to a core scope.

        Raises:
            FluidValueError: a value of another shape; a ValueError.
        """
        for name, kind in names.items():
            where = self._newest.get(name)
            if not where or key in where:
                continue
            value = self.read(name)
            # The original has no scalars; [1] and a number are the same variable.
            if value.size == kind.size and value.shape != kind.shape and {value.shape, kind.shape} <= {(), (1,)}:
                value = value.reshape(kind.shape)
            if value.shape != kind.shape:
                raise FluidValueError(
                    f"variable '{name}' is {list(value.shape)} in the scope and {kind} in the program"
                )
            self._stores[key].scope.set(name, value.astype(kind.numpy))
            where.add(key)
            self.changes += 1

    def drop_temporaries(self, program: Any, key: Key) -> None:
        """Forget the plans of a program, with their temporaries."""
        if key in self._stores:
            for prepared in self._stores[key].executors.get(program, {}).values():
                prepared.executor.drop()

    def wrote(self, key: Key, names: list[str]) -> None:
        """Say that a run wrote variables."""
        for name in names:
            self.var(name)
            self._host.pop(name, None)
            # The newest value is on these places alone: host and other stores are older now.
            self._newest[name] = {key}
        self.changes += bool(names)


# A stack, since guards nest; its first scope is the process's.
_STACK: list[Scope] = [Scope()]


def global_scope() -> Scope:
    """Return the scope that executors use by default."""
    return _STACK[-1]


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make another scope the default inside."""
    _STACK.append(scope)
    try:
        yield
    finally:
        _STACK.pop()
