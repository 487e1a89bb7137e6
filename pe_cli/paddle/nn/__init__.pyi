"""Written by `make docs` from the functions themselves: their arguments, and the first sentence of their docs."""

from typing import Any

def __getattr__(name: str) -> Any: ...
from pe_cli.paddle.nn import functional as functional
class AdaptiveAvgPool1D:
    def __init__(self, output_size: Any, name: Any = None) -> None: """Average output_size windows of rows."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AdaptiveAvgPool2D:
    def __init__(self, output_size: Any, data_format: Any = 'NCHW', name: Any = None) -> None: """Average a grid of output_size windows; None keeps a size."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AdaptiveAvgPool3D:
    def __init__(self, output_size: Any, data_format: Any = 'NCDHW', name: Any = None) -> None: """Average a grid of output_size windows of volumes; None keeps a size."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AdaptiveMaxPool1D:
    def __init__(self, output_size: Any, return_mask: Any = False, name: Any = None) -> None: """Take the largest value of each of output_size windows of rows, with return_mask its place, too."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AdaptiveMaxPool2D:
    def __init__(self, output_size: Any, return_mask: Any = False, name: Any = None) -> None: """Take the largest value of each of a grid of output_size windows, with return_mask its place, too; None keeps a size."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AdaptiveMaxPool3D:
    def __init__(self, output_size: Any, return_mask: Any = False, name: Any = None) -> None: """Take the largest value of each of a grid of output_size windows of volumes, with return_mask its place, too; None keeps a size."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AlphaDropout:
    def __init__(self, p: Any = 0.5, name: Any = None) -> None: """Set elements to selu's lowest value at random while training, then keep mean 0 and variance 1."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AvgPool1D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, exclusive: Any = True, ceil_mode: Any = False, name: Any = None) -> None: """Average windows of rows [batch, channels, length]."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AvgPool2D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False, exclusive: Any = True, divisor_override: Any = None, data_format: Any = 'NCHW', name: Any = None) -> None: """Average windows of images, without the border unless exclusive is False; or divide their sums by a given number."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class AvgPool3D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False, exclusive: Any = True, divisor_override: Any = None, data_format: Any = 'NCDHW', name: Any = None) -> None: """Average windows of volumes; see `avg_pool2d`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class BCELoss:
    def __init__(self, weight: Any = None, reduction: Any = 'mean', name: Any = None) -> None: """Measure how unlikely yes-or-no labels are under given probabilities: -label ln p - (1 - label) ln(1 - p), in nats."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class BCEWithLogitsLoss:
    def __init__(self, weight: Any = None, reduction: Any = 'mean', pos_weight: Any = None, name: Any = None) -> None: """Measure how unlikely yes-or-no labels are under the sigmoid of logits, in nats."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.norm import BatchNorm as BatchNorm
from pe_cli.paddle.nn.norm import BatchNorm1D as BatchNorm1D
from pe_cli.paddle.nn.norm import BatchNorm2D as BatchNorm2D
from pe_cli.paddle.nn.norm import BatchNorm3D as BatchNorm3D
from pe_cli.paddle.fluid.layers.beams import BeamSearchDecoder as BeamSearchDecoder
from pe_cli.paddle.nn.rnn import BiRNN as BiRNN
from pe_cli.paddle.nn.parametric import Bilinear as Bilinear
class CELU:
    def __init__(self, alpha: Any = 1.0, name: Any = None) -> None: """Let x through where it is above 0, else return alpha (exp(x / alpha) - 1)."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class CTCLoss:
    def __init__(self, blank: Any = 0, reduction: Any = 'mean') -> None: """Measure how unlikely the labels of every sequence are, wherever in it they are."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ChannelShuffle:
    def __init__(self, groups: Any, data_format: Any = 'NCHW', name: Any = None) -> None: """Deal the channels of every group over new groups: channel i of g groups of n becomes i // n + (i % n) g."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ClipGradByGlobalNorm:
    def __init__(self, *args: Any, need_clip: Any = None, **given: Any) -> None: """The core's, with `need_clip`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ClipGradByNorm:
    def __init__(self, *args: Any, need_clip: Any = None, **given: Any) -> None: """The core's, with `need_clip`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ClipGradByValue:
    def __init__(self, *args: Any, need_clip: Any = None, **given: Any) -> None: """The core's, with `need_clip`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.parametric import Conv1D as Conv1D
from pe_cli.paddle.nn.parametric import Conv1DTranspose as Conv1DTranspose
from pe_cli.paddle.nn.parametric import Conv2D as Conv2D
from pe_cli.paddle.nn.parametric import Conv2DTranspose as Conv2DTranspose
from pe_cli.paddle.nn.parametric import Conv3D as Conv3D
from pe_cli.paddle.nn.parametric import Conv3DTranspose as Conv3DTranspose
class CosineEmbeddingLoss:
    def __init__(self, margin: Any = 0, reduction: Any = 'mean', name: Any = None) -> None: """Measure vectors that are alike by 1 - cos, label 1, and those that are not by max(0, cos - margin), label -1."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class CosineSimilarity:
    def __init__(self, axis: Any = 1, eps: Any = 1e-08) -> None: """Return the cosine of the angle along an axis; a product of lengths below eps counts as eps."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class CrossEntropyLoss:
    def __init__(self, weight: Any = None, ignore_index: Any = -100, reduction: Any = 'mean', soft_label: Any = False, axis: Any = -1, use_softmax: Any = True, label_smoothing: Any = 0.0, name: Any = None) -> None: """Measure how unlikely labels are under the softmax of logits."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Dropout:
    def __init__(self, p: Any = 0.5, axis: Any = None, mode: Any = 'upscale_in_train', name: Any = None) -> None: """Set elements to zero at random while training."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Dropout2D:
    def __init__(self, p: Any = 0.5, data_format: Any = 'NCHW', name: Any = None) -> None: """Set whole channels of images to zero at random while training."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Dropout3D:
    def __init__(self, p: Any = 0.5, data_format: Any = 'NCDHW', name: Any = None) -> None: """Set whole channels of volumes to zero at random while training."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ELU:
    def __init__(self, alpha: Any = 1.0, name: Any = None) -> None: """Let x through where it is above 0, else return alpha (exp(x) - 1)."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.parametric import Embedding as Embedding
class Flatten:
    def __init__(self, start_axis: Any = 1, stop_axis: Any = -1) -> None: """Make one axis of those from start_axis to stop_axis."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Fold:
    def __init__(self, output_sizes: Any, kernel_sizes: Any, dilations: Any = 1, paddings: Any = 0, strides: Any = 1, name: Any = None) -> None: """Put the windows that `unfold` cuts back to their places in images, adding up where they overlap."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class GELU:
    def __init__(self, approximate: Any = False, name: Any = None) -> None: """Return x times the normal distribution's share below x, or its approximation by tanh."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class GLU:
    def __init__(self, axis: Any = -1, name: Any = None) -> None: """Multiply the first half of an axis by the sigmoid of the other half."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.rnn import GRU as GRU
from pe_cli.paddle.nn.rnn_cells import GRUCell as GRUCell
class GaussianNLLLoss:
    def __init__(self, full: Any = False, epsilon: Any = 1e-06, reduction: Any = 'mean', name: Any = None) -> None: """Measure how unlikely labels are under normal distributions: (ln variance + (input - label)^2 / variance) / 2, in nats."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.norm import GroupNorm as GroupNorm
from pe_cli.paddle.nn.parametric import HSigmoidLoss as HSigmoidLoss
class Hardshrink:
    def __init__(self, threshold: Any = 0.5, name: Any = None) -> None: """Let x through where |x| is above the threshold, else return 0."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Hardsigmoid:
    def __init__(self, slope: Any = 0.1666667, offset: Any = 0.5, name: Any = None) -> None: """Return slope x + offset, limited to [0, 1]."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Hardswish:
    def __init__(self, name: Any = None) -> None: """Append `hard_swish` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Hardtanh:
    def __init__(self, min: Any = -1.0, max: Any = 1.0, name: Any = None) -> None: """Limit x to [min, max]."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class HingeEmbeddingLoss:
    def __init__(self, margin: Any = 1.0, reduction: Any = 'mean', name: Any = None) -> None: """Measure distances: of pairs that are alike themselves, label 1, of others max(0, margin - distance), label -1."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Identity:
    def __init__(self) -> None: """Return the input."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.norm import InstanceNorm1D as InstanceNorm1D
from pe_cli.paddle.nn.norm import InstanceNorm2D as InstanceNorm2D
from pe_cli.paddle.nn.norm import InstanceNorm3D as InstanceNorm3D
class KLDivLoss:
    def __init__(self, reduction: Any = 'mean', name: Any = None) -> None: """Measure how far a distribution is from another: label (ln label - input), input in logarithms; batchmean too."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class L1Loss:
    def __init__(self, reduction: Any = 'mean', name: Any = None) -> None: """Measure the distance: |input - label|."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.rnn import LSTM as LSTM
from pe_cli.paddle.nn.rnn_cells import LSTMCell as LSTMCell
from pe_cli.paddle.nn.layer import Layer as Layer
from pe_cli.paddle.nn.containers import LayerDict as LayerDict
from pe_cli.paddle.nn.containers import LayerList as LayerList
from pe_cli.paddle.nn.norm import LayerNorm as LayerNorm
class LeakyReLU:
    def __init__(self, negative_slope: Any = 0.01, name: Any = None) -> None: """Let x through where it is above 0, else return negative_slope x."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.parametric import Linear as Linear
class LocalResponseNorm:
    def __init__(self, size: Any, alpha: Any = 0.0001, beta: Any = 0.75, k: Any = 1.0, data_format: Any = 'NCHW', name: Any = None) -> None: """Divide by the mean square of `size` neighbouring channels: x / (k + alpha mean x^2)^beta; an even size looks one further back."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class LogSigmoid:
    def __init__(self, name: Any = None) -> None: """Append `logsigmoid` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class LogSoftmax:
    def __init__(self, axis: Any = -1, name: Any = None) -> None: """Turn logits along an axis into logarithms of probabilities, in nats; a dtype casts x first."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MSELoss:
    def __init__(self, reduction: Any = 'mean', name: Any = None) -> None: """Square the difference."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MarginRankingLoss:
    def __init__(self, margin: Any = 0.0, reduction: Any = 'mean', name: Any = None) -> None: """Measure ranked pairs: max(0, margin - label (input - other)), label 1 or -1; axes of size 1 are repeated."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxPool1D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, return_mask: Any = False, ceil_mode: Any = False, name: Any = None) -> None: """Take the largest value of windows of rows [batch, channels, length], with return_mask its place, too."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxPool2D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, return_mask: Any = False, ceil_mode: Any = False, data_format: Any = 'NCHW', name: Any = None) -> None: """Take the largest value of windows of images, with return_mask its place, too; the stride is the window's size unless given."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxPool3D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, return_mask: Any = False, ceil_mode: Any = False, data_format: Any = 'NCDHW', name: Any = None) -> None: """Take the largest value of windows of volumes, with return_mask its place, too."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxUnPool1D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, data_format: Any = 'NCL', output_size: Any = None, name: Any = None) -> None: """Put what `max_pool1d` found back to its places, which it returns with return_mask, and 0 elsewhere."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxUnPool2D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, data_format: Any = 'NCHW', output_size: Any = None, name: Any = None) -> None: """Put what `max_pool2d` found back to its places, which it returns with return_mask, and 0 elsewhere."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MaxUnPool3D:
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, data_format: Any = 'NCDHW', output_size: Any = None, name: Any = None) -> None: """Put what `max_pool3d` found back to its places, which it returns with return_mask, and 0 elsewhere."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Maxout:
    def __init__(self, groups: Any, axis: Any = 1, name: Any = None) -> None: """Take the largest of every `groups` channels in a row."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Mish:
    def __init__(self, name: Any = None) -> None: """Return x tanh(ln(1 + exp(x)))."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.attention import MultiHeadAttention as MultiHeadAttention
class MultiLabelSoftMarginLoss:
    def __init__(self, weight: Any = None, reduction: Any = 'mean', name: Any = None) -> None: """Average over the classes how unlikely yes-or-no labels are under the sigmoid of logits: [batch] before the reduction."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class MultiMarginLoss:
    def __init__(self, p: Any = 1, margin: Any = 1.0, weight: Any = None, reduction: Any = 'mean', name: Any = None) -> None: """Want the label's score to be larger than all others by a margin: the mean over classes of max(0, margin - own + other)^p."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class NLLLoss:
    def __init__(self, weight: Any = None, ignore_index: Any = -100, reduction: Any = 'mean', name: Any = None) -> None: """Take the negative of every label's input."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.parametric import PReLU as PReLU
class Pad1D:
    def __init__(self, padding: Any, mode: Any = 'constant', value: Any = 0.0, data_format: Any = 'NCL', name: Any = None) -> None: """Continue a tensor beyond its edges."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Pad2D:
    def __init__(self, padding: Any, mode: Any = 'constant', value: Any = 0.0, data_format: Any = 'NCHW', name: Any = None) -> None: """Continue a tensor beyond its edges."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Pad3D:
    def __init__(self, padding: Any, mode: Any = 'constant', value: Any = 0.0, data_format: Any = 'NCDHW', name: Any = None) -> None: """Continue a tensor beyond its edges."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class PairwiseDistance:
    def __init__(self, p: Any = 2.0, epsilon: Any = 1e-06, keepdim: Any = False, name: Any = None) -> None: """Return the p-norm of the difference of every pair of rows, with epsilon added to the differences."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.containers import ParameterList as ParameterList
class PixelShuffle:
    def __init__(self, upscale_factor: Any, data_format: Any = 'NCHW', name: Any = None) -> None: """Turn channels into pixels: [N, C r r, H, W] becomes [N, C, H r, W r]."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class PixelUnshuffle:
    def __init__(self, downscale_factor: Any, data_format: Any = 'NCHW', name: Any = None) -> None: """Turn pixels into channels: [N, C, H r, W r] becomes [N, C r r, H, W]."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class PoissonNLLLoss:
    def __init__(self, log_input: Any = True, full: Any = False, epsilon: Any = 1e-08, reduction: Any = 'mean', name: Any = None) -> None: """Measure how unlikely counts are under Poisson distributions: exp(input) - label input, in nats."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.rnn import RNN as RNN
from pe_cli.paddle.nn.rnn_cells import RNNCellBase as RNNCellBase
class RNNTLoss:
    def __init__(self, blank: Any = 0, fastemit_lambda: Any = 0.001, reduction: Any = 'mean', name: Any = None) -> None: """Measure how unlikely labels are, whatever steps of a series they belong to, in nats."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class RReLU:
    def __init__(self, lower: Any = 0.125, upper: Any = 0.3333333333333333, name: Any = None) -> None: """Multiply what is below 0 by a number drawn evenly from [lower, upper) while training, else by their mean."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ReLU:
    def __init__(self, name: Any = None) -> None: """Append `relu` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ReLU6:
    def __init__(self, name: Any = None) -> None: """Append `relu6` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class SELU:
    def __init__(self, scale: Any = 1.0507009873554805, alpha: Any = 1.6732632423543772, name: Any = None) -> None: """Return scale x above 0 and scale alpha (exp(x) - 1) below."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.containers import Sequential as Sequential
class Sigmoid:
    def __init__(self, name: Any = None) -> None: """Append `sigmoid` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Silu:
    def __init__(self, name: Any = None) -> None: """Return x sigmoid(x)."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.rnn import SimpleRNN as SimpleRNN
from pe_cli.paddle.nn.rnn_cells import SimpleRNNCell as SimpleRNNCell
class SmoothL1Loss:
    def __init__(self, reduction: Any = 'mean', delta: Any = 1.0, name: Any = None) -> None: """Square small differences and take large ones linearly: 0.5 d^2 up to delta, then delta (|d| - 0.5 delta)."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class SoftMarginLoss:
    def __init__(self, reduction: Any = 'mean', name: Any = None) -> None: """Measure scores of two classes: ln(1 + exp(-label input)), label 1 or -1."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Softmax:
    def __init__(self, axis: Any = -1, name: Any = None) -> None: """Turn logits along an axis into probabilities; a dtype casts x first."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Softmax2D:
    def __init__(self) -> None: """Turn the channels of every pixel into probabilities."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Softplus:
    def __init__(self, beta: Any = 1.0, threshold: Any = 20.0, name: Any = None) -> None: """Return ln(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Softshrink:
    def __init__(self, threshold: Any = 0.5, name: Any = None) -> None: """Move x towards 0 by the threshold; what is nearer becomes 0."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Softsign:
    def __init__(self, name: Any = None) -> None: """Append `softsign` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.norm import SpectralNorm as SpectralNorm
class Swish:
    def __init__(self, name: Any = None) -> None: """Append `swish` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Tanh:
    def __init__(self, name: Any = None) -> None: """Append `tanh` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Tanhshrink:
    def __init__(self, name: Any = None) -> None: """Append `tanh_shrink` of every element."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ThresholdedReLU:
    def __init__(self, threshold: Any = 1.0, name: Any = None) -> None: """Let x through where it is above the threshold, else return 0."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
from pe_cli.paddle.nn.transformer import Transformer as Transformer
from pe_cli.paddle.nn.transformer import TransformerDecoder as TransformerDecoder
from pe_cli.paddle.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from pe_cli.paddle.nn.transformer import TransformerEncoder as TransformerEncoder
from pe_cli.paddle.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
class TripletMarginLoss:
    def __init__(self, margin: Any = 1.0, p: Any = 2, epsilon: Any = 1e-06, swap: Any = False, reduction: Any = 'mean', name: Any = None) -> None: """Want one p-norm to be smaller than another by a margin; see `triplet_margin_with_distance_loss` and `pairwise_distance`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class TripletMarginWithDistanceLoss:
    def __init__(self, distance_function: Any = None, margin: Any = 1.0, swap: Any = False, reduction: Any = 'mean', name: Any = None) -> None: """Want one distance to be smaller than another by a margin: max(0, d(input, positive) - d(input, negative) + margin)."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Unflatten:
    def __init__(self, axis: Any, shape: Any, name: Any = None) -> None: """Make several axes of one; one of the sizes may be -1."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Unfold:
    def __init__(self, kernel_sizes: Any, dilations: Any = 1, paddings: Any = 0, strides: Any = 1, name: Any = None) -> None: """Cut images into windows, a column each: [batch, channels * window, windows]; see `fluid.layers.unfold`."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class Upsample:
    def __init__(self, size: Any = None, scale_factor: Any = None, mode: Any = 'nearest', align_corners: Any = False, align_mode: Any = 0, data_format: Any = 'NCHW', name: Any = None) -> None: """Change the size of images by nearest, bilinear, bicubic or area, of volumes by trilinear, or of rows by linear."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class UpsamplingBilinear2D:
    def __init__(self, size: Any = None, scale_factor: Any = None, data_format: Any = 'NCHW', name: Any = None) -> None: """Change the size of images by nearest, bilinear, bicubic or area, of volumes by trilinear, or of rows by linear."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class UpsamplingNearest2D:
    def __init__(self, size: Any = None, scale_factor: Any = None, data_format: Any = 'NCHW', name: Any = None) -> None: """Change the size of images by nearest, bilinear, bicubic or area, of volumes by trilinear, or of rows by linear."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
class ZeroPad2D:
    def __init__(self, padding: Any, data_format: Any = 'NCHW', name: Any = None) -> None: """Put zeros around images: a number, or columns left and right, rows above and below."""
    def __call__(self, *args: Any, **given: Any) -> Any: ...
def dynamic_decode(decoder: Any, inits: Any = None, max_step_num: Any = None, output_time_major: Any = False, impute_finished: Any = False, is_test: Any = False, return_length: Any = False, **given: Any) -> Any: """Repeat the steps of a decoder until all is finished."""
