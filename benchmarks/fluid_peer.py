"""PaddlePaddle 1.8 (fluid) on a benchmark workload, on Python 3.7; prints one JSON line.

Every step feeds the batch from NumPy and reads the loss back, as `pe bench` does. The workload lstm is left out: this version's
gradient of dynamic_lstm is wrong at such widths, so that its loss differs from that of all others.
"""

from __future__ import annotations

import os

import peer
import workloads

ARGS = peer.arguments(
    __doc__,
    parallel="ParallelExecutor on as many devices as threads, instead of Executor",
    dense="ctr: dense gradients of the tables",
    onednn="with MKL-DNN's kernels",
)
os.environ["CPU_NUM"] = str(ARGS.threads)
for each in ("OMP_NUM_THREADS", "FLAGS_paddle_num_threads"):  # of one operator; devices are threads, too
    os.environ[each] = "1" if ARGS.parallel else str(ARGS.threads)
os.environ["MKL_DEBUG_CPU_TYPE"] = "5"  # or its MKL takes slow paths on processors of AMD; others ignore it
if ARGS.onednn:
    os.environ["FLAGS_use_mkldnn"] = "1"  # noqa: SIM112 - its name is so

import paddle  # noqa: E402
from paddle import fluid  # noqa: E402

layers = fluid.layers
PARAMETERS = workloads.parameters(ARGS.workload)
Variable = fluid.framework.Variable


def dense(x: Variable, key: str, act: str | None = None, axes: int = 1) -> Variable:
    size = PARAMETERS[f"{key}.w"].shape[1]
    return layers.fc(x, size, axes, param_attr=f"{key}.w", bias_attr=f"{key}.b", act=act)


def convolve(x: Variable, key: str, stride: int = 1, pad: int = 0) -> Variable:
    made, _, side, _ = PARAMETERS[f"{key}.w"].shape
    bias = f"{key}.b" if f"{key}.b" in PARAMETERS else False
    return layers.conv2d(x, made, side, stride, pad, param_attr=f"{key}.w", bias_attr=bias)


def classify(logits: Variable, feed: dict) -> Variable:
    return layers.mean(layers.softmax_with_cross_entropy(logits, feed["y"]))


def mlp(feed: dict) -> Variable:
    return classify(dense(dense(dense(feed["x"], "fc1", "relu"), "fc2", "relu"), "fc3"), feed)


def lenet(feed: dict) -> Variable:
    x = feed["x"]
    for key in ("conv1", "conv2"):
        x = layers.pool2d(convolve(x, key), 2, "max", 2)
    return classify(dense(dense(x, "fc1", "relu"), "fc2"), feed)


def resnet20(feed: dict) -> Variable:
    def block(x: Variable, key: str, stride: int, pad: int, act: str | None = None) -> Variable:
        x = convolve(x, key, stride, pad)
        return layers.batch_norm(x, act, param_attr=f"{key}_bn.g", bias_attr=f"{key}_bn.b")

    x = block(feed["x"], "stem", 1, 1, "relu")
    for key, _, _, stride in workloads.blocks():
        inner = block(block(x, f"{key}a", stride, 1, "relu"), f"{key}b", 1, 1)
        short = x if stride == 1 else block(x, f"{key}s", stride, 0)
        x = layers.elementwise_add(short, inner, act="relu")
    return classify(dense(layers.pool2d(x, pool_type="avg", global_pooling=True), "fc"), feed)


def transformer(feed: dict) -> Variable:
    width, heads = workloads.WIDTH, workloads.HEADS

    def norm(x: Variable, key: str) -> Variable:
        return layers.layer_norm(x, begin_norm_axis=2, param_attr=f"{key}.g", bias_attr=f"{key}.b")

    place = layers.create_parameter([workloads.WORDS, width], "float32", "pos")
    h = layers.elementwise_add(fluid.embedding(feed["x"], [workloads.VOCABULARY, width], param_attr="emb"), place, 1)
    for layer in ("l%d" % i for i in range(workloads.LAYERS)):  # noqa: UP031 - nothing else is shorter
        qkv = layers.reshape(dense(h, f"{layer}qkv", axes=2), [0, 0, 3 * heads, width // heads])
        q, k, v = layers.split(layers.transpose(qkv, [0, 2, 1, 3]), 3, 1)
        weights = layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=(width // heads) ** -0.5))
        mixed = layers.reshape(layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3]), [0, 0, width])
        h = norm(h + dense(mixed, f"{layer}out", axes=2), f"{layer}ln1")
        h = norm(h + dense(dense(h, f"{layer}ff1", "relu", 2), f"{layer}ff2", axes=2), f"{layer}ln2")
    return classify(dense(layers.reduce_mean(h, 1), "fc"), feed)


def ctr(feed: dict) -> Variable:
    def rows(key: str) -> Variable:
        return fluid.embedding(feed["x"], list(PARAMETERS[key].shape), not ARGS.dense, param_attr=key)

    h = layers.concat([layers.flatten(rows("emb")), feed["d"]], 1)
    for key in ("fc1", "fc2", "fc3"):
        h = dense(h, key, "relu")
    logit = dense(h, "fc4") + layers.reduce_sum(rows("wide"), 1)
    return layers.mean(layers.sigmoid_cross_entropy_with_logits(logit, feed["y"]))


def branches(feed: dict) -> Variable:
    towers = []
    for tower in range(8):
        h = feed["x"]
        for depth in range(4):
            h = dense(h, f"b{tower}d{depth}", "relu")
        towers.append(h)
    return layers.mean(layers.square(layers.sums(towers)))


def chain(feed: dict) -> Variable:
    x = feed["x"]
    for i in range(workloads.CHAIN_OPS):
        x = layers.scale(x, 1.0001) if i % 2 == 0 else layers.scale(x, bias=0.0001)
    return layers.mean(x)


NETS = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet20": resnet20,
    "transformer": transformer,
    "ctr": ctr,
    "branches": branches,
    "chain": chain,
}


def optimizer() -> fluid.optimizer.Optimizer:
    rate = workloads.LEARNING_RATE
    if ARGS.workload == "ctr":
        return fluid.optimizer.Adagrad(rate, 1e-6)
    if ARGS.workload in workloads.ADAM:
        return fluid.optimizer.Adam(workloads.ADAM[ARGS.workload])
    if ARGS.workload in ("lenet", "resnet20"):
        return fluid.optimizer.Momentum(rate, 0.9)
    return fluid.optimizer.SGD(rate)


def parallel(main: fluid.Program, loss: Variable) -> fluid.ParallelExecutor:
    build = fluid.BuildStrategy()
    build.fuse_elewise_add_act_ops = build.fuse_all_optimizer_ops = True
    name = loss.name if PARAMETERS else None
    return fluid.ParallelExecutor(False, name, main, build_strategy=build)


def main() -> None:
    feed = workloads.batch(ARGS.workload, ARGS.batch)
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        loss = NETS[ARGS.workload](
            {key: fluid.data(key, [None, *value.shape[1:]], str(value.dtype)) for key, value in feed.items()}
        )
        if PARAMETERS:
            optimizer().minimize(loss)
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(startup)
    for key, value in PARAMETERS.items():
        fluid.global_scope().find_var(key).get_tensor().set(value, place)
    name = f"paddlepaddle {paddle.__version__}"
    if ARGS.parallel:
        many = parallel(program, loss)
        peer.measure(name, ARGS, lambda: float(many.run(fetch_list=[loss.name], feed=feed)[0].mean()))
    else:
        peer.measure(name, ARGS, lambda: executor.run(program, feed=feed, fetch_list=[loss])[0].item())


if __name__ == "__main__":
    main()
