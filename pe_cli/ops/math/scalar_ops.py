"""Scalar functions of the kernel language as ops on tensors: the text of a gradient says how that gradient is differentiated again."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, cast

from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.language import T
from pe_cli.kernels.math import vector_math
from pe_cli.ops.define.second_gradients import Again

#: A number, a truth, or the name of a variable.
Value = float | bool | str

#: Functions that scalar functions call, and the op of the same name with its attributes.
_CALLS: dict[Any, str] = {
    vector_math.exp: "exp", vector_math.log: "log", vector_math.log1p: "log1p", vector_math.tanh: "tanh", vector_math.sigmoid: "sigmoid",
    vector_math.erf: "erf", vector_math.softplus: "softplus", vector_math.absolute: "abs", vector_math.rsqrt: "rsqrt",
    vector_math.square_root: "sqrt", abs: "abs", math.sqrt: "sqrt", math.cos: "cos", math.sin: "sin", math.cosh: "cosh",
    math.sinh: "sinh", math.exp: "exp", math.log: "log",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("elementwise_add", operator.add),
    ast.Sub: ("elementwise_sub", operator.sub),
    ast.Mult: ("elementwise_mul", operator.mul),
    ast.Div: ("elementwise_div", operator.truediv),
    ast.Pow: ("elementwise_pow", operator.pow),
}
_COMPARED: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("less_than", operator.lt),
    ast.LtE: ("less_equal", operator.le),
    ast.Gt: ("greater_than", operator.gt),
    ast.GtE: ("greater_equal", operator.ge),
    ast.Eq: ("equal", operator.eq),
    ast.NotEq: ("not_equal", operator.ne),
}


@functools.cache
def _body(fn: Callable[..., Any]) -> tuple[list[str], list[ast.stmt]]:
    (found,) = (n for n in statements(textwrap.dedent(inspect.getsource(fn))) if isinstance(n, ast.FunctionDef))
    return [a.arg for a in found.args.args], found.body


def as_ops(r: Again, fn: Callable[..., Any], args: Sequence[Value], like: str) -> str:
    """Append the ops that compute a scalar function of every element, and return the result.

    Args:
        r: where they are appended.
        fn: assignments of single names and a return, with arithmetic, comparisons, `a if b else c` and functions of
            `kernels.math.vector_math`.
        args: variables of one shape and numbers, in the order of fn's parameters.
        like: a variable of that shape.

    Raises:
        AssertionError: fn has another statement, or returns nothing.
    """
    names, body = _body(fn)
    space = dict(zip(names, args, strict=True))
    evaluate = _Evaluation(r, fn, space, like)
    for statement in body:
        if isinstance(statement, ast.Return):
            assert statement.value is not None
            made = evaluate.of(statement.value)
            return made if isinstance(made, str) else r.like(like, float(made))
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            space[cast("ast.Name", target).id] = evaluate.of(statement.value)
        else:
            assert isinstance(statement, ast.Expr), f"{fn.__name__}: a statement that no op stands for"  # its doc
    raise AssertionError(f"{fn.__name__} returns nothing")


class _Evaluation:
    """Expressions of one function."""

    def __init__(self, r: Again, fn: Callable[..., Any], space: dict[str, Value], like: str) -> None:
        self.r, self.fn, self.space, self.like = r, fn, space, like

    def of(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        assert method is not None, f"{self.fn.__name__}: no op stands for {ast.unparse(node)}"
        return cast("Value", method(node))

    def _constant(self, node: ast.Constant) -> Value:
        return cast("float", node.value)

    def _name(self, node: ast.Name) -> Value:
        return self.space[node.id] if node.id in self.space else cast("float", self.fn.__globals__[node.id])

    def _variable(self, value: Value) -> str:
        return value if isinstance(value, str) else self.r.like(self.like, float(value))

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.of(node.operand)
        # Scaling by -1 is one op; 0 - x would first make a tensor of zeros.
        assert isinstance(node.op, ast.USub)
        return self.r.scaled(value, -1.0) if isinstance(value, str) else -value

    def _binop(self, node: ast.BinOp) -> Value:
        name, compute = _ARITHMETIC[type(node.op)]
        x, y = self.of(node.left), self.of(node.right)
        if not isinstance(x, str) and not isinstance(y, str):
            return cast("float", compute(x, y))
        if isinstance(y, str) and isinstance(x, str):
            return self.r.one(name, {"X": x, "Y": y})
        if isinstance(y, str):
            return self._number_first(name, cast("float", x), y)
        return self._number_second(name, cast("str", x), y)

    def _number_first(self, name: str, x: float, y: str) -> str:
        if name == "elementwise_mul":
            return self.r.scaled(y, x)
        if name in ("elementwise_add", "elementwise_sub"):
            # Adding or subtracting a number is one op with a factor and a shift.
            return self.r.scaled(y, 1.0 if name == "elementwise_add" else -1.0, x)
        return self.r.one(name, {"X": self._variable(x), "Y": y})

    def _number_second(self, name: str, x: str, y: float) -> str:
        if name == "elementwise_pow":
            return self.r.one("pow", {"X": x}, {"factor": y})
        if name in ("elementwise_add", "elementwise_sub"):
            return self.r.scaled(x, 1.0, y if name == "elementwise_add" else -y)
        return self.r.scaled(x, y if name == "elementwise_mul" else 1.0 / y)

    def _compare(self, node: ast.Compare) -> Value:
        name, compute = _COMPARED[type(node.ops[0])]
        x, y = self.of(node.left), self.of(node.comparators[0])
        assert len(node.ops) == 1
        if not isinstance(x, str) and not isinstance(y, str):
            return bool(compute(x, y))
        return self.r.one(name, {"X": self._variable(x), "Y": self._variable(y)})

    def _boolop(self, node: ast.BoolOp) -> Value:
        both = isinstance(node.op, ast.And)
        rest = [self.of(v) for v in node.values]
        # What is known already may settle the whole condition, so that no op is appended.
        if any(not isinstance(v, str) and bool(v) is not both for v in rest):
            return not both
        unsure = [v for v in rest if isinstance(v, str)]
        if not unsure:
            return both
        name = "logical_and" if both else "logical_or"
        return functools.reduce(lambda x, y: self.r.one(name, {"X": x, "Y": y}), unsure)

    def _ifexp(self, node: ast.IfExp) -> Value:
        test = self.of(node.test)
        if not isinstance(test, str):
            # Only the branch that is taken becomes ops where the condition is a number.
            return self.of(node.body if test else node.orelse)
        yes, no = (self._variable(self.of(branch)) for branch in (node.body, node.orelse))
        return self.r.one("select", {"Condition": test, "X": yes, "Y": no})

    def _attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.fn.__globals__[cast("ast.Name", node.value).id], node.attr)

    def _call(self, node: ast.Call) -> Value:
        called: Any = self.of(node.func)
        args = [self.of(a) for a in node.args]
        if called is T:
            return args[0]
        if called is vector_math.expm1:
            # Digits near 0 are lost here, but only in the gradient of a gradient.
            return self.r.scaled(self.r.one("exp", {"X": self._variable(args[0])}), 1.0, -1.0)
        assert called in _CALLS, f"{self.fn.__name__}: no op stands for {ast.unparse(node)}"
        return self.r.one(_CALLS[called], {"X": self._variable(args[0])})
