"""A program as JSON and back: versions, blocks, variables, operators, places. No code is ever read from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType, check_dtype
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import HasRegions
from pe_cli.program.ir import Block, Operator, Parameter, Program, Role, Variable
from pe_cli.program.json_values import attrs_of, declare, decode, facts_of, read_json
from pe_cli.program.region import MAX_DEPTH, Region, regions_of

FORMAT = "pe-program"
#: Raised when a reader of the old version would misread the new one.
VERSION = 1
#: Bytes of JSON that are written or read at most.
MAX_BYTES = 1 << 26


# --- writing --------------------------------------------------------------------------------------------------------


def to_json(program: Program) -> str:
    """Return a program as JSON.

    Raises:
        PeError: it would take more than MAX_BYTES, or carries an object that is not portable.
    """
    text = json.dumps(to_dict(program), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Bytes and not characters: the limit is one of memory and of files.
    _check_size(len(text.encode()), "the program")
    return text


def to_dict(program: Program) -> dict[str, Any]:
    """Return a program as plain JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": program.name,
        "random_seed": program.random_seed,
        "is_test": program.is_test,
        "blocks": [_block(block) for block in program.blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    out: dict[str, Any] = {"vars": [_variable(v) for v in block.vars.values()], "ops": [_operator(op) for op in block.ops]}
    return out if block.parent_idx < 0 else {"parent": block.parent_idx, **out}


def _variable(v: Variable) -> dict[str, Any]:
    out: dict[str, Any] = {"name": v.name, "shape": list(v.shape), "dtype": v.dtype}
    if isinstance(v, Parameter):
        out["parameter"] = True
    facts = facts_of(v)
    if facts:
        out["facts"] = facts
    return {**out, **_place(v.at)}


# Attributes that are regions have a form of their own, with blocks inside.
def _operator(op: Operator) -> dict[str, Any]:
    out: dict[str, Any] = {"type": op.type, "inputs": op.inputs, "outputs": op.outputs}
    regions = regions_of(op)
    if any(callable(value) for value in op.attrs.values()):
        hint = "leave it out of what is saved, or save the parameters alone"
        raise PeError(f"a program with {op.type} cannot be saved: files hold no Python functions", at=op.at, hint=hint)
    attrs = {k: v for k, v in op.attrs.items() if k not in regions}
    out |= {"attrs": attrs_of(attrs, {}, every=True), "role": op.role.value}
    if regions:
        out["regions"] = {name: _region(region) for name, region in regions.items()}
    if op.role_vars:
        out["role_vars"] = op.role_vars
    if op.scope:
        out["scope"] = op.scope
    if op.segment:
        out["segment"] = op.segment
    return {**out, **_place(op.at)}


def _region(region: Region) -> dict[str, Any]:
    out: dict[str, Any] = {"args": region.args, "results": region.results, "block": _block(region.block)}
    return out if region.like is None else {**out, "like": _region(region.like), "like_steps": region.like_steps}


def _place(at: Span | None) -> dict[str, Any]:
    return {"at": [at.file, at.line, at.column, at.length, at.text]} if at else {}


def _check_size(size: int, what: str) -> None:
    if size > MAX_BYTES:
        raise PeError(f"{what} takes {size} bytes of JSON, more than {MAX_BYTES}", hint="load large values from a file")


# --- reading --------------------------------------------------------------------------------------------------------


def from_json(text: str | bytes) -> Program:
    """Return the program that `to_json` was given.

    Raises:
        PeError: the text is too long, no JSON, of a newer version, or not a program; says where.
    """
    _check_size(len(text), "the file")
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        # Leading blanks are no mistake; anything behind the value is.
        data, end = read_json(plain, len(plain) - len(plain.lstrip()))
        if plain[end:].strip():
            raise ValueError(f"more text after its end: {plain[end:].strip():.20}")
    except ValueError as error:
        raise PeError(f"the program is not valid JSON: {error}") from None
    return from_dict(data)


def from_dict(data: Any) -> Program:
    """Return the program that `to_dict` was given; see `from_json`.

    Raises:
        PeError: it is no program, of a later version, or has no block.
    """
    top = _Node(data, "program")
    if top.get("format", str) != FORMAT:
        raise PeError(f"the file is no program: its format is {data['format']!r}", hint=f"expected {FORMAT}")
    version = top.get("version", int)
    if not 1 <= version <= VERSION:
        raise PeError(f"the program has format version {version}; this release reads 1 to {VERSION}", hint="update pe")
    program = Program(top.get("name", str))
    program.random_seed, program.is_test = top.get("random_seed", int), top.get("is_test", bool)
    program.blocks = []
    for node in top.nodes("blocks"):
        block = Block(program, len(program.blocks))
        block.parent_idx = node.get("parent", int, -1)
        if not -1 <= block.parent_idx < len(program.blocks):
            # Blocks follow earlier ones only, so that no chain of parents is a circle.
            raise PeError(f"{node.path}: block {len(program.blocks)} follows block {block.parent_idx}, which does not stand before it")
        program.blocks.append(block)
        _read_block(node, block, 0)
    if not program.blocks:
        raise PeError("the program has no block")
    return program


def _read_block(node: _Node, block: Block, depth: int) -> None:
    for v in node.nodes("vars"):
        v.call(_read_variable, block)
    for op in node.nodes("ops"):
        made = op.call(_read_operator, block)
        block.ops.append(made)
        for name, found in op.get("regions", dict, {}).items():
            path = f"{op.path}.regions.{name}"
            known = made.definition.get(HasRegions)
            if known is None or name not in known.attrs:
                raise PeError(f"{path}: op '{made.type}' has no region '{name}'")
            made.attrs[name] = _read_region(_Node(found, path), depth + 1)


def _read_region(node: _Node, depth: int) -> Region:
    if depth > MAX_DEPTH:
        raise PeError(f"{node.path}: regions are nested more than {MAX_DEPTH} levels deep")
    program = Program("region")
    block = program.main_block
    _read_block(_Node(node.get("block", dict), f"{node.path}.block"), block, depth)
    sides = []
    for key in ("args", "results"):
        names = node.get(key, list)
        if any(n not in block.vars for n in names):
            raise PeError(f"{node.path}.{key} names what the region does not have: {names!r:.80}")
        sides.append(tuple(names))
    like = node.get("like", dict, {})
    inner = _read_region(_Node(like, f"{node.path}.like"), depth + 1) if like else None
    return Region(program, sides[0], sides[1], inner, node.get("like_steps", int, 0))


def _read_variable(node: _Node, block: Block) -> None:
    shape = node.get("shape", list)
    if any(not isinstance(s, int) or isinstance(s, bool) or s < -1 for s in shape):
        raise PeError(f"shape {shape} must be a list of sizes")
    kind = TensorType(tuple(shape), check_dtype(node.get("dtype", str)))
    facts = node.get("facts", dict, {})
    made = declare(block, node.get("name", str), kind, facts, parameter=node.get("parameter", bool, False))
    made.at = _read_place(node)


def _read_operator(node: _Node, block: Block) -> Operator:
    definition = find(node.get("type", str))
    ins, outs = node.names("inputs"), node.names("outputs")
    for given, slots, what in ((ins, definition.inputs, "input"), (outs, definition.outputs, "output")):
        for slot in given:
            if slot not in {s.name for s in slots}:
                raise PeError(f"op '{definition.name}' has no {what} '{slot}'")
    role = node.get("role", str)
    if role not in [r.value for r in Role]:
        raise PeError(f"there is no role '{role}'", hint=f"one of {', '.join(Role)}")
    role_vars = node.get("role_vars", list, [])
    attrs = definition.check_attrs(decode(node.get("attrs", dict, {})))
    scope = node.get("scope", str, "")
    return Operator(
        definition.name, ins, outs, attrs, Role(role), [str(v) for v in role_vars], _read_place(node), scope, node.get("segment", int, 0)
    )


def _read_place(node: _Node) -> Span | None:
    at = node.get("at", list, [])
    if not at:
        return None
    # Exactly these types: a bool is an int in Python, and would pass a looser check.
    if [type(v) for v in at] != [str, int, int, int, str]:
        raise PeError(f"place {at} must be [file, line, column, length, text]")
    return Span(*at)


class _Node:
    """A JSON object and the path to it, for errors."""

    def __init__(self, value: Any, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise PeError(f"{path} must be an object, got {type(value).__name__}")
        self.value: Mapping[str, Any] = value

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Return a member; without a default it must be there."""
        if key not in self.value:
            if default is None:
                raise PeError(f"{self.path} has no '{key}'")
            return default
        found = self.value[key]
        # A bool would pass as a number.
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise PeError(f"{self.path}.{key} must be {kind.__name__}, got {found!r:.80}")
        return found

    def nodes(self, key: str) -> list[_Node]:
        """Return a list of objects."""
        return [_Node(v, f"{self.path}.{key}[{i}]") for i, v in enumerate(self.get(key, list))]

    def names(self, key: str) -> dict[str, list[str]]:
        """Return slot -> names."""
        found = self.get(key, dict)
        for slot, names in found.items():
            if not isinstance(names, list) or any(not isinstance(n, str) for n in names):
                raise PeError(f"{self.path}.{key}.{slot} must be a list of names")
        return {slot: list(names) for slot, names in found.items()}

    def call(self, read: Any, block: Block) -> Any:
        """Return `read(self, block)`, with the path in front of its errors."""
        try:
            return read(self, block)
        # A path is put in front once, by the innermost object.
        except PeError as error:
            if not error.message.startswith(self.path):
                error.message = f"{self.path}: {error.message}"
            raise
