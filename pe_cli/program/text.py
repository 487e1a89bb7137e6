"""A program as text that people read and tests compare; parse.py reads it back.

    program "main" seed 7
    block 0
      var x: float32[batch, 4] is_data stop_gradient
      var words: int64[batch, 1] is_data {"lod_level": 1}
      param fc_0.w_0: float32[4, 8] {"learning_rate": 0.5}
      forward mul(X=x, Y=fc_0.w_0) -> Out=fc_0.tmp_0: float32[batch, 8]
      forward concat(X=[a, b]) -> Out=c: float32[batch, 16] {"axis": 1}
      optimize sgd(...) -> ParamOut=fc_0.w_0 vars(fc_0.w_0, fc_0.w_0@GRAD) scope("head/")
      forward scan(X=x, Init=h, Captured=w) -> Out=y: float32[8, batch, 4], Final=last: float32[batch, 4]
        region body(x_t, h_t, w) -> h_next, y_t
          var x_t: float32[batch, 4] is_data
          forward mul(X=x_t, Y=w) -> Out=y_t: float32[batch, 4]
          ...
        end

A variable that ops make is declared where it is written first; all others stand before the ops. Attributes and facts
are shown where they differ from the defaults. Places in files are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from pe_cli.program.ir import Block, Operator, Parameter, Program, Variable
from pe_cli.program.json_values import FLAGS, attrs_of, defaults_of, facts_of
from pe_cli.program.region import Region, regions_of

_BARE = re.compile(r"[\w.@/+-]+")


def print_program(program: Program, *, details: bool = False) -> str:
    """Return the text of a program, with a newline at the end.

    Args:
        program: any, checked or not.
        details: show attributes and facts that have their default values too.
    """
    head = f"program {_quoted(program.name)}"
    head += f" seed {program.random_seed}" if program.random_seed else ""
    head += " test" if program.is_test else ""
    lines = [head]
    for block in program.blocks:
        after = f" after {block.parent_idx}" if block.parent_idx >= 0 else ""
        lines.append(f"block {block.index}{after}")
        lines += [f"  {line}" for line in _block_lines(block, details)]
    return "\n".join(lines) + "\n"


def print_op(op: Operator, fresh: Mapping[str, Variable] | None = None, *, details: bool = False) -> str:
    """Return the line of an operator.

    Args:
        op: any.
        fresh: variables to declare there, if the op writes them.
        details: show attributes that have their default values too.
    """
    fresh = fresh or {}
    ins = ", ".join(f"{bare_or_quoted(s)}={_names(names, {}, details)}" for s, names in op.inputs.items())
    outs = ", ".join(f"{bare_or_quoted(s)}={_names(names, fresh, details)}" for s, names in op.outputs.items())
    line = f"{op.role.value} {bare_or_quoted(op.type)}({ins}) -> {outs}".rstrip()
    defaults = {k: a.default for k, a in op.definition.attrs.items()}
    regions = regions_of(op)
    attrs = attrs_of({k: v for k, v in op.attrs.items() if k not in regions}, defaults, every=details)
    line += f" {json.dumps(attrs, ensure_ascii=False)}" if attrs else ""
    line += f" vars({', '.join(map(bare_or_quoted, op.role_vars))})" if op.role_vars else ""
    line += f" scope({_quoted(op.scope)})" if op.scope else ""
    return line + (f" segment({op.segment})" if op.segment else "")


def _block_lines(block: Block, details: bool) -> Iterator[str]:
    fresh = _made_by_ops(block)
    for name, v in block.vars.items():
        if name not in fresh:
            yield f"{'param' if isinstance(v, Parameter) else 'var'} {_declaration(v, details)}"
    for op in block.ops:
        yield print_op(op, fresh, details=details)
        for attr, region in regions_of(op).items():
            yield from (f"  {line}" for line in _region_lines(f"region {bare_or_quoted(attr)}", region, details))
        # From here on the variable is known, and only its name is written.
        for name in op.output_names():
            fresh.pop(name, None)


def _region_lines(head: str, region: Region, details: bool) -> Iterator[str]:
    args, results = (", ".join(map(bare_or_quoted, names)) for names in (region.args, region.results))
    yield f"{head}({args}) -> {results}".rstrip()
    if region.like is not None:
        yield from (f"  {line}" for line in _region_lines(f"like {region.like_steps}", region.like, details))
    yield from (f"  {line}" for line in _block_lines(region.block, details))
    yield "end"


def _made_by_ops(block: Block) -> dict[str, Variable]:
    """Return the variables that are declared where an op writes them: temporaries that no earlier op reads."""
    read: set[str] = set()
    found: dict[str, Variable] = {}
    for op in block.ops:
        # A variable that an earlier op reads must be declared before, as its type is needed there.
        read.update(op.input_names())
        for name in op.output_names():
            v = block.vars.get(name)
            if v and name not in read and not (v.persistable or v.is_data or isinstance(v, Parameter)):
                found[name] = v
    return found


def _declaration(variable: Variable, details: bool) -> str:
    facts = facts_of(variable, every=details)
    words = [k for k in FLAGS if facts.get(k) is True]
    known = defaults_of(type(variable))
    rest = {k: v for k, v in facts.items() if k not in words and not (k in (*FLAGS, "lod_level") and v == known[k])}
    text = f"{bare_or_quoted(variable.name)}: {variable.type}{''.join(' ' + w for w in words)}"
    return text + (f" {json.dumps(rest, ensure_ascii=False)}" if rest else "")


def _names(names: list[str], fresh: Mapping[str, Variable], details: bool) -> str:
    shown, seen = [], set()
    for n in names:
        new = n in fresh and n not in seen
        seen.add(n)
        shown.append(_declaration(fresh[n], details) if new else bare_or_quoted(n))
    return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"


def bare_or_quoted(name: str) -> str:
    """Return a name as a text writes it: in quotes where it has other characters than words have."""
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
