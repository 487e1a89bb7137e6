"""Saving and loading: values as safetensors files, inference models as JSON beside them; values that the original saved are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io import atomic
from pe_cli.io.tensors import read_safetensors, write_safetensors
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.compiler import CompiledProgram
from pe_cli.paddle.fluid.data_sets import BatchSampler as NewerSampler
from pe_cli.paddle.fluid.data_sets import DataLoader, Dataset
from pe_cli.paddle.fluid.decorators import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from pe_cli.paddle.fluid.framework import adopt, default_main_program
from pe_cli.paddle.fluid.original_files import is_original, read_original
from pe_cli.paddle.fluid.reader import PyReader, default_collate_fn
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.reference_names import missing
from pe_cli.program.ir import Parameter, Program, Variable
from pe_cli.program.prune import prune
from pe_cli.program.serialize import from_dict, to_dict
from pe_cli.program.verify import verify

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


# --- files ----------------------------------------------------------------------------------------------------------


def _inside(folder: Any, name: str) -> Path:
    """Return the file of a name in a folder.

    Raises:
        FluidValueError: the name leads out of the folder; a ValueError.
    """
    base = Path(folder).resolve()
    path = (base / name).resolve()
    if base not in path.parents:
        raise FluidValueError(f"'{name}' leads out of {folder}")
    return path


def _write(path: Path, arrays: Mapping[str, Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with raised_as(FluidValueError), atomic.temporary(path) as part:
        write_safetensors(part, arrays)


def _read(path: Path, names: Sequence[str] | None = None) -> dict[str, Array]:
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
    arrays = {v.name: scope.read(v.name) for v in _chosen(main_program, vars, predicate) if not v.is_data}
    if filename is not None:
        _write(_inside(dirname, filename), arrays)
    else:
        for name, value in arrays.items():
            _write(_inside(dirname, name), {name: value})


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
    elsewhere = set(remote.names)
    save_vars(executor, dirname, main_program, None, lambda v: v.persistable and v.name not in elsewhere)
    for name, value in remote.taken(Path(dirname), executor) if remote.are_saved else ():
        _write(_inside(dirname, name), {name: value})


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
    # the original puts tensors into one file in the order of their names
    found = _read(_inside(dirname, filename), sorted(v.name for v in chosen)) if filename is not None else {}
    if filename is None:
        for v in chosen:
            found |= _read(_inside(dirname, v.name), [v.name])
    _set(chosen, found)


def load_params(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Load parameters; arguments of `save_vars`."""
    load_vars(executor, dirname, main_program, None, is_parameter, filename)


def load_persistables(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Load everything that lives between steps; arguments of `save_vars`."""
    load_vars(executor, dirname, main_program, None, is_persistable, filename)


def _set(chosen: Iterable[Variable], values: Mapping[str, Array]) -> None:
    scope = global_scope().root()
    for v in chosen:
        if v.name not in values:
            raise FluidValueError(f"the file has no value for '{v.name}'")
        value = values[v.name]
        if value.shape != v.shape or value.dtype != v.type.numpy:
            raise FluidValueError(
                f"'{v.name}' is {value.dtype}{list(value.shape)} in the file and {v.type} in the program"
            )
        scope.write(v.name, value)


# --- inference models -----------------------------------------------------------------------------------------------


def save_inference_model(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    dirname: Any,
    feeded_var_names: Any,
    target_vars: Any,
    executor: Any,
    main_program: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that targets need, and its values.

    Args:
        dirname: folder.
        feeded_var_names: names of what is fed.
        target_vars: variables to compute.
        executor: without effect.
        main_program: default: the default main program.
        model_filename: default: `__model__`.
        params_filename: one file for all values; default: one file each.
        export_for_deployment: without effect.
        program_only: do not save values.

    Returns:
        Names of the targets.

    Raises:
        FluidValueError, EnforceNotMet: see `save_persistables`.
    """
    program = main_program._program if isinstance(main_program, CompiledProgram) else main_program
    program = default_main_program() if program is None else program
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = [v.name for v in (target_vars if isinstance(target_vars, (list, tuple)) else [target_vars])]
    needed = prune(program.clone(for_test=True), targets)
    remote = getattr(program, "remote_values", None)
    needed.remote_values = remote and remote.among({v.name for v in needed.list_vars()})  # type: ignore[attr-defined]
    model = {"program": to_dict(needed), "feeds": feeds, "fetches": targets}
    path = _inside(dirname, model_filename or "__model__")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, json.dumps(model))
    if not program_only:
        save_persistables(executor, dirname, needed, params_filename)
    return targets


def load_inference_model(
    dirname: Any,
    executor: Any,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Load what `save_inference_model` saved.

    Returns:
        [program, names of what is fed, variables to fetch].

    Raises:
        FluidValueError: there is no such folder, or it holds no model; a ValueError.
    """
    path = _inside(dirname, model_filename or "__model__")
    if not path.is_file():
        raise FluidValueError(f"there is no model {path}")
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
        program = adopt(from_dict(model["program"]))
        verify(program, read=True)
        feeds, fetches = list(model["feeds"]), list(model["fetches"])
        for name in (*feeds, *fetches):
            program.global_block().var(name)
    except (ValueError, KeyError, TypeError, RecursionError, PeError) as error:
        raise FluidValueError(f"{path} is no inference model: {error}") from None
    load_persistables(executor, dirname, program, params_filename)
    for name in feeds:
        setattr(program.global_block().var(name), "any_sizes", True)  # noqa: B010 - adopted: the front's Variable
    return [program, feeds, [program.global_block().var(name) for name in fetches]]


# --- whole programs -------------------------------------------------------------------------------------------------


def save(program: Program, model_path: str) -> None:
    """Save parameters to PATH.pdparams, other persistable variables to PATH.pdopt, the program to PATH.pdmodel."""
    scope = global_scope().root()
    parameters = {v.name: scope.read(v.name) for v in get_program_parameter(program)}
    others = {v.name: scope.read(v.name) for v in get_program_persistable_vars(program) if not is_parameter(v)}
    _write(Path(f"{model_path}.pdparams"), parameters)
    _write(Path(f"{model_path}.pdopt"), others)
    atomic.write_text(Path(f"{model_path}.pdmodel"), json.dumps(to_dict(program)))


def load_program_state(model_path: str, var_list: Any = None) -> dict[str, Array]:
    """Return name -> value of what `save`, or `save_params` and its kin, saved.

    Args:
        model_path: as `save` was given it, with or without the ending of one of its files; the folder of files of one variable each; or
            the file of all variables.
        var_list: variables to read of what `save_params` and its kin saved; None: all. As in the original, it has no effect on what
            `save` saved.

    Raises:
        FluidTypeError: var_list holds something that is no variable; a TypeError.
        FluidValueError: there is no such file, one cannot be read, or none has a value for a variable of var_list; a ValueError.
    """
    path, saved = Path(model_path), _saved(model_path)
    if saved[0].exists() or not path.exists():
        return _read(saved[0]) | (_read(saved[1]) if saved[1].is_file() else {})
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "__model__") if path.is_dir() else [path]
    listed = None if var_list is None else sorted(getattr(v, "name", "") for v in var_list)
    state: dict[str, Array] = {}
    for file in files:
        state |= _read(file, [str(file.relative_to(path))] if path.is_dir() else listed)
    for v in var_list or ():
        if not isinstance(v, Variable):
            raise FluidTypeError(f"load_program_state: var_list holds {v!r}", hint="give variables of a program")
        if v.name not in state:
            raise FluidValueError(f"{path} has no value for '{v.name}' of var_list")
    return state if var_list is None else {v.name: state[v.name] for v in var_list}


def _saved(model_path: str) -> tuple[Path, Path]:
    """Return the files of parameters and of other variables that `save` makes; model_path may end as one of its three files does."""
    path = Path(model_path)
    prefix = path.with_suffix("") if path.suffix in (".pdparams", ".pdopt", ".pdmodel") else path
    return Path(f"{prefix}.pdparams"), Path(f"{prefix}.pdopt")


def set_program_state(program: Program, state_dict: Mapping[str, Array]) -> None:
    """Write values to a program's persistable variables that are among them."""
    chosen = [v for v in get_program_persistable_vars(program) if v.name in state_dict]
    _set(chosen, {k: np.asarray(v) for k, v in state_dict.items()})


def load(program: Program, model_path: str, executor: Any = None, var_list: Any = None) -> None:
    """Load what `save`, or `save_params` and its kin, saved; arguments of `load_program_state`, and `executor` without effect.

    Raises:
        FluidValueError: as `load_program_state`; or the file that `save` made has no value for a parameter of the program.
    """
    state, saved = load_program_state(model_path, var_list), _saved(model_path)[0]
    lost = next((v.name for v in get_program_parameter(program) if v.name not in state), None)
    if lost is not None and saved.exists():
        raise FluidValueError(f"{saved} has no value for the parameter '{lost}'", hint="save the program that has it")
    set_program_state(program, state)


class BatchSampler(NewerSampler):
    """Numbers of the samples of every batch, as 2.x's has them; `indices` are its `sampler`."""

    def __init__(
        self, dataset: Any = None, indices: Any = None, shuffle: bool = False, batch_size: int = 1, drop_last: bool = False
    ) -> None:
        super().__init__(dataset, indices, shuffle, batch_size, drop_last)


__all__ = [
    "BatchSampler", "ComposeNotAligned", "DataLoader", "Dataset", "PyReader", "batch", "buffered", "cache", "chain", "compose",
    "default_collate_fn", "firstn",
    "get_parameter_value", "get_parameter_value_by_name", "get_program_parameter", "get_program_persistable_vars",
    "load", "load_inference_model", "load_params", "load_persistables",
    "load_program_state", "load_vars", "map_readers", "multiprocess_reader", "save", "save_inference_model", "save_params",
    "save_persistables", "save_vars", "set_program_state", "shuffle", "xmap_readers",
]  # fmt: skip
__getattr__ = missing("fluid.io", lambda: globals())
