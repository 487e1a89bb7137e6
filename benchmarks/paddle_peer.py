"""PaddlePaddle 3 on a benchmark workload; prints one JSON line. Version 1.8 has a script of its own, fluid_peer.py.

Every step feeds the batch from NumPy and reads the loss back, as `pe bench` does. The network is written once: it runs as it is
called, or with --static as a program of paddle.static.
"""

from __future__ import annotations

import os

import peer
import workloads

ARGS = peer.arguments(
    __doc__,
    static="as a static program instead of a dynamic graph",
    dense="ctr: dense gradients of the tables",
)
os.environ["FLAGS_paddle_num_threads"] = str(ARGS.threads)  # noqa: SIM112 - its name is so
os.environ["MKL_DEBUG_CPU_TYPE"] = "5"  # or its MKL takes slow paths on processors of AMD; others ignore it

import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.nn import functional  # noqa: E402

Tensors = dict[str, paddle.Tensor]


def attribute(value: np.ndarray, trainable: bool = True) -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Assign(value), trainable=trainable)


def parameter(value: np.ndarray, trainable: bool = True) -> paddle.Tensor:
    return paddle.create_parameter(list(value.shape), str(value.dtype), attr=attribute(value, trainable))


def dense(p: Tensors, key: str, x: paddle.Tensor) -> paddle.Tensor:
    return functional.linear(x, p[f"{key}.w"], p[f"{key}.b"])


def mlp(p: Tensors, feed: Tensors) -> paddle.Tensor:
    h = functional.relu(dense(p, "fc2", functional.relu(dense(p, "fc1", feed["x"]))))
    return functional.cross_entropy(dense(p, "fc3", h), feed["y"])


def lenet(p: Tensors, feed: Tensors) -> paddle.Tensor:
    x = feed["x"]
    for key in ("conv1", "conv2"):
        x = functional.max_pool2d(functional.conv2d(x, p[f"{key}.w"], p[f"{key}.b"]), 2)
    h = functional.relu(dense(p, "fc1", x.flatten(1)))
    return functional.cross_entropy(dense(p, "fc2", h), feed["y"])


def resnet20(p: Tensors, feed: Tensors) -> paddle.Tensor:
    def block(x: paddle.Tensor, key: str, stride: int, pad: int) -> paddle.Tensor:
        x = functional.conv2d(x, p[f"{key}.w"], None, stride, pad)
        mean, variance = p[f"{key}_bn.mean"], p[f"{key}_bn.variance"]
        return functional.batch_norm(x, mean, variance, p[f"{key}_bn.g"], p[f"{key}_bn.b"], True, 0.9, 1e-5)

    x = functional.relu(block(feed["x"], "stem", 1, 1))
    for key, _, _, stride in workloads.blocks():
        inner = block(functional.relu(block(x, f"{key}a", stride, 1)), f"{key}b", 1, 1)
        x = functional.relu((x if stride == 1 else block(x, f"{key}s", stride, 0)) + inner)
    return functional.cross_entropy(dense(p, "fc", x.mean([2, 3])), feed["y"])


def lstm(p: Tensors, feed: Tensors) -> paddle.Tensor:
    h, _ = p["lstm"](functional.embedding(feed["x"], p["emb"]))
    return functional.cross_entropy(dense(p, "fc", h.mean(1)), feed["y"])


def transformer(p: Tensors, feed: Tensors) -> paddle.Tensor:
    words, heads, size = workloads.WORDS, workloads.HEADS, workloads.WIDTH // workloads.HEADS

    def norm(x: paddle.Tensor, key: str) -> paddle.Tensor:
        return functional.layer_norm(x, [workloads.WIDTH], p[f"{key}.g"], p[f"{key}.b"])

    h = functional.embedding(feed["x"], p["emb"]) + p["pos"]
    for layer in (f"l{i}" for i in range(workloads.LAYERS)):
        qkv = dense(p, f"{layer}qkv", h).reshape([-1, words, 3, heads, size]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv.unbind(0)
        weights = functional.softmax(paddle.matmul(q * size**-0.5, k, transpose_y=True))
        mixed = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([-1, words, workloads.WIDTH])
        h = norm(h + dense(p, f"{layer}out", mixed), f"{layer}ln1")
        h = norm(h + dense(p, f"{layer}ff2", functional.relu(dense(p, f"{layer}ff1", h))), f"{layer}ln2")
    return functional.cross_entropy(dense(p, "fc", h.mean(1)), feed["y"])


def ctr(p: Tensors, feed: Tensors) -> paddle.Tensor:
    def rows(key: str) -> paddle.Tensor:
        return functional.embedding(feed["x"], p[key], sparse=not ARGS.dense)

    h = paddle.concat([rows("emb").flatten(1), feed["d"]], 1)
    for key in ("fc1", "fc2", "fc3"):
        h = functional.relu(dense(p, key, h))
    return functional.binary_cross_entropy_with_logits(dense(p, "fc4", h) + rows("wide").sum(1), feed["y"])


def branches(p: Tensors, feed: Tensors) -> paddle.Tensor:
    towers = []
    for tower in range(8):
        h = feed["x"]
        for depth in range(4):
            h = functional.relu(dense(p, f"b{tower}d{depth}", h))
        towers.append(h)
    return paddle.add_n(towers).square().mean()


def chain(p: Tensors, feed: Tensors) -> paddle.Tensor:
    x = feed["x"]
    for i in range(workloads.CHAIN_OPS):
        x = x * 1.0001 if i % 2 == 0 else x + 0.0001
    return x.mean()


NETS = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet20": resnet20,
    "lstm": lstm,
    "transformer": transformer,
    "ctr": ctr,
    "branches": branches,
    "chain": chain,
}


def tensors() -> tuple[Tensors, list[paddle.Tensor]]:
    """Return everything by name (the LSTM as a layer, which has no functional form), and what is trained."""
    arrays = workloads.parameters(ARGS.workload)
    p, trained = {}, []
    if ARGS.workload == "lstm":
        ih, hh = (attribute(arrays.pop(f"lstm.w_{part}").T.copy()) for part in ("ih", "hh"))
        biases = {f"bias_{part}_attr": attribute(arrays.pop(f"lstm.b_{part}")) for part in ("ih", "hh")}
        p["lstm"] = nn.LSTM(workloads.WIDTH, workloads.WIDTH, weight_ih_attr=ih, weight_hh_attr=hh, **biases)
        trained += p["lstm"].parameters()
    for key, value in arrays.items():
        p[key] = parameter(value)
        trained.append(p[key])
        if key.endswith("_bn.g"):
            p[key[:-1] + "mean"] = parameter(np.zeros_like(value), False)
            p[key[:-1] + "variance"] = parameter(np.ones_like(value), False)
    return p, trained


def optimizer(trained: list[paddle.Tensor] | None) -> paddle.optimizer.Optimizer:
    rate = workloads.LEARNING_RATE
    if ARGS.workload == "ctr":
        return paddle.optimizer.Adagrad(rate, 1e-6, trained)
    if ARGS.workload in workloads.ADAM:
        return paddle.optimizer.Adam(workloads.ADAM[ARGS.workload], parameters=trained)
    if ARGS.workload in ("lenet", "resnet20"):
        return paddle.optimizer.Momentum(rate, 0.9, trained)
    return paddle.optimizer.SGD(rate, trained)


def static(feed: workloads.Arrays) -> None:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        inputs = {key: paddle.static.data(key, list(value.shape), str(value.dtype)) for key, value in feed.items()}
        loss = NETS[ARGS.workload](tensors()[0], inputs)
        if ARGS.workload != "chain":
            optimizer(None).minimize(loss)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    peer.measure(
        f"paddlepaddle {paddle.__version__}",
        ARGS,
        lambda: executor.run(main, feed=feed, fetch_list=[loss]).values.item(),
    )


def dynamic(feed: workloads.Arrays) -> None:
    p, trained = tensors()
    net = NETS[ARGS.workload]
    updates = optimizer(trained) if trained else None

    def step() -> float:
        inputs = {key: paddle.to_tensor(value) for key, value in feed.items()}
        if updates is None:
            with paddle.no_grad():
                return net(p, inputs).item()
        loss = net(p, inputs)
        loss.backward()
        updates.step()
        updates.clear_grad()
        return loss.item()

    peer.measure(f"paddlepaddle {paddle.__version__}", ARGS, step)


if __name__ == "__main__":
    (static if ARGS.static else dynamic)(workloads.batch(ARGS.workload, ARGS.batch))
