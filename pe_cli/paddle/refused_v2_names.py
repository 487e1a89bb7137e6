"""Names of PaddlePaddle 2.6 that are refused, each with the reason and a replacement; see `refused_names`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STEPS = "parameters of a program change in its runs alone"
_MATRIX = ("there are no kernels that take matrices apart", "numpy.linalg, on values that a run returns, or static.nn.py_func")
_IPU = ("there is no device of this kind", "CPUPlace(), or CUDAPlace(0) where a GPU is")
_COMPLEX = ("no element type is complex", "two real variables, or paddle.stack of both")
_DYNAMIC = ("graphs are static here, there is no dynamic mode", "paddle.static.gradients, and values that a run returns")
_FILES = ("pictures are decoded before they are fed", "Pillow, in a data set or its transform")

#: Path -> why, and what to do instead.
REASONS: Mapping[str, tuple[str, str]] = {
    **{f"paddle.{name}": _COMPLEX for name in ("angle", "as_complex", "as_real", "complex64", "complex128", "polar")},
    "paddle.bfloat16": (
        "programs run in the element types that they are written in", "executor.precision: bf16 of a run file, for pe train"
    ),
    "paddle.LazyGuard": _DYNAMIC,
    "paddle.tolist": _DYNAMIC,
    "paddle.check_shape": ("it belongs to the original's own checks", "leave it out: each function checks what it is given"),
    "paddle.nextafter": ("there is no kernel that steps from float to float", "numpy.nextafter, on values that are fed"),
    "paddle.autograd.*": _DYNAMIC,
    "paddle.nn.functional.class_center_sample": (
        "how many classes it returns only the labels tell", "nn.functional.margin_cross_entropy of all classes"
    ),
    "paddle.nn.functional.sparse_attention": (
        "it belongs to one kind of GPU", "nn.functional.scaled_dot_product_attention with attn_mask, -1e9 where a key is not seen"
    ),
    "paddle.nn.utils.weight_norm": (_STEPS, "static.WeightNormParamAttr(dim=0) as weight_attr of the layer"),
    "paddle.nn.utils.remove_weight_norm": (_STEPS, "leave static.WeightNormParamAttr out"),
    "paddle.nn.utils.spectral_norm": (_STEPS, "nn.SpectralNorm, or static.nn.spectral_norm of the weight"),
    "paddle.nn.utils.parameters_to_vector": (_STEPS, "paddle.concat of the parameters, each reshaped to [-1]"),
    "paddle.nn.utils.vector_to_parameters": (_STEPS, "static.set_program_state"),
    "paddle.nn.utils.clip_grad_norm_": (_STEPS, "grad_clip=nn.ClipGradByGlobalNorm(norm) of the optimizer"),
    "paddle.nn.utils.clip_grad_value_": (_STEPS, "grad_clip=nn.ClipGradByValue(value) of the optimizer"),
    **{f"paddle.static.{name}": _IPU for name in ("IpuCompiledProgram", "IpuStrategy", "ipu_shard_guard", "set_ipu_shard", "xpu_places")},
    "paddle.static.ctr_metric_bundle": ("its sums belong to servers of the original", "static.auc, and metric.Auc"),
    "paddle.static.nn.sparse_embedding": ("its table belongs to servers of the original", "static.nn.embedding with is_sparse=True"),
    "paddle.static.nn.static_pylayer": ("an op has its gradient from its own declaration", "static.nn.py_func with backward_func"),
    "paddle.optimizer.LBFGS": ("a step computes the loss once, which a search along a line does not", "optimizer.Adam, or scipy.optimize"),
    "paddle.vision.ops.read_file": _FILES,
    "paddle.vision.ops.decode_jpeg": _FILES,
    **{
        f"paddle.linalg.{name}": _MATRIX
        for name in (
            "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "lstsq", "lu", "lu_unpack", "matrix_rank",
            "pca_lowrank", "pinv", "qr", "slogdet", "svd",
        )
    },
}  # fmt: skip


def refusals(make: Any) -> dict[str, Any]:
    """Return the table with its reasons as objects."""
    return {path: make(*reason) for path, reason in REASONS.items()}
