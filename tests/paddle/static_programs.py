"""Twenty static programs as the documents of PaddlePaddle 2.0 to 3.3 write them; each runs with the original and with this package.

A program is a function of `paddle` that appends to the default programs and returns a `Made`. Values of parameters and feeds are drawn
by name, so that both sides have the same ones. recordings/static_programs.json holds what 2.6.2 made of them; 3.3.1 has the same losses
of those that its static mode still runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 4
#: How far Adam and Lamb are off, whose first steps have other corrections in 2.x (docs/parity.md).
ADAM, LAMB = 5e-4, 1e-3


@dataclass
class Made:
    """What a program has, and how it is trained.

    Args:
        loss: minimised by the optimizer.
        feeds: name -> shape and kind: "f" for normal numbers, N for whole numbers below N.
        optimizer: None where the program calls minimize itself.
        answers: what is fetched beside the loss; the first one is what the inference model answers.
        inputs: feeds of the inference model.
        schedule: a scheduler whose `step` is called after each step.
        near: how far a number but those of losses and rates may be off, of the largest one.
        unread: start of the names of parameters that share the memory of others, and are not set.
    """

    loss: Any
    feeds: dict[str, Any]
    optimizer: Any = None
    answers: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    schedule: Any = None
    unread: tuple[str, ...] = ()
    near: float = 2e-5


PROGRAMS: dict[str, Callable[[Any], Made]] = {}


def program(made: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """Register a program."""
    PROGRAMS[made.__name__] = made
    return made


@program
def line(paddle: Any) -> Made:
    """The first example of the guide: one fc and SGD."""
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    guess = paddle.static.nn.fc(x, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guess, y))
    return Made(loss, {"x": ((8, 4), "f"), "y": ((8, 1), "f")}, paddle.optimizer.SGD(0.1), [guess], [x])


@program
def multilayer_perceptron(paddle: Any) -> Made:
    """Layers of paddle.nn, called in a static program, with Adam."""
    image, label = paddle.static.data("image", [None, 1, 4, 4]), paddle.static.data("label", [None, 1], "int64")
    net = paddle.nn.Sequential(paddle.nn.Flatten(), paddle.nn.Linear(16, 12), paddle.nn.ReLU(), paddle.nn.Linear(12, 5))
    logits = net(image)
    loss = paddle.nn.CrossEntropyLoss()(logits, label)
    right = paddle.static.accuracy(paddle.nn.functional.softmax(logits), label)
    feeds = {"image": ((6, 1, 4, 4), "f"), "label": ((6, 1), 5)}
    return Made(loss, feeds, paddle.optimizer.Adam(0.05, parameters=net.parameters()), [logits, right], [image], near=ADAM)


@program
def lenet(paddle: Any) -> Made:
    """Convolutions and pools of static.nn and nn.functional, Momentum with weight decay."""
    functional = paddle.nn.functional
    image, label = paddle.static.data("image", [None, 1, 12, 12]), paddle.static.data("label", [None, 1], "int64")
    first = functional.max_pool2d(paddle.static.nn.conv2d(image, 4, 3, padding=1, act="relu"), 2, 2)
    second = functional.avg_pool2d(paddle.static.nn.conv2d(first, 6, 3, act="relu"), 2, 2)
    logits = paddle.static.nn.fc(second, 5)
    loss = paddle.mean(functional.softmax_with_cross_entropy(logits, label))
    optimizer = paddle.optimizer.Momentum(0.05, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-2), use_nesterov=True)
    return Made(loss, {"image": ((5, 1, 12, 12), "f"), "label": ((5, 1), 5)}, optimizer, [logits], [image])


@program
def residual_block(paddle: Any) -> Made:
    """Conv2D and BatchNorm2D with a shortcut; a cosine schedule."""
    nn = paddle.nn
    image, label = paddle.static.data("image", [None, 3, 8, 8]), paddle.static.data("label", [None], "int64")
    stem = nn.functional.relu(nn.BatchNorm2D(4)(nn.Conv2D(3, 4, 3, padding=1, bias_attr=False)(image)))
    inner = nn.BatchNorm2D(4)(nn.Conv2D(4, 4, 3, padding=1, bias_attr=False)(stem))
    logits = nn.Linear(4, 3)(paddle.flatten(nn.AdaptiveAvgPool2D(1)(nn.functional.relu(inner + stem)), 1))
    loss = nn.functional.cross_entropy(logits, label)
    rate = paddle.optimizer.lr.CosineAnnealingDecay(0.1, T_max=3)
    feeds = {"image": ((4, 3, 8, 8), "f"), "label": ((4,), 3)}
    return Made(loss, feeds, paddle.optimizer.Momentum(rate, 0.9), [logits], [image], rate)


@program
def texts_by_means(paddle: Any) -> Made:
    """Embedding, mean over words, dropout in its mode for tests, AdamW with decay for weights alone."""
    words, label = paddle.static.data("words", [None, 7], "int64"), paddle.static.data("label", [None, 1], "int64")
    rows = paddle.nn.Embedding(20, 6, padding_idx=0)(words)
    hidden = paddle.nn.functional.dropout(paddle.mean(rows, axis=1), 0.5, training=False)
    logits = paddle.nn.Linear(6, 2)(hidden)
    loss = paddle.nn.functional.cross_entropy(logits, label)
    optimizer = paddle.optimizer.AdamW(0.05, weight_decay=0.1, apply_decay_param_fun=lambda name: ".w_" in name)
    return Made(loss, {"words": ((6, 7), 20), "label": ((6, 1), 2)}, optimizer, [logits], [words])


@program
def lstm_classes(paddle: Any) -> Made:
    """nn.LSTM over two layers in both directions; a clip by the global norm."""
    series, label = paddle.static.data("series", [None, 5, 3]), paddle.static.data("label", [None, 1], "int64")
    outputs, (last, _) = paddle.nn.LSTM(3, 4, num_layers=2, direction="bidirect")(series)
    logits = paddle.nn.Linear(8, 3)(paddle.concat([outputs[:, -1, :4], last[-1]], axis=1))
    loss = paddle.nn.functional.cross_entropy(logits, label)
    optimizer = paddle.optimizer.Adam(0.02, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1))
    return Made(loss, {"series": ((4, 5, 3), "f"), "label": ((4, 1), 3)}, optimizer, [logits], [series], unread=("lstm_0",), near=ADAM)


@program
def gru_series(paddle: Any) -> Made:
    """nn.GRU and SimpleRNN that forecast; RMSProp and a schedule of exponents."""
    series, target = paddle.static.data("series", [None, 6, 2]), paddle.static.data("target", [None, 1])
    states, _ = paddle.nn.GRU(2, 5)(series)
    _, last = paddle.nn.SimpleRNN(5, 4)(states)
    guess = paddle.nn.Linear(4, 1)(last[0])
    loss = paddle.nn.functional.mse_loss(guess, target)
    rate = paddle.optimizer.lr.ExponentialDecay(0.02, 0.8)
    feeds = {"series": ((4, 6, 2), "f"), "target": ((4, 1), "f")}
    return Made(loss, feeds, paddle.optimizer.RMSProp(rate), [guess], [series], rate, ("gru_0", "simple_rnn_0"))


@program
def transformer_encoder(paddle: Any) -> Made:
    """A TransformerEncoder of two layers with a warmup of the rate."""
    nn = paddle.nn
    words, label = paddle.static.data("words", [None, 6], "int64"), paddle.static.data("label", [None, 1], "int64")
    place = paddle.static.data("place", [None, 6], "int64")
    x = nn.Embedding(20, 8)(words) + nn.Embedding(6, 8)(place)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu")
    logits = nn.Linear(8, 3)(nn.TransformerEncoder(layer, 2)(x)[:, 0])
    loss = nn.functional.cross_entropy(logits, label)
    rate = paddle.optimizer.lr.LinearWarmup(0.02, warmup_steps=2, start_lr=0.001, end_lr=0.02)
    feeds = {"words": ((3, 6), 20), "place": ((3, 6), 6), "label": ((3, 1), 3)}
    return Made(loss, feeds, paddle.optimizer.Adam(rate), [logits], [words, place], rate)


@program
def attention(paddle: Any) -> Made:
    """MultiHeadAttention with a mask, LayerNorm, Lamb."""
    nn = paddle.nn
    x, mask, y = (paddle.static.data(n, s) for n, s in (("x", [None, 4, 6]), ("mask", [None, 1, 4, 4]), ("y", [None, 4, 6])))
    out = nn.LayerNorm(6)(x + nn.MultiHeadAttention(6, 2)(x, x, x, attn_mask=mask))
    loss = nn.functional.smooth_l1_loss(out, y)
    feeds = {"x": ((2, 4, 6), "f"), "mask": ((2, 1, 4, 4), "f"), "y": ((2, 4, 6), "f")}
    return Made(loss, feeds, paddle.optimizer.Lamb(0.02, lamb_weight_decay=0.02), [out], [x, mask], near=LAMB)


@program
def autoencoder(paddle: Any) -> Made:
    """Conv2DTranspose, sigmoid and a binary loss; Adagrad."""
    nn = paddle.nn
    image = paddle.static.data("image", [None, 1, 8, 8])
    code = nn.functional.leaky_relu(nn.Conv2D(1, 3, 4, stride=2, padding=1)(image))
    logits = nn.Conv2DTranspose(3, 1, 4, stride=2, padding=1)(code)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, nn.functional.sigmoid(image))
    return Made(loss, {"image": ((3, 1, 8, 8), "f")}, paddle.optimizer.Adagrad(0.05), [nn.functional.sigmoid(logits)], [image])


@program
def condition(paddle: Any) -> Made:
    """static.nn.cond over a learned value; Adadelta."""
    x = paddle.static.data("x", [None, 3])
    guess = paddle.static.nn.fc(x, 2, activation="tanh")
    total = paddle.mean(guess)
    loss = paddle.static.nn.cond(total > 0.1, lambda: paddle.sum(guess * 2.0), lambda: paddle.sum(guess * guess))
    return Made(loss, {"x": ((4, 3), "f")}, paddle.optimizer.Adadelta(0.5), [guess], [x])


@program
def while_loop(paddle: Any) -> Made:
    """A loop whose result stands beside what is trained."""
    x, y = paddle.static.data("x", [None, 3]), paddle.static.data("y", [None, 1])
    guess = paddle.static.nn.fc(x, 1)
    i, total = paddle.full([1], 0, "int64"), paddle.full([1], 1.0, "float32")
    _, power = paddle.static.nn.while_loop(lambda i, t: i < 5, lambda i, t: [i + 1, t * 2.0], [i, total])
    loss = paddle.nn.functional.l1_loss(guess, y)
    return Made(loss, {"x": ((4, 3), "f"), "y": ((4, 1), "f")}, paddle.optimizer.SGD(0.05), [guess, power], [x])


@program
def group_norms(paddle: Any) -> Made:
    """group_norm, instance_norm and layer_norm of static.nn; Adamax."""
    image, y = paddle.static.data("image", [None, 4, 5, 5]), paddle.static.data("y", [None, 1])
    normed = paddle.static.nn.instance_norm(paddle.static.nn.group_norm(image, 2))
    hidden = paddle.static.nn.layer_norm(paddle.nn.functional.swish(normed), begin_norm_axis=1)
    guess = paddle.static.nn.fc(hidden, 1)
    loss = paddle.nn.functional.mse_loss(guess, y)
    return Made(loss, {"image": ((3, 4, 5, 5), "f"), "y": ((3, 1), "f")}, paddle.optimizer.Adamax(0.01), [guess], [image])


@program
def batch_norms(paddle: Any) -> Made:
    """static.nn.batch_norm, prelu and bilinear_tensor_product; a schedule by steps."""
    x, z, y = (paddle.static.data(n, [None, s]) for n, s in (("x", 4), ("z", 3), ("y", 2)))
    hidden = paddle.static.nn.prelu(paddle.static.nn.batch_norm(paddle.static.nn.fc(x, 5)), "all")
    guess = paddle.static.nn.bilinear_tensor_product(hidden, z, 2)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guess, y))
    rate = paddle.optimizer.lr.StepDecay(0.05, step_size=2, gamma=0.5)
    feeds = {"x": ((6, 4), "f"), "z": ((6, 3), "f"), "y": ((6, 2), "f")}
    return Made(loss, feeds, paddle.optimizer.SGD(rate), [guess], [x, z], rate)


@program
def shared_by_name(paddle: Any) -> Made:
    """Two towers that share parameters by name; attributes with initializers, rates and regularizers."""
    left, right, y = (paddle.static.data(n, [None, s]) for n, s in (("left", 4), ("right", 4), ("y", 1)))
    weight = paddle.ParamAttr("tower.w", learning_rate=0.5, regularizer=paddle.regularizer.L1Decay(0.01))
    bias = paddle.ParamAttr("tower.b", initializer=paddle.nn.initializer.Constant(0.1))
    a, b = (paddle.static.nn.fc(side, 3, weight_attr=weight, bias_attr=bias, activation="relu") for side in (left, right))
    near = paddle.unsqueeze(paddle.nn.functional.cosine_similarity(a, b, axis=1), 1)
    loss = paddle.mean(paddle.square(near - y))
    feeds = {"left": ((5, 4), "f"), "right": ((5, 4), "f"), "y": ((5, 1), "f")}
    return Made(loss, feeds, paddle.optimizer.SGD(0.1), [near], [left, right])


@program
def word_vectors(paddle: Any) -> Made:
    """static.nn.embedding and a matrix product with the same table; a natural exponential schedule."""
    context, word = paddle.static.data("context", [None, 4], "int64"), paddle.static.data("word", [None, 1], "int64")
    mean = paddle.mean(paddle.static.nn.embedding(context, [15, 5]), axis=1)
    table = paddle.static.create_parameter([15, 5], "float32", name="out")
    logits = paddle.matmul(mean, table, transpose_y=True)
    loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, word))
    rate = paddle.optimizer.lr.NaturalExpDecay(0.5, 0.1)
    return Made(loss, {"context": ((6, 4), 15), "word": ((6, 1), 15)}, paddle.optimizer.SGD(rate), [logits], [context], rate)


@program
def several_losses(paddle: Any) -> Made:
    """Losses of nn.functional added up, a polynomial schedule, clipping by value."""
    functional = paddle.nn.functional
    x, y, label = paddle.static.data("x", [None, 5]), paddle.static.data("y", [None, 3]), paddle.static.data("label", [None], "int64")
    guess = paddle.static.nn.fc(x, 3)
    likely = functional.log_softmax(guess)
    parts = [functional.nll_loss(likely, label), functional.kl_div(likely, functional.softmax(y)), functional.mse_loss(guess, y)]
    parts.append(paddle.mean(functional.binary_cross_entropy(functional.sigmoid(guess), functional.sigmoid(y))))
    loss = paddle.add_n(parts)
    rate = paddle.optimizer.lr.PolynomialDecay(0.1, decay_steps=3, end_lr=0.01, power=2.0)
    optimizer = paddle.optimizer.Momentum(rate, 0.8, grad_clip=paddle.nn.ClipGradByValue(0.05))
    feeds = {"x": ((6, 5), "f"), "y": ((6, 3), "f"), "label": ((6,), 3)}
    return Made(loss, feeds, optimizer, [guess], [x], rate)


@program
def tensor_functions(paddle: Any) -> Made:
    """Slices, stacks, gathers, sorts and reductions between two layers."""
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 4])
    hidden = paddle.nn.Linear(6, 8)(x)
    top, _ = paddle.topk(paddle.reshape(hidden, [-1, 2, 4]), k=2, axis=-1)
    parts = paddle.split(paddle.transpose(top, [0, 2, 1]), 2, axis=1)
    joined = paddle.concat([paddle.squeeze(p, 1) for p in parts], axis=-1)
    wide = paddle.stack([joined, paddle.clip(joined, -0.5, 0.5)], axis=0)
    guess = paddle.max(wide, axis=0) + paddle.logsumexp(hidden, axis=1, keepdim=True) + paddle.cumsum(joined, axis=1)
    loss = paddle.mean(paddle.abs(paddle.where(y > 0, guess - y, paddle.tanh(guess))))
    feeds = {"x": ((5, 6), "f"), "y": ((5, 4), "f")}
    return Made(loss, feeds, paddle.optimizer.Adam(0.02, beta1=0.8, epsilon=1e-6), [guess], [x], near=ADAM)


@program
def two_parts_of_the_net(paddle: Any) -> Made:
    """minimize over some parameters alone, and a multi-step schedule."""
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    first, second = paddle.nn.Linear(4, 6), paddle.nn.Linear(6, 1)
    guess = second(paddle.nn.functional.softplus(first(x)))
    loss = paddle.nn.functional.mse_loss(guess, y)
    rate = paddle.optimizer.lr.MultiStepDecay(0.1, milestones=[1, 3], gamma=0.3)
    paddle.optimizer.SGD(rate).minimize(loss, parameters=second.parameters())
    return Made(loss, {"x": ((6, 4), "f"), "y": ((6, 1), "f")}, None, [guess], [x], rate)


@program
def one_dimension(paddle: Any) -> Made:
    """Conv1D, pools of rows, BatchNorm1D; a piecewise schedule."""
    nn = paddle.nn
    series, label = paddle.static.data("series", [None, 2, 10]), paddle.static.data("label", [None, 1], "int64")
    hidden = nn.functional.relu(nn.BatchNorm1D(4)(nn.Conv1D(2, 4, 3, padding=1)(series)))
    pooled = nn.functional.max_pool1d(hidden, 2, 2) + nn.functional.avg_pool1d(hidden, 2, 2)
    logits = nn.Linear(20, 3)(paddle.flatten(pooled, 1))
    loss = nn.functional.cross_entropy(logits, label)
    rate = paddle.optimizer.lr.PiecewiseDecay([1, 3], [0.1, 0.05, 0.01])
    return Made(loss, {"series": ((4, 2, 10), "f"), "label": ((4, 1), 3)}, paddle.optimizer.SGD(rate), [logits], [series], rate)


def drawn(name: str, shape: tuple[int, ...], kind: Any) -> Any:
    """Return values that depend on a name alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.standard_normal(shape).astype("float32") if kind == "f" else rng.integers(0, kind, shape).astype("int64")


def _batches(feeds: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in range(STEPS):
        yield {name: drawn(f"{name}{step}", shape, kind) for name, (shape, kind) in feeds.items()}


def _floats(value: Any) -> list[float]:
    return [float(f"{v:.8g}") for v in np.asarray(value, "float64").ravel()]


def run(paddle: Any, name: str, folder: Path) -> tuple[dict[str, Any], float]:
    """Build a program, train it for some steps, save and load it, and return what came of it.

    Args:
        paddle: the package.
        name: of the program.
        folder: files are written to.

    Returns:
        Names and shapes of parameters, losses, answers, rates, files, and answers of what was loaded; and how far numbers may be off.
    """
    static = paddle.static
    main, startup = static.Program(), static.Program()
    place = paddle.CPUPlace()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
        made = PROGRAMS[name](paddle)
        tests = main.clone(for_test=True)
        if made.optimizer is not None:
            made.optimizer.minimize(made.loss)
        executor = static.Executor(place)
        executor.run(startup)
        parameters = {p.name: [int(s) for s in p.shape] for p in main.all_parameters()}
        scope = static.global_scope()
        read = {p: shape for p, shape in parameters.items() if not p.startswith(made.unread or ("-",))}
        for parameter, shape in read.items():
            value = 0.3 * drawn(parameter, tuple(shape), "f")
            scope.find_var(parameter).get_tensor().set(abs(value) if parameter.endswith(".w_2") else value, place)  # a variance
        found: dict[str, Any] = {"parameters": parameters, "losses": [], "rates": []}
        for feed in _batches(made.feeds):
            values = executor.run(main, feed=feed, fetch_list=[made.loss, *made.answers])
            found["losses"] += _floats(values[0])
            if made.schedule is not None:
                found["rates"].append(float(made.schedule()))
                made.schedule.step()
        found["answers"] = [_floats(v) for v in values[1:]]
        found["shapes"] = [list(np.shape(v)) for v in values]
        found["tested"] = _floats(executor.run(tests, feed=feed, fetch_list=[made.answers[0]])[0])
        found["saved"] = sorted(v for v in (getattr(p, "name", "") for p in main.list_vars() if p.persistable) if v)
        static.save_inference_model(str(folder / "net"), made.inputs, [made.answers[0]], executor, program=main)
        static.save(main, str(folder / "all"))
        found["files"] = sorted(p.name for p in folder.iterdir())
        for parameter, shape in read.items():
            scope.find_var(parameter).get_tensor().set(np.zeros(shape, "float32"), place)
        static.load(main, str(folder / "all"), executor)
        found["again"] = _floats(executor.run(tests, feed=feed, fetch_list=[made.answers[0]])[0])
    with static.scope_guard(static.Scope()):
        loaded, feeds, fetches = static.load_inference_model(str(folder / "net"), executor)
        found["inputs"] = list(feeds)
        found["inferred"] = _floats(executor.run(loaded, feed={n: feed[n] for n in feeds}, fetch_list=fetches)[0])
    return found, made.near
