"""reduce_strategy Reduce over processes: each process updates its own rows of every parameter, and keeps the optimizer's state of those.

The program of a process is rewritten before any other pass. An update whose rows do not depend on each other (`RowsApart`) reads and writes
this process's rows alone, which `take_rows` copies out of the parameter and its gradient; the state has no other rows. At the end `put_rows`
puts them back, and processes give each other theirs. `replicate` adds what crosses between processes.

What looks at whole gradients, a global norm for example, gets them whole. What looks at whole parameters, as LARS does, is done by
every process, as with AllReduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pe_cli.collectives.parts import order
from pe_cli.core.types import TensorType
from pe_cli.ops.define.traits import Pointwise, RowsApart
from pe_cli.program.ir import Block, Operator, Parameter, Program, Role

#: Of each process, its first row along axis 0 and the row after its last.
Rows = tuple[tuple[int, int], ...]
#: Ends the name of the rows of a variable that are this process's own.
OWN = "@OWN"


@dataclass(frozen=True)
class Owned:
    """A program in which processes share the updates.

    Args:
        program: of this process.
        rows: parameter -> who updates which rows.
        state: variable that lives between steps -> who has which rows of it.
    """

    program: Program
    rows: Mapping[str, Rows]
    state: Mapping[str, Rows]

    @property
    def sentence(self) -> str:
        """What was done."""
        if not self.rows:
            return "owners: no update goes row by row, so that every process does all of them"
        return f"owners: {len(self.rows)} parameters are updated by rows, and {len(self.state)} variables of state are divided with them"


def share_rows(sizes: Sequence[tuple[int, int]], size: int) -> list[Rows]:
    """Divide the rows of parameters so that all processes get as much, to a row of one parameter.

    Args:
        sizes: of each parameter: rows, and what a row weighs, bytes for example.
        size: processes.

    >>> share_rows([(3, 1), (5, 1)], 2)
    [((0, 2), (2, 3)), ((0, 2), (2, 5))]
    """
    ranks, load, total, found = order(size), [0] * size, 0, []
    for rows, weight in sizes:
        total += rows * weight
        lacking = [max(0, total - size * n) for n in load]  # times size, so that all are whole numbers
        whole = sum(lacking) or 1
        cuts = [0, *((2 * n * rows + whole) // (2 * whole) for n in accumulate(lacking))]
        mine = {rank: (cuts[i], cuts[i + 1]) for i, rank in enumerate(ranks)}
        found.append(tuple(mine[rank] for rank in range(size)))
        load = [n + (cuts[i + 1] - cuts[i]) * weight for i, n in enumerate(load)]
    return found


def own_rows(program: Program, rank: int, size: int) -> Owned:
    """Return a training program in which this process updates its own rows alone; one without updates stays as it is.

    Args:
        program: with gradients and updates; not changed.
        rank: of this process.
        size: processes.
    """
    made = program.clone()
    found = _Finder(made.global_block())
    touched = list(dict.fromkeys(found.of[op] for op in found.owned))
    kinds = [found.block.vars[name].type for name in touched]
    rows = share_rows([(t.shape[0], t.nbytes // t.shape[0]) for t in kinds], size)
    return _Rewriter(found, dict(zip(touched, rows, strict=True)), rank).run(made)


def own_startup(startup: Program, state: Mapping[str, Rows], rank: int) -> Program:
    """Return a startup program that gives this process its own rows of what is divided; first values are those of the whole.

    Args:
        startup: not changed.
        state: variable -> who has which rows.
        rank: of this process.
    """
    made = startup.clone()
    block = made.global_block()
    ops: list[Operator] = []
    for op in block.ops:
        ops.append(op)
        for name in [n for n in op.output_names() if n in state]:
            whole = block.vars[name].type
            begin, end = state[name][rank]
            block.vars[name].type = mine = whole.with_shape(end - begin, *whole.shape[1:])
            if op.type == "fill_constant" and not op.input_names():
                op.attrs["shape"] = list(mine.shape)
                continue
            given = f"{name}@WHOLE"
            block.create_var(given, whole)
            op.outputs = {slot: [given if n == name else n for n in names] for slot, names in op.outputs.items()}
            ops.append(Operator("take_rows", {"X": [given]}, {"Out": [name]}, _attrs(state[name], rank), op.role, at=op.at))
    block.ops = ops
    return made


def rows_by_rank(op: Operator) -> Rows:
    """Return who has which rows of what `take_rows` takes, or `put_rows` gives."""
    flat = op.attrs["rows"]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _attrs(rows: Rows, rank: int) -> dict[str, object]:
    return {"rows": [n for pair in rows for n in pair], "rank": rank}


class _Finder:
    """Finds the updates that go row by row.

    Attributes:
        param: variable with the rows of a parameter -> the parameter.
        of: op -> the parameter that it belongs to.
        owned: ops of which a process does its own rows.
        divided: variables that are nowhere whole.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.param = {p.name: p.name for p in block.parameters()} | self._gradients()
        self.of: dict[Operator, str] = {}
        for op in block.ops:
            if op.role is Role.OPTIMIZE and (name := self._belongs(op)):
                self.of[op] = name
                self.param |= {n: name for n in (*op.input_names(), *op.output_names()) if self._has_rows(n, name)}
        self.owned = [op for op in self.of if self._apart(op)]
        self._users: dict[str, list[Operator]] = {}
        for op in block.ops:
            for n in {*op.input_names(), *op.output_names()}:
                self._users.setdefault(n, []).append(op)
        self.divided: set[str] = set()
        while True:
            able = set(self.owned)
            self.divided = {n for op in able for n in self._kept(op) if able.issuperset(self._users[n])}
            left = [op for op in self.owned if self.divided.issuperset(set(op.output_names()) & self._kept(op))]
            if len(left) == len(self.owned):
                return
            self.owned = left

    def _gradients(self) -> dict[str, str]:
        found = {}
        for op in self.block.ops:
            if op.role in (Role.BACKWARD, Role.LOSS):
                for parameter, gradient in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
                    if self.block.vars[gradient].type == self.block.vars[parameter].type:
                        found[gradient] = parameter
        return found

    def _belongs(self, op: Operator) -> str | None:
        """Return the one parameter that an op is about."""
        names = {self.param[n] for n in (*op.input_names(), *op.output_names()) if n in self.param}
        return names.pop() if len(names) == 1 else None

    def _has_rows(self, name: str, parameter: str) -> bool:
        return self.block.vars[name].type.shape == self.block.vars[parameter].type.shape

    def _apart(self, op: Operator) -> bool:
        """Whether what an op makes of a row depends on that row alone."""
        shape = self.block.vars[self.of[op]].type.shape
        others = [n for n in (*op.input_names(), *op.output_names()) if not self._has_rows(n, self.of[op])]
        able = op.definition.has(RowsApart) or op.definition.has(Pointwise)
        alone = all(self.block.vars[n].type.size == 1 for n in others) and not op.inputs.get("Rows")
        return able and alone and -1 not in shape and _elements(shape) > 1

    def _kept(self, op: Operator) -> set[str]:
        """Return the variables of an op that have rows and are no parameter."""
        names = (*op.input_names(), *op.output_names())
        return {n for n in names if self.param.get(n) == self.of[op] != n and not isinstance(self.block.vars[n], Parameter)}


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


@dataclass
class _Rewriter:
    """Lets updates work on a process's own rows.

    Args:
        found: which do.
        rows: parameter -> who updates which rows.
        rank: of this process.
    """

    found: _Finder
    rows: Mapping[str, Rows]
    rank: int
    taken: set[str] = field(default_factory=set)
    ahead: dict[str, None] = field(default_factory=dict)

    def run(self, program: Program) -> Owned:
        found, block = self.found, self.found.block
        state = {}
        for name in sorted(found.divided):
            variable = block.vars[name]
            rows = self.rows[found.param[name]]
            variable.type = self._mine(variable.type, rows)
            if variable.persistable:
                state[name] = rows
        owned = set(found.owned)
        block.ops = [*(made for op in block.ops for made in (self._own(op) if op in owned else self._whole(op))), *self._put([*self.ahead])]
        return Owned(program, self.rows, state)

    def _mine(self, whole: TensorType, rows: Rows) -> TensorType:
        begin, end = rows[self.rank]
        return whole.with_shape(end - begin, *whole.shape[1:])

    def _own(self, op: Operator) -> Iterator[Operator]:
        """Yield an op over this process's rows, behind what takes them."""
        names = {n: n + OWN for n in (*op.input_names(), *op.output_names()) if n in self.found.param and n not in self.found.divided}
        for n in dict.fromkeys(op.input_names()):
            if n in names and n not in self.taken:
                yield self._move("take_rows", n, {"X": [n]}, {"Out": [names[n]]}, op)
                self.taken.add(n)
        for n in op.output_names():
            if n in names:
                self._declare(n)
                self.taken.add(n)
                self.ahead[n] = None
        for slots in (op.inputs, op.outputs):
            for slot, used in slots.items():
                slots[slot] = [names.get(n, n) for n in used]
        yield op

    def _whole(self, op: Operator) -> Iterator[Operator]:
        """Yield an op that reads and writes whole variables, behind what makes those whole that it reads."""
        yield from self._put([n for n in self.ahead if n in op.input_names()])
        for n in op.output_names():
            self.taken.discard(n)
            self.ahead.pop(n, None)
        yield op

    def _put(self, names: Sequence[str]) -> Iterator[Operator]:
        for n in names:
            yield self._move("put_rows", n, {"X": [n], "Rows": [n + OWN]}, {"Out": [n]}, None)
            del self.ahead[n]

    def _declare(self, name: str) -> None:
        block = self.found.block
        if name + OWN not in block.vars:
            whole = block.vars[name]
            block.create_var(name + OWN, self._mine(whole.type, self.rows[self.found.param[name]]), stop_gradient=True, at=whole.at)

    def _move(
        self, kind: str, name: str, ins: dict[str, list[str]], outs: dict[str, list[str]], like: Operator | None
    ) -> Operator:
        self._declare(name)
        attrs = _attrs(self.rows[self.found.param[name]], self.rank)
        at = self.found.block.vars[name].at
        return Operator(kind, ins, outs, attrs, Role.OPTIMIZE, at=at, scope=like.scope if like else "")
