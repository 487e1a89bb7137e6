"""PTX text as statements: what of the language libnvvm and our own inline assembly write."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: PTX type -> LLVM type.
TYPES = {
    "pred": "i1", "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16", "b32": "i32", "u32": "i32", "s32": "i32",
    "b64": "i64", "u64": "i64", "s64": "i64", "f32": "float", "f64": "double",
}  # fmt: skip
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}


class Unsupported(Exception):
    """A statement that the translation does not know."""


@dataclass(frozen=True)
class Statement:
    """An instruction, or a label.

    Args:
        line: of the text, from 1.
        op: parts of its name; empty for a label.
        args: operands; of a label its name.
        guard: predicate register that lets it happen, empty for always.
        negated: whether it happens where the predicate is false.
    """

    line: int
    op: tuple[str, ...]
    args: tuple[str, ...]
    guard: str = ""
    negated: bool = False


@dataclass
class Function:
    """An entry, or a function that one calls.

    Args:
        name: symbol.
        params: (LLVM type or empty for an array, bytes, symbol) of each.
        returns: symbol of its result, empty where there is none.
        body: statements.
        registers: name -> LLVM type.
        locals: symbol -> byte of the thread's local memory where it begins.
        local_bytes: of local memory.
        slots: symbols of parameters of calls.
    """

    name: str
    params: list[tuple[str, int, str]]
    returns: str = ""
    body: list[Statement] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    locals: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    slots: set[str] = field(default_factory=set)


@dataclass
class Module:
    """A PTX text.

    Args:
        entry: its kernel.
        functions: that it calls, by name.
        shared: symbol -> (byte of shared memory, bytes).
        shared_bytes: of a block.
        constants: symbol -> bytes, of arrays that have values.
    """

    entry: Function
    functions: dict[str, Function]
    shared: dict[str, tuple[int, int]]
    shared_bytes: int
    constants: dict[str, bytes]


_HEAD = re.compile(
    r"(?:\.visible|\.weak|\.extern)?\s*\.(entry|func)\s*(?:\(\s*\.param\s+[^)]*?(\w+)(?:\[\d+\])?\s*\)\s*)?"
    r"(\w+)\s*\(([^)]*)\)",
    re.S,
)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?")
_ARRAY = re.compile(r"\.(shared|global|const|local)\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\](?:\s*=\s*\{([^}]*)\})?")
_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
_RANGE = re.compile(r"(%?[\w$]+)<(\d+)>")
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([$\w]+):(?!:)")
_GUARD = re.compile(r"@(!?)(%?[\w$]+)\s+(.*)", re.S)


def parse(text: str) -> Module:
    """Return the parts of a text.

    Raises:
        Unsupported: it has no entry.
    """
    text = re.sub(r"//[^\n]*", "", text)
    shared: dict[str, tuple[int, int]] = {}
    constants: dict[str, bytes] = {}
    at = 0
    for space, align, name, size, values in _ARRAY.findall(text):
        if space == "shared":
            at = -(-at // int(align)) * int(align)
            shared[name] = at, int(size)
            at += int(size)
        elif space in ("global", "const"):
            given = bytes(int(v, 0) & 255 for v in values.split(",") if v.strip())
            constants[name] = given.ljust(int(size), b"\0")
    functions: dict[str, Function] = {}
    entry = None
    for head in _HEAD.finditer(text):
        begin = head.end()
        rest = text[begin : begin + 400]
        opened = re.match(r"[^{;]*\{", rest, re.S)
        if not opened:  # declared only
            continue
        begin += opened.end()
        made = Function(head[3], _parameters(head[4]), head[2] or "")
        _body(made, text, begin, text.count("\n", 0, begin) + 1)
        functions[made.name] = made
        if head[1] == "entry":
            entry = made
    if entry is None:
        raise Unsupported("no entry")
    del functions[entry.name]
    return Module(entry, functions, shared, at, constants)


def _parameters(text: str) -> list[tuple[str, int, str]]:
    return [
        ("" if size else TYPES[kind], int(size) if size else BITS[TYPES[kind]] // 8, name) for kind, name, size in _PARAM.findall(text)
    ]


def _body(made: Function, text: str, at: int, line: int) -> None:
    """Read statements up to the closing brace; registers of inner braces are renamed, as they may have the names of others."""
    scopes: list[dict[str, str]] = [{}]
    while scopes:
        skipped = _SPACE.match(text, at)
        assert skipped
        line += skipped[0].count("\n")
        at = skipped.end()
        if text[at] in "{}":
            if text[at] == "{":
                scopes.append({})
            else:
                scopes.pop()
            at += 1
            continue
        label = _LABEL.match(text, at)
        if label:
            made.body.append(Statement(line, (), (label[1],)))
            at = label.end()
            continue
        end = text.index(";", at)
        _statement(made, text[at:end], line, scopes)
        line += text.count("\n", at, end)
        at = end + 1


def _statement(made: Function, text: str, line: int, scopes: list[dict[str, str]]) -> None:
    if text.startswith(".reg"):
        found = _REGISTER.match(text)
        assert found
        for name in found[2].split(","):
            ranged = _RANGE.search(name)
            names = [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name.strip()]
            for one in names:
                inner = one if len(scopes) == 1 else f"{one}.{line}"
                scopes[-1][one] = inner
                made.registers[inner] = TYPES[found[1]]
        return
    if text.startswith(".local"):
        array = _ARRAY.match(text)
        assert array
        align = int(array[2])
        made.local_bytes = -(-made.local_bytes // align) * align
        made.locals[array[3]] = made.local_bytes
        made.local_bytes += int(array[4])
        return
    if text.startswith(".param"):
        found = _PARAM.match(text)
        assert found
        made.slots.add(found[2])
        return
    if text.startswith("."):  # .pragma, .loc, .file
        return
    guard = _GUARD.match(text)
    negated, predicate = (guard[1] == "!", guard[2]) if guard else (False, "")
    op, rest = _split_op(guard[3] if guard else text)
    args = tuple(_renamed(a, scopes) for a in split(rest))
    made.body.append(Statement(line, tuple(op.split(".")), args, _renamed(predicate, scopes) if predicate else "", negated))


def _split_op(text: str) -> tuple[str, str]:
    parts = text.split(None, 1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _renamed(operand: str, scopes: list[dict[str, str]]) -> str:
    if len(scopes) == 1:
        return operand

    def name(found: re.Match[str]) -> str:
        for scope in reversed(scopes):
            if found[0] in scope:
                return scope[found[0]]
        return found[0]

    return re.sub(r"%?[A-Za-z_$][\w$]*", name, operand)


def split(text: str) -> list[str]:
    """Return operands: what stands between commas that no bracket holds."""
    out, depth, current = [], 0, ""
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and not depth:
            out.append(current.strip())
            current = ""
        else:
            current += c
    return [*out, current.strip()] if current.strip() else out
