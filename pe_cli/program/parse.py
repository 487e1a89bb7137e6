"""Reads the text that text.py writes."""

from __future__ import annotations

import re
from typing import Any

from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.types import TensorType, check_dtype
from pe_cli.ops.registry import find
from pe_cli.program.ir import EMPTY, Block, Operator, Program, Role
from pe_cli.program.portable import FLAGS, declare, decode, read_json

_TOKEN = re.compile(r'\s*(?:(->)|([\w.@/+-]+)|("(?:[^"\\]|\\.)*")|([(){}\[\]=:,]))')
#: Characters of text that are read at most.
MAX_CHARACTERS = 1 << 26
#: Digits of a size, a seed or a number of a block: what int64 holds.
_DIGITS = 19


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
    program: Program | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        reader = _Line(file, number, line)
        try:
            if program is None:
                program = _head(reader)
            else:
                _body(program, reader)
            reader.end()
        except PeError as error:
            error.at = error.at or reader.span()
            raise
    if program is None:
        raise PeError(f"{file} has no program", hint='it starts with: program "name"')
    if not program.blocks:
        raise PeError(f"{file} has no block", hint="write: block 0")
    return program


def _head(line: _Line) -> Program:
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


def _body(program: Program, line: _Line) -> None:
    word = line.word()
    if word == "block":
        index = line.integer()
        if index != len(program.blocks):
            raise line.error(f"block {index} comes after {len(program.blocks)} blocks", "number them from 0")
        program.blocks.append(Block(program, index))
        return
    if not program.blocks:
        raise line.error(f"'{word}' before the first block", "write: block 0")
    block = program.blocks[-1]
    if word in ("var", "param"):
        _declare(block, line, line.word(), parameter=word == "param", alone=True)
        return
    roles = [r.value for r in Role]
    if word not in roles:
        known = ["block", "var", "param", *roles]
        raise line.error(f"unknown word '{word}'", did_you_mean(word, known) or f"one of {', '.join(known)}")
    block.ops.append(_operator(block, line, Role(word)))


def _operator(block: Block, line: _Line, role: Role) -> Operator:
    definition = find(line.word())
    line.expect("(")
    ins = _slots(block, line, ")")
    line.expect(")")
    line.expect("->")
    outs = _slots(block, line, "{")
    for given, known, what in ((ins, definition.inputs, "input"), (outs, definition.outputs, "output")):
        for slot in given:
            if slot not in {s.name for s in known}:
                hint = did_you_mean(slot, [s.name for s in known])
                raise line.error(f"op '{definition.name}' has no {what} '{slot}'", hint)
    attrs = definition.check_attrs(decode(line.json())) if line.peek() == "{" else definition.check_attrs({})
    role_vars: list[str] = []
    scope = ""
    while not line.done():
        word = line.word()
        line.expect("(")
        if word == "vars":
            role_vars = line.names(")")
        elif word == "scope":
            scope = line.word()
        else:
            raise line.error(f"unknown word '{word}' after an operator", "vars(...) or scope(...)")
        line.expect(")")
    for name in (n for names in ins.values() for n in names):
        if name != EMPTY:
            block.var(name)
    return Operator(definition.name, ins, outs, attrs, role, role_vars, None, scope)


def _slots(block: Block, line: _Line, end: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    while not line.done() and line.peek() not in (end, "vars", "scope"):
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


def _variable(block: Block, line: _Line) -> str:
    name = line.word()
    if line.peek() == ":":
        _declare(block, line, name, parameter=False)
    elif name != EMPTY:
        block.var(name)
    return name


def _declare(block: Block, line: _Line, name: str, *, parameter: bool, alone: bool = False) -> None:
    line.expect(":")
    kind = _type(line)
    facts: dict[str, Any] = {}
    while line.peek() in FLAGS:
        facts[line.word()] = True
    if alone and line.peek() == "{":  # behind an op's output stand the op's attributes
        facts |= line.json()
    declare(block, name, kind, facts, parameter=parameter)


def _type(line: _Line) -> TensorType:
    dtype = check_dtype(line.word())
    line.expect("[")
    sizes = [-1 if n == "batch" else line.number(n) for n in line.names("]")]
    line.expect("]")
    return TensorType(tuple(sizes), dtype)


class _Line:
    """Tokens of one line."""

    def __init__(self, file: str, row: int, text: str) -> None:
        self.file, self.row, self.text = file, row, text
        self.at = 0
        self.start = 0

    def span(self) -> Span:
        """Return the place of the last token."""
        return Span(self.file, self.row, self.start + 1, max(1, self.at - self.start), self.text)

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return an error at the last token."""
        return PeError(message, at=self.span(), hint=hint)

    def done(self) -> bool:
        """Return whether nothing but blanks is left."""
        return not self.text[self.at :].strip()

    def end(self) -> None:
        """Raise unless the line is used up."""
        if not self.done():
            raise self.error(f"unexpected '{self._next()[0]}'")

    def _next(self) -> tuple[str, bool]:
        found = _TOKEN.match(self.text, self.at)
        if not found:
            self.start, self.at = self.at, len(self.text)
            rest = self.text[self.start :].strip()
            raise self.error(f"cannot read '{rest[:40]}'" if rest else "the line ends too early")
        self.start, self.at = found.start(found.lastindex or 0), found.end()
        token = found.group(found.lastindex or 0)
        if found.group(3) is None:
            return token, found.group(2) is not None
        try:
            return str(read_json(token)[0]), True
        except ValueError as error:
            raise self.error(f"bad string: {error}") from None

    def peek(self) -> str:
        """Return the next token without taking it; empty at the end, a quote for a string."""
        found = _TOKEN.match(self.text, self.at)
        if not found:
            return ""
        return '"' if found.group(3) else str(found.group(found.lastindex or 0))

    def word(self) -> str:
        """Take a name or a string."""
        token, is_word = self._next()
        if not is_word:
            raise self.error(f"expected a name, got '{token}'")
        return token

    def expect(self, wanted: str) -> None:
        """Take exactly this token."""
        token, _ = self._next()
        if token != wanted:
            raise self.error(f"expected '{wanted}', got '{token}'")

    def number(self, word: str) -> int:
        """Return a size."""
        if not word.isascii() or not word.isdigit():
            raise self.error(f"expected a number, got '{word:.40}'")
        if len(word) > _DIGITS:
            raise self.error(f"a number has at most {_DIGITS} digits, and {word:.10}... has {len(word)}")
        return int(word)

    def integer(self) -> int:
        """Take a number."""
        return self.number(self.word())

    def names(self, end: str) -> list[str]:
        """Take names with commas between them, up to a token that stays."""
        found: list[str] = []
        while self.peek() not in (end, ""):
            if found:
                self.expect(",")
            found.append(self.word())
        return found

    def json(self) -> dict[str, Any]:
        """Take a JSON object."""
        begin = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        self.start = begin
        try:
            value, self.at = read_json(self.text, begin)
        except ValueError as error:
            raise self.error(f"bad attributes: {error}", 'write {"name": value}') from None
        if not isinstance(value, dict):
            raise self.error("attributes must stand in {}")
        return value
