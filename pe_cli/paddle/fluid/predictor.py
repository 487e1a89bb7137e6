"""Inference models by the original's C++ names: a configuration, a predictor, and the tensors that it is given and returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.executor import Executor
from pe_cli.paddle.fluid.io import load_inference_model
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, to_lengths
from pe_cli.paddle.fluid.places import CPUPlace, CUDAPlace
from pe_cli.paddle.fluid.scope import Scope, scope_guard


class PaddleDType(IntEnum):
    """Element types of tensors of predictors."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2


_TYPES = {"float32": PaddleDType.FLOAT32, "int64": PaddleDType.INT64, "int32": PaddleDType.INT32}


def _checked(data: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(data)
    if str(array.dtype) not in _TYPES:
        raise FluidTypeError(f"a predictor takes elements of {', '.join(_TYPES)}, got {array.dtype}", hint="data.astype('float32')")
    return array


class PaddleBuf:
    """Elements in memory.

    Args:
        data: an array, a list of numbers, which become float32, or a number of bytes, all 0.
    """

    def __init__(self, data: Any) -> None:
        self._array = np.zeros(0, np.float32)
        if isinstance(data, int):
            self.resize(data)
        else:
            self.reset(data)

    def resize(self, length: int) -> None:
        """Hold as many bytes as `length`, all 0."""
        self._array = np.zeros(length, np.uint8)

    def reset(self, data: Any) -> None:
        """Hold other elements."""
        self._array = np.array(data, np.float32) if isinstance(data, list) else _checked(data).copy()

    def empty(self) -> bool:
        """Return whether there are none."""
        return not self._array.size

    def length(self) -> int:
        """Return the number of bytes."""
        return self._array.nbytes

    def float_data(self) -> list[float]:
        """Return the bytes as float32, flat."""
        return self._as(np.float32)

    def int64_data(self) -> list[int]:
        """Return the bytes as int64, flat."""
        return self._as(np.int64)

    def int32_data(self) -> list[int]:
        """Return the bytes as int32, flat."""
        return self._as(np.int32)

    def tolist(self, dtype: str) -> list[Any]:
        """Return the bytes as elements of a type, flat."""
        return self._as(np.dtype(dtype))

    def _as(self, dtype: Any) -> list[Any]:
        return list(np.ascontiguousarray(self._array).reshape(-1).view(np.uint8).view(dtype).tolist())


class PaddleTensor:
    """A value that a predictor is given, or returns.

    Args:
        data: an array of float32, int64 or int32.
        name: of the variable; needed where `switch_specify_input_names` is on.
        lod: offsets of the sequences, by level.
        copy: whether the array may change later without changing the tensor.

    Attributes:
        shape: sizes.
        lod: offsets of the sequences, by level.
    """

    def __init__(self, data: Any = None, name: str = "", lod: Sequence[Sequence[int]] = (), copy: bool = True) -> None:
        array = np.zeros(0, np.float32) if data is None else _checked(data)
        self._array = array.copy() if copy else array
        self.name, self.lod, self.shape = name, [list(level) for level in lod], list(array.shape)

    @property
    def dtype(self) -> PaddleDType:
        """The element type."""
        return _TYPES[str(self._array.dtype)]

    @property
    def data(self) -> PaddleBuf:
        """The elements."""
        return PaddleBuf(self._array)

    @data.setter
    def data(self, buffer: PaddleBuf) -> None:
        self._array = buffer._array

    def as_ndarray(self) -> np.ndarray[Any, Any]:
        """Return the value as an array."""
        return self._array.reshape(self.shape).copy()


class AnalysisConfig:
    """Where a model lies, and on what it runs.

    Args:
        model: folder of the model; or the file of its program, where `params` is given; or a configuration to copy.
        params: file of its parameters.
    """

    def __init__(self, model: Any = "", params: str = "") -> None:
        self._on: dict[str, Any] = {"feed_fetch_ops": True, "names": False, "gpu": None, "threads": 1, "ir": True}
        self._at = ("", "", "")
        if isinstance(model, AnalysisConfig):
            self._on, self._at = dict(model._on), model._at
        elif model:
            self.set_model(model, params)

    def set_model(self, model: str, params: str = "") -> None:
        """Say where the model lies; arguments of the class."""
        self._at = ("", model, params) if params else (model, "", "")

    def set_prog_file(self, file: str) -> None:
        """Say which file the program is in."""
        self._at = (self._at[0], file, self._at[2])

    def set_params_file(self, file: str) -> None:
        """Say which file the parameters are in."""
        self._at = (*self._at[:2], file)

    def model_dir(self) -> str:
        """Return the folder of the model."""
        return self._at[0]

    def prog_file(self) -> str:
        """Return the file of the program."""
        return self._at[1]

    def params_file(self) -> str:
        """Return the file of the parameters."""
        return self._at[2]

    def enable_use_gpu(self, memory_pool_init_size_mb: int = 100, device_id: int = 0) -> None:
        """Run on a GPU; memory is planned here for the batch, so that `memory_pool_init_size_mb` says nothing."""
        self._on["gpu"] = int(device_id)

    def disable_gpu(self) -> None:
        """Run on the CPU, as without a word."""
        self._on["gpu"] = None

    def use_gpu(self) -> bool:
        """Return whether it runs on a GPU."""
        return self._on["gpu"] is not None

    def gpu_device_id(self) -> int:
        """Return the number of the GPU."""
        return self._on["gpu"] or 0

    def switch_use_feed_fetch_ops(self, on: bool = True) -> None:
        """Say whether inputs are given to `run`, or by tensors to `zero_copy_run`; here both work either way."""
        self._on["feed_fetch_ops"] = bool(on)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """Return what `switch_use_feed_fetch_ops` has said."""
        return bool(self._on["feed_fetch_ops"])

    def switch_specify_input_names(self, on: bool = True) -> None:
        """Say whether inputs of `run` belong to variables by their names, rather than by their order."""
        self._on["names"] = bool(on)

    def specify_input_name(self) -> bool:
        """Return what `switch_specify_input_names` has said."""
        return bool(self._on["names"])

    def set_cpu_math_library_num_threads(self, number: int) -> None:
        """Keep a number of threads for scripts that ask for it; a step takes those of its device."""
        self._on["threads"] = int(number)

    def cpu_math_library_num_threads(self) -> int:
        """Return what `set_cpu_math_library_num_threads` has said."""
        return int(self._on["threads"])

    def switch_ir_optim(self, on: bool = True) -> None:
        """Keep whether programs may be changed for speed, which the strategy of a program says here."""
        self._on["ir"] = bool(on)

    def ir_optim(self) -> bool:
        """Return what `switch_ir_optim` has said."""
        return bool(self._on["ir"])

    def _without_effect(self, *_: Any) -> None:
        """Change nothing: memory is always shared, kernels are this package's own, and nothing is logged."""

    enable_memory_optim = enable_mkldnn = set_mkldnn_cache_capacity = disable_glog_info = enable_profile = _without_effect


class NativeConfig:
    """The older configuration.

    Attributes:
        model_dir: folder of the model.
        prog_file, param_file: files of its program and parameters, where it has no folder.
        use_gpu: whether it runs on a GPU.
        device: the GPU's number.
        specify_input_name: whether inputs belong to variables by their names.
    """

    def __init__(self) -> None:
        self.model_dir = self.prog_file = self.param_file = ""
        self.use_gpu, self.device, self.specify_input_name = False, 0, False

    def _newer(self) -> AnalysisConfig:
        made = AnalysisConfig(self.model_dir) if self.model_dir else AnalysisConfig(self.prog_file, self.param_file)
        made.switch_specify_input_names(self.specify_input_name)
        if self.use_gpu:
            made.enable_use_gpu(0, self.device)
        return made


class ZeroCopyTensor:
    """A variable of a predictor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held = LoDTensor()

    def reshape(self, shape: Sequence[int]) -> None:
        """Say the sizes of what will be copied."""
        self._held._set_dims(shape)

    def copy_from_cpu(self, data: Any) -> None:
        """Take an array of float32, int64 or int32."""
        self._held.set(_checked(data))

    def copy_to_cpu(self) -> np.ndarray[Any, Any]:
        """Return the value as an array."""
        return np.array(self._held)

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Say the offsets of the sequences, by level."""
        self._held.set_lod(lod)

    def lod(self) -> list[list[int]]:
        """Return the offsets of the sequences, by level."""
        return self._held.lod()

    def shape(self) -> list[int]:
        """Return the sizes."""
        return self._held.shape()

    def type(self) -> PaddleDType:
        """Return the element type."""
        return _TYPES[self._held._dtype()]


def _placed(config: AnalysisConfig, executor: Executor) -> tuple[Any, ...]:
    """Return what `load_inference_model` takes for a model."""
    folder, program, params = config._at
    if folder:
        return folder, executor
    if not program or not params:
        raise FluidValueError("the configuration names no model", hint="AnalysisConfig(FOLDER), or AnalysisConfig(PROGRAM, PARAMETERS)")
    files = [Path(file).absolute() for file in (program, params)]
    above = os.path.commonpath([file.parent for file in files])
    return above, executor, *(str(file.relative_to(above)) for file in files)


class PaddlePredictor:
    """Runs an inference model.

    Args:
        config: where it lies.

    Raises:
        FluidValueError: there is none; a ValueError.
    """

    def __init__(self, config: AnalysisConfig) -> None:
        self._config = AnalysisConfig(config)
        self._scope = Scope()
        self._executor = Executor(CUDAPlace(config.gpu_device_id()) if config.use_gpu() else CPUPlace())
        with scope_guard(self._scope):
            self._program, self._feeds, self._fetches = load_inference_model(*_placed(config, self._executor))
        self._tensors = {name: ZeroCopyTensor(name) for name in (*self._feeds, *self.get_output_names())}

    def get_input_names(self) -> list[str]:
        """Return the names of what is fed, in order."""
        return list(self._feeds)

    def get_output_names(self) -> list[str]:
        """Return the names of what is returned, in order."""
        return [v.name for v in self._fetches]

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Return the declared sizes of what is fed, -1 for those of a batch."""
        return {name: list(self._program.global_block().var(name).shape) for name in self._feeds}

    def _tensor(self, name: str, names: Sequence[str]) -> ZeroCopyTensor:
        if name not in names:
            hint = did_you_mean(name, names) or f"one of {', '.join(names)}"
            raise FluidValueError(f"the model has no such variable '{name}'", hint=hint)
        return self._tensors[name]

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """Return a variable that is fed."""
        return self._tensor(name, self._feeds)

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """Return a variable that is returned; it has a value after `zero_copy_run`."""
        return self._tensor(name, self.get_output_names())

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Return what the model makes of inputs.

        Raises:
            FluidValueError: there are not as many as it takes, or one has the name of none of them; a ValueError.
        """
        given = list(inputs)
        if len(given) != len(self._feeds):
            raise FluidValueError(f"the model takes {len(self._feeds)} inputs, {', '.join(self._feeds)}, and got {len(given)}")
        by_name = self._config.specify_input_name()
        for name, one in zip(self._feeds, given, strict=True):
            tensor = self.get_input_tensor(one.name if by_name else name)
            tensor._held = LoDTensor(one.as_ndarray(), to_lengths(one.lod))
        self.zero_copy_run()
        found = [self._tensors[name] for name in self.get_output_names()]
        return [PaddleTensor(one.copy_to_cpu(), one._name, one.lod()) for one in found]

    def zero_copy_run(self) -> bool:
        """Run the model on what its input tensors hold; its output tensors hold the results."""
        feed = {name: self._tensors[name]._held for name in self._feeds}
        found = self._executor.run(self._program, feed, self._fetches, scope=self._scope, return_numpy=False)
        for v, value in zip(self._fetches, found, strict=True):
            self._tensors[v.name]._held = value if isinstance(value, LoDTensor) else LoDTensor(value)
        return True

    def clone(self) -> PaddlePredictor:
        """Return a predictor of the same model."""
        return PaddlePredictor(self._config)


AnalysisPredictor = NativePaddlePredictor = PaddlePredictor


def create_paddle_predictor(config: AnalysisConfig | NativeConfig) -> PaddlePredictor:
    """Return a predictor; see it for what is raised."""
    return PaddlePredictor(config._newer() if isinstance(config, NativeConfig) else config)
