"""Passes, plans, sessions and files ask ops what they can do; they know none by its name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pe_cli.ops.define.registry import discover

PACKAGE = Path(__file__).parents[1] / "pe_cli"
#: Where ops and the layers that append them are declared, under either front's names.
FAMILIES = ("ops", "layers", "paddle")
#: Files of those that compare an operator's type with the name of an op that they do not declare, and why.
MAY_COMPARE = {
    "layers/define/weight_norm.py": "a layer finds the op again that it has appended for the same parameter",
    "ops/sequence/sequence_rows_onnx.py": "ONNX forms of ops that ops/sequence/sequence_rows.py declares",
    "paddle/fluid/contrib/model_stat.py": "counts what the original's tool counts, op by op",
    "paddle/fluid/parameter_server/__init__.py": "the original marks a server's program by an op",
    "paddle/fluid/constant_sizes.py": "an op that reads nothing but a shape",
    "paddle/fluid/layers/tensor_arrays.py": "tensor arrays, which are the original's alone",
    "paddle/fluid/layers/extensions.py": "finds the op that its own line has just appended",
    "paddle/fluid/py_func_results.py": "Python functions of a script, which are the original's alone",
    "paddle/fluid/original_blocks/branches.py": "operators of the original's files",
    "paddle/fluid/original_blocks/loops.py": "operators of the original's files",
    "paddle/fluid/original_blocks/reading.py": "operators of the original's files",
    "paddle/fluid/communicator.py": "reads the trainer's number from an op, as the original does",
}
#: Names that are words, too.
WORDS = {
    "abs", "accuracy", "after", "assign", "attention", "auc", "cast", "ceil", "clip", "concat", "cond", "cos", "dropout", "equal", "exp",
    "expand", "flatten", "floor", "gather", "increment", "log", "log1p", "mean", "momentum", "one_hot", "pad", "pow", "reciprocal",
    "reshape", "reverse", "round", "scale", "scan", "scatter", "select", "shape", "sign", "sin", "slice", "split", "sqrt", "square",
    "stack", "sum", "transpose", "unique", "weight_norm", "while", "greater_than", "less_than",
}  # fmt: skip
ALL = set(discover())
NAMES = ALL - WORDS


def known(node: ast.AST, names: set[str] = NAMES) -> list[str]:
    return [c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str) and c.value in names]


def listed(value: ast.expr | None) -> bool:
    """Return whether a value is a list of what it holds: a display, or a set or tuple that is made of one."""
    makes = isinstance(value, ast.Call) and ast.unparse(value.func) in ("frozenset", "set", "tuple", "list")
    if makes and value.args:
        return listed(value.args[0])
    return isinstance(value, (ast.Tuple, ast.List, ast.Set))


def decided_by(tree: ast.AST) -> list[str]:
    """Return the ops whose names decide something: what is compared, looked up, or listed in a constant."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found += known(node, ALL if any(isinstance(side, ast.Attribute) and side.attr == "type" for side in ast.walk(node)) else NAMES)
        elif isinstance(node, ast.Dict):
            found += [name for key in node.keys if key is not None for name in known(key)]
        elif isinstance(node, ast.Assign) and listed(node.value):
            found += known(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            found += known(node)
        elif isinstance(node, ast.match_case):
            found += known(node.pattern)
    return found


def compared(tree: ast.Module) -> list[str]:
    """Return the ops with whose names the type of an operator is compared; the names may stand in constants of the module."""
    constants = {
        target.id: node.value
        for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr == "type" for side in sides):
                sides += [constants[side.id] for side in sides if isinstance(side, ast.Name) and side.id in constants]
                found += [name for side in sides for name in known(side, ALL)]
    return found


def modules() -> list[Path]:
    """Return what is looked at: all but where ops are declared, and where names of other programs are translated."""
    every = (p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in FAMILIES)
    translators = (PACKAGE / "io" / "fluid", PACKAGE / "session" / "importing", PACKAGE / "cli" / "framework_aliases.py")
    return sorted(p for p in every if not any(p.is_relative_to(folder) for folder in translators))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_op_is_known_by_its_name(path: Path):
    found = decided_by(ast.parse(path.read_text(encoding="utf-8")))
    assert not found, f"{path.name} decides by {', '.join(found)}: ask for a trait"


def test_where_ops_are_declared_no_other_op_is_known_by_its_name():
    """Fused ops say in patterns what they take the place of; files beside those of an op are about the same one."""
    declared = {name: Path(*definition.module.split(".")[1:]).with_suffix(".py").as_posix() for name, definition in discover().items()}
    found = {}
    for path in (path for family in FAMILIES for path in sorted((PACKAGE / family).rglob("*.py"))):
        file, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        foreign = {name for name in compared(ast.parse(text)) if declared[name] != file} if ".type" in text else set()
        if foreign and file not in MAY_COMPARE:
            found[file] = sorted(foreign)
        assert foreign or file not in MAY_COMPARE, f"{file} need not be listed any more"
    assert not found, f"ask for a trait: {found}"


def test_the_check_sees_constants():
    assert compared(ast.parse('KINDS = ("relu", "tanh")\nif op.type in KINDS: pass')) == ["relu", "tanh"]
    assert compared(ast.parse('if "relu_grad" != op.type: pass')) == ["relu_grad"]
    assert compared(ast.parse('if how == "relu": pass')) == []


def test_the_check_sees():
    assert decided_by(ast.parse('if op.type == "conv2d": pass')) == ["conv2d"]
    assert decided_by(ast.parse('if op.type in ("relu", "tanh"): pass')) == ["relu", "tanh"]
    assert decided_by(ast.parse('if op.type == "sum": pass')) == ["sum"]
    assert decided_by(ast.parse('if how == "sum": pass')) == []
    assert decided_by(ast.parse('MOVED: Final = frozenset({"conv2d"})')) == ["conv2d"]
    assert decided_by(ast.parse('RULES = {"sgd": 1}')) == ["sgd"]
    assert decided_by(ast.parse('SAME = ("lookup_table", "x")')) == ["lookup_table"]
    assert decided_by(ast.parse('block.append_op("fill_constant", {}, {})')) == []
