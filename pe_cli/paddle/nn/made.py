"""Layers without parameters, generated from a table of functions of `nn.functional`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.forwarding import faces
from pe_cli.paddle.names_v2 import with_names
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.v2_shapes import unflatten


def _flatten(x: Any, start_axis: int = 1, stop_axis: int = -1) -> Any:
    """Make one axis of those from start_axis to stop_axis."""
    first, last = start_axis % len(x.shape), stop_axis % len(x.shape)
    # With axis 0 the size of the first axis is left to the reshape, as it is the batch and often not known; elsewhere 0 keeps the sizes in
    # front.
    if first == 0:
        return call("reshape", x, [-1, *x.shape[last + 1 :]])
    if all(s > 0 for s in x.shape[first : last + 1]):
        inner = 1
        for size in x.shape[first : last + 1]:
            inner *= size
    else:
        inner = -1
    return call("reshape", x, [*([0] * first), inner, *x.shape[last + 1 :]])


def _identity(input: Any) -> Any:
    """Return the input."""
    return input


def _softmax_of_channels(x: Any) -> Any:
    """Turn the channels of every pixel into probabilities."""
    return functions.softmax(x, -3)


@dataclass(frozen=True)
class Made:
    """How a class is made of a function.

    Attributes:
        function: its name in `nn.functional`, or itself.
        called: arguments that a call gives; those of the constructor are the others.
        renamed: argument of the constructor -> the function's.
        fixed: arguments that neither gives.
        defaults: of the constructor, where they differ from the function's.
        order: of the constructor's first arguments, where it differs.
    """

    function: str | Callable[..., Any]
    called: str = "x"
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    order: str = ""


#: What `nn.functional` has not, with the original's names.
_OWN = with_names({"flatten": _flatten})
_LOSS = "input label"
_NO_DTYPE: dict[str, Any] = {"dtype": None}
_PADDED = {"padding": "pad"}
TABLE = {
    **{face.module: Made(name) for name, (_, face) in faces("nn.functional").items() if face.module},
    "CELU": Made("celu"),
    "GLU": Made("glu"),
    "Identity": Made(_identity, "input"),
    "Mish": Made("mish"),
    "SELU": Made("selu"),
    "Silu": Made("silu"),
    "Softmax2D": Made(_softmax_of_channels),
    "LogSoftmax": Made("log_softmax", fixed=_NO_DTYPE),
    "Maxout": Made("maxout"),
    "Softmax": Made("softmax", fixed=_NO_DTYPE),
    "Softplus": Made("softplus"),
    "BCELoss": Made("binary_cross_entropy", _LOSS),
    "BCEWithLogitsLoss": Made("binary_cross_entropy_with_logits", "logit label"),
    "CrossEntropyLoss": Made("cross_entropy", _LOSS),
    "CTCLoss": Made("ctc_loss", "log_probs labels input_lengths label_lengths norm_by_times"),
    "KLDivLoss": Made("kl_div", _LOSS),
    "L1Loss": Made("l1_loss", _LOSS),
    "MSELoss": Made("mse_loss", _LOSS),
    "MarginRankingLoss": Made("margin_ranking_loss", "input other label"),
    "CosineEmbeddingLoss": Made("cosine_embedding_loss", "input1 input2 label"),
    "GaussianNLLLoss": Made("gaussian_nll_loss", "input label variance"),
    "HingeEmbeddingLoss": Made("hinge_embedding_loss", _LOSS),
    "MultiLabelSoftMarginLoss": Made("multi_label_soft_margin_loss", _LOSS),
    "MultiMarginLoss": Made("multi_margin_loss", _LOSS),
    "PoissonNLLLoss": Made("poisson_nll_loss", _LOSS),
    "RNNTLoss": Made("rnnt_loss", "input label input_lengths label_lengths"),
    "SoftMarginLoss": Made("soft_margin_loss", _LOSS),
    "TripletMarginLoss": Made("triplet_margin_loss", "input positive negative"),
    "TripletMarginWithDistanceLoss": Made("triplet_margin_with_distance_loss", "input positive negative"),
    "NLLLoss": Made("nll_loss", _LOSS),
    "SmoothL1Loss": Made("smooth_l1_loss", _LOSS),
    "CosineSimilarity": Made("cosine_similarity", "x1 x2"),
    "PairwiseDistance": Made("pairwise_distance", "x y"),
    "Dropout": Made("dropout"),
    "Dropout2D": Made("dropout2d"),
    "Dropout3D": Made("dropout3d"),
    "AlphaDropout": Made("alpha_dropout"),
    "AvgPool1D": Made("avg_pool1d"),
    "AvgPool2D": Made("avg_pool2d"),
    "AvgPool3D": Made("avg_pool3d"),
    "MaxPool1D": Made("max_pool1d"),
    "MaxPool2D": Made("max_pool2d"),
    "MaxPool3D": Made("max_pool3d"),
    "AdaptiveAvgPool1D": Made("adaptive_avg_pool1d"),
    "AdaptiveAvgPool2D": Made("adaptive_avg_pool2d"),
    "AdaptiveAvgPool3D": Made("adaptive_avg_pool3d"),
    "AdaptiveMaxPool1D": Made("adaptive_max_pool1d"),
    "AdaptiveMaxPool2D": Made("adaptive_max_pool2d"),
    "AdaptiveMaxPool3D": Made("adaptive_max_pool3d"),
    "Flatten": Made(_OWN["flatten"]),
    "LocalResponseNorm": Made("local_response_norm"),
    "Pad1D": Made("pad", renamed=_PADDED, defaults={"data_format": "NCL"}),
    "Pad2D": Made("pad", renamed=_PADDED),
    "Pad3D": Made("pad", renamed=_PADDED, defaults={"data_format": "NCDHW"}),
    "PixelShuffle": Made("pixel_shuffle"),
    "PixelUnshuffle": Made("pixel_unshuffle"),
    "ChannelShuffle": Made("channel_shuffle"),
    "Fold": Made("fold", order="output_sizes kernel_sizes dilations paddings strides"),
    "Unfold": Made("unfold", order="kernel_sizes dilations paddings strides"),
    "Unflatten": Made(unflatten),
    "ZeroPad2D": Made("zeropad2d"),
    "MaxUnPool1D": Made("max_unpool1d", "x indices"),
    "MaxUnPool2D": Made("max_unpool2d", "x indices"),
    "MaxUnPool3D": Made("max_unpool3d", "x indices"),
    "RReLU": Made("rrelu"),
    "Upsample": Made("interpolate"),
    "UpsamplingBilinear2D": Made("interpolate", fixed={"mode": "bilinear", "align_corners": True, "align_mode": 0}),
    "UpsamplingNearest2D": Made("interpolate", fixed={"mode": "nearest", "align_corners": False, "align_mode": 0}),
}


def _constructor(made: Made, function: Callable[..., Any]) -> inspect.Signature:
    """Return the arguments of a class: the function's but those of a call, with the class's names and defaults."""
    back = {theirs: ours for ours, theirs in made.renamed.items()}
    left_out = {*made.called.split(), *made.fixed, "training"}
    found = [
        p.replace(name=back.get(p.name, p.name), default=made.defaults.get(p.name, p.default))
        for p in inspect.signature(function).parameters.values()
        if p.name not in left_out
    ]
    first = made.order.split()
    return inspect.Signature(sorted(found, key=lambda p: first.index(p.name) if p.name in first else len(first)))


def make(name: str, made: Made) -> type[Layer]:
    """Return the class of a row of the table.

    Raises:
        TypeError: when the class is called: an argument that it does not take, or one that is missing.
    """
    function = getattr(functions, made.function) if isinstance(made.function, str) else made.function
    takes = _constructor(made, function)
    # Only some functions take it: their classes pass on the mode that the layer is in when it is called.
    trains = "training" in inspect.signature(function).parameters

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        Layer.__init__(self)
        try:
            bound = takes.bind(*args, **given)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        bound.apply_defaults()
        self._arguments = {**{made.renamed.get(k, k): v for k, v in bound.arguments.items()}, **made.fixed}

    def forward(self: Any, *inputs: Any, **given: Any) -> Any:
        mode = {"training": self.training} if trains else {}
        return function(*inputs, **given, **self._arguments, **mode)

    def extra_repr(self: Any) -> str:
        shown = {k: self._arguments[made.renamed.get(k, k)] for k in takes.parameters if k != "name"}
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())

    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    called = ", ".join(made.called.split())
    doc = f"{first}\n\nThe constructor takes all but {called}, which a call takes.\n{rest}"
    body = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": doc, "__module__": __name__}
    built = type(name, (Layer,), body)
    built.__signature__ = takes  # type: ignore[attr-defined]  # what `inspect.signature` and `help` look at
    return built


globals().update({name: make(name, made) for name, made in TABLE.items()})
__all__ = list(TABLE)
