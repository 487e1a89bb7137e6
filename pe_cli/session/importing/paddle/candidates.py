"""Which layers may make an operator, with their arguments; `layers_of` tries them, so that a wrong guess costs time and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.faces import resolved
from pe_cli.layers.define.helper import activations
from pe_cli.layers.define.registry import LayerArg, LayerDef, discover
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.registry import Slot, find
from pe_cli.program.ir import EMPTY, Block, Operator, Parameter, Variable


@dataclass(frozen=True)
class Named:
    """An argument that names a parameter."""

    name: str


@dataclass(frozen=True)
class Candidate:
    """A layer that may append operators.

    Args:
        layer: its name.
        args: by name: variables, lists of them, `Named`, and plain values.
        count: operators that it stands for.
    """

    layer: str
    args: Mapping[str, Any]
    count: int = 1


@dataclass(frozen=True)
class Given:
    """An operator of a program, and what is around it.

    Args:
        block: of the program.
        at: number of the operator.
        uses: variable -> how often it is read or fetched.
    """

    block: Block
    at: int
    uses: Mapping[str, int]

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.block.ops[self.at]

    def vars(self, slot: str) -> list[Variable]:
        """Return the variables of an input slot."""
        return [self.block.vars[name] for name in self.op.inputs.get(slot, ()) if name != EMPTY]

    def var(self, slot: str) -> Variable | None:
        """Return the variable of an input slot, None where there is none."""
        found = self.vars(slot)
        return found[0] if found else None

    def shape(self, slot: str) -> tuple[int, ...]:
        """Return the sizes of an input."""
        found = self.var(slot)
        return found.shape if found is not None else ()

    def out(self, slot: str = "") -> str:
        """Return the name of an output, of the first one by default."""
        names = self.op.outputs.get(slot) if slot else next(iter(self.op.outputs.values()), None)
        return names[0] if names else ""

    def after(self, count: int = 1) -> Given | None:
        """Return the operator some places further on, None behind the last."""
        return replace(self, at=self.at + count) if self.at + count < len(self.block.ops) else None

    def is_read_once(self, name: str) -> bool:
        """Return whether one operator reads a variable, and nobody else."""
        return self.uses.get(name, 0) == 1


#: Argument of a layer -> slot or attribute, or what makes the argument.
_Words = Mapping[str, "str | Callable[[Given], Any]"]


def _count(slot: str, axis: int = 0) -> Callable[[Given], Any]:
    return lambda g: g.shape(slot)[axis]


def _sizes(slot: str) -> Callable[[Given], Any]:
    return lambda g: list(g.shape(slot)[2:])


def _width(slot: str, times: int) -> Callable[[Given], Any]:
    return lambda g: g.shape(slot)[0] * times


def _reduced(g: Given) -> Any:
    return None if g.op.attrs["reduce_all"] else list(g.op.attrs["dim"])


def _sections(g: Given) -> Any:
    return list(g.op.attrs["sections"]) or int(g.op.attrs["num"] or len(g.op.outputs["Out"]))


def _image_size(g: Given) -> Any:
    return [g.op.attrs["out_h"], g.op.attrs["out_w"]]


def _own(slot: str) -> Callable[[Given], Any]:
    """Return what names the parameter of a slot, or says that there is none."""
    return lambda g: Named(g.vars(slot)[0].name) if g.vars(slot) else False


def _padding_row(g: Given) -> Any:
    return None if g.op.attrs["padding_idx"] == -1 else g.op.attrs["padding_idx"]


_REDUCE: _Words = {"input": "X", "dim": _reduced}
_COMPARE: _Words = {"x": "X", "y": "Y"}
_WINDOW: _Words = {"pool_size": "ksize", "pool_type": "pooling_type", "pool_stride": "strides", "pool_padding": "paddings"}
_CONV: _Words = {
    "filter_size": _sizes("Filter"), "stride": "strides", "padding": "paddings", "dilation": "dilations", "param_attr": "Filter",
    "bias_attr": lambda g: False, "groups": lambda g: None if g.op.attrs["groups"] == 1 else g.op.attrs["groups"],
}  # fmt: skip
_CELL: _Words = {"gate_activation": "gate_activation", "candidate_activation": "candidate_activation", "bias_attr": _own("Bias")}
_TABLE: _Words = {"input": "Ids", "size": lambda g: list(g.shape("W")), "padding_idx": _padding_row, "param_attr": "W"}
#: Operators whose layer has another name, or takes other words: its name, empty for that of the operator, and these words.
_LAYERS: dict[str, tuple[str, _Words]] = {
    "batch_norm": ("", {
        "param_attr": "Scale", "moving_mean_name": lambda g: g.out("MeanOut"), "moving_variance_name": lambda g: g.out("VarianceOut"),
    }),
    "conv2d": ("", {**_CONV, "num_filters": _count("Filter")}),
    "depthwise_conv2d": ("conv2d", {**_CONV, "num_filters": _count("Filter")}),
    "conv3d": ("", {**_CONV, "num_filters": _count("Filter")}),
    "conv2d_transpose": ("", {**_CONV, "num_filters": lambda g: g.shape("Filter")[1] * g.op.attrs["groups"]}),
    "layer_norm": ("", {
        "param_attr": "Scale", "scale": lambda g: g.var("Scale") is not None, "shift": lambda g: g.var("Bias") is not None,
    }),
    "group_norm": ("", {"param_attr": _own("Scale"), "bias_attr": _own("Bias")}),
    "lookup_table": ("embedding", _TABLE),
    "lstm": ("dynamic_lstm", {**_CELL, "size": _width("Weight", 4), "h_0": "H0", "c_0": "C0", "param_attr": "Weight"}),
    "gru": ("dynamic_gru", {**_CELL, "size": _count("Weight"), "candidate_activation": "activation", "h_0": "H0", "param_attr": "Weight"}),
    "top_k": ("topk", {}),
    "cast": ("", {"dtype": "out_dtype"}),
    "split": ("", {"num_or_sections": _sections, "dim": "axis"}),
    "pool2d": ("", _WINDOW),
    "pool3d": ("", _WINDOW),
    "bilinear_interp": ("resize_bilinear", {"out_shape": _image_size}),
    "nearest_interp": ("resize_nearest", {"out_shape": _image_size}),
    "softmax_with_cross_entropy": ("", {"return_softmax": lambda g: bool(g.uses.get(g.out("Softmax")))}),
    "smooth_l1_loss": ("smooth_l1", {"inside_weight": "InsideWeight", "outside_weight": "OutsideWeight"}),
    "cvm": ("continuous_value_model", {"cvm": "CVM"}),
    "linear_chain_crf": ("", {"input": "Emission", "param_attr": "Transition"}),
    "crf_decoding": ("", {"input": "Emission", "param_attr": "Transition"}),
    "sequence_pool": ("", {"pool_type": lambda g: g.op.attrs["pooltype"].lower()}),
    "where_index": ("where", {}),
    "arg_max": ("argmax", {}),
    "arg_min": ("argmin", {}),
    "hierarchical_sigmoid": ("hsigmoid", {
        "input": "X", "param_attr": "W", "bias_attr": _own("Bias"), "path_table": "PathTable", "path_code": "PathCode",
    }),
    **{f"reduce_{kind}": ("", _REDUCE) for kind in ("sum", "mean", "max", "min", "prod")},
    **dict.fromkeys(("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"), ("", _COMPARE)),
}  # fmt: skip


def candidates(g: Given) -> Iterator[Candidate]:
    """Yield what may stand for an operator and those behind it, what stands for most of them first."""
    found = [*_with_bias(g), *_of_several(g), *_of_faces(g), *_of_words(g)]
    for one in found:
        yield from _with_activation(g, one)
    yield from found


def _with_activation(g: Given, one: Candidate) -> Iterator[Candidate]:
    """Yield a candidate that also stands for the activation behind it; softmax stays a layer, which what is trained is told apart by."""
    last, behind = g.after(one.count - 1), g.after(one.count)
    if last is None or behind is None or "act" not in inspect.signature(discover()[one.layer].fn).parameters:
        return
    op = behind.op
    plain = {name: attr.default for name, attr in find(op.type).attrs.items()}
    said = {name: value for name, value in op.attrs.items() if name != "use_cudnn"}
    if op.type in activations() and op.type != "softmax" and all(plain[name] == value for name, value in said.items()):
        reads = [name for names in op.inputs.values() for name in names]
        if reads == [last.out(_main(last.op))] and g.is_read_once(reads[0]):
            yield Candidate(one.layer, {**one.args, "act": op.type}, one.count + 1)


def _main(op: Operator) -> str:
    """Return the slot of an operator's result."""
    return next((slot for slot in ("Out", "Output", "Y") if slot in op.outputs), "")


def _with_bias(g: Given) -> Iterator[Candidate]:
    """Yield the layers that multiply by a weight, with the sum behind them."""
    if g.op.type == "mul":
        x, weight = g.var("X"), g.var("Y")
        if x is None or not isinstance(weight, Parameter) or len(weight.shape) != 2:
            return
        args = {"input": [x], "size": weight.shape[1], "num_flatten_dims": g.op.attrs["x_num_col_dims"], "param_attr": Named(weight.name)}
        axis, bases = len(x.shape[: g.op.attrs["x_num_col_dims"]]), [Candidate("fc", {**args, "bias_attr": False})]
    elif g.op.type in ("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv3d"):
        axis, bases = 1, list(_of_words(g))
    else:
        return
    behind = g.after()
    for base in bases:
        bias = None if behind is None or behind.op.type != "elementwise_add" else behind.var("Y")
        if behind is not None and isinstance(bias, Parameter) and len(bias.shape) == 1 and behind.op.attrs["axis"] in (axis, -1):
            x = behind.var("X")
            if x is not None and x.name == g.out(_main(g.op)) and g.is_read_once(x.name):
                yield Candidate(base.layer, {**base.args, "bias_attr": Named(bias.name)}, 2)
        yield base


def _of_several(g: Given) -> Iterator[Candidate]:
    """Yield layers that are several operators in a row."""
    behind = g.after()
    if g.op.type == "top_k" and behind is not None and behind.op.type == "accuracy":
        yield Candidate("accuracy", {"input": g.var("X"), "label": behind.var("Label"), "k": g.op.attrs["k"]}, 2)
    if g.op.type == "fill_like":
        name = {0.0: "zeros_like", 1.0: "ones_like"}.get(g.op.attrs["value"])
        if name is not None:
            yield Candidate(name, {"x": g.var("X")})


def _of_faces(g: Given) -> Iterator[Candidate]:
    """Yield the layers that an operator says to be made by."""
    definition = find(g.op.type)
    for face in definition.faces:
        if not isinstance(face, Face) or not face.layer:
            continue
        args: dict[str, Any] = {}
        for word, target in resolved(definition, face):
            if isinstance(target, Slot):
                found = g.vars(target.name)
                args[word.name] = (found if target.variadic else found[0]) if found else None
            elif target is not None:
                args[word.name] = g.op.attrs[word.target]
        yield Candidate(face.name or definition.name, args)


def _of_words(g: Given) -> Iterator[Candidate]:
    """Yield the layer of an operator's name, or the one that `_LAYERS` says, with what its arguments look like."""
    name, said = _LAYERS.get(g.op.type, ("", {}))
    definition = discover().get(name or g.op.type)
    if definition is None:
        return
    try:
        args = {word: _said(g, definition.args[word], target) for word, target in said.items() if word in definition.args}
    except (LookupError, TypeError):  # a slot without a variable, or one with fewer axes
        return
    left = [slot.name for slot in find(g.op.type).inputs if g.vars(slot.name) and slot.name not in said.values()]
    for arg in definition.args.values():
        if arg.name not in args and (target := _alike(g, arg, left)):
            args[arg.name] = _said(g, arg, target)
            if target in left:
                left.remove(target)
    for arg in definition.args.values():
        if arg.name not in args and arg.kind in ("variable", "variables") and arg.required and left:
            args[arg.name] = _said(g, arg, left.pop(0))
    yield Candidate(definition.name, args)


def _alike(g: Given, arg: LayerArg, left: Sequence[str]) -> str:
    """Return the slot or attribute that an argument's name stands for."""
    if arg.name in ("act", "is_test"):
        return ""
    if arg.name in g.op.attrs:
        return arg.name
    wanted = {"param_attr": "scale", "bias_attr": "bias"}.get(arg.name, arg.name.replace("_", "").lower())
    return next((slot for slot in left if slot.replace("_", "").lower() == wanted), "")


def _said(g: Given, arg: LayerArg, target: str | Callable[[Given], Any]) -> Any:
    if callable(target):
        return target(g)
    if target in g.op.attrs:
        return g.op.attrs[target]
    found = g.vars(target)
    if arg.kind == "param_attr":
        return Named(found[0].name) if found else None
    if arg.kind == "variables":
        return found
    return found[0] if found else None


def tidied(one: Candidate) -> Candidate:
    """Return a candidate as somebody would write it: without what a layer does anyway, and with one number for several equal ones."""
    definition: LayerDef = discover()[one.layer]
    args = {}
    for name, arg in definition.args.items():
        if name not in one.args:
            continue
        made = _tidy(arg, one.args[name])
        if made is None and not arg.required and arg.default is None:
            continue
        if arg.required or type(made) is not type(arg.default) or made != arg.default:
            args[name] = made
    return Candidate(one.layer, args, one.count)


def _tidy(arg: LayerArg, value: Any) -> Any:
    if isinstance(value, float):
        return short(value)
    if isinstance(value, list):
        if arg.kind in ("int_or_ints", "int_or_ints_or_str") and value and all(type(v) is int and v == value[0] for v in value):
            return value[0]
        return [short(v) if isinstance(v, float) else v for v in value]
    return value


def short(value: float) -> float:
    """Return the number of fewest digits that is the same float32; files keep attributes so."""
    with np.errstate(all="ignore"):
        rounded = np.float32(value)
    return float(str(rounded)) if float(rounded) == value else value
