"""Sharded updates over processes (reduce_strategy Reduce): each process updates its rows of a parameter and keeps their optimizer state.

The program of a process is rewritten before any other pass. An update whose rows do not depend on each other (`RowsApart`) reads and
writes this process's rows alone, which `take_rows` copies out of the parameter and its gradient; its state has no other rows. At the end
`put_rows` puts them back, and processes give each other theirs. `replicate` adds what crosses between processes.

What looks at whole gradients, a global norm for example, gets them whole. A parameter whose update looks at all of it, as that of LARS
does, has one process that updates it. Tables with row-sparse gradients are updated by every process, as with AllReduce: they move by
few rows, and handing out all would take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType, product
from pe_cli.ops.define.traits import Folds, Pointwise, Random, RowsApart
from pe_cli.program.ir import Block, Operator, Program, Role

#: Of each process, its first row along axis 0 and the row after its last.
Rows = tuple[tuple[int, int], ...]
#: Ends the name of the rows of a variable that are this process's own.
OWN = "@OWN"
#: Ends the name of all rows of a variable of which this process keeps its own.
WHOLE = "@WHOLE"


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
            return "owners: every process does all updates"
        return f"owners: processes share the updates of {len(self.rows)} parameters, and divide {len(self.state)} variables of state"


def share_rows(sizes: Sequence[tuple[int, int]], size: int, whole: Collection[int] = ()) -> list[Rows]:
    """Divide the rows of parameters so that the weights of all processes differ by no more than one row.

    Args:
        sizes: for each parameter its number of rows and the weight of a row, such as its bytes.
        size: number of processes.
        whole: indices in `sizes` of parameters that are not divided; they are dealt first, each to the process with the least so far.

    >>> share_rows([(3, 1), (5, 1)], 2)
    [((0, 2), (2, 3)), ((0, 2), (2, 5))]
    >>> share_rows([(3, 1), (5, 1)], 2, whole=[1])
    [((0, 0), (0, 3)), ((0, 5), (5, 5))]
    """
    from pe_cli.collectives.reduce_scatter import order

    ranks, load, total = order(size), [0] * size, 0
    found: dict[int, Rows] = {}
    # Whole parameters go first, as the pieces of the others can even out what they cost.
    for i in sorted(range(len(sizes)), key=lambda i: i not in whole):
        rows, weight = sizes[i]
        total += rows * weight
        # In whole numbers: floating-point shares could differ by a row between processes of other machines.
        lacking = [max(0, total - size * n) for n in load]  # times size, so that all are whole numbers
        if i in whole:
            # A whole one goes to whoever has least so far.
            lacking = [int(p == load.index(min(load))) for p in range(size)]
        share = sum(lacking) or 1
        # Rounded cuts are cumulative, so that rounding never adds up to a row too many.
        cuts = [0, *((2 * n * rows + share) // (2 * share) for n in accumulate(lacking))]
        # In the order of the tree of sums, so that neighbours in the tree have neighbouring rows.
        mine = {rank: (cuts[p], cuts[p + 1]) for p, rank in enumerate(ranks)}
        found[i] = tuple(mine[rank] for rank in range(size))
        load = [n + (cuts[p + 1] - cuts[p]) * weight for p, n in enumerate(load)]
    return [found[i] for i in range(len(sizes))]


def own_rows(program: Program, rank: int, size: int) -> Owned:
    """Return a training program in which this process updates its own rows alone; one without updates stays as it is.

    Args:
        program: with gradients and updates; not changed.
        rank: of this process.
        size: processes.
    """
    made = program.clone()
    found = _Finder(made.main_block)
    touched = list(dict.fromkeys(found.of[op] for op in found.owned))
    kinds = [found.block.vars[name].type for name in touched]
    whole = [i for i, name in enumerate(touched) if name in found.whole]
    rows = share_rows([(t.shape[0], t.nbytes // t.shape[0]) for t in kinds], size, whole)
    return _Rewriter(found, dict(zip(touched, rows, strict=True)), rank).run(made)


def own_startup(startup: Program, state: Mapping[str, Rows], rank: int) -> Program:
    """Return a startup program that gives this process its own rows of what is divided; first values are those of the whole.

    Args:
        startup: not changed.
        state: variable -> who has which rows.
        rank: of this process.
    """
    made = startup.clone()
    block = made.main_block
    ops: list[Operator] = []
    for op in block.ops:
        ops.append(op)
        for name in [n for n in op.output_names() if n in state]:
            whole = block.vars[name].type
            block.vars[name].type = mine = own_type(whole, state[name], rank)
            if (number := op.definition.get(Folds)) is not None and number.alone and not op.input_names():
                op.attrs["shape"] = list(mine.shape)
                continue
            given = f"{name}{WHOLE}"
            block.create_var(given, whole)
            op.outputs = {slot: [given if n == name else n for n in names] for slot, names in op.outputs.items()}
            ops.append(Operator("take_rows", {"X": [given]}, {"Out": [name]}, attributes(state[name], rank), op.role, at=op.at))
    block.ops = ops
    return made


def drawn_values(startup: Program) -> set[str]:
    """Return the variables to which a startup program gives values that it draws, also where this process takes its rows of them."""
    return {n.removesuffix(WHOLE) for op in startup.top_ops if op.definition.has(Random) for n in op.output_names()}


def rows_by_rank(op: Operator) -> Rows:
    """Return who has which rows of what `take_rows` takes, or `put_rows` gives."""
    flat = op.attrs["rows"]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def own_type(whole: TensorType, rows: Rows, rank: int) -> TensorType:
    """Return the type of a process's own rows of a variable."""
    begin, end = rows[rank]
    return whole.with_shape(end - begin, *whole.shape[1:])


def attributes(rows: Rows, rank: int) -> dict[str, object]:
    """Return the attributes of an op that moves a process's own rows."""
    return {"rows": [n for pair in rows for n in pair], "rank": rank}


class _Finder:
    """Finds the updates that processes share.

    Attributes:
        gradients: gradient -> parameter, without row-sparse gradients.
        param: variable that belongs to a parameter -> the parameter: its gradient, state, and what is made of these.
        of: op -> the parameter that it belongs to.
        owned: ops that every process runs for its own rows alone.
        whole: parameters that one process updates as a whole.
        divided: variables of which a process has its own rows alone.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.gradients = _gradients(block)
        self.param = {p.name: p.name for p in block.parameters()} | self.gradients
        self.of: dict[Operator, str] = {}
        self._users: dict[str, list[Operator]] = {}
        for op in block.ops:
            # Users of every variable, because state may be divided only if nothing else ever looks at it.
            for n in {*op.input_names(), *op.output_names()}:
                self._users.setdefault(n, []).append(op)
            if op.role is Role.OPTIMIZE and (name := self._belongs(op)):
                self.of[op] = name
                self.param |= {n: name for n in op.output_names() if n not in self.param}
        apart = self._closed([op for op in self.of if self._apart(op)], self._shaped)
        self.whole = self._of_one(apart)
        alone = self._closed([op for op in self.of if self.of[op] in self.whole], self._made)
        self.owned = [*(op for op in apart if self.of[op] not in self.whole), *alone]
        able = set(self.owned)
        kept = (n for op in self.owned for n in (self._made(op) if self.of[op] in self.whole else self._shaped(op)))
        self.divided = {n for n in kept if able.issuperset(self._users[n])}

    def _belongs(self, op: Operator) -> str | None:
        """Return the parameter that an op's variables belong to; None where they belong to several, or to none."""
        names = {self.param[n] for n in (*op.input_names(), *op.output_names()) if n in self.param}
        # Numbers of one element, such as a learning rate, are the same for every row.
        return names.pop() if len(names) == 1 else None

    def has_rows(self, name: str, parameter: str) -> bool:
        """Return whether a variable has the shape of a parameter."""
        return self.block.vars[name].type.shape == self.block.vars[parameter].type.shape

    def _apart(self, op: Operator) -> bool:
        """Return whether every row that an op writes depends on that row of its inputs alone."""
        shape = self.block.vars[self.of[op]].type.shape
        others = [n for n in (*op.input_names(), *op.output_names()) if not self.has_rows(n, self.of[op])]
        able = op.definition.has(RowsApart) or op.definition.has(Pointwise)
        alone = all(self.block.vars[n].type.size == 1 for n in others) and not op.inputs.get("Rows")
        return able and alone and -1 not in shape and product(shape) > 1

    def _of_one(self, apart: Sequence[Operator]) -> set[str]:
        """Return the parameters that are to be updated by one process, as their updates look at more than single rows."""
        able, found = set(apart), set[str]()
        for name in dict.fromkeys(self.gradients.values()):
            ops = [op for op in self.of if self.of[op] == name]
            closed = self._closed(ops, self._made)
            writing = {op for op in ops if name in op.output_names()}
            more = any(self.block.vars[n].persistable for op in closed if op not in able for n in op.output_names())
            # Drawn numbers depend on the element's place in the whole: one process drawing for its rows would draw others.
            drawn = any(op.definition.has(Random) for op in ops)  # by the names of variables, and what is drawn needs no state
            if more and writing <= {*closed} and not drawn and self.block.vars[name].type.shape:
                found.add(name)
        return found

    def _closed(self, ops: Sequence[Operator], kept: Callable[[Operator], set[str]]) -> list[Operator]:
        """Return the ops whose divided variables, `kept(op)`, are used by none but ops that are returned, too."""
        left = [*ops]
        # Leaving an op out may leave a variable to a user that is not owned, which takes away further ops.
        while True:
            able = set(left)
            found = [op for op in left if all(able.issuperset(self._users[n]) for n in kept(op) & {*op.output_names()})]
            if len(found) == len(left):
                return found
            left = found

    def _made(self, op: Operator) -> set[str]:
        """Return the variables of an op that belong to its parameter, without the parameter itself."""
        return {n for n in (*op.input_names(), *op.output_names()) if self.param.get(n) == self.of[op] != n}

    def _shaped(self, op: Operator) -> set[str]:
        """Return the variables that belong to an op's parameter and have its shape."""
        return {n for n in self._made(op) if self.has_rows(n, self.of[op])}


def _gradients(block: Block) -> dict[str, str]:
    """Return gradient -> parameter, without row-sparse gradients."""
    found = {}
    for op in block.ops:
        if op.role in (Role.BACKWARD, Role.LOSS):
            for parameter, gradient in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
                if block.vars[gradient].type == block.vars[parameter].type:
                    found[gradient] = parameter
    return found


@dataclass
class _Rewriter:
    """Lets updates work on a process's own rows.

    Args:
        found: which updates do.
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
            rows = self._rows_of(name)
            variable.type = own_type(variable.type, rows, self.rank)
            if variable.persistable:
                state[name] = rows
        owned = set(found.owned)
        block.ops = [*(made for op in block.ops for made in (self._own(op) if op in owned else self._whole(op))), *self._put([*self.ahead])]
        return Owned(program, self.rows, state)

    def _rows_of(self, name: str) -> Rows:
        """Return the rows of a variable that each process has: those of its parameter, or all where the process has the whole parameter."""
        parameter = self.found.param[name]
        rows, shape = self.rows[parameter], self.found.block.vars[name].type.shape
        if parameter not in self.found.whole:
            return rows
        return tuple((0, shape[0]) if end > begin else (0, 0) for begin, end in rows)

    def _own(self, op: Operator) -> Iterator[Operator]:
        """Yield an op that works on this process's rows, after the ops that take these rows; no such op where the process has no row."""
        found, parameter = self.found, self.found.of[op]
        shaped = (n for n in (*op.input_names(), *op.output_names()) if found.param.get(n) == parameter and found.has_rows(n, parameter))
        names = {n: n + OWN for n in shaped if n not in found.divided}
        # Rows are taken right before their first use, and are valid until something writes the whole variable.
        for n in dict.fromkeys(op.input_names()):
            if n in names and n not in self.taken:
                yield self._move("take_rows", n, {"X": [n]}, {"Out": [names[n]]}, op)
                self.taken.add(n)
        for n in op.output_names():
            if n in names:
                self._declare(n)
                self.taken.add(n)
                self.ahead[n] = None
        begin, end = self.rows[parameter][self.rank]
        # The process without rows of a whole parameter runs no update of it at all.
        if parameter in found.whole and begin == end:
            return
        for slots in (op.inputs, op.outputs):
            for slot, used in slots.items():
                slots[slot] = [names.get(n, n) for n in used]
        yield op

    def _whole(self, op: Operator) -> Iterator[Operator]:
        """Yield an op that works on whole variables, after the ops that make the variables that it reads whole again."""
        # Readers of the whole variable find this process's new rows in it; the others' come with the exchange.
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
            mine = own_type(whole.type, self.rows[self.found.param[name]], self.rank)
            block.create_var(name + OWN, mine, stop_gradient=True, at=whole.at)

    def _move(
        self, kind: str, name: str, ins: dict[str, list[str]], outs: dict[str, list[str]], like: Operator | None
    ) -> Operator:
        self._declare(name)
        attrs = attributes(self.rows[self.found.param[name]], self.rank)
        pair = next(([p, g] for g, p in self.found.gradients.items() if p == name and name in outs.get("Out", ())), [])
        at, scope = self.found.block.vars[name].at, like.scope if like else ""
        return Operator(kind, ins, outs, attrs, Role.OPTIMIZE, pair, at, scope)
