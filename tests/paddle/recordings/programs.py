"""Small programs whose names are recorded: run by PaddlePaddle 1.8.5 (`python programs.py names.json`) and by tests.

Every entry builds in programs of its own. It uses what both versions of Python know, and is given `fluid` and a few fed variables.
"""

import sys


def inputs(fluid):
    """Return variables that programs use."""

    class Fed:
        def __getattr__(self, name):
            shape, dtype, levels = FEEDS[name]
            value = fluid.data(name, shape, dtype, lod_level=levels)
            setattr(self, name, value)
            return value

    return Fed()


FEEDS = {
    "x": ([None, 6], "float32", 0),
    "y": ([None, 6], "float32", 0),
    "cube": ([None, 3, 6], "float32", 0),
    "image": ([None, 4, 8, 8], "float32", 0),
    "volume": ([None, 2, 4, 6, 6], "float32", 0),
    "label": ([None, 1], "int64", 0),
    "score": ([None, 2], "float32", 0),
    "rows": ([None, 6], "float32", 1),
    "wide": ([None, 24], "float32", 1),
    "gates": ([None, 18], "float32", 1),
    "ids": ([None, 1], "int64", 1),
    "other_ids": ([None, 1], "int64", 1),
    "mask": ([4, 3], "bool", 0),
    "known": ([4, 6], "float32", 0),
    "index": ([None], "int64", 0),
}

#: Name -> what it appends: of `fluid.layers` and the fed variables, a variable or a list of them.
LAYERS = {
    "abs": lambda L, v: L.abs(v.x),
    "accuracy": lambda L, v: L.accuracy(L.softmax(v.score), v.label),
    "adaptive average pool": lambda L, v: L.adaptive_pool2d(v.image, 2, "avg"),
    "adaptive maximum pool": lambda L, v: L.adaptive_pool2d(v.image, 2, "max"),
    "add with activation": lambda L, v: L.elementwise_add(v.x, v.y, act="relu"),
    "addition": lambda L, v: v.x + v.y,
    "argmax": lambda L, v: L.argmax(v.x, 1),
    "auc": lambda L, v: L.auc(L.softmax(v.score), v.label),
    "auc of all batches": lambda L, v: L.auc(L.softmax(v.score), v.label, slide_steps=0),
    "batch_norm": lambda L, v: L.batch_norm(v.image),
    "batch_norm, activation as the second argument": lambda L, v: L.batch_norm(v.image, "relu"),
    "bilinear_tensor_product": lambda L, v: L.bilinear_tensor_product(v.x, v.y, 3),
    "bpr_loss": lambda L, v: L.bpr_loss(v.score, v.label),
    "cast": lambda L, v: L.cast(v.x, "int64"),
    "center_loss": lambda L, v: L.center_loss(v.x, v.label, 3, 0.1, None),
    "clip": lambda L, v: L.clip(v.x, -1.0, 1.0),
    "comparison": lambda L, v: v.x > v.y,
    "concat": lambda L, v: L.concat([v.x, v.y], 1),
    "conv2d": lambda L, v: L.conv2d(v.image, 4, 3, act="relu"),
    "conv2d of a name, twice": lambda L, v: [L.conv2d(v.image, 4, 3, name="c", param_attr=f"w{i}", act="relu") for i in range(2)],
    "conv2d with depths": lambda L, v: L.conv2d(v.image, 4, 3, groups=4, use_cudnn=False),
    "conv2d with groups": lambda L, v: L.conv2d(v.image, 4, 3, groups=4),
    "conv2d without bias": lambda L, v: L.conv2d(v.image, 4, 3, padding=1, bias_attr=False),
    "conv2d_transpose": lambda L, v: L.conv2d_transpose(v.image, 3, filter_size=2, stride=2, act="relu"),
    "conv3d": lambda L, v: L.conv3d(v.volume, 3, 2, act="relu"),
    "cos_sim": lambda L, v: L.cos_sim(v.x, v.y),
    "create_global_var": lambda L, v: L.create_global_var([1], 1.0, "float32", persistable=True),
    "create_parameter of a name and an initializer": lambda L, v: L.create_parameter(
        [2, 3], "float32", name="own", default_initializer=fluid_of(L).initializer.Constant(1.0), attr=fluid_of(L).ParamAttr()
    ),
    "create_parameter": lambda L, v: L.create_parameter([2, 3], "float32"),
    "create_parameter of a name": lambda L, v: L.create_parameter([2, 3], "float32", name="own"),
    "cross_entropy": lambda L, v: L.cross_entropy(L.softmax(v.score), v.label),
    "cross_entropy of probabilities": lambda L, v: L.cross_entropy(L.softmax(v.score), v.score, soft_label=True),
    "dice_loss": lambda L, v: L.dice_loss(L.softmax(v.score), v.label),
    "division by a number": lambda L, v: v.x / 2.0,
    "dropout": lambda L, v: L.dropout(v.x, 0.5),
    "dynamic_gru": lambda L, v: L.dynamic_gru(v.gates, 6),
    "dynamic_lstm": lambda L, v: list(L.dynamic_lstm(v.wide, 24)),
    "edit_distance": lambda L, v: list(L.edit_distance(v.ids, v.other_ids)),
    "elementwise_mul": lambda L, v: L.elementwise_mul(v.x, v.y),
    "embedding": lambda L, v: L.embedding(v.label, [10, 4]),
    "expand": lambda L, v: L.expand(v.x, [1, 2]),
    "fc": lambda L, v: L.fc(v.x, 3, act="relu"),
    "fc of two": lambda L, v: L.fc([v.x, v.y], 3, act="softmax"),
    "fc without bias": lambda L, v: L.fc(v.x, 3, bias_attr=False),
    "fill_constant": lambda L, v: L.fill_constant([2], "float32", 1.0),
    "gather": lambda L, v: L.gather(v.x, v.index),
    "gelu": lambda L, v: L.gelu(v.x),
    "group_norm": lambda L, v: L.group_norm(v.image, 2),
    "group_norm with attributes": lambda L, v: L.group_norm(
        v.image, 2, param_attr=fluid_of(L).ParamAttr(name="g"), bias_attr=fluid_of(L).ParamAttr(), act="relu"
    ),
    "gru_unit": lambda L, v: list(L.gru_unit(L.fc(v.x, 18), v.y, 18)),
    "image_resize": lambda L, v: L.image_resize(v.image, [16, 16]),
    "im2sequence": lambda L, v: L.im2sequence(v.image, 2),
    "instance_norm": lambda L, v: L.instance_norm(v.image),
    "l2_normalize": lambda L, v: L.l2_normalize(v.x, 1),
    "label_smooth": lambda L, v: L.label_smooth(v.score),
    "layer_norm": lambda L, v: L.layer_norm(v.x, act="relu"),
    "layers of one kind": lambda L, v: [L.reshape(v.cube, [-1, 18]), L.reshape(v.cube, [-1, 9], act="tanh"), L.fc(v.x, 2), L.fc(v.x, 2)],
    "leaky_relu": lambda L, v: L.leaky_relu(v.x),
    "linear_chain_crf": lambda L, v: L.linear_chain_crf(v.rows, v.ids),
    "log_softmax": lambda L, v: L.log_softmax(v.x),
    "lrn": lambda L, v: L.lrn(v.image),
    "matmul": lambda L, v: L.matmul(v.cube, v.cube, transpose_y=True),
    "maxout": lambda L, v: L.maxout(v.image, 2),
    "mean": lambda L, v: L.mean(v.x),
    "mean_iou": lambda L, v: list(L.mean_iou(v.label, v.label, 3)),
    "mse_loss": lambda L, v: L.mse_loss(v.x, v.y),
    "multiplication by a number": lambda L, v: 2.0 * v.x,
    "nce": lambda L, v: L.nce(v.x, v.label, 20),
    "negation": lambda L, v: -v.x,
    "number less a variable": lambda L, v: 1.0 - v.x,
    "one_hot": lambda L, v: L.one_hot(v.label, 4),
    "one_hot of fluid": lambda L, v: fluid_of(L).one_hot(v.label, 4),
    "pad2d": lambda L, v: L.pad2d(v.image, [1, 1, 1, 1], "reflect"),
    "pixel_shuffle": lambda L, v: L.pixel_shuffle(v.image, 2),
    "pool2d": lambda L, v: L.pool2d(v.image, 2, "avg", 2),
    "power": lambda L, v: v.x**2,
    "prelu": lambda L, v: L.prelu(v.image, "channel"),
    "range": lambda L, v: L.range(0, 6, 1, "int64"),
    "reduce_sum": lambda L, v: L.reduce_sum(v.x, 1, keep_dim=True),
    "reshape": lambda L, v: L.reshape(v.cube, [-1, 18]),
    "resize_nearest": lambda L, v: L.resize_nearest(v.image, [16, 16]),
    "row_conv": lambda L, v: L.row_conv(v.rows, 2),
    "scale": lambda L, v: L.scale(v.x, 2.0),
    "sequence_conv": lambda L, v: L.sequence_conv(v.rows, 4, 3, act="tanh"),
    "sequence_expand": lambda L, v: L.sequence_expand(v.x, v.rows),
    "sequence_pool": lambda L, v: L.sequence_pool(v.rows, "max"),
    "sequence_softmax as activation": lambda L, v: L.fc(v.rows, 1, act="sequence_softmax"),
    "shape": lambda L, v: L.shape(v.x),
    "shape, cut": lambda L, v: L.shape(v.x)[0],
    "shuffle_channel": lambda L, v: L.shuffle_channel(v.image, 2),
    "slice by an index": lambda L, v: [v.cube[:, 0], v.cube[:, 1:3]],
    "smooth_l1": lambda L, v: L.smooth_l1(v.x, v.y),
    "softmax_with_cross_entropy": lambda L, v: L.softmax_with_cross_entropy(v.score, v.label),
    "split": lambda L, v: L.split(v.x, 2, 1),
    "square_error_cost": lambda L, v: L.square_error_cost(v.x, v.y),
    "squeeze": lambda L, v: L.squeeze(v.label, [1]),
    "stack": lambda L, v: L.stack([v.x, v.y], 1),
    "sums": lambda L, v: L.sums([v.x, v.y]),
    "teacher_student_sigmoid_loss": lambda L, v: L.teacher_student_sigmoid_loss(L.cast(v.label, "float32"), L.cast(v.label, "float32")),
    "topk": lambda L, v: list(L.topk(v.x, 2)),
    "transpose": lambda L, v: L.transpose(v.cube, [0, 2, 1]),
    "unsqueeze": lambda L, v: L.unsqueeze(v.x, [1]),
    "where": lambda L, v: L.where(v.mask),
}


def fluid_of(layers):
    """Return the package of `fluid.layers`."""
    return sys.modules[layers.__name__.rsplit(".", 1)[0]]


def _net(fluid):
    return fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))


def _scheduled(make):
    def build(fluid):
        loss = _net(fluid)
        fluid.optimizer.SGD(make(fluid.layers)).minimize(loss)

    return build


def _optimized(kind, *args, **given):
    def build(fluid):
        getattr(fluid.optimizer, kind)(0.1, *args, **given).minimize(_net(fluid))

    return build


def _clipped(fluid):
    decay, clip = fluid.regularizer.L2Decay(1e-4), fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.optimizer.Momentum(0.1, 0.9, regularization=decay, grad_clip=clip).minimize(_net(fluid))


def _twice(fluid):
    loss = _net(fluid)
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.optimizer.Adam(0.1).minimize(loss)


def _counted(fluid):
    loss = _net(fluid)
    fluid.layers.autoincreased_step_counter()
    fluid.optimizer.SGD(fluid.layers.create_global_var([1], 0.1, "float32", True, name="rate")).minimize(loss)


def _evaluated(fluid):
    with fluid.unique_name.guard():
        a, b = (fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("a", "b"))
        fluid.evaluator.EditDistance(a, b)


#: Name -> what it appends; what lives between steps is recorded, with its first value where that is one number.
STATE = {
    "SGD": _optimized("SGD"),
    "Momentum": _optimized("Momentum", 0.9),
    "Momentum of a name": _optimized("Momentum", 0.9, name="m"),
    "Momentum with decay and clipping": _clipped,
    "LarsMomentum": _optimized("LarsMomentum", 0.9),
    "Adagrad": _optimized("Adagrad"),
    "DecayedAdagrad": _optimized("DecayedAdagrad"),
    "Adadelta": _optimized("Adadelta"),
    "RMSProp": _optimized("RMSProp"),
    "RMSProp, centered, of a name": _optimized("RMSProp", centered=True, name="r"),
    "Ftrl": _optimized("Ftrl"),
    "Adam": _optimized("Adam"),
    "Adam of a name": _optimized("Adam", name="net"),
    "Adamax": _optimized("Adamax"),
    "Lamb": _optimized("Lamb"),
    "two optimizers": _twice,
    "a rate that is a variable": _counted,
    "noam_decay": _scheduled(lambda L: L.noam_decay(16, 10)),
    "exponential_decay": _scheduled(lambda L: L.exponential_decay(0.1, 10, 0.5)),
    "cosine_decay": _scheduled(lambda L: L.cosine_decay(0.1, 10, 3)),
    "piecewise_decay": _scheduled(lambda L: L.piecewise_decay([3], [0.1, 0.01])),
    "linear_lr_warmup": _scheduled(lambda L: L.linear_lr_warmup(0.1, 5, 0.0, 0.1)),
    "warmup before piecewise_decay": _scheduled(lambda L: L.linear_lr_warmup(L.piecewise_decay([8], [0.1, 0.01]), 5, 0.0, 0.1)),
    "EditDistance": _evaluated,
}


def _flat(value):
    return [v for part in value for v in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def record(fluid, build):
    """Return the names that a program has, and the values of what lives between steps where those are one number."""
    import numpy as np

    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(scope):
        outs = build(fluid)
        found = {"outputs": [v.name for v in _flat(outs)] if outs is not None else []}
        found["parameters"] = sorted(p.name for p in main.global_block().all_parameters())
        kept = sorted(v.name for v in main.list_vars() if v.persistable)
        fluid.Executor(fluid.CPUPlace()).run(startup)
        found["kept"] = {}
        for name in kept:
            value = scope.find_var(name)
            value = None if value is None else np.array(value.get_tensor())
            found["kept"][name] = None if value is None or value.size != 1 else round(float(value.ravel()[0]), 6)
    return found


def programs():
    """Return name -> build(fluid) of all programs."""
    made = {name: lambda fluid, make=make: make(fluid.layers, inputs(fluid)) for name, make in LAYERS.items()}
    made.update(STATE)
    return made


def main():
    """Record all names into a file."""
    import json
    from pathlib import Path

    import paddle.fluid as fluid

    found = {name: record(fluid, build) for name, build in sorted(programs().items())}
    Path(sys.argv[1]).write_text(json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
