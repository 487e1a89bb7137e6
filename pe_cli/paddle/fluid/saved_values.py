"""Values of variables in files, as the original has them: a file of tensors each, or one for all; safetensors files are read, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.io import atomic
from pe_cli.io.fluid.tensors import of_tensors
from pe_cli.io.fluid.value_files import is_original, read_original
from pe_cli.io.tensors import read_safetensors
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.compiler import CompiledProgram
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.program.ir import Parameter, Program, Variable

Array = np.ndarray[Any, Any]


def is_parameter(var: Variable) -> bool:
    """Return whether a variable is a parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Return whether a variable lives between steps."""
    return var.persistable


def get_program_parameter(program: Program) -> list[Variable]:
    """Return a program's parameters."""
    return [v for v in program.list_vars() if is_parameter(v)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """Return a program's persistable variables."""
    return [v for v in program.list_vars() if v.persistable]


def get_parameter_value(para: Any, executor: Any) -> Array:
    """Return the value of a parameter; the executor is without effect: values are taken from the global scope.

    Raises:
        FluidTypeError: it is no parameter; a TypeError.
    """
    if not isinstance(para, Variable) or not is_parameter(para):
        raise FluidTypeError(f"get_parameter_value needs a parameter, got {para!r:.60}")
    return np.array(global_scope().root().read(para.name))


def get_parameter_value_by_name(name: str, executor: Any, program: Any = None) -> Array:
    """Return the value of the parameter of that name of a program, or of the default main program."""
    return get_parameter_value((program or default_main_program()).global_block().var(name), executor)


def value_of(var: Variable, scope: Any) -> Array:
    """Return what a file has of a variable: its value in a scope; for a row of weights that no op reads, those weights."""
    joined = getattr(var, "joined", None)
    # Some of the original's layers keep one long vector for what are several parameters here.
    if joined is None:
        return np.asarray(scope.read(var.name))
    return np.concatenate([np.ravel(scope.read(name)) for name in joined])


# --- files ----------------------------------------------------------------------------------------------------------


def inside(folder: Any, name: str) -> Path:
    """Return the file of a name in a folder.

    Raises:
        FluidValueError: the name leads out of the folder; a ValueError.
    """
    base = Path(folder).resolve()
    path = (base / name).resolve()
    # Names come from files and scripts: `../x` or an absolute path must not leave the folder.
    if base not in path.parents:
        raise FluidValueError(f"'{name}' leads out of {folder}")
    return path


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all; its folder is made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with raised_as(FluidValueError), atomic.temporary(path) as part:
        part.write_bytes(data)


def _write(path: Path, arrays: Mapping[str, Array]) -> None:
    with raised_as(FluidValueError):
        write_bytes(path, of_tensors(arrays))


def read_values(path: Path, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return name -> value of a file: a safetensors file, or one of the original, whose tensors may be without names."""
    with raised_as(FluidValueError):
        return read_original(path, names) if path.is_file() and is_original(path) else read_safetensors(path)


def _chosen(program: Any, names: Any, predicate: Callable[[Variable], bool] | None) -> list[Variable]:
    if isinstance(program, CompiledProgram):
        program = program._program
    program = default_main_program() if program is None else program
    if not isinstance(program, Program):
        raise FluidTypeError(f"main_program must be a Program, got {type(program).__name__}")
    if names is not None:
        block = program.global_block()
        return [block.var(v) if isinstance(v, str) else v for v in names]
    return [v for v in program.list_vars() if predicate is None or predicate(v)]


def save_vars(
    executor: Any,
    dirname: Any,
    main_program: Any = None,
    vars: Any = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Save variables' values.

    Args:
        executor: without effect: values are taken from the global scope.
        dirname: folder, made where it is not there.
        main_program: default: the default main program.
        vars: variables or names; default: those that predicate picks.
        predicate: picks variables.
        filename: one file for all; default: one file each, called as the variable.

    Raises:
        FluidValueError: a variable without a value (a RuntimeError), or a name that leads out of the folder.
    """
    scope = global_scope().root()
    arrays = {v.name: value_of(v, scope) for v in _chosen(main_program, vars, predicate) if not v.is_data}
    if filename is not None:
        _write(inside(dirname, filename), arrays)
    else:
        for name, value in arrays.items():
            _write(inside(dirname, name), {name: value})


def save_params(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Save parameters; arguments of `save_vars`."""
    save_vars(executor, dirname, main_program, None, is_parameter, filename)


def save_persistables(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Save everything that lives between steps; arguments of `save_vars`.

    Of a trainer's program, with parameter servers, the first trainer also saves what only servers have: tables, state of optimizers.

    Raises:
        FluidValueError: as `save_vars`; or a trainer's program with `filename`; a ValueError.
        EnforceNotMet: a server is lost; a RuntimeError.
    """
    remote = getattr(default_main_program() if main_program is None else main_program, "remote_values", None)
    if remote is None:
        save_vars(executor, dirname, main_program, None, is_persistable, filename)
        return
    if filename is not None:
        raise FluidValueError("a trainer's program saves every variable in a file of its own", hint="leave filename out")
    # Trainers have no values of these, so reading them from the scope would fail.
    elsewhere = set(remote.names)
    save_vars(executor, dirname, main_program, None, lambda v: v.persistable and v.name not in elsewhere)
    for name, value in remote.taken(Path(dirname), executor) if remote.are_saved else ():
        _write(inside(dirname, name), {name: value})


def load_vars(
    executor: Any,
    dirname: Any,
    main_program: Any = None,
    vars: Any = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Load what `save_vars` saved, here or in the original; same arguments.

    Raises:
        FluidValueError: a file or variable is missing, or a shape does not fit; a ValueError.
    """
    chosen = [v for v in _chosen(main_program, vars, predicate) if not v.is_data]
    # Sorted, as a joined file has no names: the n-th tensor belongs to the n-th name.
    # the original puts tensors into one file in the order of their names
    found = read_values(inside(dirname, filename), sorted(v.name for v in chosen)) if filename is not None else {}
    if filename is None:
        for v in chosen:
            found |= read_values(inside(dirname, v.name), [v.name])
    set_values(chosen, found)


def load_params(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Load parameters; arguments of `save_vars`."""
    load_vars(executor, dirname, main_program, None, is_parameter, filename)


def load_persistables(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Load everything that lives between steps; arguments of `save_vars`."""
    load_vars(executor, dirname, main_program, None, is_persistable, filename)


def set_values(chosen: Iterable[Variable], values: Mapping[str, Array]) -> None:
    """Write values of variables into the global scope.

    Raises:
        FluidValueError: one has no value, or one of another type; a ValueError.
    """
    scope = global_scope().root()
    for v in chosen:
        if v.name not in values:
            raise FluidValueError(f"the file has no value for '{v.name}'")
        value = values[v.name]
        # The original knows no scalars: a number is an array of one.
        if {value.shape, v.shape} == {(), (1,)}:
            value = value.reshape(v.shape)
        if value.shape != v.shape or value.dtype != v.type.numpy:
            raise FluidValueError(
                f"'{v.name}' is {value.dtype}{list(value.shape)} in the file and {v.type} in the program"
            )
        scope.write(v.name, value)
