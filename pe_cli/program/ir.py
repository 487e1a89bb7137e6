"""Program, Block, Operator, Variable, Parameter: fluid's static graph, before any device is known."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Self

from pe_cli.core.errors import PeError, Span, WrongType, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16, TensorType, check_dtype
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.schema import EMPTY
from pe_cli.program.operator import Mark, Operator, Role
from pe_cli.program.output_types import agrees, output_types


@dataclass(eq=False)
class Variable:
    """A named tensor of a block.

    Attributes:
        name: unique in its program.
        type: shape (batch axis -1) and element type.
        persistable: lives in the scope between steps.
        stop_gradient: gradients do not flow through it.
        is_data: fed by the user.
        lod_level: of what is fed: levels of nested sequences that its rows belong to; 0 for none.
        error_clip: (min, max) that its gradient is cut to on the way back, or None.
        whole: type of all rows, which its gradient has, where `type` is that of this process's rows alone.
    """

    block: Block
    name: str
    type: TensorType
    persistable: bool = False
    stop_gradient: bool = False
    is_data: bool = False
    at: Span | None = None
    lod_level: int = 0
    error_clip: tuple[float, float] | None = None
    whole: TensorType | None = field(default=None, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes; -1 for the batch axis."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.type.dtype

    def for_block(self, block: Block) -> Self:
        """Return the same variable for another block."""
        made = object.__new__(type(self))
        vars(made).update(vars(self), block=block)
        return made

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(eq=False)
class Parameter(Variable):
    """A persistable variable that an optimizer updates.

    Attributes:
        trainable: gets a gradient and an update.
        learning_rate: factor on the optimizer's, no unit.
        regularizer: own weight decay, an object of `pe_cli.optim.regularizer`, or None for the optimizer's.
        gradient_clip: own clipping, an object of `pe_cli.optim.clip`, or None.
        do_model_average: takes part in model averaging.
        weight_decay: own coefficient of the weight decay, at least 0, no unit; None for the optimizer's.
        own_rate: rate of plain descent that moves it instead of the optimizer, without clipping and decay; None for the optimizer's.
    """

    trainable: bool = True
    learning_rate: float = 1.0
    regularizer: Any = None
    gradient_clip: Any = None
    do_model_average: bool = True
    weight_decay: float | None = None
    own_rate: float | None = None


class Block:
    """Variables and an ordered list of operators.

    Attributes:
        parent_idx: number of the block that this one follows; the first block has the variables that it lacks; -1 for the first.
        operators: class of its operators.
    """

    operators: type[Operator] = Operator

    def __init__(self, program: Program, index: int = 0) -> None:
        self.program = program
        self.index = index
        self.parent_idx = -1
        self.vars: dict[str, Variable] = {}
        self.ops: list[Operator] = []

    def var(self, name: str) -> Variable:
        """Return a variable.

        Raises:
            PeError: there is none of that name.
        """
        found = self.find_var(name)
        if found is None:
            raise PeError(f"there is no variable '{name}'", hint=did_you_mean(name, self.vars))
        return found

    def find_var(self, name: str) -> Variable | None:
        """Return a variable of this block, or else of the first where this one follows another; None where there is none."""
        found = self.vars.get(name)
        return self.program.blocks[0].vars.get(name) if found is None and self.parent_idx >= 0 else found

    def create_var(self, name: str, type: TensorType, **facts: Any) -> Variable:
        """Add a variable; facts are fields of `Variable`."""
        return self._add(Variable(self, name, type, **{"at": self.program.mark.at, **facts}))

    def create_parameter(self, name: str, type: TensorType, **facts: Any) -> Parameter:
        """Add a persistable variable that is trained; facts are fields of `Parameter`."""
        made = Parameter(self, name, type, **{"persistable": True, "at": self.program.mark.at, **facts})
        self._add(made)
        return made

    def _add(self, variable: Variable) -> Variable:
        check_dtype(variable.dtype)
        # Feeds and state cross into NumPy and files, and neither knows bfloat16.
        if variable.dtype == BFLOAT16 and (variable.persistable or variable.is_data):
            what = "fed" if variable.is_data else "kept from step to step"
            said = f"variable '{variable.name}' is {what}, and cannot be {BFLOAT16}"
            raise PeError(said, hint="declare float32, and cast where it is used")
        if variable.name in self.vars:
            raise PeError(f"variable '{variable.name}' is declared twice", hint="give one of them another name")
        self.vars[variable.name] = variable
        return variable

    def parameters(self) -> list[Parameter]:
        """Return all parameters in order of creation."""
        return [v for v in self.vars.values() if isinstance(v, Parameter)]

    def rename_var(self, old: str, new: str, first: int = 0) -> None:
        """Give a variable another name, in all operators from number `first` on too; see `rename_vars`."""
        self.rename_vars({old: new}, first)

    def rename_vars(self, names: Mapping[str, str], first: int = 0) -> None:
        """Give variables other names, in all operators from number `first` on too; the operators are gone over once.

        Args:
            names: old -> new, none of the new ones among the old.
            first: number of the first operator that may use them.

        Raises:
            PeError: another variable has one of the new names.
        """
        for old, new in names.items():
            if new != old and new in self.vars:
                raise PeError(f"there is already a variable '{new}'", hint="give the layer or the parameter another name")
            variable = self.vars.pop(old)
            variable.name = new
            self.vars[new] = variable
        for op in self.ops[first:]:
            for slots in (op.inputs, op.outputs):
                for slot, used in slots.items():
                    if not names.keys().isdisjoint(used):
                        slots[slot] = [names.get(n, n) for n in used]

    def append_op(
        self,
        type: str,
        inputs: Mapping[str, Sequence[str | Variable] | str | Variable | None],
        outputs: Mapping[str, Sequence[str | Variable] | str | Variable | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        index: int | None = None,
        at: Span | None = None,
    ) -> Operator:
        """Append (or insert) an operator; output variables that do not exist yet are made with the inferred types.

        Raises:
            PeError: unknown op, slot, attribute or variable, or types that do not fit; with the place of the layer.
        """
        place = at or self.program.mark.at
        # Only what went in without error is appended: a layer that failed leaves no half op behind.
        try:
            made = self._operator(type, inputs, outputs, attrs or {}, place)
            for rule in RULES:
                rule(self, made)
            self._infer(made)
        except PeError as error:
            error.at = error.at or place
            raise
        if index is None:
            self.ops.append(made)
        else:
            self.ops.insert(index, made)
        return made

    def _operator(self, type: str, inputs: Any, outputs: Any, attrs: Mapping[str, Any], at: Span | None) -> Operator:
        definition = find(type)
        ins = _names(inputs)
        outs = _names(outputs)
        for given, known, what in ((ins, definition.inputs, "input"), (outs, definition.outputs, "output")):
            for slot in given:
                if slot not in {s.name for s in known}:
                    raise PeError(f"op '{type}' has no {what} '{slot}'", hint=did_you_mean(slot, [s.name for s in known]))
        for names in ins.values():
            for name in names:
                if name != EMPTY:
                    self.var(name)
        program = self.program
        return Operator(
            type,
            ins,
            outs,
            definition.check_attrs(attrs),
            program.mark.role,
            list(program.mark.role_vars),
            at,
            program.mark.scope,
        )

    def _infer(self, op: Operator) -> None:
        types = self.infer(op, lambda name: self.var(name).type)
        stop = all(self.vars[n].stop_gradient or self.vars[n].is_data for n in op.input_names())
        for slot, names in op.outputs.items():
            for name, found in zip(names, types.get(slot, ()), strict=False):
                if name == EMPTY:
                    continue
                if name not in self.vars:
                    self.create_var(name, found, at=op.at, stop_gradient=stop and op.role is Role.FORWARD)
                elif self.vars[name].type != found and not agrees(self.vars[name].type, found):
                    raise PeError(f"op '{op.type}' writes {found} to '{name}', which is {self.vars[name].type}")

    def infer(self, op: Operator, type_of: Any, device: int = 0) -> dict[str, list[TensorType]]:
        """Return the types of an operator's outputs on a device, given `type_of(name)` for its inputs (and forward variables)."""
        return output_types(op, type_of, self.vars.get, device)


def _names(slots: Mapping[str, Any]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for slot, value in slots.items():
        if value is None:
            continue
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        out[slot] = [v.name if isinstance(v, Variable) else v for v in values]
        if not all(isinstance(v, str) for v in out[slot]):
            raise WrongType(f"{slot} is {value!r:.60}, which is no variable", hint="fill_constant and assign make one of numbers")
    return out


#: What every operator is checked for when it is appended, beside slots, attributes and types: `f(block, operator)` raises PeError.
RULES: list[Callable[[Block, Operator], None]] = []


class Program:
    """A list of blocks; block 0 is the global one.

    Attributes:
        mark: of the ops that are appended next; see `marked`.
        random_seed: of every random op; 0 asks the executor for one.
        is_test: cloned for evaluation.
        prefix: what the names that `unique_own` makes begin with, so that programs of one scope have state of their own.
        around: what all names begin with that are made now, as a layer around says so; empty where none does.
        version: counts changes that are made to operators in place, for whoever keeps something that was made of them.
    """

    version, around = 0, ""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.blocks: list[Block] = [Block(self, 0)]
        self.random_seed = 0
        self.is_test = False
        self.prefix = ""
        self.mark = Mark()
        self._counters: dict[str, int] = {}

    @property
    def main_block(self) -> Block:
        """Block 0, for whoever changes or walks it in order; those that follow it belong to parameter servers."""
        return self.blocks[0]

    def global_block(self) -> Block:
        """Return the main block, as fluid calls it."""
        return self.main_block

    @property
    def top_ops(self) -> list[Operator]:
        """The main block's operators in order. A loop or condition is one of them; `region.every_op` yields those inside, too."""
        return self.main_block.ops

    @property
    def vars(self) -> dict[str, Variable]:
        """The main block's variables by name, and so all that lives between steps: regions are given what they read."""
        return self.main_block.vars

    def var(self, name: str) -> Variable:
        """Return a variable of the main block; see `Block.var`."""
        return self.main_block.var(name)

    def find_var(self, name: str) -> Variable | None:
        """Return a variable of the main block, or None."""
        return self.main_block.find_var(name)

    def parameters(self) -> list[Parameter]:
        """Return all parameters in order of creation, those that only regions read among them."""
        return self.main_block.parameters()

    def persistables(self) -> list[Variable]:
        """Return what lives in the scope between steps, in order of creation."""
        return [v for v in self.list_vars() if v.persistable]

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def block(self, index: int) -> Block:
        """Return a block by index."""
        return self.blocks[index]

    def list_vars(self) -> Iterator[Variable]:
        """Yield every variable of every block."""
        for block in self.blocks:
            yield from block.vars.values()

    def unique(self, key: str) -> str:
        """Return `key_0`, `key_1`, ...: a name that no variable of this program has."""
        while True:
            n = self._counters.get(key, 0)
            self._counters[key] = n + 1
            name = f"{key}_{n}"
            if all(name not in block.vars for block in self.blocks):
                return name

    def unique_own(self, key: str) -> str:
        """Return such a name for what no program with another prefix has: state that lives on between steps, or what is recorded."""
        return self.unique(f"{self.prefix}{key}")

    @contextlib.contextmanager
    def marked(self, **facts: Any) -> Iterator[None]:
        """Change facts of `mark` for the ops appended inside."""
        before = self.mark
        self.mark = replace(before, **facts)
        try:
            yield
        finally:
            self.mark = before

    @contextlib.contextmanager
    def role(self, role: Role, role_vars: Sequence[str] = ()) -> Iterator[None]:
        """Give the ops appended inside a role and role variables ([param, grad, ...])."""
        with self.marked(role=role, role_vars=tuple(role_vars)):
            yield

    @contextlib.contextmanager
    def place(self, at: Span | None) -> Iterator[None]:
        """Give the ops appended inside a place in a file."""
        with self.marked(at=at):
            yield

    @contextlib.contextmanager
    def name_scope(self, prefix: str) -> Iterator[None]:
        """Give the ops appended inside a scope for pictures; names of variables do not change."""
        with self.marked(scope=f"{self.mark.scope}{prefix}/"):
            yield

    def clone(self, for_test: bool = False) -> Program:
        """Return a copy; for_test switches ops that have `is_test` to evaluation. Nothing is pruned.

        Call it before `append_backward`, as fluid asks: backward and optimizer ops are copied too.
        """
        made = type(self)(self.name)
        made.random_seed, made.is_test, made.prefix = self.random_seed, self.is_test or for_test, self.prefix
        made._counters = dict(self._counters)
        made.blocks = []
        for block in self.blocks:
            copy = type(block)(made, block.index)
            copy.parent_idx = block.parent_idx
            made.blocks.append(copy)
            for v in block.vars.values():
                copy.vars[v.name] = v.for_block(copy)
            for o in block.ops:
                attrs = dict(o.attrs)
                if for_test:
                    attrs |= {"is_test": True} if "is_test" in attrs else {}
                    attrs |= {k: v.for_test() for k, v in attrs.items() if hasattr(v, "for_test")}  # regions
                ins = {s: list(n) for s, n in o.inputs.items()}
                outs = {s: list(n) for s, n in o.outputs.items()}
                copy.ops.append(type(o)(o.type, ins, outs, attrs, o.role, list(o.role_vars), o.at, o.scope, o.segment))
        return made


__all__ = ["EMPTY", "RULES", "Block", "Mark", "Operator", "Parameter", "Program", "Role", "Variable", "agrees"]
