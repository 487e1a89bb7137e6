"""From the syntax tree of a kernel function to LLVM instructions.

A variable has the kind of what was assigned last. Where branches or rounds of a loop meet, it gets the kind that all of them can become; a
loop is gone through without writing until the kinds at its head stay. Every (variable, kind) has a place on the stack, which LLVM turns
into registers.
"""

from __future__ import annotations

import ast
import contextlib
import types
from typing import Any

from llvmlite import ir

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.compiler.arithmetic import Value, binary, cast
from pe_cli.kernels.compiler.builder import DRY, Builder
from pe_cli.kernels.compiler.expressions import Expressions, Static
from pe_cli.kernels.compiler.function_source import tree_of
from pe_cli.kernels.compiler.value_kinds import Kind, Unclear, together

Kinds = dict[str, Kind]
#: Where a loop goes on and where it ends: blocks, and the kinds of variables of all who go there with the blocks that they come from.
Exits = list[tuple[Any, Kinds]]
#: Rounds in which the kinds of a loop's variables must have settled.
MOST_ROUNDS = 8


class Translator(Expressions):
    """Writes one function.

    Args:
        unit: the module that it is for; see `unit.Unit`.
        fn: Python's function.
        kinds: of its arguments.

    Raises:
        Unclear: it takes another number of arguments.
    """

    def __init__(self, unit: Any, fn: types.FunctionType, kinds: list[Kind | Static]) -> None:
        super().__init__(unit, fn)
        self.tree = tree_of(fn)
        self.names = [a.arg for a in self.tree.args.args]
        if len(self.names) != len(kinds):
            raise Unclear(f"{len(kinds)} arguments for {fn.__qualname__}, which takes {len(self.names)}")
        given = dict(zip(self.names, kinds, strict=True))
        self._free |= {name: kind.value for name, kind in given.items() if isinstance(kind, Static)}
        self.arguments: Kinds = {name: kind for name, kind in given.items() if not isinstance(kind, Static)}
        self.heads: dict[Any, Kinds] = {}
        self.returned: list[Kind] = []
        self.returns: Kind = None
        self.loops: list[tuple[Exits, Exits]] = []

    def find_kind(self) -> Kind:
        """Return the kind of what the function returns, writing nothing."""
        self.b = DRY
        self.env = dict(self.arguments)
        self._run()
        found = self.returned[0] if self.returned else None
        for kind in self.returned[1:]:
            found = together(found, kind)
        return found

    def write(self, function: Any, returns: Kind) -> None:
        """Write the function's body."""
        self.b = Builder(function)
        self.returns = returns
        self.env = {}
        for (name, kind), argument in zip(self.arguments.items(), function.args, strict=True):
            self.assign(name, Value(kind, argument))
        self._run()
        with self.b.goto_block(self.b.first):
            # The first block receives slots as long as the body is written, so its branch comes last.
            self.b.branch(self.b.function.blocks[1])

    def _run(self) -> None:
        self.dead = False
        body = self.tree.body
        self.block([ast.copy_location(ast.Return(body), body)] if isinstance(body, ast.expr) else body)
        if not self.dead:
            self._return(None)

    # --- statements ---------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        """Write statements, up to one behind which nothing is reached.

        Raises:
            PeError: BUG, the language has not what a statement says; with its line.
        """
        for statement in body:
            if self.dead:
                return
            try:
                getattr(self, f"do_{type(statement).__name__}", self._unknown)(statement)
            except Unclear as error:
                place = f"{self.fn.__code__.co_filename}:{statement.lineno}"
                raise PeError(
                    f"{place}: the kernel language has not: {error}",
                    hint="docs/adding-an-op.md tells what kernels are written in", code=ExitCode.BUG,
                ) from None  # fmt: skip

    def _unknown(self, statement: ast.stmt) -> None:
        raise Unclear(f"the statement {type(statement).__name__}")

    def do_Pass(self, statement: ast.Pass) -> None:
        """Do nothing."""

    def do_Expr(self, statement: ast.Expr) -> None:
        """Compute a value for what happens then."""
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self.value(statement.value)

    def do_Return(self, statement: ast.Return) -> None:
        """Leave the function."""
        none = statement.value is None or (isinstance(statement.value, ast.Constant) and statement.value.value is None)
        self._return(None if none or statement.value is None else self.value(statement.value))

    def _return(self, value: Value | None) -> None:
        self.returned.append(value.kind if value else None)
        if not self.b.dry:
            if self.returns is None:
                self.b.ret_void()
            elif value is None:
                self.b.unreachable()
            else:
                self.b.ret(cast(self.b, value, self.returns).ir)
        self.dead = True

    def do_Assign(self, statement: ast.Assign) -> None:
        """Assign a value to each of the targets."""
        value = self.any_value(statement.value)
        for target in statement.targets:
            self._put(target, value)

    def _put(self, target: ast.expr, value: Value | Static) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, Value) or not isinstance(value.kind, tuple) or len(value.kind) != len(target.elts):
                raise Unclear(f"{ast.unparse(target)} taken from {getattr(value, 'kind', value)}")
            parts = [Value(kind, self.b.extract_value(value.ir, i)) for i, kind in enumerate(value.kind)]
            for part, one in zip(target.elts, parts, strict=True):
                self._put(part, one)
        elif isinstance(target, ast.Subscript):
            self.store(self.value(target.value), self.value(target.slice), self.a_value(value))
        elif isinstance(target, ast.Name):
            self.assign(target.id, self.a_value(value))
        else:
            raise Unclear(f"an assignment to {ast.unparse(target)}")

    def do_AugAssign(self, statement: ast.AugAssign) -> None:
        """Change a variable or an element by an operator.

        Raises:
            Unclear: the target is neither.
        """
        operation = type(statement.op).__name__
        if isinstance(statement.target, ast.Subscript):
            base, index = self.value(statement.target.value), self.value(statement.target.slice)
            # As in Python, the old element is read before the right side is computed.
            old = self.element(base, index)
            self.store(base, index, binary(self.b, operation, old, self.value(statement.value)))
        elif isinstance(statement.target, ast.Name):
            old = self.value(ast.copy_location(ast.Name(statement.target.id, ast.Load()), statement))
            self.assign(statement.target.id, binary(self.b, operation, old, self.value(statement.value)))
        else:
            raise Unclear(f"an assignment to {ast.unparse(statement.target)}")

    # --- where control parts and meets --------------------------------------------------------------------------------

    def do_If(self, statement: ast.If) -> None:
        """Do one of two blocks."""
        then, other, end = (self.b.append_basic_block(name) for name in ("then", "else", "endif"))
        self.branch_on(statement.test, then, other)
        before, meeting = dict(self.env), []
        for start, body in ((then, statement.body), (other, statement.orelse)):
            self.env, self.dead = dict(before), False
            self.b.position_at_end(start)
            self.block(body)
            if not self.dead:
                meeting.append((self.here(), self.env))
        self._meet(meeting, end)

    def _meet(self, meeting: Exits, end: Any, kinds: Kinds | None = None) -> None:
        """Let all who meet go on in one block, with variables of the same kinds."""
        found = self._joined(*(env for _, env in meeting)) if kinds is None else kinds
        for at, env in meeting:
            self.b.position_at_end(at)
            self.env = env
            for name in [n for n, kind in env.items() if n in found and found[n] != kind]:
                self.assign(name, cast(self.b, self.variable(name), found[name]))
            self.b.branch(end)
        self.env, self.dead = dict(found), not meeting
        if self.dead and not self.b.dry:
            # LLVM does not accept an empty block.
            self.b.function.blocks.remove(end)
            return
        self.b.position_at_end(end)

    def _joined(self, *all_kinds: Kinds) -> Kinds:
        found: Kinds = {}
        for kinds in all_kinds:
            for name, kind in kinds.items():
                with contextlib.suppress(Unclear):  # one that is something else by now, and is not read any more
                    found[name] = together(found[name], kind) if name in found else kind
        return found

    def do_While(self, statement: ast.While) -> None:
        """Do a block as long as a condition holds."""

        def turn(body: Any, end: Any) -> None:
            self.branch_on(statement.test, body, end)

        forever = isinstance(statement.test, ast.Constant) and bool(statement.test.value)
        self._loop(statement, turn, lambda: None, ends=not forever)

    def do_For(self, statement: ast.For) -> None:
        """Do a block for each number of a range.

        Raises:
            Unclear: it is no range, and no few values.
        """
        call = statement.iter
        if isinstance(call, ast.Tuple):
            self._unrolled(statement, call.elts)
            return
        counts = isinstance(call, ast.Call) and self.static(call.func) is range and not call.keywords
        target = statement.target
        if not counts or not isinstance(call, ast.Call) or not isinstance(target, ast.Name):
            raise Unclear(f"a loop over {ast.unparse(statement.iter)}")
        given = [cast(self.b, self.value(a), "int64").ir for a in call.args]
        word = ir.IntType(64)
        zero, one = ir.Constant(word, 0), ir.Constant(word, 1)
        start, stop, step = (zero, *given, one) if len(given) == 1 else (*given, one)[:3]
        # Rounds are counted before the loop: as in Python, changing the variable or the stop inside has no effect, and LLVM can vectorise.
        at, left = self.b.slot(word), self.b.slot(word)
        self.b.store(start, at)
        self.b.store(self._count(start, stop, step), left)

        def turn(body: Any, end: Any) -> None:
            self.b.cbranch(self.b.icmp_signed(">", self.b.load(left), zero), body, end)

        def begin() -> None:
            value = self.b.load(at)
            self.b.store(self.b.sub(self.b.load(left), one, flags=["nsw"]), left)
            self.b.store(self.b.add(value, step), at)
            self.assign(target.id, Value("int64", value))

        self._loop(statement, turn, begin)

    def _unrolled(self, statement: ast.For, each: list[ast.expr]) -> None:
        """Do a block for each of a few values."""
        if any(isinstance(n, (ast.Break, ast.Continue)) for s in statement.body for n in ast.walk(s)) or statement.orelse:
            raise Unclear("a loop over values that breaks or continues")
        values = [self.value(e) for e in each]
        for value in values:
            if not self.dead:
                self._put(statement.target, value)
                self.block(statement.body)

    def _count(self, start: Any, stop: Any, step: Any) -> Any:
        """Return how many numbers a range has; a step of 0 has none."""
        b = self.b
        if b.dry:
            return None
        zero, one = ir.Constant(step.type, 0), ir.Constant(step.type, 1)
        way = b.sub(stop, start)
        up = b.icmp_signed(">", way, zero)
        empty = b.xor(up, b.icmp_signed(">", step, zero))
        if not isinstance(step, ir.Constant):
            empty = b.or_(empty, b.icmp_signed("==", step, zero))
        first, some, end = b.block, b.append_basic_block("some"), b.append_basic_block("counted")
        b.cbranch(empty, end, some)
        b.position_at_end(some)
        rest = b.srem(way, step)
        rest = b.select(up, rest, b.sub(zero, rest))
        count = b.add(b.sdiv(way, step), b.select(b.icmp_signed(">", rest, zero), one, zero))
        b.branch(end)
        b.position_at_end(end)
        out = b.phi(step.type)
        out.add_incoming(zero, first)
        out.add_incoming(count, some)
        return out

    def _loop(self, statement: Any, turn: Any, begin: Any, ends: bool = True) -> None:
        """Write a loop.

        Args:
            statement: whose body is repeated.
            turn: branches to the body or to the end.
            begin: writes what a round begins with.
            ends: whether `turn` can end it.
        """
        if statement.orelse:
            raise Unclear("a loop with else")
        kinds = self._head(statement, turn, begin)
        head, body, end = (self.b.append_basic_block(name) for name in ("head", "round", "end"))
        # The condition's exit has a block before `end`, where variables can be cast to the kinds that they have there.
        leave = self.b.append_basic_block("leave") if ends else body
        self._meet([(self.here(), self.env)], head, kinds)
        turn(body, leave)
        again, leaving = self._round(statement, begin, body)
        for each in again:
            self._meet([each], head, kinds)
        self._meet([*([(leave, dict(kinds))] if ends else []), *leaving], end)

    def _round(self, statement: Any, begin: Any, body: Any) -> tuple[Exits, Exits]:
        """Write the body of a loop; return who goes on with the next round, and who leaves the loop."""
        self.b.position_at_end(body)
        exits: tuple[Exits, Exits] = [], []
        self.loops.append(exits)
        begin()
        self.block(statement.body)
        if not self.dead:
            exits[0].append((self.here(), self.env))
        self.loops.pop()
        return exits

    def _head(self, statement: Any, turn: Any, begin: Any) -> Kinds:
        """Return the kinds of variables at the head of a loop, where those before it meet those of its rounds."""
        key = id(statement), frozenset(self.env.items())
        # Kept, because an inner loop is visited in every round of the outer ones, which would take exponential time in their depth.
        if key not in self.heads:
            held = self.b, self.env, self.returned
            self.b, self.returned, kinds = DRY, [], dict(self.env)
            for _ in range(MOST_ROUNDS):
                # A round may end by continue, break or return; the next one begins alive all the same.
                self.env, self.dead, before = dict(kinds), False, kinds
                turn(None, None)
                again, _ = self._round(statement, begin, None)
                kinds = self._joined(before, *(env for _, env in again))
                if all(kinds.get(name) == kind for name, kind in before.items()):
                    break
            self.b, self.env, self.returned = held
            self.dead = False
            self.heads[key] = kinds
        return self.heads[key]

    def do_Break(self, statement: ast.Break) -> None:
        """Leave the innermost loop."""
        self.loops[-1][1].append((self.here(), self.env))
        self.dead = True

    def do_Continue(self, statement: ast.Continue) -> None:
        """Go on with the next round."""
        self.loops[-1][0].append((self.here(), self.env))
        self.dead = True
