"""PyTorch on a benchmark workload; prints one JSON line.

Every step feeds the batch from NumPy and reads the loss back, as `pe bench` does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time

import workloads

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("workload", choices=workloads.NAMES)
PARSER.add_argument("--batch", type=int, default=64)
PARSER.add_argument("--threads", type=int, default=2)
PARSER.add_argument("--steps", type=int, default=50)
PARSER.add_argument("--warmup", type=int, default=5)
PARSER.add_argument("--channels-last", action="store_true")
PARSER.add_argument("--dense", action="store_true", help="ctr: dense gradients of the tables")
ARGS = PARSER.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(ARGS.threads)

BEGIN = time.perf_counter()
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

IMPORT_S = time.perf_counter() - BEGIN
torch.set_num_threads(ARGS.threads)


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


def ctr(p: dict, feed: dict) -> torch.Tensor:
    x, sparse = torch.from_numpy(feed["x"]), not ARGS.dense
    h = torch.cat([functional.embedding(x, p["emb"], sparse=sparse).flatten(1), torch.from_numpy(feed["d"])], 1)
    for key in ("fc1", "fc2", "fc3"):
        h = torch.relu(functional.linear(h, p[f"{key}.w"], p[f"{key}.b"]))
    wide = functional.embedding(x, p["wide"], sparse=sparse).sum(1)
    logit = functional.linear(h, p["fc4.w"], p["fc4.b"]) + wide
    return functional.binary_cross_entropy_with_logits(logit, torch.from_numpy(feed["y"]))


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
    return x


def tensors() -> tuple[dict, list]:
    """Return everything by name, and what is trained."""
    p = {}
    for key, value in workloads.parameters(ARGS.workload).items():
        t = torch.from_numpy(value.T.copy() if key.endswith(".w") and value.ndim == 2 else value)
        if value.ndim == 4 and ARGS.channels_last:
            t = t.contiguous(memory_format=torch.channels_last)
        p[key] = t.requires_grad_()
    trained = list(p.values())
    for key in [k for k in p if k.endswith("_bn.g")]:
        channels = p[key].shape[0]
        p[key[:-1] + "mean"], p[key[:-1] + "variance"] = torch.zeros(channels), torch.ones(channels)
    return p, trained


def optimizers(p: dict, trained: list) -> list[torch.optim.Optimizer]:
    """Return the workload's optimizer; ctr's sparse gradients have one that is not fused."""
    rate = workloads.LEARNING_RATE
    if ARGS.workload == "ctr":
        tables = [] if ARGS.dense else [p["emb"], p["wide"]]
        rest = [t for t in trained if all(t is not table for table in tables)]
        groups = [(tables, False), (rest, True)] if tables else [(rest, True)]
        return [torch.optim.Adagrad(group, rate, eps=1e-6, fused=fused) for group, fused in groups]
    momentum = 0.9 if ARGS.workload in ("lenet", "resnet20") else 0.0
    return [torch.optim.SGD(trained, rate, momentum=momentum, fused=True)] if trained else []


def main() -> None:
    feed = workloads.batch(ARGS.workload, ARGS.batch)
    p, trained = tensors()
    updates = optimizers(p, trained)

    def step() -> float:
        x = torch.from_numpy(feed["x"])
        if not updates:
            with torch.no_grad():
                return chain(x).mean().item()
        if ARGS.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if ARGS.workload == "branches":
            loss = branches(p, x)
        elif ARGS.workload == "ctr":
            loss = ctr(p, feed)
        else:
            logits = {"mlp": mlp, "lenet": lenet, "resnet20": resnet20}[ARGS.workload](p, x)
            loss = functional.cross_entropy(logits, torch.from_numpy(feed["y"]).reshape(-1))
        for update in updates:
            update.zero_grad(set_to_none=True)
        loss.backward()
        for update in updates:
            update.step()
        return loss.item()

    begin = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - begin
    losses += [step() for _ in range(ARGS.warmup - 1)]
    times = []
    for _ in range(ARGS.steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append((time.perf_counter() - begin) * 1e3)
    line = {
        "peer": f"torch {torch.__version__}",
        "workload": ARGS.workload,
        "batch_size": ARGS.batch,
        "threads": ARGS.threads,
        "ms_per_step": {"median": statistics.median(times), "min": min(times), "max": max(times)},
        "first_step_s": first,
        "import_s": IMPORT_S,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "loss_first": losses[0],
        "loss_last": losses[-1],
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
