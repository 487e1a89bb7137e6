"""Names that functions and layers of 2.x give and use up: run by PaddlePaddle 2.6.2 (`names_v2.py FILE`) and by tests."""

import json
import sys
from pathlib import Path

#: Expressions of the feeds below, one each; what they return is named, and names that they use up are counted.
CALLS = """
F.linear(x, w)
F.linear(x, w, b)
F.bilinear(x, x, w3, b1)
F.embedding(ids, w)
F.one_hot(flat, 6)
F.label_smooth(x)
F.dropout(x, 0.5)
F.dropout(x, 0.0)
F.dropout2d(image)
F.dropout3d(volume)
F.dropout2d(image, 0.0)
F.alpha_dropout(x, 0.0)
F.alpha_dropout(x, 0.5)
F.pad(image, [1, 1, 1, 1])
F.pad(image, [1, 1, 1, 1], mode="reflect")
F.interpolate(image, size=[4, 4])
F.interpolate(image, scale_factor=2, mode="bilinear")
F.upsample(image, scale_factor=2, mode="bicubic")
F.cosine_similarity(x, y)
F.normalize(x)
F.unfold(image, 2)
F.sequence_mask(flat, 6)
F.temporal_shift(image, 2)
F.pixel_shuffle(image, 2)
F.affine_grid(theta, [2, 3, 4, 4])
F.grid_sample(image, grid)
F.conv1d(series, k1)
F.conv1d(series, k1, b)
F.conv2d(image, k2)
F.conv2d(image, k2, b)
F.conv2d(image, kd, groups=4)
F.conv2d(image, kd, b4, groups=4)
F.conv2d(image, kg, groups=2)
F.conv3d(volume, k3)
F.conv3d(volume, k3, b)
F.conv1d_transpose(series, k1t)
F.conv2d_transpose(image, k2t)
F.conv2d_transpose(image, k2t, b)
F.conv2d_transpose(image, kd, groups=4)
F.conv3d_transpose(volume, k3t)
F.conv3d_transpose(volume, k3t, b)
F.conv1d_transpose(series, k1t, b)
F.avg_pool1d(series, 2)
F.avg_pool2d(image, 2)
F.avg_pool3d(volume, 2)
F.max_pool1d(series, 2)
F.max_pool2d(image, 2)
F.max_pool2d(image, 2, return_mask=True)
F.max_pool3d(volume, 2)
F.max_pool1d(series, 2, return_mask=True)
F.adaptive_avg_pool1d(series, 2)
F.adaptive_avg_pool2d(image, 2)
F.adaptive_avg_pool3d(volume, 2)
F.adaptive_max_pool1d(series, 2)
F.adaptive_max_pool2d(image, 2)
F.adaptive_max_pool3d(volume, 2)
F.batch_norm(image, b4, b4, b4, b4)
F.batch_norm(image, b4, b4, b4, b4, training=True)
F.layer_norm(x, [6], b, b)
F.layer_norm(x, 6)
F.instance_norm(image)
F.local_response_norm(image, 3)
F.relu(x)
F.relu6(x)
F.sigmoid(x)
F.softmax(x)
F.softmax(x, dtype="float64")
F.log_softmax(x)
F.gelu(x)
F.elu(x)
F.celu(x)
F.selu(x)
F.silu(x)
F.swish(x)
F.mish(x)
F.glu(x)
F.hardshrink(x)
F.hardsigmoid(x)
F.hardswish(x)
F.hardtanh(x)
F.leaky_relu(x)
F.log_sigmoid(x)
F.maxout(image, 2)
F.prelu(x, one)
F.softplus(x)
F.softshrink(x)
F.softsign(x)
F.tanh(x)
F.tanhshrink(x)
F.thresholded_relu(x)
F.cross_entropy(x, label)
F.cross_entropy(x, flat)
F.cross_entropy(x, label, reduction="sum")
F.cross_entropy(x, label, reduction="none")
F.cross_entropy(x, y, soft_label=True)
F.cross_entropy(x, label, use_softmax=False)
F.cross_entropy(x, label, weight=b)
F.cross_entropy(x, label, ignore_index=0)
F.cross_entropy(x, label, weight=b, reduction="sum")
F.cross_entropy(x, label, weight=b, reduction="none")
F.cross_entropy(x, label, weight=b, ignore_index=0)
F.cross_entropy(x, y, weight=b, soft_label=True)
F.softmax_with_cross_entropy(x, label)
F.softmax_with_cross_entropy(x, label, return_softmax=True)
F.mse_loss(x, y)
F.mse_loss(x, y, reduction="sum")
F.mse_loss(x, y, reduction="none")
F.l1_loss(x, y)
F.l1_loss(x, y, reduction="sum")
F.l1_loss(x, y, reduction="none")
F.smooth_l1_loss(x, y)
F.smooth_l1_loss(x, y, reduction="sum")
F.smooth_l1_loss(x, y, reduction="none")
F.square_error_cost(x, y)
F.nll_loss(x, flat)
F.kl_div(x, y)
F.kl_div(x, y, reduction="sum")
F.kl_div(x, y, reduction="batchmean")
F.kl_div(x, y, reduction="none")
F.binary_cross_entropy(x, y)
F.binary_cross_entropy(x, y, reduction="sum")
F.binary_cross_entropy(x, y, reduction="none")
F.binary_cross_entropy(x, y, weight=b)
F.binary_cross_entropy_with_logits(x, y)
F.binary_cross_entropy_with_logits(x, y, reduction="sum")
F.binary_cross_entropy_with_logits(x, y, reduction="none")
F.binary_cross_entropy_with_logits(x, y, weight=b)
F.binary_cross_entropy_with_logits(x, y, pos_weight=b)
F.binary_cross_entropy_with_logits(x, y, b, "none", b)
F.margin_ranking_loss(x, y, y)
F.margin_ranking_loss(x, y, y, reduction="none")
F.log_loss(p, p)
F.npair_loss(x, y, flat4)
F.dice_loss(x, label)
F.sigmoid_focal_loss(x, y)
F.sigmoid_focal_loss(x, y, reduction="mean")
F.hsigmoid_loss(x, label, 6, tree, b1c)
F.ctc_loss(steps, words, lengths, lengths)
nn.Linear(6, 3)(x)
nn.Bilinear(6, 6, 3)(x, x)
nn.Embedding(9, 3)(ids)
nn.Conv1D(4, 3, 2)(series)
nn.Conv2D(4, 3, 2)(image)
nn.Conv2D(4, 3, 2, bias_attr=False)(image)
nn.Conv2D(4, 4, 2, groups=4)(image)
nn.Conv2D(4, 3, 3, padding=1, padding_mode="reflect")(image)
nn.Conv3D(4, 3, 2)(volume)
nn.Conv1DTranspose(4, 3, 2)(series)
nn.Conv2DTranspose(4, 3, 2)(image)
nn.Conv3DTranspose(4, 3, 2)(volume)
nn.BatchNorm(4)(image)
nn.BatchNorm1D(6)(x)
nn.BatchNorm2D(4)(image)
nn.BatchNorm3D(4)(volume)
nn.LayerNorm(6)(x)
nn.GroupNorm(2, 4)(image)
nn.InstanceNorm1D(4)(series)
nn.InstanceNorm2D(4)(image)
nn.InstanceNorm3D(4)(volume)
nn.LocalResponseNorm(3)(image)
nn.SpectralNorm([6, 3])(w)
nn.PReLU()(x)
nn.Flatten()(image)
nn.Dropout(0.5)(x)
nn.Dropout(0.0)(x)
nn.Upsample(scale_factor=2)(image)
nn.UpsamplingBilinear2D(scale_factor=2)(image)
nn.UpsamplingNearest2D(scale_factor=2)(image)
nn.Pad1D(1)(series)
nn.Pad2D(1)(image)
nn.ReLU()(x)
nn.Softmax()(x)
nn.Tanh()(x)
nn.PairwiseDistance()(x, y)
nn.CosineSimilarity()(x, y)
nn.HSigmoidLoss(6, 7)(x, label)
nn.CrossEntropyLoss()(x, label)
nn.MSELoss()(x, y)
nn.SimpleRNNCell(6, 4)(x)[0]
nn.LSTMCell(6, 4)(x)[0]
nn.GRUCell(6, 4)(x)[0]
nn.SimpleRNN(6, 4)(rows)[0]
nn.LSTM(6, 4)(rows)[0]
nn.LSTM(6, 4, num_layers=2, direction="bidirect")(rows)[0]
nn.GRU(6, 4)(rows)[0]
nn.GRU(6, 4, time_major=True)(rows)[0]
nn.SimpleRNNCell(6, 4)(x, state)[0]
nn.LSTMCell(6, 4)(x, (state, state))[0]
nn.GRUCell(6, 4)(x, state)[0]
nn.RNN(nn.GRUCell(6, 4))(rows)[0]
nn.RNN(nn.GRUCell(6, 4))(rows, state)[0]
nn.RNN(nn.LSTMCell(6, 4), is_reverse=True)(rows)[0]
nn.RNN(nn.GRUCell(6, 4))(rows, None, lengths)[0]
nn.BiRNN(nn.GRUCell(6, 4), nn.GRUCell(6, 4))(rows)[0]
nn.LSTM(6, 4)(rows, (starts, starts))[0]
nn.LSTM(6, 4)(rows)[1][0]
nn.GRU(6, 4)(rows)[1]
nn.GRU(6, 4, num_layers=2, dropout=0.1)(rows)[0]
nn.GRU(6, 4)(rows, None, lengths)[0]
nn.MultiHeadAttention(6, 2)(rows, rows, rows, seen)
nn.MultiHeadAttention(6, 2)(rows, rows, rows)
nn.MultiHeadAttention(6, 2, dropout=0.1, need_weights=True)(rows, rows, rows)
nn.TransformerEncoderLayer(6, 2, 8)(rows)
nn.TransformerEncoderLayer(6, 2, 8, normalize_before=True, activation="gelu")(rows)
nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8), 2)(rows)
nn.TransformerDecoderLayer(6, 2, 8)(rows, rows)
nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8), 2, nn.LayerNorm(6))(rows, rows)
nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))(x)
S.nn.fc(x, 3)
S.nn.fc(x, 3, activation="relu")
S.nn.fc(x, 3, bias_attr=False)
S.nn.fc([x, y], 3)
S.nn.fc(image, 3)
S.nn.embedding(ids, [9, 3])
S.nn.conv2d(image, 3, 2)
S.nn.conv2d(image, 3, 2, act="relu")
S.nn.conv2d(image, 4, 2, groups=4, bias_attr=False)
S.nn.conv3d(volume, 3, 2)
S.nn.conv2d_transpose(image, 3, filter_size=2)
S.nn.conv3d_transpose(volume, 3, filter_size=2)
S.nn.batch_norm(image)
S.nn.batch_norm(image, act="relu")
S.nn.layer_norm(image)
S.nn.group_norm(image, 2)
S.nn.instance_norm(image)
S.nn.data_norm(x)
S.nn.prelu(image, mode="all")
S.nn.spectral_norm(w)
S.nn.bilinear_tensor_product(x, y, 3)
S.nn.row_conv(rows, 2)
S.nn.nce(x, label, 9)
S.accuracy(p, label)
S.auc(p2, label)[0]
S.create_global_var([1], 1.0, "float32", persistable=True)
S.create_parameter([2, 3], "float32")
paddle.abs(x)
paddle.acos(x)
paddle.add(x, y)
paddle.add_n([x, y])
paddle.addmm(sq, x, sixes)
paddle.all(flag)
paddle.allclose(x, y)
paddle.any(flag)
paddle.arange(0, 6, 1)
paddle.argmax(x, 1)
paddle.argmin(x, 1)
paddle.argsort(x)
paddle.assign(x)
paddle.atan2(x, y)
paddle.bmm(rows, rows2)
paddle.broadcast_to(one, [4, 6])
paddle.cast(x, "float64")
paddle.ceil(x)
paddle.chunk(x, 2, 1)
paddle.clip(x, 0.0, 1.0)
paddle.concat([x, y], 1)
paddle.cos(x)
paddle.cross(x3, x3)
paddle.cumsum(x, 1)
paddle.diag(flat4f)
paddle.diff(x)
paddle.dist(x, y)
paddle.divide(x, y)
paddle.dot(x, y)
paddle.einsum("ij,kj->ik", x, y)
paddle.equal(x, y)
paddle.equal_all(x, y)
paddle.erf(x)
paddle.exp(x)
paddle.expand(one, [4, 6])
paddle.expand_as(one, x)
paddle.expm1(x)
paddle.eye(3)
paddle.flatten(image, 1)
paddle.flip(x, [1])
paddle.floor(x)
paddle.floor_divide(ids, ids)
paddle.full([2, 3], 1.0)
paddle.full_like(x, 1.0)
paddle.gather(x, flat)
paddle.gather_nd(x, ids2)
paddle.greater_equal(x, y)
paddle.greater_than(x, y)
paddle.increment(one_more)
paddle.index_sample(x, ids46)
paddle.index_select(x, flat)
paddle.inverse(sixes)
paddle.isfinite(x)
paddle.isinf(x)
paddle.isnan(x)
paddle.kron(x, y)
paddle.lerp(x, y, 0.3)
paddle.less_equal(x, y)
paddle.less_than(x, y)
paddle.linspace(0, 1, 5)
paddle.log(x)
paddle.log10(x)
paddle.log1p(x)
paddle.log2(x)
paddle.logical_and(flag, flag)
paddle.logical_not(flag)
paddle.logical_or(flag, flag)
paddle.logical_xor(flag, flag)
paddle.logsumexp(x)
paddle.masked_select(x, mask)
paddle.matmul(x, sixes)
paddle.matmul(x, y, transpose_y=True)
paddle.max(x)
paddle.max(x, 1)
paddle.maximum(x, y)
paddle.mean(x)
paddle.mean(x, 1)
paddle.mean(x, axis=[0, 1], keepdim=True)
paddle.median(x)
paddle.meshgrid(flat4f, flat4f)
paddle.min(x)
paddle.minimum(x, y)
paddle.mm(x, sixes)
paddle.mod(ids, ids)
paddle.multiplex([x, y], label32)
paddle.multiply(x, y)
paddle.mv(x, b)
paddle.nonzero(x)
paddle.norm(x)
paddle.norm(x, p=2, axis=1)
paddle.norm(x, p=1, axis=1)
paddle.not_equal(x, y)
paddle.numel(x)
paddle.ones([2, 3])
paddle.ones_like(x)
paddle.outer(b, b)
paddle.pow(x, 2)
paddle.pow(x, y)
paddle.prod(x)
paddle.rand([2, 3])
paddle.randint(0, 5, [2, 3])
paddle.randn([2, 3])
paddle.randperm(5)
paddle.rank(x)
paddle.reciprocal(x)
paddle.reshape(x, [-1])
paddle.roll(x, 1)
paddle.round(x)
paddle.rsqrt(x)
paddle.scale(x, 2.0, 1.0)
paddle.scatter(x, flat, y)
paddle.scatter_nd(ids2, flat4f, [6, 6])
paddle.scatter_nd_add(x, ids2, flat4f)
paddle.shape(x)
paddle.shard_index(label, 10, 2, 0)
paddle.sign(x)
paddle.sin(x)
paddle.slice(x, [0], [0], [2])
paddle.sort(x)
paddle.split(x, 2, 1)
paddle.sqrt(x)
paddle.square(x)
paddle.squeeze(label, 1)
paddle.stack([x, y])
paddle.stanh(x)
paddle.std(x)
paddle.strided_slice(x, [0], [0], [4], [2])
paddle.subtract(x, y)
paddle.sum(x)
paddle.sum(x, 1)
paddle.t(x)
paddle.take_along_axis(x, ids46, 1)
paddle.tan(x)
paddle.tanh(x)
paddle.tile(x, [2, 1])
paddle.topk(x, 2)
paddle.trace(sixes)
paddle.transpose(x, [1, 0])
paddle.tril(x)
paddle.triu(x)
paddle.unbind(x)
paddle.uniform([2, 3])
paddle.unique(flat)
paddle.unsqueeze(x, 1)
paddle.unstack(x)
paddle.var(x)
paddle.where(mask, x, y)
paddle.zeros([2, 3])
paddle.zeros_like(x)
x + y
x + 1.0
1.0 - x
x - y
x * 2.0
x * y
x / y
x / 2.0
2.0 / x
x ** 2
x // y
x % y
-x
x > y
x > 0
x == y
x @ sixes
x[0]
x[:, 1:3]
x[:, -1]
x[..., 0]
x[mask]
x.mean()
x.sum(1)
x.astype("float64")
x.reshape([-1])
x.transpose([1, 0])
x.T
x.abs()
x.matmul(sixes)
S.nn.cond(flag1, lambda: x, lambda: y)
S.nn.case([(flag1, lambda: x)], default=lambda: y)
S.nn.switch_case(number, {0: lambda: x, 1: lambda: y})
S.nn.while_loop(lambda i: i < 3, lambda i: [i + 1], [number])
"""

FEEDS = {
    "x": [4, 6], "y": [4, 6], "p": [4, 6], "p2": [4, 2], "w": [6, 3], "w3": [3, 6, 6], "b": [6], "b1": [1, 3], "b4": [4], "one": [1],
    "x3": [4, 3], "sq": [4, 6], "sixes": [6, 6], "flat4f": [4], "rows": [4, 5, 6], "rows2": [4, 6, 5], "steps": [5, 4, 6],
    "series": [2, 4, 6], "image": [2, 4, 6, 6], "volume": [2, 4, 4, 4, 4], "theta": [2, 2, 3], "grid": [2, 4, 4, 2],
    "k1": [3, 4, 2], "k2": [3, 4, 2, 2], "k3": [3, 4, 2, 2, 2], "kd": [4, 1, 2, 2], "kg": [4, 2, 2, 2], "k1t": [4, 3, 2],
    "k2t": [4, 3, 2, 2], "k3t": [4, 3, 2, 2, 2], "tree": [5, 6], "b1c": [5, 1], "one_more": [1],
    "state": [4, 4], "starts": [1, 4, 4], "seen": [4, 2, 5, 5],
    "ids": ([4, 5], "int64"), "ids2": ([4, 2], "int64"), "ids46": ([4, 6], "int64"), "flat": ([4], "int64"), "flat4": ([4], "int64"),
    "label": ([4, 1], "int64"), "label32": ([4, 1], "int32"), "words": ([4, 2], "int32"),
    "lengths": ([4], "int64"), "number": ([1], "int64"),
    "flag": ([4, 6], "bool"), "mask": ([4, 6], "bool"), "flag1": ([1], "bool"),
}  # fmt: skip
SPECIAL = {"b": {"F.linear(x, w, b)": [3], "F.conv1d(series, k1, b)": [3], "F.conv2d(image, k2, b)": [3], "F.conv3d(volume, k3, b)": [3],
                 "F.conv2d_transpose(image, k2t, b)": [3],
                 "F.conv3d_transpose(volume, k3t, b)": [3], "F.conv1d_transpose(series, k1t, b)": [3]}}  # fmt: skip


def _flat(value):
    if isinstance(value, (list, tuple)):
        return [name for part in value for name in _flat(part)]
    return [getattr(value, "name", None)]


def named(paddle, ids, text):
    """Return the names of what an expression returns, those of the parameters that it makes, and how many of each key it uses up."""
    static = paddle.static
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
        inputs = {}
        for name, spec in FEEDS.items():
            shape, kind = spec if isinstance(spec, tuple) else (spec, "float32")
            made = static.data(name, SPECIAL.get(name, {}).get(text, shape), kind)
            made.stop_gradient = kind != "float32"
            inputs[name] = made
        before = dict(ids())
        scope = {"paddle": paddle, "F": paddle.nn.functional, "nn": paddle.nn, "S": static, **inputs}
        made = eval(text, scope)  # the expressions above
        used = {k: n - before.get(k, 0) for k, n in sorted(ids().items()) if n > before.get(k, 0) and "." not in k and "@" not in k}
        parameters = [p.name for p in static.default_main_program().all_parameters()]
    return {"names": _flat(made), "parameters": parameters, "used": used}


def main():
    """Record into a file."""
    import paddle
    from paddle.base import unique_name

    paddle.enable_static()
    found = {text: named(paddle, lambda: unique_name.generator.ids, text) for text in CALLS.strip().splitlines()}
    Path(sys.argv[1]).write_text(json.dumps(found, sort_keys=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
