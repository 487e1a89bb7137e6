"""Reads the text that text.py writes."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType, check_dtype
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import HasRegions
from pe_cli.program.ir import EMPTY, Block, Operator, Program, Role
from pe_cli.program.json_values import FLAGS, declare, decode
from pe_cli.program.line import Line
from pe_cli.program.region import MAX_DEPTH, Region

#: Characters of text that are read at most.
MAX_CHARACTERS = 1 << 26


def parse_program(text: str, file: str = "program") -> Program:
    """Return the program of a text.

    Args:
        text: as `print_program` writes it; lines that are empty or start with # are skipped.
        file: name for errors.

    Raises:
        PeError: the text does not follow the form; with its line and column.
    """
    if len(text) > MAX_CHARACTERS:
        raise PeError(f"{file} has {len(text)} characters, more than {MAX_CHARACTERS}")
    reader = _Reader(file)
    for number, row in enumerate(text.split("\n"), 1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        line = Line(file, number, row)
        try:
            # Whatever is left on a line is a mistake: nothing is read and dropped.
            reader.read(line)
            line.end()
        except PeError as error:
            error.at = error.at or line.span()
            raise
    return reader.program()


class _Reader:
    """Reads lines, one after the other."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._program: Program | None = None
        self._inside: list[_Inside] = []

    def read(self, line: Line) -> None:
        """Take a line."""
        if self._program is None:
            self._program = _head(line)
        elif line.peek() == "region" or (self._inside and line.peek() == "like"):
            block = self._inside[-1].block if self._inside else _last(self._program, line)
            self._inside.append(_begin(block, line, len(self._inside)))
        elif self._inside and line.peek() == "end":
            line.word()
            _close(self._inside.pop(), self._inside, line)
        elif self._inside:
            _statement(self._inside[-1].block, line)
        else:
            _body(self._program, line)

    def program(self) -> Program:
        """Return the program that the lines describe.

        Raises:
            PeError: the lines hold no program, no block, or end inside a region.
        """
        if self._program is None:
            raise PeError(f"{self._file} has no program", hint='it starts with: program "name"')
        if not self._program.blocks:
            raise PeError(f"{self._file} has no block", hint="write: block 0")
        if self._inside:
            raise PeError(f"{self._file} ends inside the region {self._inside[-1].attr}", hint="write: end")
        return self._program


@dataclass
class _Inside:
    """A region that is being read.

    Args:
        attr: what it is of its operator; empty for one that another region is like.
        block: its own.
        args, results: names.
        op: that has it.
        steps: of one that another is like.
        like: what was read of the region that it is like.
    """

    attr: str
    block: Block
    args: tuple[str, ...]
    results: tuple[str, ...]
    op: Operator | None = None
    steps: int = 0
    like: tuple[Region, int] | None = None


def _begin(block: Block, line: Line, depth: int) -> _Inside:
    like = line.word() == "like"
    # Depth is bounded here, because regions are read by recursion later.
    if depth >= MAX_DEPTH:
        raise line.error(f"regions are nested more than {MAX_DEPTH} levels deep")
    if like:
        return _region(line, block, "", None, line.integer())
    if not block.ops:
        raise line.error("a region before the first operator", "it belongs to the operator above it")
    op, attr = block.ops[-1], line.word()
    known = op.definition.get(HasRegions)
    if known is None or attr not in known.attrs:
        raise line.error(f"op '{op.type}' has no region '{attr}'", did_you_mean(attr, known.attrs if known else ()))
    return _region(line, block, attr, op)


def _region(line: Line, around: Block, attr: str, op: Operator | None, steps: int = 0) -> _Inside:
    line.expect("(")
    args = line.names(")")
    line.expect(")")
    line.expect("->")
    program = Program(f"{around.program.name}/region")
    return _Inside(attr, program.main_block, tuple(args), tuple(line.names("")), op, steps)


def _close(found: _Inside, around: list[_Inside], line: Line) -> None:
    for name in (*found.args, *found.results):
        # Checked when the region ends: its variables are declared inside, in any order.
        if name not in found.block.vars:
            raise line.error(f"the region {found.attr} has no variable '{name}'", did_you_mean(name, found.block.vars))
    like, steps = found.like or (None, 0)
    made = Region(found.block.program, found.args, found.results, like, steps)
    if found.op is not None:
        found.op.attrs[found.attr] = made
    else:
        around[-1].like = made, found.steps


def _last(program: Program, line: Line) -> Block:
    if not program.blocks:
        raise line.error("a region before the first block", "write: block 0")
    return program.blocks[-1]


def _head(line: Line) -> Program:
    line.expect("program")
    program = Program(line.word())
    program.blocks = []
    while not line.done():
        word = line.word()
        if word == "seed":
            program.random_seed = line.integer()
        elif word == "test":
            program.is_test = True
        else:
            raise line.error(f"unknown word '{word}' after the program's name", "seed N or test")
    return program


def _body(program: Program, line: Line) -> None:
    word = line.word()
    if word == "block":
        index = line.integer()
        if index != len(program.blocks):
            raise line.error(f"block {index} comes after {len(program.blocks)} blocks", "number them from 0")
        made = Block(program, index)
        if not line.done():
            line.expect("after")
            made.parent_idx = line.integer()
            if not 0 <= made.parent_idx < index:
                raise line.error(f"block {index} follows block {made.parent_idx}", "one that stands before it")
        program.blocks.append(made)
        return
    if not program.blocks:
        raise line.error(f"'{word}' before the first block", "write: block 0")
    _statement(program.blocks[-1], line, word)


def _statement(block: Block, line: Line, first: str = "") -> None:
    """Read a variable or an operator."""
    word = first or line.word()
    if word in ("var", "param"):
        _declare(block, line, line.word(), parameter=word == "param", alone=True)
        return
    roles = [r.value for r in Role]
    if word not in roles:
        known = ["block", "var", "param", *roles]
        raise line.error(f"unknown word '{word}'", did_you_mean(word, known) or f"one of {', '.join(known)}")
    block.ops.append(_operator(block, line, Role(word)))


def _operator(block: Block, line: Line, role: Role) -> Operator:
    definition = find(line.word())
    at = line.span()
    line.expect("(")
    ins = _slots(block, line, ")")
    line.expect(")")
    # As for programs from files of other formats, an op with slots it does not have would fail in a kernel.
    line.expect("->")
    outs = _slots(block, line, "{")
    for given, known, what in ((ins, definition.inputs, "input"), (outs, definition.outputs, "output")):
        for slot in given:
            if slot not in {s.name for s in known}:
                hint = did_you_mean(slot, [s.name for s in known])
                raise line.error(f"op '{definition.name}' has no {what} '{slot}'", hint)
    attrs = definition.check_attrs(decode(line.json())) if line.peek() == "{" else definition.check_attrs({})
    # The order of these words is free.
    role_vars: list[str] = []
    scope, segment = "", 0
    while not line.done():
        word = line.word()
        line.expect("(")
        if word == "vars":
            role_vars = line.names(")")
        elif word == "scope":
            scope = line.word()
        elif word == "segment":
            segment = line.integer()
        else:
            raise line.error(f"unknown word '{word}' after an operator", "vars(...), scope(...) or segment(...)")
        line.expect(")")
    for name in (n for names in ins.values() for n in names):
        if name != EMPTY:
            block.var(name)
    return Operator(definition.name, ins, outs, attrs, role, role_vars, at, scope, segment)


def _slots(block: Block, line: Line, end: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    while not line.done() and line.peek() not in (end, "vars", "scope", "segment"):
        slot = line.word()
        line.expect("=")
        if slot in found:
            raise line.error(f"slot '{slot}' stands twice")
        if line.peek() == "[":
            line.expect("[")
            found[slot] = []
            while line.peek() not in ("]", ""):
                found[slot].append(_variable(block, line))
                if line.peek() != "]":
                    line.expect(",")
            line.expect("]")
        else:
            found[slot] = [_variable(block, line)]
        if line.peek() != ",":
            break
        line.expect(",")
    return found


def _variable(block: Block, line: Line) -> str:
    name = line.word()
    if line.peek() == ":":
        _declare(block, line, name, parameter=False)
    elif name != EMPTY:
        block.var(name)
    return name


def _declare(block: Block, line: Line, name: str, *, parameter: bool, alone: bool = False) -> None:
    line.expect(":")
    kind = _type(line)
    facts: dict[str, Any] = {}
    while line.peek() in FLAGS:
        facts[line.word()] = True
    if alone and line.peek() == "{":  # behind an op's output stand the op's attributes
        facts |= line.json()
    declare(block, name, kind, facts, parameter=parameter)


def _type(line: Line) -> TensorType:
    dtype = check_dtype(line.word())
    line.expect("[")
    sizes = [-1 if n == "batch" else line.number(n) for n in line.names("]")]
    line.expect("]")
    return TensorType(tuple(sizes), dtype)
