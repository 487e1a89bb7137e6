"""Expressions of the kernel language as LLVM instructions."""

from __future__ import annotations

import ast
import builtins
import types
from typing import Any, NamedTuple

from llvmlite import ir

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.compiler import arithmetic
from pe_cli.kernels.compiler.arithmetic import Value, binary, cast, compare, constant, packed, truth, unary
from pe_cli.kernels.compiler.value_kinds import Kind, Unclear, llvm_type, together
from pe_cli.kernels.cpu.bfloat16_conversion import round_bfloat16, widen_bfloat16
from pe_cli.kernels.language import Helper, Intrinsic, PerType, Shared


class Static(NamedTuple):
    """Something of Python's that is no number: what can be called, a module, a type."""

    value: Any


class Expressions:
    """What a translator needs of values.

    Args:
        unit: the module that is written.
        fn: Python's function, whose globals are meant.
    """

    b: Any
    dead: bool

    def __init__(self, unit: Any, fn: types.FunctionType) -> None:
        self.unit = unit
        self.fn = fn
        self.env: dict[str, Kind] = {}
        self._slots: dict[tuple[str, Kind], Any] = {}
        cells = [cell.cell_contents for cell in fn.__closure__ or ()]
        self._free = dict(zip(fn.__code__.co_freevars, cells, strict=True))

    # --- variables and memory -----------------------------------------------------------------------------------------

    def here(self) -> Any:
        """Return the block that is written."""
        return None if self.b.dry else self.b.block

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value."""
        self.env[name] = value.kind
        if not self.b.dry:
            self.b.store(value.ir, self._slot(name, value.kind))

    def _slot(self, name: str, kind: Kind) -> Any:
        if (name, kind) not in self._slots:
            made = self._slots[name, kind] = self.b.slot(llvm_type(kind))
            # Slots begin as zero: where only one branch sets a variable, LLVM could conclude anything from an undefined value.
            with self.b.goto_block(self.b.first):
                self.b.store(ir.Constant(llvm_type(kind), None), made)
        return self._slots[name, kind]

    def variable(self, name: str) -> Value:
        """Return the value of a variable."""
        kind = self.env[name]
        return Value(kind, None if self.b.dry else self.b.load(self._slot(name, kind)))

    def element(self, base: Value, index: Value) -> Value:
        """Return the element of a pointer, or of a tuple by a constant.

        Raises:
            Unclear: no constant names the element of a tuple, or the value has none.
        """
        if isinstance(base.kind, tuple):
            if not isinstance(index.literal, int) or not -len(base.kind) <= index.literal < len(base.kind):
                raise Unclear("an element of a tuple that no constant names")
            place = index.literal % len(base.kind)
            return Value(base.kind[place], self.b.extract_value(base.ir, place))
        place = self._place(base, index)
        kind = str(base.kind)[:-1]
        if kind == BFLOAT16:
            return Value("float32", None if self.b.dry else widen_bfloat16(self.b, self.b.load(place, align=2)))
        return Value(kind, self.b.load(place))

    def store(self, base: Value, index: Value, value: Value) -> None:
        """Write an element."""
        place = self._place(base, index)
        kind = str(base.kind)[:-1]
        if kind == BFLOAT16:
            number = cast(self.b, value, "float32").ir
            if not self.b.dry:
                self.b.store(round_bfloat16(self.b, number), place, align=2)
            return
        self.b.store(cast(self.b, value, kind).ir, place)

    def _place(self, base: Value, index: Value) -> Any:
        if not str(base.kind).endswith("*"):
            raise Unclear(f"an element of {base.kind}")
        return self.b.gep(base.ir, [cast(self.b, index, "int64").ir])

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises:
            Unclear: it has none.
        """
        return self.a_value(self.any_value(node))

    def a_value(self, found: Value | Static) -> Value:
        """Return what was found where it is a value.

        Raises:
            Unclear: it is none.
        """
        if isinstance(found, Static):
            raise Unclear(f"{found.value!r} as a value")
        return found

    def any_value(self, node: ast.expr) -> Value | Static:
        """Return what an expression is.

        Raises:
            Unclear: the language has no such expression.
        """
        folded = _folded(node)
        if folded is not None:
            return constant(folded)
        handler = getattr(self, f"of_{type(node).__name__}", None)
        if handler is None:
            raise Unclear(ast.unparse(node))
        found: Value | Static = handler(node)
        return found

    def static(self, node: ast.expr) -> Any:
        """Return what of Python's an expression is; None where it is a value."""
        if isinstance(node, ast.Name) and node.id in self.env:
            return None
        found = self.any_value(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        return found.value if isinstance(found, Static) else None

    def of_Name(self, node: ast.Name) -> Value | Static:
        """Return a variable, or what a global is.

        Raises:
            Unclear: nothing has that name yet.
        """
        if node.id in self.env:
            return self.variable(node.id)
        if node.id in self._free:
            return self._meant(self._free[node.id])
        if node.id in self.fn.__code__.co_varnames:
            raise Unclear(f"{node.id}, which nothing has set yet")
        if node.id in self.fn.__globals__:
            return self._meant(self.fn.__globals__[node.id])
        if hasattr(builtins, node.id):
            return Static(getattr(builtins, node.id))
        raise Unclear(f"the name {node.id}")

    def of_Attribute(self, node: ast.Attribute) -> Value | Static:
        """Return what a module holds.

        Raises:
            Unclear: it holds no such thing.
        """
        owner = self.static(node.value)
        if not hasattr(owner, node.attr):
            raise Unclear(ast.unparse(node))
        return self._meant(getattr(owner, node.attr))

    def _meant(self, value: Any) -> Value | Static:
        """Return what a global is."""
        if isinstance(value, PerType):
            value = value.value(self.unit.dtype)
        if isinstance(value, (bool, int, float)):
            return constant(value)
        if isinstance(value, tuple) and all(isinstance(v, (bool, int, float)) for v in value):
            return packed(self.b, [constant(v) for v in value])
        return Static(value)

    def of_Tuple(self, node: ast.Tuple) -> Value:
        """Return several values as one."""
        return packed(self.b, [self.value(e) for e in node.elts])

    def of_BinOp(self, node: ast.BinOp) -> Value:
        """Return the result of an operator."""
        return binary(self.b, type(node.op).__name__, self.value(node.left), self.value(node.right))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        """Return the result of an operator with one operand."""
        return unary(self.b, type(node.op).__name__, self.value(node.operand))

    def of_Subscript(self, node: ast.Subscript) -> Value:
        """Return an element."""
        return self.element(self.value(node.value), self.value(node.slice))

    # --- conditions ---------------------------------------------------------------------------------------------------

    def branch_on(self, node: ast.expr, then: Any, other: Any) -> None:
        """Go on in one block where a condition holds, else in another; what is not needed for the answer is not computed."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.branch_on(node.operand, other, then)
        elif isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                more = self.b.append_basic_block("more")
                self.branch_on(part, *((more, other) if isinstance(node.op, ast.And) else (then, more)))
                self.b.position_at_end(more)
            self.branch_on(node.values[-1], then, other)
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In):
            self._branch_on_comparisons(node, then, other)
        else:
            self.b.cbranch(truth(self.b, self.value(node)).ir, then, other)

    def _branch_on_comparisons(self, node: ast.Compare, then: Any, other: Any) -> None:
        left = self.value(node.left)
        for i, (operation, operand) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.value(operand)
            last = i == len(node.ops) - 1
            more = then if last else self.b.append_basic_block("more")
            self.b.cbranch(compare(self.b, type(operation).__name__, left, right).ir, more, other)
            if not last:
                self.b.position_at_end(more)
            left = right

    def of_Compare(self, node: ast.Compare) -> Value:
        """Return whether comparisons hold."""
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In):
            return self._among(self.value(node.left), self.value(node.comparators[0]))
        if len(node.ops) == 1:
            return compare(self.b, type(node.ops[0]).__name__, self.value(node.left), self.value(node.comparators[0]))
        return self._chosen(node, lambda: constant(True), lambda: constant(False))

    def _among(self, value: Value, all_values: Value) -> Value:
        """Return whether a value is one of a tuple's."""
        if not isinstance(all_values.kind, tuple):
            raise Unclear(f"a search in {all_values.kind}")
        found = constant(False)
        for i, kind in enumerate(all_values.kind):
            same = compare(self.b, "Eq", value, Value(kind, self.b.extract_value(all_values.ir, i)))
            found = Value("bool", self.b.or_(found.ir, same.ir))
        return found

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        """Return the operand that decides."""
        first, rest = node.values[0], node.values[1:]
        value = self.value(first)
        more: ast.expr = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), node)
        last = isinstance(node.op, ast.And)

        def branch(then: Any, other: Any) -> None:
            self.b.cbranch(truth(self.b, value).ir, then, other)

        return self._either(branch, *((lambda: self.value(more), lambda: value) if last else (lambda: value, lambda: self.value(more))))

    def of_IfExp(self, node: ast.IfExp) -> Value:
        """Return one of two values."""
        return self._chosen(node.test, lambda: self.value(node.body), lambda: self.value(node.orelse))

    def _chosen(self, test: ast.expr, yes: Any, no: Any) -> Value:
        return self._either(lambda then, other: self.branch_on(test, then, other), yes, no)

    def _either(self, branch: Any, yes: Any, no: Any) -> Value:
        """Return one of two values, each computed in its own block."""
        then, other, end = (self.b.append_basic_block(name) for name in ("yes", "no", "chosen"))
        branch(then, other)
        found = []
        for start, make in ((then, yes), (other, no)):
            self.b.position_at_end(start)
            # The block is asked for after the value: computing it may have opened further blocks, and a phi names the last one.
            found.append((make(), self.here()))
        kind = together(found[0][0].kind, found[1][0].kind)
        if self.b.dry:
            return Value(kind, None)
        ends = []
        for value, at in found:
            # The cast belongs to the block of its value, because nothing may stand before a phi in its own block.
            self.b.position_at_end(at)
            ends.append((cast(self.b, value, kind).ir, at))
            self.b.branch(end)
        self.b.position_at_end(end)
        out = self.b.phi(llvm_type(kind))
        for value, at in ends:
            out.add_incoming(value, at)
        return Value(kind, out)

    # --- calls --------------------------------------------------------------------------------------------------------

    def of_Call(self, node: ast.Call) -> Value:
        """Return what a call gives.

        Raises:
            Unclear: the language has no such call.
        """
        target = self.static(node.func)
        if node.keywords or target is None or any(isinstance(a, ast.Starred) for a in node.args):
            raise Unclear(f"the call {ast.unparse(node)}")
        given = [self.any_value(a) for a in node.args]
        if isinstance(target, Helper):
            return self._helper(target, given)
        if target is len:
            return self._length(*given)
        values = [self.a_value(v) for v in given]
        if isinstance(target, Shared):
            return self._shared(target, values)
        if isinstance(target, Intrinsic):
            return self._intrinsic(target, values)
        if isinstance(target, type):
            return self._type(target, *values)
        return arithmetic.call(self.b, target, values)

    def _helper(self, target: Helper, values: list[Value | Static]) -> Value:
        function, returns = self.unit.helper(target, [v if isinstance(v, Static) else v.kind for v in values])
        return Value(returns, self.b.call(function, [v.ir for v in values if isinstance(v, Value)]))

    def _length(self, of: Value | Static) -> Value:
        held = of.value if isinstance(of, Static) else of.kind
        if not isinstance(held, tuple):
            raise Unclear(f"the length of {held}")
        return constant(len(held))

    def _intrinsic(self, target: Intrinsic, values: list[Value]) -> Value:
        if len(values) != len(target.args):
            raise Unclear(f"{len(values)} arguments for {target.name}, which takes {len(target.args)}")
        given = [cast(self.b, v, self.unit.kind_of(name)).ir for v, name in zip(values, target.args, strict=True)]
        return Value(self.unit.kind_of(target.returns), None if self.b.dry else target.emit(self.unit.emit(self.b), given))

    def _shared(self, target: Shared, values: list[Value]) -> Value:
        """Call a shared kernel: its arguments are put into a record on the stack."""
        if not self.b.dry:
            word = ir.IntType(64)
            record = self.b.slot(word, len(values))
            for i, value in enumerate(values):
                self.b.store(cast(self.b, value, "int64").ir, self.b.gep(record, [ir.Constant(word, i)]))
            entry = self.b.declared(self.unit.entry(target), ir.VoidType(), [record.type])
            self.b.call(entry, [record])
        return Value(None, None)

    def _type(self, target: type, value: Value) -> Value:
        """Return a value as one of a type of Python's or NumPy's."""
        # As in numba, int() keeps the width of an integer and float() keeps float32, so that neither widens a whole computation.
        if target is int:
            whole = value.kind not in ("float32", "float64", "bool")
            return value if whole else cast(self.b, value, "int64")
        if target is float:
            return value if value.kind == "float32" else cast(self.b, value, "float64")
        return cast(self.b, value, target.__name__)


_OPERATORS = {
    ast.Add: lambda x, y: x + y, ast.Sub: lambda x, y: x - y, ast.Mult: lambda x, y: x * y, ast.Div: lambda x, y: x / y,
    ast.LShift: lambda x, y: x << y, ast.Pow: lambda x, y: x**y, ast.BitOr: lambda x, y: x | y,
}  # fmt: skip


def _folded(node: ast.expr) -> Any:
    """Return the number that an expression of literals is, as Python's compiler computes it; None where it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (bool, int, float)) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _folded(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _folded(node.left), _folded(node.right)
        return None if left is None or right is None else _OPERATORS[type(node.op)](left, right)
    return None
