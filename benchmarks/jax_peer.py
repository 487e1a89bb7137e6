"""JAX on a benchmark workload: the whole training step is one jitted function; prints one JSON line.

Every step feeds the batch from NumPy and reads the loss back, as `pe bench` does. Convolutions run on channels last, which XLA's
CPU code prefers. Gradients of tables are dense: JAX has no others.
"""

from __future__ import annotations

import os

import peer
import workloads

ARGS = peer.arguments(__doc__)
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):  # XLA takes as many threads as it may run on; no option says how many
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: ARGS.threads])
if ARGS.threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax  # noqa: E402
from jax import lax, nn  # noqa: E402
from jax import numpy as jnp  # noqa: E402

Arrays = dict[str, jax.Array]


def dense(p: Arrays, key: str, x: jax.Array) -> jax.Array:
    return x @ p[f"{key}.w"] + p[f"{key}.b"]


def convolve(x: jax.Array, filters: jax.Array, stride: int = 1, pad: int = 0) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, filters, (stride, stride), [(pad, pad)] * 2, dimension_numbers=layout)


def standardise(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    return centred * lax.rsqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)


def classify(logits: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(nn.log_softmax(logits), y, 1).mean()


def mlp(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    h = nn.relu(dense(p, "fc2", nn.relu(dense(p, "fc1", feed["x"]))))
    return classify(dense(p, "fc3", h), feed["y"]), running


def lenet(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    x = feed["x"]
    for key in ("conv1", "conv2"):
        x = convolve(x, p[f"{key}.w"]) + p[f"{key}.b"]
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    flat = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)  # the rows of fc1.w count channels first
    return classify(dense(p, "fc2", nn.relu(dense(p, "fc1", flat))), feed["y"]), running


def resnet20(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    later: Arrays = {}

    def block(x: jax.Array, key: str, stride: int, pad: int) -> jax.Array:
        x = convolve(x, p[f"{key}.w"], stride, pad)
        for what, now in (("mean", x.mean((0, 1, 2))), ("variance", x.var((0, 1, 2)))):
            later[f"{key}.{what}"] = 0.9 * running[f"{key}.{what}"] + 0.1 * now
        return standardise(x, (0, 1, 2)) * p[f"{key}_bn.g"] + p[f"{key}_bn.b"]

    x = nn.relu(block(feed["x"], "stem", 1, 1))
    for key, _, _, stride in workloads.blocks():
        inner = block(nn.relu(block(x, f"{key}a", stride, 1)), f"{key}b", 1, 1)
        x = nn.relu((x if stride == 1 else block(x, f"{key}s", stride, 0)) + inner)
    return classify(dense(p, "fc", x.mean((1, 2))), feed["y"]), later


def lstm(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    words = p["emb"][feed["x"].T]  # [words, batch, width]: scan goes over the first axis
    inputs = words @ p["lstm.w_ih"] + (p["lstm.b_ih"] + p["lstm.b_hh"])

    def cell(state: tuple[jax.Array, jax.Array], gates: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ p["lstm.w_hh"], 4, axis=1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((inputs.shape[1], workloads.WIDTH))
    _, all_h = lax.scan(cell, (zeros, zeros), inputs)
    return classify(dense(p, "fc", all_h.mean(0)), feed["y"]), running


def transformer(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    heads, size = workloads.HEADS, workloads.WIDTH // workloads.HEADS

    def norm(x: jax.Array, key: str) -> jax.Array:
        return standardise(x, (-1,)) * p[f"{key}.g"] + p[f"{key}.b"]

    h = p["emb"][feed["x"]] + p["pos"]
    for layer in (f"l{i}" for i in range(workloads.LAYERS)):
        q, k, v = jnp.moveaxis(dense(p, f"{layer}qkv", h).reshape(*h.shape[:2], 3, heads, size), 2, 0)
        weights = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(h.shape)
        h = norm(h + dense(p, f"{layer}out", mixed), f"{layer}ln1")
        h = norm(h + dense(p, f"{layer}ff2", nn.relu(dense(p, f"{layer}ff1", h))), f"{layer}ln2")
    return classify(dense(p, "fc", h.mean(1)), feed["y"]), running


def ctr(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    x, y = feed["x"], feed["y"]
    h = jnp.concatenate([p["emb"][x].reshape(x.shape[0], -1), feed["d"]], 1)
    for key in ("fc1", "fc2", "fc3"):
        h = nn.relu(dense(p, key, h))
    logit = dense(p, "fc4", h) + p["wide"][x].sum(1)
    return (nn.softplus(logit) - logit * y).mean(), running


def branches(p: Arrays, feed: Arrays, running: Arrays) -> tuple[jax.Array, Arrays]:
    total = 0.0
    for tower in range(8):
        h = feed["x"]
        for depth in range(4):
            h = nn.relu(dense(p, f"b{tower}d{depth}", h))
        total = total + h
    return (total**2).mean(), running


def chain(x: jax.Array) -> jax.Array:
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
}


def update(value: jax.Array, g: jax.Array, slots: list[jax.Array], count: jax.Array) -> tuple[jax.Array, list]:
    """Return a parameter after a step, and the optimizer's state of it."""
    rate = workloads.LEARNING_RATE
    if ARGS.workload == "ctr":
        total = slots[0] + g * g
        return value - rate * g / (jnp.sqrt(total) + 1e-6), [total]
    if ARGS.workload in workloads.ADAM:
        mean, square = 0.9 * slots[0] + 0.1 * g, 0.999 * slots[1] + 0.001 * g * g
        unbiased = (jnp.sqrt(square) + 1e-8) / jnp.sqrt(1 - 0.999**count)  # epsilon where fluid has it
        return value - workloads.ADAM[ARGS.workload] / (1 - 0.9**count) * mean / unbiased, [mean, square]
    if slots:
        speed = 0.9 * slots[0] + g
        return value - rate * speed, [speed]
    return value - rate * g, []


def start() -> tuple:
    """Return parameters, optimizer state, running statistics and the count of steps."""
    p = {}
    for key, value in workloads.parameters(ARGS.workload).items():
        p[key] = jnp.asarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value)
    of = {"lenet": 1, "resnet20": 1, "ctr": 1, **dict.fromkeys(workloads.ADAM, 2)}.get(ARGS.workload, 0)
    slots = {key: [jnp.zeros_like(value) for _ in range(of)] for key, value in p.items()}
    running = {}
    for key in [k[: -len("_bn.g")] for k in p if k.endswith("_bn.g")]:
        channels = p[f"{key}_bn.g"].shape[0]
        running |= {f"{key}.mean": jnp.zeros(channels), f"{key}.variance": jnp.ones(channels)}
    return p, slots, running, jnp.zeros(())


def train(state: tuple, feed: Arrays) -> tuple[tuple, jax.Array]:
    p, slots, running, count = state
    (loss, running), gradients = jax.value_and_grad(NETS[ARGS.workload], has_aux=True)(p, feed, running)
    count += 1
    done = {key: update(p[key], gradients[key], slots[key], count) for key in p}
    return ({k: v for k, (v, _) in done.items()}, {k: s for k, (_, s) in done.items()}, running, count), loss


def main() -> None:
    feed = workloads.batch(ARGS.workload, ARGS.batch)
    if ARGS.workload == "chain":
        forward = jax.jit(chain)
        peer.measure(f"jax {jax.__version__}", ARGS, lambda: forward(feed["x"]).item())
        return
    if feed["x"].ndim == 4:  # of lenet and resnet20; done once, in favour of JAX
        feed["x"] = feed["x"].transpose(0, 2, 3, 1).copy()
    state = start()
    compiled = jax.jit(train, donate_argnums=0)

    def step() -> float:
        nonlocal state
        state, loss = compiled(state, feed)
        jax.block_until_ready(state)  # the loss may be there before the updates are
        return loss.item()

    peer.measure(f"jax {jax.__version__}", ARGS, step)


if __name__ == "__main__":
    main()
