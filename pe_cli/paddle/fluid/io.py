"""Saving and loading, in the original's files: values, inference models and whole programs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io.fluid import pickled_arrays
from pe_cli.io.fluid.models import read_bytes
from pe_cli.io.fluid.operator_writer import NotWritten
from pe_cli.io.fluid.writing import of_program
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
from pe_cli.paddle.fluid.original_blocks.programs import read_program
from pe_cli.paddle.fluid.reader import PyReader, default_collate_fn
from pe_cli.paddle.fluid.saved_values import (
    get_parameter_value,
    get_parameter_value_by_name,
    get_program_parameter,
    get_program_persistable_vars,
    inside,
    is_parameter,
    is_persistable,
    load_params,
    load_persistables,
    load_vars,
    read_values,
    save_params,
    save_persistables,
    save_vars,
    set_values,
    value_of,
    write_bytes,
)
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.reference_names import missing
from pe_cli.program import text_forms
from pe_cli.program.ir import Program, Variable
from pe_cli.program.prune import of_training, prune
from pe_cli.program.serialize import from_dict, to_dict
from pe_cli.program.verify import verify

Array = np.ndarray[Any, Any]


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

    A program with operators that the original has not is written as JSON, which is read here alone; a warning says so.

    Raises:
        FluidValueError, EnforceNotMet: see `save_persistables`.
    """
    program = main_program._program if isinstance(main_program, CompiledProgram) else main_program
    program = default_main_program() if program is None else program
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = [v.name for v in (target_vars if isinstance(target_vars, (list, tuple)) else [target_vars])]
    # In the state of evaluation: dropout and batch_norm of an inference model must not train.
    needed = prune(program.clone(for_test=True), targets)
    remote = getattr(program, "remote_values", None)
    needed.remote_values = remote and remote.among({v.name for v in needed.list_vars()})  # type: ignore[attr-defined]
    write_bytes(inside(dirname, model_filename or "__model__"), _of_model(needed, feeds, targets, partial(_json, needed, feeds, targets)))
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
    path = inside(dirname, model_filename or "__model__")
    with raised_as(FluidValueError):
        data = read_bytes(path)
    # A JSON text begins with a brace, and no message of the original does.
    if data[:1] != b"{":
        with raised_as(FluidValueError):
            loaded = read_program(data, str(path))
        program, feeds, fetches = adopt(loaded.program), loaded.feeds, loaded.fetches
    else:
        program, feeds, fetches = _of_json(path, data)
    load_persistables(executor, dirname, program, params_filename)
    for name in feeds:
        # Models are fed with other batch sizes, and often other image sizes, than those of the training script.
        setattr(program.global_block().var(name), "any_sizes", True)  # noqa: B010 - adopted: the front's Variable
    return [program, feeds, [program.global_block().var(name) for name in fetches]]


def _of_model(program: Any, feeds: Sequence[str] | None, fetches: Sequence[str], otherwise: Callable[[], str]) -> bytes:
    """Return the file of a program, in the original's form where it has one, and what is there otherwise."""
    try:
        # Ops that the original does not have, such as fused attention, have no form in its files.
        return of_program(program, feeds, fetches)
    except NotWritten as error:
        warnings.warn(f"{error.message}; the program is kept in a form that is read here alone", stacklevel=3)
    return otherwise().encode()


def _json(program: Any, feeds: Sequence[str], fetches: Sequence[str]) -> str:
    return json.dumps({"program": to_dict(program), "feeds": list(feeds), "fetches": list(fetches)})


def _of_json(path: Path, data: bytes) -> tuple[Any, list[str], list[str]]:
    """Return the program, feeds and fetches of a model whose program the original has no form for."""
    try:
        model = json.loads(data)
        # Read as data that anyone may have written: every op and name is verified before it can run.
        program = adopt(from_dict(model["program"]))
        verify(program, read=True)
        feeds, fetches = list(model["feeds"]), list(model["fetches"])
        for name in (*feeds, *fetches):
            program.global_block().var(name)
    except (ValueError, KeyError, TypeError, RecursionError, PeError) as error:
        raise FluidValueError(f"{path} is no inference model: {error}") from None
    return program, feeds, fetches


# --- whole programs -------------------------------------------------------------------------------------------------


def save(program: Program, model_path: str) -> None:
    """Save parameters to PATH.pdparams, other persistable variables to PATH.pdopt, the program before its gradients to PATH.pdmodel."""
    scope = global_scope().root()
    parameters = {v.name: value_of(v, scope) for v in get_program_parameter(program)}
    others = {v.name: value_of(v, scope) for v in get_program_persistable_vars(program) if not is_parameter(v)}
    for ending, values in (("pdparams", parameters), ("pdopt", others)):
        # The original's files have no arrays without axes.
        arrays = {name: value.reshape(value.shape or (1,)) for name, value in values.items()}
        write_bytes(Path(f"{model_path}.{ending}"), pickled_arrays.write(arrays))
    made = _forward(program)
    text = partial(text_forms.to_string, made, with_details=True)
    write_bytes(Path(f"{model_path}.pdmodel"), _of_model(made, None, (), text))


def _forward(program: Any) -> Any:
    """Return a program without gradients and updates, in the state of training."""
    made = program.clone()
    for block in made.blocks:
        gone = {id(op) for op in of_training(block.ops)}
        block.ops = [op for op in block.ops if id(op) not in gone]
        used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())}
        block.vars = {name: v for name, v in block.vars.items() if name in used or v.persistable or v.is_data}
    return made


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
    # A path may be a file of `save` or a folder of older functions; files of `save` win where both are there.
    if saved[0].exists() or not path.exists():
        return read_values(saved[0]) | (read_values(saved[1]) if saved[1].is_file() else {})
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "__model__") if path.is_dir() else [path]
    listed = None if var_list is None else sorted(getattr(v, "name", "") for v in var_list)
    state: dict[str, Array] = {}
    for file in files:
        state |= read_values(file, [str(file.relative_to(path))] if path.is_dir() else listed)
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
    set_values(chosen, {k: np.asarray(v) for k, v in state_dict.items()})


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
    "get_parameter_value", "get_parameter_value_by_name", "get_program_parameter", "get_program_persistable_vars", "is_parameter",
    "is_persistable",
    "load", "load_inference_model", "load_params", "load_persistables",
    "load_program_state", "load_vars", "map_readers", "multiprocess_reader", "save", "save_inference_model", "save_params",
    "save_persistables", "save_vars", "set_program_state", "shuffle", "xmap_readers",
]  # fmt: skip
__getattr__ = missing("fluid.io", lambda: globals())
