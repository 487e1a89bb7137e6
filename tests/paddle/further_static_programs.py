"""Further static programs of 2.x, of other layers, optimizers and functions than those of static_programs.py, registered beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.paddle.static_programs import ADAM, Made, program


def _cube(v: Any) -> Any:
    return np.asarray(v) ** 3


def _cube_back(v: Any, out: Any, gradient: Any) -> Any:
    del out
    return 3 * np.asarray(v) ** 2 * np.asarray(gradient)


@program
def text_cnn(paddle: Any) -> Made:
    """Convolutions of words of three widths, AdamW and a cosine."""
    F = paddle.nn.functional
    words, label = paddle.static.data("words", [None, 9], "int64"), paddle.static.data("label", [None, 1], "int64")
    e = paddle.nn.Embedding(30, 8, padding_idx=0)(words)
    e = paddle.transpose(e, [0, 2, 1])
    parts = [paddle.max(F.relu(paddle.nn.Conv1D(8, 6, k, padding=k // 2)(e)), axis=-1) for k in (2, 3, 4)]
    h = paddle.nn.Dropout(0.0)(paddle.concat(parts, axis=1))
    logits = paddle.nn.Linear(18, 4)(h)
    loss = F.cross_entropy(logits, label)
    s = paddle.optimizer.lr.CosineAnnealingDecay(0.1, T_max=5)
    return Made(
        loss,
        {"words": ((6, 9), 30), "label": ((6, 1), 4)},
        paddle.optimizer.AdamW(s, weight_decay=0.02),
        [logits],
        [words],
        schedule=s,
        near=ADAM,
    )


@program
def mobile_block(paddle: Any) -> Made:
    """A block of MobileNetV3: depthwise convolution, squeeze and excitation; Nesterov's momentum."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 4, 8, 8]), paddle.static.data("y", [None, 1], "int64")
    h = nn.Sequential(
        nn.Conv2D(4, 12, 1, bias_attr=False),
        nn.BatchNorm2D(12),
        nn.Hardswish(),
        nn.Conv2D(12, 12, 3, stride=2, padding=1, groups=12, bias_attr=False),
        nn.BatchNorm2D(12),
        nn.Hardswish(),
    )(x)
    s = nn.AdaptiveAvgPool2D(1)(h)
    s = nn.Hardsigmoid()(nn.Conv2D(3, 12, 1)(nn.ReLU6()(nn.Conv2D(12, 3, 1)(s))))
    h = nn.Flatten()(nn.AdaptiveAvgPool2D(1)(h * s))
    logits = nn.Linear(12, 5)(h)
    return Made(
        nn.CrossEntropyLoss()(logits, y),
        {"x": ((5, 4, 8, 8), "f"), "y": ((5, 1), 5)},
        paddle.optimizer.Momentum(0.05, 0.9, use_nesterov=True),
        [logits],
        [x],
    )


@program
def bi_rnn(paddle: Any) -> Made:
    """Two layers of SimpleRNN in both directions."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6, 5]), paddle.static.data("y", [None, 1])
    out, last = nn.SimpleRNN(5, 4, num_layers=2, direction="bidirect")(x)
    g = nn.Linear(8, 1)(out[:, -1])
    return Made(
        nn.MSELoss()(g, y),
        {"x": ((4, 6, 5), "f"), "y": ((4, 1), "f")},
        paddle.optimizer.SGD(0.1),
        [g, last],
        [x],
        unread=("simple_rnn_0", "simplernn_"),
    )


@program
def cells(paddle: Any) -> Made:
    """RNN and BiRNN over cells."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6, 5]), paddle.static.data("y", [None, 1])
    out, _ = nn.RNN(nn.GRUCell(5, 7), is_reverse=True)(x)
    out2, _ = nn.BiRNN(nn.LSTMCell(7, 3), nn.LSTMCell(7, 3))(out)
    g = nn.Linear(6, 1)(paddle.mean(out2, axis=1))
    return Made(nn.L1Loss()(g, y), {"x": ((4, 6, 5), "f"), "y": ((4, 1), "f")}, paddle.optimizer.SGD(0.1), [g], [x])


@program
def decoder_layers(paddle: Any) -> Made:
    """A Transformer's decoder, normalised before, with a mask of the future."""
    nn = paddle.nn
    x, m, y = paddle.static.data("x", [2, 5, 8]), paddle.static.data("m", [2, 4, 8]), paddle.static.data("y", [2, 5, 8])
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, activation="gelu", normalize_before=True)
    out = nn.TransformerDecoder(layer, 2, nn.LayerNorm(8))(
        x, m, tgt_mask=paddle.tensor.triu(paddle.full([5, 5], -1e9), 1)
    )
    return Made(
        nn.SmoothL1Loss()(out, y),
        {"x": ((2, 5, 8), "f"), "m": ((2, 4, 8), "f"), "y": ((2, 5, 8), "f")},
        paddle.optimizer.SGD(0.1),
        [out],
        [x, m],
    )


@program
def ctc_rows(paddle: Any) -> Made:
    """CTCLoss with the blank behind the classes."""
    nn = paddle.nn
    x, lab = paddle.static.data("x", [7, 3, 5]), paddle.cast(paddle.static.data("lab", [3, 3], "int64"), "int32")
    logits = nn.Linear(5, 6)(x)
    xl, ll = paddle.full([3], 7, "int64"), paddle.full([3], 3, "int64")
    loss = nn.CTCLoss(blank=5)(logits, lab, xl, ll)
    return Made(loss, {"x": ((7, 3, 5), "f"), "lab": ((3, 3), 5)}, paddle.optimizer.SGD(0.1), [logits], [x])


@program
def multi_label(paddle: Any) -> Made:
    """Several yes-or-no labels, PReLU and LayerNorm; Adagrad with a start."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 3])
    h = nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.LayerNorm(8), nn.Linear(8, 3))(x)
    y01 = paddle.cast(y > 0, "float32")
    loss = nn.BCEWithLogitsLoss()(h, y01)
    opt = paddle.optimizer.Adagrad(0.1, initial_accumulator_value=0.1)
    return Made(loss, {"x": ((5, 6), "f"), "y": ((5, 3), "f")}, opt, [nn.functional.sigmoid(h)], [x])


@program
def super_resolution(paddle: Any) -> Made:
    """Reflected borders, PixelShuffle, transposed convolution, bicubic and bilinear sizes; centred RMSProp."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 3, 4, 4]), paddle.static.data("y", [None, 3, 16, 16])
    h = nn.PixelShuffle(2)(nn.Conv2D(3, 16, 3, padding=1, padding_mode="reflect")(x))
    h = nn.Conv2DTranspose(4, 3, 4, stride=2, padding=1)(nn.LeakyReLU(0.1)(h))
    up = nn.functional.interpolate(x, scale_factor=4, mode="bicubic") + nn.Upsample(size=[16, 16], mode="bilinear")(x)
    out = nn.Tanh()(h + up)
    return Made(
        nn.MSELoss()(out, y),
        {"x": ((2, 3, 4, 4), "f"), "y": ((2, 3, 16, 16), "f")},
        paddle.optimizer.RMSProp(0.01, rho=0.9, momentum=0.5, centered=True),
        [out],
        [x],
    )


@program
def volumes(paddle: Any) -> Made:
    """Convolutions, norm and pools of volumes."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 2, 4, 6, 6]), paddle.static.data("y", [None, 1])
    h = nn.Sequential(
        nn.Conv3D(2, 4, 3, padding=1),
        nn.BatchNorm3D(4),
        nn.ELU(),
        nn.MaxPool3D(2),
        nn.Conv3D(4, 3, 2),
        nn.AdaptiveAvgPool3D(1),
        nn.Flatten(),
        nn.Linear(3, 1),
    )(x)
    return Made(
        nn.MSELoss()(h, y), {"x": ((3, 2, 4, 6, 6), "f"), "y": ((3, 1), "f")}, paddle.optimizer.SGD(0.05), [h], [x]
    )


@program
def branches_by_number(paddle: Any) -> Made:
    """switch_case and case on branches that share parameters."""
    x, which = paddle.static.data("x", [4, 3]), paddle.static.data("which", [1], "int64")
    a, b = paddle.nn.Linear(3, 2), paddle.nn.Linear(3, 2)
    out = paddle.static.nn.switch_case(which, {0: lambda: a(x), 1: lambda: b(x) * 2}, default=lambda: a(x) + b(x))
    out2 = paddle.static.nn.case(
        [(paddle.mean(x) > 0, lambda: paddle.tanh(out)), (paddle.max(x) < 0.5, lambda: out * 0.5)], default=lambda: out
    )
    return Made(
        paddle.mean(paddle.square(out2)),
        {"x": ((4, 3), "f"), "which": ((1,), 3)},
        paddle.optimizer.SGD(0.1),
        [out2],
        [x, which],
    )


@program
def warmup_clip(paddle: Any) -> Made:
    """A warm-up into a polynomial, L1 of one parameter and L2 of the others, a clip by the global norm."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1])
    g = nn.Sequential(
        nn.Linear(6, 8, weight_attr=paddle.ParamAttr(regularizer=paddle.regularizer.L1Decay(0.01))),
        nn.Swish(),
        nn.Linear(8, 1),
    )(x)
    s = paddle.optimizer.lr.LinearWarmup(paddle.optimizer.lr.PolynomialDecay(0.1, 10, 0.01), 2, 0.0, 0.1)
    opt = paddle.optimizer.Momentum(
        s, 0.9, weight_decay=paddle.regularizer.L2Decay(0.02), grad_clip=nn.ClipGradByGlobalNorm(0.5)
    )
    return Made(nn.MSELoss()(g, y), {"x": ((8, 6), "f"), "y": ((8, 1), "f")}, opt, [g], [x], schedule=s)


@program
def adamax_clip_value(paddle: Any) -> Made:
    """Adamax, OneCycleLR and a clip of values."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1])
    g = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 8), nn.Mish(), nn.Linear(8, 1), nn.SELU())(x)
    s = paddle.optimizer.lr.OneCycleLR(0.1, 10)
    return Made(
        nn.MSELoss()(g, y),
        {"x": ((8, 6), "f"), "y": ((8, 1), "f")},
        paddle.optimizer.Adamax(s, grad_clip=nn.ClipGradByValue(0.1)),
        [g],
        [x],
        schedule=s,
        near=ADAM,
    )


@program
def adadelta_norm(paddle: Any) -> Made:
    """Adadelta, StepDecay and a clip of norms."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1])
    g = nn.Sequential(nn.Linear(6, 8), nn.Softsign(), nn.Linear(8, 8), nn.Hardtanh(), nn.Linear(8, 1), nn.Tanhshrink())(
        x
    )
    s = paddle.optimizer.lr.StepDecay(0.9, 2)
    return Made(
        nn.MSELoss()(g, y),
        {"x": ((8, 6), "f"), "y": ((8, 1), "f")},
        paddle.optimizer.Adadelta(s, grad_clip=nn.ClipGradByNorm(0.3)),
        [g],
        [x],
        schedule=s,
    )


@program
def area_under_the_curve(paddle: Any) -> Made:
    """Probabilities into cross_entropy, and the area under the curve."""
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1], "int64")
    p = paddle.nn.functional.softmax(paddle.static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(name="w"), activation=None))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(p, y, use_softmax=False, reduction="none"))
    a, batch, _ = paddle.static.auc(p, y)
    return Made(loss, {"x": ((16, 6), "f"), "y": ((16, 1), 2)}, paddle.optimizer.SGD(0.1), [p, a, batch], [x])


@program
def python_function(paddle: Any) -> Made:
    """A function of Python with a gradient of its own."""
    x, y = paddle.static.data("x", [4, 3]), paddle.static.data("y", [4, 1])
    h = paddle.static.nn.fc(x, 5)
    out = paddle.static.default_main_program().current_block().create_var(name="cubed", dtype="float32", shape=[4, 5])
    paddle.static.py_func(_cube, h, out, backward_func=_cube_back)
    g = paddle.static.nn.fc(out, 1)
    return Made(
        paddle.mean(paddle.nn.functional.square_error_cost(g, y)),
        {"x": ((4, 3), "f"), "y": ((4, 1), "f")},
        paddle.optimizer.SGD(0.05),
        [h],
        [x],
    )


@program
def indexing(paddle: Any) -> Made:
    """Functions that take, put, sort and join."""
    x, i = paddle.static.data("x", [4, 6]), paddle.static.data("i", [4, 2], "int64")
    w = paddle.static.create_parameter([6, 6], "float32", name="w")
    a = paddle.einsum("bi,ij->bj", x, w)
    b = paddle.gather_nd(a, paddle.stack([i[:, 0], i[:, 1]], axis=1))
    c = paddle.index_select(a, i[:, 0], axis=1)
    d = paddle.take_along_axis(a, i, 1) + paddle.index_sample(a, i)
    e = paddle.tril(paddle.matmul(a, a, transpose_y=True), -1) + paddle.kron(paddle.ones([2, 2]), a[:2, :2])
    f = paddle.scatter(a, i[:, 0], paddle.ones([4, 6]), overwrite=False)
    g = paddle.topk(a, 2)[0] + paddle.sort(a, descending=True)[:, :2]
    h = paddle.unstack(a, 0)[1] * paddle.cumsum(a, 1)[0] + paddle.roll(a, 2, 1)[2] + paddle.flip(a, [1])[3]
    k = (
        paddle.tile(paddle.unsqueeze(a, 0), [2, 1, 1]).sum()
        + paddle.expand(b.reshape([1, 4]), [3, 4]).mean()
        + paddle.logsumexp(a)
        + paddle.norm(a, p=3)
        + paddle.std(a)
        + paddle.var(a)
        + paddle.prod(a[:1, :2])
    )
    loss = sum(paddle.mean(v) for v in (b, c, d, e, f, g, h, k))
    return Made(loss, {"x": ((4, 6), "f"), "i": ((4, 2), 4)}, paddle.optimizer.SGD(0.02), [a, d, e, f, h], [x])


@program
def distances(paddle: Any) -> Made:
    """Distances, and both bilinear layers."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 6])
    a, b = nn.Linear(6, 4)(x), nn.Linear(6, 4)(y)
    d = nn.PairwiseDistance(p=2)(a, b) + nn.CosineSimilarity(axis=1)(a, b)
    bl = nn.Bilinear(4, 4, 3)(a, b)
    u = paddle.static.nn.bilinear_tensor_product(a, b, 2)
    loss = (
        paddle.mean(d)
        + paddle.mean(paddle.square(bl))
        + paddle.mean(nn.functional.gelu(u))
        + paddle.mean(paddle.dist(a, b, 2))
    )
    return Made(loss, {"x": ((5, 6), "f"), "y": ((5, 6), "f")}, paddle.optimizer.SGD(0.05), [d, bl, u], [x, y])


@program
def averages(paddle: Any) -> Made:
    """An average of parameters beside the optimizer."""
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1])
    g = paddle.static.nn.fc(x, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(g, y))
    paddle.optimizer.SGD(0.1).minimize(loss)
    paddle.static.ExponentialMovingAverage(0.9).update()
    return Made(loss, {"x": ((5, 6), "f"), "y": ((5, 1), "f")}, None, [g], [x])


@program
def norms(paddle: Any) -> Made:
    """Norms of the functions and of static.nn, one behind the other."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 4, 6, 6]), paddle.static.data("y", [None, 1])
    h = nn.InstanceNorm2D(4)(nn.LocalResponseNorm(3)(nn.Conv2D(4, 4, 3, padding="SAME")(x)))
    h = (
        paddle.static.nn.group_norm(h, 2)
        + paddle.static.nn.instance_norm(x)
        + paddle.static.nn.layer_norm(h, begin_norm_axis=2)
    )
    h = paddle.static.nn.prelu(paddle.static.nn.batch_norm(h, act="sigmoid"), mode="channel")
    g = paddle.static.nn.fc(h, 1, num_flatten_dims=1, activation="tanh")
    return Made(
        nn.MSELoss()(g, y), {"x": ((3, 4, 6, 6), "f"), "y": ((3, 1), "f")}, paddle.optimizer.SGD(0.05), [g], [x]
    )


@program
def static_layers(paddle: Any) -> Made:
    """Layers of static.nn with several inputs and activations."""
    s = paddle.static.nn
    x, y, n = (
        paddle.static.data("x", [None, 4, 6, 6]),
        paddle.static.data("y", [None, 1], "int64"),
        paddle.static.data("n", [None, 1], "int64"),
    )
    h = s.conv2d(x, 6, 3, groups=2, act="relu", padding=1)
    h = s.conv2d_transpose(h, 4, filter_size=2, stride=2, act="leaky_relu")
    e = s.embedding(n, [11, 5], is_sparse=False)
    h = s.fc([paddle.flatten(h, 1), paddle.reshape(e, [-1, 5])], 7, activation="relu")
    out = s.fc(h, 4)
    return Made(
        paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(out, y)),
        {"x": ((3, 4, 6, 6), "f"), "y": ((3, 1), 4), "n": ((3, 1), 11)},
        paddle.optimizer.SGD(0.05),
        [out],
        [x, n],
    )


@program
def sequences(paddle: Any) -> Made:
    """Lengths as a mask, row_conv and attention."""
    s = paddle.static.nn
    x = paddle.static.data("x", [None, 6, 4])
    y = paddle.static.data("y", [None, 1])
    mask = paddle.nn.functional.sequence_mask(paddle.full([3], 4, "int64"), 6, "float32")
    h = x * paddle.unsqueeze(mask, 2)
    h = s.row_conv(h, 2)
    q = paddle.nn.MultiHeadAttention(4, 2)(h, h, h)
    g = paddle.nn.Linear(4, 1)(paddle.sum(q, 1))
    return Made(
        paddle.nn.functional.mse_loss(g, y),
        {"x": ((3, 6, 4), "f"), "y": ((3, 1), "f")},
        paddle.optimizer.SGD(0.05),
        [g],
        [x],
    )


@program
def gradient_penalty(paddle: Any) -> Made:
    """A gradient of the input in the loss."""
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    x.stop_gradient = False
    h = paddle.nn.Sequential(paddle.nn.Linear(4, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 1))(x)
    loss = paddle.nn.functional.mse_loss(h, y)
    (g,) = paddle.static.gradients([loss], [x])
    total = loss + 0.1 * paddle.mean(paddle.square(g))
    return Made(total, {"x": ((5, 4), "f"), "y": ((5, 1), "f")}, paddle.optimizer.SGD(0.1), [h, g], [x])


@program
def rates_by_parameter(paddle: Any) -> Made:
    """Adam with rates by step and by parameter."""
    nn = paddle.nn
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1])
    g = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1, bias_attr=paddle.ParamAttr(learning_rate=2.0)))(x)
    s = paddle.optimizer.lr.PiecewiseDecay([1, 3], [0.1, 0.05, 0.01])
    return Made(
        nn.MSELoss()(g, y),
        {"x": ((8, 6), "f"), "y": ((8, 1), "f")},
        paddle.optimizer.Adam(s, beta1=0.8, beta2=0.95, weight_decay=0.01),
        [g],
        [x],
        schedule=s,
        near=ADAM,
    )


@program
def tags_of_words(paddle: Any) -> Made:
    """Tags of words from a bidirectional LSTM, weighted and with an ignored class."""
    F = paddle.nn.functional
    w, t = paddle.static.data("w", [3, 5], "int64"), paddle.static.data("t", [3, 5], "int64")
    e = paddle.nn.Embedding(
        20, 6, weight_attr=paddle.ParamAttr(name="emb", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1))
    )(w)
    out, (h, c) = paddle.nn.LSTM(6, 5, direction="bidirect")(e)
    logits = paddle.nn.Linear(10, 4)(out)
    loss = F.cross_entropy(logits, t, weight=paddle.full([4], 0.5), ignore_index=0)
    return Made(
        loss, {"w": ((3, 5), 20), "t": ((3, 5), 4)}, paddle.optimizer.SGD(0.1), [logits, h, c], [w], unread=("lstm_0",)
    )


#: The programs of this module.
__all__ = [
    "adadelta_norm",
    "adamax_clip_value",
    "area_under_the_curve",
    "averages",
    "bi_rnn",
    "branches_by_number",
    "cells",
    "ctc_rows",
    "decoder_layers",
    "distances",
    "gradient_penalty",
    "indexing",
    "mobile_block",
    "multi_label",
    "norms",
    "python_function",
    "rates_by_parameter",
    "sequences",
    "static_layers",
    "super_resolution",
    "tags_of_words",
    "text_cnn",
    "volumes",
    "warmup_clip",
]  # fmt: skip
