"""Saves the values of a run's variables in a checkpoint, and restores them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.devices.scope import Scope
from pe_cli.io.table_pieces import Pieces, Value
from pe_cli.program.ir import Role
from pe_cli.program.operator import UPDATES
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.processes.sharded_optimizer import Division, ShardedOptimizer

Array = np.ndarray[Any, Any]
#: Between a variable's name and the device, for copies that differ.
COPY = "@DEVICE@"


class Values:
    """The variables of programs in a scope.

    Args:
        built: the programs.
        scope: of all devices.
        group: processes that train together.
        division: what they divide.
    """

    def __init__(self, built: Built, scope: Scope, group: ProcessGroup | None = None, division: Division | None = None) -> None:
        self.built, self.scope = built, scope
        self._team = group or ProcessGroup()
        self._division = division or Division()
        self._divided = ShardedOptimizer(self._division.rows, scope, self._team)
        # Sums of gradients are 0 between steps and belong to no checkpoint.
        self._sums = {name for phase in built.phases if phase.parts for name in phase.parts.sums}

    def load(self, arrays: Mapping[str, Array], *, partial: bool = False) -> int:
        """Write values by name and return how many there were.

        Args:
            arrays: from a checkpoint or another file.
            partial: names on either side without a partner are left alone.

        Raises:
            PeError: names or shapes that do not fit (exit code 3).
        """
        known = [name for name in arrays if name in self.scope]
        unknown = [name for name in arrays if name not in self.scope]
        missing = [v.name for v in self.built.eval.persistables() if v.name not in arrays]
        if not partial and missing:
            raise PeError(
                f"the file has no value for {_some(missing)}", code=ExitCode.DATA, hint="it belongs to another model"
            )
        if partial and not known:
            hint = did_you_mean(unknown[0], list(self.scope)) if unknown else None
            raise PeError(
                f"no name in the file is a variable of this model: {_some(unknown)}", code=ExitCode.DATA, hint=hint
            )
        for name in known:
            # Sizes are checked by the scope, which names both.
            self.put(name, arrays[name])
        if not partial:
            self._set_copies(arrays)
        return len(known)

    def state(self) -> dict[str, Array]:
        """Return a copy of every variable of the training state; of those that differ between devices, every replica."""
        return self._copies()

    def _copies(self, but: Container[str] = ()) -> dict[str, Array]:
        found = {name: self.get(name) for name in self.scope if name not in self._sums and name not in but}
        apart, devices = self._apart(), len(self.scope.places)
        if apart:
            mine = {
                # Copies of one variable that differ by device have names of their own; the first device's has the plain one.
                _copy_of(n, self._number(d)): self.scope.get(n, d)
                for n in apart
                for d in range(devices)
                if self._number(d)
            }
            for copies in self._team.arrays(mine):
                found |= copies
        return found

    def save(self, root: Path) -> tuple[dict[str, Array], Pieces | None]:
        """Return what `state` does, without what others have written into a folder beside the checkpoints already.

        Args:
            root: folder of the checkpoints.
        """
        if not self._division.parameters:
            return self.state(), None
        from pe_cli.session.processes.sharded_checkpoint import save_parts

        pieces = save_parts(self._division.rows, self.scope, self._team, root)
        return self._copies(but=self._divided if pieces is not None else ()), pieces

    def share(self) -> None:
        """Give servers, where there are some, the values that training begins with."""

    def get(self, name: str) -> Array:
        """Return a variable's value; of what processes divide, all of them ask."""
        return self._divided.whole(name) if name in self._divided else self.scope.get(name)

    def put(self, name: str, value: Value) -> None:
        """Write a variable's value, of what processes divide this one's rows of it."""
        self.scope.set(name, self._divided.own(name, value) if name in self._divided else np.asarray(value))

    def copy(self, source: str, target: str) -> None:
        """Write a parameter's value to a variable of its state, whose rows are those of the parameter where both are divided."""
        value = self.scope.get(source)
        if source in self._division.parameters:
            self.scope.set(target, value)
        else:
            self.put(target, value)

    def change(self, name: str, value: Array) -> None:
        """Write the value of a variable that all processes change alike, between two steps."""
        self.scope.set(name, value)

    def _number(self, device: int) -> int:
        """Return the number of one of this process's devices among those of all."""
        return self._team.rank * len(self.scope.places) + device

    def digest(self) -> str:
        """Return what tells whether two processes have the same values, of those that do not differ between devices or processes."""
        mixed = hashlib.sha256()
        for name in sorted(n for n in set(self.scope) - set(self._apart()) - self._sums if n not in self._divided):
            # In order of name: processes may have made their variables in another order.
            mixed.update(name.encode() + np.array(self.scope.get(name), order="C").tobytes())
        return mixed.hexdigest()

    def restore(self, arrays: Mapping[str, Value], *, partial: bool = False) -> None:
        """Write what `state` returned, over initial values.

        Args:
            arrays: also of another number of devices: a device without its own copy takes the first one's.
            partial: the config has changed: names on either side without a partner are left alone, and constants, a learning
                rate for example, stay the config's.

        Raises:
            PeError: DATA; names, shapes or element types that do not fit.
        """
        constants = self._constants() if partial else set()
        missing = [n for n in self.scope if n not in arrays and n not in self._sums]
        unknown = [n for n in arrays if n.partition(COPY)[0] not in self.scope]
        if (missing or unknown) and not partial:
            what = f"no value for {_some(missing)}" if missing else f"{_some(unknown)}, which the model has not"
            raise PeError(f"the checkpoint has {what}", code=ExitCode.DATA, hint="it belongs to another model")
        # Constants come from the model of now and not from that of the file.
        for name in [n for n in self.scope if n in arrays and n not in constants]:
            if arrays[name].dtype != self.scope.type(name).numpy:
                text = f"'{name}' is {arrays[name].dtype} in the checkpoint and {self.scope.type(name)} in the model"
                raise PeError(text, code=ExitCode.DATA)
            self.put(name, arrays[name])
        self._set_copies(arrays)

    def _set_copies(self, arrays: Mapping[str, Value]) -> None:
        """Write what devices have of their own; one that the file has nothing for keeps the first device's."""
        for name in self._apart():
            for device in range(len(self.scope.places)):
                if _copy_of(name, self._number(device)) in arrays:
                    self.scope.set(name, np.asarray(arrays[_copy_of(name, self._number(device))]), device)

    def _written(self, roles: Collection[Role]) -> set[str]:
        """Return the variables that ops of some roles write in training."""
        return {n for op in self.built.ops if op.role in roles for n in op.output_names()}

    # What the steps themselves write, such as running statistics, every device writes from its own samples.
    def _apart(self) -> list[str]:
        """Return the variables that every device has its own value of: running statistics of its part of the batch."""
        written = self._written([role for role in Role if role not in UPDATES])
        return [n for n in self.scope if n in written and n not in self._sums and n not in self.scope.shared]

    def _constants(self) -> set[str]:
        """Return the variables that stay as they begin and are no parameters."""
        parameters = {p.name for p in self.built.eval.parameters()}
        return set(self.scope) - parameters - self._written(list(Role))

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the moving averages as parameters inside, where there are any."""
        values = self._averages()
        # Parameters are swapped for their averages and back, so that everything else sees the same scope.
        before = {name: self.scope.get(name) for name in values}
        for name, value in values.items():
            if value.shape == before[name].shape:  # of a sharded parameter these are rows already
                self.scope.set(name, value)
            else:
                self.put(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                self.scope.set(name, value)

    def _averages(self) -> dict[str, Array]:
        """Return the moving averages by parameter, nothing where there are none."""
        average, rows = self.built.average, self._division.rows
        if average is None or not set(average.averages.values()) <= set(self.scope):
            return {}
        alike = all(rows.get(parameter) == rows.get(mean) for parameter, mean in average.averages.items())
        return average.values(self.scope.get if alike else self.get)

    def with_averages(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the values of a checkpoint with parameters replaced by their moving averages, where there are any.

        Raises:
            PeError: DATA; there should be some.
        """
        average = self.built.average
        if average is None:
            return dict(arrays)
        if not {*average.averages.values(), *average.weights.values()} <= set(arrays):
            raise PeError(
                "the config has train.ema, but the file has no averages",
                code=ExitCode.DATA,
                hint="-o train.ema=null takes parameters as they are",
            )
        return {**arrays, **average.values(arrays.__getitem__)}


def _copy_of(name: str, device: int) -> str:
    """Return the name of a device's own copy of a variable in a checkpoint."""
    return f"{name}{COPY}{device}"


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{n}'" for n in names[:3])
    return listed + (f" and {len(names) - 3} more" if len(names) > 3 else "")
