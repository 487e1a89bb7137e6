"""What scripts take from `fluid.core`: places, tensors, element types and errors."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.paddle.errors import EnforceNotMet
from pe_cli.paddle.fluid import op_roles
from pe_cli.paddle.fluid.framework import EMPTY_VAR_NAME, GRAD_VAR_SUFFIX
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, LoDTensorArray
from pe_cli.paddle.fluid.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cuda_device_count,
    is_compiled_with_cuda,
)
from pe_cli.paddle.fluid.predictor import (
    AnalysisConfig,
    AnalysisPredictor,
    NativeConfig,
    NativePaddlePredictor,
    PaddleBuf,
    PaddleDType,
    PaddlePredictor,
    PaddleTensor,
    ZeroCopyTensor,
    create_paddle_predictor,
)
from pe_cli.paddle.fluid.reader import EOFException
from pe_cli.paddle.fluid.scope import Scope

get_cuda_device_count = cuda_device_count
Tensor = LoDTensor
Place = CPUPlace | CUDAPlace | CUDAPinnedPlace
op_proto_and_checker_maker = op_roles


def grad_var_suffix() -> str:
    """Return what names of gradients end with."""
    return GRAD_VAR_SUFFIX


def empty_var_name() -> str:
    """Return the name that stands for no variable."""
    return EMPTY_VAR_NAME


def is_compiled_with_mkldnn() -> bool:
    """No: kernels are the core's own."""
    return False


is_compiled_with_brpc = is_compiled_with_mkldnn


def is_compiled_with_dist() -> bool:
    """Yes: there are trainers and parameter servers."""
    return True


class _Kind(str):
    """A kind of variable. What has a shape and an element type is a tensor: it equals `LOD_TENSOR`."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        # Scripts compare `var.type` with kinds. Types of the core have no kind, and all of them are tensors.
        return self == "lod_tensor" if isinstance(other, TensorType) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class VarDesc:
    """Holds the element types and kinds of variables."""

    class VarType:
        """Element types by the original's names, the core's texts, and kinds; variables of types that are no core's are refused."""

        BOOL = "bool"
        UINT8 = "uint8"
        INT8 = "int8"
        INT16 = "int16"
        FP16 = "float16"
        INT32 = "int32"
        INT64 = "int64"
        FP32 = "float32"
        FP64 = "float64"
        LOD_TENSOR = _Kind("lod_tensor")
        LOD_TENSOR_ARRAY = _Kind("lod_tensor_array")
        SELECTED_ROWS = _Kind("selected_rows")
        FEED_MINIBATCH = _Kind("feed_minibatch")
        FETCH_LIST = _Kind("fetch_list")
        STEP_SCOPES = _Kind("step_scopes")
        LOD_RANK_TABLE = _Kind("lod_rank_table")
        PLACE_LIST = _Kind("place_list")
        READER = _Kind("reader")
        RAW = _Kind("raw")


__all__ = [
    "AnalysisConfig", "AnalysisPredictor", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "EOFException", "EnforceNotMet", "LoDTensor",
    "LoDTensorArray", "NativeConfig", "NativePaddlePredictor", "PaddleBuf", "PaddleDType", "PaddlePredictor", "PaddleTensor", "Scope",
    "Tensor", "VarDesc", "ZeroCopyTensor", "create_paddle_predictor", "get_cuda_device_count", "is_compiled_with_cuda",
]  # fmt: skip
