"""One process of PyTorch DDP over gloo on a host, with the model of `distributed.py`; prints a JSON line as `distributed_rank.py` does."""

from __future__ import annotations

import argparse
import json
import os
import sys

import distributed_rank

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--size", type=int, required=True)
parser.add_argument("--master", default="127.0.0.1")
parser.add_argument("--port", type=int, default=29517)
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--batch", type=int, required=True, help="samples of this process")
parser.add_argument("--repeats", type=int, default=4)
parser.add_argument("--bucket-mb", type=float, default=25.0)


def main() -> None:
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if args.size > 1 else "lo"
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.size > 1:
        where = f"tcp://{args.master}:{args.port}"
        torch.distributed.init_process_group("gloo", init_method=where, rank=args.rank, world_size=args.size)
    parts: list[nn.Module] = []
    for _ in range(args.layers):
        parts += [nn.Linear(args.width, args.width), nn.ReLU()]
    net: nn.Module = nn.Sequential(*parts, nn.Linear(args.width, 10))
    if args.size > 1:
        net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=args.bucket_mb, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x, y = torch.randn(args.batch, args.width), torch.randint(0, 10, (args.batch,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    step()
    step()  # DDP orders its buckets anew after the first
    found = distributed_rank.timed(step, args.repeats, distributed_rank.Messages())
    if args.size > 1:
        torch.distributed.barrier()
    print("\n" + json.dumps({"rank": args.rank, "size": args.size} | found), flush=True)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads end with it


if __name__ == "__main__":
    main()
