"""The core's layers by the original's signatures: same names, and arguments in the original's order."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, TensorType
from pe_cli.layers.define.registry import LayerDef, find
from pe_cli.optim.regularizer import Regularizer
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import folded, sizes_of
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.original_names import NAMINGS
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.paddle.fluid.naming import named, use
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr, WeightNormParamAttr

#: Where the original's order differs from the core's: all arguments in order.
ORDER = {
    "conv2d": "input num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act name data_format",
    "pool2d": "input pool_size pool_type pool_stride pool_padding global_pooling use_cudnn ceil_mode name exclusive data_format",
    "batch_norm": "input act is_test momentum epsilon param_attr bias_attr data_layout in_place name moving_mean_name "
    "moving_variance_name do_model_average_for_mean_and_var use_global_stats",
    "embedding": "input size is_sparse is_distributed padding_idx param_attr dtype",
    "fill_constant": "shape dtype value force_cpu out",
    "zeros": "shape dtype force_cpu",
    "ones": "shape dtype force_cpu",
    "softmax": "input use_cudnn name axis",
    "reshape": "x shape actual_shape act inplace name",
    "gather": "input index overwrite",
    "roi_pool": "input rois pooled_height pooled_width spatial_scale rois_lod batch_roi_nums",
    "roi_align": "input rois pooled_height pooled_width spatial_scale sampling_ratio name rois_lod batch_roi_nums",
    "deformable_conv": "input offset mask num_filters filter_size stride padding dilation groups deformable_groups im2col_step "
    "param_attr bias_attr modulated name",
    "one_hot": "input depth allow_out_of_range",
    "logsumexp": "x axis keepdim out name",
    "trace": "x offset axis1 axis2 out",
    "kron": "x y out name",
    "addmm": "input x y alpha beta name",
    "sequence_softmax": "input use_cudnn name",
    "meshgrid": "input name",
    "dice_loss": "input label epsilon name",
    "full_like": "x fill_value out dtype device stop_gradient name",
    "inverse": "x out name",
    "log1p": "x out name",
    "im2sequence": "input filter_size stride padding input_image_size out_stride name",
    "full": "shape fill_value out dtype device stop_gradient name",
}
#: What 1.8 calls arguments for which the core has 2.x's names: layer -> original's name -> core's.
ALSO = {
    "logsumexp": {"dim": "axis", "input": "x"},
    "trace": {"input": "x", "dim1": "axis1", "dim2": "axis2"},
    "cross": {"input": "x", "other": "y", "dim": "axis"},
    "index_select": {"input": "x", "dim": "axis"},
    "roll": {"input": "x", "dims": "axis"},
    "dist": {"input": "x", "other": "y"},
    "inverse": {"input": "x"},
    "tril": {"x": "input"},
    "full_like": {"input": "x"},
    "triu": {"x": "input"},
}
#: Arguments of the original's that say how, not what: nothing to do.
IDLE = {
    "use_cudnn",
    "use_mkldnn",
    "is_test",
    "in_place",
    "inplace",
    "is_distributed",
    "force_cpu",
    "overwrite",
    "im2col_step",
    "stop_gradient",
}
#: Arguments that only some values of are there: name -> those.
ONLY = {
    "actual_shape": (None,),
    "input_image_size": (None,),
    "out_stride": (1,),
    "device": (None, "cpu", "gpu"),
}


@functools.cache
def called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer that scripts call: its errors have the original's types, and a decay may stand for a ParamAttr that has it.

    Raises:
        FluidTypeError: when called: something that is no variable where one is needed, or another element type; a TypeError.
    """
    if fn.__name__ in NAMINGS:
        fn = named(fn, NAMINGS[fn.__name__])
    known = inspect.signature(fn).parameters.values()
    # By annotations: a None in the place of a variable would otherwise fail deep inside, with an attribute of None.
    needed = [(i, p.name) for i, p in enumerate(known) if p.annotation == "Variable" and p.default is p.empty]

    @functools.wraps(fn)
    def layer(*args: Any, **given: Any) -> Any:
        ensure_defaults()
        for at, name in needed:
            if (args[at] if at < len(args) else given.get(name, 0)) is None:
                raise FluidTypeError(f"{fn.__name__}: {name} is None", hint="give a variable")
        with raised_as(FluidValueError):
            made = fn(*map(_attribute, args), **{k: _attribute(v) for k, v in given.items()})
        for value in (*args, *given.values()):
            if isinstance(value, WeightNormParamAttr):
                use({"elementwise_div": 1, "elementwise_mul": 1, "reshape2": int(value.dim is not None)})
        return made

    return layer


def _attribute(value: Any) -> Any:
    """Return an argument: of a decay, the attribute of a parameter that it stands for; NumPy's numbers, also in lists, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple) and any(isinstance(v, np.generic) for v in value):
        return type(value)([_attribute(v) for v in value])
    return ParamAttr(regularizer=value) if isinstance(value, Regularizer) else value


def adapt(definition: LayerDef) -> Callable[..., Any]:
    """Return a layer with the original's order of arguments.

    Raises:
        FluidTypeError: when called: too many arguments, or one twice.
    """
    names = ORDER.get(definition.name, "").split() or [
        # Where nothing is said, the core's order is the original's.
        p.name for p in inspect.signature(definition.fn).parameters.values()
    ]

    @functools.wraps(definition.fn)
    def layer(*args: Any, **given: Any) -> Any:
        ensure_defaults()
        if len(args) > len(names):
            raise FluidTypeError(f"{definition.name} takes at most {len(names)} arguments, got {len(args)}")
        other = ALSO.get(definition.name, {})
        named = [(other.get(k, k) if k not in definition.args else k, v) for k, v in given.items()]
        given = {}
        for name, value in [*zip(names, args, strict=False), *named]:
            if name in given:
                raise FluidTypeError(f"{definition.name} got '{name}' twice")
            given[name] = value
        declare_classes(definition.name, given)
        # Layers without an `out` of their own compute and then copy there, as later ops expect the variable itself.
        out = given.pop("out", None) if "out" in names and "out" not in definition.args else None
        values = {k: _plain(definition, k, v) for k, v in given.items() if not _idle(definition, k, v)}
        made = definition.fn(**values)
        return made if out is None else find("assign").fn(made, out)

    layer.__signature__ = _signature(definition, names)  # type: ignore[attr-defined]
    layer.__doc__ = definition.doc
    return called(layer)


def declare_classes(layer: str, given: dict[str, Any]) -> None:
    """Declare a feed of float32 that a loss takes as class numbers as int64: the original takes the type of what is fed."""
    label = given.get("label")
    if layer not in ("cross_entropy", "softmax_with_cross_entropy") or given.get("soft_label") or not isinstance(label, Variable):
        return
    if label.dtype in FLOATS and label.is_data and getattr(label, "any_sizes", False):
        warnings.warn(f"fluid.layers.{layer}: '{label.name}' is declared {label.dtype} and counts as int64 classes", stacklevel=4)
        label.type = TensorType(label.shape, "int64")


def _signature(definition: LayerDef, names: list[str]) -> inspect.Signature:
    """Return what `help` shows: the original's arguments, None where the original's default has no effect here."""
    known = inspect.signature(definition.fn).parameters
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = [known.get(name, inspect.Parameter(name, kind, default=None)) for name in names]
    # A default before an argument without one is no signature in Python: it is left out of what is shown.
    needed = max((i for i, p in enumerate(shown) if p.default is inspect.Parameter.empty), default=-1)
    return inspect.Signature([p.replace(default=inspect.Parameter.empty) if i < needed else p for i, p in enumerate(shown)])


def _idle(definition: LayerDef, name: str, value: Any) -> bool:
    if name in ONLY and name not in definition.args:
        if value not in ONLY[name]:
            raise NotThereYet(f"{definition.name}: {name}={value!r} is not there yet", hint=f"leave {name} out")
        return True
    return name in IDLE and name not in definition.args


def _plain(definition: LayerDef, name: str, value: Any) -> Any:
    """Return an argument as the core wants it."""
    argument = definition.args.get(name)
    kind = argument.kind if argument else ""
    if kind == "variable" and isinstance(value, np.ndarray):
        value = assign(value)
    if kind == "bool" and isinstance(value, int):
        # The original takes numbers for yes and no, as scripts work them out (`i % 2`).
        return bool(value)
    if name in ("dtype", "out_dtype"):
        return as_dtype(value) if value is not None or argument is None else argument.default
    if name == "input" and definition.name == "one_hot" and value.dtype == "int32":
        # Ids are int64 in the core; scripts feed int32 as well.
        return find("cast").fn(value, "int64")
    if name == "sigma" and value is None:
        return 1.0
    return value if isinstance(value, (str, type(None))) else _numbers(definition.name, name, kind, value)


def _numbers(layer: str, name: str, kind: str, value: Any) -> Any:
    """Return numbers as the core wants them; of other kinds, the value."""
    if kind in ("ints", "int_or_ints", "int_or_ints_or_str", "int", "size", "sizes", "int_or_sizes"):
        known = folded if "size" in kind else sizes_of
        found = value if isinstance(value, int) else known(layer, name, value, single=kind in ("int", "size"))
        return [found] if kind in ("ints", "sizes") and isinstance(found, int) else found
    if kind in ("float", "number") and isinstance(value, (Variable, np.generic)):
        found = (folded if kind == "number" else sizes_of)(layer, name, value, single=True)
        return found if isinstance(found, Variable) else float(found)
    return value
