"""PyTorch on a benchmark workload; prints one JSON line.

Every step feeds the batch from NumPy and reads the loss back, as `pe bench` does.
"""

from __future__ import annotations

import itertools

import peer
import workloads

ARGS = peer.arguments(
    __doc__,
    channels_last="of images: convolutions run on channels last",
    dense="ctr: dense gradients of the tables",
    compile="torch.compile the forward pass; needs a C++ compiler",
    graphs="with --compile: CUDA graphs",
    cuda="on a CUDA device, float32 without tf32",
    tf32="factors of products and convolutions rounded to tf32",
    bf16="the forward pass under autocast to bfloat16",
)

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

torch.set_num_threads(ARGS.threads)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = ARGS.tf32
DEVICE = "cuda" if ARGS.cuda else "cpu"


def mlp(p: dict, x: torch.Tensor) -> torch.Tensor:
    for key in ("fc1", "fc2"):
        x = torch.relu(functional.linear(x, p[f"{key}.w"], p[f"{key}.b"]))
    return functional.linear(x, p["fc3.w"], p["fc3.b"])


def lenet(p: dict, x: torch.Tensor) -> torch.Tensor:
    for key in ("conv1", "conv2"):
        x = functional.max_pool2d(functional.conv2d(x, p[f"{key}.w"], p[f"{key}.b"]), 2)
    x = torch.relu(functional.linear(x.flatten(1), p["fc1.w"], p["fc1.b"]))
    return functional.linear(x, p["fc2.w"], p["fc2.b"])


def resnet20(p: dict, x: torch.Tensor) -> torch.Tensor:
    def convolve(value: torch.Tensor, key: str, stride: int, pad: int) -> torch.Tensor:
        value = functional.conv2d(value, p[f"{key}.w"], None, stride, pad)
        mean, variance = p[f"{key}_bn.mean"], p[f"{key}_bn.variance"]
        return functional.batch_norm(value, mean, variance, p[f"{key}_bn.g"], p[f"{key}_bn.b"], True, 0.1, 1e-5)

    x = torch.relu(convolve(x, "stem", 1, 1))
    for key, _, _, stride in workloads.blocks():
        inner = convolve(torch.relu(convolve(x, f"{key}a", stride, 1)), f"{key}b", 1, 1)
        x = torch.relu((x if stride == 1 else convolve(x, f"{key}s", stride, 0)) + inner)
    return functional.linear(x.mean((2, 3)), p["fc.w"], p["fc.b"])


def _block(p: dict, x: torch.Tensor, key: str, stride: int = 1, groups: int = 1) -> torch.Tensor:
    filters = p[f"{key}/conv.w_0"]
    x = functional.conv2d(x, filters, None, stride, filters.shape[-1] // 2, 1, groups)
    mean, variance = p[f"{key}/bn.mean"], p[f"{key}/bn.variance"]
    return functional.batch_norm(x, mean, variance, p[f"{key}/bn.w_0"], p[f"{key}/bn.b_0"], True, 0.1, 1e-5)


def resnet50(p: dict, x: torch.Tensor) -> torch.Tensor:
    x = functional.max_pool2d(torch.relu(_block(p, x, "stem", 2)), 3, 2, 1)
    for key, _, stride in workloads.bottlenecks():
        inner = torch.relu(_block(p, torch.relu(_block(p, x, f"{key}/a")), f"{key}/b", stride))
        short = _block(p, x, f"{key}/short", stride) if key.startswith("widen") else x
        x = torch.relu(short + _block(p, inner, f"{key}/c"))
    return functional.linear(x.mean((2, 3)), p["logits.w_0"], p["logits.b_0"])


def mobilenet_v1(p: dict, x: torch.Tensor) -> torch.Tensor:
    x = torch.relu(_block(p, x, "stem", 2))
    for key, channels, _, stride in workloads.separables():
        x = torch.relu(_block(p, x, f"{key}/depth", stride, channels))
        x = torch.relu(_block(p, x, f"{key}/point"))
    return functional.linear(x.mean((2, 3)), p["logits.w_0"], p["logits.b_0"])


def ctr(p: dict, feed: dict) -> torch.Tensor:
    x, sparse = torch.from_numpy(feed["x"]).to(DEVICE), not ARGS.dense
    h = torch.cat([functional.embedding(x, p["emb"], sparse=sparse).flatten(1), torch.from_numpy(feed["d"]).to(DEVICE)], 1)
    for key in ("fc1", "fc2", "fc3"):
        h = torch.relu(functional.linear(h, p[f"{key}.w"], p[f"{key}.b"]))
    wide = functional.embedding(x, p["wide"], sparse=sparse).sum(1)
    logit = functional.linear(h, p["fc4.w"], p["fc4.b"]) + wide
    return functional.binary_cross_entropy_with_logits(logit, torch.from_numpy(feed["y"]).to(DEVICE))


def lstm(p: dict, x: torch.Tensor) -> torch.Tensor:
    weights = [p[f"lstm.{key}"] for key in ("w_ih", "w_hh", "b_ih", "b_hh")]
    state = torch.zeros(1, x.shape[0], workloads.WIDTH, device=DEVICE)
    h, _, _ = torch.lstm(functional.embedding(x, p["emb"]), (state, state), weights, True, 1, 0.0, True, False, True)
    return functional.linear(h.mean(1), p["fc.w"], p["fc.b"])


def transformer(p: dict, x: torch.Tensor) -> torch.Tensor:
    def dense(value: torch.Tensor, key: str) -> torch.Tensor:
        return functional.linear(value, p[f"{key}.w"], p[f"{key}.b"])

    def norm(value: torch.Tensor, key: str) -> torch.Tensor:
        return functional.layer_norm(value, value.shape[-1:], p[f"{key}.g"], p[f"{key}.b"])

    heads, width = workloads.HEADS, workloads.WIDTH
    h = functional.embedding(x, p["emb"]) + p["pos"]
    for layer in (f"l{i}" for i in range(workloads.LAYERS)):
        qkv = dense(h, f"{layer}qkv").view(*x.shape, 3, heads, width // heads)
        mixed = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        h = norm(h + dense(mixed.transpose(1, 2).flatten(2), f"{layer}out"), f"{layer}ln1")
        h = norm(h + dense(torch.relu(dense(h, f"{layer}ff1")), f"{layer}ff2"), f"{layer}ln2")
    return dense(h.mean(1), "fc")


def branches(p: dict, x: torch.Tensor) -> torch.Tensor:
    total = None
    for tower in range(8):
        h = x
        for depth in range(4):
            h = torch.relu(functional.linear(h, p[f"b{tower}d{depth}.w"], p[f"b{tower}d{depth}.b"]))
        total = h if total is None else total + h
    return total.square().mean()


def chain(x: torch.Tensor) -> torch.Tensor:
    for i in range(workloads.CHAIN_OPS):
        x = x * 1.0001 if i % 2 == 0 else x + 0.0001
    return x.mean()


def tensors() -> tuple[dict, list]:
    """Return everything by name, and what is trained."""
    p = {}
    for key, value in workloads.parameters(ARGS.workload).items():
        t = torch.from_numpy(value.T.copy() if value.ndim == 2 and "." in key else value).to(DEVICE)
        if value.ndim == 4 and ARGS.channels_last:
            t = t.contiguous(memory_format=torch.channels_last)
        p[key] = t.requires_grad_()
    trained = list(p.values())
    for key in [k for k in p if k.endswith(("_bn.g", "/bn.w_0"))]:
        channels, name = p[key].shape[0], key.rpartition(".")[0]
        p[f"{name}.mean"], p[f"{name}.variance"] = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
    return p, trained


#: Counts Adam's steps on the host: a look at the optimizer's own count would wait for a GPU.
STEPS = itertools.count(1)


def corrected(adam: torch.optim.Adam, *_: object) -> None:
    """Put Adam's epsilon where fluid has it, beside the square root that is not yet corrected: else losses drift apart."""
    group = adam.param_groups[0]
    group["eps"] = 1e-8 / (1 - group["betas"][1] ** next(STEPS)) ** 0.5


def optimizers(p: dict, trained: list) -> list[torch.optim.Optimizer]:
    """Return the workload's optimizer; ctr's sparse gradients have one that is not fused."""
    rate = workloads.LEARNING_RATE / (100 if ARGS.workload in workloads.LARGE else 1)
    if ARGS.workload == "ctr":
        tables = [] if ARGS.dense else [p["emb"], p["wide"]]
        rest = [t for t in trained if all(t is not table for table in tables)]
        groups = [(tables, False), (rest, True)] if tables else [(rest, True)]
        if ARGS.cuda:  # a fused Adagrad exists on the CPU alone
            groups = [(group, False) for group, _ in groups]
        return [torch.optim.Adagrad(group, rate, eps=1e-6, fused=fused) for group, fused in groups]
    if ARGS.workload in workloads.ADAM:
        adam = torch.optim.Adam(trained, workloads.ADAM[ARGS.workload], fused=True)
        adam.register_step_pre_hook(corrected)
        return [adam]
    momentum = 0.9 if ARGS.workload in ("lenet", "resnet20", *workloads.LARGE) else 0.0
    return [torch.optim.SGD(trained, rate, momentum=momentum, fused=True)] if trained else []


def main() -> None:
    feed = workloads.batch(ARGS.workload, ARGS.batch)
    p, trained = tensors()
    updates = optimizers(p, trained)
    nets = {
        "mlp": mlp,
        "lenet": lenet,
        "resnet20": resnet20,
        "resnet50": resnet50,
        "mobilenet_v1": mobilenet_v1,
        "ctr": ctr,
        "lstm": lstm,
        "transformer": transformer,
        "branches": branches,
    }
    net = nets.get(ARGS.workload, chain)
    if ARGS.compile:
        net = torch.compile(net, mode="reduce-overhead" if ARGS.graphs else "default")

    def step() -> float:
        x = torch.from_numpy(feed["x"]).to(DEVICE)
        if not updates:
            with torch.no_grad():
                return net(x).item()
        if ARGS.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=ARGS.bf16):
            loss = net(p, feed if ARGS.workload == "ctr" else x)
            if ARGS.workload not in ("branches", "ctr"):
                loss = functional.cross_entropy(loss, torch.from_numpy(feed["y"]).to(DEVICE).reshape(-1))
        for update in updates:
            update.zero_grad(set_to_none=True)
        loss.backward()
        for update in updates:
            update.step()
        return loss.item()

    peer.measure(f"torch {torch.__version__}", ARGS, step)


if __name__ == "__main__":
    main()
