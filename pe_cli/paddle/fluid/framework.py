"""Program, Block, Operator, Variable as the original's scripts use them, on the core's classes of these names."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.core.types import DTYPES, TensorType
from pe_cli.ops.define.registry import grad_name
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import original_ops, program_strings, unique_name
from pe_cli.paddle.fluid.constant_sizes import vary
from pe_cli.paddle.fluid.flags import get_flags, require_version, set_flags
from pe_cli.paddle.fluid.levels import Levels
from pe_cli.paddle.fluid.naming import CALL
from pe_cli.paddle.fluid.op_roles import RoleGuards
from pe_cli.paddle.fluid.places import cpu_places, cuda_pinned_places, cuda_places, device_guard, is_compiled_with_cuda
from pe_cli.paddle.fluid.variable import Operator, Parameter, Variable, as_dtype, as_sizes
from pe_cli.program import defaults, ir, text_forms
from pe_cli.program.prune import drop_training

#: The original's: name of no variable, and what names of gradients end with.
EMPTY_VAR_NAME, GRAD_VAR_SUFFIX = ir.EMPTY, grad_name("")
convert_np_dtype_to_dtype_ = as_dtype
grad_var_name = grad_name


def _type(shape: Any, dtype: Any) -> TensorType:
    kind = as_dtype(dtype)
    if kind not in DTYPES:
        hint = f"one of {', '.join(DTYPES)}; NumPy casts what is fed or kept in another one, float16 to float32 for example"
        raise FluidTypeError(f"a variable cannot have elements of {kind}", hint=hint)
    return TensorType(as_sizes(shape), kind)


class Block(ir.Block):
    """A block whose variables have operators, and whose changes the executors notice."""

    operators = Operator

    @property
    def idx(self) -> int:
        """Its index."""
        return self.index

    @property
    def forward_block_idx(self) -> int:
        """The index of the block whose gradient this is: none, as regions are values of operators here."""
        return -1

    def var(self, name: str) -> Any:
        """Return a variable.

        Raises:
            FluidValueError: there is none of that name; a ValueError.
        """
        found = self.find_var(name)
        if found is None:
            raise FluidValueError(f"there is no variable '{name}'", hint=did_you_mean(str(name), self.vars))
        return found

    def has_var(self, name: str) -> bool:
        """Return whether there is a variable of that name."""
        return name in self.vars

    def _find_var_recursive(self, name: str) -> ir.Variable | None:
        return self.vars.get(name)

    _var_recursive = var

    def _clone_variable(self, var: Any, force_persistable: bool = True) -> Any:
        facts = {"lod_level": var.lod_level, "is_data": var.is_data, "persistable": force_persistable or var.persistable}
        # One whose shape no op has said yet gets it from an op here.
        return self.create_var(var.name, shape=None if var.undefined else var.shape, dtype=var.dtype, **facts)

    def create_var(
        self, name: str | None = None, type: Any = None, shape: Any = None, dtype: Any = None, **facts: Any
    ) -> Any:
        """Add a variable, or return the one of that name where the types agree.

        Raises:
            FluidValueError: there is one of that name and another type.
            FluidTypeError: there is no such element type; a TypeError.
        """
        undefined = shape is None and not isinstance(type, TensorType)
        # A scalar float32 stands for a variable without a shape until an op says what it is.
        kind = type if isinstance(type, TensorType) else _type(shape or (), dtype or "float32")
        name = name or self.program.unique("_generated_var")
        known = {k: v for k, v in facts.items() if k in _FACTS}
        found = self.vars.get(name)
        if found is not None and not isinstance(type, TensorType):
            if not undefined and not ir.agrees(found.type, kind):
                raise FluidValueError(f"variable '{name}' is {found.type}, and declared again as {kind}")
            # Declared again with the same type it is the same variable: scripts create what a layer has created before.
            return found
        return self._add(Variable(self, name, kind, **{"at": self.program.mark.at, "undefined": undefined, **known}))

    def create_parameter(self, name: Any = None, type: Any = None, **facts: Any) -> Any:
        """Add a parameter; `shape`, `dtype` and `initializer` as the original's, or the core's type.

        Raises:
            FluidTypeError: there is no such element type; a TypeError.
        """
        if not isinstance(type, TensorType):
            type = _type(facts.pop("shape"), facts.pop("dtype", "float32"))
        initializer = facts.pop("initializer", None)
        rate = (facts.pop("optimize_attr", None) or {}).get("learning_rate")
        if rate is not None:
            facts["learning_rate"] = float(rate)
        made = Parameter(self, name, type, **{"persistable": True, "at": self.program.mark.at, **facts})
        self._add(made)
        if initializer is not None:
            initializer(made, default_startup_program().global_block())
        return made

    def all_parameters(self) -> list[ir.Parameter]:
        """Return all parameters."""
        return self.parameters()

    iter_parameters = all_parameters

    def append_op(self, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None, **more: Any) -> Any:
        """Append an operator; the original's extra keywords are left out."""
        known = {k: v for k, v in more.items() if k in ("index", "at")}
        self.program.version += 1
        # Attributes that begin with op_ are the original's marks (roles, scopes), which the core keeps as fields of the operator.
        given = {k: v for k, v in (attrs or {}).items() if not k.startswith("op_") and v is not None}
        given = {**original_ops.FACTS.get(type, {}), **given}
        if original_ops.is_original(type, inputs or {}, outputs or {}, given):
            original_ops.append(self, type, inputs or {}, outputs or {}, given)
            return self.ops[-1]
        return super().append_op(type, inputs or {}, outputs or {}, given, **known)

    def _operator(self, type: str, inputs: Any, outputs: Any, attrs: Mapping[str, Any], at: Any) -> ir.Operator:
        return Operator(**vars(super()._operator(type, inputs, outputs, attrs, at)))

    def _infer(self, op: ir.Operator) -> None:
        # What was created without a shape takes the type that the first op writes to it.
        waiting = [n for n in op.output_names() if getattr(self.vars.get(n), "undefined", False)]
        if waiting:
            types = self.infer(op, lambda name: self.var(name).type)
            for slot, names in op.outputs.items():
                for name, found in zip(names, types.get(slot, ()), strict=False):
                    if name in waiting:
                        self.vars[name].type = found
                        self.vars[name].undefined = False  # type: ignore[attr-defined]
        vary(self, op)
        fresh = [n for n in op.output_names() if n not in self.vars]
        super()._infer(op)
        if any(not self.vars[n].stop_gradient for n in op.input_names()):
            for name in fresh:  # a feed whose stop_gradient a script has cleared lets gradients through
                self.vars[name].stop_gradient = False

    def rename_vars(self, names: Mapping[str, str], first: int = 0) -> None:
        """Give variables other names."""
        self.program.version += 1
        super().rename_vars(names, first)

    _rename_var = ir.Block.rename_var

    def _insert_op(self, index: int, **given: Any) -> Any:
        return self.append_op(**given, index=index)

    def _prepend_op(self, **given: Any) -> Any:
        return self.append_op(**given, index=0)

    def _remove_op(self, index: int) -> None:
        self.program.version += 1
        del self.ops[index]

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the block as text."""
        return text_forms.to_string(self.program, throw_on_error, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__


#: Roles of ops that only training needs.
_FACTS = ("persistable", "stop_gradient", "is_data", "lod_level", "at", "any_sizes")


class Program(Levels, RoleGuards):
    """A program whose blocks have the original's accessors.

    Attributes:
        version: counts changes; executors prepare a program again when it has changed.
        readers: feed it where a run has no feed.
        prints: variables that are shown after every run.
        arrays: name of their rows -> arrays of tensors that loops use.
        named_arrays: name -> array of tensors, for what is fetched by its name.
        scopes: scope -> how often each prefix was used inside it.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.blocks: list[ir.Block] = [Block(self, 0)]
        self.version = 0
        self.readers: list[Any] = []
        self.prints: list[Any] = []
        self.arrays: dict[str, Any] = {}
        self.named_arrays: dict[str, Any] = {}
        self.scopes: dict[str, Counter[str]] = {}

    def clone(self, for_test: bool = False) -> Program:
        """Return a copy; for_test switches ops to evaluation, and leaves out those of backward and of updates."""
        made = super().clone(for_test)
        assert isinstance(made, Program)
        if for_test:
            drop_training(made)
        made.readers, made.prints, made.named_arrays = list(self.readers), list(self.prints), dict(self.named_arrays)
        return made

    def all_parameters(self) -> list[ir.Parameter]:
        """Return all parameters."""
        return self.global_block().parameters()

    def unique(self, key: str) -> str:
        """Return a name that no variable has, from the current generator of `unique_name`."""
        call = CALL.get()
        # Inside a layer with the original's names the layer says what its next variable is called.
        while True:
            name = unique_name.generate(key) if call is None else call.name_of(key)
            name = name.removeprefix(unique_name.generator.prefix) if "@" in key else name  # `x@GRAD` begins with a variable's name
            # Another generator may be current than that which named earlier variables: names are counted on until one is free.
            if all(name not in block.vars for block in self.blocks):
                return name

    @property
    def around(self) -> str:  # type: ignore[override]
        """What all names begin with that are made now: those of a layer that has the original's names."""
        call = CALL.get()
        return "" if call is None else call.prefix

    def global_seed(self, seed: int = 0) -> None:
        """Set the seed of random ops of the default programs."""
        for program in (default_main_program(), default_startup_program(), self):
            program.random_seed = int(seed)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the program as text, one op per line."""
        return text_forms.to_string(self, throw_on_error, with_details)

    @property
    def desc(self) -> Program:
        """The program itself, which has the accessors that scripts ask a description for."""
        return self

    def serialize_to_string(self) -> bytes:
        """Return the program as the original has it, or as text, which is read here alone, where it has no form there."""
        return program_strings.as_bytes(self)

    @staticmethod
    def parse_from_string(binary_str: str | bytes) -> Program:
        """Return the program of the original's bytes, of a text or JSON, with the original's accessors."""
        return adopt(program_strings.of_string(binary_str))

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__


def adopt(program: ir.Program) -> Program:
    """Return a core program as one with the original's accessors."""
    made = Program(program.name)
    made.random_seed, made.is_test = program.random_seed, program.is_test
    made.blocks = []
    for block in program.blocks:
        copy = Block(made, block.index)
        made.blocks.append(copy)
        for v in block.vars.values():
            # The classes of this front have the same fields as the core's, so attributes move over as they are.
            kind = Parameter if isinstance(v, ir.Parameter) else Variable
            copy.vars[v.name] = kind(**{**vars(v), "block": copy})
        copy.ops = [Operator(**vars(replace(op))) for op in block.ops]
    return made


# --- default programs -----------------------------------------------------------------------------------------------

_DEFAULTS: list[Program] = []


def ensure_defaults() -> None:
    """Make the process-wide default programs this thread's, unless it has its own."""
    if not _DEFAULTS:
        _DEFAULTS.extend((Program("main"), Program("startup")))
    if defaults._MAIN.get() is None:
        defaults._MAIN.set(_DEFAULTS[0])
    if defaults._STARTUP.get() is None:
        defaults._STARTUP.set(_DEFAULTS[1])


def default_main_program() -> Any:
    """Return the program that layers append to."""
    ensure_defaults()
    return defaults.default_main_program()


def default_startup_program() -> Any:
    """Return the program that initializers append to."""
    ensure_defaults()
    return defaults.default_startup_program()


def _check_programs(*given: Any) -> None:
    for program in given:
        if program is not None and not isinstance(program, ir.Program):
            raise FluidTypeError(f"a program is needed, got {type(program).__name__}")


@contextlib.contextmanager
def program_guard(main_program: Any, startup_program: Any = None) -> Iterator[None]:
    """Make these the default programs inside.

    Raises:
        FluidTypeError: one of them is no program; a TypeError.
    """
    _check_programs(main_program, startup_program)
    ensure_defaults()
    with defaults.program_guard(main_program, startup_program):
        yield


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Prefix the ops appended inside, for pictures only; a prefix that comes again beside itself is numbered."""
    program = default_main_program()
    # Numbered inside the scope around it, not in the whole program.
    taken = program.scopes.setdefault(program.mark.scope, Counter())
    name = prefix or ""
    count, taken[name] = taken[name], taken[name] + 1
    with program.name_scope(f"{name}_{count}" if count else name):
        yield


def switch_main_program(program: Any) -> Any:
    """Make another program the default main program, and return the one before."""
    before = default_main_program()
    _check_programs(program)
    defaults._MAIN.set(program)
    return before


def switch_startup_program(program: Any) -> Any:
    """Make another program the default startup program, and return the one before."""
    before = default_startup_program()
    _check_programs(program)
    defaults._STARTUP.set(program)
    return before


def _get_var(name: str, program: Any = None) -> Any:
    """Return a variable of the main block of a program, the default main program without one."""
    return (default_main_program() if program is None else program).global_block().var(name)


def dtype_is_floating(dtype: Any) -> bool:
    """Return whether an element type is one of floating-point numbers."""
    return as_dtype(dtype) in ("float16", "float32", "float64")


def in_dygraph_mode() -> bool:
    """No: graphs are static here."""
    return False


__all__ = [
    "Block", "Operator", "Parameter", "Program", "Variable", "as_dtype", "as_sizes", "cpu_places", "cuda_pinned_places", "cuda_places",
    "default_main_program", "default_startup_program", "device_guard", "get_flags", "is_compiled_with_cuda", "name_scope",
    "program_guard", "require_version", "set_flags",
]  # fmt: skip
